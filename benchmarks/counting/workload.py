"""One workload between two nodes of a virtual network, run as a program by the repository that is in its path."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from typing import TYPE_CHECKING

import iris_py
from iris_py.testing.virtual import run_in_network

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.testing import VirtualNetwork

CALLERS = 64
CHUNK_BYTES = 16 * 1024
_numbers = itertools.count()


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


class Sink(iris_py.Handler):
    """Takes whatever comes through a tunnel."""

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        async for _ in tunnel:
            pass


async def lone(node: Node, count: int) -> None:
    for _ in range(count):
        await node.request("echo", bytes(64))


async def callers(node: Node, count: int) -> None:
    await asyncio.gather(*(lone(node, count // CALLERS) for _ in range(CALLERS)))


async def publications(node: Node, count: int) -> None:
    payload = bytes(64)
    for _ in range(count):
        await node.publish("news", payload)


async def new_topics(node: Node, count: int) -> None:
    payload = bytes(64)
    for _ in range(count):
        await node.publish(f"users.created.{next(_numbers)}", payload)


async def tunnel(node: Node, count: int) -> None:
    payload = bytes(CHUNK_BYTES)
    async with node.tunnel("sink") as opened:
        for _ in range(count):
            await opened.send(payload)


#: By name: what is done, and the messages of the shorter run.
WORKLOADS: dict[str, tuple[Callable[[Node, int], Awaitable[None]], int]] = {
    "request": (lone, 2_000),
    "callers": (callers, 12_800),
    "publication": (publications, 50_000),
    "new topic": (new_topics, 10_000),
    "tunnel": (tunnel, 2_000),
}


async def read(subscription: iris_py.Subscription, wanted: int) -> None:
    async for _ in subscription:
        wanted -= 1
        if not wanted:
            return


def main(name: str, count: int) -> None:
    """Run a workload.

    Args:
        name: Of the workload.
        count: How many messages; as many as the shorter run has are sent before.
    """
    work, warm_up = WORKLOADS[name]

    async def within(network: VirtualNetwork) -> None:
        member, node = await network.connect(), await network.connect()
        await member.join("echo", echo)
        await member.join("sink", Sink())
        news = await member.subscribe("users.>" if work is new_topics else "news", policy="block")
        await node.members("echo")
        for times in (warm_up, count):
            reading = asyncio.ensure_future(read(news, times)) if work in (publications, new_topics) else None
            await work(node, times)
            if reading is not None:
                await reading

    gc.disable()  # else one run may have a collection more than another one, and that costs as much as a thousand messages
    run_in_network(within)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
