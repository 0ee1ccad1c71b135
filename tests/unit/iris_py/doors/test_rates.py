"""Rates of clients: a burst, then a constant rate, for each subject by itself."""

from __future__ import annotations

import pytest

from iris_py.doors import limits
from iris_py.doors.limits import RateLimits


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    limits = RateLimits(10.0, 5)
    assert [limits.take("ann", 0.0) for _ in range(5)] == [0.0] * 5
    assert limits.take("ann", 0.0) == pytest.approx(0.1)
    assert limits.take("bob", 0.0) == 0.0
    assert limits.take("ann", 0.1) == 0.0
    assert limits.take("ann", 0.1) > 0.0
    assert [limits.take("ann", 100.0) for _ in range(5)] == [0.0] * 5
    assert limits.take("ann", 100.0) > 0.0


def test_room_is_told_and_not_taken() -> None:
    rates = RateLimits(10.0, 2)
    assert rates.has_room("ann", 0.0)
    assert rates.take("ann", 0.0, 2) == 0.0
    assert not rates.has_room("ann", 0.09)
    assert rates.has_room("ann", 0.1)
    assert rates.has_room("bob", 0.0)


def test_many_at_once_count_and_more_than_a_burst_count_as_a_burst() -> None:
    limits = RateLimits(10.0, 5)
    assert limits.take("ann", 0.0, 1000) == 0.0
    assert limits.take("ann", 0.0) == pytest.approx(0.1)
    assert limits.take("ann", 0.2, 3) == pytest.approx(0.1)


def test_other_rates_hold_for_known_clients() -> None:
    rates = RateLimits(10, 5)
    assert rates.take("ann", 0.0, 4) == 0.0
    rates.apply(2, 3)
    assert rates.take("ann", 0.0) == 0.0
    assert rates.take("ann", 0.0) == 0.5
    assert rates.take("bob", 0.0, 3) == 0.0
    assert rates.take("bob", 0.0) == 0.5


def test_the_longest_unused_subject_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUBJECTS_MAX", 2)
    rates = RateLimits(1.0, 1)
    for subject in ("ann", "bob", "eve"):
        assert rates.take(subject, 0.0) == 0.0
    assert rates.take("eve", 0.0) > 0.0
    assert rates.take("ann", 0.0) == 0.0
