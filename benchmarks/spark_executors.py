"""How fast the driver reaches executors, and how fast their agents go and come: ``python -m benchmarks.spark_executors``.

It starts a Spark with two executors of one slot each, as processes of this machine; and once more, with a Python daemon that
starts agents ahead.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession

from iris_security import Secret
from spark_connector import ExecutorCluster, Network, configure, ensure_java
from spark_connector.executors.application import Application

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Executors of a session, with one slot each.
EXECUTORS: Final = 2
#: Requests that are measured, after some that are not.
REQUESTS: Final = 2000
WARM_UP: Final = 200
#: Executors that are killed with each of the two daemons.
LOSSES: Final = 5
#: How long executors are given after the first Python job: an agent that is started ahead takes a second.
SETTLING_S: Final = 4.0
#: How long anything may take on a machine that is busy.
PATIENCE_S: Final = 120.0


def measure(spark: SparkSession, cluster: ExecutorCluster) -> dict[str, float]:
    """Measure everything, with a cluster of executors that answer with the process of their Java.

    Returns:
        ``busy_request_p50_us`` and ``busy_request_p99_us``: a request to one executor whose only slot is busy.
        ``agent_rss_mib``: memory of an agent; and those of :func:`measure_losses`.
    """
    return {**measure_request(spark, cluster), **measure_losses(cluster)}


def measure_request(spark: SparkSession, cluster: ExecutorCluster) -> dict[str, float]:
    """Measure requests to an executor while a job has every slot."""
    members = cluster.wait(timeout=PATIENCE_S)
    marks = Path(tempfile.mkdtemp())
    count = len(members)

    def hold(index: int, _rows: object) -> list[int]:
        (marks / str(index)).touch()
        while not (marks / "release").exists():
            time.sleep(0.05)
        return []

    tasks = spark.sparkContext.parallelize(range(count), count).mapPartitionsWithIndex(hold)
    job = threading.Thread(target=tasks.count)
    job.start()
    try:
        _until(lambda: len(list(marks.iterdir())) == count)
        executor, payload, seconds = next(iter(members)), secrets.token_bytes(100), []
        for _ in range(WARM_UP + REQUESTS):
            began = time.perf_counter()
            cluster.request(payload, to=executor)
            seconds.append(time.perf_counter() - began)
    finally:
        (marks / "release").touch()
        job.join()
        shutil.rmtree(marks)
    percentiles = statistics.quantiles(seconds[WARM_UP:], n=100)
    return {
        "busy_request_p50_us": percentiles[49] * 1e6,
        "busy_request_p99_us": percentiles[98] * 1e6,
        "agent_rss_mib": max(_resident_mib(member.pid) for member in members.values()),
    }


def measure_losses(cluster: ExecutorCluster) -> dict[str, float]:
    """Kill executors, one after the other.

    Returns:
        Medians. ``out_of_view_s``: from the SIGKILL of an executor until it is no member. ``registered_s``: from there until
        Spark has its replacement. ``joined_s``: from there until that is a member.
    """
    found = [measure_loss(cluster) for _ in range(LOSSES)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def measure_loss(cluster: ExecutorCluster) -> dict[str, float]:
    """Kill an executor, and measure how long it takes until it is gone, and until there is another one."""
    members = cluster.wait(timeout=PATIENCE_S)
    victim, java = next(iter(members)), int(cluster.request(b"", to=next(iter(members))))
    began = time.monotonic()
    os.kill(java, signal.SIGKILL)
    _until(lambda: victim not in cluster.members)
    gone = time.monotonic()
    _until(lambda: set(cluster._application.executors()) - members.keys())
    registered = time.monotonic()
    cluster.wait(len(members), timeout=PATIENCE_S)
    return {
        "out_of_view_s": gone - began,
        "registered_s": registered - began,
        "joined_s": time.monotonic() - registered,
    }


def measure_first_task(spark: SparkSession) -> float:
    """Kill executors of a Spark that has no agents.

    Returns:
        The median of the seconds from when Spark has a replacement until a Python task has run there. Nothing that is started
        by a task can be there before.
    """
    application = Application(spark)
    return statistics.median(_time_first_task(application) for _ in range(LOSSES))


def _time_first_task(application: Application) -> float:
    _until(lambda: len(application.executors()) == EXECUTORS)
    living, processes = application.executors(), set[int]()

    def are_known() -> bool:  # a task may run elsewhere than it was meant to
        processes.update(application.run(living, _java_of_task, "first task"))
        return len(processes) == EXECUTORS

    _until(are_known)
    os.kill(processes.pop(), signal.SIGKILL)
    _until(lambda: set(application.executors()).difference(living))
    registered = time.monotonic()
    replacement = set(application.executors()).difference(living)
    _until(lambda: set(application.run(replacement, _java_of_task, "first task")).difference(processes))
    return time.monotonic() - registered


def _java_of_task(_rows: Iterable[object]) -> list[int]:
    """Return the process of the Java that runs a task: the parent of the daemon that is the parent of the worker."""
    return [int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])]


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a state did not come; the machine is too busy, or something is broken")
        time.sleep(0.002)


def _resident_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def _start(accelerate: bool) -> SparkSession:
    builder = configure(SparkSession.builder, accelerate=accelerate, fair=False)
    builder = builder.master(f"local-cluster[{EXECUTORS},1,1024]")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.executor.memory", "1g").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _with_cluster(accelerate: bool, measured: Callable[[SparkSession, ExecutorCluster], dict[str, float]]) -> dict[str, float]:
    """Measure something with a session of its own, and ``started_s``, until executors that run Python are members; then
    :func:`measure_first_task`, with no cluster any more."""
    spark = _start(accelerate)
    application = spark.sparkContext.applicationId
    network = Network(secret=Secret.generate(os.urandom).text, discovery=False, listen="127.0.0.1:0")
    try:
        spark.sparkContext.parallelize(range(4), 4).map(str).count()
        time.sleep(SETTLING_S)
        began = time.monotonic()
        with ExecutorCluster(
            spark, "benchmark", lambda _request: os.environ["SPARK_EXECUTOR_PID"].encode(), network=network
        ) as cluster:
            cluster.wait(EXECUTORS, timeout=PATIENCE_S)
            figures = {"started_s": time.monotonic() - began, **measured(spark, cluster)}
        return {**figures, "first_task_s": measure_first_task(spark)}
    finally:
        spark.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


def main() -> None:
    """Print the figures as JSON."""
    ensure_java()
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    with tempfile.TemporaryDirectory(prefix="iris-benchmark-", ignore_cleanup_errors=True) as compiled:
        # An installed package is compiled. Compiling the sources costs as much as everything else that an agent does to start.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        _print_figures()


def _print_figures() -> None:
    figures = _with_cluster(False, measure)
    accelerated = _with_cluster(True, lambda _spark, cluster: measure_losses(cluster))
    for name in ("started_s", "joined_s", "first_task_s"):
        figures[f"accelerated_{name}"] = accelerated[name]
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
