"""Durations for percentiles: counted in buckets that grow with what they count, as histograms of HDR do.

A duration is a whole number of nanoseconds. Below 256 ns each number is a bucket of its own; from there on each power of two is
divided into 128 buckets of one width. So a bucket is at most 1/128 of its beginning wide. A percentile is the last number of
its bucket, or the largest duration if that is smaller: never less than the real one, and at most 1/128 (0.8 %) more. Sum,
smallest and largest are exact. Counts of several processes and seconds can be added without any further error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ERROR", "RECENT_MAX", "Durations", "Recording", "add_up", "bucket_end", "bucket_of"]

#: Binary digits by which each power of two is divided. Too few: percentiles of good and bad runs fall together; too many: a
#: second of measuring is too much to be told in a line.
DIGITS: Final = 7
#: Recent durations that are not sorted yet. Too small: they are sorted a few at a time; too large: memory.
RECENT_MAX: Final = 65_536
#: A percentile is at most by this part larger than it really is.
ERROR: Final = 1 / (1 << DIGITS)


class Durations(msgspec.Struct, frozen=True):
    """Durations that were counted."""

    buckets: tuple[tuple[int, int], ...] = ()
    """The number of each bucket with something in it, and how many that are; in order."""
    sum_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.buckets)

    def percentile_ns(self, percent: float) -> int:
        """Return the duration that so many of a hundred did not exceed, by the nearest rank; 0 if there are none.

        Args:
            percent: 0 to 100, with up to three digits behind the point.
        """
        # In whole numbers: 99.9 of 1,000 is the 999th, whatever floats make of it.
        wanted, passed = max(1, -(-self.count * round(percent * 1000) // 100_000)), 0
        for bucket, count in self.buckets:
            passed += count
            if passed >= wanted:
                return min(bucket_end(bucket), self.max_ns)
        return 0


class Recording:
    """Durations while they are counted. They are sorted into buckets many at once, which is far cheaper than one by one."""

    __slots__ = ("_counts", "_max_ns", "_min_ns", "_recent", "_sum_ns")

    def __init__(self) -> None:
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        self._sum_ns = self._min_ns = self._max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count a duration. One below 0 counts as 0."""
        recent = self._recent
        recent.append(duration_ns)
        if len(recent) >= RECENT_MAX:
            self._settle()

    def extend(self, durations_ns: list[int]) -> None:
        """Count several."""
        self._recent.extend(durations_ns)
        if len(self._recent) >= RECENT_MAX:
            self._settle()

    def _settle(self) -> None:
        """Sort those that are recent into their buckets."""
        recent = self._recent
        if not recent:
            return
        recent.sort()  # then each bucket is one piece, whose end is found by a few comparisons
        if recent[0] < 0:
            recent[:] = [max(0, each) for each in recent]
        start, has_some = 0, bool(self._counts)
        while start < len(recent):
            bucket = bucket_of(recent[start])
            end = bisect_right(recent, bucket_end(bucket), start)
            self._counts[bucket] += end - start
            start = end
        self._min_ns = min(self._min_ns, recent[0]) if has_some else recent[0]
        self._max_ns = max(self._max_ns, recent[-1])
        self._sum_ns += sum(recent)
        recent.clear()

    def take(self) -> Durations:
        """Return what was counted, and begin anew."""
        self._settle()
        taken = Durations(tuple(sorted(self._counts.items())), self._sum_ns, self._min_ns, self._max_ns)
        self._counts.clear()
        self._sum_ns = self._min_ns = self._max_ns = 0
        return taken


def bucket_of(duration_ns: int) -> int:
    """Return the number of the bucket of a duration that is not below 0."""
    shift = duration_ns.bit_length() - DIGITS - 1
    return duration_ns if shift <= 0 else (shift << DIGITS) + (duration_ns >> shift)


def bucket_end(bucket: int) -> int:
    """Return the last number that a bucket counts."""
    shift = (bucket >> DIGITS) - 1
    if shift <= 0:
        return bucket
    return ((bucket - (shift << DIGITS) + 1) << shift) - 1


def add_up(several: Iterable[Durations]) -> Durations:
    """Return the sum of some durations."""
    found = [each for each in several if each.buckets]
    if not found:
        return Durations()
    counts: Counter[int] = Counter()
    for each in found:
        for bucket, count in each.buckets:
            counts[bucket] += count
    return Durations(
        tuple(sorted(counts.items())),
        sum(each.sum_ns for each in found),
        min(each.min_ns for each in found),
        max(each.max_ns for each in found),
    )
