"""A subscriber process for the tests: says when it has subscribed, takes numbers until the one that its standard input names,
and tells them then in one line of JSON: each number with its gap.

Usage: subscriber.py TOPIC POLICY. Configuration comes from the environment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import iris_py as iris


async def main(topic: str, policy: iris.OverflowPolicy) -> None:
    taken: list[tuple[int, int]] = []
    has_more = asyncio.Event()

    def take(message: iris.Message) -> None:
        taken.append((int(message.payload.split()[0]), message.gap))
        has_more.set()

    async with iris.connect() as node, node.subscribe(topic, take, policy=policy):
        print("ready", flush=True)
        last = int(await asyncio.to_thread(sys.stdin.read))
        while not taken or taken[-1][0] < last:
            has_more.clear()
            await has_more.wait()
    print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    iris.run(main(sys.argv[1], cast("iris.OverflowPolicy", sys.argv[2])))
