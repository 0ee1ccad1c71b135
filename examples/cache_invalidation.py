"""Fan-out cache invalidation: every process keeps a cache, and a broadcast empties all of them.

Start it in several terminals and type a key to forget; an empty line ends it.
"""

import asyncio
import sys

import iris_py as iris


class Cache(iris.Handler):
    """A cache that forgets what it is told to forget."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    async def on_broadcast(self, message: iris.Message) -> None:
        key = message.payload.decode()
        known = self.entries.pop(key, None) is not None
        print(f"forget {key!r}: {'gone' if known else 'was not here'}", flush=True)


async def main() -> None:
    cache = Cache()
    cache.entries = {"motd": "welcome", "price": "42"}
    async with iris.connect() as node, node.join("caches", cache):
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            count = await node.broadcast("caches", line.encode())
            print(f"told {count} caches", flush=True)


if __name__ == "__main__":
    iris.run(main())
