"""The course of a measurement: warm-up, a look at every process once a second, and the operations left at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.cli.bench.messages import Begin, Look, Report
from iris_py.cli.bench.percentiles import Durations, add_up
from iris_py.cli.bench.plan import busy_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from iris_py.cli.bench.crew import Crew, Worker

__all__ = ["DRAIN_S", "Course", "Interval", "measure", "settle"]

#: Time from the cue to begin until all processes have received it.
_HEARD_S: Final = 0.05
#: Interval of looks.
INTERVAL_S: Final = 1.0
#: Time for operations in flight at the end, beyond the timeout of an operation. Too small: a busy machine fails; too large: a
#: stopped process delays the end.
DRAIN_S: Final = 10.0
#: Time without new counts after which a side is considered done.
_SETTLED_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.05


@dataclass
class Interval:
    """The time between two looks, or after the last."""

    reports: dict[Worker, Report]
    seconds: float = 0.0

    def count(self, side: str, name: str) -> int:
        """Return a count of one side."""
        return sum(report.counts.get(name, 0) for report in self.of(side))

    def errors(self) -> Counter[str]:
        """Return the failed operations, by class of the error."""
        found: Counter[str] = Counter()
        for report in self.reports.values():
            found.update(report.errors)
        return found

    def durations(self, side: str, name: str) -> Durations:
        """Return the durations of one side."""
        return add_up(report.durations[name] for report in self.of(side) if name in report.durations)

    def add(self, later: Interval) -> None:
        """Append the next interval."""
        self.seconds += later.seconds
        for worker, report in later.reports.items():
            self.reports[worker] = _add(self.reports.get(worker), report)

    def of(self, side: str) -> Iterable[Report]:
        """Return the reports of one side."""
        return (report for worker, report in self.reports.items() if worker.side == side)


@dataclass
class Course:
    """The sum of all reports, of constant size."""

    before: Interval
    """Until the first look: rates and processor time count from then on, all else from the beginning."""
    during: Interval = field(default_factory=lambda: Interval({}))
    """From the first look to the end."""
    rest: Interval = field(default_factory=lambda: Interval({}))
    """The time after the end, until all operations begun before have ended."""
    is_complete: bool = False
    """Whether the measurement was not ended early."""
    busy_s: float | None = None
    """Busy time of the machine's processors, for any program."""

    @property
    def seconds(self) -> float:
        """Duration of the measurement."""
        return self.during.seconds

    def count(self, side: str, name: str, *, with_rest: bool = False) -> int:
        """Return a count of one side.

        Args:
            side: The side.
            name: The name of the count.
            with_rest: Whether to count from beginning to end, including operations that ended later. Otherwise within
                :attr:`seconds`, for rates.
        """
        return sum(each.count(side, name) for each in (self._all() if with_rest else [self.during]))

    def count_each(self, side: str, name: str) -> dict[Worker, int]:
        """Return a count of each process of a side, between beginning and end."""
        found: Counter[Worker] = Counter()
        for each in self._all():
            for worker, report in each.reports.items():
                if worker.side == side:
                    found[worker] += report.counts.get(name, 0)
        return dict(found)

    def errors(self) -> Counter[str]:
        """Return the failed operations, by class of the error."""
        return sum((each.errors() for each in self._all()), Counter())

    def durations(self, side: str, name: str) -> Durations:
        """Return all durations of one side, including operations that ended after the end, or the longest would be missing."""
        return add_up(each.durations(side, name) for each in self._all())

    def cpu_s(self, side: str) -> list[float]:
        """Return the processor time of each process of a side."""
        first, last = self.before.reports, self.during.reports
        return [(last[worker].cpu_ns - first[worker].cpu_ns) / 1e9 for worker in last if worker.side == side]

    def _all(self) -> list[Interval]:
        return [self.before, self.during, self.rest]


async def measure(
    crew: Crew,
    *,
    warm_up_s: float,
    seconds: float,
    drain_s: float,
    stopped: asyncio.Future[int],
    on_interval: Callable[[Interval], None],
    look_on: Callable[[], Awaitable[None]] | None = None,
) -> Course:
    """Let the processes generate load, and collect their reports.

    Args:
        crew: The processes, all ready.
        warm_up_s: Duration of the warm-up.
        seconds: Duration of the measurement.
        drain_s: How long to wait for operations in flight at the end.
        stopped: Ends the measurement early.
        on_interval: Called with each second.
        look_on: Queries external receivers, at the beginning and at the end.

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


async def settle(crew: Crew, course: Course, side: str, names: Sequence[str], expected: int) -> None:
    """Query one side until it has counted all operations, or no more arrive.

    Args:
        crew: The processes.
        course: Receives the counts.
        side: The counting side.
        names: The names of the counts, which are added up.
        expected: The expected sum.
    """

    def count() -> int:
        return sum(course.count(side, name, with_rest=True) for name in names)

    counted, since = count(), time.monotonic()
    while counted < expected and time.monotonic() - since < _SETTLED_S:
        await asyncio.sleep(_LOOK_AGAIN_S)
        for worker in crew.of(side):
            await worker.cue(Look())
            course.rest.add(Interval({worker: await worker.hear()}))
        before, counted = counted, count()
        if counted > before:
            since = time.monotonic()


async def _wait_until(at_ns: int, stopped: asyncio.Future[int]) -> bool:
    """Wait until a time; return whether the measurement was ended before."""
    left_s = max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
    await asyncio.wait([stopped], timeout=left_s)
    return stopped.done()


async def _look(workers: Sequence[Worker]) -> tuple[dict[Worker, Report], set[Worker]]:
    """Return the reports of processes, and the processes whose operations have all ended."""
    await asyncio.gather(*(worker.cue(Look()) for worker in workers))
    reports = dict(zip(workers, await asyncio.gather(*map(_hear, workers)), strict=True))
    return reports, {worker for worker, report in reports.items() if report.is_last}


async def _hear(worker: Worker) -> Report:
    """Return the answer to a look, combined with the process's last report if that came first."""
    report = await worker.hear()
    return _add(report, await worker.hear()) if report.is_last else report


async def _look_on(look_on: Callable[[], Awaitable[None]] | None) -> None:
    if look_on is not None:
        await look_on()


def _add(one: Report | None, other: Report) -> Report:
    """Return the sum of two reports of one process."""
    if one is None:
        return other
    names = one.durations.keys() | other.durations.keys()
    return Report(
        at_ns=other.at_ns,
        cpu_ns=other.cpu_ns,
        counts=dict(Counter(one.counts) + Counter(other.counts)),
        errors=dict(Counter(one.errors) + Counter(other.errors)),
        durations={name: add_up(each.durations.get(name, Durations()) for each in (one, other)) for name in names},
        is_last=one.is_last or other.is_last,
    )
