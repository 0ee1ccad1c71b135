"""A secret that is exchanged under load, in processes: the steps that docs/security.md tells an operator."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 5
#: Requests that each process asks in a second.
RATE = 200
#: How long each state of the secrets is worked under (seconds).
STEP_S = 1.5
#: How long one of the processes is stopped: longer than it takes until it is held for dead.
STOPPED_S = 4.0


class Rotating:
    """One of the processes."""

    def __init__(self, seed: str, tunnel: str = "") -> None:
        script = Path(__file__).with_name("rotating.py")
        pipe = subprocess.PIPE
        command = [sys.executable, str(script), seed, str(RATE), tunnel]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.address = self.line().split()[1]

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable, "it says nothing"
        line = self.process.stdout.readline().decode()
        assert line, self.process.communicate()[1].decode()
        return line

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"begin\n")
        self.process.stdin.flush()

    def rekey(self) -> None:
        self.process.send_signal(signal.SIGHUP)
        assert self.line() == "rekeyed\n"

    def result(self) -> dict[str, object]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        result: dict[str, object] = json.loads(self.line())
        return result


@pytest.fixture
def processes(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rotating]]:
    monkeypatch.setenv("IRIS_SECRET_FILE", str(home / "network.secret"))
    keys("new", "-o", str(home / "network.secret"))
    started = [Rotating("", "end")]
    try:
        seed = started[0].address
        started += [Rotating(seed, "begin"), *(Rotating(seed) for _ in range(PROCESSES - 2))]
        yield started
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()
            for stream in (each.process.stdin, each.process.stdout, each.process.stderr):
                assert stream is not None
                stream.close()


def keys(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "iris_py.cli", "keys", *arguments, "--json"]
    document: dict[str, object] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return document


@pytest.mark.timeout(300)
def test_nothing_fails_while_a_secret_is_exchanged_and_one_process_is_stopped(processes: list[Rotating]) -> None:
    path = os.environ["IRIS_SECRET_FILE"]
    first = keys("list", path)["generations"]
    for each in processes:
        each.begin()
    time.sleep(STEP_S)  # it is to work for so long
    *running, stopped = processes
    keys("add", path)
    for each in processes:
        each.rekey()
    time.sleep(STEP_S)
    stopped.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    for step in ("rotate", "retire"):
        keys(step, path)
        for each in running:
            each.rekey()
        time.sleep(max(STEP_S, STOPPED_S / 2))
    assert time.monotonic() - begun >= STOPPED_S
    stopped.process.send_signal(signal.SIGCONT)
    stopped.rekey()
    time.sleep(STEP_S)
    results = [each.result() for each in processes]
    assert [result["errors"] for result in results] == [[]] * PROCESSES
    assert [result["rekeyed"] for result in results] == [3, 3, 3, 3, 2]
    for result in results:
        answered = result["answered"]
        assert isinstance(answered, int)
        assert answered > RATE // 4  # it went on, also where the machine is busy
    assert results[1]["chunks"]
    last = keys("list", path)["generations"]
    assert isinstance(last, list)
    assert len(last) == 1
    assert last != first
