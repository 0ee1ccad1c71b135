"""Sees that every executor has an agent: looks twice a second which lack one, and runs a Spark job for these.

Theory of operation. One thread looks. Jobs run in threads of their own, for a job may wait for a slot as long as the jobs of
the user take, and must not keep the next look from seeing the next executor. An executor is in one job at a time, and is tried
again after a while; longer each time if what its agent says is an error. What comes of a job is handed on, and whatever fails
is logged and tried again: nothing but the end of the application ends this. The end is seen within half a second, however
rarely executors are looked for, so that the driver's node does not outlive the application.

With dynamic allocation a task that waits makes Spark start executors, and one that runs keeps its executor from being idle. So
no job is run for an executor that is leaving or busy, and when one becomes so while its job waits for it, the job is cancelled,
before Spark takes the waiting task for a need.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from iris_py.connector import DaemonThreads, EventLogger
from spark_connector.errors import ApplicationEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Reconciler", "Spark"]

logger = EventLogger("spark_connector")

Arguments = ParamSpec("Arguments")

#: How long after a try the next one is. A task on an idle executor takes less.
RETRY_S = 3.0
#: The same after a task that ran elsewhere. Spark waits 3 s for the executor that was asked for, and not at all for one that
#: has just been registered and was offered no task yet; then it runs the task wherever there is a slot.
ELSEWHERE_RETRY_S = 0.5
#: The least time between two looks, where somebody is to be tried. A look takes a millisecond.
SOON_S = 0.05
#: How long Spark is likely to replace an executor that it has lost (seconds), and the interval of looks meanwhile. A new one
#: registers two to ten seconds after the loss, as busy as the machine is.
REPLACED_S = 30.0
REPLACED_INTERVAL_S = 0.1
#: The least time between two looks while a job is under way: Spark starts an executor for a task that has waited one second
#: (``spark.dynamicAllocation.schedulerBacklogTimeout``), which is the time to find out that its executor is leaving.
JOB_INTERVAL_S = 0.25
#: How often to see whether the program has stopped the session, between looks. So long the driver's node outlives the session;
#: it costs a microsecond.
END_INTERVAL_S = 0.5
#: How long a job may wait for slots there. Where they are free it takes milliseconds.
JOB_PATIENCE_S = 0.5
#: The most that it becomes when tries fail: each is a Spark job, and what fails ten times will not be mended by the eleventh.
RETRY_S_MAX = 60.0
#: Jobs at once. More only when executors keep coming while the jobs of the user hold every slot.
JOBS_MAX = 4


class Spark(Protocol):
    """An application, as far as a reconciler needs it."""

    def has_stopped(self) -> bool:
        """Tell whether the application was stopped here, without a call of its JVM."""

    def executors(self) -> list[str]:
        """Return the ids of the executors that there are now."""

    def leaving(self, executors: Iterable[str]) -> set[str]:
        """Return which of some executors have left or are about to."""

    def obstacles(self, executors: Iterable[str]) -> dict[str, str]:
        """Return why some executors are not to be sent a task now."""

    def is_growing(self, group: str) -> bool:
        """Tell whether Spark starts executors for what waits of the jobs of a group, and for nothing else."""

    def run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        """Run a task on each of some executors that are known well enough; return what they yield."""

    def cancel(self, group: str) -> None:
        """Cancel the jobs of a group; harmless if there are none."""


@dataclass
class Attempt:
    """The attempts to start the agent of an executor that is no member."""

    is_under_way: bool = False
    """Whether it is in a job, or its agent is being greeted."""
    next_s: float = 0.0
    """When to try again."""
    delay_s: float = RETRY_S
    """How long to wait after that."""
    reason: str = "its agent is being started"
    """Why it is no member."""


class Reconciler:
    """Sees that every executor has an agent.

    Args:
        spark: The application.
        group: What its jobs are known by, with a number behind it.
        interval: Seconds between two looks.
        task: Makes what is to run on executors.
        members: Returns the ids of the executors that have an agent.
        found: Given what each agent says of itself; returns why it is no member yet, or None.
        looked: Called with each look: for what else there is to do.
        ended: Called when the application has ended.
        retry_s_max: The longest time between two tries that fail, in seconds. Let it be longer than Spark waits before it
            removes an executor that is idle: else what fails would keep it for ever.
        clock: Returns seconds.
    """

    def __init__(
        self,
        spark: Spark,
        group: str,
        interval: float,
        *,
        task: Callable[[], Callable[[Iterable[Any]], Iterable[Any]]],
        members: Callable[[], Iterable[str]],
        found: Callable[[Mapping[str, Any]], str | None],
        looked: Callable[[], None],
        ended: Callable[[], None],
        retry_s_max: float = RETRY_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._group = group
        self._interval = interval
        self._task = task
        self._members = members
        self._found = found
        self._looked = looked
        self._ended = ended
        self._retry_s_max = retry_s_max
        self._clock = clock
        self._attempts: dict[str, Attempt] = {}
        self._jobs_under_way: dict[str, tuple[list[str], float]] = {}  # whom they are for, and since when, by their groups
        self._cancelled: set[str] = set()  # groups of jobs that have not ended yet
        self._job_numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._live: set[str] = set()
        self._loss_s = -math.inf  # when an executor was last seen to be gone
        self._stop = threading.Event()
        self._changed = threading.Event()  # so the next look may be due earlier
        self._jobs = DaemonThreads(JOBS_MAX, "iris-executors-job")
        self._thread = threading.Thread(target=self._run, name="iris-executors", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and cancel the jobs that run; they are not waited for."""
        self._stop.set()
        self._changed.set()
        self._jobs.shutdown()
        with self._lock:
            groups = list(self._jobs_under_way)
        for group in groups:
            with contextlib.suppress(Exception):  # Spark may be gone, or going
                self._spark.cancel(group)

    def hurry(self) -> None:
        """Try again at once what has failed: something has changed."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.next_s, attempt.delay_s = 0.0, RETRY_S
        self._changed.set()

    def submit(self, function: Callable[Arguments, object], *arguments: Arguments.args, **values: Arguments.kwargs) -> None:
        """Call a function in a thread of the jobs: what takes long must not hold up the looking."""
        self._jobs.submit(function, *arguments, **values)

    def reasons(self, executors: Iterable[str]) -> dict[str, str]:
        """Return why some executors are no members."""
        with self._lock:
            return {executor: self._attempts.get(executor, Attempt()).reason for executor in executors}

    def look(self) -> None:
        """Look once, and start a job if one is needed.

        Raises:
            ApplicationEnded: There is nothing to look at any more.
        """
        live = self._spark.executors()
        lacking = set(live).difference(self._members())
        now = self._clock()
        if self._live.difference(live):
            self._loss_s = now
        self._live = set(live)
        self._cancel_vain_jobs()
        with self._lock:
            for executor in [each for each in self._attempts if each not in lacking]:
                if not self._attempts[executor].is_under_way:
                    del self._attempts[executor]
            due = []
            for executor in live:
                if executor in lacking:
                    attempt = self._attempts.setdefault(executor, Attempt())
                    if not attempt.is_under_way and attempt.next_s <= now:
                        due.append(executor)
        if due:
            self._start_job(due)
        self._looked()

    def _start_job(self, due: list[str]) -> None:
        """Start a job for those executors that a task may be sent to."""
        obstacles = self._spark.obstacles(due)
        with self._lock:
            for executor, reason in obstacles.items():
                attempt = self._attempts[executor]
                attempt.reason, attempt.next_s = reason, self._clock() + ELSEWHERE_RETRY_S
            able = [executor for executor in due if executor not in obstacles]
            for executor in able:
                self._attempts[executor].is_under_way = True
        if able:
            self._jobs.submit(self._ensure, able)

    def _cancel_vain_jobs(self) -> None:
        """Cancel jobs that wait for an executor that is leaving or busy; the others in them are tried again at once."""
        with self._lock:
            jobs = dict(self._jobs_under_way)
        now = self._clock()
        for group, (executors, began_s) in jobs.items():
            if self._spark.leaving(executors) or (now >= began_s + JOB_PATIENCE_S and self._spark.is_growing(group)):
                with self._lock:
                    if group not in self._jobs_under_way:
                        continue
                    self._cancelled.add(group)
                self._spark.cancel(group)  # with each look, as it may not have begun when it was cancelled before

    def delay(self) -> float:
        """Return how long to wait until the next look, in seconds: not for long if an executor is to be tried or replaced."""
        with self._lock:
            waiting = [attempt.next_s for attempt in self._attempts.values() if not attempt.is_under_way]
            interval = min(self._interval, JOB_INTERVAL_S) if self._jobs_under_way else self._interval
        now = self._clock()
        if now < self._loss_s + REPLACED_S:
            interval = min(interval, REPLACED_INTERVAL_S)
        return min(max(min(waiting, default=math.inf) - now, SOON_S), interval)

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except ApplicationEnded:
                break
            except Exception as exc:
                if self._stop.is_set():
                    return  # its threads are gone
                if self._spark.has_stopped():
                    break
                logger.warning(
                    "look_failed",
                    "looking for executors without an agent failed: %s: %s",
                    type(exc).__name__,
                    _short(exc),
                    about=self._group,
                )
            if self._wait():
                return
        try:
            self._ended()
        except Exception as exc:
            logger.debug("application_ended", "the end of the application: %s", exc)

    def _wait(self) -> bool:
        """Wait until it is time for the next look, or the application was stopped; return whether there is to be no look."""
        looked_s = time.monotonic()
        while not self._stop.is_set() and (left_s := looked_s + self.delay() - time.monotonic()) > 0:
            if self._spark.has_stopped():
                break
            self._changed.wait(min(left_s, END_INTERVAL_S))
            self._changed.clear()  # before anything is looked at: what changes from now on sets it again
        return self._stop.is_set()

    def _ensure(self, executors: list[str]) -> None:
        """Run a job for some executors."""
        reasons: dict[str, str] = {}
        delays: dict[str, float] = {}
        group = f"{self._group}-{next(self._job_numbers)}"
        is_cancelled = False
        with self._lock:
            self._jobs_under_way[group] = executors, self._clock()
        try:
            try:
                rows = self._spark.run(executors, self._task(), group)
            finally:
                with self._lock:
                    del self._jobs_under_way[group]
                    is_cancelled = group in self._cancelled
                    self._cancelled.discard(group)
            for row in rows:
                self._handle_row(row, reasons, delays)
        except ApplicationEnded:
            return
        except Exception as exc:
            if self._stop.is_set() or is_cancelled or self._spark.has_stopped():
                return
            logger.warning(
                "start_failed",
                "starting agents on executors %s failed: %s",
                ", ".join(executors),
                _short(exc),
                about=self._group,
            )
            reasons.update(dict.fromkeys(executors, f"the Spark job that starts its agent failed: {_short(exc)}"))
        finally:
            self._note(executors, reasons, delays)

    def _handle_row(self, row: Mapping[str, Any], reasons: dict[str, str], delays: dict[str, float]) -> None:
        """Note why an executor is still no member, and how soon to try it again if it was not tried or has just been found."""
        wanted, executor = row["wanted"], row["executor"] or row["wanted"]
        reason = row["error"] if "error" in row else self._found(row)
        if reason is not None:
            reasons[executor] = reason
        delays[wanted] = RETRY_S if wanted == executor else ELSEWHERE_RETRY_S

    def _note(self, executors: list[str], reasons: Mapping[str, str], delays: Mapping[str, float]) -> None:
        with self._lock:
            now = self._clock()
            for executor in executors:
                attempt = self._attempts.get(executor)
                if attempt is None:
                    continue
                attempt.is_under_way = False
                if executor in reasons:  # what its agent says is an error
                    if reasons[executor] != attempt.reason:
                        logger.warning(
                            "agent_missing",
                            "executor %s has no agent: %s",
                            executor,
                            reasons[executor],
                            about=executor,
                            executor=executor,
                        )
                    attempt.reason = reasons[executor]
                    attempt.next_s = now + attempt.delay_s
                    attempt.delay_s = min(2 * attempt.delay_s, self._retry_s_max)
                else:
                    attempt.next_s, attempt.delay_s = now + delays.get(executor, 0.0), RETRY_S
                    if delays.get(executor) == ELSEWHERE_RETRY_S:
                        attempt.reason = "it is busy, and its task ran elsewhere"
        self._changed.set()


def _short(exc: BaseException) -> str:
    """Return the first line of an error: those of Spark go on with stack traces of Java."""
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0]
