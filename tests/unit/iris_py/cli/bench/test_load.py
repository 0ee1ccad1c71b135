"""Load: each operation is begun once, and a rhythm hides nothing that stands still."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.cli.bench import load as module
from iris_py.cli.bench.latency_histogram import bucket_of
from iris_py.cli.bench.load import FAILURE_PAUSE_S, Load, OperationTally
from iris_py.errors import RequestTimeout
from iris_py.testing import clock

if TYPE_CHECKING:
    from iris_py.cli.bench.messages import WorkerReport

MS = 1_000_000
#: How long a load goes on.
LENGTH_NS = 60 * MS
#: A busy machine may stand still for longer than a load goes on. So what is due may begin for as long after the end.
GRACE_NS = 60_000 * MS


class Clock:
    """The clock of the machine, which a test may advance."""

    def __init__(self) -> None:
        self.skipped_ns = 0
        self.process_time_ns, self.sleep = time.process_time_ns, time.sleep

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.skipped_ns


class VirtualClock(Clock):
    """The clock of the running event loop; in the thread of a load that has ended, that of the machine."""

    def monotonic_ns(self) -> int:
        try:
            return round(asyncio.get_running_loop().time() * 1e9)
        except RuntimeError:
            return super().monotonic_ns()


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Clock:
    machine = Clock()
    monkeypatch.setattr(module, "time", machine)
    monkeypatch.setattr(module, "GRACE_NS", GRACE_NS)
    return machine


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a load without a rhythm, and so without a thread, have virtual time."""
    monkeypatch.setattr(module, "time", VirtualClock())
    monkeypatch.setattr(asyncio, "run", clock.run)


def now_ns() -> int:
    """Return the time of the load."""
    return cast("int", vars(module)["time"].monotonic_ns())


class Service:
    """Notes who asks, and stands still once.

    Args:
        still_s: How long the first one that counts takes.
        each_s: How long each other one takes.
        is_failing: Whether all others fail.
    """

    def __init__(self, still_s: float = 0.0, *, each_s: float = 0.0, is_failing: bool = False) -> None:
        self.begin_ns = 0
        self.started_ns = 0
        self.asked: list[tuple[int, int]] = []
        self.stood_ns = 0
        self._still_s = still_s
        self._each_s = each_s
        self._is_failing = is_failing

    async def operate(self, number: int, began_ns: int) -> int:
        self.asked.append((number, began_ns))
        if self._still_s and len(self.asked) == 1:
            self.started_ns = now_ns()
            await asyncio.sleep(self._still_s)
            self.stood_ns = now_ns() - self.started_ns
        elif self._is_failing:
            raise RequestTimeout("cluster", 1.0, "")
        await asyncio.sleep(self._each_s)
        return now_ns()


def run(service: Service, *, callers: int, interval_ns: int, warm_up_ns: int = 0, length_ns: int = LENGTH_NS) -> WorkerReport:
    tally = OperationTally()

    async def main() -> WorkerReport:
        load = Load(service.operate, tally, callers=callers, interval_ns=interval_ns, offset_ns=0)
        service.begin_ns = begin_ns = now_ns() + warm_up_ns
        await load.run(begin_ns, begin_ns + length_ns)
        return tally.take(is_last=True)

    return asyncio.run(main())


def count_of(report: WorkerReport, name: str) -> int:
    """Return a count, which is left out where it is nothing: a pause of the machine may be longer than a load goes on."""
    return report.counts.get(name, 0)


def measured(report: WorkerReport, name: str) -> int:
    """Return how many durations there are of a kind."""
    return report.durations[name].count if name in report.durations else 0


def test_a_rhythm_begins_each_once_and_when_it_is_due() -> None:
    service = Service()
    report = run(service, callers=8, interval_ns=2 * MS)
    due = [began_ns for _, began_ns in service.asked]
    assert sorted(due) == [service.begin_ns + place * 2 * MS for place in range(30)]
    assert (count_of(report, "begun"), count_of(report, "unbegun")) == (30, 0)
    assert {count_of(report, "done"), measured(report, "operation"), measured(report, "lateness")} == {30}


def test_who_was_to_begin_while_all_stood_still_has_waited() -> None:
    """Of one caller each operation waits for the one before. What began late took long: no coordinated omission."""
    service = Service(still_s=0.03)
    report = run(service, callers=1, interval_ns=MS)
    taken = report.durations["operation"]
    assert taken.max_ns >= service.stood_ns
    late = sum(count for bucket, count in taken.buckets if bucket > bucket_of(5 * MS))
    # It stands still for longer on a busy machine, and nothing is due any more after the end.
    due_ns = min(service.stood_ns, service.begin_ns + LENGTH_NS - service.started_ns)
    assert late >= due_ns // MS - 7, "those that were due while it stood still waited, too"
    assert report.durations["lateness"].max_ns > 20 * MS
    assert count_of(report, "begun") == 60


def test_what_nobody_came_to_is_counted(machine: Clock) -> None:
    class Late(Service):
        """A service whose first operation ends long after the load."""

        async def operate(self, number: int, began_ns: int) -> int:
            machine.skipped_ns += LENGTH_NS + GRACE_NS
            return await super().operate(number, began_ns)

    report = run(Late(), callers=1, interval_ns=MS)
    assert (report.counts["begun"], report.counts["unbegun"]) == (1, 59)


def test_the_warm_up_does_not_count() -> None:
    for interval_ns in (0, 2 * MS):
        service = Service()
        report = run(service, callers=2, interval_ns=interval_ns, warm_up_ns=20 * MS, length_ns=20 * MS)
        assert count_of(report, "begun") == sum(began_ns >= service.begin_ns for _, began_ns in service.asked)
        assert measured(report, "operation") == count_of(report, "done") == count_of(report, "begun")


@pytest.mark.usefixtures("virtual")
def test_a_loop_has_as_many_under_way_as_there_are_callers() -> None:
    service = Service(each_s=0.001)
    report = run(service, callers=3, interval_ns=0)
    assert {number for number, _ in service.asked[:3]} == {0, 1, 2}
    assert report.counts["done"] == len(service.asked) == 3 * LENGTH_NS // MS
    assert "unbegun" not in report.counts
    assert "lateness" not in report.durations


@pytest.mark.usefixtures("virtual")
def test_failures_are_counted_by_their_class_and_do_not_spin() -> None:
    service = Service(is_failing=True)
    report = run(service, callers=1, interval_ns=0)
    assert report.errors == {"RequestTimeout": len(service.asked)}
    assert report.counts["done"] == 0
    assert len(service.asked) == LENGTH_NS // round(FAILURE_PAUSE_S * 1e9), "a caller rests after a failure"
