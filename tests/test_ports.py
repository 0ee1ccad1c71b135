"""The ports of tests: free, and of one process of tests at a time."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.ports import _reserve, dead_port, free_port, taken_port

OTHER = "import sys; from tests.ports import _reserve; print([_reserve(int(port)) for port in sys.argv[1:]])"


def test_a_free_port_is_free_for_both_protocols_and_reserved() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", port))
    assert not _reserve(port)


def test_another_process_gets_another_number() -> None:
    mine = [free_port() for _ in range(3)]
    assert len(set(mine)) == 3
    found = subprocess.run([sys.executable, "-c", OTHER, *map(str, mine)], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout == "[False, False, False]\n"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_taken_port_is_free_in_the_other_protocol(kind: socket.SocketKind) -> None:
    other = socket.SOCK_DGRAM if kind is socket.SOCK_STREAM else socket.SOCK_STREAM
    with taken_port(kind) as port:
        with socket.socket(socket.AF_INET, other) as free:
            free.bind(("127.0.0.1", port))
        with socket.socket(socket.AF_INET, kind) as late, pytest.raises(OSError, match="in use"):
            late.bind(("127.0.0.1", port))


def test_a_dead_port_refuses() -> None:
    with dead_port() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
