"""A native member or caller of the cluster "pool", for tests. Usage: pool.py serve | pool.py ask NAME

A member prints each request before it answers with "native". A caller asks in lanes until standard input ends, and prints each
request with its outcome: the reply, the name of an error, or "silent".
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

import iris_py

LANES = 4
PATIENCE_S = 10.0


def say(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())


async def serve(node: iris_py.Node) -> None:
    async def answer(request: iris_py.Request) -> bytes:
        say(request.payload.decode())
        return b"native"

    async with node.join("pool", answer):
        say("serving")
        await iris_py.until_stopped()


async def outcome(node: iris_py.Node, payload: str) -> str:
    try:
        return (await node.request("pool", payload.encode(), timeout=PATIENCE_S)).decode()
    except iris_py.RequestTimeout:
        return "silent"
    except iris_py.IrisError as exc:
        return type(exc).__name__


async def ask(node: iris_py.Node, name: str) -> None:
    over = asyncio.Event()

    async def run(lane: int) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            payload = f"{name}.{lane}.{number}"
            say(payload, await outcome(node, payload))

    async with asyncio.TaskGroup() as group:
        for lane in range(LANES):
            group.create_task(run(lane))
        await asyncio.to_thread(sys.stdin.read)
        over.set()


async def main() -> None:
    async with iris_py.connect() as node:
        await (serve(node) if sys.argv[1] == "serve" else ask(node, sys.argv[2]))


iris_py.run(main())
