"""A standalone Spark on loopback: a master, and two workers that look like two hosts."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyspark

from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed

if TYPE_CHECKING:
    from contextlib import ExitStack

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
#: Of every Java: quick to start, as none of them lives long.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: How long it may take to start, on a machine that is busy (seconds).
PATIENCE_S: Final = 200.0


def start_standalone(stack: ExitStack, home: Path, *options: str) -> tuple[str, list[Daemon]]:
    """Start a master and a worker on each of ``HOSTS``; they end with the stack.

    Args:
        stack: What ends them.
        home: For what they write.
        options: Of each worker.

    Returns:
        The URL of the master, and the workers.

    Raises:
        BenchmarkFailed: One does not start.
    """
    master = stack.enter_context(Daemon(home, "master.Master", HOSTS[0]))
    url = master.wait_for(r"Starting Spark master at (spark://\S+)")
    workers = []
    for number, host in enumerate(HOSTS):
        directory = str(home / f"work-{number}")
        workers.append(stack.enter_context(Daemon(home, "worker.Worker", host, *options, "--work-dir", directory, url)))
    for worker in workers:
        worker.wait_for(r"Successfully (registered) with master")
    return url, workers


class Daemon:
    """A process of a standalone Spark, on ports that are free; it ends with the ``with`` block.

    Args:
        home: Where it works, and writes its log.
        name: Its class, below ``org.apache.spark.deploy``.
        host: The address that it is at.
        options: Further ones of its command line.

    Attributes:
        process: The process.
    """

    def __init__(self, home: Path, name: str, host: str, *options: str) -> None:
        self._log = home / f"{name}-{host}.log"
        root = Path(pyspark.__file__).parent
        settings = {
            "SPARK_HOME": str(root),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        }
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                (
                    str(root / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{name}",
                    *("--host", host, "--port", "0", "--webui-port", "0", *options),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.terminate()  # a worker ends its executors
        try:
            self.process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_for(self, pattern: str) -> str:
        """Return what follows in the log."""
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self._log.read_text(errors="replace"))):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise BenchmarkFailed(f"Spark does not start: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        return match[1]
