"""Histograms of durations, by powers of two: cheap enough to be kept of every request.

A duration of so many whole microseconds is counted in the bucket whose number is how many binary digits that has. So bucket 0
holds what took less than 1 us, bucket 1 what took less than 2 us, bucket 2 less than 4 us, and each further one twice as much.
A quantile is right within a factor of two, at any load, and histograms of several clusters or nodes can be added.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Buckets that are shown. The last but one ends at 2**23 us, some 8.4 s; the last one holds everything longer. Too few:
#: requests with usual time-outs are all in the last one; too many: each is a line of every scrape.
BUCKETS: Final = 25
#: The newest durations that are kept as they are, where that is wanted. Too small: one that is odd is the middle one; too
#: large: what has become slow, and is asked for little since then, looks fast for as long.
NEWEST_MAX: Final = 9
#: Of so many the median says how long things take of late, of fewer the shortest: the first of all is often slow. Too small:
#: one that is odd is taken for the rule; too large: what is slow and seldom asked looks fast once it was fast for once.
MEDIAN_MIN: Final = 5
#: Recent durations that are not sorted yet. Too small: they are sorted one by one; too large: memory.
RECENT_MAX: Final = 512


class HistogramStatistics(msgspec.Struct, frozen=True, gc=False):
    """Durations, counted by powers of two."""

    counts: tuple[int, ...] = ()
    """``counts[i]`` counts durations below 2**i us and not below half of that, for each i from 0 on. Zeros at the end
    are left out; the 25th number counts durations of 2**23 us (8.4 s) or longer."""
    sum_s: float = 0.0
    """The sum of all durations, in seconds."""

    @classmethod
    def of(cls, counts: Sequence[int], sum_s: float) -> HistogramStatistics:
        """Return the durations that were counted elsewhere.

        Args:
            counts: How many have so many microseconds in binary digits.
            sum_s: All of them together, in seconds.
        """
        shown = [*counts[: BUCKETS - 1], sum(counts[BUCKETS - 1 :])]
        while shown and not shown[-1]:
            shown.pop()
        return cls(tuple(shown), sum_s) if shown else _EMPTY

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def quantile_s(self, share: float) -> float | None:
        """Return how long so large a share took at most, in seconds: the end of the bucket that it lies in.

        Args:
            share: From 0 to 1; 0.99 for what 99 % did not exceed.

        Returns:
            The duration, at most twice of what it really was; infinity if it lies in the last bucket; None if there is none.
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
    """Return the end of a bucket, in seconds: what it counts took less. Of the last one it is infinity."""
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
    """Durations while they are counted.

    Args:
        total: Where they are counted, too.
        keeps_newest: Whether the newest ones are kept as they are.

    Attributes:
        newest: The newest that are sorted, up to ``NEWEST_MAX``, the oldest first; none unless they are kept.
        settled: How many are sorted.
        recent: Those that are not sorted yet (seconds). Hot paths append to it, and call :meth:`settle` once it has
            ``RECENT_MAX``: to sort many at once is cheap.
        at_once: How many things took no time, and are not sorted yet.
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
        self._shown: HistogramStatistics | None = _EMPTY  # None if it is of an earlier time

    def observe(self, duration_s: float) -> None:
        """Count a duration.

        Args:
            duration_s: How long it was (seconds).
        """
        self.recent.append(duration_s)
        if len(self.recent) >= RECENT_MAX:
            self.settle()

    def settle(self) -> None:
        """Sort those that are recent."""
        recent, found = self.recent, {0: self.at_once} if self.at_once else {}
        if self._keeps_newest:
            self.newest = (*self.newest, *recent[-NEWEST_MAX:])[-NEWEST_MAX:]
        recent.sort()  # then each bucket is one piece, whose end is found by a few comparisons
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
        """Count everything that another one has, which has the same total or none."""
        other.settle()
        self._take(dict(enumerate(other._counts)), other._sum_s)

    def show(self) -> HistogramStatistics:
        """Return what was counted until now; of a total, what those below it have settled."""
        if self.recent or self.at_once:
            self.settle()
        if self._shown is None:
            self._shown = HistogramStatistics(tuple(self._counts), self._sum_s)
        return self._shown

    def newest_s(self) -> float:
        """Return how long things take of late (seconds), as far as they are sorted; 0.0 if nothing is kept."""
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
