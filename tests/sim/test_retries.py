"""Requests that say how they may be repeated: how often, after how long, and why; and what is executed twice for that."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Latencies and timers of the simulated network, in seconds.
SLACK_S = 0.05
SEAL = iris.Secret(bytes(range(32))).text


class Member(iris.Handler):
    """Works for a time, and notes when it was asked, and what was cancelled."""

    def __init__(self, work_s: float = 0.0, *, fails: bool = False) -> None:
        self.work_s = work_s
        self.fails = fails
        self.asked_at: list[float] = []
        self.cancelled = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self.asked_at.append(now())
        try:
            await asyncio.sleep(self.work_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise OSError("a broken disk")
        return b"done"


def now() -> float:
    return asyncio.get_running_loop().time()


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with NodeSimulation(seed) as simulation:
            await scenario(simulation)

    run(main(), limit_s=600)


async def start(simulation: NodeSimulation, *members: Member) -> tuple[iris.Node, list[iris.Node]]:
    """Start a caller and members, and let the caller see them all."""
    caller, *nodes = await simulation.start_nodes(1 + len(members))
    for node, member in zip(nodes, members, strict=True):
        await node.join("work", member, concurrency=1)
    await caller.members("work")
    await simulation.until(lambda: len(caller.members("work")) == len(members))
    return caller, nodes


def executions(*members: Member) -> int:
    return sum(len(member.asked_at) for member in members)


def test_a_member_that_takes_too_long_is_told_to_stop_and_another_one_asked() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(), Member()]
        caller, _nodes = await start(simulation, *members)
        retry = iris.Retry(attempt_timeout=0.5, hedge_after=None)
        for stuck, quick in (members, members[::-1]):
            stuck.work_s, quick.work_s = 60.0, 0.0
            for member in members:
                member.asked_at.clear()
            began = now()
            for _ in range(20):  # until the stuck one was chosen
                began = now()
                assert await caller.request("work", b"", timeout=10.0, retry=retry) == b"done"
                if stuck.asked_at:
                    break
            assert 0.5 <= now() - began < 0.5 + SLACK_S
            await asyncio.sleep(SLACK_S)
            assert stuck.cancelled == 1
            assert len(stuck.asked_at) == 1
        assert caller.statistics().hedged == 0

    simulate(scenario)


def test_a_single_member_is_asked_again_and_no_more_often_than_it_may() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member = Member(60.0)
        caller, nodes = await start(simulation, member)
        began = now()
        with pytest.raises(iris.RequestTimeout) as caught:
            await caller.request("work", b"", timeout=30.0, retry=iris.Retry(attempts=3, attempt_timeout=1.0))
        assert 3.0 <= now() - began < 4.0, "pauses are between the attempts"
        assert caught.value.timeout_s == pytest.approx(now() - began, abs=SLACK_S)
        assert caught.value.member == nodes[0].id
        await asyncio.sleep(SLACK_S)
        assert (len(member.asked_at), member.cancelled) == (3, 3)
        member.work_s = 0.0
        assert await caller.request("work", b"", retry=iris.Retry()) == b"done"

    simulate(scenario)


def test_a_reply_within_the_time_of_an_attempt_ends_it() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member = Member(0.9)
        caller, _nodes = await start(simulation, member)
        replies = await asyncio.gather(
            *(caller.request("work", b"", timeout=30.0, retry=iris.Retry(attempt_timeout=20.0)) for _ in range(3))
        )
        assert replies == [b"done"] * 3
        await asyncio.sleep(30.0)
        assert (executions(member), member.cancelled, caller.statistics().retries) == (3, 0, 0)

    simulate(scenario)


@pytest.mark.parametrize(
    ("retry", "outcome", "executed"),
    [
        (iris.Retry(on=("lost",)), iris.RemoteError, 1),
        (iris.Retry(on=("failed",)), iris.RemoteError, 5),
        (iris.Retry(on=("failed",), attempts=2), iris.RemoteError, 2),
        (iris.Retry(on=("failed",), attempts=1), iris.RemoteError, 1),
    ],
)
def test_failures_are_tried_elsewhere_where_they_may_be(
    retry: iris.Retry, outcome: type[iris.IrisError], executed: int
) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(fails=True) for _ in range(3)]
        caller, _nodes = await start(simulation, *members)
        with pytest.raises(outcome):
            await caller.request("work", b"", timeout=10.0, retry=retry)
        assert executions(*members) == executed

    simulate(scenario)


@pytest.mark.parametrize(
    "how",
    [
        {"idempotent": True, "retry_failed": True},
        {"retry": iris.Retry(on=("failed",))},
        {"retry": iris.Retry(attempts=3, on=("lost", "failed"))},
        {"retry": iris.Retry(attempts=5, attempt_timeout=1, on=("failed",))},
        {"idempotent": True, "retry_failed": True, "key": "a lamp"},
    ],
)
def test_a_queue_with_one_worker_does_what_it_failed_twice(how: dict[str, Any]) -> None:
    """A failure is not remembered as a reply is: the same member executes the same request again, and remembers its reply."""

    class Worker(Member):
        async def on_request(self, request: iris.Request) -> bytes:
            self.fails = len(self.asked_at) < 2
            return await super().on_request(request)

    async def scenario(simulation: NodeSimulation) -> None:
        member = Worker()
        caller, _nodes = await start(simulation, member)
        assert await caller.request("work", b"", timeout=30.0, **how) == b"done"
        first, second, third = member.asked_at
        assert 0.0 < second - first < 0.1 + SLACK_S
        assert 0.0 < third - second < 0.2 + SLACK_S
        if "key" in how:
            assert await caller.request("work", b"", timeout=30.0, **how) == b"done"
            assert executions(member) == 3

    simulate(scenario)


def test_pauses_are_as_the_caller_says() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member = Member(fails=True)
        caller, _nodes = await start(simulation, member)
        how = {"backoff_initial": 1.0, "backoff_factor": 3.0, "backoff_max": 5.0, "backoff_jitter": 0.0}
        retry = iris.Retry(on="failed", attempts=5, **how)  # type: ignore[arg-type]
        with pytest.raises(iris.RemoteError):
            await caller.request("work", b"", timeout=60.0, retry=retry)
        pauses = [later - earlier for earlier, later in itertools.pairwise(member.asked_at)]
        assert pauses == pytest.approx([1.0, 3.0, 5.0, 5.0], abs=SLACK_S)

    simulate(scenario)


def test_two_callers_with_one_key_have_it_done_again_together() -> None:
    """Both wait for one execution, hear of its failure, and ask again: what runs meanwhile has them both as its callers."""

    async def scenario(simulation: NodeSimulation) -> None:
        member = Member(1.0, fails=True)
        caller, _nodes = await start(simulation, member)
        retry = iris.Retry(on=("failed",), attempts=2, backoff_jitter=0.0)
        asking = [caller.request("work", b"", timeout=30.0, key="k", retry=retry) for _ in range(2)]
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [iris.RemoteError] * 2
        assert executions(member) == 2

    simulate(scenario)


# -- a request whose handler ends the process


class Poisoned(iris.Handler):
    """Ends its node at one payload, as a segmentation fault or the OOM killer does."""

    def __init__(self, simulation: NodeSimulation, node: iris.Node, after_s: float) -> None:
        self.simulation = simulation
        self.node = node
        self.after_s = after_s

    async def on_request(self, request: iris.Request) -> bytes:
        await asyncio.sleep(self.after_s)
        if request.payload == b"poison":
            self.simulation.kill(self.node)
            await asyncio.Event().wait()
        return b"done"


@pytest.mark.parametrize("key", [None, "a row"])
@pytest.mark.parametrize(
    ("retry", "lost"), [(None, 2), (iris.Retry(members_lost_max=1), 1), (iris.Retry(members_lost_max=3), 3)]
)
@pytest.mark.parametrize("after_s", [0.0, 3.0])
def test_a_request_that_ends_its_members_ends_few(key: str | None, retry: iris.Retry | None, lost: int, after_s: float) -> None:
    """Also where members take so long to die that others are asked as well."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, *nodes = await simulation.start_nodes(13)
        for node in nodes:
            await node.join("work", Poisoned(simulation, node, after_s))
        await caller.members("work")
        await simulation.until(lambda: len(caller.members("work")) == 12)
        how = {"idempotent": True} if retry is None else {"retry": retry}
        with pytest.raises(iris.TooManyMembersLost) as caught:
            await caller.request("work", b"poison", timeout=60.0, key=key, **how)
        assert len(caught.value.members) == len(set(caught.value.members)) == lost
        assert set(caught.value.members) <= {node.id for node in nodes}
        assert isinstance(caught.value, iris.MemberLost)
        await simulation.until(lambda: len(caller.members("work")) == 12 - lost)
        await asyncio.sleep(10.0)
        assert len(caller.members("work")) == 12 - lost, "nobody else has it"
        assert await caller.request("work", b"", idempotent=True) == b"done"

    simulate(scenario)


async def start_poisoned(simulation: NodeSimulation, callers: int = 2, members: int = 12) -> list[iris.Node]:
    """Start callers that see all members, of which one payload ends each that executes it; returns the callers."""
    asking = await simulation.start_nodes(callers)
    for node in await simulation.start_nodes(members):
        await node.join("work", Poisoned(simulation, node, 0.0))
    for caller in asking:
        await caller.members("work")
        await simulation.until(lambda caller=caller: len(caller.members("work")) == members)  # type: ignore[misc]
    return asking


async def ask_poison(caller: iris.Node, **how: Any) -> iris.TooManyMembersLost:
    with pytest.raises(iris.TooManyMembersLost) as caught:
        await caller.request("work", b"poison", timeout=60.0, **{"key": "a row", "idempotent": True, **how})
    return caught.value


def test_a_key_that_has_ended_two_members_ends_no_more_whoever_asks() -> None:
    """Not from another node, nor when the first has gone: the members that live remember."""

    async def scenario(simulation: NodeSimulation) -> None:
        first, second, third = await start_poisoned(simulation, callers=3)
        said = await ask_poison(first)
        assert len(said.members) == 2
        assert set((await ask_poison(second)).members) == set(said.members)
        simulation.kill(first)
        simulation.kill(second)
        assert set((await ask_poison(third)).members) == set(said.members)
        assert len(third.members("work")) == 10
        assert await third.request("work", b"", idempotent=True, key="another row") == b"done"
        assert len((await ask_poison(third, retry=iris.Retry(members_lost_max=3))).members) == 3
        await asyncio.sleep(310.0)
        assert len((await ask_poison(third)).members) == 2, "it is remembered for five minutes"
        assert len(third.members("work")) == 7

    simulate(scenario)


def test_members_that_come_later_are_told_what_others_died_of() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        first, second = await start_poisoned(simulation, members=3)
        await ask_poison(first)
        simulation.kill(first)
        for node in await simulation.start_nodes(6):
            await node.join("work", Poisoned(simulation, node, 0.0))
        await simulation.until(lambda: len(second.members("work")) == 7)
        await asyncio.sleep(1.0)
        for number in range(20):  # members come and go, and the key changes hands
            assert len((await ask_poison(second)).members) == 2
            if number % 5 == 0:
                (node,) = await simulation.start_nodes(1)
                await node.join("work", Poisoned(simulation, node, 0.0))
                await asyncio.sleep(1.0)
        assert len(second.members("work")) == 11

    simulate(scenario)


def test_where_all_members_have_died_those_that_come_are_told_by_the_caller() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        first, second = await start_poisoned(simulation, members=2)
        await ask_poison(first)
        await simulation.until(lambda: not second.members("work"))
        (node,) = await simulation.start_nodes(1)
        await node.join("work", Poisoned(simulation, node, 0.0))
        await asyncio.sleep(1.0)
        simulation.kill(first)
        assert len((await ask_poison(second)).members) == 2
        assert len(second.members("work")) == 1

    simulate(scenario)


# -- nobody there


@pytest.mark.parametrize("how", [{}, {"idempotent": True}, {"retry": iris.Retry()}, {"idempotent": True, "key": "k"}])
def test_it_waits_for_a_member_for_as_long_as_the_caller_says(how: dict[str, Any]) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, late = await simulation.start_nodes(2)
        for wait_s in (0, 2.5):
            began = now()
            with pytest.raises(iris.NoMembers):
                await caller.request("work", b"", timeout=30.0, wait_for_members=wait_s, **how)
            assert wait_s <= now() - began < wait_s + 0.5
            with pytest.raises(iris.NoMembers):
                await caller.request("work", {}, timeout=30.0, wait_for_members=wait_s, codec="json", **how)
            with pytest.raises(iris.NoMembers):
                await caller.request("work", b"", timeout=30.0, wait_for_members=wait_s, seal=SEAL, **how)
            assert 3 * wait_s <= now() - began < 3 * wait_s + 1.0
        member = Member()
        asking = asyncio.create_task(caller.request("work", b"", timeout=30.0, wait_for_members=20.0, **how))
        await asyncio.sleep(10.0)
        await late.join("work", member)
        assert await asking == b"done"
        assert executions(member) == 1

    simulate(scenario)


@pytest.mark.parametrize("wait_s", [-1, float("inf"), float("nan"), "1", True])
def test_what_is_no_time_to_wait_for_members_is_refused(wait_s: Any) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        with pytest.raises(iris.ConfigurationError, match=r"wait_for_members=.* must be a finite number of seconds"):
            await node.request("work", b"", wait_for_members=wait_s)

    simulate(scenario)


@pytest.mark.parametrize(
    ("retry", "is_lost"),
    [
        (iris.Retry(), False),
        (iris.Retry(attempts=2), False),
        (iris.Retry(attempts=1), True),
        (iris.Retry(on=("failed", "no_members")), True),
    ],
)
def test_a_lost_member_is_replaced_where_it_may_be(retry: iris.Retry, is_lost: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(2.0), Member(2.0)]
        caller, nodes = await start(simulation, *members)
        asking = asyncio.create_task(caller.request("work", b"", timeout=20.0, retry=retry))
        await simulation.until(lambda: executions(*members) == 1)
        simulation.kill(nodes[0 if members[0].asked_at else 1])
        if is_lost:
            with pytest.raises(iris.MemberLost):
                await asking
        else:
            assert await asking == b"done"
        assert executions(*members) == 1 + (not is_lost)

    simulate(scenario)


def test_what_was_lost_is_not_said_to_have_found_nobody() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member = Member(2.0)
        caller, nodes = await start(simulation, member)
        asking = asyncio.create_task(caller.request("work", b"", timeout=20.0, retry=iris.Retry(on=("lost",))))
        await simulation.until(lambda: executions(member) == 1)
        simulation.kill(nodes[0])
        with pytest.raises(iris.MemberLost) as caught:
            await asking
        assert caught.value.member == nodes[0].id

    simulate(scenario)


def test_it_waits_for_members_where_it_may() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, late = await simulation.start_nodes(2)
        with pytest.raises(iris.NoMembers):
            await caller.request("work", b"", timeout=5.0, retry=iris.Retry(on=("lost", "failed")))
        asking = asyncio.create_task(caller.request("work", b"", timeout=5.0, retry=iris.Retry()))
        await asyncio.sleep(1.0)
        await late.join("work", Member())
        assert await asking == b"done"

    simulate(scenario)


@pytest.mark.parametrize(("after", "expected_s"), [(0.3, 0.3), (2.0, 2.0)])
def test_a_second_member_is_asked_after_the_given_time(after: float, expected_s: float) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(3.0), Member(3.0)]
        caller, _nodes = await start(simulation, *members)
        assert await caller.request("work", b"", timeout=20.0, retry=iris.Retry(hedge_after=after)) == b"done"
        first, second = sorted(member.asked_at[0] for member in members)
        assert expected_s <= second - first < expected_s + SLACK_S
        assert (executions(*members), caller.statistics().hedged) == (2, 1)
        await asyncio.sleep(SLACK_S)
        assert sum(member.cancelled for member in members) == 1, "the other one is told to stop"

    simulate(scenario)


@pytest.mark.parametrize("retry", [iris.Retry(hedge_after=None), iris.Retry(attempts=1, hedge_after=0.3)])
def test_no_second_member_is_asked_where_none_may_be(retry: iris.Retry) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(3.0), Member(3.0)]
        caller, _nodes = await start(simulation, *members)
        assert await caller.request("work", b"", timeout=20.0, retry=retry) == b"done"
        assert (executions(*members), caller.statistics().hedged) == (1, 0)

    simulate(scenario)


def test_the_time_of_an_attempt_counts_for_all_that_have_the_request() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(60.0) for _ in range(4)]
        caller, _nodes = await start(simulation, *members)
        retry = iris.Retry(attempts=4, hedge_after=0.3, attempt_timeout=1.0)
        with pytest.raises(iris.RequestTimeout):
            await caller.request("work", b"", timeout=20.0, retry=retry)
        await asyncio.sleep(SLACK_S)
        assert (executions(*members), sum(member.cancelled for member in members)) == (4, 4)

    simulate(scenario)


def test_a_share_of_the_answers_says_when_a_second_member_is_asked() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(0.2), Member(0.2)]
        caller, _nodes = await start(simulation, *members)
        retry = iris.Retry(hedge_after="p90")
        for _ in range(100):
            await caller.request("work", b"", timeout=20.0, retry=retry)
        for member in members:
            member.asked_at.clear()
            member.work_s = 3.0
        await caller.request("work", b"", timeout=20.0, retry=retry)
        first, second = sorted(member.asked_at[0] for member in members)
        assert 0.15 <= second - first < 0.35

    simulate(scenario)


def test_members_that_are_full_do_not_count_as_attempts() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(1.0) for _ in range(3)]
        caller, *nodes = await simulation.start_nodes(4)
        for node, member in zip(nodes, members, strict=True):
            await node.join("work", member, concurrency=1, queue_messages=0)
        replies = await asyncio.gather(
            *(caller.request("work", b"", timeout=20.0, retry=iris.Retry(attempts=1, hedge_after=None)) for _ in range(9))
        )
        assert replies == [b"done"] * 9
        assert executions(*members) == 9

    simulate(scenario)


def test_a_key_goes_with_it() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        members = [Member(), Member()]
        caller, _nodes = await start(simulation, *members)
        for _ in range(2):
            assert await caller.request("work", b"", key="one", retry=iris.Retry(attempts=2), codec=None) == b"done"
        assert executions(*members) == 1
        codec = iris.Codec(bytes, format="msgpack")
        with pytest.raises(iris.DecodeError):
            await caller.request("work", b"", key="two", retry=iris.Retry(attempts=2), codec=codec)

    simulate(scenario)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"retry": 3}, "must be an iris_py.Retry"),
        ({"retry": iris.Retry(), "idempotent": True, "retry_failed": True}, 'pass on=\\("lost", "failed"'),
        ({"key": "k"}, "Pass idempotent=True or retry="),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], says: str) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        with pytest.raises(iris.ConfigurationError, match=says):
            await node.request("work", b"", **arguments)
        with pytest.raises(iris.ConfigurationError, match="requests to 'work@eu' are repeated by gateways"):
            await node.request("work@eu", b"", retry=iris.Retry())

    simulate(scenario)
