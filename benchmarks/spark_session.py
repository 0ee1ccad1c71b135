"""A Spark in the process of a benchmark, which leaves nothing behind."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_connector import ensure_java

if TYPE_CHECKING:
    from contextlib import ExitStack

#: Slots of the session.
TASKS = 2


def prepare_environment(home: Path) -> None:
    """Let Spark's processes find a Java, this Python, this code, and no settings of the user."""
    for name in list(os.environ):
        if name.startswith(("IRIS_", "SPARK_", "XDG_")):
            del os.environ[name]
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, HOME=str(home))
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    ensure_java()


def start_session(stack: ExitStack) -> SparkSession:
    """Start a Spark with two slots, in this process and its Java; it ends with the stack."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"iris-benchmark-{os.getpid()}-")))
    prepare_environment(home)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home}",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(home),
    }
    return start(stack, f"local[{TASKS}]", home, settings)


def start(stack: ExitStack, master: str, home: Path, settings: dict[str, str]) -> SparkSession:
    """Start a session; it ends with the stack.

    Args:
        stack: What ends it.
        master: Where it runs.
        home: For what it writes.
        settings: Besides those that all have.
    """
    builder = SparkSession.builder.master(master).appName("iris-benchmark")
    common = {
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    stack.callback(_stop, session)
    session.sparkContext.setLogLevel("OFF")
    return session


def _stop(session: SparkSession) -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with it
    gateway.proc.wait()
