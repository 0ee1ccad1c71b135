"""Topics on the simulated network: order, duplicates, gaps, wildcards, races, and subscribers that stop reading."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups.config import GroupConfig
from iris_py.api.lifecycle import CLOSE_TIMEOUT_S, parts_of
from iris_py.api.subscription import BURST_S
from iris_py.api.topic import MANY_AT_ONCE
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import NodeClosed
from iris_py.patterns.topic.publisher import Publisher
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription
    from iris_py.patterns.topic.topic_plans import TopicPlan


def simulate(
    scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, limit_s: float = 600.0, **options: Any
) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed, **options) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=limit_s)


async def take(subscription: Subscription, count: int) -> list[iris.Message]:
    return [await anext(subscription) for _ in range(count)]


def test_every_subscriber_gets_what_matches_once_and_in_the_order_of_its_publisher() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        first, second, third, fourth = await simulation.start_nodes(4)
        patterns = ["a.b", "a.*", "a.>", ">", "*.b", "x.>"]
        taken: dict[tuple[int, str], list[iris.Message]] = {}
        for number, node in enumerate((second, third, fourth)):
            for pattern in patterns:
                messages = taken[number, pattern] = []
                await node.subscribe(pattern, messages.append)
        for number in range(200):
            topic = ("a.b", "a.b.c", "a.c", "c.b")[number % 4]
            assert await (first if number % 2 else second).publish(topic, b"%d" % number) == 3
        await asyncio.sleep(1.0)
        expected = {"a.b": {0}, "a.*": {0, 2}, "a.>": {0, 1, 2}, ">": {0, 1, 2, 3}, "*.b": {0, 3}, "x.>": set()}
        for (_number, pattern), messages in taken.items():
            numbers = [int(message.payload) for message in messages]
            assert sorted(numbers) == [number for number in range(200) if number % 4 in expected[pattern]]
            for parity in (0, 1):
                own = [number for number in numbers if number % 2 == parity]
                assert own == sorted(own)
            assert all(message.gap == 0 for message in messages)
            assert {message.topic for message in messages} == {
                ("a.b", "a.b.c", "a.c", "c.b")[index] for index in expected[pattern]
            }
            assert {message.source for message in messages} <= {first.id, second.id}
        assert all(not node.statistics().drops for node in simulation.nodes)

    simulate(scenario)


async def subscribe_to_others(node: Node, pattern: str) -> Subscription[bytes]:
    """Subscribe as a door does, and wait until every publisher knows."""
    told = asyncio.Event()
    subscription = parts_of(node).topics.subscribe_to_others(pattern, told.set, lambda: None)
    await told.wait()
    return subscription


def test_a_subscription_to_others_hears_nothing_of_its_own_node() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node, other = await simulation.start_nodes(2)
        subscription = await subscribe_to_others(node, "a.>")
        plain = await other.subscribe("a.both")
        for _ in range(3):
            assert await node.publish("a.own", b"own") == 0
            assert await node.publish("a.both", b"own") == 1
            assert await other.publish("a.both", b"other") == 2
        assert [message.payload for message in await take(subscription, 3)] == [b"other"] * 3
        assert len(await take(plain, 6)) == 6
        await node.subscribe("a.*")
        assert await node.publish("a.own", b"own") == 1
        await other.publish("a.own", b"last")
        assert (await anext(subscription)).payload == b"last"

    simulate(scenario)


def test_a_subscription_to_others_takes_no_task_before_its_first_message() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node, other = await simulation.start_nodes(2)
        begun: list[str] = []
        tasks = len(asyncio.all_tasks())
        topics = parts_of(node).topics
        told, ended = asyncio.Event(), asyncio.Event()
        subscription = topics.subscribe_to_others("a.b", told.set, lambda: begun.append("a"))
        topics.subscribe_to_others("never", ended.set, lambda: begun.append("never"))
        left = topics.subscribe_to_others("left", lambda: begun.append("told"), lambda: begun.append("left"))
        await left.close()
        await told.wait()
        await ended.wait()
        assert len(asyncio.all_tasks()) == tasks
        assert begun == [], "it ended before any publisher was told, and has no message"
        for _ in range(2):
            await other.publish("a.b", b"1")
            await asyncio.sleep(1.0)
            assert begun == ["a"], "the owner begins once"
        assert len(await take(subscription, 2)) == 2
        await node.close()
        assert begun == ["a", "never"], "it learns of the end of its node"
        with pytest.raises(NodeClosed):
            await anext(subscription)

    simulate(scenario)


def test_a_subscription_to_others_leaves_the_receivers_of_own_messages_known(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    find = Publisher._find_plan

    def look(publisher: Publisher, topic: str, now: float) -> TopicPlan | None:
        looks.append(topic)  # the plan is not in the cache
        return find(publisher, topic, now)

    monkeypatch.setattr(Publisher, "_find_plan", look)

    async def scenario(simulation: NodeSimulation) -> None:
        node, other = await simulation.start_nodes(2)
        await other.subscribe("honest.topic")
        subscriptions = [await subscribe_to_others(node, "many.0")]
        await asyncio.sleep(1.0)
        await node.publish("honest.topic", b"")
        looks.clear()
        for number in range(1, 5):
            subscriptions.append(await subscribe_to_others(node, f"many.{number}"))
            await asyncio.sleep(1.0)
            assert await node.publish("honest.topic", b"") == 1
        assert looks == []
        await node.subscribe("many.5")
        assert await node.publish("honest.topic", b"") == 1
        assert looks == ["honest.topic"]

    simulate(scenario)


@pytest.mark.parametrize("races", first_cases(1, [150, 1_000]))
def test_races_of_subscribing_and_publishing_lose_nothing_after_subscribe_returned(races: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(3)
        subscribers = await simulation.start_nodes(3)
        rng = Random(7)
        patterns = ["r.s", "r.*", "r.>", ">", "*.s", "r.s.>"]
        sequence = [0, 0, 0]
        stop = False

        async def publish(number: int) -> None:
            while not stop:
                sequence[number] += 1
                await publishers[number].publish("r.s", b"%d" % sequence[number])
                await asyncio.sleep(rng.random() * 0.01)

        async def race(node: Node) -> None:
            for _ in range(-(-races // 3)):
                pattern = rng.choice(patterns)
                async with node.subscribe(pattern) as subscription:
                    before = list(sequence)
                    await asyncio.sleep(0.1)
                    if pattern == "r.s.>":
                        assert subscription.queued_messages == 0
                        continue
                    counts = [0, 0, 0]
                    sources = {publisher.id: number for number, publisher in enumerate(publishers)}
                    last: dict[int, int] = {}
                    for message in await take(subscription, subscription.queued_messages):
                        number, value = sources[message.source], int(message.payload)
                        assert message.gap == 0
                        if number in last:
                            assert value == last[number] + 1, "lost, repeated or out of order"
                        else:
                            assert value <= before[number] + 1, "what was published after subscribe() is missing"
                        last[number] = value
                        counts[number] += 1
                    assert all(counts)
                await asyncio.sleep(rng.random() * 0.02)

        publishing = [asyncio.create_task(publish(number)) for number in range(3)]
        await asyncio.gather(*(race(node) for node in subscribers))
        stop = True
        await asyncio.gather(*publishing)
        for node in subscribers:
            assert node._core.pubsub.interest.entries == {}

    simulate(scenario)


def lose(publisher: Node) -> None:
    """Count and number all that waits for the flush, and lose it, as if a link had ended with it."""
    core = publisher._core
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core._outbound, "send_body", lambda *_args, **_options: None)
        core.pubsub.publisher.send_all(publisher._runtime.loop.time())


def test_what_was_lost_on_the_way_shows_as_a_gap() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        wide = await subscriber.subscribe("a.>")
        narrow = await subscriber.subscribe("a.x")
        await publisher.publish("a.x", b"1")
        await take(narrow, 1)
        for number in range(2, 12):
            await publisher.publish("a.y", b"%d" % number)
        lose(publisher)
        await publisher.publish("a.y", b"12")
        await publisher.publish("a.x", b"13")
        messages = await take(wide, 3)
        assert [(message.payload, message.gap) for message in messages] == [(b"1", 0), (b"12", 10), (b"13", 0)]
        (message,) = await take(narrow, 1)
        assert (message.payload, message.gap) == (b"13", 0)  # it did not want what was lost

    simulate(scenario)


def test_of_a_thousand_subscriptions_of_a_node_one_has_the_gap_of_a_lost_message() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        gaps: dict[str, int] = {}

        def note(message: iris.Message) -> None:
            gaps[message.topic] = gaps.get(message.topic, 0) + message.gap

        topics = [f"users.{number}" for number in range(1_000)]
        await asyncio.gather(*(subscriber.subscribe(topic, note) for topic in topics))
        for topic in topics:
            await publisher.publish(topic, b"")
        await asyncio.sleep(1.0)
        await publisher.publish("users.7", b"")
        lose(publisher)
        for topic in topics:
            await publisher.publish(topic, b"")
        await asyncio.sleep(3.0)
        assert gaps == dict.fromkeys(topics, 0) | {"users.7": 1}

    simulate(scenario)


def test_a_forgotten_publisher_is_unknown_once_to_each_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.patterns.topic.incoming_flows.PUBLISHERS_MAX", 2)

    async def scenario(simulation: NodeSimulation) -> None:
        subscriber, *publishers = await simulation.start_nodes(4)
        taken: list[iris.Message] = []
        other: list[iris.Message] = []
        await subscriber.subscribe("t", taken.append)
        await subscriber.subscribe(">", other.append)
        for publisher in (*publishers, publishers[0], publishers[0]):
            await publisher.publish("t", b"")
            await asyncio.sleep(0.1)
        for messages in (taken, other):
            assert [(message.has_unknown_gap, message.gap) for message in messages] == [(False, 0)] * 3 + [
                (True, 0),
                (False, 0),
            ]

    simulate(scenario)


def test_a_cursor_of_one_receiver_means_the_same_at_another() -> None:
    """Source and sequence name a message: for any pattern, for the publishing node itself, and after losses and cuts."""

    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        receivers = await simulation.start_nodes(3)
        cursors: dict[tuple[str, int], set[tuple[str, bytes]]] = {}
        heard: list[list[tuple[str, int]]] = []

        def note(own: list[tuple[str, int]], message: iris.Message) -> None:
            cursor = (message.source, message.sequence)
            own.append(cursor)
            cursors.setdefault(cursor, set()).add((message.topic, message.payload))

        for node in (*receivers, publishers[0]):
            for pattern in ("a.b", "a.*", ">", "c"):
                heard.append([])
                await node.subscribe(pattern, partial(note, heard[-1]))
        rng = Random(1)
        for number in range(600):
            if number == 200:
                lose(publishers[0])
            if number == 300:
                simulation.partition([publishers[0]], [receivers[0]])
            if number == 500:
                simulation.heal()
            publisher = rng.choice(publishers)
            await publisher.publish(rng.choice(("a.b", "a.c", "c")), b"%d of %s" % (number, publisher.id.encode()))
            await asyncio.sleep(0.02)
        await asyncio.sleep(10.0)
        assert all(len(found) == 1 for found in cursors.values())
        assert len({found for each in cursors.values() for found in each}) == len(cursors) == 600
        for own in heard:
            for publisher in publishers:
                sequences = [sequence for source, sequence in own if source == publisher.id]
                assert sequences == sorted(set(sequences))
                assert sequences

    simulate(scenario)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "block", "disconnect"])
def test_a_subscriber_that_stops_reading_costs_the_others_nothing(policy: iris.OverflowPolicy) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, slow, quick = await simulation.start_nodes(3)
        stuck = await slow.subscribe("t", policy=policy, queue_messages=100, queue_bytes=100 * 1024)
        got: list[bytes] = []
        await quick.subscribe("t", lambda message: got.append(message.payload[:4]))
        payload = bytes(1020)
        sent = 0
        is_blocked = False

        async def publish() -> None:
            nonlocal sent
            for number in range(5_000):
                await publisher.publish("t", number.to_bytes(4, "big") + payload)
                sent = number + 1
                if number % 20 == 0:
                    await asyncio.sleep(0.001)

        publishing = asyncio.create_task(publish())
        await asyncio.sleep(20.0)
        link = publisher._core.peers.find(slow._core.info.id)
        assert link is not None
        assert link.link is not None
        assert link.link._lanes.queued_bytes < 2 * 1024 * 1024
        if policy == "block":
            is_blocked = not publishing.done()
            assert is_blocked
            assert sent < 5_000
            with pytest.raises(iris.Overloaded, match="'t'"):
                publisher.try_publish("t", b"")
            assert 100 <= stuck.queued_messages <= sent
            taken = 0
            async for message in stuck:  # all of it arrives in the end
                assert (int.from_bytes(message.payload[:4], "big"), message.gap) == (taken, 0)
                taken += 1
                if taken == 5_000:
                    break
            assert stuck.dropped == {}
        else:
            assert stuck.queued_messages == 100
            assert stuck.queued_bytes <= 100 * 1024
        await publishing
        await simulation.until(lambda: len(got) == 5_000)
        assert got == [number.to_bytes(4, "big") for number in range(5_000)]
        drops = slow.statistics().drops
        if policy == "drop_oldest":
            assert stuck.dropped == {"oldest": 4_900}
            assert drops == {"subscription_drop_oldest": 4_900}
            first, second = await take(stuck, 2)
            assert (int.from_bytes(first.payload[:4], "big"), first.gap, second.gap) == (4_900, 4_900, 0)
        elif policy == "drop_newest":
            assert stuck.dropped == {"newest": 4_900}
            messages = await take(stuck, 100)
            assert int.from_bytes(messages[-1].payload[:4], "big") == 99
            await publisher.publish("t", b"last")
            assert (await anext(stuck)).gap == 4_900
        elif policy == "disconnect":
            assert stuck.dropped == {"cut_off": 1}
            await take(stuck, 100)
            with pytest.raises(iris.SlowSubscriber, match="'t'") as raised:
                await anext(stuck)
            assert (raised.value.topic, raised.value.policy, raised.value.queue_messages) == ("t", "disconnect", 100)
            assert await publisher.publish("t", b"") == 1

    simulate(scenario)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_each_burst_of_drops_is_logged_once(policy: iris.OverflowPolicy, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, slow = await simulation.start_nodes(2)
        stuck = await slow.subscribe("t", policy=policy, queue_messages=2)

        async def publish(times: int) -> None:
            for _ in range(times):
                await publisher.publish("t", b"")
                await asyncio.sleep(BURST_S / 2)

        await publish(2)
        assert not caplog.records
        await publish(10)
        (record,) = caplog.records
        assert "'t' is behind and drops messages, 1 so far" in record.getMessage()
        assert policy in record.getMessage()
        await take(stuck, 2)
        await publish(2)  # there is room: the burst ends
        await publish(2)
        assert len(caplog.records) == 2
        assert sum(stuck.dropped.values()) == 12

    simulate(scenario)


def test_a_blocked_publisher_goes_on_when_the_subscriber_dies() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, slow = await simulation.start_nodes(2)
        await slow.subscribe("t", policy="block", queue_messages=1)
        publishing = asyncio.create_task(_publish_many(publisher, 2_000))
        await asyncio.sleep(30.0)
        assert not publishing.done()
        simulation.kill(slow)
        await asyncio.wait_for(publishing, 10.0)

    simulate(scenario)


async def _publish_many(node: Node, count: int) -> None:
    for _ in range(count):
        await node.publish("t", bytes(10_000))
        await asyncio.sleep(0)


def test_many_subscribers_are_reached_once_each() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher = await simulation.start_node()
        nodes = await simulation.start_nodes(40, seeds=[publisher], beacons=False)
        taken: list[list[bytes]] = [[] for _ in nodes]

        def note(number: int) -> Callable[[iris.Message], None]:
            return lambda message: taken[number].append(message.payload)

        for number, node in enumerate(nodes):
            await node.subscribe("a.>" if number < 36 else "a.x", note(number))
        sent = [b"%d" % number for number in range(20)]
        for payload in sent[:10]:
            await publisher.publish("a.x", payload)
        await nodes[0].subscribe("a.x")
        everything: list[bytes] = []
        await nodes[39].subscribe(">", lambda message: everything.append(message.payload))
        for payload in sent[10:]:
            await publisher.publish("a.x", payload)
        await asyncio.sleep(5.0)
        assert taken == [sent] * 40
        assert everything == sent[10:]
        assert await publisher.publish("a.x", b"") == 40
        assert await nodes[0].publish("a.x", b"") == 40  # itself included, once

    simulate(scenario, groups=GroupConfig(view_members_max=32))


def test_very_many_subscriptions_cost_a_publisher_no_more_than_a_few() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, few, many = await simulation.start_nodes(3)
        subscriptions = [await many.subscribe(f"users.{number}") for number in range(2_000)]
        await few.subscribe("users.7")
        assert await publisher.publish("users.7", b"x") == 2
        assert await publisher.publish("users.1999", b"y") == 1
        assert (await anext(subscriptions[7])).payload == b"x"
        assert (await anext(subscriptions[1999])).payload == b"y"
        assert sum(subscription.queued_messages for subscription in subscriptions) == 0
        await asyncio.gather(*(subscription.close() for subscription in subscriptions))
        await asyncio.sleep(1.0)
        assert many._core.pubsub.interest.entries == {}
        assert await publisher.publish("users.1999", b"z") == 0

    simulate(scenario)


def test_a_node_that_closes_ends_its_subscriptions() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        one, other = await simulation.start_nodes(2)
        subscription = await one.subscribe("t")
        waiting = asyncio.create_task(_next(subscription))
        await asyncio.sleep(0)
        async with other.subscribe("t") as own:
            assert await other.publish("t", b"1") == 2
            assert [message.payload async for message in _first(own)] == [b"1"]
        async for _message in own:
            pytest.fail("a closed subscription gave a message")
        assert (await waiting).payload == b"1"
        waiting = asyncio.create_task(_next(subscription))
        await asyncio.sleep(0)
        simulation.nodes.remove(one)
        await one.close()
        with pytest.raises(iris.NodeClosed):
            await waiting
        for call in (lambda: one.try_publish("t", b""), lambda: one.subscribe("t")):
            with pytest.raises(iris.NodeClosed):
                call()
        assert await other.publish("t", b"2") == 0

    simulate(scenario)


@pytest.mark.parametrize("timeout", [30.0, 0.0])
def test_closing_waits_for_what_leaves_slowly(timeout: float) -> None:
    """Some seconds of messages are on their way out when the publisher closes."""

    async def scenario(simulation: NodeSimulation) -> None:
        one, other = await simulation.start_nodes(2)
        arrived: list[int] = []
        await other.subscribe("t", lambda message: arrived.append(len(message.payload)))
        for _ in range(3):
            await one.publish("t", bytes(3_000_000))
        simulation.nodes.remove(one)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await one.close(timeout=timeout)
        if timeout:
            assert CLOSE_TIMEOUT_S < loop.time() - before < timeout
            assert arrived == [3_000_000] * 3
        else:
            assert loop.time() - before < CLOSE_TIMEOUT_S + 2.0
            assert len(arrived) < 3

    simulate(scenario, bandwidth_bytes_s=600_000.0)


async def _next(subscription: Subscription) -> iris.Message:
    return await anext(subscription)


async def _first(subscription: Subscription) -> Any:
    async for batch in subscription.batches():
        for message in batch:
            yield message
        return


def test_wrong_arguments_are_refused_with_advice() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        with pytest.raises(iris.ConfigurationError, match="wildcard"):
            await node.publish("a.*", b"")
        with pytest.raises(iris.ConfigurationError, match="empty token"):
            node.try_publish("a..b", b"")
        with pytest.raises(iris.ConfigurationError, match="last token"):
            node.subscribe(">.a")
        with pytest.raises(iris.ConfigurationError, match="drop_oldest"):
            node.subscribe("a", policy="drop")  # type: ignore[call-overload] # that is the point
        with pytest.raises(iris.ConfigurationError, match="at least 1"):
            node.subscribe("a", queue_bytes=0)
        with pytest.raises(iris.ConfigurationError, match="function"):
            node.subscribe("a", "b")  # type: ignore[call-overload] # that is the point
        with pytest.raises(iris.MessageTooLarge):
            await node.publish("a", bytes(16 * 1024 * 1024 + 1))

    simulate(scenario)


@pytest.mark.parametrize("is_local", [False, True])
def test_what_is_published_in_one_turn_arrives_whole_and_in_order(is_local: bool) -> None:
    """Runs of one topic, changes of the topic, and payloads that fill a body or more than one."""

    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        subscription = await subscriber.subscribe("m.>")
        local = await publisher.subscribe("m.a") if is_local else None
        await publisher.publish("m.a", b"first")
        await take(subscription, 1)
        rng = Random(3)
        published: list[tuple[str, bytes]] = []
        for _ in range(100):
            topic = rng.choice(("m.a", "m.a", "m.a", "m.b"))
            payload = rng.randbytes(rng.choice((0, 1, 100, 100, 1000, 1000, 31 * 1024, 40 * 1024)))
            for _ in range(rng.choice((1, 1, 5, 40))):
                published.append((topic, payload))
                assert await publisher.publish(topic, payload) == (2 if is_local and topic == "m.a" else 1)
            if rng.random() < 0.05:
                await asyncio.sleep(0.1)
        messages = await take(subscription, len(published))
        assert [(message.topic, message.payload) for message in messages] == published
        assert [message.gap for message in messages] == [0] * len(messages)
        numbers = [message.sequence for message in messages]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        if local is not None:
            wanted = [payload for topic, payload in published if topic == "m.a"]
            assert [message.payload for message in await take(local, 1 + len(wanted))][1:] == wanted
        assert not subscriber.statistics().drops

    simulate(scenario)


@pytest.mark.parametrize("max_message_bytes", [MAX_MESSAGE_BYTES, 1000])
def test_many_are_published_as_if_one_by_one(max_message_bytes: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher = await simulation.start_node(max_message_bytes=max_message_bytes)
        subscriber = await simulation.start_node()
        subscription = await subscriber.subscribe("m")
        assert await publisher.publish_many("m", []) == 0
        rng = Random(5)
        sizes = [size for size in (0, 1, 100, 1000, 70_000, 31 * 1024, 61 * 1024) if size <= max_message_bytes]
        for count in (1, 3, MANY_AT_ONCE, MANY_AT_ONCE + 1, 2500):
            few = [1 if count > 100 and rng.random() < 0.98 else rng.choice(sizes) for _ in range(count)]
            payloads = [rng.randbytes(size) for size in few]
            assert await publisher.publish_many("m", iter(payloads)) == 1
            assert [message.payload for message in await take(subscription, count)] == payloads
        headed = await publisher.publish_many("m", [b"1", b"2"], headers={"a": 1})
        assert headed == 1
        assert [(message.payload, message.headers["a"]) for message in await take(subscription, 2)] == [(b"1", 1), (b"2", 1)]
        assert not subscriber.statistics().drops

    simulate(scenario)


def test_an_error_among_many_ends_them_and_what_comes_before_is_sent() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher = await simulation.start_node(max_message_bytes=100_000)
        subscriber = await simulation.start_node()
        subscription = await subscriber.subscribe("m")
        await publisher.publish("m", b"0")
        with pytest.raises(iris.MessageTooLarge):
            await publisher.publish_many("m", [b"1", b"2", bytes(100_001), b"3"])
        with pytest.raises(TypeError, match="not str"):
            await publisher.publish_many("m", [b"4", "text", b"5"])  # type: ignore[list-item]
        assert await publisher.publish_many("m", [bytearray(b"6")]) == 1
        assert [message.payload for message in await take(subscription, 5)] == [b"0", b"1", b"2", b"4", b"6"]
        await publisher.close()
        for payloads in ([], [b"7"]):
            with pytest.raises(iris.NodeClosed):
                await publisher.publish_many("m", payloads)

    simulate(scenario)


def test_many_wait_for_a_subscriber_that_blocks_and_none_is_lost() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        subscription = await subscriber.subscribe("m", policy="block", queue_messages=100)
        payloads = [number.to_bytes(4, "big") + bytes(5000) for number in range(3000)]
        publishing = asyncio.ensure_future(publisher.publish_many("m", payloads))
        await asyncio.sleep(5.0)
        assert not publishing.done()
        assert [message.payload for message in await take(subscription, len(payloads))] == payloads
        assert await publishing == 1

    simulate(scenario)


def test_what_is_published_after_a_change_of_the_subscriptions_goes_to_those_who_are_there_then() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        remote = await subscriber.subscribe("c")
        assert await publisher.publish("c", b"1") == await publisher.publish("c", b"2") == 1
        opening = asyncio.ensure_future(publisher.subscribe("c").__aenter__())
        await asyncio.sleep(0)
        assert publisher.try_publish("c", b"3") == 2  # in the same turn
        local = await opening
        assert publisher.try_publish("c", b"4") == publisher.try_publish("c", b"5") == 2
        assert [message.payload for message in await take(remote, 5)] == [b"1", b"2", b"3", b"4", b"5"]
        assert [message.payload for message in await take(local, 3)] == [b"3", b"4", b"5"]

    simulate(scenario)


def test_nothing_is_published_to_a_run_of_a_node_that_was_closed() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        await subscriber.subscribe("c")
        await publisher.publish("c", b"1")
        closing = asyncio.ensure_future(publisher.close())
        await publisher.publish("c", b"2")
        await asyncio.sleep(0)
        with pytest.raises(iris.NodeClosed):
            await publisher.publish("c", b"3")
        with pytest.raises(iris.NodeClosed):
            publisher.try_publish("c", b"3")
        await closing

    simulate(scenario)
