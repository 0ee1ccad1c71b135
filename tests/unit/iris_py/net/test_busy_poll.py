"""Looking for what is about to come, such as the reply to a lone request."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_py.net.busy_poll import BUSY_POLL_S, SKIPPED_MAX, BusyPoll, is_useful

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: How many turns of the loop fit into the time.
TURNS = 8


class Loop:
    """An event loop that turns when it is told to."""

    def __init__(self) -> None:
        self.time = 0.0
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, function: Callable[[], None]) -> None:
        self._soon.append(function)

    def turn(self) -> int:
        """Run what was to run soon; returns how much that was."""
        self.time += BUSY_POLL_S / TURNS
        soon, self._soon = self._soon, []
        for function in soon:
            function()
        return len(soon)

    def turns_until_it_sleeps(self) -> int:
        """Turn until nothing is to run soon; returns how often that was."""
        for turns in range(10 * TURNS):
            if not self.turn():
                return turns
        pytest.fail("it never sleeps")


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def poll(loop: Loop) -> BusyPoll:
    return BusyPoll(cast("Any", loop), BUSY_POLL_S, lambda: loop.time)


class Reply:
    """As much of a future as is needed."""

    def __init__(self) -> None:
        self.has_come = False

    def done(self) -> bool:
        return self.has_come

    def look(self, poll: BusyPoll) -> Reply:
        poll.look_for(cast("asyncio.Future[bytes]", self))
        return self


def test_the_loop_turns_until_the_reply_is_there(loop: Loop, poll: BusyPoll) -> None:
    reply = Reply().look(poll)
    assert loop.turn() == loop.turn() == 1
    reply.has_come = True
    assert loop.turns_until_it_sleeps() == 1


def test_it_turns_for_a_moment_only(loop: Loop, poll: BusyPoll) -> None:
    Reply().look(poll)
    assert loop.turns_until_it_sleeps() == TURNS


def test_the_more_replies_are_late_the_fewer_are_looked_for(loop: Loop, poll: BusyPoll) -> None:
    looked_for = []
    for number in range(300):
        Reply().look(poll)
        if loop.turns_until_it_sleeps():
            looked_for.append(number)
    skipped = [after - before - 1 for before, after in pairwise(looked_for)]
    assert skipped == [1, 2, 4, 8, 16, 32, SKIPPED_MAX, SKIPPED_MAX, SKIPPED_MAX]


def test_a_reply_in_time_makes_up_for_all_that_were_late(loop: Loop, poll: BusyPoll) -> None:
    for _ in range(100):
        Reply().look(poll)
        loop.turns_until_it_sleeps()
    looked = 0
    while not looked:
        reply = Reply().look(poll)
        reply.has_come = True
        looked = loop.turns_until_it_sleeps()
    Reply().look(poll)
    assert loop.turns_until_it_sleeps() == TURNS


def test_the_next_request_may_come_before_the_end_of_the_last_was_noticed(loop: Loop, poll: BusyPoll) -> None:
    first = Reply().look(poll)
    loop.turn()
    first.has_come = True
    Reply().look(poll)
    assert loop.turns_until_it_sleeps() == TURNS
    assert not loop.turn()


@pytest.mark.parametrize(("processors", "is_useful_there"), [(1, False), (2, True), (None, False)])
def test_it_is_useful_where_there_is_another_processor(
    monkeypatch: pytest.MonkeyPatch, processors: int | None, is_useful_there: bool
) -> None:
    if processors is not None:
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(processors)))
        assert is_useful() is is_useful_there
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    assert is_useful() is is_useful_there
