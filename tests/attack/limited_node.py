"""A node in a process with few file descriptors: serves a cluster until SIGTERM.

Usage: limited_node.py CLUSTER DESCRIPTORS asyncio|uvloop. Configuration comes from the environment. The reply is the request.
The log goes to the standard error.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys

import uvloop

import iris_py


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


async def main(cluster: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with iris_py.connect(listen="127.0.0.1:0", discovery=False) as node:
        await node.join(cluster, echo)
        print("serving", node.id, node.address, flush=True)
        await ended.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[3] == "uvloop" else None) as runner:
        runner.run(main(sys.argv[1]))
