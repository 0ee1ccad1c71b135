"""Clusters of other clouds that stand in for one of this cloud, with gateways, lines and members that are whole (15.61)."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.gateway.gateway import Gateway
from iris_py.gateway.stand_ins import RETURN_S
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node

#: How soon after the last member is gone, here or there, that is the case everywhere.
SOON_S = 1.0
#: How long a line may be silent, with a request outstanding, before nothing new goes over it; and some time to say so.
SUSPECT_S = 3.5
USES = ["request", "survey", "broadcast", "tunnel"]
LATENCY_S = 0.04
ROUND_TRIP_S = 2 * LATENCY_S


class Worker(iris.Handler):
    """Answers with its name, and notes what it was given.

    Attributes:
        executed: How often it has begun, by payload.
        done: How often it was not cancelled.
        clouds: Where that came from.
        headers: Of the last request.
        gate: Requests wait for it.
    """

    def __init__(self, name: str, work_s: float = 0.0) -> None:
        self.name = name.encode()
        self.work_s = work_s
        self.executed: Counter[bytes] = Counter()
        self.done: Counter[bytes] = Counter()
        self.clouds: set[str] = set()
        self.headers: dict[str, Any] = {}
        self.heard: list[bytes] = []
        self.surveyed = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_request(self, request: iris.Request) -> bytes:
        self.executed[request.payload] += 1
        self.clouds.add(request.cloud)
        self.headers = dict(request.headers)
        if request.payload == b"bad":
            raise LookupError("no such row")
        await self.gate.wait()
        await asyncio.sleep(self.work_s)
        self.done[request.payload] += 1
        return self.name

    async def on_broadcast(self, message: iris.Message) -> None:
        self.heard.append(message.payload)

    async def on_survey(self, request: iris.Request) -> bytes:
        self.surveyed += 1
        return self.name

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(self.name + b" " + message)


def has_grown(worker: Worker, executed: int) -> bool:
    return worker.executed.total() > executed


def exported(*uses: str) -> list[dict[str, Any]]:
    return [{"cluster": "work", "allow": list(uses or USES)}]


def imported(*clouds: str, when: str = "absent") -> list[dict[str, Any]]:
    return [{"from": list(clouds), "cluster": "work", "as": "work", "when": when}]


def two_clouds(when: str = "absent", seed: int = 1, **how: Any) -> VirtualFederation:
    """Return a federation in which eu stands in for us."""
    links = [("us", "eu", LATENCY_S)]
    given: dict[str, Any] = {"exports": {"eu": exported()}, "imports": {"us": imported("eu", when=when)}}
    given["clouds"] = {"us": 3, "eu": 2}
    return VirtualFederation(seed=seed, links=links, **(given | how))


def three_clouds(when: str = "absent", seed: int = 1) -> VirtualFederation:
    """Return a federation in which eu stands in for us, and asia after it."""
    return VirtualFederation(
        seed=seed,
        clouds={"us": 2, "eu": 1, "asia": 1},
        links=[("us", "eu", LATENCY_S), ("us", "asia", 2 * LATENCY_S)],
        exports={"eu": exported(), "asia": exported()},
        imports={"us": imported("eu", "asia", when=when)},
    )


def gateways(federation: VirtualFederation, cloud: str = "us") -> list[Gateway]:
    return [gateway for gateway in federation.gateways(cloud) if isinstance(gateway, Gateway)]


def crossed(federation: VirtualFederation, cloud: str) -> Counter[str]:
    """Return what became of the requests that the gateways of a cloud were asked by neighbours."""
    outcomes: Counter[str] = Counter()
    for gateway in gateways(federation, cloud):
        for neighbour in gateway.core.lines.neighbours.values():
            for account in neighbour.accounts:
                if account.direction == "export":
                    requests = account.snapshot()["requests"]
                    assert isinstance(requests, dict)
                    outcomes.update(requests)
    return outcomes


def ranks(federation: VirtualFederation, cloud: str = "us") -> list[int]:
    """Return the rank that each gateway has taken part with; 0 for those that do not."""
    return [stand_in(gateway)["rank"] if stand_in(gateway)["is_joined"] else 0 for gateway in gateways(federation, cloud)]


def stand_in(gateway: Gateway) -> dict[str, Any]:
    found = gateway.stand_ins.status()["work"]
    assert isinstance(found, dict)
    return found


async def all_have(federation: VirtualFederation, rank: int, within_s: float = 5.0) -> None:
    """Wait until every gateway takes part with a rank (0: not any more), and the callers know."""

    def is_so() -> bool:
        views = [node.members("work") for node in federation.members("us")]
        return set(ranks(federation)) == {rank} and all(
            sum(member.is_stand_in for member in view) == (len(gateways(federation)) if rank else 0) for view in views
        )

    await federation.until(is_so, timeout=within_s)


def all_know(federation: VirtualFederation, *clouds: str) -> bool:
    """Tell whether every gateway knows that these clouds serve the name."""
    return all(stand_in(gateway)["members"][cloud] for gateway in gateways(federation) for cloud in clouds)


async def ask(node: Node, count: int = 10, payload: bytes = b"x", **options: Any) -> set[bytes]:
    return {await node.request("work", payload, **options) for _ in range(count)}


def simulate(scenario: Callable[[VirtualFederation], Awaitable[None]], federation: VirtualFederation) -> None:
    async def main() -> None:
        async with federation:
            await federation.until(lambda: all(each.core.is_usable("eu", federation.now) for each in gateways(federation)))
            await scenario(federation)

    run(main(), limit_s=600)


@pytest.mark.parametrize("end", ["killed", "left"])
def test_nothing_goes_over_while_a_member_lives_all_then_and_nothing_again(end: str) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far, near = Worker("far"), Worker("near")
        for node in federation.members("eu"):
            await node.join("work", far)
        caller, *nodes = federation.members("us")
        memberships = [await node.join("work", near) for node in nodes]
        await all_have(federation, 1)
        for node, membership in zip(nodes, memberships, strict=True):
            assert await ask(caller, idempotent=end == "killed") == {b"near"}
            assert not far.executed
            if end == "killed":
                federation.kill(node)
            else:
                await membership.leave()
        begun = federation.now
        assert await ask(caller, 1, idempotent=end == "killed") == {b"far"}
        assert federation.now - begun < SOON_S
        assert await ask(caller) == {b"far"}
        assert far.clouds == {"us"}, "the handler knows where they come from"
        late = await federation.start_node("us")
        await late.join("work", near)
        executed = far.executed.total()
        assert await ask(caller) == {b"near"}
        assert far.executed.total() == executed

    simulate(scenario, two_clouds())


def test_what_members_have_no_place_for_goes_over_and_returns() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far, near = Worker("far", 0.2), Worker("near", 0.2)
        await federation.members("eu")[0].join("work", far)
        caller, member, _ = federation.members("us")
        await member.join("work", near, concurrency=4, queue_messages=0)
        await all_have(federation, 1)
        assert await ask(caller, 3) == {b"near"}
        for _ in range(5):
            answers = Counter(await asyncio.gather(*(caller.request("work", b"y", timeout=20.0) for _ in range(20))))
            assert answers[b"near"] >= 4
            assert answers[b"far"] >= 8
        near.executed.clear()
        far.executed.clear()
        assert await ask(caller, 3) == {b"near"}
        assert not far.executed

    simulate(scenario, two_clouds("full"))


def test_absent_members_are_not_full_ones() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far, near = Worker("far"), Worker("near", 0.1)
        await federation.members("eu")[0].join("work", far)
        caller, member, _ = federation.members("us")
        await member.join("work", near, concurrency=1, queue_messages=0)
        await all_have(federation, 1)
        answers = await asyncio.gather(*(caller.request("work", b"x", timeout=20.0) for _ in range(5)))
        assert set(answers) == {b"near"}
        with pytest.raises(iris.Overloaded):
            await asyncio.gather(*(caller.request("work", b"x", on_full="raise") for _ in range(2)))
        assert not far.executed

    simulate(scenario, two_clouds())


def test_two_clouds_stand_in_by_their_order() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        workers = {cloud: Worker(cloud) for cloud in ("eu", "asia")}
        memberships: dict[str, Membership] = {}
        for cloud, worker in workers.items():
            memberships[cloud] = await federation.members(cloud)[0].join("work", worker)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        assert await ask(caller) == {b"eu"}
        await memberships["eu"].leave()
        begun = federation.now
        assert await ask(caller, 1, idempotent=True) == {b"asia"}
        assert federation.now - begun < SOON_S
        await all_have(federation, 2)
        assert await ask(caller) == {b"asia"}
        await federation.members("eu")[0].join("work", workers["eu"])
        await all_have(federation, 1)
        assert await ask(caller) == {b"eu"}

    simulate(scenario, three_clouds())


def test_no_request_finds_nobody_while_the_order_changes() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        for cloud in ("eu", "asia"):
            await federation.members(cloud)[0].join("work", Worker(cloud))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        federation.kill(federation.members("eu")[0])
        begun = federation.now
        answers: Counter[bytes] = Counter()
        while federation.now < begun + 2.0:
            answers[await caller.request("work", b"x")] += 1
        assert answers.keys() == {b"asia"}
        assert ranks(federation) == [2, 2]

    simulate(scenario, three_clouds())


def test_a_gateway_without_a_way_to_the_first_cloud_comes_after_those_with_one() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        for cloud in ("eu", "asia"):
            await federation.members(cloud)[0].join("work", Worker(cloud))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        lonely = gateways(federation)[0]
        federation.partition([lonely], gateways(federation, "eu"))
        await federation.until(lambda: ranks(federation) == [2, 1], timeout=20.0)
        await federation.advance(SOON_S)
        assert await ask(caller, 20) == {b"eu"}
        federation.kill(gateways(federation)[1])
        begun = federation.now
        assert await ask(caller, 1, idempotent=True) == {b"asia"}
        assert federation.now - begun < SOON_S

    simulate(scenario, three_clouds())


def test_what_one_cloud_has_no_place_for_goes_to_the_next() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        workers = {cloud: Worker(cloud, 0.5) for cloud in ("us", "eu", "asia")}
        caller, member = federation.members("us")
        await member.join("work", workers["us"], concurrency=1, queue_messages=0)
        for cloud in ("eu", "asia"):
            await federation.members(cloud)[0].join("work", workers[cloud], concurrency=3, queue_messages=0)
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        answers = Counter(await asyncio.gather(*(caller.request("work", b"x", on_full="raise") for _ in range(7))))
        assert answers == {b"us": 1, b"eu": 3, b"asia": 3}
        with pytest.raises(iris.Overloaded):
            await asyncio.gather(*(caller.request("work", b"x", on_full="raise") for _ in range(8)))

    simulate(scenario, three_clouds("full"))


def test_a_cloud_that_is_full_is_not_an_absent_one() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        workers = {cloud: Worker(cloud, 0.5) for cloud in ("eu", "asia")}
        for cloud, worker in workers.items():
            await federation.members(cloud)[0].join("work", worker, concurrency=2, queue_messages=0)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        answers = await asyncio.gather(*(caller.request("work", b"x", timeout=20.0) for _ in range(6)))
        assert set(answers) == {b"eu"}, "they wait for a place"
        with pytest.raises(iris.Overloaded):
            await asyncio.gather(*(caller.request("work", b"x", on_full="raise") for _ in range(6)))
        assert not workers["asia"].executed

    simulate(scenario, three_clouds())


@pytest.mark.parametrize("end", ["killed", "left"])
def test_the_end_of_the_far_cluster_is_a_leave_here(end: str) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        nodes = federation.members("eu")
        memberships = [await node.join("work", Worker("far")) for node in nodes]
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await memberships[0].leave()
        await federation.advance(SOON_S)
        assert ranks(federation) == [1, 1], "somebody is still there"
        if end == "killed":
            federation.kill(nodes[1])
            await federation.until(lambda: not any(len(node.members("work")) for node in federation.gateway_nodes("eu")))
        else:
            await memberships[1].leave()
        await all_have(federation, 0, SOON_S)
        begun = federation.now
        with pytest.raises(iris.NoMembers):
            await caller.request("work", b"x")
        assert federation.now == begun, "the view says so"

    simulate(scenario, two_clouds())


def test_a_request_that_finds_nobody_over_there_is_told_so_in_a_round_trip() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        membership = await federation.members("eu")[0].join("work", Worker("far"))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await membership.leave()
        begun = federation.now
        with pytest.raises(iris.NoMembers):
            await caller.request("work", b"x")
        assert federation.now - begun < 4 * ROUND_TRIP_S, "each gateway has asked"

    simulate(scenario, two_clouds())


def test_after_a_line_falls_silent_nobody_waits_for_it() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far")
        await federation.members("eu")[0].join("work", far)
        caller, other, _ = federation.members("us")
        await all_have(federation, 1)
        federation.cut("us", "eu")
        asking = [asyncio.create_task(caller.request("work", b"once", timeout=60.0)) for _ in range(4)]
        await all_have(federation, 0, SUSPECT_S)
        begun = federation.now
        with pytest.raises(iris.NoMembers):
            await other.request("work", b"x")
        assert federation.now == begun
        for outcome in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(outcome, iris.MemberLost), "it may have been executed"
            assert outcome.gateway in {node.id for node in federation.gateway_nodes("us")}
        assert federation.now - begun < 10.0
        federation.heal()
        await all_have(federation, 1, 20.0)
        assert await ask(caller) == {b"far"}
        assert far.executed[b"once"] == 0

    simulate(scenario, two_clouds())


def test_after_a_line_falls_silent_idempotent_requests_go_to_the_other_cloud() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        for cloud in ("eu", "asia"):
            await federation.members(cloud)[0].join("work", Worker(cloud))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        await federation.until(lambda: all_know(federation, "eu", "asia"))
        federation.cut("us", "eu")
        begun = federation.now
        asking = [caller.request("work", b"%d" % number, idempotent=True) for number in range(20)]
        assert set(await asyncio.gather(*asking)) == {b"asia"}
        assert federation.now - begun < SUSPECT_S + SOON_S
        assert await ask(caller) == {b"asia"}

    simulate(scenario, three_clouds())


@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_gateway_that_is_killed_costs_idempotent_requests_nothing(side: str) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far", 0.3)
        for node in federation.members("eu"):
            await node.join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        asking = [
            asyncio.create_task(caller.request("work", b"%d" % number, idempotent=True, key=f"{number}"))
            for number in range(40)
        ]
        await federation.until(lambda: far.executed.total() == 40)
        federation.kill(gateways(federation, side)[0])
        assert set(await asyncio.gather(*asking)) == {b"far"}
        again = (caller.request("work", b"again", idempotent=True, key=f"{number}") for number in range(40))
        assert set(await asyncio.gather(*again)) == {b"far"}
        assert set(far.done.values()) == {1}, "a key comes to the same member, which remembers"
        assert not far.executed[b"again"]
        assert await ask(caller) == {b"far"}

    simulate(scenario, two_clouds())


@pytest.mark.parametrize("key", [None, "a row"])
def test_a_request_that_ends_its_members_there_ends_few_and_goes_over_once(key: str | None) -> None:
    """Also where several gateways stand in: what one of them has lost is not given to the next."""

    async def scenario(federation: VirtualFederation) -> None:
        async def end(request: iris.Request, node: Node) -> bytes:
            federation.kill(node)
            return b""

        for node in federation.members("eu"):
            await node.join("work", partial(end, node=node))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        with pytest.raises(iris.TooManyMembersLost) as caught:
            await caller.request("work", b"", timeout=60.0, idempotent=True, key=key)
        assert caught.value.cluster == "work"
        assert len(set(caught.value.members)) == 2
        await federation.advance(20.0)
        assert len(federation.members("eu")) == 4

    simulate(scenario, two_clouds(clouds={"us": 3, "eu": 6}, gateways=2))


@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_gateway_that_is_killed_has_nothing_executed_twice(side: str) -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far", 0.3)
        await federation.members("eu")[0].join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        asking = [asyncio.create_task(caller.request("work", b"%d" % number)) for number in range(40)]
        await federation.until(lambda: far.executed.total() == 40)
        federation.kill(gateways(federation, side)[0])
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        lost = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert 0 < len(lost) < 40
        assert {type(outcome) for outcome in lost} == {iris.MemberLost}
        assert {outcome for outcome in outcomes if isinstance(outcome, bytes)} == {b"far"}
        assert max(far.executed.values()) == 1

    simulate(scenario, two_clouds())


def test_what_went_another_way_before_is_never_said_to_be_unexecuted() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far")
        far.gate.clear()
        member = federation.members("eu")[0]
        membership = await member.join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        asking = asyncio.create_task(caller.request("work", b"x", idempotent=True, timeout=3.0))
        await federation.until(lambda: far.executed)
        federation.kill(gateways(federation, "eu")[0])
        federation.kill(gateways(federation, "eu")[0])
        assert membership.cluster == "work"
        with pytest.raises(iris.RequestTimeout):
            await asking

    simulate(scenario, two_clouds())


def test_two_clouds_that_stand_in_for_each_other_play_no_request_back_and_forth() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        nodes = {cloud: federation.members(cloud) for cloud in ("us", "eu")}
        near = await nodes["us"][0].join("work", Worker("us"))
        far = await nodes["eu"][0].join("work", Worker("eu"))
        await federation.until(lambda: ranks(federation, "us") == ranks(federation, "eu") == [1, 1])
        # The last members of both go at once: for a moment each side believes that the other one serves the name.
        await asyncio.gather(near.leave(), far.leave())
        assert ranks(federation, "us") == ranks(federation, "eu") == [1, 1]
        for _ in range(2):
            for cloud in ("us", "eu"):
                begun = federation.now
                with pytest.raises(iris.NoMembers):
                    await nodes[cloud][1].request("work", b"x")
                assert federation.now - begun < 4 * ROUND_TRIP_S
            await federation.advance(SOON_S)
            assert ranks(federation, "us") == ranks(federation, "eu") == [0, 0]
        for cloud in ("us", "eu"):
            outcomes = crossed(federation, cloud)
            assert outcomes.keys() == {"no_members"}
            assert outcomes.total() <= 2, "once by each gateway, and not back"

    both: dict[str, Any] = {
        "exports": {"us": exported(), "eu": exported()},
        "imports": {"us": imported("eu"), "eu": imported("us")},
    }
    simulate(scenario, two_clouds(**both))


def test_surveys_and_broadcasts_do_not_go_over() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far, near = Worker("far"), Worker("near")
        await federation.members("eu")[0].join("work", far)
        caller, member, _ = federation.members("us")
        await all_have(federation, 1)
        assert await caller.broadcast("work", b"hear") == 0
        with pytest.raises(iris.NoMembers):
            await caller.survey("work", b"who")
        await member.join("work", near)
        await federation.until(lambda: len(caller.members("work")) == 3)
        assert await caller.broadcast("work", b"hear") == 1
        assert [reply.payload for reply in (await caller.survey("work", b"who")).replies] == [b"near"]
        await federation.advance(SOON_S)
        assert (near.heard, far.heard, far.surveyed) == ([b"hear"], [], 0)

    simulate(scenario, two_clouds())


def test_answers_are_those_of_members() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far")
        await federation.members("eu")[0].join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        assert await caller.request("work", b"x", headers={"tenant": 7}) == b"far"
        assert far.headers == {"tenant": 7}
        for options in ({}, {"idempotent": True}):
            with pytest.raises(iris.RemoteError) as failed:
                await caller.request("work", b"bad", **options)  # type: ignore[call-overload]
            assert (failed.value.type, failed.value.text, failed.value.cluster) == ("LookupError", "no such row", "work")
        far.gate.clear()
        with pytest.raises(iris.RequestTimeout):
            await caller.request("work", b"slow", timeout=0.5)
        far.gate.set()
        await federation.advance(SOON_S)
        assert [each.node._core.service._executions for each in gateways(federation)] == [{}, {}]
        assert all(not each.stand_ins._by_name["work"]._under_way for each in gateways(federation))

    simulate(scenario, two_clouds())


def test_a_request_that_is_cancelled_is_cancelled_over_there() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far")
        far.gate.clear()
        member = federation.members("eu")[0]
        await member.join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        for options in ({}, {"idempotent": True}):
            executed = far.executed.total()
            asking = asyncio.create_task(caller.request("work", b"x", **options))  # type: ignore[call-overload]
            await federation.until(partial(has_grown, far, executed))
            asking.cancel()
            await federation.advance(SOON_S)
            assert not member._core.service._executions
            assert not member._core.service.repetitions._underway

    simulate(scenario, two_clouds())


def test_a_tunnel_goes_over() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        await federation.members("eu")[0].join("work", Worker("far"))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        async with caller.tunnel("work") as tunnel:
            for number in range(3):
                await tunnel.send(b"%d" % number)
                assert await tunnel.receive() == b"far %d" % number
            await tunnel.end()
            with pytest.raises(iris.TunnelClosed):
                await tunnel.receive()

    simulate(scenario, two_clouds())


def test_a_cluster_that_is_not_exported_for_tunnels_serves_none() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        await federation.members("eu")[0].join("work", Worker("far"))
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        with pytest.raises(iris.NoMembers, match="tunnel"):
            await caller.tunnel("work")
        assert await ask(caller, 2) == {b"far"}

    simulate(scenario, two_clouds(exports={"eu": exported("request")}))


def test_rules_that_are_loaded_anew_count_at_once() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far, near = Worker("far", 0.2), Worker("near", 0.2)
        await federation.members("eu")[0].join("work", far)
        caller, member, _ = federation.members("us")
        await member.join("work", near, concurrency=1, queue_messages=0)
        await all_have(federation, 1)

        async def fill(count: int = 4) -> set[bytes]:
            return set(await asyncio.gather(*(caller.request("work", b"x", timeout=20.0) for _ in range(count))))

        assert await fill() == {b"near"}
        await federation.reload("us", imports=imported("eu", when="full"))
        await federation.advance(SOON_S)
        assert await fill() == {b"near", b"far"}
        await federation.reload("us", imports=imported("eu"))
        await federation.advance(SOON_S)
        assert await fill() == {b"near"}
        await federation.reload("us", imports=[])
        await federation.until(lambda: len(caller.members("work")) == 1, timeout=SOON_S)
        await federation.reload("us", imports=imported("eu"))
        await all_have(federation, 1, SOON_S)
        await federation.reload("eu", exports=[])
        await all_have(federation, 0, SOON_S)
        await federation.reload("eu", exports=[{"cluster": "other", "as": "work"}])
        await federation.advance(SOON_S)
        assert ranks(federation) == [0, 0], "nobody serves that"
        await federation.members("eu")[1].join("other", Worker("other"))
        await all_have(federation, 1, SOON_S)

    simulate(scenario, two_clouds())


def test_a_gateway_that_closes_leaves_and_fails_nothing() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        far = Worker("far", 0.3)
        await federation.members("eu")[0].join("work", far)
        caller = federation.members("us")[0]
        await all_have(federation, 1)
        asking = [asyncio.create_task(caller.request("work", b"%d" % number)) for number in range(20)]
        await federation.until(lambda: far.executed.total() == 20)
        closing = [asyncio.create_task(gateway.close()) for gateway in gateways(federation)]
        assert set(await asyncio.gather(*asking)) == {b"far"}
        await asyncio.gather(*closing)
        with pytest.raises(iris.NoMembers):
            await caller.request("work", b"x")

    simulate(scenario, two_clouds())


def test_a_neighbour_that_tells_ever_other_counts_makes_no_work_of_that() -> None:
    async def scenario(federation: VirtualFederation) -> None:
        caller = federation.members("us")[0]
        joins: Counter[float] = Counter()
        for gateway in gateways(federation):
            join = gateway._port.join_as_stand_in

            def counted(*how: Any, join: Any = join, **options: Any) -> Any:
                joins[federation.now] += 1
                return join(*how, **options)

            gateway._port.join_as_stand_in = counted  # type: ignore[method-assign]
        for members in range(1000):
            for gateway in gateways(federation, "eu"):
                for bundle in gateway.core.lines.neighbours["us"].bundles.values():
                    gateway.core.tell_count(bundle, "work", members % 2, federation.now)
                    gateway.core.tell_count(bundle, f"unwanted {members}", 1, federation.now)
                gateway._driver.wake()
            await federation.advance(0.01)
        await federation.advance(SOON_S)
        assert joins.total() <= 2 * 10 / RETURN_S
        for gateway in gateways(federation):
            assert gateway.core.drops["unwanted_count"] >= 2000
            assert {len(told.members) for told in gateway.stand_ins._told.values()} == {1}
        with pytest.raises(iris.NoMembers):
            await caller.request("work", b"x")

    simulate(scenario, two_clouds())
