"""Members in processes of their own: killed, asked to leave, stopped and blocked, under load."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import pytest

import iris_py as iris
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.peers.hedging import HEDGES_AT_FIRST, HEDGES_SHARE
from tests.integration.conftest import PATIENCE_S, OwnTime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.conftest import Crew, Loops, MemberProcess

LANES = 24
#: A silent peer is given up after 2.25 s, and asked every 0.75 s before (docs/design.md 3.6).
KEEPALIVE_INTERVAL_S = 0.75
KEEPALIVE_TIMEOUT_S = 2.25
#: Who is silent for so long may be out of views: it is suspected 0.6 s after a ping, and dead 0.9 s later.
LOST_S = 1.5
#: Promised in docs/guarantees.md for a killed process.
OUT_OF_VIEWS_WITHIN_S = 3.0


class Load:
    """Asks a cluster all the time, in lanes, and keeps what became of each request."""

    def __init__(self, node: iris.Node, loops: Loops, *, idempotent: bool) -> None:
        self.asked: list[bytes] = []
        self.errors: list[iris.IrisError] = []
        self.replies = 0
        self._node = node
        self._loops = loops
        self._idempotent = idempotent
        self._is_over = False
        self._tasks = [asyncio.create_task(self._ask(lane)) for lane in range(LANES)]

    async def _ask(self, lane: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            payload = f"work 3 {lane}.{number}".encode()
            self.asked.append(payload)
            try:
                reply = await self._node.request("works", payload, idempotent=self._idempotent, timeout=30.0)
            except iris.IrisError as exc:
                self.errors.append(exc)
                if len(self.errors) > 10 * LANES:
                    raise
            else:
                assert reply == payload
                self.replies += 1

    async def pass_by(self, replies: int) -> None:
        """Wait for so many more replies."""
        goal = self.replies + replies
        await self._loops.until(lambda: self.replies >= goal, f"{replies} more replies")

    async def kill(self, member: MemberProcess) -> None:
        """Kill a member that holds requests: it is stopped until the others have answered more than they held."""
        member.send_signal(signal.SIGSTOP)
        await self.pass_by(4 * LANES)
        member.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Let the lanes come to their end."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def find(node: iris.Node, loops: Loops, members: list[MemberProcess]) -> None:
    wanted = {member.id for member in members}
    await loops.until(lambda: {member.id for member in node.members("works")} == wanted, "every member known")


def test_killing_a_member_costs_idempotent_requests_nothing(loops: Loops, crew: Crew) -> None:
    members = crew.start("works", 3, loop=loops.name)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loops, members)
            async with Load(node, loops, idempotent=True) as load:
                await load.pass_by(300)
                await load.kill(members[0])
                await load.pass_by(600)
                await load.stop()
                assert load.errors == []
                assert load.replies == len(load.asked)
                await find(node, loops, members[1:])
                statistics = node.statistics()
                # What the member held, and what a busy machine made late, within the budget of hedging.
                assert 0 < statistics.retries <= LANES + HEDGES_AT_FIRST + HEDGES_SHARE * statistics.replies
                assert statistics.replies == statistics.requests == len(load.asked)

    loops.run(main())


@pytest.mark.parametrize("key", [None, "a row"])
def test_a_request_whose_handler_ends_the_process_ends_two(loop: Loops, crew: Crew, key: str | None) -> None:
    """Neither an idempotent request nor one with a key goes from member to member until none is left."""
    members = crew.start("works", 5)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loop, members)
            with pytest.raises(iris.TooManyMembersLost) as caught:
                await node.request("works", b"die", idempotent=True, key=key, timeout=PATIENCE_S)
            lost = {member.id for member in members if member.id in caught.value.members}
            assert len(lost) == len(caught.value.members) == 2
            await find(node, loop, [member for member in members if member.id not in lost])
            assert await node.request("works", b"work 0", idempotent=True, timeout=PATIENCE_S) == b"work 0"

    loop.run(main())
    assert Counter(crew.executed())[b"die"] == 2


def test_killing_a_member_fails_only_what_it_held(loop: Loops, crew: Crew) -> None:
    members = crew.start("works", 3)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loop, members)
            async with Load(node, loop, idempotent=False) as load:
                await load.pass_by(300)
                await load.kill(members[0])
                await load.pass_by(600)
                await load.stop()
                assert 0 < len(load.errors) <= LANES
                for error in load.errors:
                    assert isinstance(error, iris.MemberLost)
                    assert error.member == members[0].id
                assert load.replies + len(load.errors) == len(load.asked)
                # What had not left when the link broke is given to another member: that one is the first to execute it.
                assert node.statistics().retries <= LANES

    loop.run(main())
    executed = Counter(crew.executed())
    assert max(executed.values()) == 1


def test_a_killed_member_is_out_of_every_view_in_time(loop: Loops, crew: Crew) -> None:
    members = crew.start("works", 4)

    async def main() -> None:
        async with iris.connect() as one, iris.connect() as two, iris.connect() as three:
            nodes = (one, two, three)
            while len(members) > 1:
                for node in nodes:
                    await find(node, loop, members)
                members.pop().send_signal(signal.SIGKILL)
                async with OwnTime() as own:
                    for node in nodes:
                        await find(node, loop, members)
                assert own.passed_s < OUT_OF_VIEWS_WITHIN_S

    loop.run(main())


def test_a_survey_ends_at_once_when_a_member_is_killed(loops: Loops, crew: Crew) -> None:
    members = crew.start("works", 3, loop=loops.name)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loops, members)
            answers = await node.survey("works", b"name", timeout=PATIENCE_S)
            assert {reply.payload.decode() for reply in answers} == {member.id for member in members}
            assert answers.is_complete
            survey = node.survey("works", b"work 3600000", timeout=3_600.0)
            asking = asyncio.ensure_future(survey)
            await loops.until(lambda: all(b"work 3600000" in member.executed() for member in members), "everybody works")
            for member in members:
                member.send_signal(signal.SIGKILL)
            answers = await asking
            assert {member.id for member in answers.missing} == {member.id for member in members}
            assert not answers

    loops.run(main())


def test_killing_a_member_breaks_its_tunnels_at_once(loops: Loops, crew: Crew) -> None:
    (member,) = crew.start("works", 1, loop=loops.name)

    async def main() -> None:
        async with iris.connect() as node:
            idle, busy = await node.tunnel("works"), await node.tunnel("works")
            receiving = asyncio.create_task(idle.receive())
            sending = asyncio.create_task(busy.send_chunks(endless()))
            await loops.until(lambda: busy._core.written > 500_000, "much was sent")
            member.send_signal(signal.SIGKILL)
            # No timer is involved: the connection breaks, and so do the tunnels.
            for result in await asyncio.gather(receiving, sending, return_exceptions=True):
                assert isinstance(result, iris.TunnelBroken)
                assert result.member == member.id
            with pytest.raises(iris.NoMembers):
                await node.tunnel("works")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(100_000)

    loops.run(main())


def test_a_large_message_passes_between_processes(loops: Loops, crew: Crew) -> None:
    (member,) = crew.start("works", 1, loop=loops.name)

    async def main() -> None:
        large = bytes(range(256)) * 60_000
        async with iris.connect() as node, node.tunnel("works") as tunnel:
            await tunnel.send(b"first")
            await tunnel.send(large)
            assert await tunnel.receive() == b"first"
            assert await tunnel.receive() == large

    loops.run(main())
    assert member.executed()[0] == b"tunnel first"
    member.leave()


@pytest.mark.xdist_group("machine")
@pytest.mark.timeout(5 * PATIENCE_S)
def test_ten_graceful_leaves_under_load_fail_nothing_and_repeat_nothing(loop: Loops, crew: Crew) -> None:
    members = crew.start("works", 3)

    async def main() -> list[bytes]:
        async with iris.connect() as node:
            await find(node, loop, members)
            async with Load(node, loop, idempotent=False) as load:
                fresh = crew.begin("works")
                for _ in range(10):
                    members.append(await asyncio.to_thread(fresh.wait_until_serving))
                    fresh = crew.begin("works")
                    await load.pass_by(50)
                    await asyncio.to_thread(members.pop(0).leave)
                await load.stop()
                assert load.errors == []
                return load.asked

    # Ten interpreters start one after the other: on a busy machine that alone takes half a minute.
    asked = loop.run(main(), patience_s=4 * PATIENCE_S)
    assert Counter(crew.executed()) == Counter(asked)


def test_a_stopped_member_is_out_within_seconds_and_comes_back(loop: Loops, crew: Crew) -> None:
    members = crew.start("works", 3)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loop, members)
            async with Load(node, loop, idempotent=True) as load:
                await load.pass_by(100)
                stopped_at = time.monotonic()
                members[1].send_signal(signal.SIGSTOP)
                async with OwnTime() as own:
                    await find(node, loop, [members[0], members[2]])
                took = time.monotonic() - stopped_at
                # It may have been silent for a while before, with a ping on its way.
                assert took >= KEEPALIVE_INTERVAL_S, "it was given up too early"
                assert own.passed_s < 3 * (KEEPALIVE_TIMEOUT_S + KEEPALIVE_INTERVAL_S)
                await load.pass_by(200)
                await loop.until(lambda: node.statistics().retries > 0)  # views may change before our own link gives up
                members[1].send_signal(signal.SIGCONT)
                await find(node, loop, members)
                await load.pass_by(200)
                await load.stop()
                assert load.errors == []

    try:
        loop.run(main())
    finally:
        members[1].send_signal(signal.SIGCONT)


def test_a_member_whose_event_loop_is_blocked_is_not_lost(loop: Loops, crew: Crew) -> None:
    members = crew.start("works", 1)

    async def main() -> None:
        async with iris.connect() as node:
            await find(node, loop, members)
            # Silent for long enough to be suspected, 0.6 s after a ping (its detector), and not for long enough to be dead,
            # 0.9 s later: the rest of that is for a machine that has other things to do.
            blocked = 0
            while blocked < 2:
                began = time.monotonic()
                try:
                    assert await node.request("works", b"block 0.8", timeout=30.0) == b"block 0.8"
                    assert [member.id for member in node.members("works")] == [members[0].id]
                except (AssertionError, iris.IrisError):
                    if time.monotonic() - began < LOST_S:
                        raise
                    await find(node, loop, members)  # it was silent for longer than it was meant to be
                else:
                    blocked += 1

    loop.run(main())


def test_processes_on_both_event_loops_serve_each_other(loops: Loops, crew: Crew) -> None:
    other = "asyncio" if loops.name == "uvloop" else "uvloop"
    (member,) = crew.start("works", 1, loop=other)

    async def main() -> None:
        async with iris.connect() as node:
            assert await node.request("works", b"name") == member.id.encode()
            large = b"x" * 5_000_000
            assert await node.request("works", large, timeout=30.0) == large
            (found,) = await node.members("works")
            assert (found.id, found.address) == (member.id, member.address)

    loops.run(main())
    member.leave()


def test_a_member_that_nobody_asked_leaves_at_once_and_nothing_of_it_stays(loop: Loops, crew: Crew) -> None:
    (member,) = crew.start("works", 1)
    started = time.monotonic()
    member.leave()
    assert time.monotonic() - started < DRAIN_TIMEOUT_S

    async def main() -> None:
        async with iris.connect() as node:
            assert len(node.nodes()) == 1
            with pytest.raises(iris.NoMembers) as caught:
                await node.request("works", b"?")
            assert caught.value.nodes == 0

    loop.run(main())
