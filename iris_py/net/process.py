"""The numbers of the process: how late its event loop is, and what the system says of it."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Final

from iris_py.logs import suppressed_lines
from iris_py.observe.statistics import ProcessStatistics

#: The event loop has stalled when it is so late (seconds). Too small: a busy machine stalls all the time; too large: what makes
#: callers wait is not seen.
STALL_S: Final = 0.1
#: The longest lateness is kept for so long at least, and twice as long at most (seconds). Together that is the minute that a
#: scrape looks back over. Too small: a stall between two looks is missed; too large: one that is long over is still shown.
LATENESS_WINDOW_S: Final = 30.0

_MEMORY: Final = Path("/proc/self/statm")
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
_DESCRIPTORS: Final = Path("/proc/self/fd")


class Lateness:
    """The lateness of the event loop, as a timer finds it that fires anyway.

    Attributes:
        stalls: How often it was more than ``STALL_S``.
    """

    __slots__ = ("_before_s", "_begun_at", "_longest_s", "stalls")

    def __init__(self) -> None:
        self.stalls = 0
        self._begun_at = 0.0  # the current window
        self._longest_s = 0.0  # in it
        self._before_s = 0.0  # in the one before

    def note(self, late_s: float, now: float) -> None:
        """Take in by how much a timer was late (seconds)."""
        self._turn(now)
        if late_s > self._longest_s:
            self._longest_s = late_s
        if late_s > STALL_S:
            self.stalls += 1

    def longest_s(self, now: float) -> float:
        """Return the longest lateness of the last 30 to 60 seconds."""
        self._turn(now)
        return max(self._before_s, self._longest_s)

    def _turn(self, now: float) -> None:
        """Begin another window if the current one is over."""
        if now - self._begun_at >= LATENESS_WINDOW_S:
            self._before_s = self._longest_s if now - self._begun_at < 2 * LATENESS_WINDOW_S else 0.0
            self._longest_s = 0.0
            self._begun_at = now


def read_process(lateness: Lateness, now: float) -> ProcessStatistics:
    """Return the numbers of this process.

    Args:
        lateness: Of its event loop.
        now: The time of the event loop, in seconds.
    """
    return ProcessStatistics(
        stalls=lateness.stalls,
        loop_lateness_s=lateness.longest_s(now),
        cpu_s=time.process_time(),
        resident_bytes=_resident_bytes(),
        descriptors=_descriptors(),
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=threading.active_count(),
        log_lines_suppressed=suppressed_lines(),
    )


def run_delay_s(thread: int | None = None) -> float:
    """Return how long a thread could have run and had no processor, in seconds; 0 where the system does not say.

    Args:
        thread: Its native id; None for the calling thread.
    """
    path = _SCHEDULED if thread is None else Path(f"/proc/self/task/{thread}/schedstat")
    try:
        return int(path.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _resident_bytes() -> int:
    try:
        return int(_MEMORY.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return 0


def _descriptors() -> int:
    try:
        return _DESCRIPTORS.stat().st_size or len(os.listdir(_DESCRIPTORS))  # before Linux 6.2 the size is 0
    except OSError:
        return 0
