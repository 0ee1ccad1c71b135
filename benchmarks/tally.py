"""Counts what a receiver gets, and finds out whether everything came."""

from __future__ import annotations

import asyncio
import time

from benchmarks.worker import tell

#: A receiver that got nothing for this long takes the rest for lost.
IDLE_S = 1.5
_LOOK_S = 0.02


class Tally:
    """Messages that arrived, and when the first and the last did.

    Args:
        expected: How many were or will be sent.
    """

    def __init__(self, expected: int) -> None:
        self.seen = 0
        self._expected = expected
        self._first = self._last = 0.0

    def add(self) -> None:
        """One message more."""
        seen = self.seen = self.seen + 1
        if seen == 1:
            self._first = time.perf_counter()
        elif seen == self._expected:
            self._last = time.perf_counter()

    async def wait(self) -> None:
        """Wait until everything has come, or something has come and nothing follows."""
        before, since = 0, time.perf_counter()
        while not self._last:
            await asyncio.sleep(_LOOK_S)
            now = time.perf_counter()
            if self.seen != before:
                before, since = self.seen, now
            elif before and now - since > IDLE_S:
                self._last = since

    def tell(self, note: str = "") -> None:
        """Tell the parent."""
        tell(seen=self.seen, rate=(self.seen - 1) / (self._last - self._first), note=note)
