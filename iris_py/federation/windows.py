"""The windows of channels: how they grow with what the line holds, and how much memory they take together (15.42).

A window bounds a channel to one window in each round trip, so on a long line it has to be as large as what the line holds. The
receiver finds that out by itself, as TCP does (Fisk and Feng, Dynamic Right-Sizing in TCP, 2001): it takes note of what was
taken within a round trip, and lets a window have a share more than that (:data:`HEADROOM`), up to twice itself at once. A
reader that is slower than the line never takes so much, and its window stays small. Nor does the window of a stream grow that
fills the line: what is beyond would only wait in front of it, and with it whatever else goes that way.
"""

from __future__ import annotations

#: The window that a channel begins with, where there is room. Too small: short streams wait for credit; too large: few channels
#: have room.
FIRST_WINDOW_BYTES = 1024 * 1024
#: A channel does not begin with less: it is refused. Too small: channels that can hardly move; too large: fewer of them.
FIRST_WINDOW_BYTES_MIN = 64 * 1024
#: A window begins with at most this share of the room that is left: the last ones find some, too.
FIRST_WINDOW_SHARE = 8
#: A window grows to so many times what was taken within a round trip. Too small: a sender that waits for credit, which comes in
#: quarters of the window, never has more; too large: others wait so many round trips behind a stream that fills the line.
HEADROOM = 1.75
#: And not by less than this share of itself. Too small: much credit for little.
GROWTH_SHARE_MIN = 1 / 16
#: How far a window grows unless the operator says otherwise: at 80 ms that is 210 MB/s. Too small: long lines are not used; too
#: large: what a reader that stalls may hold up.
GROWN_WINDOW_BYTES = 16 * 1024 * 1024
#: The operator may say no more than this. Python's own speed is the bound before.
GROWN_WINDOW_BYTES_MAX = 256 * 1024 * 1024
#: The memory of all channels of a gateway together, unless the operator says otherwise. Too small: windows do not grow, and
#: channels are refused; too large: the gateway may run out of memory.
CHANNEL_BYTES = 1024 * 1024 * 1024
#: The memory of the channels to one neighbour, likewise: one that opens many leaves room for others.
NEIGHBOUR_CHANNEL_BYTES = 256 * 1024 * 1024
#: Channels of one neighbour. Too small: streams are refused; too large: tables that a neighbour can fill.
CHANNELS_MAX = 4096


class WindowBudget:
    """The memory that channels may take, and their number: of one neighbour, or of a gateway.

    Args:
        limit_bytes: How much memory.
        channels_max: How many channels; None for as many as there is memory for.
        within: The budget that this one is a part of, too: that of the gateway.

    Attributes:
        used_bytes: How much is taken. Invariant: 0 <= used_bytes <= limit_bytes.
        channels: How many channels there are.
    """

    def __init__(self, limit_bytes: int, *, channels_max: int | None = None, within: WindowBudget | None = None) -> None:
        self.used_bytes = 0
        self.channels = 0
        self._limit_bytes = limit_bytes
        self._channels_max = channels_max
        self._within = within

    @property
    def left_bytes(self) -> int:
        """The bytes that may still be taken."""
        left = self._limit_bytes - self.used_bytes
        return left if self._within is None else min(left, self._within.left_bytes)

    @property
    def has_place(self) -> bool:
        """Whether there may be another channel, as far as their number goes."""
        is_full = self._channels_max is not None and self.channels >= self._channels_max
        return not is_full and (self._within is None or self._within.has_place)

    def take(self, size: int, *, channels: int = 0) -> None:
        """Take some; only what :attr:`left_bytes` and :attr:`has_place` allow."""
        self.used_bytes += size
        self.channels += channels
        if self._within is not None:
            self._within.take(size, channels=channels)

    def give_back(self, size: int, *, channels: int = 0) -> None:
        """Give back what was taken."""
        self.take(-size, channels=-channels)


class WindowGrowth:
    """The conditions under which the windows of one connection grow.

    Args:
        budget: Where their memory comes from.
        largest_bytes: How far one grows.

    Attributes:
        budget: Where their memory comes from.
        now: The time of the present call.
        round_trip_s: The round trip of the line, smoothed, in seconds; 0 while it is not known: until then no window grows.
    """

    def __init__(self, budget: WindowBudget, largest_bytes: int) -> None:
        self.budget = budget
        self.now = 0.0
        self.round_trip_s = 0.0
        self._largest_bytes = largest_bytes

    def first_window_bytes(self, queue_bytes: int) -> int:
        """Return the window that a channel begins with; 0 if there is no room for another channel.

        Args:
            queue_bytes: What the channel takes besides its window.
        """
        if not self.budget.has_place:
            return 0
        left = self.budget.left_bytes
        size = min(FIRST_WINDOW_BYTES, self._largest_bytes, max(FIRST_WINDOW_BYTES_MIN, left // FIRST_WINDOW_SHARE))
        return size if size + queue_bytes <= left else 0

    def next_window_bytes(self, window_bytes: int, taken: int, elapsed_s: float) -> int:
        """Return the window that follows on another one, and take the memory for it.

        Args:
            window_bytes: The present one.
            taken: What was taken of it, as credits count.
            elapsed_s: In how long: a round trip at least.
        """
        wanted = int(HEADROOM * taken * self.round_trip_s / elapsed_s) - window_bytes
        more = min(wanted, window_bytes, self._largest_bytes - window_bytes)
        if wanted < GROWTH_SHARE_MIN * window_bytes or not 0 < more <= self.budget.left_bytes:
            return window_bytes
        self.budget.take(more)
        return window_bytes + more
