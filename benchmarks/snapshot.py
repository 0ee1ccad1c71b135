"""How long `node.statistics()` takes at a busy node: 64 clusters that it asks, 60 links, 257 topics that it publishes to.

``python -m benchmarks.snapshot``. All nodes are in one process. Beside it, in the same turns, is how long as many plain structs
take that hold nothing: what no way of counting can be faster than.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

import typer

import iris_py
from iris_py.observe.statistics import TopicStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTERS: Final = 64
LINKS: Final = 60
TOPICS: Final = 257
#: Times that both are measured in each turn.
TIMES: Final = 50


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


async def measure(turns: int) -> None:
    """Print how long both take."""
    secret = os.urandom(32)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(iris_py.connect(secret=secret, listen="127.0.0.1:0", discovery=False))
        others = [
            await stack.enter_async_context(
                iris_py.connect(secret=secret, listen="127.0.0.1:0", discovery=False, seeds=[node.address])
            )
            for _ in range(LINKS)
        ]
        for number in range(CLUSTERS):
            await others[number % LINKS].join(f"c{number}", echo)
            await node.request(f"c{number}", b"x")
        for number in range(TOPICS):
            await node.publish(f"t{number}", b"x")
        seen = node.statistics()
        print(f"{len(seen.clusters)} clusters, {seen.links.open} links, {len(seen.topics)} topics")
        things = len(seen.clusters) * 2 + seen.links.open + len(seen.topics)
        looks, floors = [], []
        for _ in range(turns):
            looks.append(_seconds(node.statistics))
            floors.append(_seconds(lambda: [TopicStatistics() for _ in range(things)]))
            await asyncio.sleep(0)
    look_us, floor_us = median(looks) * 1e6, median(floors) * 1e6
    print(f"statistics(): {look_us:.0f} us, from {min(looks) * 1e6:.0f} to {max(looks) * 1e6:.0f} in {turns} turns")
    print(f"{things} empty structs: {floor_us:.0f} us, so it is {look_us / floor_us:.1f} times as long")


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(TIMES):
        call()
    return (time.perf_counter() - began) / TIMES


def main(turns: int = 21) -> None:
    """Measure in so many turns; the medians count."""
    iris_py.run(measure(turns))


if __name__ == "__main__":
    typer.run(main)
