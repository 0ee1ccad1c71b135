"""An asyncio event loop in virtual time: sleeping takes no real time, and every run takes the same steps.

Theory of operation. An event loop turns: it runs ready callbacks, then asks the operating system to wait for input or the next
timer. A virtual loop has no input. Instead of waiting, it sets its clock exactly to the next timer: an hour passes at once, and
a deadline computed from :meth:`VirtualLoop.time` equals the time at which the timer fires. Without any timer, another loop
would sleep for ever; a virtual loop raises :class:`DeadlockError`, which names the waiting line of each task.

The loop relies on four private hooks of CPython's ``BaseEventLoop``, unchanged since 3.11: ``_selector.select(timeout)`` and
``_process_events`` are called once per turn, ``_scheduled`` is the heap of timers, and timers earlier than ``time() +
_clock_resolution`` fire. ``tests/unit/iris_py/testing/test_clock.py`` checks these.
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from iris_py.testing.tasks import describe_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Executor
    from contextvars import Context

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: Turns of the loop without progress of the clock. Too small: the busiest simulations, with some thousands, fail; too large: a
#: task that spins on ``sleep(0)`` hangs the test.
TURNS_PER_INSTANT_MAX = 1_000_000

#: Virtual seconds for the ``finally`` blocks of tasks cancelled at the end of :func:`run`.
CLEANUP_S = 3_600.0

#: The default limit of :func:`run` in virtual seconds: no test should need an hour.
LIMIT_S = 3_600.0


class ClockError(RuntimeError):
    """The virtual clock of a test cannot advance."""


class DeadlockError(ClockError):
    """Every task waits for another task: nothing is ready and no timer is set."""


class LimitError(ClockError):
    """The main task has not finished within its virtual time or number of turns."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting.

    The loop has no sockets, signals, pipes, subprocesses or other threads: ``run_in_executor`` runs the function inline, before
    it returns the finished future.
    """

    def __init__(self, *, start_s: float = 0.0) -> None:
        """Create the loop.

        Args:
            start_s: The initial time of the clock.
        """
        super().__init__()
        self._now = start_s
        self._limit = math.inf
        self._turns = 0
        self._selector = _Selector(self)
        self._scheduled: list[asyncio.TimerHandle]
        self._set_clock(start_s)
        self._tasks_made = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def set_limit(self, when_s: float) -> None:
        """Make the loop raise :class:`LimitError` instead of moving its clock past a time."""
        self._limit = when_s
        self._turns = 0

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, only from the thread of the loop.

        Raises:
            RuntimeError: Another thread called: the virtual clock cannot control its timing.
        """
        owner: int | None = getattr(self, "_thread_id", None)
        if owner is not None and owner != threading.get_ident():
            raise RuntimeError("a virtual loop belongs to one thread: call it from there, or test with a real event loop")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Run a function inline, at once, and return its finished future. The executor is not used."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as exc:
            future.set_exception(exc)
        return future

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        **options: Any,  # noqa: ANN401  # what Task takes: newer versions of Python hand over more
    ) -> asyncio.Task[Any]:
        self._tasks_made += 1
        return _Task(self._tasks_made, coro, loop=self, **options)

    def _turn(self, timeout: float | None) -> None:
        """Move the clock instead of waiting: not at all, or to the next timer. Without a timer, raise an error."""
        if timeout is None:
            raise DeadlockError(f"deadlock at {self._now} s: nothing is ready and no timer is set{describe_tasks(self)}")
        if timeout > 0:
            # Not now + timeout: the difference was rounded, and the clock would miss the timer by a hair.
            when = self._scheduled[0].when()
            if when > self._limit:
                raise LimitError(f"still running at the limit of {self._limit} s (next timer: {when} s){describe_tasks(self)}")
            self._set_clock(when)
            return
        self._turns += 1
        if self._turns > TURNS_PER_INSTANT_MAX:
            raise LimitError(f"{TURNS_PER_INSTANT_MAX:,} turns at {self._now} s: something spins{describe_tasks(self)}")

    def _set_clock(self, now: float) -> None:
        self._now = now
        self._turns = 0
        # The loop fires timers earlier than now + resolution. One unit in the last place means "now, and nothing later"; a
        # constant would fire early at small times, and vanish in the sum (never firing) at large ones.
        self._clock_resolution = math.ulp(now)

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no input."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""


class _Task(asyncio.Task[Any]):
    """A task that sets order by age, not by memory address: runs with the same seed stay equal."""

    def __init__(
        self,
        number: int,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        **options: Any,  # noqa: ANN401  # what Task takes
    ) -> None:
        self._number = number  # first: the constructor of the base class puts the task into a set
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Selector:
    """The loop's selector, which advances the clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the clock and return no events."""
        self._loop._turn(timeout)
        return []


def run(main: Coroutine[Any, Any, _T], *, limit_s: float = LIMIT_S) -> _T:
    """Run a coroutine on a new virtual loop whose clock starts at 0, as ``asyncio.run`` does on a real one.

    Args:
        main: The coroutine.
        limit_s: The limit in virtual seconds.

    Raises:
        DeadlockError: The coroutine waits for an event that can no longer happen.
        LimitError: The coroutine has not finished in time.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.set_limit(limit_s)
        try:
            return runner.run(main)
        finally:
            loop.set_limit(loop.time() + CLEANUP_S)
