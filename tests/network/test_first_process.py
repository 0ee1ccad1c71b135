"""`iris` as process 1 of a namespace of processes, as in a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
IRIS = [sys.executable, "-m", "iris_py.cli"]
#: Only a failing test takes so long.
PATIENCE_S = 60.0
#: Replies with its own process, and leaves another one behind.
COMMAND = "sleep 0.01 & echo $!"


def children_of(pid: int) -> list[tuple[int, str]]:
    """Return the children of a process, each with its state."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        state = Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2].split()[0]
        found.append((int(child), state))
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    directories = {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "config", "XDG_STATE_HOME": tmp_path / "state"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
    return kept | {name: str(path) for name, path in directories.items()}


@pytest.fixture
def first(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A member as process 1: the command that made its namespace, and the process as it is known outside."""
    command = [*NAMESPACE, *IRIS, "join", "--shell", "--exec", COMMAND, "left"]
    outer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert outer.stderr is not None
    assert "Ctrl-C ends it" in outer.stderr.readline()
    yield outer, children_of(outer.pid)[0][0]
    outer.kill()
    outer.communicate()


def test_what_commands_leave_behind_is_reaped(first: tuple[subprocess.Popen[str], int], environment: dict[str, str]) -> None:
    for _ in range(3):
        subprocess.run([*IRIS, "request", "left", ""], env=environment, check=True, capture_output=True, timeout=PATIENCE_S)
    command = children_of(first[1])[0][0]
    deadline = time.monotonic() + PATIENCE_S
    while [pid for pid, _state in children_of(first[1])] != [command]:
        assert time.monotonic() < deadline, children_of(first[1])
        time.sleep(0.01)  # what was left behind still sleeps, or is about to be reaped


def test_it_leaves_by_sigterm_and_its_exit_code_is_that_of_the_command(first: tuple[subprocess.Popen[str], int]) -> None:
    os.kill(first[1], signal.SIGTERM)
    assert first[0].wait(PATIENCE_S) == 0
