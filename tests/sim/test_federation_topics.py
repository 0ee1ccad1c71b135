"""Topics and broadcasts between clouds: what crosses, what does not, and what is said of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.api.cloud.publications import ASK_TIMEOUT_S, REST_S
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription
    from iris_py.patterns.messages import Message

CLICKS: dict[str, Any] = {"topic": "clicks.>"}
ORDERS: dict[str, Any] = {"topic": "orders.>", "allow": ["publish"]}
WORKERS = {"cluster": "workers", "allow": ["broadcast"]}
#: What two idle clouds say to each other in a second at most: probes and echoes.
IDLE_BYTES = 2000


def scenario(
    play: Callable[[VirtualFederation], Coroutine[Any, Any, None]],
    *,
    exports: list[dict[str, Any]] | None = None,
    imports: list[dict[str, Any]] | None = None,
    **how: Any,
) -> None:
    """Play a scenario between us and eu, which exports some topics."""

    async def main() -> None:
        given: list[dict[str, Any]] = [CLICKS] if exports is None else exports
        wanted: list[dict[str, Any]] = [
            {kind: rule.get("as", rule[kind])} for rule in given for kind in ("topic", "cluster") if kind in rule
        ]
        async with VirtualFederation(
            **{"clouds": {"us": 2, "eu": 2}, "links": [("us", "eu", 0.04)], "seed": 1, **how},
            exports={"eu": given},
            imports={"us": wanted if imports is None else imports},
        ) as federation:
            await federation.advance(1)
            await play(federation)

    run(main(), limit_s=600)


def ends(federation: VirtualFederation) -> tuple[Node, Node]:
    """Return a node of us and one of eu."""
    return federation.members("us")[0], federation.members("eu")[0]


async def take(subscription: Subscription, count: int) -> list[Message]:
    async with asyncio.timeout(30):
        return [await anext(subscription) for _ in range(count)]


def payloads(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


# -- subscriptions


def test_what_is_published_after_subscribing_arrives_from_the_first_message_on_and_in_order() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        begin = federation.now
        async with here.subscribe("clicks.>@eu") as clicks:
            assert federation.now - begin >= 0.08, "the other cloud has acknowledged it"
            assert clicks.is_connected
            assert clicks.pattern == "clicks.>@eu"
            await there.publish("clicks.a", b"0", headers={"kind": "first"})
            for number in range(1, 50):
                await there.publish(f"clicks.{'ab'[number % 2]}", b"%d" % number)
            got = await take(clicks, 50)
            assert payloads(got) == [b"%d" % number for number in range(50)]
            assert {message.cloud for message in got} == {"eu"}
            assert [message.topic for message in got[:3]] == ["clicks.a", "clicks.b", "clicks.a"]
            assert [message.gap for message in got] == [0] * 50
            numbers = [message.sequence for message in got]
            assert numbers == sorted(set(numbers))
            assert dict(got[0].headers) == {"kind": "first"}
            (source,) = {message.source for message in got}
            assert len(source) == 32
            assert source != there.id, "ids of nodes do not cross"
        assert not clicks.is_connected

    scenario(play)


def test_batches_callbacks_and_several_publishers_are_as_in_one_cloud() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, _there = ends(federation)
        called: list[Message] = []
        async with here.subscribe("clicks.*@eu", called.append), here.subscribe("clicks.a@eu") as clicks:
            for number in range(20):
                for node in federation.members("eu"):
                    await node.publish("clicks.a", b"%d" % number)
            await federation.until(lambda: len(called) == 40)
            batch = await anext(clicks.batches())
            assert len(batch) == 40
            assert len({message.source for message in batch}) == 2
            for source in {message.source for message in batch}:
                of_source = [message for message in batch if message.source == source]
                assert payloads(of_source) == [b"%d" % number for number in range(20)]

    scenario(play)


def test_what_nobody_wants_does_not_cross() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)

        async def publish(topic: str) -> int:
            before = federation.line_bytes("eu", "us")
            for _ in range(20):
                await there.publish(topic, bytes(10_000))
            await federation.advance(1)
            return federation.line_bytes("eu", "us") - before

        assert await publish("clicks.a") < IDLE_BYTES
        async with here.subscribe("clicks.a@eu"):
            assert await publish("clicks.b") < IDLE_BYTES
            assert await publish("clicks.a") > 200_000
            async with here.subscribe("clicks.b@eu"):
                assert await publish("clicks.b") > 200_000
            await federation.advance(1)
            assert await publish("clicks.b") < IDLE_BYTES
        await federation.advance(1)
        assert await publish("clicks.a") < IDLE_BYTES

    scenario(play)


def test_what_several_nodes_want_crosses_once() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, other = federation.members("us")
        _here, there = ends(federation)
        async with (
            here.subscribe("clicks.>@eu") as one,
            other.subscribe("clicks.>@eu") as two,
            here.subscribe("clicks.a@eu") as three,
        ):
            before = federation.line_bytes("eu", "us")
            for _ in range(20):
                await there.publish("clicks.a", bytes(10_000))
            for each in (one, two, three):
                assert len(await take(each, 20)) == 20
            assert federation.line_bytes("eu", "us") - before < 1.05 * 200_000 + IDLE_BYTES

    scenario(play)


def test_what_follows_one_another_crosses_as_a_run() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.>@eu", queue_messages=4096) as clicks:
            sent = [b"%04d" % number + bytes(60) for number in range(2000)]
            before = federation.line_bytes("eu", "us")
            await there.publish_many("clicks.a", sent[:1990])
            await there.publish_many("clicks.a", sent[1990:], headers={"kind": "late"})
            messages = await take(clicks, len(sent))
            assert federation.line_bytes("eu", "us") - before < 1.2 * 2000 * 64 + IDLE_BYTES, "four bytes beside each"
            assert payloads(messages) == sent
            assert [message.gap for message in messages] == [0] * len(sent)
            sequences = [message.sequence for message in messages]
            assert sequences == list(range(sequences[0], sequences[0] + len(sent)))
            assert [bool(message.headers) for message in messages] == [False] * 1990 + [True] * 10

    scenario(play)


def test_a_gateway_unsubscribes_in_its_own_cloud_when_nobody_has_been_interested_for_a_while() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.>@eu"):
            assert await there.publish("clicks.a", b"") == 1
        await federation.advance(20)
        assert await there.publish("clicks.a", b"") == 1
        await federation.advance(20)
        assert await there.publish("clicks.a", b"") == 0

    scenario(play)


def test_renamed_topics_cross_under_their_names_outside() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("shops.berlin.>@eu") as clicks:
            await there.publish("internal.paris.shop.clicks", b"not wanted")
            await there.publish("internal.berlin.shop.clicks.a", b"wanted")
            await there.publish("shops.berlin.x", b"not exported")
            await there.publish("internal.berlin.shop.clicks.b", b"wanted, too")
            got = await take(clicks, 2)
            assert [(message.topic, message.payload) for message in got] == [
                ("shops.berlin.clicks.a", b"wanted"),
                ("shops.berlin.clicks.b", b"wanted, too"),
            ]
        with pytest.raises(iris.NotExported):
            await here.subscribe("internal.>@eu")

    scenario(play, exports=[{"topic": "internal.*.shop.>", "as": "shops.*.>"}])


def test_a_topic_goes_by_its_most_specific_rule_only() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.>@eu") as clicks:
            for topic in ("clicks.a", "clicks.secret.a", "clicks.fast.a", "clicks.b"):
                await there.publish(topic, topic.encode())
            got = await take(clicks, 3)
            await federation.advance(1)
            assert {message.topic for message in got} == {"clicks.a", "clicks.fast.a", "clicks.b"}
            assert not clicks.queued_messages
        with pytest.raises(iris.NotExported):
            await here.subscribe("clicks.secret.a@eu")

    rules: list[dict[str, Any]] = [CLICKS, {"topic": "clicks.secret.>", "allow": ["publish"]}, {"topic": "clicks.fast.*"}]
    scenario(play, exports=rules)


def test_an_import_bounds_what_is_subscribed_to() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        with pytest.raises(iris.NotExported):
            await here.subscribe("orders.>@eu")
        async with here.subscribe(">@eu") as everything:
            before = federation.line_bytes("eu", "us")
            for topic in ("orders.a", "clicks.b", "clicks.a"):
                await there.publish(topic, topic.encode() + bytes(10_000))
            (got,) = await take(everything, 1)
            assert got.topic == "clicks.a"
            await federation.advance(1)
            assert federation.line_bytes("eu", "us") - before < 10_000 + 2 * IDLE_BYTES

    scenario(play, exports=[{"topic": ">"}], imports=[{"topic": "clicks.a"}, {"topic": "x.>"}])


def test_what_cannot_be_subscribed_to_is_refused_at_once() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, _there = ends(federation)
        with pytest.raises(iris.NotExported) as error:
            await here.subscribe("secret.>@eu")
        assert error.value.cluster == "secret.>@eu"
        assert error.value.cloud == "eu"
        with pytest.raises(iris.CloudUnavailable):
            await here.subscribe("clicks.>@asia")
        with pytest.raises(iris.ConfigurationError, match="does not let subscribers here make its publishers"):
            await here.subscribe("clicks.>@eu", policy="block")
        for name in ("@eu", "a..b@eu", "clicks.>.a@eu", "a@b@eu", "a@EU", "iris.a@eu"):
            with pytest.raises(iris.ConfigurationError):
                here.subscribe(name)
        federation.cut("us", "eu")
        await federation.advance(12)
        begin = federation.now
        with pytest.raises(iris.CloudUnavailable):
            await here.subscribe("clicks.>@eu")
        assert federation.now - begin < 1

    scenario(play)


def test_more_subscriptions_than_the_rule_allows_are_refused() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.a@eu") as one, here.subscribe("clicks.b@eu"):
            with pytest.raises(iris.Overloaded):
                await here.subscribe("clicks.c@eu")
            await there.publish("clicks.a", b"x")
            assert payloads(await take(one, 1)) == [b"x"]
        await federation.advance(1)
        async with here.subscribe("clicks.c@eu") as three:
            await there.publish("clicks.c", b"y")
            assert payloads(await take(three, 1)) == [b"y"]

    scenario(play, exports=[{"topic": "clicks.>", "subscriptions": 2}], gateways=1)


def test_a_slow_subscriber_hurts_itself_alone() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with (
            here.subscribe("clicks.>@eu", queue_messages=10) as slow,
            here.subscribe("clicks.>@eu") as quick,
            here.subscribe("clicks.>@eu", policy="disconnect", queue_messages=10) as cut_off,
        ):
            for number in range(200):
                await there.publish("clicks.a", b"%d" % number)
            assert payloads(await take(quick, 200)) == [b"%d" % number for number in range(200)]
            left = await take(slow, 10)
            assert payloads(left) == [b"%d" % number for number in range(190, 200)]
            assert left[0].gap == 190
            with pytest.raises(iris.SlowSubscriber):
                await take(cut_off, 11)

    scenario(play)


def test_a_subscriber_that_blocks_makes_publishers_wait_where_the_rule_says_so() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        count, size = 400, 64_000
        async with (
            here.subscribe("clicks.>@eu", policy="block", queue_messages=20) as blocking,
            here.subscribe("clicks.>@eu") as other,
        ):
            sent = 0

            async def publish() -> None:
                nonlocal sent
                for number in range(count):
                    await there.publish("clicks.a", b"%d " % number + bytes(size))
                    sent += 1

            publishing = asyncio.create_task(publish())
            await federation.advance(20)
            assert sent < count, "it waits"
            held = sent
            got = await take(blocking, count)
            await publishing
            assert held < count
            assert [message.payload.split()[0] for message in got] == [b"%d" % number for number in range(count)]
            assert not any(message.gap for message in got)
            assert len(await take(other, count)) == count

    scenario(play, exports=[{"topic": "clicks.>", "block": True}])


def test_an_export_that_is_removed_ends_its_subscriptions_and_no_others() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.>@eu") as clicks, here.subscribe("news.>@eu") as news, here.subscribe(">@eu") as both:
            await there.publish("clicks.a", b"last")
            await federation.advance(1)
            await federation.reload("eu", exports=[{"topic": "news.>"}])
            assert payloads(await take(clicks, 1)) == [b"last"]
            with pytest.raises(iris.NotExported):
                await take(clicks, 1)
            assert not clicks.is_connected
            await there.publish("clicks.a", b"no more")
            await there.publish("news.a", b"news")
            assert payloads(await take(news, 1)) == [b"news"]
            assert payloads(await take(both, 2)) == [b"last", b"news"]
            with pytest.raises(iris.NotExported):
                await here.subscribe("clicks.a@eu")

    scenario(play, exports=[CLICKS, {"topic": "news.>"}])


def test_an_export_that_is_added_joins_the_subscriptions_that_it_is_for() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe(">@eu") as everything:
            await federation.reload("eu", exports=[CLICKS, {"topic": "news.>"}])
            await federation.advance(2)
            await there.publish("news.a", b"news")
            await there.publish("clicks.a", b"click")
            assert {message.payload for message in await take(everything, 2)} == {b"news", b"click"}

    scenario(play, imports=[{"topic": ">"}])


def test_what_comes_from_one_cloud_is_not_passed_on_to_a_third_one() -> None:
    async def main() -> None:
        async with VirtualFederation(
            seed=1,
            clouds={"us": 1, "eu": 2, "asia": 1},
            links=[("us", "eu", 0.02), ("asia", "eu", 0.02)],
            exports={"eu": [{"topic": "clicks.>", "allow": ["subscribe", "publish"]}]},
            imports={"us": [CLICKS], "asia": [CLICKS]},
        ) as federation:
            await federation.advance(1)
            (here,), there, (third,) = federation.members("us"), federation.members("eu"), federation.members("asia")
            async with (
                there[0].subscribe("clicks.>") as own,
                here.subscribe("clicks.>@eu") as far,
                third.subscribe("clicks.>@eu") as back,
            ):
                assert await third.publish("clicks.a@eu", b"asian") == 1
                await there[1].publish("clicks.a", b"european")
                got = await take(own, 2)
                assert {(message.payload, message.cloud) for message in got} == {(b"asian", "asia"), (b"european", "")}
                await federation.advance(1)
                assert payloads(await take(far, 1)) == [b"european"]
                assert payloads(await take(back, 1)) == [b"european"]
                assert not far.queued_messages
                assert not back.queued_messages

    run(main(), limit_s=300)


def test_subscriptions_go_on_over_another_gateway_and_say_where_something_may_be_missing() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with here.subscribe("clicks.>@eu") as clicks:
            for cloud, number in (("us", 0), ("us", 1), ("eu", 0), ("eu", 1)):
                await there.publish("clicks.a", b"before")
                assert payloads(await take(clicks, 1)) == [b"before"]
                gateway = federation.gateways(cloud)[number]
                federation.kill(gateway)
                await there.publish("clicks.a", b"meanwhile")
                await federation.advance(8)
                await there.publish("clicks.a", b"after")
                got = await take(clicks, 1)
                if got[0].payload == b"meanwhile":
                    got = await take(clicks, 1)
                    assert not got[0].gap
                else:
                    assert got[0].gap
                assert got[0].payload == b"after"
                await federation.restart_gateway(gateway)
                await federation.advance(2)

    scenario(play)


# -- publishing


def test_publications_to_another_cloud_come_from_their_publisher_and_in_order() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with there.subscribe("orders.>") as orders, federation.members("eu")[1].subscribe("orders.b") as some:
            for number in range(40):
                assert await here.publish(f"orders.{'ab'[number % 2]}@eu", b"%d" % number, headers={"n": number}) == 1
            assert await here.publish_many("orders.a@eu", (b"%d" % number for number in range(40, 3000))) == 1
            got = await take(orders, 3000)
            assert payloads(got) == [b"%d" % number for number in range(3000)]
            assert {message.cloud for message in got} == {"us"}
            assert not any(message.gap for message in got)
            assert dict(got[7].headers) == {"n": 7}
            (source,) = {message.source for message in got}
            assert source == federation.gateways("us")[0].pseudonym_of("eu", here.id)
            assert payloads(await take(some, 20)) == [b"%d" % number for number in range(1, 40, 2)]

    scenario(play, exports=[ORDERS])


def test_what_another_cloud_does_not_take_is_refused_at_its_first_use() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        for topic in ("clicks.a@eu", "other@eu"):
            with pytest.raises(iris.NotExported):
                await here.publish(topic, b"")
        with pytest.raises(iris.CloudUnavailable):
            await here.publish("orders.a@asia", b"")
        for topic in ("orders.*@eu", "@eu", "a..b@eu"):
            with pytest.raises(iris.ConfigurationError):
                await here.publish(topic, b"")
        with pytest.raises(iris.MessageTooLarge):
            await here.publish("orders.a@eu", bytes(here.max_message_bytes + 1))
        async with there.subscribe("orders.>") as orders:
            with pytest.raises(iris.Overloaded):
                here.try_publish("orders.a@eu", b"too early")
            await federation.advance(1)
            assert here.try_publish("orders.a@eu", b"x") == 1
            assert payloads(await take(orders, 1)) == [b"x"]
            for _ in range(10):
                here.try_publish("orders.a@eu", bytes(100_000))
            with pytest.raises(iris.Overloaded):
                here.try_publish("orders.a@eu", bytes(100_000))
            await federation.advance(2)
            await federation.reload("eu", exports=[CLICKS])
            await federation.advance(5)
            assert await here.publish("orders.a@eu", b"found out by this one") == 1
            await federation.advance(1)
            with pytest.raises(iris.NotExported):
                await here.publish("orders.a@eu", b"")

    scenario(play, exports=[CLICKS, ORDERS])


def test_a_large_publication_crosses_whole() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        large = bytes(range(256)) * 4 * 10_000
        async with there.subscribe("orders.>") as orders, here.subscribe("clicks.>@eu") as clicks:
            await here.publish("orders.a@eu", large)
            await there.publish("clicks.a", large)
            assert payloads(await take(orders, 1)) == [large]
            assert payloads(await take(clicks, 1)) == [large]

    scenario(play, exports=[CLICKS, ORDERS])


def test_a_tunnel_for_publishing_that_rests_is_closed_and_opened_again() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        async with there.subscribe("orders.>") as orders:
            for number in range(2):
                await here.publish("orders.a@eu", b"%d" % number)
                (got,) = await take(orders, 1)
                assert (got.payload, got.gap) == (b"%d" % number, 0)
                await federation.advance(150)
                assert not here._core.tunnels._live

    scenario(play, exports=[ORDERS])


def test_a_node_that_closes_passes_its_publications_and_keeps_no_task() -> None:
    async def play(federation: VirtualFederation) -> None:
        _here, there = ends(federation)
        node = await federation.start_node("us")
        async with there.subscribe("orders.>", policy="block") as orders:
            clicks = await node.subscribe("clicks.>@eu")
            published = [b"%d" % number + bytes(20_000) for number in range(200)]
            for payload in published:
                await node.publish("orders.a@eu", payload)
            await node.close()
            assert payloads(await take(orders, len(published))) == published
        with pytest.raises(iris.NodeClosed):
            await anext(clicks)
        await federation.until(lambda: not any("/api/cloud/" in repr(task) for task in asyncio.all_tasks()))

    scenario(play, exports=[CLICKS, ORDERS])


# -- broadcasts


class Worker(iris.Handler):
    """A member that notes what is broadcast."""

    def __init__(self) -> None:
        self.got: list[Message] = []

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: Message) -> None:
        self.got.append(message)


def test_a_broadcast_reaches_the_members_in_order_and_says_how_many_they_are() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, _there = ends(federation)
        workers = [Worker() for _node in federation.members("eu")]
        for node, worker in zip(federation.members("eu"), workers, strict=True):
            await node.join("workers", worker)
        await federation.advance(1)
        assert await here.broadcast("workers@eu", b"0", headers={"a": 1}) == 2
        begin = federation.now
        counts = await asyncio.gather(*(here.broadcast("workers@eu", b"%d" % number) for number in range(1, 20)))
        assert counts == [2] * 19
        assert federation.now - begin < 0.2, "they do not wait for each other"
        for worker in workers:
            await federation.until(lambda worker=worker: len(worker.got) == 20)  # type: ignore[misc]
            assert payloads(worker.got) == [b"%d" % number for number in range(20)]
            assert {message.cloud for message in worker.got} == {"us"}
            assert {message.cluster for message in worker.got} == {"workers"}
            assert dict(worker.got[0].headers) == {"a": 1}
            numbers = [message.sequence for message in worker.got]
            assert numbers == sorted(set(numbers))
        with pytest.raises(iris.NotExported):
            await here.broadcast("others@eu", b"")
        with pytest.raises(iris.CloudUnavailable):
            await here.broadcast("workers@asia", b"")

    scenario(play, exports=[WORKERS])


def test_a_node_that_dies_fails_the_broadcasts_that_wait_for_their_number() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        await there.join("workers", Worker())
        assert await here.broadcast("workers@eu", b"0") == 1
        asked = asyncio.create_task(here.broadcast("workers@eu", b"1"))
        await federation.advance(0.02)  # less than a round trip of the line
        federation.kill(here)
        with pytest.raises(iris.NodeClosed):
            await asked

    scenario(play, exports=[WORKERS])


def test_broadcasts_over_the_limit_say_when_to_come_again() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        await there.join("workers", Worker())
        await federation.advance(1)
        assert await here.broadcast("workers@eu", b"") == 1
        with pytest.raises(iris.Overloaded) as error:
            await asyncio.gather(*(here.broadcast("workers@eu", b"") for _ in range(9)))
        assert error.value.retry_after_s is not None

    scenario(play, exports=[{**WORKERS, "requests_per_s": 2}])


def test_a_broadcast_that_a_gateway_dies_with_may_have_been_sent() -> None:
    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        await there.join("workers", Worker())
        await federation.advance(1)
        assert await here.broadcast("workers@eu", b"") == 1
        federation.stall("eu", "us")
        asked = asyncio.create_task(here.broadcast("workers@eu", b""))
        await federation.advance(0.5)
        for gateway in federation.gateways("us"):
            federation.kill(gateway)
        with pytest.raises(iris.MemberLost):
            await asked

    scenario(play, exports=[WORKERS])


# -- what a caller leaves behind


def test_what_goes_to_the_other_cloud_keeps_nothing_of_the_context_of_the_first_caller() -> None:
    """The tunnel to the gateway, its reader and its timers stay; a request's session, its user and its spans must not."""

    class Session:
        pass

    session: ContextVar[object] = ContextVar("session")

    async def use(node: Node) -> weakref.ref[Session]:
        own = Session()
        session.set(own)
        await node.broadcast("workers@eu", b"1")
        await node.publish("orders.a@eu", b"2")
        subscription = await node.subscribe("clicks.>@eu")
        subscriptions.append(subscription)
        return weakref.ref(own)

    subscriptions: list[Subscription] = []

    async def play(federation: VirtualFederation) -> None:
        here, there = ends(federation)
        await there.join("workers", Worker())
        await federation.advance(1)
        kept = await asyncio.create_task(use(here))
        await federation.advance(ASK_TIMEOUT_S + 5)  # asyncio keeps a timer that was cancelled until its time has come
        assert ASK_TIMEOUT_S + 5 < REST_S, "the tunnel of publications is there still"
        gc.collect()
        assert kept() is None
        assert subscriptions[0].is_connected

    scenario(play, exports=[CLICKS, ORDERS, WORKERS])
