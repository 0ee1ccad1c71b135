"""Real sockets: TCP streams, and UDP datagrams from :mod:`iris_py.net.datagrams`; on asyncio's own event loop and on uvloop.

``WanNetwork`` is for lines between sites: distant, shared and lossy. A stream over such a line has as much in transit as the
line holds, and more data in the kernel only adds delay. So the socket limits its unsent data, and the writer learns early that
the line is full. The kernel tunes the buffer's size itself as long as the size is not set.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import random
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from iris_py.logs import EventLogger
from iris_py.net.datagrams import PORT_MAX, DualDatagrams, SocketDatagrams, bound_socket
from iris_py.net.network import BEACON_GROUP, BEACON_GROUP_IPV6, BEACON_PORT, OwnAddressError
from iris_py.net.process import Exhaustion
from iris_py.net.resting_addresses import AddressRestsError
from iris_py.net.tcp_info import round_trip_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from iris_py.net.network import Address, AnyProtocol, SocketAddress

logger = EventLogger("iris_py.net")

_Resolved: TypeAlias = "tuple[int, SocketAddress]"

_shuffle = random.shuffle

#: Largest number of unsent bytes in the kernel, a stream. Without a limit, megabytes wait there for a receiver that is behind.
#: Too small: the sender is woken more often, which at 128 KiB costs 3 % of the rate at 1 KiB; too large: messages grow old.
NOTSENT_BYTES_MAX = 256 * 1024

#: Streams that the system establishes before the node accepts them; the system may lower this (net.core.somaxconn). Too
#: small: a cluster of two hundred that restarts at once sees refusals; too large: in a flood faster than the node, each dialler
#: waits behind as many (with 4,096 none connected within 2 s; a dialler beyond the bound retries after 1 s).
BACKLOG = 512

#: Streams accepted in one turn of the event loop. Too small: more turns for the same work; too large: this number of
#: descriptors exceed the bounds of a node for a moment.
ACCEPTS_MAX = 8

#: The pause (seconds) after a failure to accept, usually for lack of descriptors. Too small: a busy loop; too large: nodes wait
#: to connect although there is room again.
ACCEPT_RETRY_S = 0.25

#: Addresses of one name that a dial tries. More cannot be tried within a sensible timeout of the caller.
ADDRESSES_MAX = 8

#: The head start of one address over the next, from RFC 8305 section 5. Shorter causes needless dials, longer makes a dead
#: address noticeable.
ATTEMPT_DELAY_S = 0.25


class SocketListener:
    """TCP sockets that accept streams, a few in each turn of the event loop.

    The accept loops of asyncio and uvloop take all waiting streams at once. Evicted connections are closed only in the next
    turn, so a crowd would exhaust the descriptors in between. Then asyncio retries without a pause and logs each time, and
    uvloop rejects all.

    Args:
        socks: Listening, non-blocking sockets. Several share a port: the address of the first represents all.
        factory: Makes the protocol of each stream.
        configure: Sets the options of each accepted socket.
    """

    def __init__(
        self,
        socks: Sequence[socket.socket],
        factory: Callable[[], asyncio.BufferedProtocol],
        configure: Callable[[socket.socket], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socks = socks
        self._factory = factory
        self._configure = configure
        self._address: Address = socks[0].getsockname()[:2]
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._exhaustion = Exhaustion()
        self._resume()

    @property
    def address(self) -> Address:
        """The listening address."""
        return self._address

    def close(self) -> None:
        """Accept no more streams. Accepted streams continue. May be called again."""
        if self._retry is not None:
            self._retry.cancel()
        for sock in self._open():
            self._loop.remove_reader(sock)
            sock.close()

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets."""
        return [sock.fileno() for sock in self._open()]

    def _open(self) -> list[socket.socket]:
        return [sock for sock in self._socks if sock.fileno() >= 0]

    def _accept(self, door: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                sock, _address = door.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it ended while it waited
            except OSError as exc:
                self._pause(exc)
                return
            sock.setblocking(False)
            self._configure(sock)
            task = self._loop.create_task(self._make(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a moment; waiting streams stay in the queue of the system."""
        self._exhaustion.tell(error, self._loop.time())
        if self._retry is None:
            for sock in self._open():
                self._loop.remove_reader(sock)
            self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._resume)

    def _resume(self) -> None:
        self._retry = None
        for sock in self._open():
            self._loop.add_reader(sock, self._accept, sock)

    async def _make(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, sock)
        except BaseException as exc:
            _close_failed(self._loop, sock)
            if not isinstance(exc, OSError):
                raise
            logger.debug("accepted_nothing", "an accepted connection failed: %s", exc, reason=str(exc))


class SocketNetwork:
    """The network of this machine: implements :class:`iris_py.net.network.NetworkStack`."""

    is_simulated = False

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> SocketListener:
        """Accept streams at an address; see :meth:`iris_py.net.network.NetworkStack.listen`."""
        socks = await self._bind(host, port, _listening_socket)
        try:
            return SocketListener(socks, factory, self._configure)
        except BaseException:
            for sock in socks:
                sock.close()
            raise

    async def dial(
        self,
        factory: Callable[[], AnyProtocol],
        host: str,
        port: int,
        *,
        own: Collection[Address] = (),
        begin: Callable[[Address], None] | None = None,
    ) -> AnyProtocol:
        """Connect to a host, and return the protocol of the new stream; see :meth:`iris_py.net.network.NetworkStack.dial`.

        The addresses of a name are tried in parallel, each with a head start over the next, and the first to answer wins: a
        dead address costs a moment instead of the whole timeout. Their order is random within each family. The resolver's order
        is always nearest first: for a name of a whole service, two parts of the service would never meet.
        """
        loop = asyncio.get_running_loop()
        others = [found for found in await _resolve(loop, host, port) if found[1][:2] not in own]
        if not others:
            raise OwnAddressError
        sock = await _connect_any(loop, _mix(others)[:ADDRESSES_MAX], begin)
        try:
            self._configure(sock)
            # Called here, because uvloop calls a factory before the stream is established.
            protocol = factory()
        except BaseException:
            sock.close()
            raise
        try:
            await loop.create_connection(lambda: protocol, sock=sock)
        except BaseException:
            _close_failed(loop, sock)
            if not isinstance(loop, asyncio.BaseEventLoop):
                protocol.connection_lost(None)  # uvloop does not call it, though connection_made may have been called
            raise
        return protocol

    async def open_datagrams(
        self, host: str, port: int, *, multicast: bool = True, group: str = "", group_port: int = BEACON_PORT
    ) -> SocketDatagrams | DualDatagrams:
        """Open a socket for datagrams; see :meth:`iris_py.net.network.NetworkStack.open_datagrams`."""
        waiting = deque(await self._bind(host, port, bound_socket))
        parts: list[SocketDatagrams] = []
        try:
            while waiting:
                sock = waiting.popleft()  # from here on the datagrams close it
                is_ipv6 = sock.family == socket.AF_INET6
                own_group = group or (BEACON_GROUP_IPV6 if is_ipv6 else BEACON_GROUP)
                is_possible = multicast and (":" in own_group) == is_ipv6
                parts.append(await SocketDatagrams.open(sock, (own_group, group_port) if is_possible else None))
        except BaseException:
            for each in waiting:
                each.close()
            for part in parts:
                part.close()
            raise
        return parts[0] if len(parts) == 1 else DualDatagrams(*parts)

    async def _bind(self, host: str, port: int, bind: Callable[[int, SocketAddress], socket.socket]) -> list[socket.socket]:
        """Return a socket bound to an address. For the unspecified IPv6 address, return an IPv4 socket on the same port too."""
        family, address = (await _resolve(asyncio.get_running_loop(), host, port))[0]
        sock = bind(family, address)
        if family != socket.AF_INET6 or not ipaddress.IPv6Address(address[0].partition("%")[0]).is_unspecified:
            return [sock]
        try:
            return [sock, bind(socket.AF_INET, ("0.0.0.0", sock.getsockname()[1]))]  # noqa: S104 - as ::, and only with it
        except OSError as exc:
            sock.close()
            raise OSError(exc.errno, f"{exc.strerror or exc}, for IPv4, which [::] includes") from exc

    def _configure(self, sock: socket.socket) -> None:
        """Set the options of a dialled or accepted socket. Called before its protocol is made."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_BYTES_MAX)


def _listening_socket(family: int, address: SocketAddress) -> socket.socket:
    """Return a socket that listens at an address."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without this option a node cannot restart on its port while the system remembers its earlier streams.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_failed(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Close a socket after a failure to turn the socket into a stream."""
    if isinstance(loop, asyncio.BaseEventLoop):
        sock.close()
    else:
        # uvloop has closed the descriptor without the socket's knowledge. The socket would close it again, when it may belong
        # to another file.
        sock.detach()


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Resolved]:
    """Return the family and the socket address for each address of a host, the preferred one first.

    Raises:
        OSError: There is none, or the name is impossible, as names from peers may be.
    """
    if not 0 <= port <= PORT_MAX:
        raise OSError(errno.EINVAL, f"{port} is not a port")
    try:
        try:
            # A numeric address needs no resolver thread, and bytes need no Unicode tables, which take memory.
            literal = host.encode() if host.isascii() else host
            found = socket.getaddrinfo(literal, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as exc:
        raise OSError(errno.EINVAL, f"{host!r} is not a host: {exc}") from exc
    # A Python without IPv6 returns IPv6 addresses in another form, which is skipped.
    return [(family, address) for family, _, _, _, address in found if isinstance(address[0], str)]


def _mix(addresses: list[_Resolved]) -> list[_Resolved]:
    """Shuffle addresses within each family, keeping the order of the families."""
    families: dict[int, list[_Resolved]] = {}
    for found in addresses:
        families.setdefault(found[0], []).append(found)
    for members in families.values():
        _shuffle(members)
    return [families[family].pop() for family, _ in addresses]


async def _connect_numeric(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: SocketAddress) -> None:
    """Connect a socket to a resolved address, which uvloop would resolve again: in a thread, with Unicode tables."""
    if isinstance(loop, asyncio.BaseEventLoop):
        await loop.sock_connect(sock, address)
        return
    try:
        sock.connect(address)
    except BlockingIOError:
        connected = asyncio.Event()
        loop.add_writer(sock, connected.set)
        try:
            await connected.wait()
        finally:
            loop.remove_writer(sock)
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error)) from None


async def _connect(loop: asyncio.AbstractEventLoop, family: int, address: SocketAddress) -> socket.socket:
    """Return a socket connected to an address."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        await _connect_numeric(loop, sock, address)
        if sock.getsockname() == sock.getpeername():
            # TCP lets a socket connect to itself if there is no listener and the system picks the same port for this end. On
            # loopback a node that redials a lost peer would eventually reach itself.
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {address}")
    except BaseException:
        sock.close()
        raise
    return sock


def _next_to_begin(waiting: deque[_Resolved], begin: Callable[[Address], None] | None) -> _Resolved | None:
    """Remove and return the first address to which a connection may begin, and remove those before it; None without one."""
    while waiting:
        found = waiting.popleft()
        try:
            if begin is not None:
                begin(found[1][:2])
        except AddressRestsError:
            continue
        return found
    return None


async def _connect_any(
    loop: asyncio.AbstractEventLoop, addresses: list[_Resolved], begin: Callable[[Address], None] | None = None
) -> socket.socket:
    """Return a socket connected to the first address that answers. Skip addresses for which ``begin`` raises.

    If an address was skipped and none of the others answers, the dial has rested and not failed: the node may listen at the
    skipped address, and others could let that one rest to have the node taken for dead.
    """
    waiting = deque(addresses)
    found = _next_to_begin(waiting, begin)
    if len(addresses) == 1 and found is not None:
        return await _connect(loop, *found)
    attempts: list[asyncio.Task[socket.socket]] = []
    failures: list[BaseException] = []
    try:
        while found is not None or attempts:
            if found is not None:
                attempts.append(loop.create_task(_connect(loop, *found)))
            delay = ATTEMPT_DELAY_S if waiting else None
            done, _ = await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [attempt for attempt in attempts if attempt in done]:
                attempts.remove(attempt)
                failure = attempt.exception()
                if failure is None:
                    return attempt.result()
                failures.append(failure)
            found = _next_to_begin(waiting, begin)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_discard)
    if len(failures) < len(addresses):
        raise AddressRestsError
    text = "; ".join(str(failure) for failure in failures)
    numbers = {getattr(failure, "errno", None) for failure in failures}
    # Equal errors keep their class: a dial refused at all addresses raises ConnectionRefusedError.
    raise OSError(numbers.pop() if len(numbers) == 1 else errno.EHOSTUNREACH, text) from failures[-1]


def _discard(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of a dial that succeeded after a dial to another address."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


#: The same between sites. Too small: the line idles while the next bytes are prepared; too large: urgent data waits behind
#: them, for a second on a line of 1 Mbit/s.
NOTSENT_WAN_BYTES_MAX = 128 * 1024

#: Time (seconds) for which sent bytes may stay unacknowledged until the kernel breaks the stream. Too small: a brief
#: interruption of the line costs all its streams; too large: silent streams hold their descriptors for longer. Longer than the
#: timeout of a silent link, so that links end with a more specific reason.
USER_TIMEOUT_S = 20

#: The congestion control algorithm of TCP for lines between sites. An algorithm that takes each loss for a full line carries
#: only 0.2 MB/s at 80 ms and a loss of 1 %.
CONGESTION = "bbr"

#: On a line with a shorter round trip (seconds), streams keep the system's congestion control. BBR paces by timers, which
#: within a machine or rack costs half of the requests per second, and such lines have no losses. Too small: this cost; too
#: large: a line between sites suffers from losses.
SHORT_S = 0.002


class WanNetwork(SocketNetwork):
    """The network of this machine for lines between sites: a :class:`SocketNetwork` with TCP options for long lines.

    Options the system lacks are omitted.
    """

    def __init__(self, *, congestion: str = CONGESTION) -> None:
        """Create a network.

        Args:
            congestion: The congestion control algorithm (TCP_CONGESTION), by its kernel name. "" for the system's default,
                which is also used if the algorithm is unknown or not allowed; this is logged once.
        """
        self._congestion = congestion

    def _configure(self, sock: socket.socket) -> None:
        super()._configure(sock)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_WAN_BYTES_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_S * 1_000)
            self._control_congestion(sock)

    def _control_congestion(self, sock: socket.socket) -> None:
        if not self._congestion or sys.platform != "linux":
            return
        if self._congestion == CONGESTION and round_trip_s(sock) < SHORT_S:
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion.encode())
        except OSError as exc:
            logger.warning(
                "congestion_missing",
                "congestion control %r is not available (%s): cloud links with packet loss will be slow. As root: modprobe "
                "tcp_%s, and add it to net.ipv4.tcp_allowed_congestion_control",
                self._congestion,
                exc.strerror,
                self._congestion,
                congestion=self._congestion,
            )
            self._congestion = ""
