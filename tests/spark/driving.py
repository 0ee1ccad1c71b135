"""A driver of Spark in a process of its own, which a test tells what to do, and may kill.

Only one SparkContext can live in a process, and that of the tests has the one of the fixture ``spark``. What is sent is a
function, by value; it is called with the :class:`State` of the driver.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import cloudpickle

from spark_connector.executors import spawn
from tests.spark.conftest import environment
from tests.spark.java import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pyspark.sql import SparkSession

    from spark_connector import ExecutorCluster

Result = TypeVar("Result")

#: For what other processes do: long enough on any machine.
PATIENCE_S = 100.0
ROOT = Path(__file__).parents[2]
#: Settings with which an executor has one Python daemon. Its tasks of SQL have another one otherwise, for their environment has
#: a variable more: that tracebacks are shortened.
ONE_DAEMON = {"spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false"}


class State:
    """The state that a driver keeps from one call to the next."""

    spark: SparkSession
    cluster: ExecutorCluster
    data: dict[str, Any]

    def __init__(self) -> None:
        self.data = {}


class DriverFailed(Exception):
    """A function failed in the driver.

    Attributes:
        type: The name of the exception's class.
        text: Its text.
    """

    def __init__(self, type: str, text: str) -> None:  # noqa: A002
        self.type = type
        self.text = text
        super().__init__(f"{type}: {text}")


class Driver:
    """A process with a driver.

    Args:
        home: The home directory of its processes.
        module: Whose functions are sent.

    Attributes:
        process: The process.
        temporary: The directory for temporary files of all processes of it.
        errors: The file with the standard error of the process and of its Java.
    """

    def __init__(self, home: Path, module: ModuleType) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="iris-test-"))  # short: it holds sockets
        self.marker = f"TEST_DRIVER={uuid.uuid4()}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_", "SPARK_"))}
        name, _, value = self.marker.partition("=")
        home.mkdir()
        self.errors = home.parent / f"{home.name}.errors"
        environ = {**kept, **environment(home), name: value, "TMPDIR": str(self.temporary)}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                cwd=home,
            )
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    def __call__(self, function: Callable[[State], Result]) -> Result:
        """Call a function there; return what it returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        cloudpickle.dump(function, self.process.stdin)  # type: ignore[no-untyped-call]
        self.process.stdin.flush()
        result, error = pickle.load(self.process.stdout)
        if error is not None:
            raise DriverFailed(*error)
        return result  # type: ignore[no-any-return]

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes that have come of it and live, by their numbers."""
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal():
                continue
            try:
                if self.marker.encode() in (path / "environ").read_bytes() and not spawn.is_zombie(int(path.name)):
                    found[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                pass  # it has just ended
        return found

    def agents(self) -> list[int]:
        """Return the processes of agents."""
        return [pid for pid, command in self.processes().items() if "spark_connector.executors.agent" in command]

    def directories(self) -> list[Path]:
        """Return the directories of agents."""
        return [path for base in self.temporary.glob("iris-*") for path in base.iterdir()]

    def end(self) -> int:
        """Let the process end by itself, as at the end of a program; return its exit code."""
        self.process.communicate(timeout=PATIENCE_S)  # it ends with its standard input
        return self.process.returncode

    def close(self) -> None:
        """End everything, whatever state it is in, and remove what Spark leaves of a local cluster."""
        self.process.kill()
        self.process.communicate()
        until(lambda: not self.processes())
        shutil.rmtree(self.temporary)


def until(condition: Callable[[], object]) -> float:
    """Wait for a state; return how long it took, in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE_S, "it does not happen"
        time.sleep(0.005)
    return time.monotonic() - began


def start_session(home: Path, master: str, **settings: str) -> SparkSession:
    """Start a session, in the driver."""
    from pyspark.sql import SparkSession

    from spark_connector import ensure_java

    ensure_java()
    builder = SparkSession.builder.master(master).appName("iris-executors")
    defaults = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} {JAVA_OPTIONS}",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def work_directory(application: str) -> Path:
    """Return where the executors of an application in ``local-cluster`` have their logs: below the package of Spark."""
    import pyspark

    return Path(pyspark.__file__).parent / "work" / application


def main() -> None:
    """Be the driver: call what comes, and answer."""
    state = State()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints
    while True:
        try:
            function = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: tuple[object, tuple[str, str] | None] = function(state), None
        except Exception as exc:
            answer = None, (type(exc).__name__, str(exc))
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
