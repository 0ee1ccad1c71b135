"""Stop a program: signals tell it, and it answers by leaving.

Theory of operation. The first signal is a wish: whoever waits in :func:`until_stopped` goes on, and if nobody does, the main
task of :func:`iris_py.run` is cancelled. Either way the blocks that the program is in are left, and so its clusters. What comes
within ``REPEATED_S`` is the same wish again: a shell and a supervisor may both pass it on. What comes later ends the process at
once.

Start a program on the fastest event loop there is, and end it when it is told to stop.

The descriptors 0, 1 and 2 of a process that was started without standard streams.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from iris_py.api.base import close_nodes
from iris_py.api.loops import IN_TRIO, is_in_asyncio, is_in_trio
from iris_py.api.unclosed import ignore_abandoned_tasks
from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.service_manager import service_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

__all__ = ["occupy"]

_STANDARD = (0, 1, 2)


def occupy() -> None:
    """Open ``/dev/null`` in place of each standard stream that is closed. To be called before an event loop is made.

    The system gives the lowest free number to the next descriptor. A supervisor that starts a program with closed standard
    streams (``<&- >&- 2>&-``) so makes it open its sockets there: whatever writes to standard output writes into one, and
    libuv, below uvloop, aborts the process when it closes one.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # another thread was faster with this number
                os.close(opened)


logger = EventLogger("iris_py")

#: What tells a program to stop: Ctrl-C, and what supervisors send (systemd, Docker, Kubernetes).
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: A signal that comes this soon (seconds) after the first one is the same wish. Too small: what two processes pass on ends the
#: program at once; too large: who presses Ctrl-C again, for he cannot wait, has to press it once more.
REPEATED_S = 0.5


async def until_stopped(*, signals: Sequence[signal.Signals] = SIGNALS) -> signal.Signals:
    """Wait until the program is told to stop: by Ctrl-C or SIGTERM. The way for a service to serve until then.

    A service manager that wants to hear how the service is (systemd: ``Type=notify``) is told that it is ready, then as long as
    the event loop turns that it does (``WatchdogSec=``), and at the end that it is leaving. So call this when all clusters are
    joined.

    Afterwards let the program come to its end, which leaves all clusters. The same signal again, more than half a second later,
    ends the process at once. A signal that the process ignores, as one that ``nohup`` has started does, it goes on to ignore.

    Args:
        signals: Which signals tell it.

    Returns:
        The signal that came.

    Raises:
        ConfigurationError: It was not called in the main thread, where signals arrive, or ``signals`` has no signals.
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
    """The signals to the process, and their effect on one event loop.

    Attributes:
        number: The signal that came first; None for none.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._came_at = 0.0
        self._main: asyncio.Task[object] | None = None
        self._own: set[signal.Signals] = set()  # that cancel it
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._before: dict[signal.Signals, object] = {}  # what was to happen before somebody waited
        self._at_first = {number: signal.getsignal(number) for number in signal.Signals}

    def cancel_by(self, number: signal.Signals) -> None:
        """Let a signal cancel the running task, unless the program or its parent has other plans for it."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
            self._main = asyncio.current_task()
            asyncio.get_running_loop().add_signal_handler(number, self._handle, number)
            self._own.add(number)

    async def wait(self, signals: Sequence[signal.Signals]) -> signal.Signals:
        """Wait for one of these."""
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
        """Let signals do again what they did before. To be called when the event loop is closed.

        asyncio's loops do that themselves, for signals that had no handler; of uvloop's the handler stays, and nothing comes of
        a signal any more.
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
        """Nobody waits any more, and no signal came: do again what was done before."""
        loop = asyncio.get_running_loop()
        before, self._before = self._before, {}
        for number, handler in before.items():
            if number in self._own:
                continue  # it cancels the main task again
            loop.remove_signal_handler(number)
            if handler is not None:  # None is one that Python has not set and cannot set
                signal.signal(number, handler)  # type: ignore[arg-type] # what getsignal() has returned


_stoppings: WeakKeyDictionary[asyncio.AbstractEventLoop, Stopping] = WeakKeyDictionary()


def stopping_of(loop: asyncio.AbstractEventLoop) -> Stopping:
    """Return what signals do to an event loop."""
    return _stoppings.setdefault(loop, Stopping())


def use_stopping(stopping: Stopping) -> None:
    """Say what signals do to the running event loop: its owner ends it."""
    _stoppings[asyncio.get_running_loop()] = stopping


def check_main_thread() -> None:
    """Refuse what needs signals where there are none.

    Raises:
        ConfigurationError: This is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            "until_stopped() waits for signals, and those come to the main thread alone. "
            "Call it there, or wait for an event of your own that the main thread sets."
        )


def check_signals(signals: object) -> None:
    """Refuse what has no signals.

    Raises:
        ConfigurationError: It is refused.
    """
    found = list(signals) if isinstance(signals, Iterable) else []
    if not found or not all(isinstance(each, signal.Signals) for each in found):
        raise ConfigurationError(f"signals={signals!r} must be signals, such as [signal.SIGTERM].")


def end_at_once(number: int) -> None:
    """End the process by a signal, as if nobody had asked for anything else."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


Result = TypeVar("Result")


def run(main: Coroutine[object, object, Result], *, debug: bool | None = None, leave_on_sigterm: bool = True) -> Result:
    """Run a coroutine to its end, on uvloop where it is installed and on asyncio's own loop where it is not.

    Nodes that are still open when it has ended are closed. SIGTERM, with which supervisors stop a program, cancels the
    coroutine as Ctrl-C does: it leaves its ``async with`` blocks, and so its clusters without failing a request. Then the
    program ends with the status 143, as one does that this signal has ended. A service that is to end well waits in
    :func:`until_stopped`.

    Args:
        main: The coroutine.
        debug: Whether asyncio's debug mode is on; None leaves that to ``PYTHONASYNCIODEBUG``.
        leave_on_sigterm: Whether SIGTERM is handled. It never is where the program handles or ignores it already, or outside
            the main thread.

    Returns:
        What the coroutine returns.

    Raises:
        ConfigurationError: An event loop runs in this thread already, of asyncio or of trio, or ``main`` is no coroutine.
        SystemExit: SIGTERM came, and the coroutine did not handle being cancelled.
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
    """Refuse a program that cannot be run here. A coroutine is closed, or Python would warn that nobody awaited it.

    Raises:
        ConfigurationError: It cannot.
    """
    if not asyncio.iscoroutine(main):
        raise ConfigurationError(f"run() takes a coroutine, and was given {main!r}. Call the function: run(main()).")
    reason = ""
    if is_in_trio():
        reason = f"trio runs in this thread. {IN_TRIO}"
    elif is_in_asyncio():
        reason = "one runs in this thread already, as in an async function or a notebook. Use `await main()` there."
    if reason:
        main.close()
        raise ConfigurationError(f"run() starts an event loop, and {reason}")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None where uvloop is not installed. Closed standard streams are opened before."""
    occupy()
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
