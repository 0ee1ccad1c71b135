"""Nodes that tell others an address where they are not: a container on another machine, a port that nothing passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    import iris_py as iris

#: More than all whom a node has links to without a reason, so most of them have none to the member.
NODES = 24


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.mark.parametrize("is_refused", first_cases(1, [False, True]))
def test_a_member_at_a_wrong_address_is_not_taken_for_dead_and_is_reached(is_refused: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=11) as simulation:
            first = await simulation.start_node(beacons=False)
            others = await simulation.start_nodes(NODES, seeds=[first], beacons=False)
            wrong = f"{simulation.host_of(first)}:1" if is_refused else "10.99.0.1:4711"  # there is no such host
            member = await simulation.start_node(seeds=[first], beacons=False, advertise=[wrong])
            assert member.address == wrong
            await member.join("echo", echo)
            for node in others:
                assert await node.request("echo", b"?", timeout=10.0) == b"?"
                assert [one.id for one in await node.members("echo")] == [member.id]
            for _ in range(8):  # some of them are its neighbours, and dial it while they join
                newcomer = await simulation.start_node(seeds=[first], beacons=False)
                assert await newcomer.request("echo", b"?", timeout=10.0) == b"?"

    run(scenario(), limit_s=600)


def test_several_addresses_are_tried_in_their_order() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=12) as simulation:
            first = await simulation.start_node(beacons=False)
            wrong = f"{simulation.host_of(first)}:1"
            hidden = await simulation.start_node(seeds=[first], beacons=False, advertise=[wrong, "listen"])
            async with hidden.join("echo", echo):
                node = await simulation.start_node(seeds=[hidden], beacons=False)
                assert node.unreached_seeds() == {wrong: "refuses connections: nobody listens there"}
                node = await simulation.start_node(seeds=[first], beacons=False)
                assert await node.request("echo", b"?") == b"?"

    run(scenario(), limit_s=60)
