"""UDP beacons on real sockets, by multicast and unicast.

Theory of operation. Every process of a machine shares the port of the group, so a datagram sent *to one of them* there would
be handed to any. Each beacon socket therefore has two kinds of ends: one on the shared group port, which only hears
multicast, and one per interface with a port of its own, which sends everything and hears the answers.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import sys
from typing import TYPE_CHECKING

import asyncio_dgram
from asyncio_dgram.aio import DatagramClient, DatagramServer

from iris_py.net.network import FULL, REFUSED, UNREACHABLE, ReceivedBeacons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.net.network import Address

logger = logging.getLogger(__name__)

#: Beacons that wait for the system to take them, per interface. It takes them at once unless its buffer is full.
BEACONS_SENT_MAX = 64

#: On the machine itself, and on its own link: discovery is not meant to pass a router.
TTL_LOOPBACK = 0
TTL_LINK = 1

PORT_MAX = 65_535

#: Linux, <linux/in.h>; missing from the socket module of Python 3.11.
IP_MULTICAST_ALL = 49


class _Sender:
    """The end of a beacon socket on one interface, with a port of its own."""

    def __init__(self, interface: str, stream: DatagramServer, can_multicast: bool) -> None:
        self.address = ipaddress.IPv4Address(interface)
        self.can_multicast = can_multicast
        self.stream = stream
        self.queue: asyncio.Queue[tuple[bytes, Address]] = asyncio.Queue(BEACONS_SENT_MAX)

    def suits(self, destination: ipaddress.IPv4Address) -> tuple[bool, int]:
        """Return how well the interface suits a destination; the greatest is on the same subnet if any is."""
        differing_bits = (int(self.address) ^ int(destination)).bit_length()
        return self.address.is_loopback == destination.is_loopback, -differing_bits


class SocketBeacons(ReceivedBeacons):
    """UDP datagrams by multicast and unicast: implements :class:`iris_py.net.network.BeaconSocket`.

    asyncio_dgram queues what it receives without bound and lets a send wait for the system. Both are bounded here: one task
    per end moves datagrams over into a queue that drops, and ``send`` only queues.
    """

    @classmethod
    async def open(cls, group: Address, interfaces: Sequence[str]) -> SocketBeacons:
        """Return a socket that does what works here: see :meth:`iris_py.net.network.Network.open_beacons`."""
        beacons = cls(group)
        try:
            await beacons._open(interfaces)
        except BaseException:
            beacons.close()
            raise
        return beacons

    def __init__(self, group: Address) -> None:
        """Create a socket without any ends; use :meth:`open`."""
        super().__init__()
        self._group = group
        self._senders: list[_Sender] = []
        self._streams: list[DatagramServer] = []
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count it as dropped. Never raises and never blocks."""
        if not self._is_sendable(data):
            return
        if destination is None:
            senders = [sender for sender in self._senders if sender.can_multicast]
            for sender in senders:
                self._enqueue(sender, data, self._group)
            if not senders:
                self._dropped[UNREACHABLE] += 1
        else:
            chosen = self._choose_sender(destination)
            if chosen is None:
                self._dropped[UNREACHABLE] += 1
            else:
                self._enqueue(chosen, data, destination)

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

    async def _open(self, interfaces: Sequence[str]) -> None:
        """Add the shared end and one end per interface; log once what does not work."""
        problems: list[str] = []
        try:
            sock = _shared_socket(self._group)
        except OSError as exc:
            problems.append(f"the group port: {exc}")
        else:
            problems += _join_group(sock, self._group[0], interfaces)
            await self._add_stream(sock)
        for interface in interfaces:
            try:
                sock, problem = _own_socket(interface)
            except OSError as exc:
                problems.append(f"a port on {interface}: {exc}")
                continue
            if problem is not None:
                problems.append(problem)
            sender = _Sender(interface, await self._add_stream(sock), problem is None)
            self._senders.append(sender)
            self._tasks.append(asyncio.create_task(self._send_queued(sender)))
        if problems:
            self._degraded = True
            logger.warning("beacons on %s:%d do not work everywhere: %s", *self._group, "; ".join(problems))

    async def _add_stream(self, sock: socket.socket) -> DatagramServer:
        """Hand a socket to asyncio_dgram and receive from it."""
        opening = asyncio.ensure_future(asyncio_dgram.from_socket(sock))
        try:
            # Shielded: uvloop forgets to close an end whose opening is cancelled.
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

    def _choose_sender(self, destination: Address) -> _Sender | None:
        """Return the end that can reach a destination.

        A host name would make the event loop wait for the resolver, and a port out of range would close the transport.
        """
        host, port = destination
        try:
            address = ipaddress.IPv4Address(host)
        except ValueError:
            return None
        if not self._senders or not 0 < port <= PORT_MAX:
            return None
        return max(self._senders, key=lambda sender: sender.suits(address))

    def _enqueue(self, sender: _Sender, data: bytes, destination: Address) -> None:
        try:
            sender.queue.put_nowait((data, destination))
        except asyncio.QueueFull:
            self._dropped[FULL] += 1

    async def _send_queued(self, sender: _Sender) -> None:
        """Hand queued datagrams to the system, for ever."""
        while True:
            data, destination = await sender.queue.get()
            # asyncio_dgram reports the failure of one datagram by raising instead of sending the next.
            self._count_failures(sender.stream)
            try:
                await sender.stream.send(data, destination)
            except asyncio_dgram.TransportClosed:
                return
            self._count_failures(sender.stream)

    async def _receive_from(self, stream: DatagramServer) -> None:
        """Move received datagrams into the bounded queue until the stream ends."""
        while True:
            self._count_failures(stream)
            try:
                data, sender = await stream.recv()
            except asyncio_dgram.TransportClosed:
                break
            if not isinstance(sender, tuple):
                continue  # uvloop reports no address where the system does not; such a beacon could not be answered
            self._receive_data(data, (sender[0], sender[1]))
        if not self._closed:
            self._degraded = True
            logger.warning("an end of the beacon socket broke: %s", stream.sockname)

    def _count_failures(self, stream: DatagramServer) -> None:
        """Take the errors that the system reported since the last call."""
        while True:
            try:
                stream.exception  # noqa: B018  # raises the next error, if any
            except Exception:
                self._dropped[REFUSED] += 1
            else:
                return


def _discard(opening: asyncio.Task[DatagramServer | DatagramClient]) -> None:
    """Close an end that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _shared_socket(group: Address) -> socket.socket:
    """Return a socket on the port which all members of the group on this machine share."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sys.platform == "linux":
            # Otherwise we hear a group on interfaces where only *another* process joined it: loopback alone would not be.
            sock.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        # Bound to the group and not to all addresses: unicast to this port is not ours (see the top of the module).
        sock.bind(group)
    except BaseException:
        sock.close()
        raise
    return sock


def _join_group(sock: socket.socket, group: str, interfaces: Sequence[str]) -> list[str]:
    """Join a multicast group on each interface; return what failed."""
    problems = []
    for interface in interfaces:
        try:
            membership = socket.inet_aton(group) + socket.inet_aton(interface)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as exc:
            problems.append(f"hearing multicast on {interface}: {exc}")
    return problems


def _own_socket(interface: str) -> tuple[socket.socket, str | None]:
    """Return a socket with a port of its own on an interface, and why it cannot send multicast, if so."""
    try:
        ttl = TTL_LOOPBACK if ipaddress.IPv4Address(interface).is_loopback else TTL_LINK
    except ValueError as exc:
        raise OSError(errno.EINVAL, str(exc)) from exc
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((interface, 0))
    except BaseException:
        sock.close()
        raise
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError as exc:
        return sock, f"sending multicast on {interface}: {exc}"
    return sock, None
