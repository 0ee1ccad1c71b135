"""Promoted patterns on the simulated network: nothing is lost, nothing comes twice, and the order stays."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.groups import promotions, tree
from iris_py.patterns.topic.bodies import CAST_BODY_BYTES
from iris_py.peers.outbound import Outbound
from iris_py.testing import NodeSimulation, run
from iris_py.wire.packets import MESSAGE_BYTES
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_py.api.node import Node
    from iris_py.peers.group import Group
    from iris_py.testing import Record

MANY = 5


@pytest.fixture(autouse=True)
def few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", MANY)


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, limit_s: float = 600.0) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=limit_s)


def promoted(node: Node) -> list[Any]:
    """Return the promoted entries of a node whose group it has joined."""
    casts = node._runtime.core.pubsub.deliveries.casts
    return [each for each in casts.by_group.values() if each.is_joined]


class Load:
    """Publishers that publish without a pause, to topics in turn."""

    def __init__(self, nodes: list[Node], topics: list[str], pause_s: float = 0.01) -> None:
        self.nodes = nodes
        self.topics = topics
        self.pause_s = pause_s
        self.published: dict[str, list[tuple[str, int]]] = {node.id: [] for node in nodes}
        self._is_over = False

    async def publish(self, node: Node) -> None:
        number = 0
        while not self._is_over:
            topic = self.topics[number % len(self.topics)]
            await node.publish(topic, b"%d" % number)
            self.published[node.id].append((topic, number))
            number += 1
            await asyncio.sleep(self.pause_s)

    def end(self) -> None:
        """Publish no more."""
        self._is_over = True

    async def run(self, changes: Awaitable[None]) -> None:
        """Publish while something changes, and until all has arrived."""
        tasks = [asyncio.create_task(self.publish(node)) for node in self.nodes]
        await changes
        self.end()
        await asyncio.gather(*tasks)
        await asyncio.sleep(5.0)

    def check(self, messages: list[iris.Message], topics: set[str]) -> None:
        """Check that a subscription got all messages to some topics from its first one on, once and in order, without gaps."""
        assert not [message for message in messages if message.gap or message.has_unknown_gap]
        for publisher, published in self.published.items():
            got = [(message.topic, int(message.payload)) for message in messages if message.source == publisher]
            wanted = [item for item in published if item[0] in topics]
            assert got, "nothing came"
            assert got == wanted[len(wanted) - len(got) :]

    def check_part(self, messages: list[iris.Message], topics: set[str]) -> None:
        """Check that a subscription got all messages to some topics between its first and its last one."""
        assert not [message for message in messages if message.gap or message.has_unknown_gap]
        for publisher, published in self.published.items():
            got = [(message.topic, int(message.payload)) for message in messages if message.source == publisher]
            wanted = [item for item in published if item[0] in topics]
            if got:
                start = wanted.index(got[0])
                assert got == wanted[start : start + len(got)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_pattern_is_promoted_under_load_without_loss_repetition_or_change_of_order(seed: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(MANY + 3)
        load = Load(publishers, ["a.b", "a.c"])
        exact: list[list[iris.Message]] = []
        wide: list[iris.Message] = []

        async def subscribe() -> None:
            await subscribers[0].subscribe("a.*", wide.append)
            for node in subscribers:
                messages: list[iris.Message] = []
                exact.append(messages)
                await node.subscribe("a.b", messages.append)
                await asyncio.sleep(0.05)
            await asyncio.sleep(5.0)

        await load.run(subscribe())
        assert all(len(promoted(node)) == 1 for node in subscribers)
        for messages in exact:
            load.check(messages, {"a.b"})
        load.check(wide, {"a.b", "a.c"})
        drops = {reason for node in simulation.nodes for reason in node.statistics().drops}
        assert not drops & {
            "malformed",
            "moved_missing",
            "publication_unwanted",
            "unknown_group",
            "unknown_kind",
            "unauthentic",
        }
        count = await publishers[0].publish("a.b", b"-1")
        assert count == len(subscribers) + 1, "a node that also has another pattern counts twice"

    simulate(scenario, seed=seed)


def test_subscriptions_and_publishers_that_come_later_and_end_lose_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(MANY + 2)
        load = Load(publishers, ["a.b", "a.c"])
        steady: list[iris.Message] = []
        taken: list[list[iris.Message]] = []

        async def come_and_go(node: Node) -> None:
            for _ in range(4):
                messages: list[iris.Message] = []
                taken.append(messages)
                subscription = await node.subscribe("a.b", messages.append)
                await asyncio.sleep(0.7)
                await subscription.close()
                await asyncio.sleep(0.1)

        async def change() -> None:
            for node in subscribers:
                await node.subscribe("a.b", steady.append if node is subscribers[0] else lambda _message: None)
            await asyncio.sleep(2.0)
            late = await simulation.start_nodes(3)
            load.nodes += late[2:]
            load.published[late[2].id] = []
            task = asyncio.create_task(load.publish(late[2]))
            await asyncio.gather(*(come_and_go(node) for node in [*late[:2], publishers[0]]))
            await asyncio.sleep(0.1)
            load.end()
            await task

        await load.run(change())
        load.check(steady, {"a.b"})
        for messages in taken:
            load.check_part(messages, {"a.b"})

    simulate(scenario)


def test_a_promotion_outlives_the_root_of_the_table_and_its_copies() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        subscribers = await simulation.start_nodes(MANY + 9)
        got: list[iris.Message] = []
        for node in subscribers:
            await node.subscribe("a.b", got.append)
        await asyncio.sleep(5.0)
        table = subscribers[0]._runtime.core.groups.realms()[0].id

        def keeps(node: Node) -> bool:
            roots = node._runtime.core.overlay._groups._roots
            return table in roots.roots or table in roots.copies.held

        keepers = [node for node in subscribers if keeps(node)]
        assert len(keepers) == 3, "the root and two copies"
        for node in keepers:
            simulation.kill(node)
        await asyncio.sleep(90.0)
        (publisher,) = await simulation.start_nodes(1)
        assert await publisher.publish("a.b", b"x") == len(subscribers) - len(keepers)
        await asyncio.sleep(2.0)
        assert [message.payload for message in got] == [b"x"] * (len(subscribers) - len(keepers))

    simulate(scenario)


def test_what_a_cut_off_subscriber_misses_is_its_gap() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (publisher,) = await simulation.start_nodes(1)
        subscribers = await simulation.start_nodes(MANY + 2)
        got: dict[str, list[iris.Message]] = {node.id: [] for node in subscribers}
        for node in subscribers:
            await node.subscribe("a.b", got[node.id].append)
        number = 0

        async def publish(count: int) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                await publisher.publish("a.b", b"%d" % number)
                await asyncio.sleep(0.02)

        await publish(50)
        await asyncio.sleep(5.0)
        await publish(50)
        cut_off = subscribers[:2]
        simulation.partition(cut_off, [publisher, *subscribers[2:]])
        await publish(200)
        simulation.heal()
        await asyncio.sleep(30.0)
        await publish(50)
        await asyncio.sleep(5.0)
        for node in subscribers:
            messages = got[node.id]
            numbers = [int(message.payload) for message in messages]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == number
            assert len(messages) + sum(message.gap for message in messages) == number
            if node in cut_off:
                assert sum(message.gap for message in messages) > 50

    simulate(scenario)


def test_a_burst_makes_few_casts_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    cast = Outbound.cast

    def count(outbound: Outbound, group: Group, body: bytes) -> None:
        sizes.append(len(body))
        cast(outbound, group, body)

    async def scenario(simulation: NodeSimulation) -> None:
        (publisher,) = await simulation.start_nodes(1)
        subscribers = await simulation.start_nodes(MANY + 2)
        got: list[list[iris.Message]] = [[] for _ in subscribers]
        for node, messages in zip(subscribers, got, strict=True):
            await node.subscribe("a.*", messages.append, queue_messages=100_000, queue_bytes=1 << 30)
        await asyncio.sleep(5.0)
        await publisher.publish("a.b", b"first")
        await asyncio.sleep(2.0)
        monkeypatch.setattr(Outbound, "cast", count)
        payloads = [b"%d" % number + bytes(500 if number % 3 else 20) for number in range(6000)]
        for number, payload in enumerate(payloads):
            await publisher.publish("a.b" if number // 50 % 2 else "a.c", payload)
        await publisher.publish("a.b", bytes(400_000))
        await publisher.publish("a.b", b"last")
        await asyncio.sleep(5.0)
        for messages in got:
            assert [message.payload for message in messages[1:-2]] == payloads
            assert [len(message.payload) for message in messages[-2:]] == [400_000, 4]
            assert not any(message.gap for message in messages)
        assert len(sizes) < 100
        assert max(sorted(sizes)[:-1]) <= CAST_BODY_BYTES + MESSAGE_BYTES
        assert max(sorted(sizes)[:-1]) > CAST_BODY_BYTES // 2

    simulate(scenario)


def test_no_node_sends_more_copies_of_a_publication_than_it_has_children_in_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "FANOUT_MAX", 3)

    async def scenario(simulation: NodeSimulation) -> None:
        (publisher,) = await simulation.start_nodes(1, beacons=False)
        subscribers = await simulation.start_nodes(3 * MANY, seeds=[publisher], beacons=False)
        got: list[iris.Message] = []
        for node in subscribers:
            await node.subscribe("a.b", got.append)
        await asyncio.sleep(10.0)
        await publisher.publish("a.b", b"first")
        await asyncio.sleep(1.0)
        sent: Counter[str] = Counter()

        def count(record: Record) -> None:
            sent[record.source[0]] += len(record.data)

        simulation.network.record = count
        payload = bytes(100_000)
        await publisher.publish("a.b", payload)
        await asyncio.sleep(1.0)
        copies = {host: size // len(payload) for host, size in sent.items() if size >= len(payload)}
        assert [message.payload for message in got[len(subscribers) :]] == [payload] * len(subscribers)
        assert copies[simulation.host_of(publisher)] == 1, "the one to the root"
        assert max(copies.values()) == 3

    simulate(scenario)


def test_a_subscriber_that_blocks_slows_the_publisher_down_and_loses_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (publisher,) = await simulation.start_nodes(1)
        subscribers = await simulation.start_nodes(MANY + 2)
        slow = await subscribers[0].subscribe("a.b", policy="block", queue_messages=20)
        for node in subscribers[1:]:
            await node.subscribe("a.b", lambda _message: None)
        await asyncio.sleep(5.0)
        await publisher.publish("a.b", b"-1")

        async def publish() -> None:
            for number in range(1500):
                await publisher.publish("a.b", b"%d" % number)
                await asyncio.sleep(0.001)

        task = asyncio.create_task(publish())
        await asyncio.sleep(3.0)
        assert not task.done()
        messages = []
        for _ in range(1501):
            messages.append(await anext(slow))
            await asyncio.sleep(0.001)
        await task
        assert [int(message.payload) for message in messages] == list(range(-1, 1500))
        assert not any(message.gap for message in messages)

    simulate(scenario)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_links_that_break_while_a_pattern_is_promoted_cost_no_more_than_the_gap_says(seed: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(MANY + 3)
        load = Load(publishers, ["a.b"])
        got: list[list[iris.Message]] = []
        rng = Random(seed)

        async def subscribe() -> None:
            for node in subscribers:
                messages: list[iris.Message] = []
                got.append(messages)
                await node.subscribe("a.b", messages.append)
            for _ in range(10):
                await asyncio.sleep(0.1)
                simulation.reset(rng.choice(subscribers))
            await asyncio.sleep(5.0)

        await load.run(subscribe())
        for messages in got:
            for publisher, published in load.published.items():
                own = [message for message in messages if message.source == publisher]
                numbers = [int(message.payload) for message in own]
                assert numbers == sorted(set(numbers))
                assert numbers[-1] == len(published) - 1
                missed = len(published) - numbers[0] - len(numbers)
                assert sum(message.gap for message in own) >= missed

    simulate(scenario, seed=seed)


def test_a_promoted_pattern_survives_the_rotation_of_the_secret() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        old, new = Secret(bytes(range(32))), Secret(bytes(32))
        nodes = [await simulation.start_node(keyring=Keyring(old)) for _ in range(MANY + 4)]
        publishers, subscribers = nodes[:2], nodes[2:]
        load = Load(publishers, ["a.b"])
        got: list[list[iris.Message]] = []

        async def rotate() -> None:
            for node in subscribers:
                messages: list[iris.Message] = []
                got.append(messages)
                await node.subscribe("a.b", messages.append)
            await asyncio.sleep(3.0)
            for primary, accepted in ((old, [new]), (new, [old]), (new, [])):
                for node in nodes:
                    node.rekey(Keyring(primary, accepted=accepted))
                    await asyncio.sleep(0.02)
                await asyncio.sleep(5.0)

        await load.run(rotate())
        assert all(len(promoted(node)) == 1 for node in subscribers)
        for messages in got:
            load.check(messages, {"a.b"})

    simulate(scenario)


@pytest.mark.parametrize(("seed", "is_broken"), [(1, False), (2, False), (3, True), (4, True)])
def test_no_message_overtakes_casts_when_the_publisher_rotates_its_secret(seed: int, is_broken: bool) -> None:
    """A link of the tree stands still, or breaks, while the publisher uses the new secret. That has another tree."""

    async def scenario(simulation: NodeSimulation) -> None:
        old, new = Secret(bytes(range(32))), Secret(bytes(32))
        nodes = [await simulation.start_node(keyring=Keyring(old)) for _ in range(MANY + 5)]
        publisher, *subscribers = nodes
        got: dict[str, list[iris.Message]] = {node.id: [] for node in subscribers}
        for node in subscribers:
            await node.subscribe("a.b", got[node.id].append)
        for node in nodes:
            node.rekey(Keyring(old, accepted=[new]))
        await asyncio.sleep(5.0)
        number = 0

        async def publish(count: int) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                await publisher.publish("a.b", b"%d" % number)

        await publish(20)
        await asyncio.sleep(2.0)
        (group,) = publisher._core.pubsub.publisher._cast_groups
        root = next(node for node in nodes if node._core.overlay.directory_of(group) is not None)
        victim = Random(seed).choice([node for node in subscribers if node is not root])
        simulation.stall(root, victim)
        await publish(100)
        await asyncio.sleep(0.01)
        publisher.rekey(Keyring(new, accepted=[old]))
        for _ in range(20):
            await publish(5)
            await asyncio.sleep(0.02)
        if is_broken:
            simulation.reset(victim)
        simulation.heal()
        await asyncio.sleep(5.0)
        await publish(1)
        await asyncio.sleep(5.0)
        for node in subscribers:
            messages = got[node.id]
            numbers = [int(message.payload) for message in messages]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == number
            gaps = sum(message.gap for message in messages)
            assert len(numbers) + gaps == number if node is not victim or not is_broken else len(numbers) + gaps >= number
        assert len(got[victim.id]) == number or is_broken

    simulate(scenario, seed=seed)
