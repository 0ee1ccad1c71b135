"""As process 1 of a container, `iris` reaps the processes of others and passes signals on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Makes a process a reaper of orphans, as process 1 is (PR_SET_CHILD_SUBREAPER of prctl(2)), and does what `iris` does there.
HEAD = """
import ctypes, os, signal, subprocess, sys, time
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
from iris_py.cli.first_process import run_in_child
first = os.getpid()
run_in_child()
assert os.getppid() == first
"""
#: Leaves processes behind that have ended, and waits until none of them is a zombie.
ORPHANS = """
for _ in range(3):
    line = subprocess.run(["sh", "-c", "sleep 0.01 >/dev/null & echo $!"], capture_output=True, check=True).stdout
    while os.path.exists(f"/proc/{int(line)}"):
        time.sleep(0.001)
print("reaped")
"""
WAITS = """
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
signal.signal(signal.SIGUSR1, lambda number, frame: print("told", flush=True))
print("waits", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(processes: list[subprocess.Popen[str]], program: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HEAD + program]
    processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return processes[-1]


def test_orphans_are_reaped(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, ORPHANS)
    assert process.communicate(timeout=PATIENCE_S) == ("reaped\n", "")
    assert process.returncode == 0


def test_signals_are_passed_on_and_the_exit_code_is_that_of_the_command(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, WAITS)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "told\n"
    process.terminate()
    assert process.wait(PATIENCE_S) == 7


def test_a_command_that_a_signal_ends_has_the_exit_code_that_shells_give(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, "os.kill(os.getpid(), signal.SIGKILL)")
    assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL


def test_ctrl_c_at_the_terminal_comes_once() -> None:
    program = f"""{HEAD}
told = []
signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
print("waits", flush=True)
sys.stdin.readline()  # what is typed after Ctrl-C
print(len(told), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    with os.fdopen(terminal, "rb+", buffering=0) as stream:
        assert b"waits" in stream.readline()
        stream.write(b"\x03")
        stream.write(b"on\n")
        lines = b""
        while b"True" not in lines and b"False" not in lines:
            lines += stream.readline()
        status = os.waitpid(pid, 0)[1]  # while its terminal is there
    assert b"1 True" in lines
    assert os.waitstatus_to_exitcode(status) == 0
