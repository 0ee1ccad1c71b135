"""Unix sockets in a private directory, with a check of the peer: the kernel reports the user of the other process."""

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
    """The process at the other end of a connection belongs to another user.

    Attributes:
        user: The user id of that process.
    """

    def __init__(self, user: int) -> None:
        self.user = user
        super().__init__(f"its socket belongs to user {user}, and this process to {os.getuid()}")

    def __reduce__(self) -> tuple[type[ForeignPeer], tuple[int], dict[str, object]]:
        return type(self), (self.user,), vars(self)


class ConnectedSocket(Protocol):
    """A connected Unix socket, or an event loop's view of it."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option; see :meth:`socket.socket.getsockopt`."""


def check_peer(connection: ConnectedSocket) -> None:
    """Check that the process at the other end belongs to this user, in addition to the modes of directory and socket.

    Raises:
        ForeignPeer: The other process belongs to another user.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return  # not Linux: only the modes protect the socket
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, user, _group = _PEER_CREDENTIALS.unpack(credentials)
    if user != os.getuid():
        raise ForeignPeer(user)


def connect(directory: PrivateDirectory, name: str, timeout_s: float) -> socket.socket:
    """Connect to a socket of this user, without sending anything.

    Args:
        directory: The directory of the socket.
        name: The name of the socket.
        timeout_s: How long to wait, and the timeout of the connection.

    Raises:
        ForeignPeer: A process of another user listens there.
        OSError: No process listens there.
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
    """Create a socket for processes of this user, replacing an abandoned one.

    Args:
        directory: The directory of the socket.
        name: The name of the socket.
        backlog: Maximum number of waiting connections.

    Raises:
        ConfigurationError: The socket cannot be created.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        if directory.is_socket(name):
            directory.unlink(name)
        os.fchmod(listener.fileno(), 0o600)  # before the file exists: other users can open it at no time
        listener.bind(directory.address(name))
        listener.listen(backlog)
    except OSError as exc:
        listener.close()
        raise ConfigurationError(
            f"the socket {directory.path / name} cannot be made: {exc.strerror or exc}. Make room there, or set "
            "XDG_RUNTIME_DIR on the executors to a directory of their user that has mode 0700."
        ) from exc
    return listener
