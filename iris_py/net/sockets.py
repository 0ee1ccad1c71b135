"""Real sockets: TCP streams, and UDP datagrams from :mod:`iris_py.net.datagrams`; on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from iris_py.net.datagrams import PORT_MAX, SocketDatagrams
from iris_py.net.network import BEACON_GROUP, BEACON_PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.net.network import Address, AnyProtocol

#: What the socket module takes: host and port, and for IPv6 the flow and the scope.
SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
_Resolved: TypeAlias = tuple[int, SocketAddress]

#: Streams that the system establishes before we accept them. A cluster of two hundred which restarts at once must not see
#: refusals; the system lowers it to its own limit (net.core.somaxconn).
BACKLOG = 512

#: Addresses of one name that a dial tries. More cannot be tried within a sensible timeout of the caller.
ADDRESSES_MAX = 8

#: The head start of one address over the next, from RFC 8305 section 5. Shorter dials several for nothing, longer makes one
#: dead address felt.
ATTEMPT_DELAY_S = 0.25


class SocketListener:
    """A TCP socket that accepts streams."""

    def __init__(self, server: asyncio.Server, address: Address) -> None:
        self._server = server
        self._address = address

    @property
    def address(self) -> Address:
        """The address listened on."""
        return self._address

    def close(self) -> None:
        """Accept no more streams; those already accepted live on. May be called again."""
        self._server.close()

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets."""
        return [sock.fileno() for sock in self._server.sockets]


class SocketNetwork:
    """The network of this machine: implements :class:`iris_py.net.network.Network`."""

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> SocketListener:
        """Accept streams at an address, as :meth:`iris_py.net.network.Network.listen` says."""
        loop = asyncio.get_running_loop()
        family, address = (await _resolve(loop, host, port))[0]
        # Told that it is TCP, asyncio sets TCP_NODELAY on what it accepts; left to the default, it does not.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Without it a node cannot restart on its port while streams of its former life are still remembered.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            server = await loop.create_server(factory, sock=sock, backlog=BACKLOG, start_serving=False)
        except BaseException:
            sock.close()
            raise
        try:
            # Apart, for asyncio lets its loop turn after this: cancelled there, a socket that is closed by anyone but the
            # server leaves its number behind in the selector, and the next socket of that number is never heard.
            await server.start_serving()
        except BaseException:
            server.close()
            raise
        bound = sock.getsockname()
        return SocketListener(server, (bound[0], bound[1]))

    async def dial(self, factory: Callable[[], AnyProtocol], host: str, port: int) -> AnyProtocol:
        """Return the protocol of a new stream, as :meth:`iris_py.net.network.Network.dial` says.

        The addresses of a name are tried side by side, each with a head start over the next, and the first to answer wins:
        a dead one costs a moment, not the whole timeout.
        """
        loop = asyncio.get_running_loop()
        sock = await _connect_any(loop, (await _resolve(loop, host, port))[:ADDRESSES_MAX])
        try:
            # Made here, for uvloop calls a factory before it knows whether the stream comes to be.
            protocol = factory()
        except BaseException:
            sock.close()
            raise
        try:
            await loop.create_connection(lambda: protocol, sock=sock)
        except BaseException:
            if not isinstance(loop, asyncio.BaseEventLoop):
                # uvloop has closed the descriptor, and did not tell the socket. That would close it again: by then perhaps
                # another one's. Nor did it tell the protocol, whose connection may have been made already.
                sock.detach()
                protocol.connection_lost(None)
            raise
        return protocol

    async def open_datagrams(
        self, host: str, port: int, *, multicast: bool = True, group: str = BEACON_GROUP, group_port: int = BEACON_PORT
    ) -> SocketDatagrams:
        """Open a socket for datagrams, as :meth:`iris_py.net.network.Network.open_datagrams` says."""
        family, address = (await _resolve(asyncio.get_running_loop(), host, port))[0]
        return await SocketDatagrams.open(family, address, (group, group_port) if multicast else None)


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Resolved]:
    """Return (family, address) of each address of a host, the preferred one first.

    Raises:
        OSError: There is none. That includes names which cannot exist: they come from peers, not only from our caller.
    """
    if not 0 <= port <= PORT_MAX:
        raise OSError(errno.EINVAL, f"{port} is not a port")
    try:
        try:
            # A numeric address needs no thread for the resolver.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as exc:
        raise OSError(errno.EINVAL, f"{host!r} is not a host: {exc}") from exc
    # The last form of an address is what a Python without IPv6 returns for IPv6.
    return [(family, address) for family, _, _, _, address in found if isinstance(address[0], str)]


async def _connect(loop: asyncio.AbstractEventLoop, family: int, address: SocketAddress) -> socket.socket:
    """Return a socket connected to an address."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address)
        if sock.getsockname() == sock.getpeername():
            # TCP lets a socket connect to itself where nobody listens and the system picks that very port for our end. On
            # loopback a node which redials a peer that is gone would one day find itself.
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {address}")
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_any(loop: asyncio.AbstractEventLoop, addresses: list[_Resolved]) -> socket.socket:
    """Return a socket connected to the first address that answers."""
    if len(addresses) == 1:
        return await _connect(loop, *addresses[0])
    waiting = deque(addresses)
    attempts: list[asyncio.Task[socket.socket]] = []
    failures: list[BaseException] = []
    try:
        while waiting or attempts:
            if waiting:
                attempts.append(loop.create_task(_connect(loop, *waiting.popleft())))
            delay = ATTEMPT_DELAY_S if waiting else None
            done, _ = await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [attempt for attempt in attempts if attempt in done]:
                attempts.remove(attempt)
                failure = attempt.exception()
                if failure is None:
                    return attempt.result()
                failures.append(failure)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_discard)
    text = "; ".join(str(failure) for failure in failures)
    numbers = {getattr(failure, "errno", None) for failure in failures}
    # Alike, they keep their class: a dial that is refused everywhere is a ConnectionRefusedError.
    raise OSError(numbers.pop() if len(numbers) == 1 else errno.EHOSTUNREACH, text) from failures[-1]


def _discard(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that succeeded after another had won."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
