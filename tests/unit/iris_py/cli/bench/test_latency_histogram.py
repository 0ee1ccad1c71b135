"""Percentiles of buckets are those of sorted lists, as exactly as is promised."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.cli.bench import latency_histogram
from iris_py.cli.bench.latency_histogram import ERROR, Durations, Recording, add_up, bucket_end, bucket_of

#: From nothing to a day, of every magnitude alike.
durations = st.integers(0, 47).flatmap(lambda digits: st.integers(0, (1 << digits) - 1))
percents = st.sampled_from([0.0, 0.1, 1, 50, 90, 99, 99.9, 99.99, 100])


def record(values: list[int]) -> Durations:
    recording = Recording()
    for value in values[::2]:
        recording.add(value)
    recording.extend(values[1::2])
    taken = recording.take()
    assert recording.take() == Durations()
    return taken


def nearest_rank(values: list[int], percent: float) -> int:
    return sorted(values)[max(1, math.ceil(len(values) * Fraction(str(percent)) / 100)) - 1]


@given(st.lists(durations, min_size=1, max_size=300), percents)
def test_a_percentile_is_that_of_the_sorted_list(values: list[int], percent: float) -> None:
    found, real = record(values).percentile_ns(percent), nearest_rank(values, percent)
    assert real <= found <= real * (1 + ERROR)
    assert found <= max(values)


@given(st.lists(st.lists(durations, max_size=50), max_size=6), percents)
def test_sums_lose_nothing(several: list[list[int]], percent: float) -> None:
    values = [value for some in several for value in some]
    found = add_up(map(record, several))
    assert found == record(values)
    assert (found.count, found.sum_ns) == (len(values), sum(values))
    if values:
        assert (found.min_ns, found.max_ns, found.percentile_ns(100)) == (min(values), max(values), max(values))
    else:
        assert found.percentile_ns(percent) == 0


@given(durations)
def test_buckets_follow_each_other(value: int) -> None:
    bucket = bucket_of(value)
    end = bucket_end(bucket)
    assert value <= end
    assert bucket_of(end) == bucket
    assert bucket_of(end + 1) == bucket + 1


def test_the_rank_is_exact() -> None:
    assert record(list(range(1, 1001))).percentile_ns(99.9) == bucket_end(bucket_of(999))
    assert record([1] * 999 + [10**9]).percentile_ns(99.9) == 1


def test_a_clock_that_goes_back_counts_as_nothing() -> None:
    assert record([-5]) == record([0])


def test_they_are_the_same_after_a_way_as_json() -> None:
    found = record([1, 1000, 10**9])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Durations) == found


@given(st.lists(durations, max_size=40), st.integers(1, 7))
def test_when_they_are_sorted_changes_nothing(values: list[int], together: int) -> None:
    expected = record(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency_histogram, "RECENT_MAX", together)
        assert record(values) == expected
