"""The time of day, for what nodes tell each other of times: everything else goes by monotonic seconds."""

from __future__ import annotations


class WallClock:
    """Tell the time of day that belongs to a monotonic time.

    The two are compared once, at the start of the node. So the time of day never goes back, and it goes wrong as the monotonic
    clock does: nothing may rely on it for more than to tell old from new.
    """

    __slots__ = ("_offset_s",)

    def __init__(self) -> None:
        self._offset_s = 0.0

    def set(self, now: float, unix_s: float) -> None:
        """Handle that it is so many seconds after 1970 at a monotonic time."""
        self._offset_s = unix_s - now

    def unix_ms(self, now: float) -> int:
        """Return the milliseconds since 1970, at least 0."""
        return max(0, int((now + self._offset_s) * 1000))
