"""NATS clients with patterns of as many shapes as their door lets them have, beside honest clients and an honest node."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from iris_py.doors.nats.pattern_shapes import SHAPES_MAX
from iris_py.testing import NodeSimulation, run
from tests.sim.nats_doors import PORT, make_client, open_virtual_door

if TYPE_CHECKING:
    import iris_py as iris
    from iris_py.api.node import Node
    from tests.nats_client import Delivered, MovingClient

MESSAGES = 1_000
REGIONS = ("eu", "us", "asia")
#: Patterns that a greedy client asks for, below each first token.
ASKED = 60


async def connect(simulation: NodeSimulation, name: str, door: Node) -> MovingClient:
    client = make_client(simulation, name, [f"{simulation.host_of(door)}:{PORT}"])
    await client.start()
    await client.wait_until_connected()
    return client


async def be_greedy(client: MovingClient, number: int) -> None:
    """Ask for patterns of ever new shapes, other ones than other greedy clients do."""
    asked = range(number * ASKED, (number + 1) * ASKED)
    for first in ("orders", "*"):
        for shape in asked:
            client.subscribe(".".join((first, *("*x"[shape >> bit & 1] for bit in range(8)))), lambda message: None)
    await client.flush()
    assert len(client.errors) == 2 * (ASKED - SHAPES_MAX)


def unwanted(node: Node) -> int:
    return node.statistics().drops.get("publication_unwanted", 0)


@pytest.mark.parametrize("greedy_count", [1, 4])
def test_honest_subscribers_beside_greedy_clients_get_what_they_want_and_hardly_more(greedy_count: int) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            publisher, honest, *door_nodes = await simulation.start_nodes(4)
            doors = [await open_virtual_door(simulation, node) for node in door_nodes]
            native: list[iris.Message] = []
            heard: dict[str, list[Delivered]] = {"beside": [], "elsewhere": []}
            clients = [await connect(simulation, name, node) for name, node in zip(heard, door_nodes, strict=True)]
            for client, messages in zip(clients, heard.values(), strict=True):
                client.subscribe("orders.*.eu", messages.append)
                await client.flush()
            for number in range(greedy_count):
                clients.append(await connect(simulation, f"greedy {number}", door_nodes[0]))
                await be_greedy(clients[-1], number)
            await honest.subscribe("orders.*.eu", native.append)
            await publisher.publish("before.all", b"")
            await asyncio.sleep(1.0)

            rng = Random(1)
            topics = [f"orders.{rng.randrange(1000)}.{rng.choice(REGIONS)}" for _ in range(MESSAGES)]
            for topic in topics:
                await publisher.publish(topic, b"")
                await asyncio.sleep(0.005)
            await asyncio.sleep(1.0)
            wanted = [topic for topic in topics if topic.endswith(".eu")]
            assert [message.topic for message in native] == wanted
            assert all([message.subject for message in messages] == wanted for messages in heard.values())
            assert max(unwanted(honest), unwanted(door_nodes[1])) < MESSAGES / 100
            if greedy_count == 1:
                assert unwanted(door_nodes[0]) < MESSAGES / 100, "the shapes of one client widen no node"
            for client in clients:
                await client.close()
            for door in doors:
                await door.close(timeout=0.0)

    run(main(), limit_s=600.0)
