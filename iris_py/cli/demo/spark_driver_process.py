"""Starts the program with the Spark session of `iris demo --spark`, and ends all processes of its application.

Spark's processes start further ones, some without a parent. All inherit a ``TMPDIR`` of the demo, which identifies them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from iris_py.cli.children import Child
from iris_py.cli.demo.spark_terms import DRIVER_PROGRAM
from iris_py.errors import ConfigurationError, IrisError
from iris_py.extras import install_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from iris_py.cli.demo.spark_terms import SparkJob

__all__ = ["SparkDriver", "SparkFailed", "end_all", "environment_of", "kill_process", "processes_of", "require_packages"]

END_TIMEOUT_S: Final = 10.0  # killed processes are gone in milliseconds, but machines can be busy
LOOK_INTERVAL_S: Final = 0.02


def processes_of(directory: str) -> list[int]:
    """Return the ids of all processes with the directory as ``TMPDIR``, except the caller's."""
    own = os.getpid()
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [number for number in numbers if number != own and _belongs(number, directory)]


def kill_process(process_id: int, directory: str) -> bool:
    """Kill a process (SIGKILL) if its ``TMPDIR`` is the directory; return whether the process was killed."""
    try:
        descriptor = os.pidfd_open(process_id)
    except OSError:
        return False
    try:
        # Checked with the descriptor open: from then on the process id cannot be reused.
        if not _belongs(process_id, directory):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(directory: str) -> None:
    """Kill every process with the directory as ``TMPDIR``, except the caller, and remove the directory."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        running = processes_of(directory)
        for process_id in running:
            kill_process(process_id, directory)
        if not running:
            shutil.rmtree(directory, ignore_errors=True)
            if not os.path.exists(directory):
                return
        time.sleep(LOOK_INTERVAL_S)


def _belongs(process_id: int, directory: str) -> bool:
    try:
        environment = Path(f"/proc/{process_id}/environ").read_bytes()
    except OSError:
        return False  # it has ended, or belongs to another user
    return b"TMPDIR=" + os.fsencode(directory) in environment.split(b"\0")


EVENT_BYTES_MAX: Final = 1 << 20  # of a line from the program; the longest has the text of an error
LEAVE_TIMEOUT_S: Final = 20.0  # for Spark to end: spark.stop() takes 1 s on an idle machine
#: Environment variables that would change Spark's behaviour, or the network of its nodes.
FOREIGN: Final = ("IRIS_", "SPARK_", "PYSPARK_", "XDG_CONFIG_", "XDG_RUNTIME_", "XDG_STATE_", "HADOOP_")


class SparkFailed(IrisError):
    """The part of the demo that needs Spark failed.

    Attributes:
        is_clear: Whether the error's text explains the failure without Spark's log.
    """

    def __init__(self, text: str, *, is_clear: bool = False) -> None:
        self.is_clear = is_clear
        super().__init__(text)


def require_packages() -> None:
    """Check that the packages for Spark are installed, before the demo starts anything.

    Raises:
        ConfigurationError: A package is missing; the text says how to install it.
    """
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"--spark needs Spark ({', '.join(missing)} not installed). Run: {install_command('spark')}")


def environment_of(directory: str) -> dict[str, str]:
    """Return the environment of Spark's processes: no settings of the user, all files in this directory, only loopback
    addresses.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    if "PYTHONPATH" in kept:  # relative parts refer to the present directory
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in kept["PYTHONPATH"].split(os.pathsep) if part)
    return kept | {
        "TMPDIR": directory,
        "XDG_CONFIG_HOME": directory,
        "XDG_STATE_HOME": directory,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


class SparkDriver:
    """The program with the Spark session. Leaving the ``async with`` ends all processes of Spark: at once after an exception.

    Attributes:
        directory: The directory for all files of Spark's processes. It is removed at the end.
    """

    def __init__(self, log: IO[bytes]) -> None:
        """Prepare the driver.

        Args:
            log: The file for the standard error of all Spark processes.
        """
        self._log = log
        self._child: Child | None = None
        self.directory = tempfile.mkdtemp(prefix="iris-demo-")  # short, because socket paths are below it

    async def __aenter__(self) -> Self:
        """Return the driver, without a process yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all processes of Spark, and wait until all have ended."""
        if self._child is not None:
            try:
                if exc is None:
                    await asyncio.wait_for(self._child.wait(), LEAVE_TIMEOUT_S)
            except TimeoutError:
                pass
            finally:
                # In a thread, and shielded from a further interrupt of the demo: it takes milliseconds.
                await asyncio.shield(asyncio.to_thread(end_all, self.directory))
                await self._child.wait()
        else:
            os.rmdir(self.directory)

    async def start(self, job: SparkJob) -> None:
        """Start the program with the Spark session, and send it the job."""
        self._child = await Child.start(
            *("-P", "-m", DRIVER_PROGRAM),
            environment=environment_of(self.directory),
            directory=self.directory,
            errors=self._log,
            line_bytes_max=EVENT_BYTES_MAX,
        )
        self._child.write(job.encode())

    def go(self) -> None:
        """Let the program begin the job, once its Spark session is ready."""
        assert self._child is not None
        self._child.write(b"go\n")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of the program until the program has ended.

        Raises:
            SparkFailed: The program failed, or ended too early.
        """
        assert self._child is not None
        while line := await self._child.read_line():
            event = json.loads(line)
            if event["event"] == "failed":
                raise SparkFailed(event["error"], is_clear=event["is_clear"])
            yield event
            if event["event"] == "done":
                return
        raise SparkFailed(f"the program with the Spark session ended with status {await self._child.wait()}.")
