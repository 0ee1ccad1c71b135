"""The fence and what belongs to it, in small steps; tests/property/test_fence.py compares it with a model."""

from __future__ import annotations

import pytest

from iris_py.patterns.topic import imported_sequences as tables
from iris_py.patterns.topic.imported_sequences import PATHS_MAX, SEQUENCES_MAX, Fence, GapBook, MissedTotals
from iris_py.wire.imported import UNKNOWN_GAP

ORIGIN, SEQUENCE = b"o" * 16, b"s" * 4


def take(
    fence: Fence, path: str, number: int, missed: int = 0, *, count: int = 1, sequence: bytes = SEQUENCE
) -> tuple[int, int | None]:
    return fence.take(ORIGIN, sequence, path, number, count, missed)


def test_only_the_first_path_that_brings_a_number_is_taken() -> None:
    fence = Fence()
    assert take(fence, "a", 5) == (0, 0)
    assert take(fence, "b", 5) == (1, 0)
    assert take(fence, "b", 6) == (0, 0)
    assert take(fence, "a", 6) == (1, 0)
    assert take(fence, "a", 4) == (1, 0)


def test_of_a_run_that_is_late_in_part_the_rest_is_taken() -> None:
    fence = Fence()
    assert take(fence, "a", 5, count=3) == (0, 0)
    assert take(fence, "b", 6, count=4) == (2, 0)
    assert take(fence, "a", 9, count=2) == (1, 0)
    assert take(fence, "a", 8, count=3) == (3, 0)
    assert take(fence, "a", 11) == (0, 0)


def test_numbers_that_are_missing_are_no_gap_where_the_path_has_lost_none() -> None:
    fence = Fence()
    take(fence, "a", 5, 7)
    assert take(fence, "a", 9, 7) == (0, 0)


def test_the_gap_is_what_the_path_has_lost_since_its_last_one_but_no_more_than_is_missing() -> None:
    fence = Fence()
    take(fence, "a", 5, 7)
    assert take(fence, "a", 9, 9) == (0, 2)
    assert take(fence, "a", 11, 19) == (0, 1)
    assert take(fence, "a", 12, 29) == (0, 0)
    assert take(fence, "a", 20, 29) == (0, 0)


def test_the_first_one_of_a_new_path_has_all_that_is_missing_as_its_gap() -> None:
    fence = Fence()
    take(fence, "a", 5)
    assert take(fence, "b", 6) == (0, 0)
    assert take(fence, "c", 9) == (0, 2)
    assert take(fence, "c", 12) == (0, 0)


def test_an_unknown_loss_is_all_that_is_missing() -> None:
    fence = Fence()
    take(fence, "a", 5, 3)
    assert take(fence, "a", 9, 3 + UNKNOWN_GAP) == (0, 3)
    assert take(fence, "a", 12, 3 + UNKNOWN_GAP) == (0, 0)


def test_a_path_that_has_brought_something_late_is_known() -> None:
    fence = Fence()
    take(fence, "a", 5)
    assert take(fence, "b", 4, 3) == (1, 0)
    assert take(fence, "b", 9, 3) == (0, 0)


def test_a_total_that_shrinks_is_believed_to_hide_something() -> None:
    fence = Fence()
    take(fence, "a", 5, 7)
    assert take(fence, "a", 9, 6) == (0, 3)


def test_sequences_and_origins_count_by_themselves() -> None:
    fence = Fence()
    take(fence, "a", 5)
    assert take(fence, "a", 5, sequence=b"t" * 4) == (0, 0)
    assert fence.take(b"p" * 16, SEQUENCE, "a", 5, 1, 0) == (0, 0)
    assert take(fence, "a", 5) == (1, 0)


def test_the_sequences_that_were_silent_for_longest_are_forgotten_and_then_new_ones_begin_with_an_unknown_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "SEQUENCES_MAX", 2)
    known = Fence()
    sequences = [bytes((number,)) * 4 for number in range(4)]
    assert take(known, "a", 5, sequence=sequences[0]) == (0, 0)
    assert take(known, "a", 5, sequence=sequences[1]) == (0, 0)
    assert take(known, "a", 5, sequence=sequences[0]) == (1, 0)  # heard again, though late
    assert take(known, "a", 5, sequence=sequences[2]) == (0, 0)
    assert take(known, "a", 5, sequence=sequences[0]) == (1, 0)
    assert take(known, "a", 5, sequence=sequences[1]) == (0, None), "it may come twice, and something may be missing"
    assert take(known, "a", 5, sequence=sequences[3]) == (0, None)


def test_a_path_that_is_forgotten_is_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PATHS_MAX", 2)
    known = Fence()
    take(known, "a", 5)
    take(known, "b", 5)
    take(known, "c", 5)
    assert take(known, "b", 8) == (0, 0)
    assert take(known, "a", 11) == (0, 2)


def test_the_bounds_are_kept() -> None:
    assert PATHS_MAX == 2 * SEQUENCES_MAX == 16_384
    known, totals, book = Fence(), MissedTotals(), GapBook()
    for number in range(SEQUENCES_MAX + 10):
        origin = number.to_bytes(16, "big")
        for path in "abc":
            known.take(origin, SEQUENCE, path, 1, 1, 0)
        totals.add(origin, SEQUENCE, 1)
        book.owe(origin, SEQUENCE, 1)
    assert (len(known._lasts), len(known._totals)) == (SEQUENCES_MAX, PATHS_MAX)
    assert len(totals._totals) == len(book._sequences) == SEQUENCES_MAX


def test_totals_that_were_forgotten_go_on_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEQUENCES_MAX", 2)
    totals = MissedTotals()
    one, two, three = (bytes((number,)) * 4 for number in range(3))
    assert [totals.add(ORIGIN, one, 3), totals.add(ORIGIN, one, 4), totals.add(ORIGIN, two, 1)] == [3, 7, 1]
    assert totals.add(ORIGIN, three, 0) == 0
    assert totals.add(ORIGIN, one, 1) == 8, "which was 7 when it was forgotten"
    assert totals.add(ORIGIN, two, 0) == 7, "it was 1"


def pass_on(book: GapBook, number: int, gap: int = 0, *, count: int = 1, sequence: bytes = SEQUENCE) -> int:
    return book.pass_on(ORIGIN, sequence, number, count, gap)


def test_a_hop_tells_of_what_it_dropped_with_the_next_one_and_once() -> None:
    book = GapBook()
    assert pass_on(book, 5, 2) == 2
    book.owe(ORIGIN, SEQUENCE, 3)
    book.owe(ORIGIN, SEQUENCE, 1)
    book.owe(ORIGIN, b"t" * 4, 9)
    assert pass_on(book, 12, 1) == 5
    assert pass_on(book, 14) == 0


@pytest.mark.parametrize(("number", "gap", "told"), [(8, 0, 0), (10, 0, 2), (10, 5, 2), (3, 0, 0)])
def test_the_first_one_of_a_new_upstream_has_all_that_is_missing_as_its_gap(number: int, gap: int, told: int) -> None:
    book = GapBook()
    assert pass_on(book, 5, count=3) == 0
    book.change_upstream()
    assert pass_on(book, number, gap) == told
    assert pass_on(book, 20) == 0


def test_each_sequence_has_its_own_first_one_of_a_new_upstream() -> None:
    book = GapBook()
    pass_on(book, 5)
    pass_on(book, 5, sequence=b"t" * 4)
    book.change_upstream()
    assert (pass_on(book, 9), pass_on(book, 9, sequence=b"t" * 4), pass_on(book, 9, sequence=b"u" * 4)) == (3, 3, 0)
    assert (pass_on(book, 11), pass_on(book, 11, sequence=b"t" * 4)) == (0, 0)


def test_what_a_hop_dropped_itself_comes_on_top_of_what_a_new_upstream_may_have_lost() -> None:
    book = GapBook()
    pass_on(book, 5)
    book.owe(ORIGIN, SEQUENCE, 7)
    book.change_upstream()
    assert pass_on(book, 9) == 10


def test_an_older_one_from_a_new_upstream_leaves_what_is_known() -> None:
    book = GapBook()
    pass_on(book, 9)
    book.change_upstream()
    assert (pass_on(book, 3), pass_on(book, 5)) == (0, 0)
    book.change_upstream()
    assert pass_on(book, 10) == 0


def test_a_hop_that_has_forgotten_a_sequence_tells_of_an_unknown_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEQUENCES_MAX", 2)
    book = GapBook()
    sequences = [bytes((number,)) * 4 for number in range(3)]
    assert [pass_on(book, 5, sequence=sequence) for sequence in sequences] == [0, 0, 0]
    assert [pass_on(book, 9, sequence=sequences[0]), pass_on(book, 9, sequence=sequences[2])] == [UNKNOWN_GAP, 0]


def test_a_relay_knows_the_last_number_of_each_sequence() -> None:
    book = GapBook()
    assert (book.last_number(ORIGIN + SEQUENCE), book.last_numbers()) == (-1, [])
    book.owe(ORIGIN, b"none", 3)
    pass_on(book, 5, count=3)
    book.change_upstream()
    pass_on(book, 6)
    assert (book.last_number(ORIGIN + SEQUENCE), book.last_numbers()) == (7, [(ORIGIN + SEQUENCE, 7)])
