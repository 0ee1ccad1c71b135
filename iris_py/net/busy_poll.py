"""Busy polling: spin for a moment before the event loop sleeps, to receive the reply to a lone request or the next request.

A sleeping processor takes tens of microseconds to wake up, with cold caches: longer than a request and its reply take.
Operating systems poll before they halt for the same reason (Linux, ``Documentation/virt/kvm/halt-polling.rst``), and so do
network drivers (``SO_BUSY_POLL`` in socket(7)).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: Time for which the event loop polls for the reply to a lone request, in seconds: about two round trips between two processes
#: of a machine. Too small: no reply comes in time; too large: processor time is wasted.
BUSY_POLL_S: Final = 250e-6
#: Time for which a member's event loop polls for the next request after a lone reply, in seconds: the way to a caller that asks
#: again at once, and back. Too small and too large: as above.
NEXT_POLL_S: Final = 100e-6
#: After a poll without success the next one is skipped, after a second failure the next two, then four, up to this number:
#: traffic that is always slower costs at most a 65th of its time.
SKIPPED_MAX: Final = 64


def is_useful() -> bool:
    """Tell whether this machine has a second processor, on which the reply could be made during the poll."""
    try:
        return len(os.sched_getaffinity(0)) > 1
    except AttributeError:  # not on Linux
        return (os.cpu_count() or 1) > 1


class BusyPoll:
    """Keeps an event loop turning while input is expected soon. All other work in the loop continues.

    Args:
        look_s: Time to poll, in seconds.
        clock: Returns the time in seconds; the loop's own clock has a resolution of milliseconds only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, look_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop = loop
        self._look_s = look_s
        self._clock = clock
        self._yield: Callable[[], object] = getattr(os, "sched_yield", bool)  # bool does nothing
        self._awaited: asyncio.Future[Any] | None = None
        self._until = 0.0
        self._skipped = 0  # length of the last series of skipped polls
        self._left = 0  # skipped polls still to come

    def look_for(self, awaited: asyncio.Future[Any]) -> None:
        """Poll until ``awaited`` is done or the time is over. The node must wait for no other reply or request of this kind."""
        if self._left:
            self._left -= 1
            return
        self._until = self._clock() + self._look_s
        if self._awaited is None:
            self._loop.call_soon(self._look)
        self._awaited = awaited

    def _look(self) -> None:
        awaited = self._awaited
        assert awaited is not None
        if not awaited.done() and self._clock() < self._until:
            self._yield()  # the sender may be waiting for this processor
            self._loop.call_soon(self._look)
            return
        self._awaited = None
        self._left = self._skipped = 0 if awaited.done() else min(2 * self._skipped or 1, SKIPPED_MAX)
