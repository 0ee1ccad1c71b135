"""Ensures that every executor has an agent: checks twice a second, and runs Spark jobs to start missing agents.

Theory of operation. One thread checks. Jobs run in other threads, because a job may wait for a slot as long as the user's jobs
run, and must not delay the next check. An executor is in one job at a time, and is retried after a delay, which doubles while
the agent reports errors. Failures are logged and retried; only the end of the application ends the reconciler. This end is
noticed within half a second, at any interval of checks, because the driver's node must not outlive the application.

With dynamic allocation, a waiting task makes Spark start executors, and a running task keeps its executor from being idle. So
no job is run for a leaving or busy executor. If an executor becomes so while a job waits for it, the job is cancelled before
Spark starts another executor for the waiting task.
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

__all__ = ["Reconciler", "ReconcilerCallbacks", "Spark"]

logger = EventLogger("spark_connector")

Arguments = ParamSpec("Arguments")

#: Delay after an attempt to start an agent. A task on an idle executor takes less time.
RETRY_S = 3.0
#: Delay after an attempt whose task ran on another executor. Spark waits 3 s for a free slot on the requested executor, but
#: runs the task in any free slot if that executor is so new that Spark has not offered it a task yet.
ELSEWHERE_RETRY_S = 0.5
#: Minimum time between two checks while an attempt is due. A check takes a millisecond.
SOON_S = 0.05
#: How long Spark is likely to need to replace a lost executor (seconds), and the interval of checks meanwhile. A new executor
#: registers two to ten seconds after the loss, depending on the load of the machine.
REPLACED_S = 30.0
REPLACED_INTERVAL_S = 0.1
#: Maximum time between two checks while a job is running. Spark starts an executor for a task that has waited one second
#: (``spark.dynamicAllocation.schedulerBacklogTimeout``), so a leaving executor must be noticed before.
JOB_INTERVAL_S = 0.25
#: Interval at which a stopped session is noticed, between checks: the driver's node outlives the session by at most this time.
#: Each look costs a microsecond.
END_INTERVAL_S = 0.5
#: How long a job may wait for slots when Spark would start executors for it. With free slots it takes milliseconds.
JOB_PATIENCE_S = 0.5
#: Maximum delay after failed attempts: each is a Spark job, and an eleventh attempt is unlikely to succeed after ten failures.
RETRY_S_MAX = 60.0
#: Maximum number of jobs at once. More are needed only if executors keep coming while the user's jobs hold every slot.
JOBS_MAX = 4


class Spark(Protocol):
    """The methods of :class:`.application.Application` a reconciler needs."""

    def has_stopped(self) -> bool:
        """Tell whether the application was stopped in this process, without a call to the JVM."""

    def executors(self) -> list[str]:
        """Return the ids of the present executors."""

    def leaving(self, executors: Iterable[str]) -> set[str]:
        """Return the executors among ``executors`` that have left or are leaving."""

    def obstacles(self, executors: Iterable[str]) -> dict[str, str]:
        """Return the executors that should not receive a task now, with the reasons."""

    def is_growing(self, group: str) -> bool:
        """Tell whether Spark starts new executors only because jobs of this package, among them ``group``, wait for slots."""

    def run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        """Run a task on some executors; return the results. Executors not yet described by Spark are skipped."""

    def cancel(self, group: str) -> None:
        """Cancel the jobs of a group; harmless if there are none."""


@dataclass
class Attempt:
    """The state of the attempts to start an agent on one executor."""

    is_under_way: bool = False
    """Whether the executor is in a job, or its agent is being greeted."""
    next_s: float = 0.0
    """When to try again."""
    delay_s: float = RETRY_S
    """The pause between the next attempt and the attempt after it (seconds)."""
    reason: str = "its agent is being started"
    """The reason why the executor is not a member."""


@dataclass(frozen=True)
class ReconcilerCallbacks:
    """The functions of an executor cluster that its reconciler calls, from several threads."""

    task: Callable[[], Callable[[Iterable[Any]], Iterable[Any]]]
    """Makes the task for executors."""
    members: Callable[[], Iterable[str]]
    """Returns the ids of the executors with an agent."""
    found: Callable[[Mapping[str, Any]], str | None]
    """Called with each agent's description; returns the reason why the executor is not a member yet, or None."""
    looked: Callable[[], None]
    """Called at the end of each check, for other periodic work."""
    ended: Callable[[], None]
    """Called when the application has ended."""


class Reconciler:
    """Ensures that every executor has an agent, for an :class:`.cluster.ExecutorCluster`.

    Args:
        spark: The application.
        group: The prefix of the groups of its jobs, followed by a number.
        interval: Seconds between two checks.
        callbacks: The functions of the cluster.
        retry_s_max: Maximum delay between failed attempts, in seconds. Choose more than Spark's idle timeout of executors:
            otherwise failing attempts would keep an executor alive forever.
        clock: Returns seconds.
    """

    def __init__(
        self,
        spark: Spark,
        group: str,
        interval: float,
        callbacks: ReconcilerCallbacks,
        *,
        retry_s_max: float = RETRY_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._group = group
        self._interval = interval
        self._callbacks = callbacks
        self._retry_s_max = retry_s_max
        self._clock = clock
        self._attempts: dict[str, Attempt] = {}
        self._jobs_under_way: dict[str, tuple[list[str], float]] = {}  # the executors and start time of each job, by group
        self._cancelled: set[str] = set()  # groups of jobs that have not ended yet
        self._job_numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._live: set[str] = set()
        self._loss_s = -math.inf  # when an executor was last noticed to be gone
        self._stop = threading.Event()
        self._changed = threading.Event()  # the next check may be due earlier
        self._jobs = DaemonThreads(JOBS_MAX, "iris-executors-job")
        self._thread = threading.Thread(target=self._run, name="iris-executors", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking, and cancel the running jobs without waiting for them."""
        self._stop.set()
        self._changed.set()
        self._jobs.shutdown()
        with self._lock:
            groups = list(self._jobs_under_way)
        for group in groups:
            with contextlib.suppress(Exception):  # Spark may be gone, or going
                self._spark.cancel(group)

    def hurry(self) -> None:
        """Retry executors with earlier failures at once, because a new handler may succeed there."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.next_s, attempt.delay_s = 0.0, RETRY_S
        self._changed.set()

    def submit(self, function: Callable[Arguments, object], *arguments: Arguments.args, **values: Arguments.kwargs) -> None:
        """Call a function in a thread of the jobs, for work too slow for the thread that checks."""
        self._jobs.submit(function, *arguments, **values)

    def reasons(self, executors: Iterable[str]) -> dict[str, str]:
        """Return the reasons why some executors are not members."""
        with self._lock:
            return {executor: self._attempts.get(executor, Attempt()).reason for executor in executors}

    def look(self) -> None:
        """Check once, and start a job if one is needed.

        Raises:
            ApplicationEnded: The application has ended.
        """
        live = self._spark.executors()
        lacking = set(live).difference(self._callbacks.members())
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
        self._callbacks.looked()

    def _start_job(self, due: list[str]) -> None:
        """Start a job for the due executors, except executors that should not receive a task now."""
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
        """Cancel each job that waits for a leaving or busy executor; retry the job's other executors at once."""
        with self._lock:
            jobs = dict(self._jobs_under_way)
        now = self._clock()
        for group, (executors, began_s) in jobs.items():
            if self._spark.leaving(executors) or (now >= began_s + JOB_PATIENCE_S and self._spark.is_growing(group)):
                with self._lock:
                    if group not in self._jobs_under_way:
                        continue
                    self._cancelled.add(group)
                self._spark.cancel(group)  # at each check, because the job may not have begun at the previous cancellation

    def delay(self) -> float:
        """Return the seconds until the next check: less than usual if an attempt is due, or a lost executor may be replaced."""
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
                    return  # the threads of Spark are gone
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
            self._callbacks.ended()
        except Exception as exc:
            logger.debug("application_ended", "the end of the application: %s", exc)

    def _wait(self) -> bool:
        """Wait until the next check is due or the application has stopped; return True if :meth:`stop` was called."""
        looked_s = time.monotonic()
        while not self._stop.is_set() and (left_s := looked_s + self.delay() - time.monotonic()) > 0:
            if self._spark.has_stopped():
                break
            self._changed.wait(min(left_s, END_INTERVAL_S))
            self._changed.clear()  # before checking any state: later changes set it again
        return self._stop.is_set()

    def _ensure(self, executors: list[str]) -> None:
        """Run a job that starts agents on some executors, and record the outcome for each executor."""
        reasons: dict[str, str] = {}
        delays: dict[str, float] = {}
        group = f"{self._group}-{next(self._job_numbers)}"
        is_cancelled = False
        with self._lock:
            self._jobs_under_way[group] = executors, self._clock()
        try:
            try:
                rows = self._spark.run(executors, self._callbacks.task(), group)
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
        """Record the result of one task: why its executor is not a member yet, and when to retry the wanted executor."""
        wanted, executor = row["wanted"], row["executor"] or row["wanted"]
        reason = row["error"] if "error" in row else self._callbacks.found(row)
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
                if executor in reasons:  # its agent reports an error
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
    """Return the first line of an error's text. The other lines are stack traces of Java."""
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0]
