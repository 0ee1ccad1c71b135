"""Dynamic allocation down to no executor at all: the agents keep none alive, and start none."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark_standalone import start_standalone
from iris_security import Secret
from spark_connector import ExecutorCluster, Network
from tests.spark.driving import Driver, State, start_session, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import iris_py.sync as iris

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

SECRET = Secret.generate(os.urandom).text
#: How often the driver looks at its executors without a job, before it is believed that it starts none: some ten seconds.
LOOKS = 200
LOOK_INTERVAL_S = 0.05
#: Spark's settings: no executor is kept, and one is idle soon. What they wrote for shuffles does not hold them.
ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}


def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of a cluster ``etl`` that has no executor unless a job needs one."""
    home = tmp_path_factory.mktemp("allocation") / "home"
    made = Driver(home, sys.modules[__name__])
    try:
        made(lambda state: begin(state, home))
        yield made
    finally:
        for pid in made.processes():
            with suppress(ProcessLookupError):  # without work it may have ended by itself just now
                os.kill(pid, signal.SIGKILL)
        made.close()


def begin(state: State, home: Path) -> None:
    stack = state.data["stack"] = ExitStack()
    url, _workers = start_standalone(stack, home, "--cores", "1", "--memory", "1200m")
    state.spark = start_session(home, url, **ALLOCATION)
    network = Network(secret=SECRET, discovery=False, listen="127.0.0.1:0")
    state.cluster = ExecutorCluster(state.spark, "etl", echo, network=network, poll=0.05)


def sleep(state: State, tasks: int, seconds: float) -> None:
    state.spark.sparkContext.parallelize(range(tasks), tasks).foreach(lambda _: time.sleep(seconds))


def meet(state: State, marks: Path) -> None:
    """Run two tasks that last until both have begun, so on two executors, however long it takes to start these."""

    def begin_and_wait(number: int) -> None:
        (marks / str(number)).touch()
        deadline = time.monotonic() + 100
        while len(list(marks.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)

    marks.mkdir()
    state.spark.sparkContext.parallelize(range(2), 2).foreach(begin_and_wait)


def work(state: State, marks: Path) -> list[str]:
    """Run a job of two tasks; return which executors are members behind it, when they have slots for their agents."""
    thread = threading.Thread(target=meet, args=(state, marks))
    thread.start()
    members = state.cluster.wait(2, timeout=90.0)
    thread.join(60)
    return sorted(members)


def watch(state: State) -> int:
    """Wait until there are no executors; then look many times, and return the most that there were."""
    executors = state.cluster._application.executors
    until(lambda: not executors())
    most = 0
    for _ in range(LOOKS):
        time.sleep(LOOK_INTERVAL_S)
        most = max(most, len(executors()))
    return most


def test_without_a_job_no_executor_stays_and_none_is_started(driver: Driver, tmp_path: Path) -> None:
    first = driver(partial(work, marks=tmp_path / "first"))
    assert driver(watch) == 0
    # Spark numbers executors as they come: so there was none between.
    assert (first, driver(partial(work, marks=tmp_path / "second"))) == (["0", "1"], ["2", "3"])


def test_an_agent_that_waits_for_the_slot_of_its_executor_starts_no_other_executor(driver: Driver) -> None:
    def work_alone(state: State) -> int:
        executors = state.cluster._application.executors
        until(lambda: not executors())
        thread = threading.Thread(target=sleep, args=(state, 1, 8.0))
        thread.start()
        most = 0
        while thread.is_alive():
            thread.join(LOOK_INTERVAL_S)
            most = max(most, len(executors()))
        state.cluster.wait(1)  # after the task, of which it took the slot
        return most

    assert driver(work_alone) == 1
