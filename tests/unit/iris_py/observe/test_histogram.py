"""Histograms of durations, and what is read from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.observe.histogram import BUCKETS, NEWEST_MAX, RECENT_MAX, Histogram, HistogramStatistics, add_up, upper_s

durations = st.floats(min_value=0.0, max_value=4e8, allow_nan=False)


def histogram_of(*durations_s: float) -> Histogram:
    histogram = Histogram()
    for duration_s in durations_s:
        histogram.observe(duration_s)
    return histogram


@pytest.mark.parametrize(
    ("duration_s", "bucket"),
    [(0.0, 0), (0.9e-6, 0), (1e-6, 1), (3e-6, 2), (0.001, 10), (1.0, 20), (8.38, 23), (8.389, 24), (3.2e8, 24)],
)
def test_a_duration_is_in_the_bucket_that_it_is_less_than(duration_s: float, bucket: int) -> None:
    shown = histogram_of(duration_s).show()
    assert shown.counts == (0,) * bucket + (1,)
    assert shown.sum_s == duration_s
    assert duration_s < upper_s(bucket)
    assert bucket == 0 or bucket == BUCKETS - 1 or duration_s * 1e6 >= upper_s(bucket) * 1e6 / 2


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    assert histogram_of(-0.001).show().count == 1


@given(st.lists(durations, min_size=1, max_size=50), st.floats(min_value=0.01, max_value=1.0))
def test_a_quantile_is_right_within_a_factor_of_two(given_s: list[float], share: float) -> None:
    quantile_s = histogram_of(*given_s).show().quantile_s(share)
    true_s = sorted(given_s)[math.ceil(share * len(given_s)) - 1]
    assert quantile_s is not None
    assert quantile_s > true_s
    assert quantile_s == math.inf or quantile_s <= max(2 * true_s + 1e-6, 1e-6)


def test_there_is_no_quantile_of_nothing() -> None:
    assert Histogram().show().quantile_s(0.5) is None
    assert Histogram().show() == HistogramStatistics()


@given(st.lists(durations, max_size=20), st.lists(durations, max_size=20))
def test_sums_are_as_if_all_had_been_counted_in_one(one: list[float], other: list[float]) -> None:
    together = histogram_of(*one, *other).show()
    added = add_up([histogram_of(*one).show(), histogram_of(*other).show()])
    assert added.counts == together.counts
    assert added.sum_s == pytest.approx(together.sum_s)
    first = histogram_of(*one)
    first.add(histogram_of(*other))
    assert first.show().counts == together.counts


def test_those_that_took_no_time_are_in_the_first_bucket() -> None:
    histogram = Histogram()
    histogram.at_once += 3
    assert histogram.show() == histogram_of(0.0, 0.0, 0.0).show()


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(durations, max_size=10)), max_size=10))
def test_a_total_has_what_those_below_it_have_shown_or_added_to_one_another(steps: list[tuple[int, list[float]]]) -> None:
    total = Histogram()
    parts = [Histogram(total) for _ in range(3)]
    for index, given_s in steps:
        for duration_s in given_s:
            parts[index].observe(duration_s)
        parts[index].at_once += 1
    shown = [part.show() for part in parts]
    assert total.show().counts == add_up(shown).counts
    assert total.show().sum_s == pytest.approx(sum(each.sum_s for each in shown))
    parts[0].add(parts[1])
    assert parts[0].show().count == shown[0].count + shown[1].count
    assert total.show().counts == add_up(shown).counts, "each once"


def test_what_has_not_moved_is_shown_as_the_same_object() -> None:
    histogram = histogram_of(0.5)
    shown = histogram.show()
    assert histogram.show() is shown
    histogram.observe(0.5)
    assert histogram.show().count == shown.count + 1


def test_many_are_sorted_before_they_take_room() -> None:
    histogram = Histogram()
    for _ in range(2 * RECENT_MAX + 1):
        histogram.observe(1.0)
    assert len(histogram.recent) == 1
    assert histogram.show().count == 2 * RECENT_MAX + 1


@given(st.lists(durations, max_size=50))
def test_those_that_are_sorted_later_are_counted_as_the_others(given_s: list[float]) -> None:
    histogram = Histogram()
    histogram.recent += given_s
    shown, expected = histogram.show(), histogram_of(*given_s).show()
    assert shown.counts == expected.counts
    assert shown.sum_s == pytest.approx(expected.sum_s)
    assert histogram.show() == shown, "each once"
    other = Histogram()
    other.recent += given_s
    histogram.add(other)
    assert histogram.show().count == 2 * len(given_s)


def test_the_newest_say_how_long_things_take_of_late() -> None:
    histogram = Histogram(keeps_newest=True)
    assert histogram.newest_s() == 0.0
    histogram.observe(0.9)  # the first of all is slow
    histogram.observe(0.002)
    histogram.show()
    assert histogram.newest_s() == 0.002, "of few the shortest"
    for _ in range(3 * RECENT_MAX):
        histogram.observe(0.001)
    histogram.show()
    assert histogram.newest_s() == 0.001
    for count in range(1, NEWEST_MAX + 1):  # it has become slow, and is asked now and then
        histogram.observe(0.5)
        histogram.show()
        assert len(histogram.newest) == NEWEST_MAX
        assert histogram.newest_s() == (0.5 if count > NEWEST_MAX // 2 else 0.001)
    assert histogram.show().quantile_s(0.9) == 0.001024, "all that there ever were are fast"


def test_the_newest_are_kept_only_where_that_is_wanted() -> None:
    total = Histogram()
    histogram = Histogram(total)
    histogram.observe(0.5)
    histogram.settle()
    assert histogram.newest == total.newest == ()
