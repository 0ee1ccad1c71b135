"""A secret that is exchanged under load, in processes: the steps that docs/security.md tells an operator."""

from __future__ import annotations

import json
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.outcome import ExitCode
from tests import warm
from tests.integration.conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 5
#: Requests that each process asks in a second.
RATE = 100
#: Requests that each process has to have answered under each state of the secrets.
WORK = 100


class Rotating:
    """One of the processes."""

    def __init__(self, seed: str, tunnel: str = "") -> None:
        script = Path(__file__).with_name("rotating.py")
        pipe = subprocess.PIPE
        command = [sys.executable, str(script), seed, str(RATE), tunnel]
        self.process: subprocess.Popen[bytes] = warm.Process(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.address = self.line().split()[1]

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable, "it says nothing"
        line = self.process.stdout.readline().decode()
        assert line, self.process.communicate()[1].decode()
        return line

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def rekey(self) -> None:
        self.process.send_signal(signal.SIGHUP)
        assert self.line() == "rekeyed\n"

    def see_members(self, count: int) -> None:
        """Return when the process sees so many members."""
        self.say(f"members {count}")
        assert self.line() == "seen\n"

    def result(self) -> dict[str, object]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        result: dict[str, object] = json.loads(self.line())
        return result


@pytest.fixture
def processes(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rotating]]:
    """They serve the clusters `work`, which has a secret of its own, and `tunnels`, which has none."""
    monkeypatch.setenv("IRIS_SECRET_FILE", str(home / "network.secret"))
    monkeypatch.setenv("IRIS_CLUSTERS_DIRECTORY", str(home / "clusters"))
    keys("new", "-o", str(home / "network.secret"))
    (home / "clusters").mkdir()
    keys("new", "-o", str(home / "clusters" / "work"))
    monkeypatch.setenv(
        "IRIS_ADMINISTRATOR", str(keys("administrator", "-o", str(home / "administration.key"))["administrator"])
    )
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


def work(processes: list[Rotating]) -> None:
    """Return when each process has had enough answers."""
    for each in processes:
        each.say(f"work {WORK}")
    for each in processes:
        assert each.line() == "worked\n"


def take_step(processes: list[Rotating]) -> None:
    """Let some processes read their secrets again. Those that have done so and those that have not work with each other."""
    half = len(processes) // 2
    for part in (processes[:half], processes[half:]):
        for each in part:
            each.rekey()
        work(processes)
        for each in processes:
            each.see_members(len(processes))  # whoever stands still is held for dead


def keys(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "iris_py.cli", "keys", *arguments, "--json"]
    done = warm.run(command, timeout=PATIENCE_S)
    done.check_returncode()
    document: dict[str, object] = json.loads(done.stdout)
    return document


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["network.secret", "clusters/work"], ids=["of the network", "of the cluster"])
def test_nothing_fails_while_a_secret_is_exchanged_and_one_process_is_stopped(
    processes: list[Rotating], home: Path, name: str
) -> None:
    path = str(home / name)
    first = keys("list", path)["generations"]
    *running, stopped = processes
    for each in processes:
        each.say("begin")
    work(processes)
    keys("add", path)
    take_step(processes)
    stopped.process.send_signal(signal.SIGSTOP)
    for step in ("rotate", "retire"):
        keys(step, path)
        take_step(running)
    stopped.process.send_signal(signal.SIGCONT)
    stopped.rekey()
    work(processes)
    running[0].see_members(PROCESSES)
    results = [each.result() for each in processes]
    assert [result["errors"] for result in results] == [[]] * PROCESSES
    assert [result["rekeyed"] for result in results] == [3, 3, 3, 3, 2]
    assert results[1]["chunks"]
    last = keys("list", path)["generations"]
    assert isinstance(last, list)
    assert len(last) == 1
    assert last != first


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["network.secret", "clusters/work"], ids=["of the network", "of the cluster"])
def test_who_is_not_given_a_new_secret_is_put_out_at_once(
    processes: list[Rotating], home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is inside, serves, and has links and answers that are due; all the others get a file with the new secret alone."""
    *honest, thief = processes
    for each in processes:
        each.say("begin")
    work(processes)
    shutil.copytree(home, home / "old")
    (home / name).unlink()
    keys("new", "-o", str(home / name))
    for each in honest:
        each.rekey()
    for each in honest:
        each.see_members(len(honest))
    thief.see_members(1)  # of its own generation, which is itself
    work(honest)
    thief.process.kill()
    command = [sys.executable, "-m", "iris_py.cli", "request", "work", "hello", "--seed", honest[0].address]
    assert warm.run(command, timeout=PATIENCE_S).stdout == b"hello"
    monkeypatch.setenv("IRIS_SECRET_FILE", str(home / "old" / "network.secret"))
    monkeypatch.setenv("IRIS_CLUSTERS_DIRECTORY", str(home / "old" / "clusters"))
    late = warm.run([*command, "--timeout", "20"], timeout=PATIENCE_S)
    expected = ExitCode.HANDSHAKE if name == "network.secret" else ExitCode.NO_MEMBERS
    assert (late.returncode, late.stdout) == (expected, b""), late.stderr


@pytest.mark.timeout(300)
def test_nothing_fails_while_the_administrator_exchanges_the_secret_and_one_process_is_stopped(
    processes: list[Rotating], home: Path
) -> None:
    """Nobody brings a file anywhere, and no process is told of anything."""
    seed = ("--seed", processes[0].address)
    key = ("--administration-key", str(home / "administration.key"), *seed)
    first = keys("list", "--running", *seed)["generations"]
    *running, stopped = processes
    for each in processes:
        each.say("begin")
    work(processes)
    keys("add", *key)
    work(processes)
    stopped.process.send_signal(signal.SIGSTOP)
    running[0].see_members(PROCESSES - 1)  # the stopped one is held for dead
    for step in ("rotate", "retire"):
        keys(step, *key)
        work(running)
    stopped.process.send_signal(signal.SIGCONT)
    running[0].see_members(PROCESSES)
    work(processes)
    status = keys("list", "--running", *seed)
    assert status["number"] == 3
    assert isinstance(status["linked_nodes"], dict)
    assert set(status["linked_nodes"].values()) == {3}
    results = [each.result() for each in processes]
    assert [result["errors"] for result in results] == [[]] * PROCESSES
    assert [result["rekeyed"] for result in results] == [0] * PROCESSES
    assert results[1]["chunks"]
    last = keys("list")["generations"]  # of a process that starts now, with the file of before
    assert isinstance(last, list)
    assert len(last) == 1
    assert last != first
