"""Durations for percentiles, counted in buckets of growing width, as in HDR histograms (high dynamic range).

A duration is a whole number of nanoseconds. Below 256 ns every number is a bucket; above, each power of two is divided into 128
buckets of equal width. So a bucket's width is at most 1/128 of the beginning. A percentile is the last number of its bucket, or
the largest duration if that is smaller: never less than the real value, and at most 1/128 (0.8 %) more. Sum, smallest and
largest are exact. Counts of several processes and seconds can be added without further error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ERROR", "RECENT_MAX", "Durations", "Recording", "add_up", "bucket_end", "bucket_of"]

#: Each power of two has 2 to this power buckets. Too few: percentiles of good and bad runs coincide; too many: a second of
#: measurements does not fit into a line.
DIGITS: Final = 7
#: Maximum number of collected durations. Too small: each sorting handles only a few, and is slow; too large: unused memory.
RECENT_MAX: Final = 65_536
#: Maximum relative error of a percentile, which is never too small.
ERROR: Final = 1 / (1 << DIGITS)


class Durations(msgspec.Struct, frozen=True):
    """The number of durations in each bucket, with their sum, smallest and largest."""

    buckets: tuple[tuple[int, int], ...] = ()
    """The numbers of non-empty buckets with their counts, in order."""
    sum_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0

    @property
    def count(self) -> int:
        """Number of counted durations."""
        return sum(count for _, count in self.buckets)

    def percentile_ns(self, percent: float) -> int:
        """Return a percentile by the nearest rank; 0 if no duration was counted.

        Args:
            percent: 0 to 100, with up to three digits after the point.
        """
        # In whole numbers: 99.9 % of 1,000 is the 999th, without floating-point errors.
        wanted, passed = max(1, -(-self.count * round(percent * 1000) // 100_000)), 0
        for bucket, count in self.buckets:
            passed += count
            if passed >= wanted:
                return min(bucket_end(bucket), self.max_ns)
        return 0


class Recording:
    """Counts durations. Collects them first: sorting many into buckets at once is far cheaper than singly."""

    __slots__ = ("_counts", "_max_ns", "_min_ns", "_recent", "_sum_ns")

    def __init__(self) -> None:
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        self._sum_ns = self._min_ns = self._max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count a duration. A negative duration counts as 0."""
        recent = self._recent
        recent.append(duration_ns)
        if len(recent) >= RECENT_MAX:
            self._settle()

    def extend(self, durations_ns: list[int]) -> None:
        """Count several durations."""
        self._recent.extend(durations_ns)
        if len(self._recent) >= RECENT_MAX:
            self._settle()

    def _settle(self) -> None:
        """Sort the collected durations into their buckets."""
        recent = self._recent
        if not recent:
            return
        recent.sort()  # then each bucket is one slice, whose end is found by a few comparisons
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
        """Return the durations counted since the last call."""
        self._settle()
        taken = Durations(tuple(sorted(self._counts.items())), self._sum_ns, self._min_ns, self._max_ns)
        self._counts.clear()
        self._sum_ns = self._min_ns = self._max_ns = 0
        return taken


def bucket_of(duration_ns: int) -> int:
    """Return the number of the bucket that holds a non-negative duration."""
    shift = duration_ns.bit_length() - DIGITS - 1
    return duration_ns if shift <= 0 else (shift << DIGITS) + (duration_ns >> shift)


def bucket_end(bucket: int) -> int:
    """Return the longest duration (ns) that a bucket holds."""
    shift = (bucket >> DIGITS) - 1
    if shift <= 0:
        return bucket
    return ((bucket - (shift << DIGITS) + 1) << shift) - 1


def add_up(several: Iterable[Durations]) -> Durations:
    """Return the sum of several counts of durations."""
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
