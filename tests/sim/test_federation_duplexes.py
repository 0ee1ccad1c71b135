"""Tunnels and surveys to clusters of another cloud: they end, break and hold memory as inside one cloud."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.federation.channels import QUEUED_BYTES_MAX
from iris_py.gateway.port import port_of
from iris_py.patterns.tunnel.duplex import Failure
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from iris_security import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

ALLOWED = ["request", "survey", "tunnel"]
#: A dead process is noticed so soon at most (docs/design.md 3.6), by each of those that pass a duplex on.
LOST_WITHIN_S = 6.2
#: And a line that carries nothing any more (iris_py.federation.bundle), with a look at it and the way of the news.
BROKEN_WITHIN_S = 11.5
MIB = 1024 * 1024
LARGE = random.Random(1).randbytes(1_000_000)


class Member(iris.Handler):
    """Serves tunnels and surveys as a test wants; keeps what became of them."""

    def __init__(self, serve: Callable[[iris.Tunnel], Awaitable[None]] | None = None, name: bytes = b"") -> None:
        self.serve = serve
        self.name = name
        self.tunnels: list[iris.Tunnel] = []
        self.ends: list[object] = []
        self.requests: list[iris.Request] = []
        self.cancelled = 0

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        assert self.serve is not None
        self.tunnels.append(tunnel)
        try:
            await self.serve(tunnel)
        except BaseException as exc:
            self.ends.append(exc)
            raise
        self.ends.append(None)

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_survey(self, request: iris.Request) -> bytes | None:
        self.requests.append(request)
        try:
            if request.payload == b"decline":
                return None
            if request.payload == b"fail":
                raise LookupError("no such thing")
            if request.payload == b"hang" or (request.payload == b"hang some" and self.name != b"0"):
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.name + b" " + request.payload


async def echo(tunnel: iris.Tunnel) -> None:
    async for message in tunnel:
        await tunnel.send(message)


async def take(tunnel: iris.Tunnel) -> None:
    async for _message in tunnel:
        pass


async def idle(tunnel: iris.Tunnel) -> None:
    await asyncio.get_running_loop().create_future()


class World:
    """Two clouds. Members of eu serve ``store`` and ``workers``; a node of us asks.

    Attributes:
        federation: Both.
        caller: A node of us.
        nodes: Those of eu that serve.
        members: Their handlers.
    """

    def __init__(self, federation: VirtualFederation) -> None:
        self.federation = federation
        self.caller = federation.members("us")[0]
        self.nodes: list[Node] = []
        self.members: list[Member] = []

    async def serve(self, serve: Callable[[iris.Tunnel], Awaitable[None]] | None = None, members: int = 1) -> Member:
        """Let nodes of eu be members; returns the handler of the first."""
        for number, node in enumerate(self.federation.members("eu")[:members]):
            member = Member(serve, str(number).encode())
            await node.join("store", member)
            self.nodes.append(node)
            self.members.append(member)
        return self.members[0]

    def gateway_of(self, cloud: str) -> Any:
        """Return the gateway of a cloud through which the only duplex goes."""
        (gateway,) = (each for each in self.federation.gateways(cloud) if channels_of(each))
        return gateway

    async def until_nothing_is_left(self) -> None:
        """Wait until no node and no gateway has anything of a duplex."""
        nodes = [
            node for cloud in ("us", "eu") for node in self.federation.members(cloud) + self.federation.gateway_nodes(cloud)
        ]
        gateways = [gateway for cloud in ("us", "eu") for gateway in self.federation.gateways(cloud)]
        await self.federation.until(lambda: not any(len(node._core.tunnels._live) for node in nodes))
        await self.federation.until(lambda: not any(channels_of(gateway) for gateway in gateways))
        for gateway in gateways:
            for neighbour in gateway.core.lines.neighbours.values():
                assert not any(limits.tunnels for limits in neighbour.export_limits.values())
            assert gateway.core.openings._budget.used_bytes == 0
            assert gateway.core.openings._budget.channels == 0


def channels_of(gateway: Any) -> list[Any]:
    """Return the channels of a gateway."""
    return [
        end
        for neighbour in gateway.core.lines.neighbours.values()
        for bundle in neighbour.bundles.values()
        for end in bundle.channel_ends()
    ]


def simulate(scenario: Callable[[World], Awaitable[None]], *, seed: int = 1, export: Any = None, **how: Any) -> None:
    """Run a scenario; nothing of any duplex is left in the end."""
    rule = {"cluster": "store", "allow": ALLOWED} | (export or {})
    how = {
        "links": [("us", "eu", 0.04)],
        "clouds": {"us": 2, "eu": 3},
        "exports": {"eu": [rule]},
        "imports": {"us": [{"cluster": "store"}, {"cluster": "hidden"}]},
    } | how

    async def main() -> None:
        async with VirtualFederation(seed=seed, **how) as federation:
            await federation.until(
                lambda: all(gateway.core.is_usable("eu", federation.now) for gateway in federation.gateways("us"))
            )
            await federation.advance(1.0)
            world = World(federation)
            await scenario(world)
            federation.heal()
            await world.until_nothing_is_left()

    run(main(), limit_s=600.0)


# -- tunnels


def test_messages_pass_both_ways_and_the_end_is_clean() -> None:
    async def scenario(world: World) -> None:
        member = await world.serve(echo)
        messages = [b"", b"a", LARGE, *(bytes([number]) * number for number in range(50))]

        async def send(tunnel: iris.Tunnel) -> None:
            for message in messages:
                await tunnel.send(message)
            await tunnel.end()

        async with world.caller.tunnel("store@eu", headers={"key": "value", "traceparent": "00-x"}) as tunnel:
            assert tunnel.cluster == "store@eu"
            assert tunnel.cloud == ""
            assert dict(tunnel.headers) == {"key": "value", "traceparent": "00-x"}
            sending = asyncio.ensure_future(send(tunnel))
            assert [message async for message in tunnel] == messages
            await sending
        await world.federation.until(lambda: member.ends)
        assert member.ends == [None]
        served = member.tunnels[0]
        assert (served.cluster, served.cloud) == ("store", "us")
        assert dict(served.headers) == {"key": "value"}, "traces stay in their cloud"
        assert served.source in {node.id for node in world.federation.gateway_nodes("eu")}

    simulate(scenario)


def test_close_returns_when_the_member_has_taken_everything() -> None:
    taken: list[bytes] = []

    async def slow(tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await asyncio.sleep(2.0)
            taken.append(message)

    async def scenario(world: World) -> None:
        member = await world.serve(slow)
        tunnel = await world.caller.tunnel("store@eu")
        for number in range(5):
            await tunnel.send(bytes([number]))
        await tunnel.close()
        assert len(taken) >= 4  # the last one is taken, and being worked at
        await world.federation.until(lambda: member.ends == [None])

    simulate(scenario)


def test_a_member_that_ends_first_is_seen_to_end() -> None:
    async def three(tunnel: iris.Tunnel) -> None:
        for number in range(3):
            await tunnel.send(bytes([number]))

    async def scenario(world: World) -> None:
        await world.serve(three)
        async with world.caller.tunnel("store@eu") as tunnel:
            assert [message async for message in tunnel] == [b"\0", b"\1", b"\2"]
            with pytest.raises(iris.TunnelClosed, match="store@eu"):
                await tunnel.receive()

    simulate(scenario)


def test_what_is_raised_at_one_end_is_seen_at_the_other() -> None:
    async def fail(tunnel: iris.Tunnel) -> None:
        if await tunnel.receive() == b"fail":
            raise LookupError("no such file")
        await tunnel.receive()

    async def scenario(world: World) -> None:
        member = await world.serve(fail)
        tunnel = await world.caller.tunnel("store@eu")
        await tunnel.send(b"fail")
        with pytest.raises(iris.TunnelBroken, match="store@eu") as broken:
            await tunnel.receive()
        assert (broken.value.cluster, broken.value.type, broken.value.text) == ("store@eu", "LookupError", "no such file")

        async def leave() -> None:
            async with world.caller.tunnel("store@eu") as tunnel:
                await tunnel.send(b"wait")
                raise ZeroDivisionError("oh")

        with pytest.raises(ZeroDivisionError):
            await leave()
        await world.federation.until(lambda: len(member.ends) == 2)
        error = member.ends[1]
        assert isinstance(error, iris.TunnelBroken)
        assert (error.type, error.text) == ("ZeroDivisionError", "oh")

    simulate(scenario)


@pytest.mark.parametrize("victim", ["near gateway", "far gateway", "member", "caller"])
def test_a_death_on_the_way_breaks_both_ends_soon(victim: str) -> None:
    async def scenario(world: World) -> None:
        federation, member = world.federation, await world.serve(take)
        tunnel = await world.caller.tunnel("store@eu")
        await tunnel.send(b"message")
        await federation.until(lambda: member.tunnels)
        receiving = asyncio.ensure_future(tunnel.receive())
        await federation.advance(1.0)
        began = federation.now
        victims = {"near gateway": "us", "far gateway": "eu"}
        federation.kill(
            world.gateway_of(victims[victim]) if victim in victims else world.nodes[0] if victim == "member" else world.caller
        )
        with pytest.raises(iris.TunnelBroken, match="store@eu"):
            await receiving
        await federation.until(lambda: member.ends)
        assert federation.now - began < LOST_WITHIN_S
        assert victim == "member" or isinstance(member.ends[0], iris.TunnelBroken)
        if victim in victims:  # the next one goes another way at once
            async with world.caller.tunnel("store@eu") as another:
                await another.send(b"message")

    simulate(scenario)


def test_a_line_that_is_cut_breaks_both_ends() -> None:
    async def scenario(world: World) -> None:
        federation, member = world.federation, await world.serve(take)
        tunnel = await world.caller.tunnel("store@eu")
        receiving = asyncio.ensure_future(tunnel.receive())
        await federation.until(lambda: member.tunnels)
        began = federation.now
        federation.cut("us", "eu")
        with pytest.raises(iris.TunnelBroken):
            await receiving
        await federation.until(lambda: member.ends)
        assert isinstance(member.ends[0], iris.TunnelBroken)
        assert federation.now - began < BROKEN_WITHIN_S
        with pytest.raises(iris.CloudUnavailable, match="store@eu"):
            await world.caller.tunnel("store@eu")

    simulate(scenario)


def test_errors_of_the_opening_say_the_name_that_was_asked_for() -> None:
    async def scenario(world: World) -> None:
        caller = world.caller
        for name, expected in (
            ("store@eu", iris.NoMembers),
            ("hidden@eu", iris.NotExported),
            ("unknown@eu", iris.NotExported),
            ("asked@eu", iris.NotExported),
            ("store@asia", iris.CloudUnavailable),
        ):
            with pytest.raises(expected) as raised:
                await caller.tunnel(name)
            assert type(raised.value) is expected
            assert raised.value.cluster == name
            with pytest.raises(expected) as raised:
                await caller.survey(name, b"")
            assert type(raised.value) is expected
            assert raised.value.cluster == name
        with pytest.raises(iris.ConfigurationError):
            caller.tunnel("store@")
        with pytest.raises(iris.ConfigurationError):
            caller.survey("store@eu@us", b"")
        await world.federation.advance(1.0)
        nodes = [caller, *world.federation.gateway_nodes("us")]
        assert not any(len(node._core.tunnels._live) for node in nodes), "a refusal ends both ends at once"

    rules = [{"cluster": "store", "allow": ALLOWED}, {"cluster": "asked", "allow": ["request"]}]
    simulate(scenario, exports={"eu": rules}, imports={"us": [{"cluster": name} for name in ("store", "hidden", "asked")]})


def test_a_member_without_tunnels_and_full_ones_are_told_apart() -> None:
    async def scenario(world: World) -> None:
        node = world.federation.members("eu")[0]
        without = await node.join("store", lambda request: request.payload)
        with pytest.raises(iris.NoMembers, match="no member of 'store@eu' serves tunnels") as none:
            await world.caller.tunnel("store@eu")
        assert none.value.without_tunnels == 1
        await without.leave()
        await node.join("store", Member(take), tunnels=1)
        first = await world.caller.tunnel("store@eu")
        with pytest.raises(iris.Overloaded, match="store@eu") as full:
            await world.caller.tunnel("store@eu", on_full="raise")
        assert full.value.retry_after_s is None
        waiting = asyncio.ensure_future(world.caller.tunnel("store@eu", timeout=10.0)._opening)
        await asyncio.sleep(2.0)
        assert not waiting.done()
        first._break_by(ZeroDivisionError())
        (await waiting)._break_by(ZeroDivisionError())

    simulate(scenario)


def test_a_member_that_answers_nothing_is_not_waited_for_longer_than_that() -> None:
    async def scenario(world: World) -> None:
        await world.serve(idle)
        world.federation.stall("us", "eu")
        began = world.federation.now
        with pytest.raises(iris.RequestTimeout) as timed_out:
            await world.caller.tunnel("store@eu", timeout=2.0)
        assert world.federation.now - began == pytest.approx(2.0, abs=0.01)
        assert (timed_out.value.cluster, timed_out.value.timeout_s) == ("store@eu", 2.0)

    simulate(scenario)


def test_an_opening_that_is_cancelled_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        member = await world.serve(take)
        for wait_s in (0.001, 0.02, 0.05, 0.07, 0.0855, 0.1):
            opening = asyncio.ensure_future(world.caller.tunnel("store@eu")._opening)
            await asyncio.sleep(wait_s)
            opening.cancel()
            result = (await asyncio.gather(opening, return_exceptions=True))[0]
            if isinstance(result, iris.Tunnel):
                await result.close()
            await world.until_nothing_is_left()
        assert all(isinstance(end, iris.TunnelBroken | None) for end in member.ends)

    simulate(scenario)


def test_a_tunnel_opens_over_another_gateway_if_one_dies_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await world.serve(echo)
        opening = asyncio.ensure_future(world.caller.tunnel("store@eu")._opening)
        await world.federation.until(lambda: any(map(channels_of, world.federation.gateways("us"))))
        world.federation.kill(world.gateway_of("us"))
        tunnel = await opening
        await tunnel.send(b"message")
        assert await tunnel.receive() == b"message"
        await tunnel.close()

    simulate(scenario)


def test_tunnels_beyond_the_limit_of_the_rule_are_refused_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.serve(take)
        first = await world.caller.tunnel("store@eu")
        second = await world.caller.tunnel("store@eu")
        with pytest.raises(iris.Overloaded, match="store@eu") as limited:
            await world.caller.tunnel("store@eu")
        assert limited.value.retry_after_s is not None
        await first.close()
        await world.federation.advance(1.0)
        third = await world.caller.tunnel("store@eu")
        await asyncio.gather(second.close(), third.close())

    simulate(scenario, export={"tunnels": 2}, gateways=1)


def test_a_rule_slows_what_passes_to_its_rate_and_counts_it() -> None:
    rate, size = 100_000, 500_000

    async def scenario(world: World) -> None:
        await world.serve(echo)
        began = world.federation.now
        async with world.caller.tunnel("store@eu") as tunnel:
            await tunnel.send(bytes(size))
            assert len(await tunnel.receive()) == size
        took = world.federation.now - began
        assert (size - rate) / rate - 0.5 < took < 2 * size / rate + 1.0
        for cloud, neighbour, there, back in (("us", "eu", "sent", "received"), ("eu", "us", "received", "sent")):
            (gateway,) = world.federation.gateways(cloud)
            (account,) = gateway.core.lines.neighbours[neighbour].accounts
            assert getattr(account, f"bytes_{there}") == getattr(account, f"bytes_{back}") == size
            assert getattr(account, f"messages_{there}") == getattr(account, f"messages_{back}") == 1

    simulate(scenario, export={"bytes_per_s": rate}, gateways=1)


def test_a_limit_that_lets_hardly_anything_pass_does_not_hold_up_a_break() -> None:
    async def scenario(world: World) -> None:
        member = await world.serve(take)
        tunnel = await world.caller.tunnel("store@eu")
        for _ in range(5):
            await tunnel.send(bytes(30_000))
        await world.federation.until(lambda: member.tunnels)
        await world.federation.advance(10.0)
        tunnel._break_by(ZeroDivisionError("enough"))
        await world.federation.until(lambda: member.ends, timeout=1.0)

    simulate(scenario, export={"bytes_per_s": 1})


def test_a_reader_that_stalls_bounds_what_everybody_holds() -> None:
    async def scenario(world: World) -> None:
        await world.serve(idle)
        tunnel = await world.caller.tunnel("store@eu")
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await tunnel.send(bytes(30_000))
                sent += 30_000

        flooding = asyncio.ensure_future(flood())
        await world.federation.advance(10.0)
        at_rest = sent
        await world.federation.advance(10.0)
        assert sent == at_rest, "nothing moves any more"
        # The windows of three duplexes, none of which has grown: of each gateway's tunnel and channel, and of the member.
        assert sent <= 3 * MIB + QUEUED_BYTES_MAX
        for cloud in ("us", "eu"):
            for end in channels_of(world.gateway_of(cloud)):
                assert end.window_bytes == MIB
                assert end.buffered_bytes + end.queued_bytes <= MIB + QUEUED_BYTES_MAX
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        tunnel._break_by(ZeroDivisionError())

    simulate(scenario)


def test_traces_pass_where_the_rule_says_so() -> None:
    async def scenario(world: World) -> None:
        member = await world.serve(echo)
        async with world.caller.tunnel("store@eu", headers={"traceparent": "00-x"}):
            pass
        assert dict(member.tunnels[0].headers) == {"traceparent": "00-x"}

    simulate(scenario, export={"trace": True})


# -- surveys


def ids_of(nodes: Any) -> set[str]:
    return {node.id for node in nodes}


def test_a_survey_has_an_answer_of_every_member() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=3)
        answers = await world.caller.survey("store@eu", b"question", headers={"key": "value"})
        assert answers.is_complete
        assert answers.expected == 3
        assert sorted(reply.payload for reply in answers) == [b"0 question", b"1 question", b"2 question"]
        members = {reply.member for reply in answers}
        assert len(members) == 3
        assert not {member.id for member in members} & ids_of(world.nodes), "ids do not leave their cloud"
        assert {member.address for member in members} == {""}
        request = world.members[0].requests[0]
        assert (request.cluster, request.cloud, dict(request.headers)) == ("store", "us", {"key": "value"})

        again = await world.caller.survey("store@eu", b"question")
        assert {reply.member for reply in again} == members, "pseudonyms stay, whichever gateways it goes through"
        taken = [reply.payload async for reply in world.caller.survey("store@eu", b"again")]
        assert sorted(taken) == [b"0 again", b"1 again", b"2 again"]

    simulate(scenario)


def test_every_fate_of_a_survey_is_told() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=2)
        answers = await world.caller.survey("store@eu", b"decline")
        assert (len(answers.declined), len(answers), answers.is_complete) == (2, 0, True)
        answers = await world.caller.survey("store@eu", b"fail")
        assert [(failure.type, failure.text) for failure in answers.failed] == [("LookupError", "no such thing")] * 2
        began = world.federation.now
        answers = await world.caller.survey("store@eu", b"hang some", timeout=2.0)
        assert world.federation.now - began <= 2.0
        assert [reply.payload for reply in answers] == [b"0 hang some"]
        assert (answers.expected, answers.missing_count) == (2, 1)
        (missing,) = answers.missing
        assert missing.id not in {answers[0].member.id} | ids_of(world.nodes)
        await world.federation.until(lambda: world.members[1].cancelled)

        waiting = asyncio.ensure_future(world.caller.survey("store@eu", b"hang some", timeout=30.0)._gathering.all())
        await world.federation.until(lambda: len(world.members[1].requests) == 4)
        world.federation.kill(world.nodes[1])
        answers = await waiting
        assert (len(answers), answers.missing_count) == (1, 1)

    simulate(scenario)


def test_enough_replies_end_a_survey_and_cancel_the_rest() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=3)
        began = world.federation.now
        answers = await world.caller.survey("store@eu", b"hang some", stop_after=1, timeout=30.0)
        assert world.federation.now - began < 1.0
        assert (len(answers), answers.missing_count) == (1, 2)
        await world.federation.until(lambda: sum(member.cancelled for member in world.members) == 2)

    simulate(scenario)


@pytest.mark.parametrize("how", ["cancel", "left", "task", "close", "caller dies"])
def test_a_survey_that_nobody_wants_any_more_is_cancelled_at_the_members(how: str) -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=2)
        survey = world.caller.survey("store@eu", b"hang some", timeout=30.0)

        async def first() -> None:
            async for _reply in survey:
                if how == "left":
                    break

        loop = asyncio.ensure_future(survey._gathering.all() if how == "task" else first())
        await world.federation.until(lambda: survey.answers.missing_count == 1)
        if how == "cancel":
            survey.cancel()
            answers = await survey
            assert answers.missing_count == 1
        elif how == "task":
            loop.cancel()
        elif how == "close":
            await world.caller.close()
            with pytest.raises(iris.NodeClosed):
                await loop
        elif how == "caller dies":
            world.federation.kill(world.caller)
        await world.federation.until(lambda: world.members[1].cancelled, timeout=10.0)
        await asyncio.gather(loop, return_exceptions=True)

    simulate(scenario)


@pytest.mark.parametrize("victim", ["near gateway", "far gateway"])
def test_a_gateway_that_dies_ends_a_survey_with_what_came(victim: str) -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=2)
        survey = world.caller.survey("store@eu", b"hang some", timeout=30.0)
        waiting = asyncio.ensure_future(survey._gathering.all())
        await world.federation.until(lambda: survey.answers)
        began = world.federation.now
        world.federation.kill(world.gateway_of("us" if victim == "near gateway" else "eu"))
        answers = await waiting
        assert world.federation.now - began < LOST_WITHIN_S
        assert (len(answers), answers.missing_count) == (1, 1)
        assert (await world.caller.survey("store@eu", b"next")).is_complete

    simulate(scenario)


def test_a_line_that_is_cut_costs_a_survey_what_did_not_come() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=2)
        survey = world.caller.survey("store@eu", b"hang some", timeout=3.0)
        waiting = asyncio.ensure_future(survey._gathering.all())
        await world.federation.until(lambda: survey.answers)
        world.federation.cut("us", "eu")
        answers = await waiting
        assert (len(answers), answers.missing_count) == (1, 1)
        with pytest.raises(iris.RequestTimeout, match="store@eu"):
            await world.caller.survey("store@eu", b"question", timeout=0.5)

    simulate(scenario)


def test_surveys_beyond_the_limit_of_the_rule_are_refused() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=1)
        assert (await world.caller.survey("store@eu", b"one")).is_complete
        with pytest.raises(iris.Overloaded, match="store@eu") as limited:
            await world.caller.survey("store@eu", b"two")
        assert limited.value.retry_after_s is not None
        await asyncio.sleep(limited.value.retry_after_s)
        assert (await world.caller.survey("store@eu", b"three")).is_complete

    simulate(scenario, export={"requests_per_s": 1}, gateways=1)


def test_large_questions_and_replies_pass() -> None:
    async def scenario(world: World) -> None:
        await world.serve(members=2)
        answers = await world.caller.survey("store@eu", LARGE, timeout=10.0)
        assert sorted(reply.payload for reply in answers) == [b"0 " + LARGE, b"1 " + LARGE]
        with pytest.raises(iris.MessageTooLarge):
            world.caller.survey("store@eu", bytes(world.caller.max_message_bytes + 1))

    simulate(scenario)


def test_stand_ins_are_not_surveyed_for_another_cloud_and_serve_no_tunnels_for_it() -> None:
    async def scenario(world: World) -> None:
        stand_in = Member(echo)
        await port_of(world.federation.members("eu")[2]).join_as_stand_in("store", stand_in, 1)
        with pytest.raises(iris.NoMembers):
            await world.caller.tunnel("store@eu")
        await world.serve(echo, members=2)
        answers = await world.caller.survey("store@eu", b"question")
        assert (answers.expected, len(answers)) == (2, 2)
        for _ in range(4):
            async with world.caller.tunnel("store@eu"):
                pass
        assert stand_in.tunnels == []
        assert stand_in.requests == []

    simulate(scenario)


# -- sealed payloads


def test_sealed_requests_and_surveys_pass_gateways_that_cannot_open_them() -> None:
    async def scenario(world: World) -> None:
        seen: list[bytes] = []
        handed_on: list[bytes] = []
        secret, other = Secret(bytes(range(32))).text, Secret(bytes(32)).text

        def listen(gateway: Any) -> None:
            serve = gateway.requests.serve

            def listening(requests: Any) -> None:
                handed_on.extend(each.call.payload for each in requests)
                serve(requests)

            gateway.requests.serve = listening

        for gateway in world.federation.gateways("eu"):
            listen(gateway)

        async def answer(request: iris.Request) -> bytes:
            assert request.is_sealed
            seen.append(request.payload)
            if request.payload == b"fail":
                raise LookupError("no such patient")
            return b"sealed " + request.payload

        for node in world.federation.members("eu")[:2]:
            await node.join("store", iris.Sealed(answer, secret))
        caller = world.caller
        assert await caller.request("store@eu", b"patient 7", seal=secret) == b"sealed patient 7"
        keyed = [await caller.request("store@eu", b"patient 8", idempotent=True, key="k", seal=secret) for _ in range(2)]
        assert keyed == [b"sealed patient 8"] * 2
        assert seen.count(b"patient 8") == 1
        with pytest.raises(iris.RemoteError, match="no such patient"):
            await caller.request("store@eu", b"fail", seal=secret)
        answers = await caller.survey("store@eu", b"patient 9", seal=secret)
        assert [reply.payload for reply in answers] == [b"sealed patient 9"] * 2
        failed = (await caller.survey("store@eu", b"fail", seal=secret)).failed
        assert [(failure.type, failure.text) for failure in failed] == [("LookupError", "no such patient")] * 2
        with pytest.raises(iris.RemoteError) as refused:
            await caller.request("store@eu", b"patient 7", seal=other)
        assert refused.value.type == "SealError"
        assert len(handed_on) >= 4
        assert not any(b"patient" in payload for payload in handed_on)

    simulate(scenario)


# -- bulk


class Bulk:
    """Tunnels that always have something to send, and how much of it came.

    Attributes:
        taken: By cluster, in bytes.
        largest_held: The most that a gateway held of one channel, in bytes.
    """

    def __init__(self, world: World) -> None:
        self.taken = {"store": 0, "other": 0}
        self.largest_held = 0
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            self.taken[tunnel.cluster] += len(message)
            for gateway in self._world.federation.gateways("us") + self._world.federation.gateways("eu"):
                for end in channels_of(gateway):
                    self.largest_held = max(self.largest_held, end.buffered_bytes + end.queued_bytes)

    def begin(self, cluster: str) -> None:
        self._tasks.append(asyncio.ensure_future(self._send(cluster)))

    async def _send(self, cluster: str) -> None:
        tunnel = await self._world.caller.tunnel(cluster)
        while True:
            await tunnel.send(bytes(60_000))

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._world.federation.members("us"):
            for end in list(each._core.tunnels._live):
                end.fail(Failure("the test is over"), is_told=True)
            each._runtime.wake()


def test_windows_grow_to_what_a_long_line_holds_and_bound_the_memory_on_the_way() -> None:
    async def scenario(world: World) -> None:
        world.federation.network.lay_line("us", "eu", latency_s=0.04, bandwidth_bytes_s=400e6, window_bytes=64 * MIB)
        bulk = Bulk(world)
        await world.serve(bulk.serve)
        bulk.begin("store@eu")
        await world.federation.until(lambda: any(map(channels_of, world.federation.gateways("eu"))))
        (end,) = channels_of(world.gateway_of("eu"))
        sizes = [end.window_bytes]

        def is_grown() -> bool:
            sizes.append(end.window_bytes)
            return bool(end.window_bytes == 16 * MIB)

        await world.federation.until(is_grown, timeout=1.6)
        assert sizes[0] == MIB
        assert sizes == sorted(sizes)
        taken = bulk.taken["store"]
        await world.federation.advance(0.2)
        assert bulk.taken["store"] - taken > 0.2 * 100e6, "a window of 1 MiB would carry 13 MB/s"
        assert bulk.largest_held <= 16 * MIB + QUEUED_BYTES_MAX
        await bulk.end()

    simulate(scenario, gateways=1, clouds={"us": 1, "eu": 1}, seed=1)


def test_small_requests_pass_bulk_that_fills_the_line() -> None:
    async def scenario(world: World) -> None:
        federation = world.federation
        federation.network.lay_line("us", "eu", latency_s=0.04, bandwidth_bytes_s=20e6)
        bulk = Bulk(world)
        await world.serve(bulk.serve)

        async def measure(count: int) -> list[float]:
            times = []
            for _ in range(count):
                began = federation.now
                await world.caller.request("store@eu", bytes(200))
                times.append(federation.now - began)
            return sorted(times)

        alone = (await measure(20))[10]
        assert alone == pytest.approx(0.083, abs=0.005)
        bulk.begin("store@eu")
        await federation.advance(1.0)
        taken, began = bulk.taken["store"], federation.now
        beside = await measure(50)
        assert beside[-1] <= 2 * alone, "the slowest of 50"
        assert bulk.taken["store"] - taken > 0.9 * 20e6 * (federation.now - began), "and the line was full meanwhile"
        await bulk.end()

    simulate(scenario, gateways=1)


def test_two_rules_share_a_connection_fairly_however_many_tunnels_each_has() -> None:
    async def scenario(world: World) -> None:
        federation = world.federation
        bulk = Bulk(world)
        await world.serve(bulk.serve)
        await federation.members("eu")[0].join("other", Member(bulk.serve))
        federation.network.lay_line("us", "eu", latency_s=0.005, bandwidth_bytes_s=8e6)
        for _ in range(4):
            bulk.begin("store@eu")
        bulk.begin("other@eu")
        await federation.advance(1.0)
        before = dict(bulk.taken)
        await federation.advance(3.0)
        store, other = (bulk.taken[name] - before[name] for name in ("store", "other"))
        assert store + other > 0.9 * 3 * 8e6
        assert 0.8 < store / other < 1.25
        await bulk.end()

    rules = [{"cluster": name, "allow": ALLOWED} for name in ("store", "other")]
    simulate(
        scenario,
        gateways=1,
        exports={"eu": rules},
        imports={"us": [{"cluster": "store"}, {"cluster": "other"}]},
        settings={"us": {"gateway": {"connections": 2}}},
    )
