"""Load on a network, for `iris bench`: callers begin operations back to back, or at fixed times.

A closed loop always has as many operations in flight as callers. It shows the throughput; most of the measured latency is then
waiting time behind other operations.

An open loop begins operations at fixed times, and measures from the intended start. A slow operation therefore also lengthens
the durations of all operations that it delays (no coordinated omission). Operations due before the end and never begun are
counted.

:class:`OperationTally` counts the operations of one process since the process's last report.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from iris_py.cli.bench.latency_histogram import Recording
from iris_py.cli.bench.messages import WorkerReport
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["NEVER_NS", "Load", "OperationTally", "Rhythm"]

#: A time later than any other, in nanoseconds.
NEVER_NS: Final = 1 << 63


class OperationTally:
    """Counts the operations of one process of `iris bench` between two reports.

    Attributes:
        counts: Numbers by name, without the operations counted by :meth:`recording`.
        counters: Functions that return the present value of a counter outside of this object, by name.
        begin_ns: The time from which operations count; until it is set, no operation counts.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.counters: dict[str, Callable[[], int]] = {}
        self.begin_ns = NEVER_NS
        self._read: dict[str, int] | None = None
        self._errors: Counter[str] = Counter()
        self._recordings: dict[str, tuple[Recording, str]] = {}

    def start(self) -> None:
        """Ignore the growth of external counters until now: reports count only what follows."""
        self._read = {name: read() for name, read in self.counters.items()}

    def recording(self, name: str, counts_as: str = "") -> Recording:
        """Return the recording of durations with a name; make it at the first call.

        Args:
            name: The name.
            counts_as: The name of a count that the number of durations is added to; empty for none.
        """
        return self._recordings.setdefault(name, (Recording(), counts_as))[0]

    def fail(self, error: BaseException) -> None:
        """Count a failed operation."""
        self._errors[type(error).__name__] += 1

    def take(self, *, is_last: bool = False) -> WorkerReport:
        """Return a report of all counts and durations since the last call, and start again from zero."""
        before = self._read
        self.start()
        for name, value in (self._read or {}).items():
            self.counts[name] += 0 if before is None else value - before[name]
        durations = {}
        for name, (recording, counts_as) in self._recordings.items():
            durations[name] = taken = recording.take()
            if counts_as:
                self.counts[counts_as] += taken.count
        report = WorkerReport(
            at_ns=time.monotonic_ns(),
            cpu_ns=time.process_time_ns(),
            counts=dict(self.counts),
            errors=dict(self._errors),
            durations=durations,
            is_last=is_last,
        )
        self.counts.clear()
        self._errors.clear()
        return report


#: Pause of a caller after a failed operation. Too small: immediate failures take the whole processor; too large: less load than
#: wanted after the loss of a member.
FAILURE_PAUSE_S: Final = 0.01
#: Minimum time between wake-ups of callers; operations due in between begin together. Too small: the processor only wakes
#: callers; too large: operations begin late and seem longer. The timers of the event loop are too coarse, at whole
#: milliseconds.
WAKE_S: Final = 0.0001
#: How long after the end an operation that was due before may still begin (ns). Too small: the last ones count as not begun
#: although the rhythm was kept; too large: a service that is behind continues after the end.
GRACE_NS: Final = 50_000_000

#: One operation: takes the number of its caller and its start time (ns), and returns its end time.
Operation: TypeAlias = "Callable[[int, int], Awaitable[int]]"


class Load:
    """Generates the load of a process: callers repeat an operation, back to back or in a rhythm.

    Args:
        operate: Executes one operation.
        tally: Receives the counts ``begun``, ``done``, ``unbegun`` and errors, the durations ``operation``, and with a rhythm
            the delays ``lateness`` behind the due times.
        callers: Number of callers.
        interval_ns: Time between operations of this process; 0 for a closed loop.
        offset_ns: Delay of the first operation after the start.
    """

    def __init__(self, operate: Operation, tally: OperationTally, *, callers: int, interval_ns: int, offset_ns: int) -> None:
        self._operate = operate
        self._tally = tally
        self._taken = tally.recording("operation", "done")
        self._callers = callers
        self._interval_ns = interval_ns
        self._offset_ns = offset_ns
        self._begin_ns = self._end_ns = 0

    async def run(self, begin_ns: int, end_ns: int) -> None:
        """Generate load from now on, and return when all operations have ended.

        Args:
            begin_ns: The time from which operations count.
            end_ns: The time from which no operation begins.
        """
        self._begin_ns, self._end_ns = begin_ns, end_ns
        if not self._interval_ns:
            await _all_of([self._call(number, None) for number in range(self._callers)])
            return
        warm_up = max(0, begin_ns - time.monotonic_ns()) // self._interval_ns
        first_ns = begin_ns + self._offset_ns - warm_up * self._interval_ns
        with Rhythm(first_ns, end_ns, self._interval_ns) as rhythm:
            await _all_of([self._call(number, rhythm) for number in range(self._callers)])
            self._tally.counts["unbegun"] += rhythm.count_left(begin_ns)

    async def _call(self, number: int, rhythm: Rhythm | None) -> None:
        """Run one caller until the end of the load.

        The measurement includes all work here besides the operation, so the work is minimal and in one function.
        """
        operate, taken, counts = self._operate, self._taken, self._tally.counts
        begin_ns, end_ns, now = self._begin_ns, self._end_ns, time.monotonic_ns
        while True:
            if rhythm is None:
                began_ns = now()
                if began_ns >= end_ns:
                    return
            elif (due_ns := await rhythm.take()) is None:
                return
            else:
                began_ns = due_ns
                if due_ns >= begin_ns:
                    self._tally.recording("lateness").add(now() - due_ns)
            counts_it = began_ns >= begin_ns
            if counts_it:
                counts["begun"] += 1
            try:
                done_ns = await operate(number, began_ns)
            except IrisError as exc:
                if counts_it:
                    self._tally.fail(exc)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if counts_it:
                taken.add(done_ns - began_ns)


class Rhythm:
    """Due times of operations at a fixed interval. Use with ``with``: a thread watches the clock.

    Args:
        first_ns: The first due time.
        end_ns: The end, from which no time is due.
        interval_ns: The interval between due times.
    """

    def __init__(self, first_ns: int, end_ns: int, interval_ns: int) -> None:
        self._first_ns = first_ns
        self._end_ns = end_ns
        self._interval_ns = interval_ns
        self._total = max(0, -((first_ns - end_ns) // interval_ns))
        self._due = self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()

    async def take(self) -> int | None:
        """Wait for a due time not taken by any caller, and return the earliest; None at the end."""
        while self._taken >= self._due:
            if self._due >= self._total:
                return None
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter
        if time.monotonic_ns() >= self._end_ns + GRACE_NS:
            return None
        due_ns = self._first_ns + self._taken * self._interval_ns
        self._taken += 1
        return due_ns

    def count_left(self, begin_ns: int) -> int:
        """Return the number of due times after `begin_ns` that no caller has taken."""
        before = max(0, -((self._first_ns - begin_ns) // self._interval_ns))
        return self._total - max(self._taken, before)

    def _watch(self) -> None:
        due = 0
        while due < self._total and not self._is_closed.is_set():
            passed_ns = time.monotonic_ns() - self._first_ns
            now_due = min(self._total, passed_ns // self._interval_ns + 1) if passed_ns >= 0 else 0
            if now_due > due:
                due = now_due
                try:
                    self._loop.call_soon_threadsafe(self._release, due)
                except RuntimeError:
                    return  # the event loop is closed
            next_s = (self._first_ns + due * self._interval_ns - time.monotonic_ns()) / 1e9
            time.sleep(max(WAKE_S, next_s))

    def _release(self, due: int) -> None:
        to_wake = len(self._waiting) if due >= self._total else due - self._due
        self._due = due
        while to_wake > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                to_wake -= 1


async def _all_of(callers: list[Awaitable[None]]) -> None:
    """Wait for all callers. An error of a caller, other than a failed operation, is a defect: it ends all callers, and is
    raised.
    """
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(_wait(caller))


async def _wait(caller: Awaitable[None]) -> None:
    await caller
