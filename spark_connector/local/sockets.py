"""Unix sockets in a private directory: before it sends anything, each side asks the kernel whose process the other side is."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Protocol

from iris_py import ConfigurationError

if TYPE_CHECKING:
    from spark_connector.local.private_directory import PrivateDirectory

__all__ = ["ForeignPeer", "check_peer", "connect", "listen"]

_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: see unix(7)


class ForeignPeer(Exception):
    """The process at the other end of a connection belongs to somebody else.

    Attributes:
        user: The number of that user.
    """

    def __init__(self, user: int) -> None:
        self.user = user
        super().__init__(f"its socket belongs to user {user}, and this process to {os.getuid()}")

    def __reduce__(self) -> tuple[type[ForeignPeer], tuple[int], dict[str, object]]:
        return type(self), (self.user,), vars(self)


class Connected(Protocol):
    """A connected Unix socket, or what an event loop shows of it."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option; see :meth:`socket.socket.getsockopt`."""


def check_peer(connection: Connected) -> None:
    """See that the process at the other end is one of this user. The modes of directory and socket say the same.

    Raises:
        ForeignPeer: It is not.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return  # not Linux: the modes it is
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, user, _group = _PEER_CREDENTIALS.unpack(credentials)
    if user != os.getuid():
        raise ForeignPeer(user)


def connect(directory: PrivateDirectory, name: str, timeout_s: float) -> socket.socket:
    """Connect to a socket of this user. Nothing has been sent when this returns.

    Args:
        directory: Where it is.
        name: Of its file.
        timeout_s: How long to wait for that, and the timeout of the connection.

    Raises:
        ForeignPeer: A process of somebody else listens there.
        OSError: Nobody does.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(directory.address(name))
        check_peer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def listen(directory: PrivateDirectory, name: str, backlog: int) -> socket.socket:
    """Make a socket for processes of this user, in the place of one that was left behind.

    Args:
        directory: Where it is to be.
        name: Of its file.
        backlog: How many connections may wait.

    Raises:
        ConfigurationError: There can be no socket.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        if directory.is_socket(name):
            directory.unlink(name)
        os.fchmod(listener.fileno(), 0o600)  # before there is a file: at no moment it is open to others
        listener.bind(directory.address(name))
        listener.listen(backlog)
    except OSError as exc:
        listener.close()
        raise ConfigurationError(
            f"there can be no socket {directory.path / name}: {exc.strerror or exc}. Make room there, or set XDG_RUNTIME_DIR "
            "on the executors to a directory of their user that has mode 0700."
        ) from exc
    return listener
