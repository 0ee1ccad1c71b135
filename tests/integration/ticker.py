"""A publisher process for the tests: publishes the numbers from 1 on to a topic, a hundred a second, until the end of its
standard input, and says then how many.

Usage: ticker.py TOPIC. Configuration comes from the environment.
"""

from __future__ import annotations

import asyncio
import sys

import iris_py as iris


async def main(topic: str) -> None:
    async with iris.connect() as node:
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        number = 0
        while not end.done():
            number += 1
            await node.publish(topic, b"%d" % number)
            await asyncio.sleep(0.01)
        await node.request("echo", b"", timeout=30.0, idempotent=True)  # what was published before has come by now
        print(number, flush=True)


if __name__ == "__main__":
    iris.run(main(sys.argv[1]))
