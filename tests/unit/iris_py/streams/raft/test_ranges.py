"""A set of indexes as ranges is a set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from iris_py.streams.raft.ranges import IndexRanges

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 6)), max_size=30)


@given(CHANGES)
def test_ranges_are_a_set(changes: list[tuple[bool, int, int]]) -> None:
    ranges, expected = IndexRanges(), set()
    for is_added, first, more in changes:
        if is_added:
            ranges.add(first, first + more)
            expected |= set(range(first, first + more + 1))
        else:
            ranges.remove(first, first + more)
            expected -= set(range(first, first + more + 1))
    assert {index for index in range(45) if index in ranges} == expected
    assert bool(ranges) == bool(expected)
    found = list(ranges)
    assert found == sorted(found)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    if expected:
        assert ranges.lowest == min(expected)


def test_nothing_is_added_between_ends_the_wrong_way_round() -> None:
    ranges = IndexRanges()
    ranges.add(5, 4)
    assert not ranges
