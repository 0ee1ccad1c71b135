"""A member process for the tests: joins a cluster, says so, and serves until SIGTERM, on which it leaves.

Usage: member.py CLUSTER LOG [asyncio|uvloop]. Configuration comes from the environment. Every executed request is appended to
LOG in one system call, so a killed process has logged what it had begun. A request tells what to do: ``work MS ...`` answers
after that time, ``block S`` stops the whole event loop, ``name`` is answered with the node's id, ``die`` ends the process. The
reply is the request.
A tunnel is answered message by message with the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import uvloop

import iris_py as iris


class Member(iris.Handler):
    def __init__(self, node: iris.Node, log: int) -> None:
        self._node = node
        self._log = log

    async def on_request(self, request: iris.Request) -> bytes:
        os.write(self._log, request.payload[:100] + b"\n")
        match request.payload.split(b" ")[:2]:
            case [b"work", milliseconds]:
                await asyncio.sleep(int(milliseconds) / 1000)
            case [b"block", seconds]:
                time.sleep(float(seconds))  # noqa: ASYNC251 - that is the point
            case [b"die"]:
                os._exit(1)
            case [b"name"]:
                return self._node.id.encode()
        return request.payload

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            os.write(self._log, b"tunnel " + message[:100] + b"\n")
            await tunnel.send(message)


async def main(cluster: str, log: str) -> None:
    ended = asyncio.Event()
    # The debug mode finds what is forgotten; how slow a busy machine is would only be noise on the standard error.
    asyncio.get_running_loop().slow_callback_duration = 60.0
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with iris.connect() as node:
        await node.join(cluster, Member(node, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)))
        print("serving", node.id, node.address, flush=True)
        await ended.wait()
        # Closing the node leaves its clusters: nothing else is needed.
    print("left", node.statistics().executed, flush=True)


if __name__ == "__main__":
    factory = uvloop.new_event_loop if sys.argv[3:] != ["asyncio"] else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(sys.argv[1], sys.argv[2]))
