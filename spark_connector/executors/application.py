"""A Spark application as seen from its driver: which executors it has, and how to run a task on one of them.

Spark says neither in its Python API. Everything here that begins with ``_j`` calls the JVM of the driver.
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
from spark_connector.shipping import explainer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Application", "ensure_task"]

#: The pool of ensure jobs, where ``spark.scheduler.mode`` is FAIR: beside the jobs of users, not behind them.
POOL = "iris"
#: How long tasks of the user that wait have for the slots of a new executor, with dynamic allocation (seconds): Spark offers
#: what is free each second (``spark.scheduler.revive.interval``). A task of ours beside them would be one more that waits.
FIRST_OFFER_S = 1.5
#: How long to wait for a JVM that this program did not start to accept a connection (seconds). It is on this machine.
CONNECT_TIMEOUT_S = 1.0


class Application:
    """A Spark application. Its methods may be called from every thread.

    Args:
        spark: The session.

    Attributes:
        id: Its id.
        is_local: Whether its only executor is the driver.
        idle_s: After how many seconds Spark removes an executor that is idle; None without dynamic allocation.

    Raises:
        ConfigurationError: It is no session, too old, or one of Spark Connect.
        ApplicationEnded: It was stopped.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = _context_of(spark)
        self.id = self._context.applicationId
        self.is_local: bool = self._jvm_context().isLocal()
        self.idle_s = self._find_idle_s()
        self._hosts: dict[str, tuple[str, int]] = {}
        self._seen_s: dict[str, float] = {}  # since when executors are known
        self._groups: set[str] = set()  # of jobs that run

    def has_stopped(self) -> bool:
        """Tell whether ``spark.stop()`` was called here, or the JVM that this program started has ended; asks no JVM.

        A JVM may also end the application by itself. Every other method notices that, and raises.
        """
        java = self._java()
        return self._context._jsc is None or (java is not None and java.poll() is not None)

    def executors(self) -> list[str]:
        """Return the ids of the executors that there are now.

        Raises:
            ApplicationEnded: It has.
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
        """Return which of some executors have left or are about to: Spark lists those that it removes for some seconds more.

        Raises:
            ApplicationEnded: The application has ended.
        """
        if self.is_local:
            return set()
        backend = self._jvm_context().schedulerBackend()
        return {executor for executor in executors if not backend.isExecutorActive(executor)}

    def obstacles(self, executors: Iterable[str]) -> dict[str, str]:
        """Return why some executors are not to be sent a task now.

        With dynamic allocation, a task that waits for a slot makes Spark start an executor. So where all slots of an executor
        are taken, it is sent one only if tasks of the user wait, too: then Spark starts all that it may anyway, and a slot is
        free soon.

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
                continue  # leaving, or too new to be described: run() leaves it out
            if summary.isExcluded():
                found[executor] = "Spark gives it no tasks, for too many have failed there (spark.excludeOnFailure)"
            elif not is_waiting and running.contains(executor) and running.apply(executor) >= summary.maxTasks():
                found[executor] = "it is busy, and to wait for a slot would make Spark start another executor"
            elif self.idle_s is not None and is_waiting and now < self._seen_s.get(executor, now) + FIRST_OFFER_S:
                found[executor] = "it is new, and tasks that have waited for it come first"
        return found

    def is_growing(self, group: str) -> bool:
        """Tell whether Spark starts executors for tasks of a group of jobs that wait for slots, and for no task of the user.

        Raises:
            ApplicationEnded: The application has ended.
        """
        self._jvm_context()
        if self.idle_s is None:
            return False
        waiting = self._waiting_groups()
        return group in waiting and waiting <= self._groups

    def run(self, executors: Iterable[str], task: Callable[[Iterable[Any]], Iterable[Any]], group: str) -> list[Any]:
        """Run a task on each of some executors; return what they yield. It leaves out whom Spark does not know yet.

        Args:
            executors: Their ids.
            task: What is run; its argument is of no use.
            group: What the job is known by.

        Raises:
            ApplicationEnded: It has.
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
        """Run a job with a partition for each place: ``executor_<host>_<id>`` is how Spark itself says where cached data is."""
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
        if profile:  # executors of another resource profile run no tasks of the default one, which is 0
            rdd = rdd.withResources(jvm_context.resourceProfileManager().resourceProfileFromId(profile))
        return RDD(rdd.toJavaRDD(), self._context, CPickleSerializer()).mapPartitions(task).collect()

    def _place(self, executor: str) -> tuple[str, int]:
        """Return the host of an executor, and its resource profile; an empty host if Spark does not know it yet."""
        if executor not in self._hosts:
            summaries = self._jvm_context().statusStore().executorList(True)
            found = [summaries.apply(index) for index in range(summaries.size())]
            hosts = {each.id(): (each.hostPort().rpartition(":")[0], each.resourceProfileId()) for each in found}
            self._hosts = {key: place for key, place in hosts.items() if place[0]}  # a new one has none for a moment
        return self._hosts.get(executor, ("", 0))

    def _find_idle_s(self) -> float | None:
        context = self._jvm_context()
        if self.is_local or not context.executorAllocationManager().isDefined():
            return None
        return float(context.conf().getTimeAsSeconds("spark.dynamicAllocation.executorIdleTimeout", "60s"))

    def _summary(self, executor: str) -> Any | None:  # noqa: ANN401 - an object of Java
        """Return what Spark tells of an executor; None if it is too new, or gone."""
        store = self._jvm_context().statusStore()
        try:
            return store.executorSummary(executor)
        except Exception:  # of Java: there is no such element
            return None

    def _waiting_groups(self) -> set[str | None]:
        """Return the groups of the jobs that have tasks waiting for slots.

        The scheduler is asked, for Spark's status may be old: that a single task has begun is told when something else happens.
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
        """Return the process of the JVM if this program started it; with ``spark-submit`` it is the other way round."""
        return getattr(self._context._gateway, "proc", None)

    def _is_java_gone(self) -> bool:
        """Tell whether the JVM has ended, after a call of it has failed."""
        java = self._java()
        if java is not None:
            return java.poll() is not None
        gateway: Any = self._context._gateway
        parameters = gateway.gateway_parameters
        try:
            socket.create_connection((parameters.address, parameters.port), CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # it stands still, or this process has no descriptor left
            return False
        return False


def _context_of(spark: object) -> SparkContext:
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "this is a session of Spark Connect, which does not tell what executors there are. "
            "Make the ExecutorCluster in a program with a SparkContext; dispatch() and notify() work here."
        )
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(f"spark is {type(spark).__qualname__}, and must be a SparkSession.")
    try:
        context = spark.sparkContext
        check_version(spark.version)
    except (PySparkException, AttributeError) as exc:
        raise ApplicationEnded from exc
    return context


def ensure_task(content: bytes) -> Callable[[Iterable[object]], Iterable[Mapping[str, Any]]]:
    """Return the task that sees that there is an agent.

    Args:
        content: For :func:`spark_connector.executors.spawn.run_ensure`.
    """

    local = LOCAL_ID

    explain = explainer("")

    # A function inside of another one travels whole, and not by its name: so it runs where this package is not installed too,
    # and says so. It must not fail, for then a Spark job would.
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
                if "error" in row and (lacks := explain(None)):  # an agent that does not start tells the task a status only
                    row["error"] += f" And {lacks}"
                yield {"wanted": wanted, **row}

    return ensure
