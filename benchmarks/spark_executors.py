"""How fast the driver reaches executors, and how fast their agents go and come: ``python -m benchmarks.spark_executors``.

It starts a Spark with two executors of one slot each, as processes of this machine.
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

from security import Secret
from spark_connector import ExecutorCluster, Network, ensure_java

if TYPE_CHECKING:
    from collections.abc import Callable

#: Requests that are measured, after some that are not.
REQUESTS: Final = 2000
WARM_UP: Final = 200
#: How long anything may take on a machine that is busy.
PATIENCE_S: Final = 120.0


def measure(spark: SparkSession, cluster: ExecutorCluster) -> dict[str, float]:
    """Measure everything, with a cluster of executors that answer with the process of their Java.

    Returns:
        ``busy_request_p50_us`` and ``busy_request_p99_us``: a request to one executor whose only slot is busy.
        ``agent_rss_mib``: memory of an agent. ``out_of_view_s``: from the SIGKILL of an executor until it is no member.
        ``registered_s``: from there until Spark has its replacement. ``joined_s``: from there until that is a member.
    """
    return {**measure_request(spark, cluster), **measure_loss(cluster)}


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


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a state did not come; the machine is too busy, or something is broken")
        time.sleep(0.002)


def _resident_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def main() -> None:
    """Print the figures as JSON."""
    ensure_java()
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "1g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    network = Network(secret=Secret.generate(os.urandom).text, discovery=False, listen="127.0.0.1:0")
    try:
        with ExecutorCluster(
            spark, "benchmark", lambda _request: os.environ["SPARK_EXECUTOR_PID"].encode(), network=network
        ) as cluster:
            figures = measure(spark, cluster)
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2))
    finally:
        application = spark.sparkContext.applicationId
        spark.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


if __name__ == "__main__":
    main()
