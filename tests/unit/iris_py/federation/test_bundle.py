"""Whether a line works, from what was received: when it is probed, suspect, broken, and trusted again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_py.federation.bundle import (
    BROKEN_S,
    FORGIVEN_S,
    PROBE_BUSY_S,
    PROBE_IDLE_S,
    SUSPECT_ROUND_TRIPS,
    SUSPECT_S,
    TRUST_S_MAX,
    TRUST_S_MIN,
    CloudLinkHealth,
)


def run(health: CloudLinkHealth, now: float, until: float, *, is_busy: bool = False) -> list[tuple[float, str]]:
    """Check a line that says nothing whenever that is due; returns what came of it, by time."""
    found: list[tuple[float, str]] = []
    while (now := health.deadline(now, is_busy=is_busy)) <= until:
        was_suspect = health.is_suspect
        asks, is_broken = health.check(now, is_busy=is_busy)
        if health.is_suspect and not was_suspect:
            found.append((now, "suspect"))
        if is_broken:
            found.append((now, "broken"))
            break
        if asks:
            health.probe(now)
            found.append((now, "probe"))
    return found


@pytest.mark.parametrize(
    ("is_busy", "round_trip_s", "expected"),
    [
        (False, None, [(5, "probe"), (6, "probe"), (7, "probe"), (8, "suspect"), (8, "probe"), (9, "probe")]),
        (True, None, [(1, "probe"), (2, "probe"), (3, "probe"), (4, "suspect"), (4, "probe"), (5, "probe")]),
        (True, 0.5, [(1, "probe"), (2, "probe"), (3, "probe"), (4, "suspect"), (4, "probe"), (5, "probe")]),
        (True, 0.75, [(1, "probe"), (2, "probe"), (3, "probe"), (4, "probe"), (5, "probe"), (5.5, "suspect")]),
    ],
)
def test_a_silent_line(is_busy: bool, round_trip_s: float | None, expected: list[tuple[float, str]]) -> None:
    health = CloudLinkHealth(0.0)
    health.round_trip_s = round_trip_s
    found = run(health, 0.0, 60.0, is_busy=is_busy)
    assert found[: len(expected)] == expected
    assert found[-1] == (found[0][0] + BROKEN_S, "broken")


def test_something_outstanding_counts_from_when_it_was_sent() -> None:
    health = CloudLinkHealth(0.0)
    health.expect(0.5)
    health.expect(0.9)
    found = run(health, 0.9, 60.0, is_busy=True)
    assert (0.5 + SUSPECT_S, "suspect") in found
    assert found[-1] == (0.5 + BROKEN_S, "broken")


def test_a_line_whose_last_channel_has_ended_is_probed_before_it_is_suspect() -> None:
    health = CloudLinkHealth(0.0)
    health.expect(0.5)  # by data of the channel, to which nothing on connection 0 answers
    assert health.deadline(0.6, is_busy=False) == PROBE_BUSY_S
    assert health.check(PROBE_BUSY_S, is_busy=False) == (True, False)
    health.probe(PROBE_BUSY_S)
    health.heard(PROBE_BUSY_S + 0.1)
    assert health.deadline(2.0, is_busy=False) >= PROBE_BUSY_S + 0.1 + PROBE_BUSY_S
    assert not health.is_suspect


def test_a_very_slow_line_is_broken_and_not_suspect_for_ever() -> None:
    health = CloudLinkHealth(0.0)
    health.round_trip_s = 100.0
    assert run(health, 0.0, 60.0, is_busy=True)[-1] == (1.0 + BROKEN_S, "broken")
    assert SUSPECT_ROUND_TRIPS * 100.0 > BROKEN_S


def test_what_is_heard_takes_back_everything() -> None:
    health = CloudLinkHealth(0.0)
    health.expect(0.0)
    health.heard(2.9)
    assert health.check(3.5, is_busy=True) == (False, False)
    assert not health.is_suspect
    assert health.deadline(3.5, is_busy=True) == 2.9 + PROBE_BUSY_S
    assert health.deadline(3.5, is_busy=False) == 2.9 + PROBE_IDLE_S


def test_trust_comes_back_later_each_time_and_at_once_after_long() -> None:
    health, now = CloudLinkHealth(0.0), 0.0
    waits = []
    for _ in range(6):
        health.expect(now)
        health.check(now + SUSPECT_S, is_busy=True)
        assert health.is_suspect
        assert not health.is_sound(now + SUSPECT_S)
        now += SUSPECT_S
        health.heard(now)
        assert not health.is_sound(now)
        trusted_at = health.deadline(now, is_busy=False)
        waits.append(trusted_at - now)
        assert health.is_sound(trusted_at)
        now = trusted_at
    assert waits == pytest.approx([min(TRUST_S_MAX, TRUST_S_MIN * 2**n) for n in range(6)])
    health.heard(now + FORGIVEN_S)
    health.expect(now + FORGIVEN_S)
    health.check(now + FORGIVEN_S + SUSPECT_S, is_busy=True)
    now += FORGIVEN_S + SUSPECT_S
    health.heard(now)
    assert health.is_sound(now + TRUST_S_MIN)


def test_round_trips_are_smoothed_and_only_of_the_last_probe() -> None:
    health = CloudLinkHealth(0.0)
    first = health.probe(1.0)
    health.handle_echo(first, 1.1)
    assert health.round_trip_s == pytest.approx(0.1)
    health.handle_echo(first, 1.9)
    second, third = health.probe(2.0), health.probe(3.0)
    health.handle_echo(second, 3.05)
    assert health.round_trip_s == pytest.approx(0.1)
    health.handle_echo(third, 3.9)
    assert health.round_trip_s == pytest.approx(0.1 + 0.8 / 8)


def test_standing_still_says_nothing_of_the_other_side() -> None:
    health = CloudLinkHealth(0.0)
    number = health.probe(0.0)
    health.resume(60.0)
    assert health.check(60.0, is_busy=True) == (True, False)
    assert not health.is_suspect
    health.handle_echo(number, 60.0)
    assert health.round_trip_s is None, "it measured the standstill"


class Line(RuleBasedStateMachine):
    """A line on which anything happens, looked after whenever that is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.health = CloudLinkHealth(0.0)
        self.is_busy = False
        self.is_broken = False
        self.heard_at = 0.0
        self.probes: list[int] = []
        self.asked_at: float | None = None  # the first time after it was heard
        self.resumed_at = -1.0

    @rule(seconds=st.floats(0.0, 4.0))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        steps = 0
        while not self.is_broken and (due := self.health.deadline(self.now, is_busy=self.is_busy)) <= end:
            steps += 1
            assert steps < 100, "it is due for ever"
            self.now = max(self.now, due)
            asks, self.is_broken = self.health.check(self.now, is_busy=self.is_busy)
            if asks:
                self.probes.append(self.health.probe(self.now))
                self.asked_at = self.now if self.asked_at is None else self.asked_at
        self.now = max(self.now, end)

    @precondition(lambda self: not self.is_broken)
    @rule()
    def hear(self) -> None:
        self.health.heard(self.now)
        self.heard_at, self.asked_at = self.now, None

    @precondition(lambda self: not self.is_broken and self.probes)
    @rule(data=st.data())
    def echo(self, data: st.DataObject) -> None:
        self.hear()
        self.health.handle_echo(data.draw(st.sampled_from(self.probes)), self.now)

    @precondition(lambda self: not self.is_broken)
    @rule(is_busy=st.booleans())
    def ask(self, is_busy: bool) -> None:
        self.is_busy = is_busy
        if is_busy:
            self.health.expect(self.now)
            self.asked_at = self.now if self.asked_at is None else self.asked_at

    @precondition(lambda self: not self.is_broken)
    @rule(seconds=st.floats(0.0, 100.0))
    def stand_still(self, seconds: float) -> None:
        self.now += seconds
        self.resumed_at = self.now
        self.health.resume(self.now)
        if self.asked_at is not None:
            self.asked_at = self.now

    @invariant()
    def never_suspect_while_heard(self) -> None:
        if self.health.is_suspect or self.is_broken:
            assert self.now - max(self.heard_at, self.resumed_at) >= SUSPECT_S - 1e-9 or self.asked_at is not None
            assert self.asked_at is not None
            assert self.now - self.asked_at >= SUSPECT_S - 1e-9 or self.resumed_at == self.asked_at

    @invariant()
    def suspect_and_broken_in_time(self) -> None:
        if self.asked_at is not None and not self.is_broken:
            trips = SUSPECT_ROUND_TRIPS * (self.health.round_trip_s or 0.0)
            if self.now - self.asked_at > max(SUSPECT_S, trips) + 1e-9 and self.now != self.resumed_at:
                assert self.health.is_suspect
            assert self.now - self.asked_at < BROKEN_S + 1e-9

    @invariant()
    def a_silent_line_is_asked(self) -> None:
        if not self.is_broken:
            assert self.health.deadline(self.now, is_busy=self.is_busy) <= max(self.now, self.heard_at) + PROBE_IDLE_S + 1e-9

    @invariant()
    def what_is_suspect_gets_nothing(self) -> None:
        if self.health.is_suspect:
            assert not self.health.is_sound(self.now)


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
