"""A node that has as many links as it takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_py.node.spare_links import CROWDED_IDLE_S
from iris_py.peers.peer_table import LEAF_LINKS_SHARE
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    import iris_py as iris

#: Links of the node in question: more than its ring needs, fewer than there are callers.
LINKS_MAX = 24
CALLERS = 50


async def echo(request: iris.Request) -> bytes:
    return request.payload


async def watch(node: iris.Node, counts: list[int]) -> None:
    """Note how many peers have a link to a node, again and again."""
    while True:
        counts.append(len(node._core.peers._infos))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", first_cases(1, range(3)))
def test_everybody_is_served_and_the_links_stay_bounded(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            member = await simulation.start_node(beacons=False)
            member._core.peers.links_max = LINKS_MAX
            counts: list[int] = []
            watching = asyncio.ensure_future(watch(member, counts))
            await member.join("echo", echo)
            callers: list[iris.Node] = []
            for _ in range(CALLERS):
                callers.append(await simulation.start_node(seeds=[callers[-1] if callers else member], beacons=False))
            for _ in range(3):
                payloads = [b"%d" % number for number in range(CALLERS)]
                answers = await asyncio.gather(
                    *(caller.request("echo", payload, timeout=30.0) for caller, payload in zip(callers, payloads, strict=True))
                )
                assert answers == payloads
                await asyncio.sleep(2 * CROWDED_IDLE_S)
            assert LINKS_MAX <= max(counts) <= LINKS_MAX * (1 + LEAF_LINKS_SHARE)
            watching.cancel()

    run(scenario(), limit_s=600)
