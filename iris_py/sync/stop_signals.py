"""Stop a program of plain functions by signals, as :mod:`iris_py.api.run` does for coroutines.

Signal handlers run in the main thread, in the middle of any code. So they neither wait nor log. The nodes are closed only when
the program is over: when the main thread merely waits for other threads or runs exit functions.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from iris_py.api import run
from iris_py.api.run import REPEATED_S, SIGNALS, check_main_thread, check_signals, end_at_once
from iris_py.logs import EventLogger
from iris_py.net.service_manager import service_manager
from iris_py.sync.background import acquire, background, is_program_over, is_shutting_down, refuse_event_loops, shut_down
from iris_py.sync.counterpart import documented_as

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = EventLogger("iris_py")

_number: signal.Signals | None = None
_came_at = 0.0
_waiter: threading.Lock | None = None


@documented_as(run.until_stopped)
def until_stopped(*, signals: Sequence[signal.Signals] = SIGNALS) -> signal.Signals:
    global _waiter
    check_main_thread()
    check_signals(signals)
    refuse_event_loops()
    before = {number: signal.getsignal(number) for number in signals}
    waiter = _waiter = threading.Lock()
    waiter.acquire()
    try:
        for number in before:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, _handle)
        _tell(lambda: service_manager().ready(lambda: "runs"))
        while _number is None:
            acquire(waiter)
    finally:
        _waiter = None
        if _number is None:
            for number, handler in before.items():
                signal.signal(number, handler)
    _tell(lambda: service_manager().stopping())
    logger.info("stopping", "%s: leaving", _number.name, signal=_number.name)
    return _number


def _tell(what: Callable[[], None]) -> None:
    """Notify the service manager in the event loop of the nodes, which its watchdog watches."""
    if service_manager().is_there:
        background().loop.call_soon_threadsafe(what)


def leave_by(number: signal.Signals) -> None:
    """Let a signal end the program as ``sys.exit()`` does, unless the program or its parent has set another handler."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
        signal.signal(number, _handle)


def _handle(number: int, _frame: object) -> None:
    global _number, _came_at
    now = time.monotonic()
    if _number is not None:
        if now - _came_at >= REPEATED_S:
            end_at_once(number)
        return
    _number, _came_at = signal.Signals(number), now
    if _waiter is not None:
        _waiter.release()
    elif is_shutting_down():
        return  # the program is already ending
    elif is_program_over():
        # An exception could not be caught here, and would only be printed: this thread runs nothing but exit functions.
        shut_down()
        end_at_once(number)
    else:
        raise SystemExit(128 + number)


def _handle_fork() -> None:
    """In the child of a fork, restore the signal handlers until the child connects itself."""
    global _number, _waiter
    _number = _waiter = None
    for number in SIGNALS:
        if signal.getsignal(number) is _handle:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
