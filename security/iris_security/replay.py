"""The window that tells a late packet from a repeated one (RFC 6479, after RFC 4303 section 3.4.3)."""

#: How far behind the highest a counter is still told apart. It has to be more than what a path reorders: on ordered links that
#: is next to nothing, and datagrams here are beacons, a few a second. So 1024 is generous, and a full bitmap has only 128
#: bytes.
REPLAY_WINDOW = 1024

_MISSING_MASK = (1 << REPLAY_WINDOW) - 1


class ReplayWindow:
    """The counters of one key that were seen: each is accepted once.

    Give it authentic counters only: it must not be moved by a forger.

    RFC 6479 keeps the bits of what *was* seen, in a ring of words, to spare the shift. Here the bits are of what is
    *missing*: in a stream without loss the bitmap is the integer 0, and nothing has to be shifted at all.
    """

    __slots__ = ("_highest", "_missing")

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._highest = -1
        # Bit i stands for the counter `highest - i`. Invariant: bit 0 is not set, and no bit beyond the window is.
        self._missing = 0

    def accept(self, counter: int) -> bool:
        """Tell whether a counter is new, and remember it.

        Returns:
            False if it was seen before, or lies too far behind the highest to tell.
        """
        ahead = counter - self._highest
        if ahead == 1:  # the usual case
            self._highest = counter
            if self._missing:
                self._missing = (self._missing << 1) & _MISSING_MASK
            return True
        if ahead > 0:
            # The bound comes before the shift: a counter is up to 2^64, and no memory holds such an integer.
            shift = min(ahead, REPLAY_WINDOW)
            skipped = (1 << shift) - 2  # all counters between the old and the new highest
            self._missing = ((self._missing << shift) | skipped) & _MISSING_MASK
            self._highest = counter
            return True
        if ahead <= -REPLAY_WINDOW:
            return False
        bit = 1 << -ahead
        if not self._missing & bit:
            return False
        self._missing ^= bit
        return True
