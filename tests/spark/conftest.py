"""Fixtures with Spark: one session on this machine alone; and those of a network with services in this process.

Tests with the session form one group for pytest-xdist, ``spark``, which starts Spark once. Tests with a Spark of their own in
other processes form the group ``spark-processes``: several at a time would be too many Javas. All other tests run anywhere.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_connector import ensure_java
from tests.spark import warm_daemon
from tests.spark.java import JAVA_OPTIONS
from tests.spark.services import options, secret, service, until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["environment", "options", "secret", "service", "spark", "spark_home", "until"]

#: Rows of an Arrow batch: few, so that a partition of a test has several.
BATCH_ROWS = 100
#: For a test with the session, and what it starts: long enough on a machine that is busy with other tests.
TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with the session more time: one of them starts it, and runs the first job, which starts all else.

    A test whose time is over leaves the answer of Java to its last call unread, so all later ones would fail, too.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of Spark's processes."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    """A Spark with two slots, whose workers find no settings of the user; all its processes end with the tests."""
    with pytest.MonkeyPatch.context() as patch:  # until they are started: other tests run in this process too
        for name in list(os.environ):
            if name.startswith(("IRIS_", "XDG_", "SPARK_")):
                patch.delenv(name)
        for name, value in {**environment(spark_home), **warm_daemon.ENVIRONMENT}.items():
            patch.setenv(name, value)
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # so that what is set now is undone
        ensure_java()
        session = start(spark_home)
    try:
        yield session
    finally:
        gateway = SparkContext._gateway
        assert gateway is not None
        session.stop()
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # the JVM ends with it
        process.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Spark's processes, as far as it is not that of the tests."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": python_path(),
    }


def python_path() -> str:
    """Return where Spark's Python processes look for modules: the daemon is one of the tests, and so is what runs first."""
    own = Path(__file__).parent
    return os.pathsep.join(filter(None, (str(own.parents[1]), str(own / "early"), os.environ.get("PYTHONPATH"))))


def start(home: Path) -> SparkSession:
    """Start the one session of these tests, on this machine alone."""
    session = (
        SparkSession.builder.master("local[2,2]")  # a task that fails is tried once more
        .appName("iris-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.daemon.module", warm_daemon.MODULE)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.pollingDelay", "50ms")  # a query that waits asks its source 100 times a second otherwise
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {JAVA_OPTIONS}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
