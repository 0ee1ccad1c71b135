"""A Spark application as seen from the driver: executors, and tasks for a given executor.

Spark's Python API offers neither. All attributes that begin with ``_j`` call the JVM of the driver.
"""

from __future__ import annotations

import pickle
import socket
import time
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer

from iris_py import ConfigurationError
from spark_connector.compat import check_version
from spark_connector.errors import ApplicationEnded
from spark_connector.executors.spawn import LOCAL_ID
from spark_connector.shipment import explainer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Application", "ensure_task"]

#: The scheduler pool of the jobs that start agents. Where ``spark.scheduler.mode`` is FAIR, these jobs run beside the user's
#: jobs, not after them.
POOL = "iris"
#: How long the user's waiting tasks have precedence for the slots of a new executor, with dynamic allocation (seconds): Spark
#: offers free slots each second (``spark.scheduler.revive.interval``), and a task of ours would only wait as well.
FIRST_OFFER_S = 1.5
#: Timeout for a connection to a JVM that this program did not start (seconds). The JVM is on this machine.
CONNECT_TIMEOUT_S = 1.0


class Application:
    """A running Spark application, for the driver: its executors, and jobs on chosen executors. The methods are thread-safe.

    Args:
        spark: The session.

    Attributes:
        id: The id of the application.
        is_local: Whether the only executor is the driver.
        idle_s: Seconds after which Spark removes an idle executor; None without dynamic allocation.

    Raises:
        ConfigurationError: ``spark`` is not a session, too old, or a session of Spark Connect.
        ApplicationEnded: The application has ended.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = _context_of(spark)
        self.id = self._context.applicationId
        self.is_local: bool = self._jvm_context().isLocal()
        self.idle_s = self._find_idle_s()
        self._hosts: dict[str, tuple[str, int]] = {}
        self._seen_s: dict[str, float] = {}  # the time at which each executor was first seen
        self._groups: set[str] = set()  # of running jobs

    def has_stopped(self) -> bool:
        """Tell whether ``spark.stop()`` was called in this process, or the JVM this program started has ended.

        Makes no call to the JVM, and so misses an application ended by the JVM itself. All other methods notice such an end
        and raise an error.
        """
        java = self._java()
        return self._context._jsc is None or (java is not None and java.poll() is not None)

    def executors(self) -> list[str]:
        """Return the ids of the present executors.

        Raises:
            ApplicationEnded: The application has ended.
        """
        jvm_context = self._jvm_context()
        if self.is_local:
            return [LOCAL_ID]
        text: str = jvm_context.getExecutorIds().mkString(",")
        ids = text.split(",") if text else []
        now = time.monotonic()
        self._seen_s = {executor: self._seen_s.get(executor, now) for executor in ids}
        return ids

    def leaving(self, executors: Iterable[str]) -> set[str]:
        """Return the executors among ``executors`` that have left or are leaving.

        Spark lists a removed executor some seconds longer.

        Raises:
            ApplicationEnded: The application has ended.
        """
        if self.is_local:
            return set()
        backend = self._jvm_context().schedulerBackend()
        return {executor for executor in executors if not backend.isExecutorActive(executor)}

    def obstacles(self, executors: Iterable[str]) -> dict[str, str]:
        """Return the executors that should not receive a task now, with the reasons.

        With dynamic allocation, a task that waits for a slot makes Spark start an executor. So an executor without free slots
        receives
        a task only if tasks of the user wait, too: then Spark starts all allowed executors anyway, and a slot is free soon.

        Raises:
            ApplicationEnded: The application has ended.
        """
        if self.is_local:
            return {}
        found = dict.fromkeys(self.leaving(executors), "it is leaving")
        is_waiting = self.idle_s is None or bool(self._waiting_groups() - self._groups)
        now = time.monotonic()
        running = self._jvm_context().taskScheduler().runningTasksByExecutors()
        for executor in executors:
            summary = None if executor in found else self._summary(executor)
            if summary is None:
                continue  # leaving, or too new to be described: run() skips it
            if summary.isExcluded():
                found[executor] = "Spark gives it no tasks, because too many have failed there (spark.excludeOnFailure)"
            elif not is_waiting and running.contains(executor) and running.apply(executor) >= summary.maxTasks():
                found[executor] = "it is busy, and waiting for a slot would make Spark start another executor"
            elif self.idle_s is not None and is_waiting and now < self._seen_s.get(executor, now) + FIRST_OFFER_S:
                found[executor] = "it is new, and tasks that have waited for it come first"
        return found

    def is_growing(self, group: str) -> bool:
        """Tell whether Spark starts new executors only because jobs of this package, among them ``group``, wait for slots.

        Raises:
            ApplicationEnded: The application has ended.
        """
        self._jvm_context()
        if self.idle_s is None:
            return False
        waiting = self._waiting_groups()
        return group in waiting and waiting <= self._groups

    def run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        """Run a task on some executors; return the results. Executors not yet described by Spark are skipped.

        Args:
            executors: The ids of the executors.
            task: The task; its argument is of no use.
            group: The group of the job.

        Raises:
            ApplicationEnded: The application has ended.
        """
        self._jvm_context()
        self._groups.add(group)
        try:
            return self._run(executors, task, group)
        finally:
            self._groups.discard(group)

    def _run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        context = self._context
        context.setJobGroup(group, "Iris: agents of executors")
        context.setLocalProperty("spark.scheduler.pool", POOL)
        if self.is_local:
            return context.parallelize([LOCAL_ID], 1).mapPartitions(task).collect()
        profiles: dict[int, list[tuple[str, str]]] = {}
        for executor in executors:
            host, profile = self._place(executor)
            if host:
                profiles.setdefault(profile, []).append((executor, host))
        return [row for profile, places in profiles.items() for row in self._run_at(places, profile, task)]

    def cancel(self, group: str) -> None:
        """Cancel the jobs of a group; harmless if there are none."""
        if self._context._jsc is not None:
            self._context.cancelJobGroup(group)

    def _run_at(self, places: list[tuple[str, str]], profile: int, task: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
        """Run a job with one partition for each executor.

        Spark runs a partition near its cached data, and ``executor_<host>_<id>`` is Spark's notation for the place of such
        data.
        """
        jvm = self._context._jvm
        assert jvm is not None
        to_sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        partitions = jvm.java.util.ArrayList()
        for executor, host in places:
            where = to_sequence([f"executor_{host}_{executor}"])
            partitions.add(jvm.scala.Tuple2(bytearray(pickle.dumps(executor)), where))
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        jvm_context = self._jvm_context()
        rdd = jvm_context.makeRDD(to_sequence(partitions), kind)
        if profile:  # executors of another resource profile run no tasks of the default profile, 0
            rdd = rdd.withResources(jvm_context.resourceProfileManager().resourceProfileFromId(profile))
        return RDD(rdd.toJavaRDD(), self._context, CPickleSerializer()).mapPartitions(task).collect()

    def _place(self, executor: str) -> tuple[str, int]:
        """Return the host and the resource profile of an executor; an empty host if Spark does not know the executor yet."""
        if executor not in self._hosts:
            summaries = self._jvm_context().statusStore().executorList(True)
            found = [summaries.apply(index) for index in range(summaries.size())]
            hosts = {each.id(): (each.hostPort().rpartition(":")[0], each.resourceProfileId()) for each in found}
            self._hosts = {key: place for key, place in hosts.items() if place[0]}  # a new executor has no host for a moment
        return self._hosts.get(executor, ("", 0))

    def _find_idle_s(self) -> float | None:
        context = self._jvm_context()
        if self.is_local or not context.executorAllocationManager().isDefined():
            return None
        return float(context.conf().getTimeAsSeconds("spark.dynamicAllocation.executorIdleTimeout", "60s"))

    def _summary(self, executor: str) -> Any | None:  # noqa: ANN401 - an object of Java
        """Return Spark's own description of an executor; None if Spark does not list the executor yet, or no longer."""
        store = self._jvm_context().statusStore()
        try:
            return store.executorSummary(executor)
        except Exception:  # of Java: the element does not exist
            return None

    def _waiting_groups(self) -> set[str | None]:
        """Return the group of each job that has tasks waiting for slots.

        This asks the scheduler, because Spark's status store learns of the start of a single task only with the next event.
        """
        queue = self._jvm_context().taskScheduler().rootPool().getSortedTaskSetQueue()
        sets = [queue.apply(index) for index in range(queue.size())]
        waiting = [each for each in sets if each.numTasks() > each.tasksSuccessful() + each.runningTasks()]
        settings = [each.taskSet().properties() for each in waiting]
        return {None if each is None else each.getProperty("spark.jobGroup.id") for each in settings}

    def _jvm_context(self) -> Any:  # noqa: ANN401 - an object of Java
        java_context = self._context._jsc
        if java_context is None or self.has_stopped():
            raise ApplicationEnded
        try:
            jvm_context = java_context.sc()
            is_stopped = jvm_context.isStopped()
        except Exception as exc:  # of py4j, or of its socket
            if self._is_java_gone():
                raise ApplicationEnded from exc
            raise
        if is_stopped:
            raise ApplicationEnded
        return jvm_context

    def _java(self) -> subprocess.Popen[bytes] | None:
        """Return the process of the JVM if this program started it, else None.

        With ``spark-submit`` the JVM starts this program.
        """
        return getattr(self._context._gateway, "proc", None)

    def _is_java_gone(self) -> bool:
        """Tell whether a failed call failed because the JVM has ended."""
        java = self._java()
        if java is not None:
            return java.poll() is not None
        gateway: Any = self._context._gateway
        parameters = gateway.gateway_parameters
        try:
            socket.create_connection((parameters.address, parameters.port), CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # the JVM hangs, or this process has no descriptor left
            return False
        return False


def _context_of(spark: object) -> SparkContext:
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "this is a session of Spark Connect, which does not list its executors. Make the ExecutorCluster in a program "
            "with a SparkContext; dispatch() and notify() work here."
        )
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(f"spark is {type(spark).__qualname__}, but must be a SparkSession.")
    try:
        context = spark.sparkContext
        check_version(spark.version)
    except (PySparkException, AttributeError) as exc:
        raise ApplicationEnded from exc
    return context


def ensure_task(content: bytes) -> Callable[[Iterable[object]], Iterable[Mapping[str, Any]]]:
    """Return the function of a Spark task that ensures that the task's executor has an agent.

    Args:
        content: For :func:`spark_connector.executors.spawn.run_ensure`.
    """

    local = LOCAL_ID

    explain = explainer("")

    # A nested function is pickled by value, so this one runs even where this package is not installed, and reports that. It
    # must not raise, because that would fail a Spark job.
    def ensure(places: Iterable[object]) -> Iterable[Mapping[str, Any]]:
        for wanted in places:
            try:
                from spark_connector.daemon import start_early

                early = None if wanted == local else start_early()
                from spark_connector.executors.spawn import run_ensure
            except Exception as exc:
                error = explain(exc) if isinstance(exc, ImportError) else f"{type(exc).__name__}: {exc}"
                yield {"wanted": wanted, "executor": "", "error": error}
            else:
                row = run_ensure(content, early)
                if "error" in row and (lacks := explain(None)):  # of a failed agent the task knows only the status
                    row["error"] += f" And {lacks}"
                yield {"wanted": wanted, **row}

    return ensure
