"""``python -m benchmarks.spark``: what the Spark connector carries, beside what one would write without it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks import spark_dispatch
from benchmarks.cli import report, terminate
from spark_connector import ensure_java

if TYPE_CHECKING:
    from benchmarks.harness import Section


def main(
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the values of every run.")] = False,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
) -> None:
    """Measure dispatch beside functions of Spark alone, of HTTP, and of a connection per row."""
    signal.signal(signal.SIGTERM, terminate)  # so that Spark, services and directories are cleared away
    with spark_dispatch.Bench(start_session) as bench:
        sections: list[Section] = [
            spark_dispatch.batches(bench, quick=quick),
            spark_dispatch.rows(bench, quick=quick),
            spark_dispatch.naive(bench, quick=quick),
        ]
        report(sections, runs, as_json=as_json)


def start_session(stack: ExitStack) -> SparkSession:
    """Start a Spark with two slots, in this process and Java; it ends with the stack."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"iris-benchmark-{os.getpid()}-")))
    for name in list(os.environ):
        if name.startswith(("IRIS_", "SPARK_", "XDG_")):
            del os.environ[name]
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, HOME=str(home))
    ensure_java()
    session = (
        SparkSession.builder.master(f"local[{spark_dispatch.TASKS}]")
        .appName("iris-benchmark")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(home))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    stack.callback(_stop, session)
    return session


def _stop(session: SparkSession) -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with it
    gateway.proc.wait()


if __name__ == "__main__":
    typer.run(main)
