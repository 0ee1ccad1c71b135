"""A subscriber process for the tests: says when it has subscribed, takes numbers until the end of its standard input, and tells
them then in one line of JSON: each number with its gap.

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

    def take(message: iris.Message) -> None:
        taken.append((int(message.payload.split()[0]), message.gap))

    async with iris.connect() as node, node.subscribe(topic, take, policy=policy):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await node.request("echo", b"", timeout=30.0, idempotent=True)  # what was published before has come by now
    print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    iris.run(main(sys.argv[1], cast("iris.OverflowPolicy", sys.argv[2])))
