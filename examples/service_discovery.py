"""Service discovery without a registry: ask everybody what they offer, and hear from whoever is there.

Every service joins one well-known cluster beside its own, and answers what it is. Nobody keeps a list that could be wrong.
"""

import asyncio

import iris_py as iris


class Service(iris.Handler):
    """Says what it is when it is asked, if that is what was asked for."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    async def on_survey(self, request: iris.Request) -> bytes | None:
        wanted = request.payload.decode()
        return f"{self.name} {self.version}".encode() if wanted in ("", self.name) else None


async def main() -> None:
    async with iris.connect() as node, iris.connect() as second, iris.connect() as third:  # usually three machines
        services = [Service("mail", "2.4"), Service("mail", "2.5"), Service("print", "1.0")]
        await asyncio.gather(*(each.join("services", it) for each, it in zip((node, second, third), services, strict=True)))

        async for reply in node.survey("services", b"", timeout=5.0):  # each as soon as it is there
            print(reply.payload.decode(), "at", reply.member.address)
        answers = await node.survey("services", b"mail", timeout=5.0)  # or all of them
        print(f"mail is served by {len(answers)} of {answers.expected} nodes")


if __name__ == "__main__":
    iris.run(main())
