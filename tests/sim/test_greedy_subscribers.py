"""Subscribers whose entries have so many shapes that a publisher cannot try all of them, beside honest ones."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.groups import entries
from iris_py.patterns.topic.interest import SHAPES_MAX
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_py.api.node import Node

MESSAGES = 1_000
REGIONS = ("eu", "us", "asia")


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with NodeSimulation(1) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=600.0)


def be_greedy(node: Node, first: str, shapes: range) -> None:
    """Claim entries of many shapes for a node, as its own code never does."""
    (realm,) = node._core.groups.realms()
    hasher = EntryHasher(realm.keys.interest_key())
    patterns = [(first, *("*x"[shape >> bit & 1] for bit in range(8))) for shape in shapes]
    packed = entries.pack(hasher.entry(parse_pattern(".".join(pattern))) for pattern in patterns)
    loop = asyncio.get_running_loop()
    node._core.overlay.claim(realm.id, realm.keys.proof(node._core.info.id), packed, b"", loop.time())
    node._core._outbound.has_events = True
    node._runtime.wake()


async def publish(publisher: Node) -> list[str]:
    """Publish to random topics; return them."""
    rng = Random(1)
    topics = [f"orders.{rng.randrange(1000)}.{rng.choice(REGIONS)}" for _ in range(MESSAGES)]
    for topic in topics:
        await publisher.publish(topic, b"")
        await asyncio.sleep(0.005)
    await asyncio.sleep(1.0)
    return topics


@pytest.mark.parametrize("first", ["orders", "*"])
@pytest.mark.parametrize("is_honest_first", [True, False])
def test_an_honest_subscriber_beside_greedy_ones_gets_what_it_wants_and_hardly_more(first: str, is_honest_first: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, honest, *greedy = await simulation.start_nodes(5)
        taken: list[iris.Message] = []

        async def subscribe() -> None:
            await honest.subscribe("orders.*.eu", taken.append)
            await honest.subscribe("*.7.>", lambda message: None)

        await publisher.publish("before.all", b"")
        if is_honest_first:
            await subscribe()
        for number, node in enumerate(greedy):
            be_greedy(node, first, range(number * SHAPES_MAX, (number + 2) * SHAPES_MAX))
        await asyncio.sleep(0.5)
        if not is_honest_first:
            await subscribe()
        topics = await publish(publisher)
        assert [message.topic for message in taken] == [topic for topic in topics if topic.endswith(".eu")]
        assert not any(message.gap for message in taken)
        assert honest.statistics().drops.get("publication_unwanted", 0) < MESSAGES / 100
        assert all(node.statistics().drops["publication_unwanted"] > MESSAGES / 2 for node in greedy[1:])

    simulate(scenario)


def test_a_publisher_tries_a_bounded_number_of_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, *greedy = await simulation.start_nodes(9)
        for number, node in enumerate(greedy):
            be_greedy(node, "orders", range(32 * number, 32 * number + 32))
            be_greedy(node, "*", range(32 * number, 32 * number + 32))
        await asyncio.sleep(1.0)
        await publisher.publish("orders." + ".".join("x" * 8), b"")
        await asyncio.sleep(2.0)
        index = publisher._core.pubsub.publisher._index
        plan = index._plans.find(index._stem("orders"))
        probes = index._make_probes(plan, 9)
        assert SHAPES_MAX < len(probes) <= 2 * SHAPES_MAX

    simulate(scenario)
