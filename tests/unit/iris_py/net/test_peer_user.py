"""The user at the other end of a connection within this machine."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from iris_py.net.peer_user import peer_user

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESSES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.fixture(params=ADDRESSES, ids=["IPv4", "IPv6"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, address = request.param
    with socket.socket(family) as found:
        try:
            found.bind((address, 0))
        except OSError:
            pytest.skip("this machine does not have the address")
        found.listen()
        yield found


def test_a_connection_of_this_user_is_known(listening: socket.socket) -> None:
    with socket.create_connection(listening.getsockname()[:2]) as own:
        accepted, _address = listening.accept()
        with accepted:
            assert peer_user(accepted) == os.getuid()
            own.close()


@pytest.mark.skipif(os.getuid() != 0, reason="a process of another user takes root")
def test_a_connection_of_another_user_is_known(listening: socket.socket) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            with socket.socket(listening.family) as own:
                own.connect(listening.getsockname())
                os.read(reading, 1)
        finally:
            os._exit(0)
    accepted, _address = listening.accept()
    with accepted:
        found = peer_user(accepted)
    os.write(writing, b"x")
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert found == 65534


def test_a_socket_without_another_end_has_no_user(listening: socket.socket) -> None:
    assert peer_user(listening) is None
