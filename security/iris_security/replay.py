"""A replay window, which distinguishes late packets from repeated ones (RFC 6479, after RFC 4303 section 3.4.3)."""

#: The greatest accepted distance behind the highest counter. Too small: packets reordered by the path are dropped. Ordered
#: links reorder nearly nothing, and datagrams are beacons, a few a second, so 1024 is generous. Too large: memory; a full
#: bitmap has 128 bytes now.
REPLAY_WINDOW = 1024

_MISSING_MASK = (1 << REPLAY_WINDOW) - 1


class ReplayWindow:
    """The received counters of one key, to detect repeated packets; each counter is accepted once.

    Pass authentic counters only, so that a forger cannot move the window.

    RFC 6479 keeps the bits of *received* counters in a ring of words, to avoid the shift. Here the bits are *missing* counters:
    without loss the bitmap is the integer 0, and no shift is needed.
    """

    __slots__ = ("_highest", "_missing")

    def __init__(self) -> None:
        """Start without received counters."""
        self._highest = -1
        # Bit i stands for the counter `highest - i`. Invariant: bit 0 and the bits beyond the window are clear.
        self._missing = 0

    def accept(self, counter: int) -> bool:
        """Record a counter and return whether it is new.

        Returns:
            False if the counter was received before, or is too far behind the highest one to tell.
        """
        ahead = counter - self._highest
        if ahead == 1:  # the usual case
            self._highest = counter
            if self._missing:
                self._missing = (self._missing << 1) & _MISSING_MASK
            return True
        if ahead > 0:
            # Bound the shift first: a counter can be 2^64, and no memory holds an integer of that length.
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
