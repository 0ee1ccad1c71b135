"""A client of Spark Connect and its server, in a process of its own: a process has either this or a SparkContext."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import ArrowHandler, Network, dispatch, ensure_java, notify
from tests.spark import warm_daemon
from tests.spark.java import JAVA_OPTIONS

ROWS = 120
#: How long what a session leaves may take to end: long enough on any machine.
PATIENCE_S = 60.0


def use(spark: SparkSession) -> dict[str, object]:
    """Use what tasks can do; return what came of it."""
    secret = Secret.generate(os.urandom).text
    asked: list[bytes] = []

    def reverse(request: iris.Request) -> bytes:
        asked.append(request.payload)
        return request.payload[::-1]

    def fail(request: iris.Request) -> bytes:
        raise LookupError("no entry")

    with iris.connect(secret=secret, network="tests", listen="127.0.0.1:0", seeds=(), discovery=False) as node:
        node.join("reverse", reverse)
        node.join("frames", ArrowHandler(lambda batch: batch.rename_columns(["same"])))
        node.join("failing", fail)
        network = Network(name="tests", secret=secret, seeds=[node.address], discovery=False)
        rows = spark.range(0, ROWS, 1, 2).withColumn("text", F.col("id").cast("string"))
        expression = F.concat(F.lit("row "), F.col("text"))
        replies = dispatch(rows, "reverse", request=expression, schema="reply string", network=network).collect()
        frames = dispatch(rows, "frames", mode="batches", request=["id"], schema="same bigint", network=network).collect()
        with node.subscribe("rows") as subscription:
            sent = notify(rows, topic="rows", message="text", network=network)
            told: list[bytes] = []
            while len(told) < sent.messages and (taken := subscription.take(timeout=60)):
                told += [message.payload for message in taken]
        try:
            dispatch(rows, "failing", request="text", network=network).collect()
            error = ""
        except PythonException as exc:
            error = str(exc)
    return {
        "session": type(spark).__module__,
        "replies": [row["reply"] for row in replies],
        "asked": len(asked),
        "same": [row["same"] for row in frames],
        "told": sorted(int(payload) for payload in told),
        "error": error,
    }


def wait_for_nothing(marker: str) -> list[str]:
    """Return the nodes and the Python processes of this program that outlive its session by far."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [*nodes(), *python_processes(marker)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def nodes() -> list[str]:
    """Return the threads of nodes, without those that all nodes of a process share."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("iris-") and not name.startswith(("iris-loop", "iris-handler"))]


def python_processes(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if path.name.isdecimal() and int(path.name) != os.getpid() and marker.encode() in (path / "environ").read_bytes():
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [command] * ("python" in command.partition(" ")[0])
    return found


def main() -> None:
    home = Path(sys.argv[1])
    ensure_java()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} {JAVA_OPTIONS}",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(home),
        "spark.python.daemon.module": warm_daemon.MODULE,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        found = use(spark)
    finally:
        spark.stop()
    print(json.dumps({**found, "left": wait_for_nothing(f"HOME={home}")}))


if __name__ == "__main__":
    main()
