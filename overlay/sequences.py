"""Put the casts of one source in order, and drop duplicates."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from overlay.group_messages import STAMP_SHIFT

T = TypeVar("T")

HELD_MAX: Final = 64
"""Casts that wait for an earlier one. Beyond, the earlier one is skipped."""


class Sequence(Generic[T]):
    """Hold what waits for an earlier cast of the same source.

    Whoever joined in the middle begins with the first one it sees: nothing tells it from one that came after a lost one.
    """

    __slots__ = ("_held", "deadline", "expected", "skipped", "used_at")

    def __init__(self) -> None:
        # All up to here were passed on, or skipped; None before the first. Invariant: every held one is later than it.
        self.expected: int | None = None
        self._held: dict[int, T] = {}
        self.deadline: float | None = None
        self.skipped = 0
        self.used_at = 0.0

    def is_new(self, number: int) -> bool:
        """Return whether a cast was not seen before."""
        return self.expected is None or (number >= self.expected and number not in self._held)

    def accept(self, number: int, item: T, now: float, reorder_s: float, base: int | None = None) -> list[T]:
        """Handle a cast; return those whose turn has come.

        Args:
            number: Its number.
            item: The cast.
            now: Monotonic seconds.
            reorder_s: How long it may wait for earlier ones.
            base: The first number that may still come, if the source tells.
        """
        self.used_at = now
        if base is not None and self.expected is None:
            self.expected = base
        if self.expected is None or number >> STAMP_SHIFT > self.expected >> STAMP_SHIFT:
            # The source starts over; what it sent before precedes this.
            earlier = [self._held[held] for held in sorted(self._held)]
            self._held.clear()
            self.deadline = None
            self.expected = number + 1
            return [*earlier, item]
        if number < self.expected or number in self._held:
            return []
        self._held[number] = item
        if number != self.expected and len(self._held) <= HELD_MAX:
            if self.deadline is None:
                self.deadline = now + reorder_s
            return []
        return self._drain(now, reorder_s)

    def expire(self, now: float, reorder_s: float) -> list[T]:
        """Skip what did not come in time; return what waited for it."""
        if self.deadline is None or self.deadline > now:
            return []
        return self._drain(now, reorder_s)

    def _drain(self, now: float, reorder_s: float) -> list[T]:
        """Pass on from the first held one to the next gap."""
        assert self.expected is not None
        first = min(self._held)
        self.skipped += first - self.expected
        ready: list[T] = []
        while first in self._held:
            ready.append(self._held.pop(first))
            first += 1
        self.expected = first
        self.deadline = now + reorder_s if self._held else None
        return ready
