"""The smallest Iris service: it serves a cluster, and asks it once a second, until it is stopped.

Run it in two terminals: each one serves, and the requests go to both. Kill one, and the other answers.
"""

import asyncio
import os

import iris_py as iris


class Greeter(iris.Handler):
    """Answers with the process that does it."""

    async def on_request(self, request: iris.Request) -> bytes:
        return f"hello {request.payload.decode()}, this is process {os.getpid()}".encode()


async def ask(node: iris.Node) -> None:
    while True:
        reply = await node.request("greeters", b"ada", idempotent=True)  # asked again elsewhere if its member is killed
        print(reply.decode(), flush=True)
        await asyncio.sleep(1.0)


async def main() -> None:
    async with iris.connect() as node, node.join("greeters", Greeter()):
        asking = asyncio.create_task(ask(node))
        await iris.until_stopped()  # by Ctrl-C or SIGTERM
        asking.cancel()


if __name__ == "__main__":
    iris.run(main())
