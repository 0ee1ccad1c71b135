"""Headers on the simulated network: each pattern carries them, by every way, and they count where bytes are bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups.config import GroupConfig
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets
from iris_py.wire.headers import HEADERS_BYTES_MAX, Headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iris_py.api.node import Node
    from iris_py.wire.headers import HeaderValue

GIVEN: dict[str, HeaderValue] = {"tenant": "grün", "key": b"\xff\x00", "attempt": 3, "share": 0.25, "urgent": True}


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, groups: GroupConfig | None = None) -> None:
    async def main() -> None:
        async with NodeSimulation(seed, groups=groups) as simulation:
            await scenario(simulation)

    run(main(), limit_s=600.0)


class Noting(iris.Handler):
    """Notes the headers of everything."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Mapping[str, HeaderValue]]] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.seen.append(("request", request.headers))
        return request.payload

    async def on_survey(self, request: iris.Request) -> bytes | None:
        self.seen.append(("survey", request.headers))
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.seen.append(("broadcast", message.headers))

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        self.seen.append(("tunnel", tunnel.headers))


async def use_all(node: Node, headers: Mapping[str, HeaderValue] | None) -> None:
    """Send one of everything that is for a cluster."""
    assert await node.request("noting", b"x", headers=headers) == b"x"
    assert await node.request("noting", b"x", headers=headers, idempotent=True) == b"x"
    assert len(await node.survey("noting", b"x", headers=headers)) == 1
    assert await node.broadcast("noting", b"x", headers=headers) == 1
    async with node.tunnel("noting", headers=headers) as tunnel:
        assert tunnel.headers == (headers or {})


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("headers", [GIVEN, None])
def test_each_pattern_of_a_cluster_carries_headers(headers: Mapping[str, HeaderValue] | None, is_local: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member, other = await simulation.start_nodes(2)
        noting = Noting()
        await member.join("noting", noting)
        await use_all(member if is_local else other, headers)
        await simulation.until(lambda: len(noting.seen) == 5)
        assert sorted(kind for kind, _headers in noting.seen) == ["broadcast", "request", "request", "survey", "tunnel"]
        for _kind, seen in noting.seen:
            assert seen == (headers or {})
            assert [type(value) for value in seen.values()] == [type(value) for value in (headers or {}).values()]
            with pytest.raises(TypeError):
                seen["new"] = 1  # type: ignore[index] # that is the point
        assert not member.statistics().drops
        assert not other.statistics().drops

    simulate(scenario)


def test_the_first_request_over_a_link_that_has_to_be_dialled_has_them() -> None:
    """It is held until the link is open."""

    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(3)
        noting = Noting()
        await nodes[0].join("noting", noting)
        await nodes[1].members("noting")
        simulation.reset(nodes[0])
        await nodes[1].request("noting", b"x", headers=GIVEN, idempotent=True)
        assert noting.seen == [("request", GIVEN)]

    simulate(scenario)


def test_a_request_that_is_given_to_another_member_keeps_them() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, first, second = await simulation.start_nodes(3)
        noting, began = Noting(), asyncio.Event()

        async def hang(request: iris.Request) -> bytes:
            assert request.headers == GIVEN
            began.set()
            await asyncio.sleep(1000.0)
            return b""

        await first.join("noting", hang)
        asking = asyncio.create_task(asker.request("noting", b"x", headers=GIVEN, idempotent=True, timeout=30.0))
        await began.wait()
        await second.join("noting", noting)
        simulation.kill(first)
        assert await asking == b"x"
        assert noting.seen == [("request", GIVEN)]

    simulate(scenario)


def test_publications_with_and_without_keep_their_order() -> None:
    """Those without are sent as runs, those with go by themselves; a subscriber sees no difference."""

    async def scenario(simulation: NodeSimulation) -> None:
        publisher, other = await simulation.start_nodes(2)
        async with other.subscribe("a.>") as remote, publisher.subscribe("b") as local:
            await publisher.publish("a.b", b"first")
            for number in range(100):
                headers = {"number": number} if number % 7 == 0 else None
                if number % 2:
                    assert await publisher.publish("a.b", b"%d" % number, headers=headers) == 1
                else:
                    assert publisher.try_publish("a.b", b"%d" % number, headers=headers) == 1
            await publisher.publish("b", b"", headers=GIVEN)
            assert (await anext(local)).headers == GIVEN
            messages = [await anext(remote) for _ in range(101)]
        first = messages.pop(0)
        assert first.headers == {}
        for number, message in enumerate(messages):
            assert int(message.payload) == number
            assert message.sequence == first.sequence + number + 1
            assert message.headers == ({"number": number} if number % 7 == 0 else {})
            assert message.gap == 0
        assert not other.statistics().drops

    simulate(scenario)


def test_callbacks_and_batches_see_them() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, other = await simulation.start_nodes(2)
        called: list[iris.Message] = []
        async with other.subscribe("t", called.append), other.subscribe("*") as batched:
            await publisher.publish("t", b"", headers=GIVEN)
            async for batch in batched.batches():
                assert [message.headers for message in batch] == [GIVEN]
                break
            await simulation.until(lambda: called)
        assert called[0].headers == GIVEN

    simulate(scenario)


def test_large_groups_carry_them_down_their_trees() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        sender = await simulation.start_node()
        nodes = await simulation.start_nodes(34, seeds=[sender], beacons=False)
        notings = [Noting() for _ in nodes]
        taken: list[iris.Message] = []
        for node, noting in zip(nodes, notings, strict=True):
            await node.join("noting", noting)
            await node.subscribe("t", taken.append)
        await asyncio.sleep(10.0)
        assert await sender.broadcast("noting", b"", headers=GIVEN) == 34
        assert len(await sender.survey("noting", b"", headers=GIVEN)) == 34
        assert await sender.publish("t", b"", headers=GIVEN) == 34
        await simulation.until(lambda: all(len(noting.seen) == 2 for noting in notings) and len(taken) == 34)
        assert all(seen == GIVEN for noting in notings for _kind, seen in noting.seen)
        assert all(message.headers == GIVEN for message in taken)

    simulate(scenario, groups=GroupConfig(view_members_max=32))


def test_wrong_ones_are_refused_before_anything_is_sent() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        noting = Noting()
        await node.join("noting", noting)
        wrong: Any = {"a": None}
        sends: list[Callable[[], Any]] = [
            lambda: node.request("noting", b"", headers=wrong),
            lambda: node.survey("noting", b"", headers=wrong),
            lambda: node.broadcast("noting", b"", headers=wrong),
            lambda: node.tunnel("noting", headers=wrong),
            lambda: node.publish("t", b"", headers=wrong),
            lambda: node.try_publish("t", b"", headers=wrong),
        ]
        for send in sends:
            with pytest.raises(iris.ConfigurationError, match="NoneType"):
                await send()
        assert noting.seen == []

    simulate(scenario)


def test_what_a_peer_makes_wrong_is_counted_and_the_next_is_served() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member, other = await simulation.start_nodes(2)
        noting = Noting()
        await member.join("noting", noting)
        await member.subscribe("t", lambda message: noting.seen.append(("publication", message.headers)))
        forged: Any = Headers(b"\xc1 this is no map")
        with pytest.raises(iris.RequestTimeout):
            await other.request("noting", b"", headers=forged, timeout=0.2)
        with pytest.raises(iris.RequestTimeout):
            await other.tunnel("noting", headers=forged, timeout=0.2)
        assert (await other.survey("noting", b"", headers=forged, timeout=0.2)).missing_count == 1
        await other.broadcast("noting", b"", headers=forged)
        await other.publish("t", b"", headers=forged)
        await simulation.until(lambda: member.statistics().drops.get("malformed_headers") == 5)
        await use_all(other, None)
        await other.publish("t", b"")
        await simulation.until(lambda: len(noting.seen) == 6)

    simulate(scenario)


def test_they_count_where_bytes_are_bounded() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, other = await simulation.start_nodes(2)
        large = {"a": bytes(HEADERS_BYTES_MAX - 10)}
        async with other.subscribe("t", queue_bytes=10 * HEADERS_BYTES_MAX) as subscription:
            for number in range(30):
                await publisher.publish("t", b"%d" % number, headers=large)
            await simulation.until(lambda: subscription.dropped)
            await asyncio.sleep(1.0)
            assert subscription.queued_messages == 10
            assert subscription.dropped == {"oldest": 20}
            assert 10 * (HEADERS_BYTES_MAX - 10) < subscription.queued_bytes <= 10 * HEADERS_BYTES_MAX
            first = await anext(subscription)
            assert (first.gap, first.headers) == (20, large)
            for _ in range(9):
                assert (await anext(subscription)).headers == large
            assert subscription.queued_bytes == 0
            await publisher.publish("t", b"without")
            assert (await anext(subscription)).headers == {}
            assert subscription.queued_bytes == 0

    simulate(scenario)


def test_a_registration_counts_them_too() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member, other = await simulation.start_nodes(2)

        async def hang(request: iris.Request) -> bytes:
            await asyncio.sleep(5.0)
            return b""

        await member.join("slow", hang, concurrency=1, queue_bytes=2 * HEADERS_BYTES_MAX)
        large = {"a": bytes(HEADERS_BYTES_MAX - 10)}
        asking = [
            asyncio.create_task(other.request("slow", b"", headers=large, timeout=60.0, on_full="raise")) for _ in range(5)
        ]
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert sum(isinstance(outcome, iris.Overloaded) for outcome in outcomes) == 2
        assert member.statistics().rejected == {"overloaded": 2}

    simulate(scenario)


def test_publications_with_headers_travel_together() -> None:
    """Publications to one topic in one turn arrive in order, each with its own headers, as one message on the wire."""
    sent: list[tuple[bytes, dict[str, HeaderValue]]] = [(b"%d" % number, {"number": number}) for number in range(700)]
    sent += [(b"", {"a": "b"}), (bytes(5000), {"c": b"d"})]

    async def scenario(simulation: NodeSimulation) -> None:
        member, other = await simulation.start_nodes(2)
        subscription = await member.subscribe("t")
        await other.publish("t", b"first")
        messages: list[tuple[bytes, object]] = []
        received = member._core._inbound._receive_body
        counts: list[int] = []

        def note(receivers: Any, group: Any, peer: Any, body: bytes, start: int, stop: int, now: float) -> Any:
            at = start
            while at < stop:
                kind, _flags, size, length, _id, _argument = packets.MESSAGE.unpack_from(body, at)
                at += packets.MESSAGE_BYTES + size + length
                counts.append(kind)
            return received(receivers, group, peer, body, start, stop, now)

        member._core._inbound._receive_body = note  # type: ignore[method-assign, assignment] # to see what was sealed
        for payload, headers in sent:
            other.try_publish("t", payload, headers=headers)
        other.try_publish("t", b"last")
        async for message in subscription:
            messages.append((message.payload, dict(message.headers)))
            if message.payload == b"last":
                break
        assert messages == [(b"first", {}), *sent, (b"last", {})]
        assert 3 <= counts.count(packets.PUBLICATION) <= 5

    simulate(scenario)


def test_the_wire_has_them_in_the_head_of_the_message() -> None:
    """As docs/design.md 4.4 and 4.5 say, to the byte."""
    sealed: list[bytes] = []

    async def scenario(simulation: NodeSimulation) -> None:
        member, other = await simulation.start_nodes(2)
        noting = Noting()
        await member.join("noting", noting)
        await member.subscribe("t", print)
        await other.members("noting")
        receive = member._core._inbound._receive_body

        def note(receivers: Any, group: Any, peer: Any, body: bytes, start: int, stop: int, now: float) -> Any:
            sealed.append(body[start:stop])
            return receive(receivers, group, peer, body, start, stop, now)

        member._core._inbound._receive_body = note  # type: ignore[method-assign, assignment] # to see what was sealed
        await other.request("noting", b"question", headers={"a": 1})
        await other.publish("t", b"told", headers={"a": "b"})
        await simulation.until(lambda: len(sealed) == 2)

    simulate(scenario)
    kind, flags, size, length, _id, _argument = packets.MESSAGE.unpack_from(sealed[0])
    assert (kind, flags, size, length) == (packets.REQUEST, 0, 4, 8)
    assert sealed[0][packets.MESSAGE_BYTES :] == b"\x81\xa1a\x01question"
    kind, flags, size, length, _id, _argument = packets.MESSAGE.unpack_from(sealed[1], packets.MESSAGE_BYTES)  # behind FLOW
    assert (kind, flags, size, length) == (packets.PUBLICATION, packets.HEADED, 8, 4)
    assert sealed[1][2 * packets.MESSAGE_BYTES :] == b"\x00\x05\x81\xa1a\xa1bttold"
