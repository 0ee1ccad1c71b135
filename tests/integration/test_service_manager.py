"""Real services under a service manager that is a socket: what they tell it, and when (sd_notify(3))."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import PATIENCE_S
from tests.integration.test_cli import Shell, finish, stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import iris_py as iris

async def answer(request):
    return request.payload

async def main():
    async with iris.connect() as node, node.join("echo", answer):
        await iris.until_stopped()

iris.run(main())
"""
PROGRAM_SYNC = """
import iris_py.sync as iris

with iris.connect() as node, node.join("echo", lambda request: request.payload):
    iris.until_stopped()
"""

WORKER = """
import os

async def manager(request):
    return os.environ.get("NOTIFY_SOCKET", "nobody").encode()
"""


class Manager:
    """A service manager that listens always; its services are processes of a shell."""

    def __init__(self, address: str, shell: Shell) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind("\0" + address[1:] if address.startswith("@") else address)
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        shell.environment |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}

    def until(self, line: str) -> list[str]:
        """Return what came until a line, with that."""
        lines: list[str] = []
        while line not in lines:
            lines += self._came.get(timeout=PATIENCE_S).decode().split("\n")
        return lines

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()

    def _listen(self) -> None:
        while message := self._sock.recv(65_536):
            self._came.put(message)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.end()


@pytest.fixture
def manager(tmp_path: Path, shell: Shell) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"), shell)
    yield manager
    manager.close()


def ask(shell: Shell, cluster: str, text: str) -> bytes:
    environment = {name: value for name, value in shell.environment.items() if name != "NOTIFY_SOCKET"}
    command = [sys.executable, "-m", "iris_py.cli", "request", cluster, text]
    return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_S).stdout


def test_a_command_is_ready_when_everybody_knows_it_and_says_that_it_lives_and_leaves(manager: Manager, shell: Shell) -> None:
    service = shell.start("join", "env", "--exec", "sh -c 'echo ${NOTIFY_SOCKET:-nobody}'", stdin=subprocess.DEVNULL)
    told = manager.until("READY=1")
    assert "STOPPING=1" not in told
    assert ask(shell, "env", "?") == b"nobody\n", "what the service runs is not the service"
    told += manager.until("WATCHDOG=1")
    assert any(line.startswith("STATUS=serves 'env' in the network 'default' at 127.0.0.1:") for line in told), told
    service.send_signal(signal.SIGHUP)
    told = manager.until("READY=1")
    assert "RELOADING=1" in told
    assert any(line.startswith("MONOTONIC_USEC=") for line in told)
    code, _, error = stop(service)
    assert (code, "read the secrets again" in error) == (0, True)
    assert "STATUS=leaving" in manager.until("STOPPING=1")


def test_a_service_of_several_workers_is_ready_when_all_of_them_serve(manager: Manager, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text(WORKER)
    options = ["--directory", str(tmp_path), "--workers", "2", "--json"]
    service = shell.start("serve", "shout:manager", *options, stdin=subprocess.DEVNULL)
    told = manager.until("READY=1")
    assert "STATUS=2 of 2 workers serve" in told
    assert "STOPPING=1" not in told
    assert ask(shell, "manager", "?") == b"nobody", "a worker is not the service"
    manager.until("WATCHDOG=1")
    assert stop(service)[0] == 0
    manager.until("STOPPING=1")


def test_a_node_tells_a_manager_in_the_abstract_namespace(shell: Shell) -> None:
    manager = Manager(f"@iris-test-{os.getpid()}", shell)
    try:
        service = shell.start("node", stdin=subprocess.DEVNULL)
        manager.until("READY=1")
        manager.until("WATCHDOG=1")
        assert stop(service)[0] == 0
        manager.until("STOPPING=1")
    finally:
        manager.close()


@pytest.mark.parametrize("program", [PROGRAM, PROGRAM_SYNC], ids=["async", "sync"])
def test_a_program_that_waits_until_it_is_stopped_tells_the_same(manager: Manager, shell: Shell, program: str) -> None:
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        manager.until("READY=1")
        assert ask(shell, "echo", "hello") == b"hello"
        manager.until("WATCHDOG=1")
        process.terminate()
        manager.until("STOPPING=1")
        assert finish(process)[0] == 0
    finally:
        process.kill()
        process.communicate()


def test_a_service_that_cannot_start_is_never_ready(manager: Manager, shell: Shell) -> None:
    code, _, error = shell.run("node", "--listen", "192.0.2.1:1", "--secret-command", "echo nothing")
    assert code != 0
    assert error
    shell.start("node", stdin=subprocess.DEVNULL)
    told = manager.until("READY=1")
    assert told.count("READY=1") == 1
    assert "STOPPING=1" not in told


def test_a_secret_as_systemd_hands_it_over_is_taken_without_a_word(manager: Manager, shell: Shell, tmp_path: Path) -> None:
    assert shell.run("keys", "new", "--output", str(tmp_path / "secret"))[0] == 0
    (tmp_path / "secret").chmod(0o440)  # as LoadCredential= does, and fsGroup of Kubernetes
    shell.environment["IRIS_SECRET_FILE"] = str(tmp_path / "secret")
    service = shell.start("node", "--listen", "127.0.0.1:0", stdin=subprocess.DEVNULL)
    manager.until("READY=1")
    code, _, error = stop(service)
    assert code == 0
    assert len(error.splitlines()) == 1, error  # what announces the node
