"""Values of :class:`iris_py.Retry`: each is checked, and says which there are."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from iris_py.errors import ConfigurationError
from iris_py.patterns.request.retry import Retry
from iris_py.peers.hedging import DELAY_S_MIN, TIMEOUT_SHARE_MAX, UNMEASURED_S_MAX, Hedging


def test_the_defaults_are_what_idempotent_does() -> None:
    retry = Retry()
    assert dataclasses.asdict(retry) == {
        "attempts": None,
        "attempt_timeout": None,
        "hedge_after": "auto",
        "on": ("lost", "no_members"),
        "backoff_initial": 0.1,
        "backoff_factor": 2.0,
        "backoff_max": 10.0,
        "backoff_jitter": 1.0,
        "members_lost_max": 2,
    }
    assert retry.delay_s(Hedging(), 10.0) == Hedging().delay_s(10.0) == UNMEASURED_S_MAX
    with pytest.raises(dataclasses.FrozenInstanceError):
        retry.attempts = 3  # type: ignore[misc] # that is the point


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"attempts": 0}, "at least 1, or None"),
        ({"attempts": 1.5}, "at least 1, or None"),
        ({"attempts": True}, "at least 1, or None"),
        ({"attempt_timeout": 0}, "positive and finite number of seconds, or None"),
        ({"attempt_timeout": math.inf}, "positive and finite"),
        ({"attempt_timeout": "1"}, "positive and finite"),
        ({"hedge_after": "p100"}, "one of auto, p50, p75, p90, p95, p99, a positive"),
        ({"hedge_after": -1}, "one of auto"),
        ({"hedge_after": math.nan}, "one of auto"),
        ({"hedge_after": []}, "one of auto"),
        ({"members_lost_max": 0}, "members_lost_max=0 must be a whole number of at least 1, or None"),
        ({"members_lost_max": 2.0}, "at least 1, or None"),
        ({"members_lost_max": True}, "at least 1, or None"),
        ({"backoff_initial": -1}, "backoff_initial=-1 must be a finite number of seconds, at least 0"),
        ({"backoff_initial": None}, "at least 0"),
        ({"backoff_initial": math.inf}, "at least 0"),
        ({"backoff_max": math.nan}, "backoff_max=nan"),
        ({"backoff_max": "1"}, "at least 0"),
        ({"backoff_factor": 0.5}, "backoff_factor=0.5 must be a finite number, at least 1"),
        ({"backoff_factor": math.inf}, "at least 1"),
        ({"backoff_factor": True}, "at least 1"),
        ({"backoff_jitter": 1.1}, "backoff_jitter=1.1 must be a number from 0 to 1"),
        ({"backoff_jitter": math.nan}, "from 0 to 1"),
        ({"backoff_jitter": True}, "from 0 to 1"),
        ({"on": "lots"}, "some of lost, failed, no_members"),
        ({"on": ("lost", 3)}, "some of lost"),
        ({"on": None}, "some of lost"),
        ({"on": 7}, "some of lost"),
    ],
)
def test_a_wrong_value_is_refused_with_what_may_be(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Retry(**values)


def test_reasons_are_the_same_however_they_are_given() -> None:
    assert Retry(on=("failed", "lost", "failed")).on == ("lost", "failed")
    given: list[Any] = ["lost", {"failed", "lost"}, ["failed", "lost"]]
    assert [Retry(on=on).on for on in given] == [("lost",), ("lost", "failed"), ("lost", "failed")]
    assert hash(Retry(on=given[2])) == hash(Retry(on=("lost", "failed")))


def test_a_share_of_the_answers_is_followed() -> None:
    hedging = Hedging()
    retry = Retry(hedge_after="p50")
    assert retry.delay_s(hedging, 10.0) == UNMEASURED_S_MAX, "nothing is known yet"
    for number in range(2_000):
        hedging.observe(0.1 + 0.1 * (number * 7 % 10))  # from 0.1 to 1.0
    assert retry.delay_s(hedging, 10.0) == pytest.approx(0.5, rel=0.3)
    assert Retry(hedge_after="p99").delay_s(hedging, 10.0) == hedging.delay_s(10.0), "it is learnt from now on"
    assert retry.delay_s(hedging, 0.4) == pytest.approx(0.4 * TIMEOUT_SHARE_MAX)
    for _ in range(500):
        hedging.observe(0.0001)
    assert retry.delay_s(hedging, 10.0) == DELAY_S_MIN


def test_seconds_are_as_they_are_and_never_is_never() -> None:
    assert Retry(hedge_after=0.001).delay_s(Hedging(), 10.0) == 0.001
    assert Retry(hedge_after=None).delay_s(Hedging(), 10.0) == math.inf
