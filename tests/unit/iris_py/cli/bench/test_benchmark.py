"""Warnings beside the figures, and how the figures are shown: on courses that are made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli.bench.benchmark import find_warnings
from iris_py.cli.bench.latency_histogram import Recording
from iris_py.cli.bench.measurement import Course, Interval
from iris_py.cli.bench.messages import WorkerReport
from iris_py.cli.bench.plan import BenchMachine, make_plan
from iris_py.cli.bench.report import Fact, describe_interval, print_summary
from iris_py.cli.bench.summaries import IntervalLine, Percentiles, Receiver, RequestsBenchSummary, Side, percentiles_of
from iris_py.cli.output import Output
from iris_py.cli.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.cli.bench.latency_histogram import Durations

MS = 1_000_000


class MadeUpWorker:
    """Has a side, and no process."""

    side = "caller"


def durations_of(*values_ns: int) -> Durations:
    recording = Recording()
    recording.extend(list(values_ns))
    return recording.take()


def course_of(lateness_ns: int = 0, errors: int = 0, **counts: int) -> Course:
    report = WorkerReport(
        at_ns=0,
        cpu_ns=0,
        counts=counts,
        errors={"RequestTimeout": errors} if errors else {},
        durations={"lateness": durations_of(lateness_ns)},
    )
    worker: Any = MadeUpWorker()
    return Course(Interval({}), Interval({worker: report}, seconds=1.0))


def machine_of(**values: Any) -> BenchMachine:
    usual = {"model": "", "system": "Linux", "python": "CPython", "iris": "1", "cryptography": "1", "load_before": 0.0}
    return BenchMachine(**{"processors": 4, "event_loop": "uvloop 1", **usual, **values})


def side_of(busiest_cpu: float) -> Side:
    return Side(side="caller", processes=1, cpu_s=1.0, busiest_cpu=busiest_cpu, cpu_us_per_message=20.0)


def warnings_of(
    course: Course | None = None,
    machine: BenchMachine | None = None,
    busiest_cpu: float = 0.5,
    silent: int = 0,
    **options: Any,
) -> list[str]:
    course = course or course_of(begun=1000, done=1000)
    plan = make_plan(Settings(), **{"against": None, "receivers": None, "receivers_option": "--members", **options})
    return find_warnings(
        plan,
        course,
        [side_of(busiest_cpu)],
        machine or machine_of(),
        maker="caller",
        unit="request",
        counted=course.count("caller", "done", with_rest=True),
        silent=silent,
    )


def test_nothing_is_said_of_a_good_measurement() -> None:
    assert warnings_of() == []
    assert warnings_of(rate=1000.0) == []
    assert warnings_of(course_of(begun=5000, done=5000, unbegun=5, lateness_ns=MS), rate=5000.0) == []


@pytest.mark.parametrize(
    ("warned", "words"),
    [
        ({"busiest_cpu": 0.96}, "no processor time left (96%)"),
        ({"receivers": 4}, "5 processes share 4 processors"),
        ({"machine": machine_of(others_cpu=1.2)}, "other programs used 1.2 of 4 processors"),
        ({"machine": machine_of(load_before=3.0)}, "busy before (a load of 3)"),
        ({"machine": machine_of(event_loop="asyncio")}, "uvloop is not installed"),
        ({"course": course_of(begun=900, done=900, unbegun=100), "rate": 1000.0}, "100 of 1,000 did not begin"),
        ({"course": course_of(begun=9, done=9, lateness_ns=3 * MS), "rate": 9.0}, "some of the load began late"),
        ({"course": course_of(begun=100, done=99, errors=1)}, "1 of 100 failed"),
        ({"course": course_of()}, "no request both began after the warm-up and ended"),
        ({"silent": 2}, "2 of the receivers have not reported"),
    ],
)
def test_what_spoils_a_measurement_is_said(warned: dict[str, Any], words: str) -> None:
    (text,) = warnings_of(**warned)
    assert words in text


def test_load_of_a_network_that_runs_is_not_that_of_others() -> None:
    assert warnings_of(machine=machine_of(others_cpu=4.0), against="upper") == []


def summary_of(**values: Any) -> RequestsBenchSummary:
    usual: dict[str, Any] = {
        "against": None,
        "size": 1024,
        "processes": 1,
        "rate": 100.0,
        "seconds": 1.0,
        "warm_up_s": 0.5,
        "is_complete": True,
        "begun": 100,
        "unbegun": 0,
        "errors": {},
        "messages_per_s": 100.0,
        "bytes_per_s": 102400.0,
        "lateness": percentiles_of(durations_of(MS)),
        "sides": [side_of(0.5)],
        "receivers": [Receiver(id="ab" * 16, address="127.0.0.1:1", messages=100, share=1.0)],
        "machine": machine_of(others_cpu=0.25),
        "warnings": [],
        "concurrency": 4,
        "members": 1,
        "reply_size": 1024.0,
        "replies": 100,
        "round_trip": percentiles_of(durations_of(MS)),
    }
    return RequestsBenchSummary(**usual | values)


def shown(tmp_path: Path, summary: RequestsBenchSummary) -> str:
    path = tmp_path / "shown"
    with Output(as_json=False, path=path) as output:
        print_summary(output, [Fact("rate", "100 requests/s")], summary)
    return path.read_text()


def test_the_end_is_shown_in_rows(tmp_path: Path) -> None:
    text = shown(tmp_path, summary_of())
    rows = {name: text.strip() for name, _, text in (line.partition("  ") for line in text.splitlines())}
    assert rows["rate"] == "100 requests/s"
    assert rows["errors"] == "none"
    assert rows["machine"].startswith("4 processors, 0.25 of them used by others, load 0 before; Linux")
    assert rows["begun late"].startswith("p50 1 ms, p90 1 ms")
    assert rows["cpu caller"] == "20 us each, 50% of a processor (1 process)"
    assert rows["at abababab"] == "100.0% (100)"
    assert "ended early" not in rows


def test_errors_and_an_early_end_are_shown(tmp_path: Path) -> None:
    text = shown(tmp_path, summary_of(errors={"MemberLost": 2, "RequestTimeout": 1500}, is_complete=False, unbegun=7))
    assert "1,500 RequestTimeout, 2 MemberLost" in text
    assert "ended early  after 1.0 s" in text
    assert "not begun    7" in text


def test_a_second_is_shown_beside_the_bar() -> None:
    line = IntervalLine(
        second=1,
        seconds=1.0,
        messages=1200,
        messages_per_s=1200.4,
        bytes_per_s=0.0,
        errors={"RequestTimeout": 3},
        latency=Percentiles(count=1, p99_s=0.002),
    )
    assert describe_interval(line, "request") == "1,200 requests/s, p99 2 ms, 3 failed"
