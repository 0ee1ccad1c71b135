"""Members in processes of their own that end at one row, for tests of what that row costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.services import Service

Members = list[subprocess.Popen[str]]
#: The exit codes of members, by the way in which they end.
EXIT_CODES = {"kill": -signal.SIGKILL, "exit": 9, "memory": -signal.SIGSEGV}
#: Takes the row, the way in which it ends its members, and the number of members.
StartMembers = Callable[[int, str, int], Members]


@pytest.fixture
def start_members(service: Service, secret: str) -> Iterator[StartMembers]:
    """Starts members of the cluster ``mortal`` that end, in one of several ways, at one row."""
    started: Members = []

    def start(row: int, way: str, count: int) -> Members:
        arguments = ["mortal", "tests", service.node.address, str(row), way]
        command = [sys.executable, "-m", "tests.spark.mortal_member", *arguments]
        how = {"cwd": Path(__file__).parents[2], "env": {**os.environ, "IRIS_SECRET": secret}}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.extend(subprocess.Popen(command, text=True, **pipes, **how) for _ in range(count))  # type: ignore[call-overload]
        for member in started:
            assert member.stdout is not None
            assert member.stdout.readline() == "serving\n"
        return started

    yield start
    for member in started:
        member.kill()
        member.communicate()


def ended(members: Members) -> list[int]:
    """Return the exit codes of the members that have ended; it is minus the signal where a signal has ended it."""
    return [member.returncode for member in members if member.poll() is not None]
