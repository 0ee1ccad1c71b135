"""A set of indexes as sorted ranges, for the holes of a log: a cut file is one range, however many blocks it had."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["IndexRanges"]

#: More than any index.
_END: Final = 1 << 64


class IndexRanges:
    """A set of indexes."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # first and last of each, ascending, neither adjacent nor overlapping

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._ranges, (index, _END))
        return place > 0 and self._ranges[place - 1][1] >= index

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(tuple(self._ranges))

    @property
    def lowest(self) -> int:
        """The lowest index; the set is not empty."""
        return self._ranges[0][0]

    def add(self, first: int, last: int) -> None:
        """Add all indexes from ``first`` to ``last``; nothing if ``last`` is smaller."""
        if last < first:
            return
        begin = bisect_left(self._ranges, (first - 1, -1))
        if begin and self._ranges[begin - 1][1] >= first - 1:
            begin -= 1
        end = begin
        while end < len(self._ranges) and self._ranges[end][0] <= last + 1:
            first, last = min(first, self._ranges[end][0]), max(last, self._ranges[end][1])
            end += 1
        self._ranges[begin:end] = [(first, last)]

    def remove(self, first: int, last: int) -> None:
        """Remove all indexes from ``first`` to ``last``."""
        kept = [each for each in self._ranges if each[1] < first or each[0] > last]
        for begin, end in self._ranges:
            if begin <= last and end >= first:
                if begin < first:
                    insort(kept, (begin, first - 1))
                if end > last:
                    insort(kept, (last + 1, end))
        self._ranges = kept
