"""Publications that wait until the table of interest is known, in order and bounded (docs/design.md 8.2)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_py.wire.headers import Headers

#: Bytes of held publications. Too small: a program that publishes a burst at its start cannot; too large: memory of a program
#: that finds no network.
HELD_BYTES_MAX: Final = 1024 * 1024
#: Time for which a publication is held (seconds). Too small: the table is not known yet; too large: subscribers get old
#: messages.
HELD_S: Final = 1.0
#: Bytes counted for each publication besides its topic and payload.
HELD_ITEM_BYTES: Final = 128


class HeldPublications:
    """The publications that wait.

    Attributes:
        waiting: Topic, payload and headers of each, the oldest first.
        bytes: Their size.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[str, bytes, Headers]] = deque()
        self._times: deque[float] = deque()
        self.bytes = 0

    def add(self, topic: str, payload: bytes, now: float, headers: Headers) -> bool:
        """Hold a publication; return False if there is no room."""
        size = _size_of(topic, payload, headers)
        if self.bytes + size > HELD_BYTES_MAX:
            return False
        self.bytes += size
        self.waiting.append((topic, payload, headers))
        self._times.append(now)
        return True

    def remove_first(self) -> None:
        """Remove the oldest publication."""
        self.bytes -= _size_of(*self.waiting.popleft())
        self._times.popleft()

    def expire(self, now: float) -> int:
        """Remove the publications held for ``HELD_S``; return their number."""
        count = 0
        while self._times and self._times[0] + HELD_S <= now:
            self.remove_first()
            count += 1
        return count

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`expire`."""
        return self._times[0] + HELD_S if self._times else None


def _size_of(topic: str, payload: bytes, headers: Headers) -> int:
    return HELD_ITEM_BYTES + len(topic) + len(payload) + len(headers.encoded)
