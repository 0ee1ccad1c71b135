"""A publisher process for the tests: publishes numbers to a topic, as many as it is told, says to how many nodes, and waits for
the end of its standard input.

Usage: publisher.py TOPIC COUNT. Configuration comes from the environment.
"""

from __future__ import annotations

import asyncio
import sys

import iris_py as iris


async def main(topic: str, count: int) -> None:
    async with iris.connect() as node:
        nodes = 0
        for number in range(count):
            nodes = await node.publish(topic, b"%d" % number)
        print(nodes, flush=True)
        # Who goes takes with it what it relays for others, and on a busy machine that may be some of another publisher's.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    iris.run(main(sys.argv[1], int(sys.argv[2])))
