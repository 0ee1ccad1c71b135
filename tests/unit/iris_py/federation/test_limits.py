"""Limits: waits that callers are told, lots larger than a bucket, and new limits while requests are under way."""

from __future__ import annotations

import pytest

from iris_py.federation.limits import PLACE_WAIT_S, WAIT_S_MAX, ByteLimits, RuleLimits, TokenBucket
from iris_py.federation.rules import ExportRule


def export(**values: int | None) -> ExportRule:
    return ExportRule(0, "cluster", "a", "a", ("eu",), **values)  # type: ignore[arg-type]


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10, now=5.0)
    assert [bucket.take(1, 5.0) for _ in range(11)] == [0.0] * 10 + [pytest.approx(0.1)]
    assert bucket.take(1, 5.05) == pytest.approx(0.05)
    assert bucket.take(1, 5.1) == 0.0
    assert [bucket.take(1, 100.0) for _ in range(11)][-1] == pytest.approx(0.1), "it holds one second's worth and no more"


def test_a_lot_larger_than_the_bucket_passes_and_is_paid_off() -> None:
    bucket = TokenBucket(1000)
    assert bucket.take(5000, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(4.001)
    assert bucket.take(1, 4.01) == 0.0


def test_a_slow_rate_gives_single_tokens() -> None:
    bucket = TokenBucket(0.5)
    assert bucket.take(1, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(2.0)
    assert bucket.take(1, 2.0) == 0.0


def test_of_nothing_nothing_is_given() -> None:
    bucket = TokenBucket(0)
    assert bucket.take(1, 0.0) == bucket.take(0, 1e9) == WAIT_S_MAX
    bucket.charge(5, 0.0)
    bucket.set_rate(10, 1.0)
    assert bucket.take(10, 1.0) == 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, now=100.0)
    assert bucket.take(10, 100.0) == 0.0
    assert bucket.take(1, 50.0) == pytest.approx(0.1)
    assert bucket.take(1, 100.1) == 0.0


def test_a_new_rate_gives_no_second_burst() -> None:
    bucket = TokenBucket(10)
    assert bucket.take(10, 0.0) == 0.0
    bucket.set_rate(100, 0.0)
    assert bucket.take(91, 0.0) == pytest.approx(0.01)
    assert bucket.take(90, 0.0) == 0.0


def test_requests_over_each_limit_are_told_when_to_come_back() -> None:
    assert RuleLimits(requests_per_s=1).begin_request(10**9, 0.0) is None
    by_rate = RuleLimits(requests_per_s=2)
    assert [by_rate.begin_request(0, 0.0) for _ in range(3)] == [None, None, pytest.approx(0.5)]
    by_places = RuleLimits(in_flight=1)
    assert [by_places.begin_request(0, 0.0) for _ in range(2)] == [None, PLACE_WAIT_S]
    by_places.end_request()
    assert by_places.begin_request(0, 0.0) is None
    by_bytes = RuleLimits(bytes_per_s=100)
    assert [by_bytes.begin_request(60, 0.0) for _ in range(2)] == [None, pytest.approx(0.2)]
    line = ByteLimits(100)
    first, second = RuleLimits(line=line), RuleLimits(line=line)
    assert first.begin_request(60, 0.0) is None
    assert second.begin_request(60, 0.0) == pytest.approx(0.2), "rules of a neighbour share its line"


def test_what_is_refused_by_one_limit_counts_for_none() -> None:
    limits = RuleLimits(requests_per_s=10, bytes_per_s=100, line=ByteLimits(1000))
    assert limits.begin_request(100, 0.0) is None
    for _ in range(20):
        assert limits.begin_request(100, 0.0) is not None
    assert limits.begin_request(100, 1.0) is None
    assert limits.in_flight == 2


def test_replies_are_paid_off_before_the_next_request() -> None:
    limits = RuleLimits(bytes_per_s=100)
    assert limits.begin_request(0, 0.0) is None
    limits.end_request(300, 0.0)
    assert limits.begin_request(0, 0.0) == pytest.approx(2.0)
    assert limits.begin_request(0, 2.01) is None


def test_a_line_has_its_rate_in_each_direction_whoever_asks() -> None:
    line = ByteLimits(100)
    ours, theirs = RuleLimits(line=line), RuleLimits(line=line, is_import=True)
    assert ours.begin_request(100, 0.0) is None  # it came in
    assert theirs.begin_request(100, 0.0) is None, "and this one goes out"
    assert theirs.begin_request(1, 0.0) == pytest.approx(0.01)
    theirs.end_request(100, 0.0)
    assert ours.begin_request(0, 0.99) == pytest.approx(0.01), "its reply came in, too"
    assert ours.begin_request(0, 1.01) is None
    ours.end_request(100, 1.01)
    assert theirs.pass_bytes(50, 1.01, is_out=True) == pytest.approx(0.5), "and this reply went out"


def test_nothing_passes_a_line_of_no_bytes() -> None:
    limits = RuleLimits(line=ByteLimits(0))
    assert limits.begin_request(0, 0.0) == WAIT_S_MAX
    assert limits.pass_bytes(1, 0.0, is_out=True) == WAIT_S_MAX


def test_each_direction_of_a_duplex_has_the_rate() -> None:
    limits = RuleLimits(bytes_per_s=100)
    assert limits.pass_bytes(100, 0.0, is_out=True) == 0.0
    assert limits.pass_bytes(100, 0.0, is_out=False) == 0.0
    assert limits.pass_bytes(50, 0.0, is_out=True) == pytest.approx(0.5)


def test_surveys_count_as_requests_for_the_rate_alone() -> None:
    limits = RuleLimits(requests_per_s=1, in_flight=1)
    assert limits.begin_use(0.0) is None
    assert limits.begin_use(0.0) == pytest.approx(1.0)
    assert limits.in_flight == 0
    assert RuleLimits().begin_use(0.0) is None


def test_tunnels_and_subscriptions_have_places() -> None:
    limits = RuleLimits(tunnels=1, subscriptions=3)
    assert [limits.open_tunnel(), limits.open_tunnel()] == [True, False]
    limits.close_tunnel()
    assert limits.open_tunnel()
    assert [limits.add_subscriptions(2), limits.add_subscriptions(2), limits.add_subscriptions(1)] == [True, False, True]
    limits.remove_subscriptions(3)
    assert limits.subscriptions == 0


def test_limits_of_an_export_and_new_ones_after_a_reload() -> None:
    limits = RuleLimits.of_export(export(requests_per_s=1, in_flight=1, bytes_per_s=10, tunnels=1, subscriptions=1), 0.0)
    assert limits.begin_request(10, 0.0) is None
    assert limits.open_tunnel()
    assert limits.add_subscriptions(1)
    limits.change(export(in_flight=2, tunnels=2, subscriptions=2), 0.0)
    assert limits.in_flight == 1, "what is under way stays counted"
    assert limits.begin_request(10**6, 0.0) is None
    assert limits.begin_request(0, 0.0) == PLACE_WAIT_S
    assert limits.open_tunnel()
    assert not limits.open_tunnel()
    assert limits.add_subscriptions(1)
    assert not limits.add_subscriptions(1)
    limits.end_request()
    limits.change(export(requests_per_s=1, bytes_per_s=5), 0.0)
    assert limits.begin_request(5, 0.0) is None
    assert limits.begin_request(0, 0.0) == pytest.approx(1.0)
    limits.change(export(requests_per_s=10, bytes_per_s=50), 0.0)
    assert limits.begin_request(0, 0.0) is None, "the old rate counts no more"
