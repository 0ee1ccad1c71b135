"""Document synchronisation: every change goes to all by a topic, and a survey brings a late node up to date.

A change is a key, a stamp (a counter, then the node's id) and a value. The larger stamp wins, so all become the same in any
order of changes. A node hears its own changes too, and drops these echoes by the id of the sender.
A late node subscribes and then asks every member: an earlier change may be on its way to some, but its author has it.
"""

import asyncio
import json

import iris_py as iris


class Document(iris.Handler):
    def __init__(self, node: iris.Node) -> None:
        self.node, self.echoes = node, 0
        self.fields: dict[str, tuple[tuple[int, str], str]] = {}  # key -> (stamp, value)

    async def open(self) -> None:
        await self.node.subscribe("documents.notes", callback=self.hear)
        if await self.node.members("documents"):
            async for reply in self.node.survey("documents", b"fields"):
                for change in reply.payload.splitlines():
                    self.apply(change)
        await self.node.join("documents", self)

    async def on_survey(self, request: iris.Request) -> bytes:
        return b"\n".join(json.dumps([key, stamp, value]).encode() for key, (stamp, value) in self.fields.items())

    def hear(self, change: iris.Message) -> None:
        self.echoes += change.source == self.node.id
        if change.source != self.node.id:
            self.apply(change.payload)

    def apply(self, change: bytes) -> None:
        key, (count, author), value = json.loads(change)
        self.fields[key] = max(((count, author), value), self.fields.get(key, ((0, ""), "")))

    async def edit(self, key: str, value: str) -> None:
        count = 1 + max((stamp[0] for stamp, _ in self.fields.values()), default=0)
        self.apply(change := json.dumps([key, [count, self.node.id], value]).encode())
        await self.node.publish("documents.notes", change)


async def main() -> None:
    async with iris.connect() as node, iris.connect() as second, iris.connect() as third:  # usually three machines
        ann, ben, late = Document(node), Document(second), Document(third)
        await ann.open()
        await ben.open()
        await asyncio.gather(ann.edit("title", "Notes"), ben.edit("text", "Hello"), ben.edit("title", "Our notes"))
        await late.open()
        await late.edit("author", "all of us")
        while not (ann.fields == ben.fields == late.fields and ann.echoes + ben.echoes + late.echoes == 4):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # a moment, until every change is everywhere
        print(*(f"{key}: {value}" for key, (_stamp, value) in sorted(late.fields.items())), "all the same", sep="\n")


if __name__ == "__main__":
    iris.run(main())
