"""Exclusive requests: which one ends its member is known, and it ends few, however many ask for the same at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.connector import Asker
from iris_py.patterns.request import place
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

BAD = 1
MEMBERS = 6


@dataclass(eq=False)
class Row:
    """A row of a task: it has the same key in every copy of the task."""

    number: int

    @property
    def key(self) -> str:
        return f"row {self.number}"

    @property
    def payload(self) -> bytes:
        return b"%d" % self.number


class Mortal(iris.Handler):
    """Ends its node at one row, some time after it began with it."""

    def __init__(self, simulation: NodeSimulation, node: iris.Node, work_s: float) -> None:
        self.simulation = simulation
        self.node = node
        self.work_s = work_s
        self.running = 0
        self.most = 0
        self.asked: list[int] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        self.asked.append(int(request.payload))
        await asyncio.sleep(self.work_s)
        if int(request.payload) == BAD:
            self.simulation.kill(self.node)
            await asyncio.Event().wait()
        self.running -= 1
        return request.payload


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with NodeSimulation(seed) as simulation:
            await scenario(simulation)

    run(main(), limit_s=600)


async def start(simulation: NodeSimulation, callers: int, work_s: float) -> tuple[list[iris.Node], list[Mortal]]:
    """Start callers that see all members; returns both."""
    asking = await simulation.start_nodes(callers)
    members = []
    for node in await simulation.start_nodes(MEMBERS):
        members.append(Mortal(simulation, node, work_s))
        await node.join("work", members[-1])
    for caller in asking:
        await caller.members("work")
        await simulation.until(lambda caller=caller: len(caller.members("work")) == MEMBERS)  # type: ignore[misc]
    return asking, members


async def ask(caller: iris.Node, rows: Sequence[int], *, is_exclusive: bool = True) -> dict[int, bytes | iris.IrisError]:
    """Ask about rows, each of which may lose one member; returns what became of them."""
    found: dict[int, bytes | iris.IrisError] = {}
    is_done = asyncio.Event()

    def take(outcomes: list[tuple[Row, bytes | iris.IrisError]]) -> None:
        found.update({row.number: outcome for row, outcome in outcomes})
        if len(found) == len(rows):
            is_done.set()

    retry = iris.Retry(members_lost_max=1)
    asker: Asker[Row] = Asker(caller, "work", 300.0, take, retry=retry, is_exclusive=is_exclusive)
    asker.ask([Row(number) for number in rows])
    await is_done.wait()
    return found


def check(found: dict[int, bytes | iris.IrisError], rows: int) -> None:
    error = found.pop(BAD)
    assert isinstance(error, iris.TooManyMembersLost)
    assert len(error.members) == 1
    assert all(reply == b"%d" % number for number, reply in found.items())
    assert len(found) in (0, rows - 1)


@pytest.mark.parametrize(("rows", "behind_s", "work_s"), [(3, 0.0, 3.0), (3, 1.0, 3.0), (24, 0.0, 0.001)])
def test_two_callers_lose_one_member_together(rows: int, behind_s: float, work_s: float) -> None:
    """As two copies of a task do that are at the same rows, or one behind the other."""

    async def scenario(simulation: NodeSimulation) -> None:
        (first, second), members = await start(simulation, 2, work_s)

        async def follow() -> dict[int, bytes | iris.IrisError]:
            await asyncio.sleep(behind_s)
            return await ask(second, range(rows))

        for found in await asyncio.gather(ask(first, range(rows)), follow()):
            check(found, rows)
        await simulation.until(lambda: len(first.members("work")) == MEMBERS - 1)
        await asyncio.sleep(10.0)
        assert len(first.members("work")) == MEMBERS - 1
        asked = [row for member in members for row in member.asked]
        assert asked.count(BAD) == 1
        assert max(member.most for member in members) == 1, "a member executes one at a time"

    simulate(scenario)


@pytest.mark.parametrize("steps", first_cases(1, [[2, 5, 8], [3, 4, 6, 7, 9]]), ids=str)
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_who_asks_right_after_a_death_waits_until_others_can_tell_what_it_was(is_exclusive: bool, steps: list[int]) -> None:
    """The other caller has not lost the member with the request, and asks before it can have heard who has."""

    async def scenario(simulation: NodeSimulation) -> None:
        (first, second), members = await start(simulation, 2, 0.0)

        async def follow() -> dict[int, bytes | iris.IrisError]:
            await asyncio.sleep(behind_s)
            return await ask(second, [BAD], is_exclusive=is_exclusive)

        for found in await asyncio.gather(ask(first, [BAD], is_exclusive=is_exclusive), follow()):
            check(found, 1 + BAD)
        asked = [row for member in members for row in member.asked]
        assert asked.count(BAD) == 1, f"{behind_s} s behind"

    for step in steps:
        behind_s = step * 0.0005
        simulate(scenario, 1 + step)


def reserve(liar: iris.Node, member: iris.Node, keys: Sequence[bytes], time_left_ms: int) -> None:
    """Ask a member for its place as no honest node does: the liar never asks the requests, and gives nothing back."""
    core, now = liar._core, liar._runtime.loop.time()
    peer, group = core.peers.find(member._core.info.id), core.groups.find("work")
    assert peer is not None
    assert peer.link is not None
    assert group is not None
    for number, key in enumerate(keys):
        identity = key.rjust(packets.IDENTITY_BYTES)
        core._outbound.gather(PeerMessage(group, peer, packets.RESERVE, 1_000_000 + number, time_left_ms, identity), now)
    core._outbound.touch(peer.link, now)
    liar._runtime.wake()


@pytest.mark.parametrize(
    ("keys", "time_left_ms", "waits_s"),
    [
        (1, 20_000, 20.0),
        (1, packets.TIME_LEFT_MS_MAX, 60.0),
        (place.CALLERS_MAX + 100, packets.TIME_LEFT_MS_MAX, 60.0),
    ],
)
def test_a_caller_that_keeps_the_place_keeps_it_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, keys: int, time_left_ms: int, waits_s: float
) -> None:
    """It is linked, so nothing else ends its place, and no further caller asks: only the clock of the member does."""
    monkeypatch.setattr(place, "HELD_S_MAX", 60.0)

    async def scenario(simulation: NodeSimulation) -> None:
        liar, caller, member = await simulation.start_nodes(3)
        await member.join("work", Mortal(simulation, member, 0.0))
        for each in (liar, caller):
            await each.members("work")
            await simulation.until(lambda each=each: each.members("work"))  # type: ignore[misc]
            assert await each.request("work", b"2") == b"2"  # it has a link now
        waiting = member._core.service._place
        began_at = asyncio.get_running_loop().time()
        reserve(liar, member, [b"%d" % number for number in range(keys)], time_left_ms)
        await simulation.until(lambda: waiting._having and len(waiting._deadlines) == min(keys, place.CALLERS_MAX))
        assert await ask(caller, [3]) == {3: b"3"}
        # Not at the next timer of something else: the round trips take milliseconds.
        assert waits_s <= asyncio.get_running_loop().time() - began_at <= waits_s + 0.02

    simulate(scenario)
