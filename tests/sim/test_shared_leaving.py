"""Members leave a group while its messages are on links that are slower than the path by the root of the table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_py.testing import MemoryNetwork, NodeSimulation, run
from iris_security import Keyring, Secret
from tests.sim.test_shared import Reader, counts_of, publish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

    Leave = Callable[[Node, Reader], Awaitable[None]]

#: One-way latency between the publisher and the leaving member (seconds); those of other links are a hundredth of it.
SLOW_S = 0.2


class SlowLink:
    """A network with a publisher and a member at the two ends of a slow line, and other nodes near both.

    Attributes:
        publisher: The publishing node.
        leaver: The member that leaves.
        others: Nodes near both; the root of the table is among them.
    """

    def __init__(self, seed: int) -> None:
        network = MemoryNetwork(seed)
        sites = ("middle", "left", "right")
        self.middle, self.left, self.right = (
            NodeSimulation(f"{seed} {site}", network=network, site=site, first_host=256 * number)
            for number, site in enumerate(sites)
        )
        network.lay_line("left", "right", latency_s=SLOW_S)

    async def start(self) -> None:
        keyring = Keyring(Secret(bytes(32)), network="slow")
        self.others = [await self.middle.start_node(keyring=keyring) for _ in range(5)]
        self.publisher = await self.left.start_node(seeds=self.others, keyring=keyring)
        self.leaver = await self.right.start_node(seeds=self.others, keyring=keyring)

    async def close(self) -> None:
        for simulation in (self.left, self.right, self.middle):
            await simulation.close()


async def leave_by_close(node: Node, reader: Reader) -> None:
    await reader.subscription.close()


async def leave_with_node(node: Node, reader: Reader) -> None:
    await node.close()


@pytest.mark.parametrize("leave", [leave_by_close, leave_with_node])
@pytest.mark.parametrize("seed", range(3))
def test_messages_on_a_link_slower_than_the_path_by_the_root_reach_the_leaving_member(seed: int, leave: Leave) -> None:
    async def main() -> None:
        world = SlowLink(seed)
        await world.start()
        leaving, staying = [await Reader(node, group="g").start() for node in (world.leaver, world.others[0])]
        load = asyncio.create_task(publish(world.publisher, 2000))
        await asyncio.sleep(1.0)
        await leave(world.leaver, leaving)
        await load
        counts = counts_of(world.publisher, "g")
        await world.middle.until(lambda: not counts.outstanding)
        if leave is leave_by_close:  # the word that a node has left may overtake its last counts
            assert counts.lost == 0
        assert sorted(leaving.numbers() + staying.numbers()) == list(range(2000))
        assert leaving.messages
        await world.close()

    run(main())
