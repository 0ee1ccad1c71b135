"""Numbers of ports for programs that have to be told one, and ports that are taken or where nobody listens.

A number that the system gives away (port 0) is free for one protocol alone, and another process may have it as soon as its
socket is closed. Both happen on a machine where other tests run. So these numbers lie below those that systems give away, and
a process of tests that has taken one keeps it until its end: a file that it locks tells all others on the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Linux gives away 32,768 and above, other systems 49,152 and above. A number that is reserved is not found free again, so the
#: range is many times what all the tests of a machine take.
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    """Return a number that nobody uses on loopback, neither for streams nor for datagrams, and that no other test gets."""
    while True:
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        if _reserve(port) and _is_free(port):
            return port


def has_ipv6() -> bool:
    """Return whether this machine has loopback of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def taken_port(kind: socket.SocketKind) -> Iterator[int]:
    """Hold a port for streams or for datagrams; of the other kind it is free."""
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind(("127.0.0.1", free_port()))
        if kind is socket.SOCK_STREAM:
            holder.listen()
        yield holder.getsockname()[1]


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """Hold a port where nobody listens: it refuses connections for as long as it is held."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port()))
        yield holder.getsockname()[1]


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _reserve(port: int) -> bool:
    """Keep a number from the other processes of tests on this machine; returns whether none of them has it."""
    directory = Path(tempfile.gettempdir(), f"iris-test-ports-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    file = os.open(directory / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    return True  # the system takes the lock back at the end of the process
