"""Requests between clouds through whole gateways: what the guarantees promise, and what is seen when something fails."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.gateway.gateway import DRAIN_TIMEOUT_S
from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation
from tests.sim.federated import HEALED_S, Work, ask, is_joined, leftovers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

LATENCY_S = 0.04
ROUND_TRIP_S = 2 * LATENCY_S


class Scene:
    """Two clouds: us asks, eu serves."""

    def __init__(self, federation: VirtualFederation, works: list[Work]) -> None:
        self.federation = federation
        self.works = works

    @property
    def caller(self) -> Node:
        return self.federation.members("us")[0]

    @property
    def executed(self) -> int:
        return sum(work.executed.total() for work in self.works)

    def times(self, payload: bytes) -> int:
        return sum(work.executed[payload] for work in self.works)

    @property
    def running(self) -> int:
        return sum(work.running for work in self.works)


def simulate(scenario: Callable[[Scene], Awaitable[None]], *, members: int = 2, seconds: float = 0.0, **how: Any) -> None:
    """Run a scenario with two joined clouds, and see that gateways keep nothing behind."""

    async def main() -> None:
        given: dict[str, Any] = {
            "seed": 1,
            "clouds": {"us": 2, "eu": members},
            "links": [("us", "eu", LATENCY_S)],
            "exports": {"eu": [{"cluster": "db"}]},
            "imports": {"us": [{"cluster": "db"}]},
        }
        async with VirtualFederation(**(given | how)) as federation:
            works = [Work(seconds) for _ in range(members)]
            for node, work in zip(federation.members("eu"), works, strict=True):
                await node.join("db", work)
            await federation.until(lambda: is_joined(federation, "us", "eu"))
            scene = Scene(federation, works)
            await federation.advance(1.0)
            await scenario(scene)
            await federation.advance(1.0)
            assert leftovers(federation, "us", "eu") == []

    run(main())


# -- what is promised


def test_a_request_takes_one_round_trip_of_the_line_and_tells_where_it_is_from() -> None:
    async def scenario(scene: Scene) -> None:
        begin = scene.federation.now
        reply = await scene.caller.request("db@eu", b"select", headers={"user": "ann"})
        assert reply == b"SELECT"
        assert scene.federation.now - begin == pytest.approx(ROUND_TRIP_S, abs=0.02)
        (request,) = [request for work in scene.works for request in work.requests]
        assert request.cloud == "us"
        assert dict(request.headers) == {"user": "ann"}
        assert scene.executed == 1

    simulate(scenario)


def test_plain_requests_are_executed_once_and_idempotent_ones_with_a_key_at_one_member() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(5):
            assert await scene.caller.request("db@eu", b"k", idempotent=True, key="k") == b"K"
        assert scene.times(b"k") == 1, "the member remembers its reply"
        await scene.federation.members("eu")[0].request("db", b"k", idempotent=True, key="k")
        assert scene.times(b"k") == 2, "a key of another cloud is another request"
        for _ in range(5):
            await scene.caller.request("db@eu", b"plain")
        assert scene.times(b"plain") == 5

    simulate(scenario)


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_errors_say_the_name_that_was_asked_for(is_idempotent: bool) -> None:
    async def scenario(scene: Scene) -> None:
        caller = scene.caller
        for work in scene.works:
            work.fails.add(b"burn")
            work.hold(b"long")
        with pytest.raises(iris.RemoteError, match="on fire") as failed:
            await caller.request("db@eu", b"burn", idempotent=is_idempotent)
        assert failed.value.cluster == "db@eu"
        own = {node.id for node in scene.federation.members("eu")}
        assert failed.value.member
        assert failed.value.member not in own, "a pseudonym"
        with pytest.raises(iris.RequestTimeout) as late:
            await caller.request("db@eu", b"long", idempotent=is_idempotent, timeout=1.0)
        assert late.value.cluster == "db@eu"
        with pytest.raises(iris.NotExported) as refused:
            await caller.request("other@eu", b"x", idempotent=is_idempotent)
        assert refused.value.cluster == "other@eu"
        with pytest.raises(iris.CloudUnavailable) as unknown:
            await caller.request("db@mars", b"x", idempotent=is_idempotent)
        assert unknown.value.cluster == "db@mars"
        await scene.federation.advance(0.5)
        assert scene.running == 0, "what nobody waits for is cancelled at the member"

    simulate(scenario)


def test_the_caller_counts_the_outcomes_of_requests_and_tunnels_to_each_cluster_of_another_cloud() -> None:
    async def scenario(scene: Scene) -> None:
        caller = scene.caller
        scene.works[0].fails.add(b"burn")
        scene.works[1].fails.add(b"burn")
        await ask(caller, "db@eu")
        await ask(caller, "db@eu", payload=b"burn")
        await ask(caller, "other@eu")
        for work in scene.works:
            work.hold(b"long")
        held = asyncio.ensure_future(caller.request("db@eu", b"long"))
        await scene.federation.advance(1.0)
        far = caller.statistics().far_requests
        assert set(far) == {"db@eu", "other@eu"}
        assert (far["db@eu"].sent, far["db@eu"].replied, far["db@eu"].waiting) == (3, 1, 1)
        assert dict(far["db@eu"].errors) == {"RemoteError": 1}
        assert far["db@eu"].round_trip.count == 1
        assert 0.5 * ROUND_TRIP_S < far["db@eu"].round_trip.sum_s < 1.0
        assert dict(far["other@eu"].errors) == {"NotExported": 1}
        held.cancel()
        for gateway in scene.federation.gateways("us"):
            scene.federation.kill(gateway)
        await scene.federation.advance(10.0)
        assert type(await ask(caller, "db@eu")) is iris.CloudUnavailable
        with pytest.raises(iris.CloudUnavailable):
            await caller.tunnel("db@eu", timeout=2.0)
        far = caller.statistics().far_requests
        assert dict(far["db@eu"].errors) == {"RemoteError": 1, "CloudUnavailable": 1}
        assert (far["db@eu"].sent, far["db@eu"].cancelled, far["db@eu"].waiting) == (4, 1, 0)
        assert dict(far["db@eu"].unopened) == {"CloudUnavailable": 1}
        (report,) = [
            each
            for each in (await scene.federation.members("us")[1].ask_nodes("far_requests")).reports
            if each.node.id == caller.id
        ]
        assert report.statistics.far_requests == far

    simulate(scenario, clouds={"us": 2, "eu": 2})


def test_without_members_there_are_no_members() -> None:
    async def scenario(scene: Scene) -> None:
        begin = scene.federation.now
        outcome = await ask(scene.caller, "empty@eu")
        assert isinstance(outcome, iris.NoMembers)
        assert not isinstance(outcome, iris.CloudUnavailable | iris.NotExported)
        assert outcome.cluster == "empty@eu"
        assert scene.federation.now - begin < 1.0

    simulate(scenario, exports={"eu": [{"cluster": ">"}]}, imports={"us": [{"cluster": ">"}]})


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_member_there_is_waited_for_as_long_as_the_caller_says(is_idempotent: bool) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for wait_s in (0, 2.5):
            begin = federation.now
            how: dict[str, Any] = {"idempotent": is_idempotent, "timeout": 30.0, "wait_for_members": wait_s}
            outcome = await ask(scene.caller, "empty@eu", **how)
            assert type(outcome) is iris.NoMembers
            assert wait_s <= federation.now - begin < wait_s + 1.0
        work = Work()
        asking = ask(scene.caller, "empty@eu", timeout=30.0, idempotent=is_idempotent, wait_for_members=20.0)
        await federation.advance(5.0)
        await federation.members("eu")[0].join("empty", work)
        assert await asking == b"X"
        assert work.executed.total() == 1
        (request,) = work.requests
        assert not request.headers, "how long its caller waits is not for the member"

    simulate(scenario, exports={"eu": [{"cluster": ">"}]}, imports={"us": [{"cluster": ">"}]})


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_gateway_is_waited_for_as_long_as_the_caller_says(is_idempotent: bool) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        (gateway,) = federation.gateways("us")
        federation.kill(gateway)
        await federation.advance(5.0)
        for wait_s in (0, 2.5):
            begin = federation.now
            how: dict[str, Any] = {"idempotent": is_idempotent, "timeout": 60.0, "wait_for_members": wait_s}
            assert type(await ask(scene.caller, "db@eu", **how)) is iris.CloudUnavailable
            assert wait_s <= federation.now - begin < wait_s + 1.0
        asking = ask(scene.caller, "db@eu", timeout=60.0, idempotent=is_idempotent, wait_for_members=50.0)
        await federation.restart_gateway(gateway)
        assert await asking == b"X"
        assert scene.executed == 1
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)

    simulate(scenario, gateways=1)


@pytest.mark.parametrize("key", [None, "a row"])
def test_a_request_that_ends_its_members_there_ends_few(key: str | None) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation

        async def end(request: iris.Request, node: Node) -> bytes:
            federation.kill(node)
            return b""

        nodes = federation.members("eu")
        for node in nodes:
            await node.join("poison", partial(end, node=node))
        outcome = await ask(scene.caller, "poison@eu", timeout=60.0, idempotent=True, key=key)
        assert isinstance(outcome, iris.TooManyMembersLost)
        assert outcome.cluster == "poison@eu"
        assert len(outcome.members) == len(set(outcome.members)) == 2
        assert not set(outcome.members) & {node.id for node in nodes}, "pseudonyms"
        await federation.advance(20.0)
        assert len(federation.members("eu")) == 4

    simulate(scenario, members=6, exports={"eu": [{"cluster": ">"}]}, imports={"us": [{"cluster": ">"}]})


def test_a_key_counts_the_members_that_it_has_lost_by_whichever_gateways_it_comes() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation

        async def end(request: iris.Request, node: Node) -> bytes:
            federation.kill(node)
            return b""

        for node in federation.members("eu"):
            await node.join("poison", partial(end, node=node))
        how: dict[str, Any] = {"timeout": 60.0, "idempotent": True, "key": "a row"}
        first = await ask(scene.caller, "poison@eu", **how)
        assert isinstance(first, iris.TooManyMembersLost)
        gateways = federation.gateways("eu")
        for gateway in gateways:  # each of the others sees the key for the first time
            federation.kill(gateway)
            await federation.restart_gateway(gateway)
            await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        again = await ask(scene.caller, "poison@eu", **how)
        assert isinstance(again, iris.TooManyMembersLost)
        assert set(again.members) == set(first.members)
        assert len(federation.members("eu")) == 4

    simulate(scenario, members=6, exports={"eu": [{"cluster": ">"}]}, imports={"us": [{"cluster": ">"}]})


def test_limits_of_the_exporter_are_told_with_a_time() -> None:
    async def scenario(scene: Scene) -> None:
        outcomes = await asyncio.gather(*(ask(scene.caller, "db@eu", b"%d" % n, on_full="raise") for n in range(12)))
        refused = [outcome for outcome in outcomes if isinstance(outcome, iris.Overloaded)]
        assert len(refused) >= 4
        assert all(each.retry_after_s is not None and 0 < each.retry_after_s <= 1 for each in refused)
        assert len(refused) + scene.executed == 12
        await scene.federation.advance(1.1)
        assert await ask(scene.caller, "db@eu", b"later") == b"LATER"

    simulate(scenario, exports={"eu": [{"cluster": "db", "requests_per_s": 4}]})


def test_a_name_outside_is_not_the_name_here_and_the_most_specific_rule_counts() -> None:
    async def scenario(scene: Scene) -> None:
        assert await ask(scene.caller, "store.db@eu") == b"X"
        assert isinstance(await ask(scene.caller, "db@eu"), iris.NotExported)
        assert isinstance(await ask(scene.caller, "store.secret@eu"), iris.NotExported)

    exports = [{"cluster": "db", "as": "store.db"}, {"cluster": "x.>", "as": "store.>", "allow": ["survey"]}]
    simulate(scenario, exports={"eu": exports}, imports={"us": [{"cluster": ">"}]})


def test_large_requests_and_replies() -> None:
    async def scenario(scene: Scene) -> None:
        payload = b"x" * 900_000
        asked = [ask(scene.caller, "db@eu", payload) for _ in range(5)]
        small = ask(scene.caller, "db@eu", b"small")
        assert await small == b"SMALL"
        assert await asyncio.gather(*asked) == [payload.upper()] * 5

    simulate(scenario)


def test_zones_are_those_of_the_other_cloud() -> None:
    async def scenario(scene: Scene) -> None:
        node = await scene.federation.start_node("eu", zone="eu/a")
        work = Work()
        await node.join("db", work)
        await scene.federation.advance(2.0)
        for n in range(5):
            await scene.caller.request("db@eu", b"%d" % n, require="eu/a")
        assert work.executed.total() == 5
        outcome = await ask(scene.caller, "db@eu", require="mars")
        assert isinstance(outcome, iris.NoMembers)

    simulate(scenario)


# -- what is hidden


def test_nothing_of_a_cloud_is_on_the_line() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for n in range(5):
            await scene.caller.request("db@eu", b"payload %d" % n, headers={"user": "ann"})
        for work in scene.works:
            work.fails.add(b"burn")
        with pytest.raises(iris.RemoteError):
            await scene.caller.request("db@eu", b"burn")
        tap = federation.tap("us", "eu")
        nodes = [*federation.members("us"), *federation.members("eu"), *federation.gateway_nodes("us")]
        secrets = [b"payload", b"ann", b"db", b"us.identity", b"on fire"]
        for node in nodes:
            secrets += [bytes.fromhex(node.id), node.id.encode(), node.address.encode(), node.network.encode() * 3]
        assert [secret for secret in secrets if len(secret) > 3 and tap.holds(secret)] == []
        assert tap.line_bytes() > 1000

    simulate(scenario, captures=True)


def test_no_id_or_address_is_told_even_to_the_gateway_of_the_other_cloud() -> None:
    """A gateway reads nothing such of another cloud: opened records, not only what is on the wire."""

    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        seen: list[bytes] = []
        for gateway in federation.gateways("us"):
            core = gateway.core
            original = core._receive

            def note(neighbour: Any, bundle: Any, index: int, received: Any, now: float, original: Any = original) -> None:
                seen.extend(part for _kind, key, data, _start, _stop in received for part in (key, data))
                original(neighbour, bundle, index, received, now)

            core._receive = note  # type: ignore[method-assign]
        for work in scene.works:
            work.fails.add(b"burn")
            work.hold(b"long")
        await ask(scene.caller, "db@eu", b"burn")
        await ask(scene.caller, "db@eu", b"long", timeout=0.5)
        lost = ask(scene.caller, "db@eu", b"long")
        await federation.advance(0.2)
        victim = next(n for n, work in zip(federation.members("eu"), scene.works, strict=True) if work.running)
        ids = [node.id for node in (*federation.members("eu"), *federation.gateway_nodes("eu"))]
        federation.kill(victim)
        assert isinstance(await lost, iris.MemberLost)
        text = b"".join(seen)
        assert text
        for node_id in ids:
            assert bytes.fromhex(node_id) not in text
            assert node_id.encode() not in text
        assert b"10.2." not in text, "an address"

    simulate(scenario)


def test_three_clouds_do_not_see_each_other_through_a_neighbour() -> None:
    async def main() -> None:
        async with VirtualFederation(
            seed=3,
            clouds={"us": 1, "eu": 1, "asia": 1},
            links=[("us", "eu", 0.04), ("eu", "asia", 0.1)],
            exports={"eu": [{"cluster": "db"}], "asia": [{"cluster": "db"}]},
            imports={"us": [{"cluster": "db"}], "eu": [{"cluster": "db"}]},
        ) as f:
            work = Work()
            await f.members("asia")[0].join("db", work)
            await f.until(lambda: is_joined(f, "us", "eu") and is_joined(f, "eu", "asia"))
            await f.advance(1.0)
            assert await ask(f.members("eu")[0], "db@asia") == b"X"
            assert isinstance(await ask(f.members("us")[0], "db@eu"), iris.NoMembers)
            assert isinstance(await ask(f.members("us")[0], "db@asia"), iris.CloudUnavailable)
            assert f.line_bytes("us", "asia") == f.line_bytes("asia", "us") == 0
            eu, other = f.gateways("eu")
            own = f.members("eu")[0].id
            assert eu.pseudonym_of("us", own) != eu.pseudonym_of("asia", own)
            assert other.pseudonym_of("us", own) == eu.pseudonym_of("us", own)
            assert len(eu.pseudonym_of("us", own)) == 32
            assert own not in eu.pseudonym_of("us", own)

    run(main())


# -- gateways that die


@pytest.mark.parametrize("where", ["us", "eu"])
def test_a_killed_gateway_costs_plain_requests_that_it_held_and_nobody_else(where: str) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        gates = [work.hold(b"held") for work in scene.works]
        asked = [ask(scene.caller, "db@eu", b"held", timeout=20.0) for _ in range(40)]
        await federation.advance(0.5)
        assert scene.running == 40
        begin = federation.now
        federation.kill(federation.gateways(where)[0])
        assert await ask(scene.caller, "db@eu", b"after", timeout=2.0, idempotent=True) == b"AFTER"
        assert federation.now - begin < 1.0
        await federation.advance(1.0)
        for gate in gates:
            gate.set()
        outcomes = await asyncio.gather(*asked)
        lost = [outcome for outcome in outcomes if outcome != b"HELD"]
        assert 0 < len(lost) < 40
        assert {type(outcome) for outcome in lost} == {iris.MemberLost}
        assert scene.times(b"held") == 40, "none was executed twice"
        assert federation.now - begin < 3.0

    simulate(scenario)


@pytest.mark.parametrize("where", ["us", "eu"])
def test_idempotent_requests_survive_a_killed_gateway_and_keep_their_member(where: str) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        gates = [work.hold(b"held") for work in scene.works]
        asked = [ask(scene.caller, "db@eu", b"held", timeout=20.0, idempotent=True, key=b"%d" % n) for n in range(40)]
        await federation.advance(0.5)
        federation.kill(federation.gateways(where)[0])
        await federation.advance(1.0)
        for gate in gates:
            gate.set()
        assert await asyncio.gather(*asked) == [b"HELD"] * 40
        done = sum(work.executed[b"held"] - work.cancelled for work in scene.works)
        assert done == 40, "executed to the end once, each"

    simulate(scenario)


@pytest.mark.parametrize("where", ["us", "eu"])
def test_the_only_gateway_dies_and_comes_back(where: str) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        (gateway,) = federation.gateways(where)
        federation.kill(gateway)
        await federation.advance(1.0)
        begin = federation.now
        assert isinstance(await ask(scene.caller, "db@eu"), iris.CloudUnavailable)
        assert federation.now - begin < 0.5, "at once, not after a timeout"
        again = ask(scene.caller, "db@eu", b"again", idempotent=True, timeout=30.0)
        await federation.restart_gateway(gateway)
        assert await again == b"AGAIN"
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)

    simulate(scenario, gateways=1)


@pytest.mark.parametrize("where", ["us", "eu"])
def test_a_restart_by_a_signal_loses_nothing(where: str) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        outcomes: list[bytes | iris.IrisError] = []
        is_over = False

        async def ask_on(number: int) -> None:
            while not is_over:
                outcomes.append(await ask(scene.caller, "db@eu", b"%d" % number))
                await asyncio.sleep(0.01)

        clients = [asyncio.ensure_future(ask_on(n)) for n in range(8)]
        await federation.advance(0.5)
        for gateway in federation.gateways(where):
            await federation.restart_gateway(gateway)
            await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=2 * HEALED_S)
        is_over = True
        await asyncio.gather(*clients)
        assert len(outcomes) >= 40
        assert [outcome for outcome in outcomes if not isinstance(outcome, bytes)] == []
        assert scene.executed == len(outcomes)

    simulate(scenario, seconds=0.2)


# -- lines that break


def test_a_cut_line_is_suspect_then_broken() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for work in scene.works:
            work.hold(b"held")
        held = ask(scene.caller, "db@eu", b"held", timeout=60.0)
        await federation.advance(0.5)
        federation.cut("us", "eu")
        begin = federation.now
        await federation.until(
            lambda: not any(gateway.core.is_usable("eu", federation.now) for gateway in federation.gateways("us"))
        )
        assert federation.now - begin <= 3.0 + 5.0 + 0.5
        asked_at = federation.now
        await federation.advance(0.2)
        outcome = await ask(scene.caller, "db@eu", timeout=20.0)
        assert isinstance(outcome, iris.CloudUnavailable)
        assert federation.now - asked_at < 0.5, "at once"
        assert isinstance(await held, iris.MemberLost)
        assert 10.0 <= federation.now - begin + 1.0 <= 17.0
        federation.heal("us", "eu")
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        assert await ask(scene.caller, "db@eu") == b"X"
        assert scene.times(b"held") == 1

    simulate(scenario)


def test_a_request_under_way_makes_suspicion_quick() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        federation.cut("us", "eu")
        begin = federation.now
        asked = [ask(scene.caller, "db@eu", b"%d" % n, timeout=60.0, idempotent=True) for n in range(20)]
        await federation.until(
            lambda: not any(gateway.core.is_usable("eu", federation.now) for gateway in federation.gateways("us"))
        )
        assert 3.0 <= federation.now - begin <= 3.5
        federation.heal("us", "eu")
        assert await asyncio.gather(*asked) == [b"%d" % n for n in range(20)]

    simulate(scenario)


def test_idempotent_requests_pass_by_a_bundle_that_is_cut() -> None:
    """One far gateway cannot be reached, and the other one can."""

    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        one = federation.gateways("eu")[0]
        federation.partition([one], federation.gateways("us"))
        begin = federation.now
        asked = [ask(scene.caller, "db@eu", b"%d" % n, timeout=20.0, idempotent=True) for n in range(40)]
        assert await asyncio.gather(*asked) == [b"%d" % n for n in range(40)]
        assert federation.now - begin <= 4.5
        assert all(scene.times(b"%d" % n) == 1 for n in range(40))
        await federation.advance(9.0)
        begin = federation.now
        assert await asyncio.gather(*(ask(scene.caller, "db@eu") for _ in range(20))) == [b"X"] * 20
        assert federation.now - begin < 0.3, "new ones go round it at once"
        federation.heal()

    simulate(scenario)


@pytest.mark.parametrize(
    ("fault", "ends", "seconds"),
    [
        ("cut", ("us", "eu"), 90.0),
        ("stall", ("us", "eu"), 15.0),
        ("stall", ("eu", "us"), 15.0),
        pytest.param("cut", ("us", "eu"), 3000.0, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_line_that_is_cut_or_works_one_way_is_no_line_until_it_heals(
    fault: str, ends: tuple[str, str], seconds: float
) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        getattr(federation, fault)(*ends)
        await federation.advance(seconds)
        begin = federation.now
        assert isinstance(await ask(scene.caller, "db@eu"), iris.CloudUnavailable)
        assert federation.now - begin < 0.5
        assert await ask(federation.members("eu")[0], "db") == b"X"
        federation.heal("us", "eu")
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        assert await ask(scene.caller, "db@eu") == b"X"

    simulate(scenario)


@pytest.mark.parametrize("direction", [("us", "eu"), ("eu", "us")])
def test_an_idle_line_that_nat_forgot_is_found_before_it_is_used(direction: tuple[str, str]) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        await federation.advance(60.0)
        federation.half_open(*direction)
        await federation.advance(9.0)
        begin = federation.now
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=12.0)
        outcome = await ask(scene.caller, "db@eu", timeout=20.0)
        assert outcome == b"X"
        assert federation.now - begin < 12.5

    simulate(scenario)


def test_a_reset_of_every_connection_is_mended_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for gateway in federation.gateways("eu"):
            federation.reset(gateway)
        asked = ask(scene.caller, "db@eu", idempotent=True)
        assert await asked == b"X"
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)

    simulate(scenario)


# -- a cloud that splits inside


def test_a_cloud_splits_inside_and_each_half_uses_its_own_gateway() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        one, other = federation.gateway_nodes("us")
        near, far = federation.members("us")
        federation.partition([one, near], [other, far])
        await federation.advance(30.0)
        for node in (near, far):
            assert await ask(node, "db@eu") == b"X"
        federation.heal()
        await federation.advance(30.0)
        for node in (near, far):
            assert await ask(node, "db@eu") == b"X"

    simulate(scenario)


def test_a_half_without_a_gateway_cannot_reach_the_other_cloud() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        lonely, happy = federation.members("us")
        federation.partition([lonely], [happy, *federation.gateway_nodes("us")])
        await federation.advance(30.0)
        outcome = await ask(lonely, "db@eu")
        assert isinstance(outcome, iris.CloudUnavailable | iris.NotConnected)
        assert await ask(happy, "db@eu") == b"X"
        federation.heal()
        await federation.advance(30.0)
        assert await ask(lonely, "db@eu") == b"X"

    simulate(scenario)


def test_a_far_gateway_that_is_cut_off_inside_its_cloud() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        lonely = federation.gateways("eu")[0]
        inside = [*federation.members("eu"), federation.gateway_nodes("eu")[1]]
        federation.partition([lonely], inside)
        await federation.advance(30.0)
        outcomes = await asyncio.gather(*(ask(scene.caller, "db@eu", b"%d" % n, idempotent=True) for n in range(30)))
        wrong = [outcome for outcome in outcomes if not isinstance(outcome, bytes)]
        assert wrong == []
        federation.heal()
        await federation.advance(30.0)

    simulate(scenario)


# -- who dials


def test_a_firewall_that_opens_one_way_while_both_would_dial() -> None:
    async def main() -> None:
        for source, target in itertools.permutations(("us", "eu")):
            async with VirtualFederation(
                seed=2,
                clouds={"us": 1, "eu": 1},
                links=[("us", "eu", LATENCY_S)],
                both_dial=True,
                exports={"eu": [{"cluster": "db"}]},
                imports={"us": [{"cluster": "db"}]},
            ) as f:
                f.firewall(source, target)
                for gateway in f.gateways("us"):
                    f.reset(gateway)
                await f.members("eu")[0].join("db", Work())
                await f.until(lambda f=f: is_joined(f, "us", "eu"), timeout=20.0)  # type: ignore[misc]
                await f.advance(1.0)
                assert await ask(f.members("us")[0], "db@eu") == b"X"
                assert all(
                    bundle.is_initiator is (source != cloud)
                    for cloud in ("us", "eu")
                    for gateway in f.gateways(cloud)
                    for neighbour in gateway.core.lines.neighbours.values()
                    for bundle in neighbour.bundles.values()
                )

    run(main())


def test_both_dial_and_there_is_one_bundle_between_two_gateways() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.federation.advance(60.0)
        for cloud, alias in (("us", "eu"), ("eu", "us")):
            for gateway in scene.federation.gateways(cloud):
                bundles = list(gateway.core.lines.neighbours[alias].bundles.values())
                assert len({bundle.gateway for bundle in bundles}) == len(bundles) == 2
        assert await ask(scene.caller, "db@eu") == b"X"

    simulate(scenario, both_dial=True)


# -- settings that change


def test_a_rule_that_is_removed_ends_for_new_requests_alone() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        gates = [work.hold(b"held") for work in scene.works]
        held = ask(scene.caller, "db@eu", b"held")
        await federation.advance(0.5)
        await federation.reload("eu", exports=[{"cluster": "other"}])
        await federation.advance(0.2)
        assert isinstance(await ask(scene.caller, "db@eu"), iris.NotExported)
        for gate in gates:
            gate.set()
        assert await held == b"HELD"
        await federation.reload("eu", exports=[{"cluster": "db"}])
        await federation.advance(0.2)
        assert await ask(scene.caller, "db@eu") == b"X"
        await federation.reload("us", imports=[])
        assert isinstance(await ask(scene.caller, "db@eu"), iris.NotExported)

    simulate(scenario)


@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_cloud_that_is_removed_while_its_requests_run(side: str) -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for work in scene.works:
            work.hold(b"held")
        held = [ask(scene.caller, "db@eu", b"held", timeout=30.0) for _ in range(10)]
        await federation.advance(0.5)
        other = "eu" if side == "us" else "us"
        cloud = federation._cloud(side)
        dials = cloud.neighbours.pop(other)
        exports, imports, cloud.exports, cloud.imports = cloud.exports, cloud.imports, [], []
        listen, cloud.settings = cloud.settings, {}
        if side == "eu":
            cloud.settings = {"gateway": {}}
        for number, gateway in enumerate(federation.gateways(side)):
            text = federation.settings_text(side, number)
            if side == "eu":
                text = text.replace("[gateway]", f'[gateway]\nlisten = "{cloud.addresses()[number]}"')
            await gateway.reload(parse(text))
        assert {type(outcome) for outcome in await asyncio.gather(*held)} == {iris.MemberLost}
        await federation.advance(1.0)
        assert scene.running == 0
        begin = federation.now
        assert isinstance(await ask(scene.caller, "db@eu"), iris.CloudUnavailable)
        assert federation.now - begin < 0.5
        if side == "us":
            assert all(gateway._memberships.keys() == {""} for gateway in federation.gateways("us"))
        cloud.neighbours[other] = dials
        cloud.exports, cloud.imports, cloud.settings = exports, imports, listen
        await federation.reload(side)
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        await federation.advance(0.5)
        assert await ask(scene.caller, "db@eu") == b"X"

    simulate(scenario)


def parse(text: str) -> Any:
    from iris_py.federation.settings import parse_settings

    return parse_settings(text, "test.toml")


def test_a_key_changes_without_a_break_and_revoking_it_shuts_out() -> None:
    from iris_security import CloudKey

    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        us, eu = federation._cloud("us"), federation._cloud("eu")
        old, new = us.key, CloudKey(b"n" * 32)
        outcomes: list[bytes | iris.IrisError] = []
        is_over = False

        async def ask_on() -> None:
            while not is_over:
                outcomes.append(await ask(scene.caller, "db@eu", idempotent=True))
                await asyncio.sleep(0.05)

        client = asyncio.ensure_future(ask_on())
        eu.settings = {"cloud.us": {"keys": [old.public_text, new.public_text]}}
        await federation.reload("eu")
        us.key = new
        for gateway in federation.gateways("us"):
            await federation.restart_gateway(gateway)
            await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        eu.settings = {"cloud.us": {"keys": [new.public_text]}}
        await federation.reload("eu")
        await federation.advance(2.0)
        is_over = True
        await client
        assert set(outcomes) == {b"X"}
        eu.settings = {"cloud.us": {"keys": [old.public_text]}}
        await federation.reload("eu")
        await federation.advance(0.5)
        assert isinstance(await ask(scene.caller, "db@eu"), iris.CloudUnavailable)
        eu.settings = {"cloud.us": {"keys": [new.public_text]}}
        await federation.reload("eu")
        await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)

    simulate(scenario)


def test_a_gateway_comes_and_goes_with_its_way_in_the_cluster_of_gateways() -> None:
    async def scenario(scene: Scene) -> None:
        federation = scene.federation
        for _ in range(4):
            federation.cut("us", "eu")
            await federation.advance(20.0)
            assert all("eu" not in gateway._memberships for gateway in federation.gateways("us"))
            federation.heal()
            await federation.until(lambda: is_joined(federation, "us", "eu"), timeout=HEALED_S)
        assert await ask(scene.caller, "db@eu") == b"X"
        clouds = await scene.caller.clouds()
        assert [(cloud.alias, cloud.is_up, cloud.gateways) for cloud in clouds] == [("eu", True, 2)]

    simulate(scenario)


def test_callers_that_give_up_leave_nothing_behind() -> None:
    async def scenario(scene: Scene) -> None:
        for work in scene.works:
            work.hold(b"held")
        asked = [ask(scene.caller, "db@eu", b"held", timeout=30.0) for _ in range(50)]
        await scene.federation.advance(0.5)
        for task in asked[:25]:
            task.cancel()
        asking = [ask(scene.caller, "db@eu", b"held", timeout=30.0) for _ in range(10)]
        await scene.federation.advance(0.03)
        for task in asking:
            task.cancel()
        await scene.federation.advance(0.5)
        assert scene.running == 25
        for work in scene.works:
            work.held[b"held"].set()
        assert await asyncio.gather(*asked[25:]) == [b"HELD"] * 25

    simulate(scenario)


def test_a_caller_that_dies_takes_its_requests_along() -> None:
    async def scenario(scene: Scene) -> None:
        for work in scene.works:
            work.hold(b"held")
        caller = scene.federation.members("us")[1]
        asked = [ask(caller, "db@eu", b"held", timeout=300.0) for _ in range(10)]
        await scene.federation.advance(0.5)
        assert scene.running == 10
        scene.federation.kill(caller)
        await scene.federation.until(lambda: scene.running == 0, timeout=20.0)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    simulate(scenario)


class Closing(iris.Handler):
    """Closes the gateways of its cloud when it is told to, once a slow request has begun.

    Attributes:
        begun: The slow request has begun.
        took_s: How long it has waited for the gateways.
        slow_has_ended: Whether the slow request had ended then.
    """

    def __init__(self, federation: VirtualFederation) -> None:
        self.federation = federation
        self.begun = asyncio.Event()
        self.took_s = 0.0
        self.slow_has_ended = self._is_slow_over = False

    async def close_all(self) -> None:
        began_at = self.federation.now
        for gateway in self.federation.gateways("eu"):
            await gateway.close()
        self.took_s = self.federation.now - began_at
        self.slow_has_ended = self._is_slow_over

    async def on_request(self, request: iris.Request) -> bytes:
        if request.payload == b"slow":
            self.begun.set()
            await asyncio.sleep(SLOW_S)
            self._is_slow_over = True
        else:
            await self.close_all()
        return request.payload

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        message = await tunnel.receive()
        await self.close_all()
        await tunnel.send(message)


#: How long the slow request takes, and how long gateways take to close besides, at most. Less than they give what is under way.
SLOW_S, CLOSED_S = 5.0, 5.0


@pytest.mark.parametrize("through", ["request", "tunnel"])
def test_a_handler_may_close_the_gateway_that_its_request_came_through(through: str) -> None:
    exports, imports = {"eu": [{"cluster": "ends", "allow": ["request", "tunnel"]}]}, {"us": [{"cluster": "ends"}]}

    async def main() -> None:
        async with VirtualFederation(
            seed=1, clouds={"us": 1, "eu": 1}, links=[("us", "eu", LATENCY_S)], exports=exports, imports=imports
        ) as federation:
            ending = Closing(federation)
            await federation.members("eu")[0].join("ends", ending)
            await federation.until(lambda: is_joined(federation, "us", "eu"))
            (caller,) = federation.members("us")
            slow = asyncio.create_task(caller.request("ends@eu", b"slow", timeout=60.0))
            await ending.begun.wait()
            if through == "request":
                assert await caller.request("ends@eu", b"bye", timeout=60.0) == b"bye"
            else:
                async with caller.tunnel("ends@eu") as tunnel:
                    await tunnel.send(b"bye")
                    assert await tunnel.receive() == b"bye"
            assert await slow == b"slow"
            assert ending.slow_has_ended, "it has waited for others"
            assert ending.took_s < SLOW_S + CLOSED_S < DRAIN_TIMEOUT_S, "and not for itself"
            for gateway in federation.gateways("eu"):
                await gateway.close()

    run(main())
