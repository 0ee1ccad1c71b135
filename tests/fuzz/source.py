"""The meaning of a fuzzer's bytes: choices, numbers at the ends of their ranges, and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

#: Where something may end, in Python, in C, in a float, or in a field of a message.
EXTREMES: Final = (
    *(0, 1, 2, 3, 255, 256, 65_535, 65_536),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 53) - 1, 1 << 53, (1 << 53) + 1),
    *(1 << 62, (1 << 63) - 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    *(-1, -(1 << 31), -(1 << 63)),
)
#: Sizes of what has none of its own.
SIZES: Final = (0, 1, 7, 8, 16, 20, 28, 100)
#: Seconds that pass: less than any timer, as long as most, longer than every one.
PAUSES: Final = (0.0, 0.001, 0.1, 0.75, 1.0, 3.0, 10.0, 60.0)


class Source:
    """Reads an input from its beginning to its end; behind the end everything is zero.

    So each prefix of an input means something, and a changed byte changes what follows little.

    Args:
        data: What the fuzzer made.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything was read."""
        return self._at >= len(self._data)

    def byte(self) -> int:
        """Return the next byte."""
        at = self._at
        self._at = at + 1
        return self._data[at] if at < len(self._data) else 0

    def flag(self) -> bool:
        """Return a truth value."""
        return bool(self.byte() & 1)

    def choose(self, options: Sequence[T]) -> T:
        """Return one of at most 256 options."""
        return options[self.byte() % len(options)]

    def raw(self, count: int) -> bytes:
        """Return so many bytes."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found + bytes(count - len(found))

    def blob(self) -> bytes:
        """Return bytes of some size: as the input says, or many that are all the same."""
        choice = self.byte()
        if choice < 128:
            return self.raw(SIZES[choice % len(SIZES)])
        if choice < 248:
            return self.raw(choice - 128)
        return bytes((self.byte(),)) * self.number(0, 70_000)

    def number(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`: at an end of something, or any."""
        choice = self.byte()
        if choice < 224:
            choice %= len(EXTREMES) + 4
            if choice >= len(EXTREMES):
                return (low, high, max(low, high - 1), (low + high) // 2)[choice - len(EXTREMES)]
            return min(max(EXTREMES[choice], low), high)
        if choice < 240:
            return min(max(self.byte(), low), high)
        return low + int.from_bytes(self.raw(8), "big") % (high - low + 1)

    def pause(self) -> float:
        """Return how much time passes, in seconds."""
        return self.choose(PAUSES)
