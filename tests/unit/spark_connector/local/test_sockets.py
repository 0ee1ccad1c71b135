"""Unix sockets in a private directory: whose process is at the other end."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from iris_py import ConfigurationError
from spark_connector.local import sockets
from spark_connector.local.private_directory import PrivateDirectory
from spark_connector.local.sockets import ForeignPeer, check_peer, connect, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make(tmp_path / "own") as made:
        yield made


class Foreign:
    """A connection to a process of another user."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("3i", 1, os.getuid() + 1, 0)


def test_both_sides_of_a_connection_are_of_this_user(directory: PrivateDirectory) -> None:
    with listen(directory, "socket", 1) as listener, connect(directory, "socket", 5.0) as connection:
        assert directory.stat("socket").st_mode & 0o777 == 0o600
        assert connection.gettimeout() == 5.0
        accepted = listener.accept()[0]
        check_peer(accepted)
        accepted.close()


def test_a_process_of_another_user_is_told_from_ones_own() -> None:
    with pytest.raises(ForeignPeer, match=f"belongs to user {os.getuid() + 1}, and this process to {os.getuid()}") as caught:
        check_peer(Foreign())
    assert caught.value.user == os.getuid() + 1


def test_a_connection_to_another_user_is_closed_before_anything_is_sent(
    directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_connection: object) -> None:
        raise ForeignPeer(4711)

    with listen(directory, "socket", 1) as listener:
        monkeypatch.setattr(sockets, "check_peer", refuse)
        with pytest.raises(ForeignPeer):
            connect(directory, "socket", 5.0)
        accepted = listener.accept()[0]
        assert accepted.recv(100) == b""
        accepted.close()


def test_where_the_kernel_does_not_tell_the_modes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    check_peer(Foreign())


def test_a_socket_that_was_left_behind_is_replaced_and_nothing_else(directory: PrivateDirectory) -> None:
    listen(directory, "socket", 1).close()
    listen(directory, "socket", 1).close()
    directory.write("file", b"what somebody needs")
    for name in ("file", "x" * 120):
        with pytest.raises(
            ConfigurationError, match=r"the socket .* cannot be made: .*Make room there, or set XDG_RUNTIME_DIR"
        ):
            listen(directory, name, 1)
    assert directory.read("file", 100) == b"what somebody needs"


def test_nobody_at_a_socket_is_an_error_of_the_system(directory: PrivateDirectory) -> None:
    with pytest.raises(FileNotFoundError):
        connect(directory, "socket", 5.0)
    listen(directory, "socket", 1).close()
    with pytest.raises(ConnectionRefusedError):
        connect(directory, "socket", 5.0)
