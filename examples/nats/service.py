"""Counts words, as the services in other languages beside it do, and needs no door: it is a native member."""

import iris_py as iris


class Counter(iris.Handler):
    """Counts the words of a text, and tells everybody who listens."""

    def __init__(self, node: iris.Node) -> None:
        self._node = node

    async def on_request(self, request: iris.Request) -> bytes:
        words = len(request.payload.split())
        if words == 0:
            raise ValueError("there are no words")  # clients of NATS get Nats-Service-Error-Code
        counted = f"{words} words, counted in Python".encode()
        await self._node.publish("words.counted", counted)
        return counted


async def main() -> None:
    async with iris.connect() as node, node.join("words", Counter(node)):
        print("serving", flush=True)
        await iris.until_stopped()


if __name__ == "__main__":
    iris.run(main())
