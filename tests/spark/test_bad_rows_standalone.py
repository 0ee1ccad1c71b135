"""A row that ends its members, in a job on a standalone Spark with two workers: it costs two, however often Spark tries.

Each task may be run four times, as is Spark's default, on either executor; in another test two copies of a task run at the same
time. The members are processes, and end in each of the ways in which a handler may end one.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext

from benchmarks.spark_standalone import start_standalone
from spark_connector import dispatch
from tests.spark.driving import Driver, DriverFailed, State, start_session
from tests.spark.mortals import EXIT_CODES, ended, start_members

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Literal

    import pyarrow as pa

    from spark_connector import Network
    from tests.spark.mortals import StartMembers
    from tests.spark.services import Service

    OnError = Literal["raise", "column"]
    #: Row, twice its number, error.
    Found = list[tuple[int, int | None, str | None]]

__all__ = ["start_members"]

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(400)]

PARTITIONS = 2
ROWS = 8000
#: In the second partition, in the third of its batches of 1,000.
BAD = 6543
BAD_PARTITION = 1
MEMBERS = 6
ATTEMPTS = 4
#: How long one of two copies waits for the other one (seconds): long enough on any machine.
PATIENCE_S = 100.0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver beside a standalone Spark of two workers."""
    home = tmp_path_factory.mktemp("mortal") / "home"
    made = Driver(home, sys.modules[__name__])
    try:
        made(lambda state: begin(state, home))
        yield made
        made(end)
    finally:
        made.close()


def begin(state: State, home: Path) -> None:
    stack = state.data["stack"] = ExitStack()
    state.data["home"] = home
    state.data["url"], _workers = start_standalone(stack, home, "--cores", "1", "--memory", "1200m")


def end(state: State) -> None:
    state.spark.stop()
    state.data["stack"].close()


def use_session(state: State, *, speculation: bool) -> None:
    """Let the driver have a session of two executors, with or without speculation."""
    wanted = str(speculation).lower()
    if hasattr(state, "spark"):
        if state.spark.conf.get("spark.speculation") == wanted:
            return
        state.spark.stop()
    settings = {
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.task.maxFailures": str(ATTEMPTS),
        "spark.speculation": wanted,
        "spark.speculation.quantile": "0.5",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
    }
    state.spark = start_session(state.data["home"], state.data["url"], **settings)


def ask(state: State, network: Network, marks: Path, on_error: OnError, *, copies: int) -> Found:
    """Dispatch all rows; attempts of the partition with the bad row leave marks, and begin when there are so many."""

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == BAD_PARTITION:
            (marks / str(context.attemptNumber())).touch()
            deadline = time.monotonic() + PATIENCE_S
            while len(list(marks.iterdir())) < copies:
                assert time.monotonic() < deadline, "no copy of the task has begun"
                time.sleep(0.01)
        yield from batches

    rows = state.spark.range(0, ROWS, 1, PARTITIONS).mapInArrow(mark, "id bigint")
    asked = dispatch(
        rows, "mortal", mode="batches", schema="twice bigint", id="id", on_error=on_error, name=marks.name, network=network
    )
    return [(row["id"], row["twice"], row["error"] if on_error == "column" else None) for row in asked.collect()]


def run(driver: Driver, service: Service, marks: Path, on_error: OnError, *, copies: int = 1) -> Found:
    marks.mkdir()
    driver(lambda state: use_session(state, speculation=copies > 1))
    network = service.network
    return driver(lambda state: ask(state, network, marks, on_error, copies=copies))


def check(found: Found) -> None:
    """See that every row has its reply but the bad one, whose error names it and the two members that it cost."""
    (error,) = [text for _number, _twice, text in found if text is not None]
    assert found == [(row, 2 * row, None) if row != BAD else (BAD, None, error) for row in range(ROWS)]
    assert f"the request about id={BAD} with key" in error
    assert "2 members (" in error


WAYS = pytest.mark.parametrize("way", ["kill", "exit", "memory"])


@WAYS
def test_all_other_rows_come_and_two_members_end(
    driver: Driver, service: Service, start_members: StartMembers, tmp_path: Path, way: str
) -> None:
    members = start_members(BAD, way, MEMBERS)
    check(run(driver, service, tmp_path / f"column-{way}", "column"))
    assert ended(members) == [EXIT_CODES[way]] * 2


@WAYS
def test_a_job_that_fails_after_four_attempts_names_the_row_and_two_members_end(
    driver: Driver, service: Service, start_members: StartMembers, tmp_path: Path, way: str
) -> None:
    members = start_members(BAD, way, MEMBERS)
    marks = tmp_path / f"raise-{way}"
    with pytest.raises(DriverFailed, match=rf"the request about id={BAD} with key .* it was lost with 2 members \("):
        run(driver, service, marks, "raise")
    assert {path.name for path in marks.iterdir()} == {str(attempt) for attempt in range(ATTEMPTS)}
    assert ended(members) == [EXIT_CODES[way]] * 2


@pytest.mark.parametrize("way", ["kill", "memory"])
def test_two_copies_of_a_task_end_two_members_together(
    driver: Driver, service: Service, start_members: StartMembers, tmp_path: Path, way: str
) -> None:
    members = start_members(BAD, way, MEMBERS)
    check(run(driver, service, tmp_path / f"copies-{way}", "column", copies=2))
    assert ended(members) == [EXIT_CODES[way]] * 2
