"""A thread that detects and logs code blocking an event loop.

A blocked loop cannot inspect itself, and when it continues the blocking code has finished. So a thread per process asks the
loops of nodes for a sign of life, ten times a second, and reads the stack of the loop's thread if the sign is missing. The
thread runs only while a node is open.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger
from iris_py.net.process import run_delay_s

if TYPE_CHECKING:
    from types import FrameType

logger = EventLogger("iris_py.net")

#: Interval of the checks (seconds). Too small: idle processes wake up in vain; too large: short blocks go unnoticed.
BEAT_S: Final = 0.1
#: Shortest block of an event loop that is logged (seconds); a block longer than this by ``BEAT_S`` is always logged. Too small:
#: a busy machine fills the log; too large: blocks that delay callers go unnoticed.
TOLD_S: Final = 0.4
#: A process that used the processor for at least this share of a time was not stopped during that time.
COMPUTED_MIN: Final = 0.5
#: Time for which the end of the last node waits for the watchdog's thread (seconds). The thread ends at its next check, so only
#: a machine without a free processor takes longer, and the thread then ends by itself.
JOIN_TIMEOUT_S: Final = 1.0

_IRIS: Final = f"{Path(__file__).parents[1]}{os.sep}"
_LOOP: Final = {(asyncio.base_events.__file__, "run_forever"), (asyncio.runners.__file__, "run")}


class WatchedLoop:
    """An event loop that drives nodes, and the last request for a sign of life. Create the watch in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.drivers = 0
        self.place: str | None = None  # location of the code that blocks the loop now
        self._loop = loop
        self._thread, self._native = threading.get_ident(), threading.get_native_id()
        self._asked_at: float | None = None  # None: the loop has answered
        self._cpu_s = 0.0  # the process's processor time at the question
        self._delay_s = 0.0  # the loop thread's total wait for a processor until then
        self._stopped_s = 0.0

    def look(self, now: float, stopped_s: float) -> None:
        """Ask the loop for a sign of life; if an earlier request is unanswered, read the stack of the loop's thread instead.

        Runs in the watchdog's thread.

        Args:
            stopped_s: Time for which the whole process was just stopped, in seconds.
        """
        if self._asked_at is not None:
            self._stopped_s += stopped_s
            if self.place is None and not stopped_s:
                self.place = describe_stack(sys._current_frames().get(self._thread))
            return
        self.place, self._stopped_s = None, stopped_s
        self._cpu_s, self._delay_s = time.process_time(), run_delay_s(self._native)
        self._asked_at = now - stopped_s
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # it was closed at this moment
            return

    def _answer(self) -> None:
        """Answer the request for a sign of life, in the loop. If the answer is late, log the blocking code."""
        if self._asked_at is None:
            return
        late_s = time.monotonic() - self._asked_at
        if late_s > TOLD_S and self.drivers:
            self._tell(late_s)
        self._asked_at = None

    def _tell(self, late_s: float) -> None:
        if run_delay_s() - self._delay_s >= late_s / 2:
            return  # the machine had no free processor
        computed_s = min(time.process_time() - self._cpu_s, late_s)
        if self.place is not None:
            cause = f"{self.place} blocked it. Move code that blocks or computes into a plain `def`, which runs in a thread"
        elif computed_s >= COMPUTED_MIN * late_s:
            cause = "native code computed meanwhile without releasing the interpreter"
        elif self._stopped_s:
            cause = "the whole process was stopped, or native code waited without releasing the interpreter"
        else:
            return  # over before the check, on a busy machine
        logger.warning(
            "loop_stood_still",
            "the event loop stood still for %.1f s or more, with %.1f s of processor time: %s",
            late_s,
            computed_s,
            cause,
            seconds=late_s,
            computed_seconds=computed_s,
            place=self.place,
        )


class Watchdog:
    """Watches all event loops of a process that drive a node; see the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[asyncio.AbstractEventLoop, WatchedLoop] = {}
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def watch(self, loop: asyncio.AbstractEventLoop) -> WatchedLoop:
        """Watch the loop of a driver; call in the thread of the loop, once per driver."""
        with self._lock:
            watch = self._watches.get(loop)
            if watch is None:
                watch = self._watches[loop] = WatchedLoop(loop)
            watch.drivers += 1
            if self._thread is None:
                self._ending = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._ending,), name="iris-watchdog", daemon=True)
                self._thread.start()
        return watch

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record the end of a driver. The loop is watched until its last driver ends; the thread ends with the last loop."""
        with self._lock:
            watch = self._watches.get(loop)
            if watch is not None:
                watch.drivers -= 1
                if not watch.drivers:
                    del self._watches[loop]
            if self._watches or self._thread is None:
                return
            thread, self._thread = self._thread, None
            self._ending.set()
        thread.join(JOIN_TIMEOUT_S)

    def _run(self, ending: threading.Event) -> None:
        looked_at, cpu_s, delay_s = time.monotonic(), time.process_time(), run_delay_s()
        while not ending.wait(BEAT_S):
            now, cpu_before_s, delay_before_s = time.monotonic(), cpu_s, delay_s
            cpu_s, delay_s = time.process_time(), run_delay_s()
            late_s = now - looked_at - BEAT_S
            looked_at = now
            # If this thread is late without computing and without waiting for a processor, the whole process was stopped.
            was_stopped = late_s > TOLD_S / 2 and max(cpu_s - cpu_before_s, delay_s - delay_before_s) < COMPUTED_MIN * late_s
            with self._lock:
                if ending.is_set():
                    return
                self._watches = {loop: watch for loop, watch in self._watches.items() if not loop.is_closed()}
                if not self._watches:
                    self._thread = None
                    return
                for watch in self._watches.values():
                    watch.look(now, late_s if was_stopped else 0.0)


def describe_stack(innermost: FrameType | None) -> str | None:
    """Describe where a thread is: its innermost code in the program, otherwise in a package, otherwise anywhere.

    Args:
        innermost: The innermost frame of its stack.

    Returns:
        The function and its location, preceded by the calling handler if they differ. For example ``load (/srv/db.py:31)`` or
        ``Orders.on_request, in load (/srv/db.py:31)``; None without a frame.
    """
    frames = []
    frame = innermost
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) not in _LOOP:
        frames.append(frame)
        frame = frame.f_back
    if not frames:
        return None
    called = list(itertools.takewhile(lambda frame: _origin(frame) != "iris", frames))
    own = [frame for frame in called if _origin(frame) == "program"]
    chosen = own or [frame for frame in called if _origin(frame) == "package"][:1] or frames[:1]
    place, handler = chosen[0], chosen[-1]
    called_by = "" if handler is place else f"{handler.f_code.co_qualname}, in "
    return f"{called_by}{place.f_code.co_qualname} ({place.f_code.co_filename}:{place.f_lineno})"


def _origin(frame: FrameType) -> str:
    filename = frame.f_code.co_filename
    if filename.startswith(_IRIS):
        return "iris"
    packages, library = _folders()
    if filename.startswith(packages):
        return "package"
    return "library" if filename.startswith(library) else "program"


@cache
def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders of packages, and those of the standard library; computed at the first use."""
    import site
    import sysconfig

    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return tuple(f"{path}{os.sep}" for path in packages), (*(f"{path}{os.sep}" for path in library), "<frozen")


_current = Watchdog()


def watchdog() -> Watchdog:
    """Return the watchdog of this process."""
    return _current


def _handle_fork() -> None:
    """Make a new watchdog in the child process after a fork, where the parent's thread does not exist."""
    global _current
    _current = Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
