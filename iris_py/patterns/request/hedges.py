"""The times at which a requester looks whether members have had requests for too long (docs/design.md 6.12)."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class HedgeTimes:
    """Times, and the requests to look at then: those that were begun together are one entry. Falsy if there is none."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []  # when, the first of some requests, the one behind the last

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, first: int, end: int) -> None:
        """Look then at the requests from the first to the one before the end."""
        heappush(self._heap, (when, first, end))

    def take_due(self, now: float) -> tuple[float, range] | None:
        """Take the next entry whose time has come: when that was, and the requests."""
        if not self._heap or self._heap[0][0] > now:
            return None
        when, first, end = heappop(self._heap)
        return when, range(first, end)

    def deadline(self, is_held: Callable[[int], bool]) -> float | None:
        """Return when to look next; requests that no member holds any more are forgotten."""
        heap = self._heap
        while heap:
            when, first, end = heap[0]
            next_ = first
            while next_ < end and not is_held(next_):
                next_ += 1
            if next_ == first:
                return when
            if next_ < end:
                heapreplace(heap, (when, next_, end))
            else:
                heappop(heap)
        return None
