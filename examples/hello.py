"""The smallest Iris program: a service and a caller in one process, or in as many as you start.

Run it in two terminals: each one serves, and the requests go to both.
"""

import os

import iris_py as iris


class Greeter(iris.Handler):
    """Answers with the process that does it."""

    async def on_request(self, request: iris.Request) -> bytes:
        return f"hello {request.payload.decode()}, this is process {os.getpid()}".encode()


async def main() -> None:
    async with iris.connect() as node, node.join("greeters", Greeter()):
        for name in ("ada", "grace", "barbara", "frances"):
            print((await node.request("greeters", name.encode())).decode())


if __name__ == "__main__":
    iris.run(main())
