"""Tests of iris_overlay/detector/suspicion.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.detector.suspicion import probe_timeout_s, smooth_rtt, suspicion_s


def test_round_trips_are_smoothed_as_in_rfc_6298() -> None:
    assert smooth_rtt(None, 0.0, 0.1) == (0.1, 0.05)
    assert smooth_rtt(0.1, 0.05, 0.18) == pytest.approx((0.11, 0.0575))


@given(st.none() | st.floats(0, 10), st.floats(0, 10))
def test_probe_timeouts_stay_within_bounds(mean_s: float | None, deviation_s: float) -> None:
    assert 0.2 <= probe_timeout_s(mean_s, deviation_s, 0.2, 0.5) <= 0.5


def test_probe_timeouts_adapt() -> None:
    assert probe_timeout_s(None, 0.0, 0.2, 0.5) == 0.5
    assert probe_timeout_s(0.01, 0.01, 0.2, 0.5) == 0.2
    assert probe_timeout_s(0.2, 0.02, 0.2, 0.5) == pytest.approx(0.28)


@given(st.floats(0.1, 10), st.floats(0, 1), st.integers(0, 10), st.integers(0, 10))
def test_confirmations_shorten_a_suspicion_down_to_the_minimum(longest: float, share: float, count: int, wanted: int) -> None:
    shortest = longest * share
    now, then = (suspicion_s(longest, shortest, n, wanted) for n in (count, count + 1))
    assert shortest <= then <= now <= longest
    if 0 < wanted <= count:
        assert now == pytest.approx(shortest)
