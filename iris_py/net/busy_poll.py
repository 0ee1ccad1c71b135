"""Looks for what is about to come for a moment, before the event loop sleeps: the reply to a lone request, and the next one.

A processor that was put to sleep takes tens of microseconds to wake up, and what it had in its caches is gone: that takes
longer than to make a request and its reply. Operating systems look around for a moment before they halt, for the same reason
(Linux, ``Documentation/virt/kvm/halt-polling.rst``), and so do network drivers (``SO_BUSY_POLL`` in socket(7)).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: How long a caller looks for a reply, in seconds: about twice what a round trip between two processes of a machine takes. Too
#: small: nothing ever comes in time; too large: processor time is taken from others for nothing.
BUSY_POLL_S: Final = 250e-6
#: How long a member looks for the next request after a lone reply: as long as its way to a caller that asks again at once, and
#: the way back. Too small and too large: as above.
NEXT_POLL_S: Final = 100e-6
#: After something that did not come in time, nobody looks for the next one, after a second one not for the next two, then four,
#: up to this many: what always takes longer is looked for during at most a 65th of the time that it takes.
SKIPPED_MAX: Final = 64


def is_useful() -> bool:
    """Tell whether there is another processor, for whoever makes the reply."""
    try:
        return len(os.sched_getaffinity(0)) > 1
    except AttributeError:  # not on Linux
        return (os.cpu_count() or 1) > 1


class BusyPoll:
    """Keeps an event loop turning while something may be about to come. Everything else in the loop goes on as usual.

    Args:
        loop: The event loop.
        look_s: How long to look, in seconds.
        clock: Returns the time in seconds; not that of the loop, which has milliseconds only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, look_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop = loop
        self._look_s = look_s
        self._clock = clock
        self._yield: Callable[[], object] = getattr(os, "sched_yield", bool)  # bool: what does nothing
        self._awaited: asyncio.Future[Any] | None = None
        self._until = 0.0
        self._skipped = 0  # how often nobody looked, after the last time when it came too late
        self._left = 0  # how many of them are to come

    def look_for(self, awaited: asyncio.Future[Any]) -> None:
        """Look for what is about to come, until that is done: the only one of its kind that the node waits for."""
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
            self._yield()  # who waits for this very processor may be the one that makes it
            self._loop.call_soon(self._look)
            return
        self._awaited = None
        self._left = self._skipped = 0 if awaited.done() else min(2 * self._skipped or 1, SKIPPED_MAX)
