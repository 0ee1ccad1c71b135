"""Putting casts in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.groups.messages import STAMP_SHIFT
from iris_overlay.groups.sequences import HELD_MAX, Sequence, Sequences
from iris_overlay.ids import GroupId, NodeId
from tests.profiles import examples

KEY = (GroupId(b"g" * 16), NodeId(b"n" * 16))


def test_the_first_one_seen_is_the_first() -> None:
    sequence: Sequence[str] = Sequence()
    assert sequence.accept(57, "57", 0.0, 1.0) == ["57"]
    assert sequence.accept(56, "56", 0.0, 1.0) == []
    assert sequence.accept(58, "58", 0.0, 1.0) == ["58"]


def test_the_source_may_tell_what_comes_first() -> None:
    sequence: Sequence[str] = Sequence()
    assert sequence.accept(2, "2", 0.0, 1.0, base=1) == []
    assert sequence.accept(1, "1", 0.5, 1.0, base=1) == ["1", "2"]
    assert sequence.deadline is None


def test_what_will_not_come_is_not_waited_for() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 0.0, 1.0)
    assert sequence.accept(2, "2", 0.0, 1.0) == []
    assert sequence.accept(6, "6", 0.0, 1.0, base=5) == ["2"]
    assert sequence.accept(5, "5", 0.0, 1.0, base=5) == ["5", "6"]
    assert (sequence.skipped, sequence.since, sequence.deadline) == (3, 5, None)


def test_a_gap_is_skipped_after_a_while() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 0.0, 1.0)
    assert sequence.accept(3, "3", 1.0, 1.0) == []
    assert sequence.accept(5, "5", 1.5, 1.0) == []
    assert sequence.expire(1.9, 1.0) == []
    assert sequence.expire(2.0, 1.0) == ["3"]
    assert sequence.deadline == 3.0
    assert sequence.expire(3.0, 1.0) == ["5"]
    assert sequence.skipped == 3


def test_no_more_than_so_many_wait() -> None:
    sequence: Sequence[int] = Sequence()
    sequence.accept(0, 0, 0.0, 1.0)
    ready = [sequence.accept(number, number, 0.0, 1.0) for number in range(2, HELD_MAX + 3)]
    assert ready[:-1] == [[]] * HELD_MAX
    assert ready[-1] == list(range(2, HELD_MAX + 3))


def test_a_source_that_starts_over_is_followed() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(7, "7", 0.0, 1.0)
    assert sequence.accept(9, "9", 0.0, 1.0) == []
    assert sequence.accept(1 << STAMP_SHIFT, "new", 0.0, 1.0) == ["9", "new"]
    assert sequence.accept(8, "8", 0.0, 1.0) == []


@settings(max_examples=examples(100), deadline=None)
@given(st.permutations(range(20)), st.lists(st.integers(0, 19), max_size=20))
def test_any_order_with_duplicates_is_put_right(order: list[int], duplicates: list[int]) -> None:
    sequence: Sequence[int] = Sequence()
    received: list[int] = []
    for number in [*order, *duplicates]:
        received += sequence.accept(number, number, 0.0, 1.0, base=0)
    assert received == list(range(20))


def test_the_source_silent_for_longest_makes_room() -> None:
    sequences: Sequences[str] = Sequences(1.0, 2)
    keys = [(KEY[0], NodeId(bytes([number]) * 16)) for number in range(3)]
    for key in (keys[0], keys[1], keys[0], keys[2]):
        sequences.accept(key, 5, "5", 0.0)
    assert [key in sequences for key in keys] == [True, False, True]
    sequences.accept(keys[0], 7, "7", 0.0)
    assert sequences.deadline() == 1.0
    sequences.forget_group(KEY[0])
    assert len(sequences) == 0
    assert sequences.deadline() is None


def test_skipped_casts_are_counted() -> None:
    sequences: Sequences[str] = Sequences(1.0, 2)
    sequences.accept(KEY, 0, "0", 0.0)
    sequences.accept(KEY, 2, "2", 0.0)
    assert sequences.expired(1.0) == [(KEY, ["2"])]
    assert sequences.skipped == 1
    sequences.accept(KEY, 6, "6", 1.0)
    assert sequences.expired(2.0) == [(KEY, ["6"])]
    assert sequences.skipped == 4
    sequences.forget_idle(1.5)
    assert len(sequences) == 0


def test_each_gap_has_its_own_time_counted_from_when_it_opens() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 100.0, 1.0)
    assert sequence.accept(2, "2", 100.0, 1.0) == []
    assert sequence.accept(4, "4", 100.5, 1.0) == []
    # What was missing first has come; what is missing now is waited for from this moment on.
    assert sequence.accept(1, "1", 100.8, 1.0) == ["1", "2"]
    assert sequence.deadline == 101.8
    assert sequence.expire(101.7, 1.0) == []
    assert sequence.expire(101.8, 1.0) == ["4"]
    assert sequence.skipped == 1


def test_what_is_itself_the_base_is_passed_on_at_once() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 100.0, 1.0)
    assert sequence.accept(5, "5", 100.0, 1.0) == []
    # A late one tells that nothing before 5 comes any more. 5 is here.
    assert sequence.accept(4, "4", 100.2, 1.0, base=5) == ["5"]
    assert (sequence.skipped, sequence.deadline) == (4, None)


def test_the_deadline_of_what_is_held_behind_the_base_is_kept() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 100.0, 1.0)
    assert sequence.accept(6, "6", 100.0, 1.0) == []
    assert sequence.accept(4, "4", 100.2, 1.0, base=5) == []
    assert sequence.deadline == 101.0
    assert sequence.expire(101.0, 1.0) == ["6"]


def test_a_base_that_is_expected_anyway_skips_nothing() -> None:
    sequence: Sequence[str] = Sequence()
    assert sequence.accept(1, "1", 0.0, 1.0, base=1) == ["1"]
    assert sequence.accept(2, "2", 0.0, 1.0, base=2) == ["2"]
    assert sequence.accept(4, "4", 0.0, 1.0, base=3) == []
    assert (sequence.skipped, sequence.since, sequence.deadline) == (0, 1, 1.0)


def test_what_is_held_has_its_turn_when_the_base_moves_up_to_it() -> None:
    sequence: Sequence[str] = Sequence()
    sequence.accept(0, "0", 0.0, 1.0)
    assert sequence.accept(3, "3", 0.0, 1.0) == []
    assert sequence.accept(5, "5", 0.0, 1.0, base=3) == ["3"]
    assert sequence.accept(5, "5 again", 0.0, 1.0, base=5) == ["5"]
    assert (sequence.skipped, sequence.deadline) == (3, None)
