"""Counted patterns: a reader that continues on another node learns exactly what it missed of its pattern, and nothing else."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups import promotions
from iris_overlay.groups.config import GroupConfig
from iris_py.connector import parts_of, runtime_of
from iris_py.patterns.topic import counted_patterns
from iris_py.patterns.topic.outgoing_flows import ABSENT_S
from iris_py.testing import NodeSimulation, run
from iris_py.wire.packets import NODE_COUNTED_MAX
from iris_security import Keyring, Secret
from spark_connector.topics.buffer import Arrival
from spark_connector.topics.losses import MessageLosses
from tests.profiles import first_cases, seeds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.connector import CountedSubscription

OLD, NEW = Secret(bytes(range(32))), Secret(bytes(32))
PATTERN = "orders.*"
MATCHING = ("orders.1", "orders.2")
TOPICS = (*MATCHING, "orders.1.lines", "invoices.1", "invoices.2")


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, groups: GroupConfig | None = None) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed, groups=groups) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=200_000.0)


class Reader:
    """A reader as a streaming query is one: it continues on another node with the state that its last checkpoint has.

    Attributes:
        node: The node of its present life.
        losses: What it lost, as the query counts it.
        received: Numbers of messages in its checkpoints, by publisher: these it has got.
        lives: The ids of the nodes on which it stored checkpoints.
    """

    node: Node
    losses: MessageLosses
    _subscription: CountedSubscription

    def __init__(self, pattern: str = PATTERN) -> None:
        self._pattern = pattern
        self.received: dict[str, list[int]] = {}
        self.lives: set[str] = set()
        self._state: str | None = None

    async def start(self, node: Node) -> None:
        """Begin or continue on a node."""
        self.node = node
        self._subscription = await parts_of(node).topics.subscribe_counted(
            self._pattern, policy="drop_oldest", queue_messages=10_000, queue_bytes=1 << 20
        )
        self.losses = MessageLosses(self._pattern, node.id)
        self._learned = 0
        if self._state is None:
            self._state = json.dumps(self.losses.state())
        else:
            self.losses.restore(json.loads(self._state), self._subscription.starts)

    async def read(self) -> None:
        """Take what has arrived, and store a checkpoint."""
        messages = []
        if self._subscription.queued_messages:
            messages = await anext(self._subscription.batches())
        starts = list(self._subscription.starts.items())
        for source, before in starts[self._learned :]:
            self.losses.start(source, before)
        self._learned = len(starts)
        self.losses.note([Arrival(message, 0) for message in messages], dropped=False)
        for message in messages:
            self.received.setdefault(message.source, []).append(int(message.payload))
        if messages:
            self._state = json.dumps(self.losses.state())
            self.lives.add(self.node.id)


class Publisher:
    """A node that publishes to several topics.

    Attributes:
        node: The node.
        published: Numbers of its messages for the pattern since it began to count, in order. The payload has the number.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.published: list[int] = []
        self._number = 0

    async def publish(self, topic: str, *, counts: bool = True) -> None:
        self._number += 1
        await self.node.publish(topic, b"%d" % self._number)
        if topic in MATCHING and counts:
            self.published.append(self._number)

    async def publish_some(self, rng: Random, *, counts: bool = True) -> None:
        for _ in range(rng.randrange(8)):
            await self.publish(rng.choice(TOPICS), counts=counts)
            if rng.random() < 0.3:
                await asyncio.sleep(0.001)


def missed_of(reader: Reader, publisher: Publisher) -> int:
    """Return how many messages the reader really missed."""
    received = set(reader.received.get(publisher.node.id, ()))
    return len(set(publisher.published) - received)


async def check(simulation: NodeSimulation, reader: Reader, publishers: list[Publisher]) -> None:
    """Let each publisher publish a last message, and compare what the reader says that it missed."""
    for publisher in publishers:
        await publisher.publish("orders.1")

    async def has_last() -> bool:
        await reader.read()
        last = {publisher.node.id: publisher.published[-1] for publisher in publishers}
        return all(reader.received.get(source, [0])[-1] == number for source, number in last.items())

    async with asyncio.timeout(30.0):
        while not await has_last():  # noqa: ASYNC110 - to read is how it is seen
            await asyncio.sleep(0.05)
    for publisher in publishers:
        assert reader.losses.missed.get(publisher.node.id, 0) == missed_of(reader, publisher)
    assert not {publisher.node.id for publisher in publishers} & {*reader.losses.unknown, *reader.losses.unheard}
    for numbers in reader.received.values():
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_reader_that_continues_on_another_node_missed_what_was_published_for_its_pattern(end: str) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(4)
        publishers = [Publisher(node) for node in nodes[:2]]
        reader = Reader()
        await publishers[0].publish("invoices.1")
        await reader.start(nodes[2])
        for _ in range(3):
            await publishers[0].publish("orders.1")
        await asyncio.sleep(0.5)
        await reader.read()
        assert len(reader.received[nodes[0].id]) == 3

        await nodes[2].close() if end == "close" else simulation.kill(nodes[2])
        await asyncio.sleep(30.0)
        for _ in range(100):
            await publishers[0].publish("invoices.1")
            await publishers[0].publish("orders.1.lines")
        for _ in range(7):
            await publishers[0].publish("orders.2")

        await reader.start(nodes[3])
        await asyncio.sleep(0.5)
        await reader.read()
        assert reader.losses.missed == {nodes[0].id: 7}, "told without another message"
        await check(simulation, reader, publishers)
        assert reader.losses.missed == {nodes[0].id: 7}

    simulate(scenario)


@pytest.mark.parametrize("is_rotated", [False, True])
def test_a_count_without_a_match_goes_on_until_the_reader_is_back(is_rotated: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        keyrings = [Keyring(OLD), Keyring(OLD, accepted=[NEW]), Keyring(NEW, accepted=[OLD]), Keyring(NEW)]
        nodes = [await simulation.start_node(keyring=keyrings[0]) for _ in range(4)]
        publisher, reader = Publisher(nodes[0]), Reader()
        await reader.start(nodes[2])
        await publisher.publish("invoices.1")
        await nodes[2].close()
        simulation.nodes.remove(nodes[2])
        for keyring in keyrings[1:] if is_rotated else ():
            for node in simulation.nodes:
                node.rekey(keyring)
            await asyncio.sleep(2.0)
        for _ in range(5):
            await publisher.publish("orders.1")
        await reader.start(nodes[3])
        await check(simulation, reader, [publisher])
        assert reader.losses.missed == {nodes[0].id: 5}

    simulate(scenario)


def test_a_publisher_that_has_forgotten_its_count_is_unknown_unless_it_published_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted_patterns, "IDLE_S", 10.0)

    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(6)
        busy, quiet, ended = publishers = [Publisher(node) for node in nodes[:3]]
        reader = Reader()
        await reader.start(nodes[3])
        for publisher in publishers:
            await publisher.publish("orders.1")
        await asyncio.sleep(0.5)
        await reader.read()

        await nodes[3].close()
        await ended.node.close()
        await busy.publish("invoices.1")
        await asyncio.sleep(ABSENT_S + 8.0)
        await busy.publish("orders.1")
        await reader.start(nodes[4])
        await asyncio.sleep(0.5)
        await reader.read()
        assert (reader.losses.missed, reader.losses.unknown) == ({busy.node.id: 1}, {}), "within the time"
        assert reader.losses.unheard == [ended.node.id], "nobody knows what it published before its end"

        await nodes[4].close()
        await asyncio.sleep(ABSENT_S + 11.0)  # it may have left, or be cut off
        await busy.publish("orders.1")
        await reader.start(nodes[5])
        await busy.publish("orders.2")
        await quiet.publish("orders.2")
        await asyncio.sleep(0.5)
        await reader.read()
        assert reader.losses.unknown == {busy.node.id: 1}
        assert reader.losses.missed == {}, "the second life stored no checkpoint"
        assert reader.received[quiet.node.id] == [1, 2]

    simulate(scenario)


def test_a_promoted_pattern_has_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", 3)

    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(8)
        publisher, reader = Publisher(nodes[0]), Reader()
        others = [Reader() for _ in range(4)]
        for other, node in zip(others, nodes[3:], strict=False):
            await other.start(node)
        await reader.start(nodes[1])
        await asyncio.sleep(5.0)
        await publisher.publish("orders.1")
        await asyncio.sleep(1.0)
        await reader.read()
        assert reader.received == {nodes[0].id: [1]}

        await nodes[1].close()
        for _ in range(3):
            await publisher.publish("orders.1")
        await reader.start(nodes[2])
        await asyncio.sleep(5.0)
        await publisher.publish("orders.1")
        await asyncio.sleep(1.0)
        await reader.read()
        assert reader.received == {nodes[0].id: [1, 5]}
        assert (reader.losses.missed, reader.losses.unknown) == ({}, {nodes[0].id: 1})

    simulate(scenario)


def test_a_node_has_a_bounded_number_of_counted_patterns() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        for number in range(NODE_COUNTED_MAX):
            await Reader(f"t{number}").start(node)
        await Reader("t1").start(node)
        with pytest.raises(iris.ConfigurationError, match="16 counted patterns"):
            await Reader("other").start(node)
        with pytest.raises(iris.ConfigurationError, match="policy='none'"):
            parts_of(node).topics.subscribe_counted("t", policy="none", queue_messages=1, queue_bytes=1)  # type: ignore[arg-type]
        assert (await node.subscribe("other")).pattern == "other"

    simulate(scenario)


class Schedule:
    """Publishers and a reader, to which faults happen in a random order."""

    def __init__(self, simulation: NodeSimulation, rng: Random, others: int) -> None:
        self._simulation = simulation
        self._others = others  # subscriptions of another node
        self._rng = rng
        self._keyring = Keyring(OLD)
        self._publishers: list[Publisher] = []
        self._pulse: Publisher
        self._reader = Reader()
        self._is_running = False
        self._is_cut = False
        self._rotations = [Keyring(OLD, accepted=[NEW]), Keyring(NEW, accepted=[OLD]), Keyring(NEW)]

    async def run(self, steps: int) -> None:
        other = await self._node()
        for number in range(self._others):
            await other.subscribe(f"orders.{number}.{number}")
        self._pulse = Publisher(await self._node())
        for node in (other, self._pulse.node):
            await node.subscribe("orders.*", group="workers")
        for _ in range(2):
            self._publishers.append(Publisher(await self._node()))
            await self._publishers[-1].publish("orders.1", counts=False)
        await self._start_reader()
        faults = [self._stop_reader, self._break, self._cut, self._end_publisher, self._rotate, self._read, self._read]
        for _ in range(steps):
            await self._rng.choice(faults)()
            for publisher in self._publishers:
                await publisher.publish_some(self._rng)
            await asyncio.sleep(self._rng.choice([0.0, 0.01, 0.5, 4.0]))
            if self._rng.random() < 0.03:
                await asyncio.sleep(ABSENT_S + 10.0)  # until publishers forget the flow to who is cut off
        self._heal()
        if not self._is_running:
            await self._start_reader()
        await asyncio.sleep(5.0)
        cores = [runtime_of(node).core for node in self._simulation.nodes]
        paths = [group.path for core in cores for group in core.groups.by_id.values()]
        assert any(paths) == bool(self._others), "some tables are split"
        await check(self._simulation, self._reader, [self._pulse, *self._publishers])

    async def _node(self) -> Node:
        return await self._simulation.start_node(keyring=self._keyring)

    async def _start_reader(self) -> None:
        """Start the reader, until its first checkpoint: a life that leaves none has never been, for the next one."""
        node = await self._node()
        await self._reader.start(node)
        while node.id not in self._reader.lives:
            await self._pulse.publish("orders.1")
            await asyncio.sleep(0.1)
            await self._reader.read()
        self._is_running = True

    async def _stop_reader(self) -> None:
        """End the reader, or let it continue on another node, perhaps with a checkpoint."""
        if not self._is_running:
            await self._start_reader()
            return
        if self._rng.random() < 0.5:
            await self._reader.read()
        self._heal()
        if self._rng.random() < 0.5:
            await self._reader.node.close()
            self._simulation.nodes.remove(self._reader.node)
        else:
            self._simulation.kill(self._reader.node)
        self._is_running = False

    async def _read(self) -> None:
        if self._is_running:
            await self._reader.read()

    async def _break(self) -> None:
        self._simulation.reset(self._rng.choice(self._simulation.nodes))

    async def _cut(self) -> None:
        if self._is_cut:
            self._heal()
        elif self._is_running:
            self._simulation.partition([self._rng.choice(self._publishers).node], [self._reader.node])
            self._is_cut = True

    async def _end_publisher(self) -> None:
        """End a publisher, and start another one, which counts from the next start of the reader on."""
        if self._is_cut:
            return
        publisher = self._publishers.pop(0)
        await publisher.node.close()
        self._simulation.nodes.remove(publisher.node)
        self._publishers.append(Publisher(await self._node()))
        if not self._is_running:
            await self._publishers[-1].publish_some(self._rng, counts=False)
            await self._start_reader()
        await self._publishers[-1].publish("invoices.1")  # from its first publication on it knows of the reader

    async def _rotate(self) -> None:
        if self._rotations and not self._is_cut:
            self._keyring = self._rotations.pop(0)
            for node in self._simulation.nodes:
                node.rekey(self._keyring)
                await asyncio.sleep(0.02)
            await asyncio.sleep(2.0)

    def _heal(self) -> None:
        self._simulation.heal()
        self._is_cut = False


@pytest.mark.parametrize("seed", first_cases(6, seeds(30)))
def test_what_a_reader_missed_is_exact_over_restarts_losses_cuts_and_rotations(seed: int) -> None:
    """Every other seed has tables of interest that are split: by tags, as all patterns have the same first token."""
    others = 30 * (seed % 2)
    groups = GroupConfig(table_entries_max=12, renew_s=8.0, sweep_s=3.0) if others else None

    async def scenario(simulation: NodeSimulation) -> None:
        await Schedule(simulation, Random(seed), others).run(steps=25)

    simulate(scenario, seed=seed, groups=groups)
