"""The course of a measurement of `iris bench`: warm-up, a report of every process once a second, and the last operations."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.cli.bench.latency_histogram import Durations, add_up
from iris_py.cli.bench.messages import Begin, ReportCue, WorkerReport
from iris_py.cli.bench.plan import busy_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from iris_py.cli.bench.crew import BenchCrew, Worker

__all__ = ["DRAIN_S", "Course", "Interval", "measure", "settle"]

#: Time for all processes to receive the cue to begin (seconds).
_HEARD_S: Final = 0.05
#: Interval of queries to the processes (seconds).
INTERVAL_S: Final = 1.0
#: Time for operations in flight at the end, beyond the timeout of an operation. Too small: a busy machine fails; too large: a
#: stopped process delays the end.
DRAIN_S: Final = 10.0
#: Time without new counts after which no further operation is expected (seconds).
_SETTLED_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.05


@dataclass
class Interval:
    """The reports of all processes for one interval of a measurement."""

    reports: dict[Worker, WorkerReport]
    seconds: float = 0.0

    def count(self, side: str, name: str) -> int:
        """Return the sum of a count over the processes with a role."""
        return sum(report.counts.get(name, 0) for report in self.of(side))

    def errors(self) -> Counter[str]:
        """Return the number of failed operations by class of the error."""
        found: Counter[str] = Counter()
        for report in self.reports.values():
            found.update(report.errors)
        return found

    def durations(self, side: str, name: str) -> Durations:
        """Return the durations with a name, of all processes with a role."""
        return add_up(report.durations[name] for report in self.of(side) if name in report.durations)

    def add(self, later: Interval) -> None:
        """Extend this interval by the next interval."""
        self.seconds += later.seconds
        for worker, report in later.reports.items():
            self.reports[worker] = _add(self.reports.get(worker), report)

    def of(self, side: str) -> Iterable[WorkerReport]:
        """Return the reports of the processes with a role."""
        return (report for worker, report in self.reports.items() if worker.side == side)


@dataclass
class Course:
    """The reports of a whole measurement, added up in three intervals of constant size."""

    before: Interval
    """From the end of the warm-up to the first reports: excluded from rates and processor time, included in all else."""
    during: Interval = field(default_factory=lambda: Interval({}))
    """From the first reports to the end."""
    rest: Interval = field(default_factory=lambda: Interval({}))
    """From the end until all operations in flight have ended."""
    is_complete: bool = False
    """Whether the measurement was not ended early."""
    busy_s: float | None = None
    """Processor time that all programs of the machine used during the measurement (seconds); None if unknown."""

    @property
    def seconds(self) -> float:
        """Duration of the measurement, without the warm-up and the time after the end."""
        return self.during.seconds

    def count(self, side: str, name: str, *, with_rest: bool = False) -> int:
        """Return the sum of a count over the processes with a role.

        Args:
            side: The role.
            name: The name of the count.
            with_rest: Whether to count all operations, including those that ended after the end. Otherwise only the
                operations within :attr:`seconds`, as rates need.
        """
        return sum(each.count(side, name) for each in (self._all() if with_rest else [self.during]))

    def count_each(self, side: str, name: str) -> dict[Worker, int]:
        """Return a count by process, for the processes with a role, including operations that ended after the end."""
        found: Counter[Worker] = Counter()
        for each in self._all():
            for worker, report in each.reports.items():
                if worker.side == side:
                    found[worker] += report.counts.get(name, 0)
        return dict(found)

    def errors(self) -> Counter[str]:
        """Return the number of failed operations by class of the error, over the whole measurement."""
        return sum((each.errors() for each in self._all()), Counter())

    def durations(self, side: str, name: str) -> Durations:
        """Return the durations with a name, of all processes with a role.

        Operations that ended after the end are included: among them are the longest.
        """
        return add_up(each.durations(side, name) for each in self._all())

    def cpu_s(self, side: str) -> list[float]:
        """Return the processor time (seconds) of each process with a role during the measurement."""
        first, last = self.before.reports, self.during.reports
        return [(last[worker].cpu_ns - first[worker].cpu_ns) / 1e9 for worker in last if worker.side == side]

    def _all(self) -> list[Interval]:
        return [self.before, self.during, self.rest]


async def measure(
    crew: BenchCrew,
    *,
    warm_up_s: float,
    seconds: float,
    drain_s: float,
    stopped: asyncio.Future[int],
    on_interval: Callable[[Interval], None],
    look_on: Callable[[], Awaitable[None]] | None = None,
) -> Course:
    """Let the processes generate load, collect their reports, and return the sum of the reports.

    Args:
        crew: The processes, all ready.
        warm_up_s: Duration of the warm-up.
        seconds: Duration of the measurement.
        drain_s: How long to wait for operations in flight at the end.
        stopped: A future that ends the measurement early when it is done.
        on_interval: Called with the reports of each second.
        look_on: Queries the receivers in a running network, at the beginning and at the end; None without them.

    Raises:
        BenchFailed: A process has ended, or is silent.
    """
    begin_ns = time.monotonic_ns() + int((_HEARD_S + warm_up_s) * 1e9)
    end_ns = begin_ns + int(seconds * 1e9)
    begin = Begin(begin_ns, end_ns)
    passive = [worker for worker in crew.workers if not worker.makes_load]
    await asyncio.gather(*(worker.cue(begin) for worker in passive))
    await _look(passive)  # receivers must know the start of the measurement before the first operation arrives
    await asyncio.gather(*(worker.cue(begin) for worker in crew.workers if worker.makes_load))
    is_ended = await _wait_until(begin_ns, stopped)
    before, lasting = await _look(crew.workers)
    last_at_ns, next_ns = time.monotonic_ns(), begin_ns
    looking = asyncio.create_task(_look_on(look_on))  # external receivers may take long to answer
    course, busy_before = Course(Interval(before)), busy_s()
    while not is_ended and next_ns < end_ns:
        next_ns = min(end_ns, next_ns + int(INTERVAL_S * 1e9))
        if end_ns - next_ns < INTERVAL_S * 0.5e9:
            next_ns = end_ns  # one long interval is better than a too short one
        is_ended = await _wait_until(next_ns, stopped)
        reports, ended = await _look(crew.workers)
        lasting |= ended
        now_ns = time.monotonic_ns()
        interval = Interval(reports, (now_ns - last_at_ns) / 1e9)
        last_at_ns = now_ns
        course.during.add(interval)
        on_interval(interval)
    if busy_before is not None and (busy_now := busy_s()) is not None:
        course.busy_s = busy_now - busy_before
    await looking
    await _look_on(look_on)
    course.is_complete = not is_ended
    if not is_ended:
        makers = [worker for worker in crew.workers if worker.makes_load and worker not in lasting]
        course.rest = Interval(dict(zip(makers, await asyncio.gather(*(each.hear(drain_s) for each in makers)), strict=True)))
    return course


async def settle(crew: BenchCrew, course: Course, side: str, names: Sequence[str], expected: int) -> None:
    """Query the processes with a role until they have counted all operations, or the counts do not grow any more.

    Args:
        crew: The processes.
        course: The measurement, to which the counts are added.
        side: The role of the counting processes.
        names: The names of the counts.
        expected: The sum of these counts when all operations have been counted.
    """

    def count() -> int:
        return sum(course.count(side, name, with_rest=True) for name in names)

    counted, since = count(), time.monotonic()
    while counted < expected and time.monotonic() - since < _SETTLED_S:
        await asyncio.sleep(_LOOK_AGAIN_S)
        for worker in crew.of(side):
            await worker.cue(ReportCue())
            course.rest.add(Interval({worker: await worker.hear()}))
        before, counted = counted, count()
        if counted > before:
            since = time.monotonic()


async def _wait_until(at_ns: int, stopped: asyncio.Future[int]) -> bool:
    """Wait until a time, or until the measurement is ended early; return whether it was ended."""
    left_s = max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
    await asyncio.wait([stopped], timeout=left_s)
    return stopped.done()


async def _look(workers: Sequence[Worker]) -> tuple[dict[Worker, WorkerReport], set[Worker]]:
    """Query processes; return their reports, and the processes whose operations have all ended."""
    await asyncio.gather(*(worker.cue(ReportCue()) for worker in workers))
    reports = dict(zip(workers, await asyncio.gather(*map(_hear, workers)), strict=True))
    return reports, {worker for worker, report in reports.items() if report.is_last}


async def _hear(worker: Worker) -> WorkerReport:
    """Return the process's answer to a query. If its unrequested last report came first, return the sum of both."""
    report = await worker.hear()
    return _add(report, await worker.hear()) if report.is_last else report


async def _look_on(look_on: Callable[[], Awaitable[None]] | None) -> None:
    if look_on is not None:
        await look_on()


def _add(one: WorkerReport | None, other: WorkerReport) -> WorkerReport:
    """Return the sum of two successive reports of one process."""
    if one is None:
        return other
    names = one.durations.keys() | other.durations.keys()
    return WorkerReport(
        at_ns=other.at_ns,
        cpu_ns=other.cpu_ns,
        counts=dict(Counter(one.counts) + Counter(other.counts)),
        errors=dict(Counter(one.errors) + Counter(other.errors)),
        durations={name: add_up(each.durations.get(name, Durations()) for each in (one, other)) for name in names},
        is_last=one.is_last or other.is_last,
    )
