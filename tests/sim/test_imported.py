"""Publications of another cloud, published here by gateways: at most once, in order, and nothing is missing without a gap."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups import promotions
from iris_overlay.groups.config import GroupConfig
from iris_py.gateway.port import port_of
from iris_py.node import inbound
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets
from iris_py.wire.imported import Imported
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_overlay.ids import GroupId
    from iris_py.api.node import Node

ORIGIN, SEQUENCE = b"\xabo" * 8, b"strm"
#: The topics of the sequence, one after the other by chance; nobody asks for the last one, so it never leaves the other cloud.
TOPICS = ("a.x", "a.x", "a.y", "b.z", "elsewhere")
WANTED = TOPICS[:-1]


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, groups: GroupConfig | None = None) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed, groups=groups) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=600.0)


class Origin:
    """A publisher in another cloud.

    Attributes:
        topics: That of each number, from 1 on.
    """

    def __init__(self, rng: Random) -> None:
        self.topics: list[str] = []
        self._rng = rng

    def publish(self, count: int) -> None:
        for _ in range(count):
            is_run = self.topics and self._rng.random() < 0.7
            self.topics.append(self.topics[-1] if is_run else self._rng.choice(TOPICS))


class Gateway:
    """A node that follows the sequence and publishes it here, at its own pace, and now and then loses some on the line.

    Attributes:
        at: The last number that it has looked at.
        node: The node.
    """

    def __init__(self, node: Node, origin: Origin, rng: Random, at: int = 0, loss: float = 0.0) -> None:
        self.node = node
        self.at = at
        self._origin = origin
        self._rng = rng
        self._loss = loss
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        gap = 0
        while True:
            while self.at < len(self._origin.topics):
                self.at += 1
                topic = self._origin.topics[self.at - 1]
                if topic == "elsewhere":
                    continue
                if self._rng.random() < self._loss:
                    gap += 1
                    continue
                try:
                    await publish(self.node, topic, self.at, gap)
                except iris.NodeClosed:
                    return
                gap = 0
                if self._rng.random() < 0.2:
                    await asyncio.sleep(self._rng.random() * 0.02)
            await asyncio.sleep(0.003)


async def publish(node: Node, topic: str, number: int, gap: int = 0, **options: Any) -> int:
    headers = options.pop("headers", None)
    origin = {"origin": ORIGIN, "sequence": SEQUENCE, "number": number, "gap": gap, "cloud": "eu", **options}
    return await port_of(node).publish_imported(topic, b"%d" % number, Imported(**origin), headers)


async def is_given_up(publication: Awaitable[int]) -> bool:
    """Give a publication up if it waits; returns whether it did."""
    try:
        async with asyncio.timeout(0.01):
            await publication
    except TimeoutError:
        return True
    return False


class Subscriber:
    """A subscription, and all it has got."""

    def __init__(self) -> None:
        self.taken: list[iris.Message] = []

    def __call__(self, message: iris.Message) -> None:
        self.taken.append(message)

    @property
    def last(self) -> int:
        return self.taken[-1].sequence if self.taken else 0

    def check(self, origin: Origin, *topics: str) -> int:
        """Check everything; returns how many are missing."""
        for message in self.taken:
            assert (message.source, message.cloud, message.cluster) == (ORIGIN.hex(), "eu", "")
            assert message.payload == b"%d" % message.sequence
            assert message.topic == origin.topics[message.sequence - 1]
            assert message.topic in topics
        assert all(message.gap == 0 for message in self.taken[:1])
        all_missing = 0
        for one, other in pairwise(self.taken):
            assert one.sequence < other.sequence
            between = origin.topics[one.sequence : other.sequence - 1]
            missing = sum(topic in topics for topic in between)
            assert other.gap <= len(between)
            assert missing <= other.gap, f"{missing} lost before {other.sequence}, and a gap of {other.gap}"
            all_missing += missing
        return all_missing


def test_a_subscriber_gets_it_as_it_was_published() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, subscriber = await simulation.start_nodes(2)
        async with subscriber.subscribe("a.>") as subscription, gateway.subscribe("a.*") as own:
            assert await publish(gateway, "a.x", 7, headers={"n": 1}) == 2
            assert await publish(gateway, "a.x", 8, 3, headers={"n": 2}) == 2
            assert await publish(gateway, "a.x.y", 12, 5, sequence=b"next") == 1
            for each in (subscription, own):
                first, second = [await anext(each), await anext(each)]
                assert first == iris.Message(b"7", ORIGIN.hex(), 7, "", "a.x", 0, first.headers, "eu")
                assert second == iris.Message(b"8", ORIGIN.hex(), 8, "", "a.x", 0, second.headers, "eu")
                assert [dict(message.headers) for message in (first, second)] == [{"n": 1}, {"n": 2}]
            third = await anext(subscription)
            assert (third.sequence, third.gap, third.topic) == (12, 0, "a.x.y")
            assert await publish(gateway, "a.x", 20, 2) == 2
            assert await publish(gateway, "a.x", 21) == 2
            for each in (subscription, own):
                assert [(message.sequence, message.gap) for message in (await anext(each), await anext(each))] == [
                    (20, 2),
                    (21, 0),
                ]
            assert (await subscriber.publish("a.x", b"own"), (await anext(own)).cloud) == (2, "")

    simulate(scenario)


def test_runs_arrive_as_runs() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, subscriber = await simulation.start_nodes(2)
        async with subscriber.subscribe("t", queue_messages=100_000) as subscription:
            await publish(gateway, "t", 1)
            await anext(subscription)
            bodies = subscriber._core.pubsub.deliveries
            calls = 0
            receive = bodies._hand_out_imported

            def count(*arguments: Any) -> None:
                nonlocal calls
                calls += 1
                receive(*arguments)

            bodies._hand_out_imported = count  # type: ignore[method-assign, assignment]
            for number in range(2, 5_002):
                await publish(gateway, "t", number)
            await simulation.until(lambda: subscription.queued_messages == 5_000)
            assert calls < 50
            numbers = [(await anext(subscription)).sequence for _ in range(5_000)]
            assert numbers == list(range(2, 5_002))

    simulate(scenario)


def test_what_a_gateway_drops_shows_with_its_next_one() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        gateway, subscriber = await simulation.start_nodes(2)
        stuck = await subscriber.subscribe("t", policy="block", queue_messages=1)
        await publish(gateway, "t", 1)
        number = 1
        while not await is_given_up(publish(gateway, "t", number + 1)):
            number += 1
            await asyncio.sleep(0.01)
        dropped = number + 1
        port_of(gateway).miss_imported(ORIGIN, SEQUENCE, 1)
        waiting = asyncio.ensure_future(publish(gateway, "t", dropped + 1))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        taken = [await anext(stuck) for _ in range(number)]
        assert [(message.sequence, message.gap) for message in taken] == [(each, 0) for each in range(1, number + 1)]
        assert await waiting == 1
        assert [((last := await anext(stuck)).sequence, last.gap)] == [(dropped + 1, 1)]

    simulate(scenario)


def test_two_gateways_that_both_believe_to_be_in_charge_deliver_once() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(4)
        rng = Random(3)
        origin = Origin(rng)
        subscribers = Subscriber(), Subscriber()
        await nodes[0].subscribe("a.*", subscribers[0])
        await nodes[1].subscribe(">", subscribers[1])
        gateways = [Gateway(node, origin, rng) for node in nodes[2:]]
        for _ in range(200):
            origin.publish(5)
            await asyncio.sleep(0.01)
        origin.topics += ["a.x", "b.z"]
        end = len(origin.topics)
        await simulation.until(lambda: [each.last for each in subscribers] == [end - 1, end])
        await simulation.until(lambda: {each.at for each in gateways} == {end})
        await asyncio.sleep(0.5)
        assert subscribers[0].check(origin, "a.x", "a.y") == 0
        assert subscribers[1].check(origin, *WANTED) == 0
        for node, count in ((nodes[0], len(subscribers[0].taken)), (nodes[1], len(subscribers[1].taken))):
            assert node.statistics().drops["federation_late"] == count, "everything came twice"
        gaps = sum(message.gap for each in subscribers for message in each.taken)
        assert gaps <= 2, "both gateways are known, and have lost nothing"
        for gateway in gateways:
            gateway.task.cancel()

    simulate(scenario)


@pytest.mark.parametrize("seed", first_cases(2, range(12)))
def test_gateways_that_die_restart_lose_and_are_cut_off_lose_nothing_in_silence(seed: int) -> None:
    async def scenario(simulation: NodeSimulation) -> int:
        rng = Random(seed)
        origin = Origin(rng)
        subscribing = await simulation.start_nodes(3)
        patterns = {"a.*": ("a.x", "a.y"), ">": WANTED, "b.>": ("b.z",), "a.x": ("a.x",)}
        subscribers = [(pattern, Subscriber()) for pattern in patterns for _ in subscribing]
        for number, (pattern, subscriber) in enumerate(subscribers):
            await subscribing[number % 3].subscribe(pattern, subscriber)
        gateways = [Gateway(await simulation.start_node(), origin, rng, 0, rng.choice((0.0, 0.02))) for _ in range(2)]
        for _ in range(12):
            for _ in range(40):
                origin.publish(rng.randrange(6))
                await asyncio.sleep(0.01)
            index = rng.randrange(len(gateways))
            each = gateways[index]
            fault = rng.randrange(4)
            if fault == 0:  # the next process begins a little before what this one had, or behind
                simulation.kill(each.node)
                each.task.cancel()
                at = max(0, min(len(origin.topics), each.at + rng.randrange(-20, 20)))
                gateways[index] = Gateway(await simulation.start_node(), origin, rng, at, rng.choice((0.0, 0.02)))
            elif fault == 1:
                cut = rng.choice(subscribing)
                simulation.partition([each.node], [cut])
                await asyncio.sleep(rng.choice((0.1, 3.0)))
                simulation.heal()
            elif fault == 2:
                simulation.reset(each.node)
            else:  # what it is for begins to be wanted by one more
                pattern = rng.choice(list(patterns))
                subscribers.append((pattern, Subscriber()))
                await rng.choice(subscribing).subscribe(pattern, subscribers[-1][1])
        await simulation.until(simulation.is_converged)
        await asyncio.sleep(6.0)
        end = 0
        for topic in ("b.z", "a.x"):  # until both gateways are heard by everybody
            origin.topics += ["elsewhere", topic] * 200
            end = len(origin.topics)
            await simulation.until(lambda end=end: all(gateway.at == end for gateway in gateways))  # type: ignore[misc]
        await simulation.until(lambda: all(each.last > end - 200 for pattern, each in subscribers if pattern != "b.>"))
        missing = sum(each.check(origin, *patterns[pattern]) for pattern, each in subscribers)
        for gateway in gateways:
            gateway.task.cancel()
        return missing

    simulate(scenario, seed=seed)


@pytest.mark.long
def test_large_groups_are_reached_down_their_trees_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", 32)

    async def scenario(simulation: NodeSimulation) -> None:
        gateways = await simulation.start_nodes(2)
        nodes = await simulation.start_nodes(40)
        subscribers = [Subscriber() for _ in nodes]
        for number, (node, subscriber) in enumerate(zip(nodes, subscribers, strict=True)):
            await node.subscribe("a.>" if number < 36 else "a.x", subscriber)
        await asyncio.sleep(5.0)  # until the pattern of many nodes is promoted
        rng = Random(5)
        origin = Origin(rng)
        origin.topics = ["a.x", "elsewhere", "a.x", "a.x"] * 10
        following = [Gateway(node, origin, rng) for node in gateways]
        end = len(origin.topics)
        await simulation.until(lambda: all(each.last == end for each in subscribers))
        await simulation.until(lambda: all(each.at == end for each in following))
        await asyncio.sleep(2.0)
        for subscriber in subscribers:
            assert subscriber.check(origin, "a.x") == 0
        assert all(len(promoted_groups(node)) == 1 for node in nodes[:36]), "more than are sent to one by one"
        assert not any(promoted_groups(node) for node in nodes[36:])
        for each in following:
            each.task.cancel()

    simulate(scenario, groups=GroupConfig(view_members_max=32))


def promoted_groups(node: Node) -> list[GroupId]:
    """Return the groups of promoted entries that a node has joined."""
    return [group for group, entry in node._core.pubsub.deliveries.casts.by_group.items() if entry.is_joined]


def test_a_node_of_an_older_version_drops_and_counts_it_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"IMPORTED": -1, "KINDS": packets.IMPORTED, "PUBLICATIONS": frozenset((packets.PUBLICATION,))}
    older_packets = SimpleNamespace(**{**vars(packets), **kinds})

    async def scenario(simulation: NodeSimulation) -> None:
        gateway, older = await simulation.start_nodes(2)
        async with older.subscribe("t") as subscription:
            monkeypatch.setattr(inbound, "packets", older_packets)
            await gateway.publish("t", b"1")
            for number in range(5, 9):
                await publish(gateway, "t", number, headers={"n": 1} if number == 5 else None)
            await gateway.publish("t", b"2")
            messages = [await anext(subscription), await anext(subscription)]
            assert [message.payload for message in messages] == [b"1", b"2"]
            assert older.statistics().drops == {"unknown_kind": 2}, "one alone, and a run"

    simulate(scenario)
