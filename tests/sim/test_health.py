"""Health of a node: what a balancer is told while it joins, serves, leaves, and is cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from iris_py import Request

SERVING = iris.Health(status="SERVING")


async def echo(request: Request) -> bytes:
    return request.payload


def test_a_cluster_is_ready_once_everybody_knows_and_until_it_is_left() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            node, _other = await simulation.start_nodes(2)
            assert node.health() == SERVING
            unknown = node.health("work")
            assert (unknown.status, unknown.is_ready) == ("SERVICE_UNKNOWN", False)
            joining = asyncio.ensure_future(_join(node))
            await asyncio.sleep(0)
            assert node.health() == node.health("work")
            assert node.health().reasons == ("not every node knows yet that it serves 'work'",)
            membership = await joining
            assert node.health() == node.health("work") == SERVING
            leaving = asyncio.ensure_future(membership.leave())
            await asyncio.sleep(0)
            assert node.health("work").reasons == ("it is leaving 'work'",)
            await leaving
            assert node.health() == SERVING
            closing = asyncio.ensure_future(node.close())
            await asyncio.sleep(0)
            assert node.health().reasons == ("the node is leaving",)
            await closing
            simulation.nodes.remove(node)

    run(scenario(), limit_s=120)


async def _join(node: iris.Node) -> iris.Membership:
    return await node.join("work", echo)


def test_load_makes_nobody_unready_and_nor_does_another_cluster() -> None:
    async def scenario() -> None:
        ends = asyncio.Event()

        async def wait(_request: Request) -> bytes:
            await ends.wait()
            return b""

        async with NodeSimulation(seed=2) as simulation:
            caller, node = await simulation.start_nodes(2)
            await node.join("full", wait, concurrency=1, queue_messages=0)
            other = await node.join("other", wait)
            asked = [
                asyncio.ensure_future(caller.request(name, b"", timeout=60.0, on_full="wait"))
                for name in ("full", "full", "other")
            ]
            await simulation.until(lambda: node.statistics().executed == 2)
            assert node.health() == SERVING
            leaving = asyncio.ensure_future(other.leave())
            await asyncio.sleep(0.1)
            assert node.health("full") == SERVING
            assert node.health("other").reasons == node.health().reasons == ("it is leaving 'other'",)
            ends.set()
            await asyncio.gather(*asked, leaving)

    run(scenario(), limit_s=120)


def test_a_node_that_reaches_nobody_is_ready_only_if_it_knows_that_nobody_is_there() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=3) as simulation:
            first = await simulation.start_node()
            assert first.health() == SERVING, "without seeds the first one is the network"
            second = await simulation.start_node(seeds=[first], beacons=False)
            assert second.health() == SERVING
            simulation.partition([first], [second])
            await simulation.until(lambda: not second.health().is_ready)
            (reason,) = second.health().reasons
            assert reason.startswith(f"no other node is reached, although seeds are set: {first.address} ")
            simulation.heal()
            await simulation.until(lambda: second.health().is_ready)

    run(scenario(), limit_s=600)
