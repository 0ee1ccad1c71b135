"""Another user of the machine, who has prepared the place where an executor's agent is to be.

With root there are two users, and the kernel says so. Without, the files and processes of the stranger are those of the user
who runs the tests; so then it is that user who is somebody else: :func:`become_somebody_else`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

#: The user of nobody, who owns nothing.
STRANGER = 65534
IS_ROOT = os.getuid() == 0
#: What an agent of the day says first, and what it says when it was asked: so its caller goes on as far as it may.
SAID = b'{"agent": "' + b"ab" * 16 + b'", "waiting": true, "nonce": "' + b"00" * 32 + b'"}\n{"proof": "' + b"00" * 32 + b'"}\n'


def become_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files and processes of this user be those of another one, where they cannot be made so."""
    if not IS_ROOT:
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)


def fork(function: Callable[[], object]) -> int:
    """Run a function in a process of the stranger; return its pid."""
    with warnings.catch_warnings(action="ignore"):  # this process has threads, and the child uses none of them
        pid = os.fork()
    if not pid:
        status = 1
        try:
            if IS_ROOT:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            os.umask(0)
            function()
            status = 0
        finally:
            os._exit(status)
    return pid


def run(function: Callable[[], object]) -> None:
    """Let the stranger do something, and wait until it is done."""
    _pid, status = os.waitpid(fork(function), 0)
    assert os.waitstatus_to_exitcode(status) == 0


def imitate_agent(directory: Path) -> None:
    """Put into a directory what tasks look for in that of an agent, and hold its lock; without its socket."""
    directory.mkdir(mode=0o777, parents=True, exist_ok=True)
    (directory / "info.json").write_text('{"executor": "7", "pid": 1, "waiting": true}')
    (directory / "birth.key").write_bytes(bytes(32))
    hold(directory / "lock")


def hold(lock: Path) -> int:
    """Lock a file for as long as this process lives, or the descriptor is open."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


class Squatter:
    """A process of the stranger that waits at a socket for what it is told.

    Attributes:
        received: All that it was told, by whomever, until now.
    """

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid = pid
        self._pipe = pipe
        self._received = b""

    @property
    def received(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._received += data
        return self._received

    def end(self) -> bytes:
        """End it; return all that it was told."""
        os.set_blocking(self._pipe, False)
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        received = self.received
        os.close(self._pipe)
        return received


@contextlib.contextmanager
def squat(address: Path, prepare: Callable[[], object] = lambda: None) -> Iterator[Squatter]:
    """Let a process of the stranger prepare something, and then serve a socket in the place of an agent."""
    reading, writing = os.pipe()

    def serve() -> None:
        prepare()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            address.chmod(0o777)
            listener.listen()
            os.write(writing, b"\n")
            while True:
                with contextlib.suppress(OSError):
                    connection = listener.accept()[0]
                    with connection:
                        connection.settimeout(0.5)
                        connection.sendall(SAID)
                        while data := connection.recv(1 << 16):
                            os.write(writing, data)

    squatter = Squatter(fork(serve), reading)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"\n"
        os.set_blocking(reading, False)
        yield squatter
    finally:
        squatter.end()
