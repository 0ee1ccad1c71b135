"""Stop a program of plain functions by signals, as :mod:`iris_py.api.run` does for coroutines.

Signal handlers run in the main thread, in the middle of any code. So they neither wait nor log. The nodes are closed only when
the program is over: when the main thread merely waits for other threads or runs exit functions.

A process of `multiprocessing` is ended by SIGTERM, often while its main thread waits for a semaphore of a queue. The system
interrupts such a wait only by a signal that comes during the wait. After a signal that came just before, Python would run the
handler when the wait ends, which is never if the owner of the semaphore was ended, too. Its parent then waits for ever. So in
these processes a thread learns of each signal, and interrupts the main thread until the handler has run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from iris_py.api import run
from iris_py.api.run import REPEATED_S, SIGNALS, check_main_thread, check_signals, end_at_once
from iris_py.logs import EventLogger
from iris_py.net.service_manager import service_manager
from iris_py.sync.background import acquire, background, is_program_over, is_shutting_down, refuse_event_loops, shut_down
from iris_py.sync.counterpart import documented_as

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = EventLogger("iris_py")

#: The time between interruptions of the main thread (seconds). Too small: work for a main thread that computes. Too large: the
#: end of a pool takes that much longer after a signal that its process did not notice.
INTERRUPT_S: Final = 0.1
#: The largest number of interruptions for a signal. Too small: the handler does not run in a process that the system does not
#: run for that time. Too large: work for a program with a handler of its own, whose calls this module does not see.
INTERRUPTS_MAX: Final = 100

_number: signal.Signals | None = None
_came_at = 0.0
_waiter: threading.Lock | None = None
_pipe: tuple[int, int] | None = None  # the number of each signal, from the system to the thread that interrupts


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
        _interrupt_after(number)


def _interrupt_after(number: signal.Signals) -> None:
    """In a process of `multiprocessing`, let a thread interrupt the main thread after a signal, until its handler has run.

    The interrupting signal is SIGURG, which has no effect by default either. An event loop or a handler of the program that
    uses the same means is left alone.
    """
    global _pipe
    processes = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.parent_process() is not None
    if (
        not is_child
        or _pipe is not None
        or not hasattr(signal, "SIGURG")
        or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
    ):
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
        return
    _pipe = reader, writer
    signal.signal(signal.SIGURG, _ignore)
    threading.Thread(target=_interrupt, args=(reader, number), name="iris-signals", daemon=True).start()


def _interrupt(reader: int, number: signal.Signals) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while received := os.read(reader, 64):
        for _ in range(INTERRUPTS_MAX if number in received else 0):
            time.sleep(INTERRUPT_S)
            if _number is not None:
                break
            signal.pthread_kill(main, signal.SIGURG)


def _ignore(_number: int, _frame: object) -> None: ...


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
    global _number, _waiter, _pipe
    _number = _waiter = None
    if _pipe is not None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        for end in _pipe:
            os.close(end)
        _pipe = None
    for number in SIGNALS:
        if signal.getsignal(number) is _handle:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
