"""Run a program on the fastest event loop available, and stop the program on a signal.

Theory of operation. The first signal is a request to stop: it wakes the waiters of :func:`until_stopped`, or without waiters
cancels the main task of :func:`iris_py.run`. Either way the program leaves its ``async with`` blocks and clusters. A further
signal within ``REPEATED_S`` is the same request, which a shell and a supervisor may both pass on. A later signal ends the
process at once.

A process may start without standard streams. Then ``/dev/null`` occupies the descriptors 0, 1 and 2.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from iris_py.api.loops import IN_TRIO, is_in_asyncio, is_in_trio
from iris_py.api.unclosed import close_nodes, ignore_abandoned_tasks
from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.service_manager import service_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

__all__ = ["occupy"]

_STANDARD = (0, 1, 2)


def occupy() -> None:
    """Open ``/dev/null`` in place of each closed standard stream. Call this before an event loop is made.

    The system gives the lowest free number to the next descriptor. A program started with closed standard streams (``<&- >&-
    2>&-``) would use these numbers for sockets: output would be written into a socket, and libuv, below uvloop, aborts the
    process when closing a standard stream.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # another thread was faster with this number
                os.close(opened)


logger = EventLogger("iris_py")

#: The signals that stop a program: SIGINT by Ctrl-C, SIGTERM by supervisors (systemd, Docker, Kubernetes).
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: A signal within this time (seconds) after the first is the same request. Too small: a signal passed on by two processes ends
#: the program at once; too large: an impatient second Ctrl-C is ignored.
REPEATED_S = 0.5


async def until_stopped(*, signals: Sequence[signal.Signals] = SIGNALS) -> signal.Signals:
    """Wait for Ctrl-C or SIGTERM. A service serves until then.

    A service manager with notifications (systemd: ``Type=notify``) gets a ready message, keep-alives as long as the event loop
    turns (``WatchdogSec=``), and a stopping message at the end. So call this after all clusters are joined.

    Afterwards let the program come to its end, which leaves all clusters. The same signal again, more than half a second later,
    ends the process at once. A signal that the process ignores, as under ``nohup``, stays ignored.

    Args:
        signals: The signals to wait for.

    Returns:
        The signal that came.

    Raises:
        ConfigurationError: The caller is not the main thread, where signals arrive, or ``signals`` has no signals.
    """
    check_main_thread()
    check_signals(signals)
    stopping, manager = stopping_of(asyncio.get_running_loop()), service_manager()
    if stopping.number is None:
        manager.ready(lambda: "runs")
    number = await stopping.wait(signals)
    manager.stopping()
    return number


class Stopping:
    """Handles the signals to the process for one event loop: wakes the waiters, or cancels the main task.

    Attributes:
        number: The first signal that came; None before.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._came_at = 0.0
        self._main: asyncio.Task[object] | None = None
        self._own: set[signal.Signals] = set()  # that cancel the main task
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._before: dict[signal.Signals, object] = {}  # the handlers before any wait
        self._at_first = {number: signal.getsignal(number) for number in signal.Signals}

    def cancel_by(self, number: signal.Signals) -> None:
        """Let the signal ``number`` cancel the running task, unless the program or its parent has set another handler."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
            self._main = asyncio.current_task()
            asyncio.get_running_loop().add_signal_handler(number, self._handle, number)
            self._own.add(number)

    async def wait(self, signals: Sequence[signal.Signals]) -> signal.Signals:
        """Wait for one of these signals; return the signal that came."""
        loop = asyncio.get_running_loop()
        for number in signals:
            handler = signal.getsignal(number)
            if number not in self._before and handler is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._handle, number)
                self._before[number] = handler
        while self.number is None:
            waiter = loop.create_future()
            self._waiting[waiter] = None
            try:
                await waiter
            except asyncio.CancelledError:
                if len(self._waiting) == 1 and self.number is None:
                    self._restore()
                raise
            finally:
                del self._waiting[waiter]
        return self.number

    def end(self) -> None:
        """Restore the former effect of signals. Call this when the event loop is closed.

        asyncio's loops restore the default of signals. uvloop leaves its own handler, and signals would have no effect.
        """
        for number in self._own.union(self._before):
            handler = self._at_first[number]
            if handler is not None:
                signal.signal(number, handler)
        self._before.clear()
        self._own.clear()

    def _handle(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self.number is not None:
            if now - self._came_at >= REPEATED_S:
                end_at_once(number)
            return
        self.number, self._came_at = number, now
        logger.info("stopping", "%s: leaving", number.name, signal=number.name)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        if not self._waiting and self._main is not None:
            self._main.cancel()

    def _restore(self) -> None:
        """Restore the former handlers when no waiter is left and no signal came."""
        loop = asyncio.get_running_loop()
        before, self._before = self._before, {}
        for number, handler in before.items():
            if number in self._own:
                continue  # it cancels the main task again
            loop.remove_signal_handler(number)
            if handler is not None:  # None is a handler that Python has not set and cannot set
                signal.signal(number, handler)  # type: ignore[arg-type] # the result of getsignal()


_stoppings: WeakKeyDictionary[asyncio.AbstractEventLoop, Stopping] = WeakKeyDictionary()


def stopping_of(loop: asyncio.AbstractEventLoop) -> Stopping:
    """Return the handling of signals for an event loop, made at the first call."""
    return _stoppings.setdefault(loop, Stopping())


def use_stopping(stopping: Stopping) -> None:
    """Use an object for the signals to the running event loop; the caller ends the object."""
    _stoppings[asyncio.get_running_loop()] = stopping


def check_main_thread() -> None:
    """Refuse a caller outside of the main thread, where signals do not arrive.

    Raises:
        ConfigurationError: This is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            "until_stopped() waits for signals, which only the main thread receives. Call it there, or wait for an event "
            "that the main thread sets."
        )


def check_signals(signals: object) -> None:
    """Refuse a value that is not an iterable of at least one signal.

    Raises:
        ConfigurationError: The value is refused.
    """
    found = list(signals) if isinstance(signals, Iterable) else []
    if not found or not all(isinstance(each, signal.Signals) for each in found):
        raise ConfigurationError(f"signals={signals!r} must be signals, such as [signal.SIGTERM].")


def end_at_once(number: int) -> None:
    """End the process by raising a signal with its default effect, so that the parent sees the signal as the cause."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


Result = TypeVar("Result")


def run(main: Coroutine[object, object, Result], *, debug: bool | None = None, leave_on_sigterm: bool = True) -> Result:
    """Run a coroutine to its end, on uvloop if installed and else on asyncio's own loop.

    Open nodes are closed at the end. SIGTERM, the signal of supervisors, cancels the coroutine as Ctrl-C does: the coroutine
    leaves all ``async with`` blocks, and so the clusters, without failing a request. Then the program ends with the status 143,
    the status of that signal. For a regular end, wait in :func:`until_stopped`.

    Args:
        main: The coroutine.
        debug: Whether asyncio's debug mode is on; None leaves the mode to ``PYTHONASYNCIODEBUG``.
        leave_on_sigterm: Whether to handle SIGTERM. The signal is never handled if the program handles or ignores it already,
            or outside the main thread.

    Returns:
        The result of the coroutine.

    Raises:
        ConfigurationError: An event loop of asyncio or trio already runs in this thread, or ``main`` is no coroutine.
        SystemExit: SIGTERM came, and the coroutine did not handle its cancellation.
    """
    _check(main)
    stopping = Stopping()

    async def run_main() -> Result:
        use_stopping(stopping)
        if leave_on_sigterm:
            stopping.cancel_by(signal.SIGTERM)
        try:
            return await main
        finally:
            ignore_abandoned_tasks(asyncio.get_running_loop())
            await close_nodes()

    try:
        with asyncio.Runner(debug=debug, loop_factory=loop_factory()) as runner:
            return runner.run(run_main())
    except asyncio.CancelledError:
        if stopping.number is None:
            raise
        raise SystemExit(128 + stopping.number) from None
    finally:
        stopping.end()


def _check(main: object) -> None:
    """Refuse a program with an invalid ``main`` or a running loop, and close the coroutine to prevent Python's warning.

    Raises:
        ConfigurationError: The program cannot run.
    """
    if not asyncio.iscoroutine(main):
        raise ConfigurationError(f"run() takes a coroutine, not {main!r}. Call the function: run(main()).")
    reason = ""
    if is_in_trio():
        reason = f"trio runs in this thread. {IN_TRIO}"
    elif is_in_asyncio():
        reason = "an event loop already runs in this thread, as in an async function or a notebook. Use `await main()` there."
    if reason:
        main.close()
        raise ConfigurationError(f"run() starts an event loop, and {reason}")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None if uvloop is not installed. Opens closed standard streams before."""
    occupy()
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
