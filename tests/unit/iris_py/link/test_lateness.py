"""Tests of iris_py/link/keepalive.py: nothing is ever thought younger than it is, nor much older for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.link.keepalive import BELIEVED_S, LATE_S, TELL_S, Lateness

DELAYS = st.floats(0.0, 10.0)


class Line:
    """Both ends of a link, on clocks that differ, and a line that takes its time."""

    def __init__(self, offset: float, handshake_s: float) -> None:
        self.offset = offset
        self.now = 1000.0
        self.sender, self.receiver = Lateness(), Lateness()
        self.receiver.expect(self.now)
        self.now += handshake_s
        self.sender.begin(self.now + offset)

    def say(self) -> bytes:
        return self.sender.tell(self.now + self.offset)

    def ask(self, there_s: float, back_s: float) -> None:
        self.receiver.asked(self.now)
        self.now += there_s
        answer = self.sender.read(self.now + self.offset)
        self.now += back_s
        self.receiver.answered(answer)


@given(st.floats(-1e6, 1e6), DELAYS, st.lists(st.tuples(DELAYS, DELAYS), max_size=4), DELAYS, DELAYS)
def test_what_was_held_up_is_always_noticed(
    offset: float, handshake_s: float, questions: list[tuple[float, float]], quiet_s: float, held_s: float
) -> None:
    line = Line(offset, handshake_s)
    for there_s, back_s in questions:
        line.ask(there_s, back_s)
    line.now += quiet_s
    clock = line.say()
    line.now += held_s
    line.receiver.heard(clock)
    if held_s > LATE_S + 0.002:  # clocks are said in milliseconds
        assert line.receiver.late_s(line.now) >= held_s - 0.002


def test_what_comes_in_time_is_not_late() -> None:
    line = Line(5.0, 0.1)
    for _ in range(100):
        clock = line.say()
        line.now += 0.2
        line.receiver.heard(clock)
        assert not line.receiver.late_s(line.now)
        line.now += TELL_S
        assert not line.receiver.late_s(line.now)
        line.now += 2.0


def test_a_slow_handshake_does_harm_until_the_first_answer() -> None:
    line = Line(5.0, 3.0)
    line.receiver.heard(line.say())
    assert line.receiver.late_s(line.now) == pytest.approx(3.0, abs=0.01)
    line.ask(0.05, 2.0)
    line.receiver.heard(line.say())
    assert not line.receiver.late_s(line.now)


def test_who_says_no_clock_is_never_late() -> None:
    line = Line(0.0, 0.0)
    line.ask(0.0, 0.0)
    assert not line.receiver.late_s(1e12)


def test_what_is_known_of_the_clock_is_renewed() -> None:
    line = Line(0.0, 0.1)
    line.now += BELIEVED_S
    line.receiver.heard(line.say())
    assert line.receiver.late_s(line.now)
    line.ask(0.1, 0.1)
    line.receiver.heard(line.say())
    assert not line.receiver.late_s(line.now)


@pytest.mark.parametrize("quicker", [-1e-3, 1e-3])
def test_clocks_that_run_differently_are_wrong_by_little(quicker: float) -> None:
    """An hour of questions as often as they are due, at 1,000 parts in a million."""
    receiver = Lateness()
    now, begun = 1000.0, 1000.0
    receiver.expect(now)
    sender = Lateness()
    sender.begin(begun)
    while now < 4600.0:
        theirs = begun + (now - begun) * (1 + quicker)
        held_s = LATE_S + BELIEVED_S * 1e-3 + 0.002
        receiver.heard(sender.tell(theirs))
        assert receiver.late_s(now + held_s)
        if receiver.late_s(now):
            receiver.asked(now)
            receiver.answered(sender.read(theirs))
            assert not receiver.late_s(now)
        now += 30.0
