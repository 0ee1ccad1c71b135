"""When the reconciler runs which job: with an application that does as it is told, and a clock that stands still."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_connector.errors import ApplicationEnded
from spark_connector.executors.reconciler import (
    ELSEWHERE_RETRY_S,
    JOB_INTERVAL_S,
    JOB_PATIENCE_S,
    REPLACED_INTERVAL_S,
    REPLACED_S,
    RETRY_S,
    RETRY_S_MAX,
    SOON_S,
    Reconciler,
    ReconcilerCallbacks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: For what happens in another thread: long enough on any machine.
PATIENCE_S = 30.0


class Application:
    """An application.

    Attributes:
        live: The executors that it has.
        jobs: What each job was asked for.
        answer: Makes the row of an executor; None where Spark does not know it well enough.
        may_run: Set while jobs may end.
        gone: The executors that are leaving, though it still has them.
        unfit: Why some are not to be sent a task now.
        is_grown: Whether a job that waits makes Spark start executors.
        cancelled: The groups of jobs that were cancelled.
    """

    def __init__(self) -> None:
        self.live: list[str] = []
        self.is_over = False
        self.jobs: list[list[str]] = []
        self.answer: Callable[[str], Mapping[str, Any] | None] = lambda executor: {"wanted": executor, "executor": executor}
        self.may_run = threading.Event()
        self.may_run.set()
        self.gone: set[str] = set()
        self.unfit: dict[str, str] = {}
        self.is_grown = False
        self.cancelled: list[str] = []
        self.is_stopped = False

    def has_stopped(self) -> bool:
        return self.is_stopped

    def leaving(self, executors: Iterable[str]) -> set[str]:
        return self.gone.intersection(executors)

    def obstacles(self, executors: Iterable[str]) -> dict[str, str]:
        return {executor: self.unfit[executor] for executor in executors if executor in self.unfit}

    def is_growing(self, group: str) -> bool:
        return self.is_grown

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)
        self.may_run.set()

    def executors(self) -> list[str]:
        if self.is_over:
            raise ApplicationEnded
        return self.live

    def run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        asked = list(executors)
        self.jobs.append(asked)
        assert group.startswith("a group-")
        assert self.may_run.wait(PATIENCE_S)
        if group in self.cancelled:
            raise ValueError("the job was cancelled")
        return [row for executor in asked if (row := self.answer(executor)) is not None]


class Driver:
    """A driver that looks when a test says so.

    Attributes:
        members: The executors that have an agent.
        found: What agents have said.
        now: The time.
    """

    def __init__(self) -> None:
        self.application = Application()
        self.members: list[str] = []
        self.found: list[str] = []
        self.now = 100.0
        self.looks = 0
        self.interval = 0.2
        self.ended = threading.Event()
        self.refusal: str | None = None
        self.reconciler = Reconciler(
            self.application,
            "a group",
            self.interval,
            ReconcilerCallbacks(
                task=lambda: lambda rows: rows,
                members=lambda: self.members,
                found=self._find,
                looked=self._look,
                ended=self.ended.set,
            ),
            clock=lambda: self.now,
        )
        self._submitted: list[Any] = []
        submit = self.reconciler._jobs.submit

        def note(function: Callable[..., object], *args: object) -> Any:
            self._submitted.append(submit(function, *args))
            return self._submitted[-1]

        self.reconciler._jobs.submit = note  # type: ignore[method-assign, assignment] # of whatever function

    def look(self) -> list[list[str]]:
        """Look once, and wait for what comes of it; return the jobs that it took."""
        before = len(self.application.jobs)
        self.reconciler.look()
        for job in self._submitted:
            job.result(PATIENCE_S)
        return self.application.jobs[before:]

    def wait(self) -> None:
        """Wait for the jobs that were begun."""
        for job in self._submitted:
            job.result(PATIENCE_S)

    def look_only(self) -> list[list[str]]:
        """Look once; return the jobs that it began so far."""
        before = len(self.application.jobs)
        self.reconciler.look()
        return self.application.jobs[before:]

    def _find(self, row: Mapping[str, Any]) -> str | None:
        self.found.append(row["executor"])
        if self.refusal is None:
            self.members.append(row["executor"])
        return self.refusal

    def _look(self) -> None:
        self.looks += 1


def _comes(condition: Callable[[], bool]) -> bool:
    """Wait for a state that another thread brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.reconciler.stop()


def test_every_executor_without_an_agent_is_in_one_job(driver: Driver) -> None:
    driver.application.live, driver.members = ["1", "2", "3"], ["2"]

    assert driver.look() == [["1", "3"]]
    assert driver.found == ["1", "3"]
    assert driver.look() == []
    assert driver.looks == 2


def test_an_agent_that_died_is_replaced_at_the_next_look(driver: Driver) -> None:
    driver.application.live = ["1"]
    assert driver.look() == [["1"]]

    driver.members.remove("1")
    assert driver.look() == []  # it may have come back by itself: not tried more often than this
    driver.now += RETRY_S
    assert driver.look() == [["1"]]


def test_a_job_that_waits_for_a_slot_holds_up_nobody_else(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.may_run.clear()
    driver.reconciler.look()
    driver.now += RETRY_S
    driver.application.live = ["1", "2"]
    driver.reconciler.look()
    driver.application.may_run.set()
    driver.look()

    assert sorted(driver.application.jobs) == [["1"], ["2"]]
    assert sorted(driver.members) == ["1", "2"]


def test_what_fails_is_tried_again_more_and_more_rarely(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.answer = lambda executor: {"wanted": executor, "executor": executor, "error": "no disk"}
    delays = []
    for _ in range(7):
        assert driver.look() == [["1"]]
        began = driver.now
        while not driver.look():
            driver.now += 0.5
            assert driver.now < began + 2 * RETRY_S_MAX
        driver.application.jobs.clear()
        delays.append(driver.now - began)
        driver.now += RETRY_S_MAX
    assert delays[0] == 2 * RETRY_S or delays[0] == RETRY_S
    assert delays[-1] == RETRY_S_MAX
    assert driver.reconciler.reasons(["1", "9"]) == {"1": "no disk", "9": "its agent is being started"}

    driver.reconciler.hurry()
    assert driver.look() == [["1"]]


def test_a_task_that_does_not_know_where_it_ran_failed_where_it_should_have_run(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.answer = lambda executor: {"wanted": executor, "executor": None, "error": "no SparkEnv"}
    assert driver.look() == [["1"]]
    assert driver.reconciler.reasons(["1"]) == {"1": "no SparkEnv"}


def test_a_job_that_fails_because_the_cluster_is_closed_is_no_reason_to_warn(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.application.live = ["1"]
    driver.application.may_run.clear()
    driver.look_only()
    assert _comes(lambda: driver.application.jobs == [["1"]])
    driver.reconciler.stop()
    driver.wait()
    assert caplog.records == []


def test_an_agent_that_the_driver_cannot_use_is_no_member(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.refusal = "it is in another network"

    assert driver.look() == [["1"]]
    assert driver.reconciler.reasons(["1"]) == {"1": "it is in another network"}


def test_a_task_that_ran_elsewhere_is_of_use_there_and_tried_again_here(driver: Driver) -> None:
    driver.application.live = ["1", "2"]
    driver.application.answer = lambda executor: {"wanted": executor, "executor": "2"}

    assert driver.look() == [["1", "2"]]
    assert driver.reconciler.reasons(["1"]) == {"1": "it is busy, and its task ran elsewhere"}
    driver.application.answer = lambda executor: {"wanted": executor, "executor": executor}
    driver.now += ELSEWHERE_RETRY_S
    assert driver.look() == [["1"]]


def test_an_executor_that_is_not_fit_for_a_task_is_in_no_job(driver: Driver) -> None:
    driver.application.live = ["1", "2"]
    driver.application.unfit = {"1": "it is leaving"}

    assert driver.look() == [["2"]]
    assert driver.reconciler.reasons(["1"]) == {"1": "it is leaving"}
    driver.application.unfit.clear()
    assert driver.look() == []  # it is not asked about with each look
    driver.now += ELSEWHERE_RETRY_S
    assert driver.look() == [["1"]]


def test_a_job_that_waits_for_an_executor_that_is_leaving_is_cancelled(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark would start an executor for the task that waits. Whoever else was in the job is tried again at once."""
    driver.application.live = ["1", "2"]
    driver.application.may_run.clear()
    driver.reconciler.look()
    assert _comes(lambda: driver.application.jobs == [["1", "2"]])
    assert driver.look_only() == []
    assert driver.application.cancelled == []

    driver.application.gone, driver.application.unfit = {"1"}, {"1": "it is leaving"}
    driver.look()
    assert driver.application.cancelled == ["a group-1"]
    assert driver.look() == [["2"]]
    assert driver.members == ["2"]
    assert caplog.records == []  # nobody has done anything wrong


def test_a_job_that_makes_spark_start_executors_is_cancelled(driver: Driver) -> None:
    driver.application.live, driver.application.is_grown = ["1"], True
    driver.application.may_run.clear()
    driver.reconciler.look()
    assert _comes(lambda: driver.application.jobs == [["1"]])
    driver.now += JOB_PATIENCE_S - 0.01
    driver.look_only()
    assert driver.application.cancelled == []  # it may just be about to begin

    driver.now += 0.01
    driver.look()
    assert driver.application.cancelled == ["a group-1"]


def test_it_looks_often_while_a_job_may_wait_in_vain(driver: Driver) -> None:
    driver.reconciler._interval = 10 * PATIENCE_S
    driver.application.live = ["1"]
    driver.application.may_run.clear()
    driver.reconciler.look()
    assert _comes(lambda: driver.application.jobs == [["1"]])

    assert driver.reconciler.delay() == JOB_INTERVAL_S < 1 - JOB_PATIENCE_S  # after one second Spark starts an executor
    driver.application.may_run.set()


def test_jobs_that_run_are_cancelled_at_the_end(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.may_run.clear()
    driver.reconciler.look()
    assert _comes(lambda: driver.application.jobs == [["1"]])
    driver.reconciler.stop()

    assert driver.application.cancelled == ["a group-1"]


def test_tries_that_fail_let_spark_remove_the_executor_for_being_idle(driver: Driver) -> None:
    driver.reconciler._retry_s_max = 2 * RETRY_S_MAX
    driver.application.live = ["1"]
    driver.application.answer = lambda executor: {"wanted": executor, "executor": executor, "error": "no disk"}
    for _ in range(7):
        driver.look()
        driver.now += 2 * RETRY_S_MAX
    driver.look()
    driver.now += 2 * RETRY_S_MAX - 1
    assert driver.look() == []
    driver.now += 1
    assert driver.look() == [["1"]]


def test_an_executor_that_spark_does_not_know_yet_is_tried_at_the_next_look(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.answer = lambda _executor: None
    assert driver.look() == [["1"]]

    driver.application.answer = lambda executor: {"wanted": executor, "executor": executor}
    assert driver.look() == [["1"]]
    assert driver.members == ["1"]


def test_it_looks_sooner_when_something_is_to_be_done_soon(driver: Driver) -> None:
    driver.application.live = ["1"]
    driver.application.answer = lambda executor: {"wanted": executor, "executor": "2"}
    driver.look()
    assert driver.reconciler.delay() == pytest.approx(driver.interval)  # at the next look, and no sooner

    driver.now += ELSEWHERE_RETRY_S - SOON_S - 0.01
    assert SOON_S <= driver.reconciler.delay() < driver.interval
    driver.now += 10
    assert driver.reconciler.delay() == SOON_S


def test_what_a_job_has_left_undone_is_tried_soon_whatever_the_interval(driver: Driver) -> None:
    """Spark registers an executor some moments before it says where that is."""
    tried = threading.Event()

    def answer(executor: str) -> Mapping[str, Any] | None:
        if len(driver.application.jobs) < 3:
            return None
        tried.set()
        return {"wanted": executor, "executor": executor}

    driver.application.answer = answer
    driver.application.live = ["1"]
    driver.reconciler._interval = 10 * PATIENCE_S
    driver.reconciler.start()

    assert tried.wait(PATIENCE_S)


def test_it_looks_more_often_for_a_while_when_an_executor_was_lost(driver: Driver) -> None:
    driver.application.live = ["1", "2"]
    driver.look()
    assert driver.reconciler.delay() == driver.interval

    driver.application.live = ["2"]
    driver.look()
    assert driver.reconciler.delay() == REPLACED_INTERVAL_S < driver.interval
    driver.now += REPLACED_S / 2
    driver.application.live = ["2", "3"]
    driver.look()
    assert driver.reconciler.delay() == REPLACED_INTERVAL_S
    driver.now += REPLACED_S / 2
    driver.look()
    assert driver.reconciler.delay() == driver.interval


def test_hurry_does_not_wait_for_the_next_look(driver: Driver) -> None:
    driver.refusal = "not yet"
    driver.application.live = ["1"]
    driver.reconciler._interval = 10 * PATIENCE_S
    driver.reconciler.start()
    assert _comes(lambda: driver.reconciler.reasons(["1"]) == {"1": "not yet"})
    driver.refusal = None
    driver.reconciler.hurry()

    assert _comes(lambda: driver.members == ["1"])


def test_a_job_that_fails_is_a_reason_and_not_the_end(driver: Driver) -> None:
    def fail(_executor: str) -> None:
        raise ValueError("first line\n\tat java.lang.Thread.run")

    driver.application.live = ["1"]
    driver.application.answer = fail
    assert driver.look() == [["1"]]
    assert driver.reconciler.reasons(["1"]) == {"1": "the Spark job that starts its agent failed: first line"}


def test_it_survives_every_error_and_ends_with_the_application(driver: Driver) -> None:
    looked = threading.Event()

    def fail() -> None:
        looked.set()
        raise ValueError("a bug")

    driver.reconciler._callbacks = replace(driver.reconciler._callbacks, looked=fail)
    driver.reconciler.start()
    for _ in range(3):
        looked.clear()
        assert looked.wait(PATIENCE_S)
    assert not driver.ended.is_set()

    driver.application.is_over = True
    assert driver.ended.wait(PATIENCE_S)


def test_what_takes_long_is_done_in_another_thread(driver: Driver) -> None:
    """So does the driver give a laggard the handler of today."""
    done: list[tuple[object, ...]] = []
    ended = threading.Event()

    def update(*arguments: object) -> None:
        done.append((threading.current_thread() is threading.main_thread(), arguments))
        ended.set()

    driver.reconciler.submit(update, "order", {"executor"})
    assert ended.wait(PATIENCE_S)
    assert done == [(False, ("order", {"executor"}))]
