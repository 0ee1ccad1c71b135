"""The choice between one group and two halves."""

from __future__ import annotations

import math

from iris_py.store.halves import SLOWER_MAX, Halves, follow_median
from iris_py.streams.batches import RecordBatch
from iris_py.streams.limits import BATCH_BYTES_MAX

#: The event loop takes 1 us for an append, so 1 ms for these.
APPENDS = 1000
SIZE = 100_000


def timed() -> Halves:
    halves = Halves()
    halves.note_turn(APPENDS, 0.001)
    return halves


def batch(size: int) -> RecordBatch:
    made = RecordBatch()
    made.add((bytes(size), None, b""))
    return made


def test_halves_begin_when_a_sync_is_shorter_than_the_turn_of_all_tasks_and_end_when_it_is_longer() -> None:
    halves = timed()
    halves.update(APPENDS, SIZE, 0.0011)
    assert (halves.bytes, halves.batch_bytes) == (0, BATCH_BYTES_MAX)
    halves.update(APPENDS, SIZE, 0.0009)
    assert (halves.bytes, halves.batch_bytes) == (SIZE // 2, SIZE // 2)
    halves.update(APPENDS, SIZE, 0.0011)
    assert halves.bytes, "a sync that is little longer changes nothing"
    halves.update(APPENDS, SIZE, 0.0011 * SLOWER_MAX)
    assert not halves.bytes


def test_few_appends_and_unknown_times_make_no_halves() -> None:
    unknown = Halves()
    unknown.update(APPENDS, SIZE, 0.0)
    assert not unknown.bytes, "nobody knows the time of the loop"
    halves = timed()
    halves.update(APPENDS, SIZE, math.inf)
    assert not halves.bytes, "nobody knows the time of a sync"
    halves.update(APPENDS // 10, SIZE, 0.0009)
    assert not halves.bytes, "the loop is done earlier than the disk"
    halves.update(0, SIZE, 0.0)
    assert not halves.bytes, "a writer has no tasks that wait"


def test_the_batches_of_halves_are_never_larger_than_others() -> None:
    halves = timed()
    halves.update(APPENDS, 4 * BATCH_BYTES_MAX, 0.0)
    assert (halves.bytes, halves.batch_bytes) == (2 * BATCH_BYTES_MAX, BATCH_BYTES_MAX)


def test_a_group_has_the_batches_of_a_half_and_at_least_one() -> None:
    halves = timed()
    batches = [batch(SIZE // 4) for _ in range(4)]
    assert halves.count(batches) == 4, "one group takes all"
    assert not halves.are_enough(batches)
    halves.update(APPENDS, SIZE, 0.0)
    assert halves.count(batches) == 2
    assert halves.count([batch(SIZE), batch(1)]) == 1
    assert halves.count([*batches[:2], batch(SIZE // 100)]) == 3, "the last few records need no sync of their own"
    assert halves.are_enough(batches[:2])
    assert not halves.are_enough(batches[:1])


def test_a_median_follows_most_values_and_not_the_largest() -> None:
    median = math.inf
    for _ in range(100):
        median = follow_median(median, 100.0)
    assert 80 < median < 125
    for number in range(400):
        median = follow_median(median, 10_000.0 if number % 4 == 0 else 100.0)
        assert median < 200
    for _ in range(100):
        median = follow_median(median, 10_000.0)
    assert median > 5_000
