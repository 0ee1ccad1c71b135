"""Stop a program of plain functions: see :mod:`iris_py.api.run`.

Signals are handled in the main thread, in the middle of whatever it does. So what handles them waits for nothing, and logs
nothing. Only when the program is over, and the main thread waits for others or runs exit functions, the nodes are closed there.
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
from iris_py.sync.documented import documented_as

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
    """Tell the service manager something in the event loop of the nodes: that is what its watchdog watches."""
    if service_manager().is_there:
        background().loop.call_soon_threadsafe(what)


def leave_by(number: signal.Signals) -> None:
    """Let a signal end the program as ``sys.exit()`` does, unless it or its parent has other plans for it."""
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
        return  # the program leaves already
    elif is_program_over():
        # An exception would be printed, for nobody can catch it: nothing runs in this thread but exit functions.
        shut_down()
        end_at_once(number)
    else:
        raise SystemExit(128 + number)


def _handle_fork() -> None:
    """This is the child of a fork: signals do to it what they did before, until it connects itself."""
    global _number, _waiter
    _number = _waiter = None
    for number in SIGNALS:
        if signal.getsignal(number) is _handle:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
