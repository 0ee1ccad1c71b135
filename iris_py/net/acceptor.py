"""Accepts TCP connections for a server that decides about each of them before a byte is read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.logs import EventLogger
from iris_py.net.addresses import format_address
from iris_py.net.process import EXHAUSTED

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AcceptedSocket", "Acceptor"]

#: The socket of an accepted connection, which does not block.
AcceptedSocket: TypeAlias = socket.socket

logger = EventLogger("iris_py.net")

#: Connections that the system holds until they are accepted. Too small: clients that come together, as after the end of another
#: server, wait for a repeated SYN; too large: memory of the system.
BACKLOG: Final = 1024
#: Connections accepted in one turn of the event loop. Too small: a turn for each client that comes; too large: connected
#: clients wait while many others come.
ACCEPTS_MAX: Final = 64
#: Pause (seconds) after an accept that found no free file descriptor. Too small: a busy loop; too large: clients wait although
#: descriptors are free.
PAUSE_S: Final = 0.5
#: Largest number of unsent bytes of a connection in the kernel. Too small: the line idles while the next bytes are prepared;
#: too large: memory of the system for each client that does not read, up to 4 MiB without the bound.
UNSENT_BYTES_MAX: Final = 64 * 1024
#: The errors of an address that this machine does not have, such as that of IPv6 for ``localhost``.
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: The errors of one accept that concern one client alone (accept(2)).
_CLIENT_ERRORS: Final = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO)


class Acceptor:
    """Listens at an address, and passes on each connection.

    Args:
        accept: Gets the socket of a new connection, which the callee owns from now on, and the address at the other end.

    Attributes:
        address: The listening address, ``host:port``; empty before `listen`.
    """

    def __init__(self, accept: Callable[[AcceptedSocket, str], None]) -> None:
        self.address = ""
        self._accept = accept
        self._sockets: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}

    async def listen(self, host: str, port: int) -> None:
        """Listen at those addresses of a host that this machine has.

        Args:
            host: An address of this machine, or a host name.
            port: The port; 0 for a free one.

        Raises:
            OSError: Listening failed.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        absent: OSError | None = None
        try:
            for family, kind, protocol, _name, address in dict.fromkeys(found):
                # All addresses get the same port.
                bound = (address[0], self._sockets[0].getsockname()[1], *address[2:]) if self._sockets else address
                try:
                    self._sockets.append(_listen(family, kind, protocol, bound))
                except OSError as exc:
                    if exc.errno not in _ABSENT:
                        raise
                    absent = exc
            if absent is not None and not self._sockets:
                raise absent
        except OSError:
            self.close()
            raise
        self.address = format_address(*self._sockets[0].getsockname()[:2])
        for each in self._sockets:
            loop.add_reader(each, self._accept_some, each)

    def close(self) -> None:
        """Stop listening. Accepted connections continue. Harmless if repeated."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        for timer in self._pauses.values():
            timer.cancel()
        self._sockets.clear()
        self._pauses.clear()

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:
                if exc.errno in _CLIENT_ERRORS:
                    continue
                self._pause(listening, exc)
                return
            accepted.setblocking(False)
            with contextlib.suppress(OSError):  # the client has gone already
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if sys.platform == "linux":
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
            self._accept(accepted, address[0])

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept nothing for a while; clients wait in the backlog."""
        reason = "no file descriptor is free" if error.errno in EXHAUSTED else str(error)
        logger.warning("accept_failed", "no connection was accepted for a while: %s", reason)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._pauses[listening] = loop.call_later(PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        asyncio.get_running_loop().add_reader(listening, self._accept_some, listening)


def _listen(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened
