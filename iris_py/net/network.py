"""The network interface of a node: streams to dial and accept, and datagrams to find and watch peers.

A contract suite holds both implementations to the same behaviour: real sockets in :mod:`iris_py.net.sockets`, and simulated
ones under a virtual clock in :mod:`iris_py.testing.network`.

Streams are ordinary :class:`asyncio.BufferedProtocol` objects on ordinary :class:`asyncio.Transport` objects. A peername or
sockname begins with host and port; IPv6 adds two numbers, so take ``[:2]``.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

#: Host and port.
Address: TypeAlias = tuple[str, int]

#: An address of the socket module: host and port, and for IPv6 the flow and the scope.
SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

#: The multicast group for beacons (datagrams by which nodes find each other), from a block that stays inside one organisation
#: (RFC 2365, 239.255/16), so routers do not forward it far.
BEACON_GROUP = "239.255.73.82"
#: The multicast group for beacons over IPv6: unassigned, and confined to one link (RFC 4291 section 2.7).
BEACON_GROUP_IPV6 = "ff12::4952:4953"
BEACON_PORT = 14142

#: The largest datagram. An IPv6 path carries at least 1,280 bytes, tunnels included; a larger datagram travels in fragments,
#: and is lost with any of them.
DATAGRAM_BYTES_MAX = 1_200

#: Datagrams that wait for :meth:`DatagramSocket.receive`; further ones are dropped. Too small: a node whose loop stood still
#: for a moment loses pings, or the answers to its own, and declares living nodes dead; a thousand is the load of hundreds of
#: failure detectors and the beacons of hundreds of starting nodes within a second. Too large: the node then answers stale
#: datagrams, because decrypting this many takes some 30 ms.
DATAGRAMS_RECEIVED_MAX = 1_024

#: Reasons of dropped datagrams, the keys of :attr:`DatagramSocket.dropped`.
OVERSIZED = "oversized"  # longer than DATAGRAM_BYTES_MAX
CLOSED = "closed"  # sent after close
FULL = "full"  # the system takes datagrams more slowly than they are sent
UNREACHABLE = "unreachable"  # no multicast, or not an address of the same family
REFUSED = "refused"  # the system reported an error
OVERFLOW = "overflow"  # received while the queue was full

AnyProtocol = TypeVar("AnyProtocol", bound="asyncio.BufferedProtocol")


class OwnAddressError(ConnectionError):
    """The dialled address or name leads only to the dialling node itself."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNREFUSED, "leads to this node itself, and to no other node")

    def __reduce__(self) -> tuple[type[OwnAddressError], tuple[()], dict[str, object]]:
        return type(self), (), vars(self)


class Listener(Protocol):
    """A listening socket that accepts streams, real or simulated."""

    @property
    def address(self) -> Address:
        """The listening address, with the chosen port if port 0 was requested."""

    def close(self) -> None:
        """Accept no more streams. Accepted streams continue. May be called again."""

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets; none if it is simulated."""


class DatagramSocket(Protocol):
    """Datagrams that may get lost, duplicated and reordered: to one address, or to a group."""

    @property
    def address(self) -> Address:
        """The address of the socket alone, and the source address of its datagrams."""

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group work."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of datagrams dropped on this side, by reason."""

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count it as dropped. Never raises and never blocks.

        Args:
            data: At most ``DATAGRAM_BYTES_MAX`` bytes.
            destination: A numeric address of the socket's own family, and a port; None for the whole group, including the
                socket. A link-local IPv6 address ends with ``%`` and the number of the interface.
        """

    async def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, and the address to which its sender alone receives an answer.

        Raises:
            ConnectionAbortedError: The socket is closed, before or during this call.
        """

    def close(self) -> None:
        """Stop sending and receiving. May be called again."""

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets; none if it is simulated."""


class NetworkStack(Protocol):
    """The network of a host, real or simulated: streams and datagrams."""

    @property
    def is_simulated(self) -> bool:
        """Whether its time is virtual and may pass in leaps."""

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Listener:
        """Accept streams at an address.

        Args:
            factory: Makes the protocol of each accepted stream.
            host: An address of this machine. A name stands for its first address, and ``::`` for every address of both
                families.
            port: The port; 0 lets the system choose. With ``::``, the port chosen for IPv6 may be taken for IPv4.

        Raises:
            OSError: The address is taken, or is not of this machine.
        """

    async def dial(
        self,
        factory: Callable[[], AnyProtocol],
        host: str,
        port: int,
        *,
        own: Collection[Address] = (),
        begin: Callable[[Address], None] | None = None,
    ) -> AnyProtocol:
        """Return the protocol of a new stream, after the call of its ``connection_made``.

        The only timeout is the system's, which is minutes: set your own.

        Args:
            factory: Makes the protocol. Called once, after the stream is established.
            host: An address, or a name with several addresses.
            own: The numeric addresses of the dialling node itself, which are skipped: the name of a whole service includes that
                node.
            begin: Called with each numeric address before a connection to it begins; raises
                :exc:`iris_py.net.resting_addresses.AddressRestsError` to skip the address.

        Raises:
            OwnAddressError: The host leads only to the dialling node itself.
            AddressRestsError: ``begin`` has skipped an address of the host, and no other address answers.
            OSError: The connection failed.
        """

    async def open_datagrams(
        self, host: str, port: int, *, multicast: bool = True, group: str = "", group_port: int = BEACON_PORT
    ) -> DatagramSocket:
        """Open a socket for datagrams at an address, and join a group if possible.

        Args:
            host: An address of this machine, on the interface of the group; ``0.0.0.0`` and ``::`` mean every interface, the
                latter for both families. A name stands for its first address.
            port: The port; 0 lets the system choose.
            multicast: Whether to join the group. The IPv6 loopback interface has none.
            group: The multicast address; by default the beacon group of the host's family, and with ``::`` of both.
            group_port: The port shared by all members of the group.

        Raises:
            OSError: The address is taken, or is not of this machine. A failure of multicast is not an error.
        """


class ReceivedDatagrams:
    """The receiving half of a :class:`DatagramSocket`, common to real and simulated sockets: a bounded queue, and counters."""

    def __init__(self) -> None:
        """Create an open socket with an empty queue."""
        self._queue: deque[tuple[bytes, Address]] = deque()
        self._changed = asyncio.Event()
        self._dropped: Counter[str] = Counter()
        self._has_multicast = False
        self._closed = False

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group work."""
        return self._has_multicast

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of datagrams dropped on this side, by reason."""
        return self._dropped

    async def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, and the address to which its sender alone receives an answer."""
        while not self._closed:
            if self._queue:
                return self._queue.popleft()
            self._changed.clear()
            await self._changed.wait()
        raise ConnectionAbortedError(errno.ECONNABORTED, "the datagram socket is closed")

    def _receive_data(self, data: bytes, sender: Address) -> None:
        """Queue a datagram from the network, or count it as dropped."""
        if len(self._queue) >= DATAGRAMS_RECEIVED_MAX:
            self._dropped[OVERFLOW] += 1
            return
        self._queue.append((data, sender))
        self._changed.set()

    def _is_sendable(self, data: bytes) -> bool:
        """Tell whether a datagram may be sent; otherwise count it as dropped."""
        if self._closed:
            self._dropped[CLOSED] += 1
        elif len(data) > DATAGRAM_BYTES_MAX:
            self._dropped[OVERSIZED] += 1
        elif not data:
            self._dropped[REFUSED] += 1  # asyncio would skip it silently
        else:
            return True
        return False
