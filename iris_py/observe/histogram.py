"""Histograms of durations, by powers of two: cheap enough for every request.

A duration in whole microseconds is counted in the bucket numbered by its count of binary digits. So bucket 0 holds durations
below 1 us, bucket 1 below 2 us, bucket 2 below 4 us, and so on. A quantile is exact within a factor of two, at any load, and
histograms of several clusters or nodes can be added.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Exported buckets. The last but one ends at 2**23 us, some 8.4 s; the last holds all longer durations. Too few: requests with
#: usual timeouts are all in the last bucket; too many: each is a line of every scrape.
BUCKETS: Final = 25
#: The newest durations to keep individually, where enabled. Too small: a single outlier is the median; too large: a member that
#: has become slow and gets few requests looks fast for long.
NEWEST_MAX: Final = 9
#: The least number of durations for a median; with fewer the shortest counts, because a node's first duration is often slow.
#: Too small: a single outlier counts; too large: a slow and seldom used member looks fast after one fast reply.
MEDIAN_MIN: Final = 5
#: Recent durations not yet counted in buckets. Too small: they are sorted one by one; too large: memory.
RECENT_MAX: Final = 512


class HistogramStatistics(msgspec.Struct, frozen=True, gc=False):
    """Durations, counted by powers of two."""

    counts: tuple[int, ...] = ()
    """``counts[i]`` counts durations below 2**i us and not below half of that, for each i from 0 on. Trailing zeros are left
    out; the 25th number counts durations of 2**23 us (8.4 s) or longer.
    """
    sum_s: float = 0.0
    """The sum of all durations, in seconds."""

    @classmethod
    def of(cls, counts: Sequence[int], sum_s: float) -> HistogramStatistics:
        """Make a histogram from durations that were counted elsewhere.

        Args:
            counts: The number of durations by their number of binary digits in microseconds.
            sum_s: The sum of all durations, in seconds.
        """
        shown = [*counts[: BUCKETS - 1], sum(counts[BUCKETS - 1 :])]
        while shown and not shown[-1]:
            shown.pop()
        return cls(tuple(shown), sum_s) if shown else _EMPTY

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile in seconds: the end of its bucket.

        Args:
            share: From 0 to 1; 0.99 for the duration that 99 % did not exceed.

        Returns:
            The duration, at most twice the exact one; infinity in the last bucket; None without durations.
        """
        wanted = share * self.count
        passed = 0
        for index, count in enumerate(self.counts):
            passed += count
            if count and passed >= wanted:
                return upper_s(index)
        return None


_EMPTY: Final = HistogramStatistics()


def upper_s(index: int) -> float:
    """Return the upper bound of a bucket in seconds; infinity for the last bucket."""
    return float("inf") if index >= BUCKETS - 1 else (1 << index) / 1e6


def add_up(histograms: Iterable[HistogramStatistics]) -> HistogramStatistics:
    """Return the sum of some histograms."""
    counts: Sequence[int] = ()
    sum_s = 0.0
    for histogram in histograms:
        if histogram.counts:
            counts = [one + other for one, other in zip_longest(counts, histogram.counts, fillvalue=0)]
            sum_s += histogram.sum_s
    return HistogramStatistics(tuple(counts), sum_s)


class Histogram:
    """Counts durations in buckets, cheaply enough for every request.

    Args:
        total: Another histogram that counts the same durations.
        keeps_newest: Whether to keep the newest durations individually.

    Attributes:
        newest: The newest settled durations, up to ``NEWEST_MAX``, the oldest first; empty unless ``keeps_newest``.
        settled: The number of durations counted in buckets.
        recent: Durations not yet counted in buckets (seconds). Hot paths append to it, and call :meth:`settle` at
            ``RECENT_MAX``: sorting many at once is cheap.
        at_once: The number of durations of 0 s not yet counted in buckets.
    """

    __slots__ = ("_counts", "_keeps_newest", "_shown", "_sum_s", "_total", "at_once", "newest", "recent", "settled")

    def __init__(self, total: Histogram | None = None, *, keeps_newest: bool = False) -> None:
        self.recent: list[float] = []
        self.newest: tuple[float, ...] = ()
        self._keeps_newest = keeps_newest
        self.at_once = 0
        self.settled = 0
        self._total = total
        self._counts: list[int] = []  # up to the last that is not 0
        self._sum_s = 0.0
        self._shown: HistogramStatistics | None = _EMPTY  # None if out of date

    def observe(self, duration_s: float) -> None:
        """Count a duration.

        Args:
            duration_s: The duration (seconds).
        """
        self.recent.append(duration_s)
        if len(self.recent) >= RECENT_MAX:
            self.settle()

    def settle(self) -> None:
        """Count the recent durations in their buckets, and in those of the total."""
        recent, found = self.recent, {0: self.at_once} if self.at_once else {}
        if self._keeps_newest:
            self.newest = (*self.newest, *recent[-NEWEST_MAX:])[-NEWEST_MAX:]
        recent.sort()  # then each bucket is one slice, whose end is found by bisection
        start, size = 0, len(recent)
        while start < size:
            bucket, end = int(max(0.0, recent[start]) * 1e6).bit_length(), size
            if bucket < BUCKETS - 1:
                end = bisect_left(recent, float(1 << bucket), start, key=_MICROSECONDS)
            else:
                bucket = BUCKETS - 1
            found[bucket] = found.get(bucket, 0) + end - start
            start = end
        sum_s = sum(recent)
        recent.clear()
        self.at_once = 0
        histogram: Histogram | None = self
        while histogram is not None:
            histogram._take(found, sum_s)
            histogram = histogram._total

    def add(self, other: Histogram) -> None:
        """Add all counts of another histogram, which must have the same total or none."""
        other.settle()
        self._take(dict(enumerate(other._counts)), other._sum_s)

    def show(self) -> HistogramStatistics:
        """Return the counts so far. A histogram used as a total of others includes only their settled durations."""
        if self.recent or self.at_once:
            self.settle()
        if self._shown is None:
            self._shown = HistogramStatistics(tuple(self._counts), self._sum_s)
        return self._shown

    def newest_s(self) -> float:
        """Return the median of the newest settled durations (seconds); 0.0 if ``newest`` is empty.

        With fewer than ``MEDIAN_MIN`` durations, return the shortest.
        """
        ordered = sorted(self.newest)
        if not ordered:
            return 0.0
        return ordered[len(ordered) // 2] if len(ordered) >= MEDIAN_MIN else ordered[0]

    def _take(self, found: Mapping[int, int], sum_s: float) -> None:
        counts = self._counts
        for bucket, count in found.items():
            if bucket >= len(counts):
                counts += [0] * (bucket + 1 - len(counts))
            counts[bucket] += count
        self.settled += sum(found.values())
        self._sum_s += sum_s
        self._shown = None


_MICROSECONDS: Final = (1e6).__mul__
