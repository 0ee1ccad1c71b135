"""An asyncio event loop in virtual time: no sleep takes time, and every run takes the same steps.

Theory of operation. An event loop turns: it runs what is ready, then asks the operating system to wait for input or for its
next timer. This loop has no input. Where another would wait it sets its own clock to the next timer, exactly, so an hour
passes at once and a deadline that was computed from :meth:`VirtualLoop.time` compares equal to the time at which it fires.
Where there is no timer either, another loop would sleep for ever; this one raises :class:`DeadlockError` and names the line in
which each task waits.

It leans on four private hooks of CPython's ``BaseEventLoop``, the same from 3.11 on: ``_selector.select(timeout)`` and
``_process_events`` are called once per turn, ``_scheduled`` is the heap of timers, and timers earlier than
``time() + _clock_resolution`` fire. ``tests/unit/iris_py/testing/test_clock.py`` holds them down.
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

#: Turns of the loop while its clock stands still. The busiest simulations need some thousands; a task that spins on
#: ``sleep(0)`` would otherwise hang the test.
TURNS_PER_INSTANT_MAX = 1_000_000

#: Virtual seconds for the ``finally`` blocks of the tasks which are cancelled at the end of :func:`run`.
CLEANUP_S = 3_600.0

#: Virtual seconds that :func:`run` allows unless it is told otherwise: whatever a test waits for, it is not an hour.
LIMIT_S = 3_600.0


class ClockError(RuntimeError):
    """The virtual clock cannot go on."""


class DeadlockError(ClockError):
    """Every task waits for another one: nothing is ready and no timer is set."""


class LimitError(ClockError):
    """The main task has not finished within the virtual time, or the number of turns, that it was given."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it.

    There are no sockets, signals, pipes or subprocesses, and no other threads: ``run_in_executor`` runs the function inline,
    at once, before it returns its finished future.
    """

    def __init__(self, *, start_s: float = 0.0) -> None:
        """Create the loop.

        Args:
            start_s: What its clock shows first.
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
        """Raise :class:`LimitError` out of the loop instead of moving its clock past a time."""
        self._limit = when_s
        self._turns = 0

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback; from the thread of the loop only.

        Raises:
            RuntimeError: Another thread called. When it does so is not in the hands of the virtual clock.
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
        """Pass the time that the loop would have waited for: none, until the next timer, or for ever."""
        if timeout is None:
            raise DeadlockError(f"deadlock at {self._now} s: nothing is ready and no timer is set{describe_tasks(self)}")
        if timeout > 0:
            # Not now + timeout: the difference was rounded, and the timer would be missed by a hair.
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
        # The loop fires what is earlier than now + resolution. One unit in the last place makes this "now, and nothing
        # later"; a constant would fire early at small times, and vanish in the sum (never firing) at large ones.
        self._clock_resolution = math.ulp(now)

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no input."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody sleeps who could be woken."""


class _Task(asyncio.Task[Any]):
    """A task which sets order by age and not by memory address.

    asyncio itself iterates sets of tasks: ``TaskGroup`` when it cancels, ``asyncio.wait`` and the end of ``asyncio.run``.
    """

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
    """The selector of the loop, which jumps in time in place of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass and return no events."""
        self._loop._turn(timeout)
        return []


def run(main: Coroutine[Any, Any, _T], *, limit_s: float = LIMIT_S) -> _T:
    """Run a coroutine on a new virtual loop whose clock starts at 0, as ``asyncio.run`` does on a real one.

    Args:
        main: The coroutine.
        limit_s: The virtual time that it may take, in seconds.

    Raises:
        DeadlockError: It waits for something that cannot happen any more.
        LimitError: It has not finished in time.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.set_limit(limit_s)
        try:
            return runner.run(main)
        finally:
            loop.set_limit(loop.time() + CLEANUP_S)
