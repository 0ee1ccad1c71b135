"""A member of a group: appends each message to a file, until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import iris_py as iris

PAUSE_S = 0.002


async def main(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def take(message: iris.Message) -> None:
        await asyncio.sleep(PAUSE_S)
        os.write(file, message.payload + b"\n")

    async with iris.connect() as node, node.subscribe("orders.>", take, group="workers", policy="block"):
        print("ready", flush=True)
        await stopped.wait()


iris.run(main(sys.argv[1]))
