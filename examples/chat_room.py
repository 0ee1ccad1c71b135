"""A chat room: one topic per room, and whoever subscribes hears it.

Start it in several terminals: `python chat_room.py ada`, `python chat_room.py grace lobby`. A line that begins with a slash, as
`/kitchen`, goes to another room; an empty line ends it.
"""

import asyncio
import sys

import iris_py as iris


class Chat:
    """One visitor, in one room at a time."""

    def __init__(self, node: iris.Node, name: str) -> None:
        self.node, self.name = node, name

    async def visit(self, room: str) -> str | None:
        """Talk in a room until there is a wish to be elsewhere; returns the next room, or None at the end."""
        async with self.node.subscribe(f"rooms.{room}", self.hear):
            await self.say(room, "is here")
            print(f"you are in the {room}", flush=True)
            while line := await read_line():
                if line.startswith("/"):
                    await self.say(room, "goes")
                    return line[1:]
                await self.say(room, f"says: {line}")
            await self.say(room, "goes home")
        return None

    async def say(self, room: str, text: str) -> None:
        await self.node.publish(f"rooms.{room}", f"{self.name} {text}".encode())

    def hear(self, message: iris.Message) -> None:
        if message.source != self.node.id:  # what we say ourselves comes back as to everybody
            print(f"[{message.topic.removeprefix('rooms.')}] {message.payload.decode()}", flush=True)


async def read_line() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def main(name: str = "visitor", room: str | None = "lobby") -> None:
    async with iris.connect() as node:
        while room:
            room = await Chat(node, name).visit(room)


if __name__ == "__main__":
    iris.run(main(*sys.argv[1:3]))
