"""UDP datagrams on real sockets, by unicast and multicast.

All processes of a machine share the group's port, so a unicast datagram to this port could reach any process. A datagram socket
therefore has two kinds of ends: an end on its own port, which sends all datagrams and receives unicast, and ends on the shared
group port, which receive multicast only. One IPv4 end receives multicast from all interfaces; IPv6 needs an end for each
interface, because an IPv6 group is bound to an interface.

A node that listens on every address of both families has an IPv6 and an IPv4 socket on one port. On Linux, one IPv6 socket
could serve both. But then IPv4 addresses would appear as ``::ffff:192.0.2.1`` everywhere, IPv4 multicast would need options
rejected there by other systems, and some systems have no such sockets.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections import Counter
from typing import TYPE_CHECKING

import asyncio_dgram
from asyncio_dgram.aio import DatagramClient, DatagramServer

from iris_py.logs import EventLogger
from iris_py.net.multicast import SYSTEM, beacon_interfaces, choose_interface, group_addresses, membership
from iris_py.net.network import DATAGRAMS_RECEIVED_MAX, FULL, REFUSED, UNREACHABLE, ReceivedDatagrams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.net.network import Address, SocketAddress

logger = EventLogger(__name__)

#: Datagrams that wait to be handed to the system, once per turn of the event loop: all datagrams received in a turn can be
#: answered in it. They have some 200 bytes each, 1,200 at most.
DATAGRAMS_SENT_MAX = DATAGRAMS_RECEIVED_MAX

#: Size of the system's receive buffer while the event loop is busy. The system counts about 800 bytes for a small datagram and
#: 2,300 for the largest, so this holds as many as the own queue; the system lowers it to its limit (net.core.rmem_max), usually
#: to half.
RECEIVE_BUFFER_BYTES = 1024 * 1024

#: TTL (number of routers passed, plus one) on the machine itself, and on its own link: discovery must not pass a router.
TTL_LOOPBACK = 0
TTL_LINK = 1

PORT_MAX = 65_535
#: Most digits of an interface number; they have 32 bits but are never nearly as large.
SCOPE_DIGITS_MAX = 9

#: An option of Linux (<linux/in.h>), missing from the socket module of Python 3.11.
IP_MULTICAST_ALL = 49


class SocketDatagrams(ReceivedDatagrams):
    """UDP datagrams by unicast and multicast: implements :class:`iris_py.net.network.DatagramSocket`.

    asyncio_dgram has an unbounded receive queue, and its send waits for the system. Here both are bounded: a task per end moves
    datagrams into a queue that drops, and ``send`` only queues.
    """

    @classmethod
    async def open(cls, sock: socket.socket, group: Address | None) -> SocketDatagrams:
        """Open datagrams on a bound socket; see :meth:`iris_py.net.network.NetworkStack.open_datagrams`.

        Args:
            sock: A result of :func:`bound_socket`, closed on failure.
            group: The address of the group; None for none.
        """
        datagrams = cls(sock, group)
        try:
            await datagrams._open()
        except BaseException:
            datagrams.close()
            raise
        return datagrams

    def __init__(self, sock: socket.socket, group: Address | None) -> None:
        """Wrap a bound socket without readers; use :meth:`open`."""
        super().__init__()
        self._sock: socket.socket | None = sock
        self._family = sock.family
        self._address: Address = sock.getsockname()[:2]
        self._group = group
        self._everybody: list[tuple[SocketAddress, int]] = []  # destinations of a datagram for the group, with their interfaces
        self._sending: asyncio.Queue[tuple[bytes, SocketAddress, int]] = asyncio.Queue(DATAGRAMS_SENT_MAX)
        self._streams: list[DatagramServer] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> Address:
        """The address of the node's own socket, which receives unicast."""
        return self._address

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count it as dropped. Never raises and never blocks."""
        if not self._is_sendable(data):
            return
        if destination is not None:
            address = self._numeric(destination)
            targets = [] if address is None else [(address, SYSTEM)]
        else:
            targets = self._everybody if self._has_multicast else []
        if not targets:
            self._dropped[UNREACHABLE] += 1
            return
        try:
            for address, interface in targets:
                self._sending.put_nowait((data, address, interface))
        except asyncio.QueueFull:
            self._dropped[FULL] += 1

    def close(self) -> None:
        """Stop sending and receiving. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        for task in self._tasks:
            task.cancel()
        for stream in self._streams:
            stream.close()
        if self._sock is not None:
            self._sock.close()

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets."""
        return [] if self._closed else [stream.socket.fileno() for stream in self._streams]

    async def _open(self) -> None:
        """Open the ends on the group port, if possible, and the end on the own port. A failure of multicast is only logged."""
        own, self._sock = self._sock, None
        assert own is not None
        shared: list[socket.socket] = []
        if self._group is not None:
            try:
                shared = self._join(own, self._group)
            except OSError as exc:
                logger.warning(
                    "multicast_missing", "no discovery by multicast on %s: %s", self._address[0], exc, reason=str(exc)
                )
        try:
            stream = await self._add_stream(own)
            self._tasks.append(asyncio.create_task(self._send_queued(stream, own)))
            while shared:
                await self._add_stream(shared.pop())
                self._has_multicast = True
        except BaseException:
            for sock in shared:
                sock.close()
            raise

    def _join(self, own: socket.socket, group: Address) -> list[socket.socket]:
        """Open sockets that receive the group's datagrams on all suitable interfaces. Record the destinations of the group."""
        interfaces = beacon_interfaces(self._family, own.getsockname())
        if self._family == socket.AF_INET:
            _prepare_multicast(own, self._address[0])
            shared, joined = _shared_socket(group, self._address[0], interfaces)
            self._everybody = group_addresses(self._family, group, joined)
            return [shared]
        found: list[socket.socket] = []
        failure: OSError | None = None
        for index in interfaces:
            try:
                found.append(_shared_socket_ipv6(group, index))
            except OSError as exc:
                failure = exc
            else:
                self._everybody += group_addresses(self._family, group, [index])
        if failure is not None and not found:
            raise failure
        return found

    async def _add_stream(self, sock: socket.socket) -> DatagramServer:
        """Open an end on a socket, with a task that receives from it."""
        opening = asyncio.ensure_future(asyncio_dgram.from_socket(sock))
        try:
            # Shielded: uvloop does not close an end whose opening is cancelled.
            stream = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_discard)
            raise
        except BaseException:
            sock.close()
            raise
        assert isinstance(stream, DatagramServer), "a socket of ours is never connected"
        self._streams.append(stream)
        self._tasks.append(asyncio.create_task(self._receive_from(stream)))
        return stream

    def _numeric(self, destination: Address) -> SocketAddress | None:
        """Return the socket address for a host and port; None unless the host is a numeric address and the port is in range.

        A host name would block the event loop with the resolver, and a port out of range would close the transport.
        """
        host, percent, scope = destination[0].partition("%")
        port = destination[1]
        try:
            socket.inet_pton(self._family, host)
        except (OSError, ValueError):
            return None
        if not 0 < port <= PORT_MAX:
            return None
        if not percent:
            return (host, port)
        is_scope = self._family == socket.AF_INET6 and scope.isascii() and scope.isdigit() and len(scope) <= SCOPE_DIGITS_MAX
        return (host, port, 0, int(scope)) if is_scope else None

    async def _send_queued(self, stream: DatagramServer, own: socket.socket) -> None:
        """Hand queued datagrams to the system until the task is cancelled or the end is closed."""
        chosen = SYSTEM
        while True:
            data, destination, interface = await self._sending.get()
            if interface != chosen and interface != SYSTEM and self._family == socket.AF_INET:
                try:
                    choose_interface(own, interface)
                except OSError:
                    self._dropped[REFUSED] += 1  # the interface is gone
                    continue
                chosen = interface
            # asyncio_dgram reports the failure of one datagram by raising instead of sending the next.
            self._count_failures(stream)
            try:
                await stream.send(data, destination)
            except asyncio_dgram.TransportClosed:
                return
            self._count_failures(stream)

    async def _receive_from(self, stream: DatagramServer) -> None:
        """Move received datagrams into the bounded queue until the stream ends."""
        while True:
            self._count_failures(stream)
            try:
                data, sender = await stream.recv()
            except asyncio_dgram.TransportClosed:
                break
            if not isinstance(sender, tuple):
                continue  # uvloop gives no address if the system gives none; such a datagram cannot be answered
            # Keep the scope of a link-local address: without it an answer is impossible.
            host = f"{sender[0]}%{sender[3]}" if len(sender) == 4 and sender[3] and "%" not in sender[0] else sender[0]
            self._receive_data(data, (host, sender[1]))
        if not self._closed:
            self._has_multicast = False
            logger.warning("datagrams_broken", "closing the datagram socket failed: %s", stream.sockname)

    def _count_failures(self, stream: DatagramServer) -> None:
        """Count the errors the system has reported for an end since the last call."""
        while True:
            try:
                stream.exception  # noqa: B018  # raises the next error, if any
            except Exception:
                self._dropped[REFUSED] += 1
            else:
                return


def _discard(opening: asyncio.Task[DatagramServer | DatagramClient]) -> None:
    """Close an end that was opened after its opening was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def bound_socket(family: int, address: SocketAddress) -> socket.socket:
    """Return a socket bound exclusively to an address.

    Raises:
        OSError: The address is taken, or is not of this machine.
    """
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _prepare_multicast(sock: socket.socket, interface: str) -> None:
    """Set the options with which a socket sends multicast through an interface, also to processes of this machine."""
    ttl = TTL_LOOPBACK if interface.startswith("127.") else TTL_LINK
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)


def _shared_socket(group: Address, own: str, interfaces: list[int]) -> tuple[socket.socket, list[int]]:
    """Open a socket that receives a group's datagrams on the port shared on this machine; return it with the joined interfaces.

    Args:
        group: The group, and the port.
        own: The address of the interface, for `SYSTEM`.
        interfaces: Interface numbers; `SYSTEM` for the interface with the address ``own``.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sys.platform == "linux":
            # Without this option the socket receives the group on interfaces joined by *another* process only, beyond loopback.
            sock.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        # Bound to the group's address: unicast to this port is not for this socket (see the top of the module).
        sock.bind(group)
        if interfaces == [SYSTEM]:
            option = socket.inet_aton(group[0]) + socket.inet_aton(own)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, option)
            return sock, interfaces
        joined, failure = [], None
        for index in interfaces:
            try:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership(group[0], index))
                joined.append(index)
            except OSError as exc:
                failure = exc  # the interface has just gone, or the system allows no more
        if failure is not None and not joined:
            raise failure
    except BaseException:
        sock.close()
        raise
    return sock, joined


def _shared_socket_ipv6(group: Address, interface: int) -> socket.socket:
    """Open a socket that receives an IPv6 group's datagrams on one interface, on the port shared on this machine."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((group[0], group[1], 0, interface))  # to the group, as above, and to the interface
        option = socket.inet_pton(socket.AF_INET6, group[0]) + struct.pack("@I", interface)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, option)
    except BaseException:
        sock.close()
        raise
    return sock


class DualDatagrams(ReceivedDatagrams):
    """Datagrams of both families, by an IPv6 and an IPv4 socket: implements :class:`iris_py.net.network.DatagramSocket`.

    Args:
        ipv6: The IPv6 datagrams, whose address represents both.
        ipv4: The IPv4 datagrams, on the same port.
    """

    def __init__(self, ipv6: SocketDatagrams, ipv4: SocketDatagrams) -> None:
        super().__init__()
        self._parts = (ipv6, ipv4)
        self._tasks = [asyncio.create_task(self._receive_from(part)) for part in self._parts]

    @property
    def address(self) -> Address:
        """The address of this socket alone: the unspecified IPv6 address, which represents the IPv4 address too."""
        return self._parts[0].address

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group of either family work."""
        return any(part.has_multicast for part in self._parts)

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of datagrams dropped on this side, by reason."""
        return sum((Counter(part.dropped) for part in self._parts), Counter(self._dropped))

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram by the socket of its family, or to the group by both. Never raises and never blocks."""
        ipv6, ipv4 = self._parts
        if destination is not None:
            (ipv6 if ":" in destination[0] else ipv4).send(data, destination)
            return
        parts = [part for part in self._parts if part.has_multicast]
        for part in parts:
            part.send(data, None)
        if not parts:
            self._dropped[UNREACHABLE] += 1

    def close(self) -> None:
        """Stop sending and receiving. May be called again."""
        self._closed = True
        self._changed.set()
        for task in self._tasks:
            task.cancel()
        for part in self._parts:
            part.close()

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets."""
        return [descriptor for part in self._parts for descriptor in part.descriptors()]

    async def _receive_from(self, part: SocketDatagrams) -> None:
        while True:
            try:
                data, sender = await part.receive()
            except ConnectionAbortedError:
                return  # the socket is closed
            self._receive_data(data, sender)
