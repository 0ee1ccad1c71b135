"""Looks for the reply to a lone request for a moment, before the event loop sleeps until it comes.

A processor that was put to sleep takes tens of microseconds to wake up, and what it had in its caches is gone: that takes
longer than to make a request and its reply. Operating systems look around for a moment before they halt, for the same reason
(Linux, ``Documentation/virt/kvm/halt-polling.rst``), and so do network drivers (``SO_BUSY_POLL`` in socket(7)).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: How long to look, in seconds: about twice what a round trip between two processes of a machine takes. Too small: nothing ever
#: comes in time; too large: processor time is taken from others for nothing.
BUSY_POLL_S: Final = 250e-6
#: After a reply that did not come in time, nobody looks for the next one, after a second one not for the next two, then four,
#: up to this many: replies that always take longer are looked for during at most a 65th of the time that they take.
SKIPPED_MAX: Final = 64


def is_useful() -> bool:
    """Tell whether there is another processor, for whoever makes the reply."""
    try:
        return len(os.sched_getaffinity(0)) > 1
    except AttributeError:  # not on Linux
        return (os.cpu_count() or 1) > 1


class BusyPoll:
    """Keeps an event loop turning while a reply may be about to come. Everything else in the loop goes on as usual.

    Args:
        loop: The event loop.
        clock: Returns the time in seconds; not that of the loop, which has milliseconds only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop = loop
        self._clock = clock
        self._yield: Callable[[], object] = getattr(os, "sched_yield", bool)  # bool: what does nothing
        self._reply: asyncio.Future[bytes] | None = None
        self._until = 0.0
        self._skipped = 0  # how many replies were not looked for, after the last one that was too late
        self._left = 0  # how many of them are to come

    def look_for(self, reply: asyncio.Future[bytes]) -> None:
        """Look for a reply: the only one that the node waits for."""
        if self._left:
            self._left -= 1
            return
        self._until = self._clock() + BUSY_POLL_S
        if self._reply is None:
            self._loop.call_soon(self._look)
        self._reply = reply

    def _look(self) -> None:
        reply = self._reply
        assert reply is not None
        if not reply.done() and self._clock() < self._until:
            self._yield()  # who waits for this very processor may be the one that makes the reply
            self._loop.call_soon(self._look)
            return
        self._reply = None
        self._left = self._skipped = 0 if reply.done() else min(2 * self._skipped or 1, SKIPPED_MAX)
