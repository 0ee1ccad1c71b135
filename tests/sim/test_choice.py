"""The choice of complete nodes among members that are full, silent or failing, on the simulated network."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups.config import GroupConfig
from iris_py.api.bulk_requester import Asker
from iris_py.peers.hedging import HEDGES_AT_FIRST, HEDGES_SHARE
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def simulate(
    scenario: Callable[[NodeSimulation], Awaitable[Any]],
    *,
    seed: int = 1,
    limit_s: float = 600.0,
    groups: GroupConfig | None = None,
) -> None:
    async def main() -> Any:
        async with NodeSimulation(seed, groups=groups) as simulation:
            return await scenario(simulation)

    run(main(), limit_s=limit_s)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- full members


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_gather_of_five_thousand_at_one_member_is_answered(idempotent: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        executed = []

        async def work(request: iris.Request) -> bytes:
            executed.append(request.payload)
            await asyncio.sleep(0.01)
            return request.payload

        member, caller = await simulation.start_nodes(2)
        await member.join("work", work)
        payloads = [b"%d" % number for number in range(5_000)]
        assert await asyncio.gather(*(caller.request("work", each, idempotent=idempotent) for each in payloads)) == payloads
        assert sorted(executed) == sorted(payloads), "each once"
        assert now() < 5.0

    simulate(scenario)


def test_callers_that_wait_for_a_place_all_get_their_turn() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member, *callers = await simulation.start_nodes(5)
        done: dict[str, list[int]] = {caller.id: [] for caller in callers}

        async def work(request: iris.Request) -> bytes:
            await asyncio.sleep(0.02)
            return request.payload

        async def ask(caller: Any, number: int) -> None:
            await caller.request("work", b"", timeout=60.0)
            done[caller.id].append(number)

        await member.join("work", work, concurrency=4, queue_messages=4)
        await asyncio.gather(*(ask(caller, number) for number in range(50) for caller in callers))
        for numbers in done.values():
            late = max(abs(place - number) for place, number in enumerate(numbers))
            assert late < 16, "the first come, the first served, but for what crosses on the way"

    simulate(scenario)


def test_who_wants_to_hear_it_is_told_at_once_that_all_are_full() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def work(request: iris.Request) -> bytes:
            await asyncio.sleep(0.5)
            return b"done"

        member, caller = await simulation.start_nodes(2)
        await member.join("work", work, concurrency=1, queue_messages=0)
        first = asyncio.create_task(caller.request("work", b""))
        await simulation.until(lambda: member.statistics().executed == 1)
        for idempotent in (False, True):
            with pytest.raises(iris.Overloaded):
                await caller.request("work", b"", idempotent=idempotent, on_full="raise")
        assert not first.done()
        with pytest.raises(iris.Overloaded):
            await caller.request("work", b"", timeout=0.1)
        assert await caller.request("work", b"") == b"done"
        with pytest.raises(iris.ConfigurationError, match="on_full"):
            await caller.request("work", b"", on_full="drop")  # type: ignore[call-overload]

    simulate(scenario)


def test_tunnels_wait_for_a_place_too_the_first_come_first() -> None:
    class Echo(iris.Handler):
        async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
            async for message in tunnel:
                await tunnel.send(message)

    async def scenario(simulation: NodeSimulation) -> None:
        member, caller = await simulation.start_nodes(2)
        await member.join("files", Echo(), tunnels=2)
        order: list[int] = []

        async def use(number: int) -> None:
            async with caller.tunnel("files") as tunnel:
                order.append(number)
                await tunnel.send(b"x")
                assert await tunnel.receive() == b"x"
                await asyncio.sleep(0.1)

        await asyncio.gather(*(use(number) for number in range(10)))
        assert order == sorted(order)
        assert now() < 5.0

    simulate(scenario)


# -- silent members


async def _answer(simulation: NodeSimulation, members: int, work_s: float = 0.002) -> tuple[Any, list[Any], list[list[bytes]]]:
    """Start a caller and members that answer after a while; returns who has executed what, too."""
    caller, *serving = await simulation.start_nodes(1 + members)
    executed: list[list[bytes]] = []
    for member in serving:
        taken: list[bytes] = []
        executed.append(taken)

        async def work(request: iris.Request, taken: list[bytes] = taken) -> bytes:
            taken.append(request.payload)
            await asyncio.sleep(work_s)
            return request.payload

        await member.join("work", work)
    await caller.members("work")
    return caller, serving, executed


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("has_key", [False, True])
def test_a_frozen_member_does_not_beat_a_short_timeout(is_measured: bool, has_key: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, serving, executed = await _answer(simulation, 3)

        async def ask(number: int) -> None:
            key = f"key {number}" if has_key else None
            await caller.request("work", b"%d" % number, idempotent=True, timeout=0.5, key=key)

        for number in range(60 if is_measured else 6):  # every link is open
            await ask(number)
        simulation.stall(serving[0], caller)
        before = len(executed[0])
        started = now()
        for number in range(1_000, 1_020):
            await asyncio.gather(*(ask(10 * number + each) for each in range(4)))
            if now() - started > 1.5:  # then it is found dead
                break
        assert len(executed[0]) > before, "it was asked, and its answers did not come"
        assert caller.statistics().hedged > 0

    simulate(scenario)


def test_when_everything_slows_down_no_more_than_a_few_per_cent_are_asked_twice() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        slow_s = 0.002

        async def work(request: iris.Request) -> bytes:
            await asyncio.sleep(slow_s)
            return b""

        caller, *serving = await simulation.start_nodes(4)
        for member in serving:
            await member.join("work", work)

        async def ask_all(count: int) -> None:
            for _ in range(count // 50):
                await asyncio.gather(*(caller.request("work", b"", idempotent=True, timeout=30.0) for _ in range(50)))

        await ask_all(1_000)
        assert caller.statistics().hedged < 5
        slow_s = 1.0
        await ask_all(2_000)
        assert HEDGES_AT_FIRST <= caller.statistics().hedged < HEDGES_AT_FIRST + HEDGES_SHARE * 3_000 + 5

    simulate(scenario)


@dataclass(frozen=True)
class Question:
    """One of many that are asked together."""

    key: str
    payload: bytes


@pytest.mark.parametrize("is_together", [False, True])
def test_a_busy_member_keeps_its_keys(is_together: bool) -> None:
    """It answers when it is asked for a sign of life: nobody else does its work, also where many are asked together."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, _serving, executed = await _answer(simulation, 3, work_s=2.0)
        questions = [Question(f"{number}", b"%d" % number) for number in range(50)]
        if is_together:
            told: list[tuple[Question, bytes | iris.IrisError]] = []
            Asker(caller, "work", 5.0, told.extend).ask(questions)
            await simulation.until(lambda: len(told) == 50)
        else:
            asking = [caller.request("work", each.payload, idempotent=True, key=each.key, timeout=5.0) for each in questions]
            await asyncio.gather(*asking)
        assert sorted(payload for taken in executed for payload in taken) == sorted(each.payload for each in questions)
        assert caller.statistics().hedged == 0

    simulate(scenario)


def test_the_first_answer_counts_and_the_other_member_is_told() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        cancelled = []
        slow = True

        async def work(request: iris.Request) -> bytes:
            nonlocal slow
            if slow:
                slow = False
                try:
                    await asyncio.sleep(3.0)
                except asyncio.CancelledError:
                    cancelled.append(request.payload)
                    raise
            return request.payload

        caller, *serving = await simulation.start_nodes(3)
        for member in serving:
            await member.join("work", work)
        started = now()
        assert await caller.request("work", b"first", idempotent=True, timeout=4.0) == b"first"
        assert now() - started < 0.6
        await simulation.until(lambda: cancelled == [b"first"])
        statistics = caller.statistics()
        assert (statistics.replies, statistics.hedged) == (1, 1)
        await asyncio.sleep(1.0)  # of virtual time, in which a late reply would come
        assert caller.statistics().drops.get("late_reply", 0) == 0

    simulate(scenario)


# -- failing members


def test_a_member_that_fails_at_once_gets_little_and_is_found_when_it_is_mended() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        is_broken = True
        executed = [0, 0, 0]

        async def work(request: iris.Request, number: int) -> bytes:
            executed[number] += 1
            if is_broken and number == 0:
                raise OSError("the disk is gone")
            await asyncio.sleep(0.005)
            return request.payload

        async def ask_all(count: int) -> int:
            failed = 0
            for _ in range(count // 8):
                asking = (caller.request("work", b"") for _ in range(8))
                outcomes = await asyncio.gather(*asking, return_exceptions=True)
                failed += sum(isinstance(outcome, iris.RemoteError) for outcome in outcomes)
            return failed

        caller, *serving = await simulation.start_nodes(4)
        for number, member in enumerate(serving):
            await member.join("work", partial(work, number=number))
        await caller.members("work")
        assert await ask_all(800) < 800 // 20, "it got 488 of 800"
        shown = {member.id: member.failed for member in caller.members("work")}
        assert shown[serving[0].id] > 0.1
        assert shown[serving[1].id] == shown[serving[2].id] == 0.0
        failed = await ask_all(4_000)
        assert 0 < failed < 4_000 // 50, "it is tried again"
        assert caller.statistics().failed == executed[0]
        is_broken = False
        executed[:] = [0, 0, 0]
        await ask_all(2_000)
        assert executed[0] > 2_000 // 5, "it gets its share again"

    simulate(scenario)


def test_nobody_is_to_blame_where_requests_fail_everywhere() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        executed = [0, 0, 0]

        async def work(request: iris.Request, number: int) -> bytes:
            executed[number] += 1
            await asyncio.sleep(0.005)
            if request.payload == b"wrong":
                raise ValueError("no such account")
            return b""

        caller, *serving = await simulation.start_nodes(4)
        for number, member in enumerate(serving):
            await member.join("work", partial(work, number=number))
        await caller.members("work")
        for number in range(300):
            payloads = [b"wrong" if each == number % 5 else b"" for each in range(5)]
            await asyncio.gather(*(caller.request("work", each) for each in payloads), return_exceptions=True)
        assert min(executed) > 300

    simulate(scenario)


def test_what_a_member_failed_is_asked_elsewhere_if_the_caller_says_so() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        broken = {0, 1}
        asked: list[int] = []

        async def work(request: iris.Request, number: int) -> bytes:
            asked.append(number)
            if number in broken:
                raise OSError(f"disk {number} is gone")
            return request.payload

        caller, *serving = await simulation.start_nodes(4)
        for number, member in enumerate(serving):
            await member.join("work", partial(work, number=number))
        await caller.members("work")
        for number in range(50):
            key = f"{number}" if number % 2 else None
            payload = b"%d" % number
            assert await caller.request("work", payload, idempotent=True, retry_failed=True, key=key) == payload
        assert {0, 1} < set(asked)
        broken.add(2)
        asked.clear()
        with pytest.raises(iris.RemoteError, match=r"disk \d is gone"):
            await caller.request("work", b"", idempotent=True, retry_failed=True)
        assert sorted(asked[:3]) == [0, 1, 2], "each of them first"
        assert len(asked) == 5
        asked.clear()
        with pytest.raises(iris.RemoteError):
            await caller.request("work", b"", idempotent=True)
        assert len(asked) == 1
        with pytest.raises(iris.ConfigurationError, match="retry_failed"):
            await caller.request("work", b"", retry_failed=True)

    simulate(scenario)


# -- what is shown


def _shows(view: Any, total: int) -> bool:
    return bool(view.total == total)


async def _answer_nothing(request: iris.Request) -> bytes:
    return b""


async def _await(opening: Any) -> Any:
    return await opening


def test_a_view_says_when_it_is_a_sample_and_how_many_there_are() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller = await simulation.start_node()
        nodes = [*await simulation.start_nodes(34, seeds=[caller], beacons=False), caller]
        for count, serving in ((3, nodes[:3]), (34, nodes[:34])):
            name = f"work {count}"
            await asyncio.gather(*(_await(member.join(name, _answer_nothing)) for member in serving))
            view = caller.members(name)
            await simulation.until(partial(_shows, view, count))
            shown = await view
            assert len(shown) == min(count, 32)
            assert view.is_sample is (count > 32)
            assert repr(view) == f"<Members of {name!r}: {'3' if count == 3 else '32 of 34'}>"
        assert caller.network_size >= len(caller.nodes())
        assert 25 < caller.network_size < 50

    simulate(scenario, groups=GroupConfig(view_members_max=32))
