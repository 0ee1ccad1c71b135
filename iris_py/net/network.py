"""The network as a node needs it: streams that it dials and accepts, and datagrams that find and watch its peers.

There are two implementations, and one contract suite holds both to the same behaviour: real sockets in
:mod:`iris_py.net.sockets`, and simulated ones under a virtual clock in :mod:`iris_py.testing.network`.

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

#: What the socket module takes: host and port, and for IPv6 the flow and the scope.
SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

#: Where beacons meet. Of the block which stays inside one organisation (RFC 2365, 239.255/16), so no router forwards it far.
BEACON_GROUP = "239.255.73.82"
#: The same for IPv6: of those that nobody assigns, and that stay on one link (RFC 4291 section 2.7).
BEACON_GROUP_IPV6 = "ff12::4952:4953"
BEACON_PORT = 14142

#: The largest datagram. An IPv6 path carries at least 1,280 bytes, tunnels included; above that a datagram travels in
#: fragments, and is lost when one of them is.
DATAGRAM_BYTES_MAX = 1_200

#: Datagrams that wait to be taken by :meth:`DatagramSocket.receive`; what comes after that is dropped. Too small: a node whose
#: loop stood still for a moment loses the pings, or the answers to its own, and takes the living for dead; a thousand is what
#: hundreds of failure detectors and the beacons of hundreds of starting nodes send within a second. Too large: it then answers
#: what nobody waits for any more, for taking and opening this many costs some 30 ms.
DATAGRAMS_RECEIVED_MAX = 1_024

#: Why a datagram was dropped, the keys of :attr:`DatagramSocket.dropped`.
OVERSIZED = "oversized"  # longer than DATAGRAM_BYTES_MAX
CLOSED = "closed"  # sent after close
FULL = "full"  # the system takes datagrams more slowly than they are sent
UNREACHABLE = "unreachable"  # no multicast, or not an address of the same family
REFUSED = "refused"  # the system reported an error
OVERFLOW = "overflow"  # received, but nobody took the ones before

AnyProtocol = TypeVar("AnyProtocol", bound="asyncio.BufferedProtocol")


class OwnAddressError(ConnectionError):
    """An address, or a name, that is dialled means nobody but the node that dials."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNREFUSED, "leads to this node itself, and to no other")

    def __reduce__(self) -> tuple[type[OwnAddressError], tuple[()], dict[str, object]]:
        return type(self), (), vars(self)


class Listener(Protocol):
    """An open door for streams."""

    @property
    def address(self) -> Address:
        """The address listened on, with the port that was chosen where port 0 was asked for."""

    def close(self) -> None:
        """Accept no more streams; those already accepted live on. May be called again."""

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets; none of a simulated one."""


class DatagramSocket(Protocol):
    """Datagrams that may get lost, doubled and reordered: to one address, or to everyone in a group."""

    @property
    def address(self) -> Address:
        """Where this socket alone is reached, and what others hear its datagrams from."""

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group work here."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many datagrams were dropped on this side, by reason."""

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count it as dropped. Never raises and never blocks.

        Args:
            data: At most ``DATAGRAM_BYTES_MAX`` bytes.
            destination: A numeric address of the socket's own family, and a port; None for everyone in the group, this very
                socket included. One of IPv6 that is link-local ends with ``%`` and the number of the interface.
        """

    async def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, and the address where an answer reaches its sender and nobody else.

        Raises:
            ConnectionAbortedError: The socket is closed, be it before or during this call.
        """

    def close(self) -> None:
        """Stop sending and receiving. May be called again."""

    def descriptors(self) -> list[int]:
        """Return the descriptors of its sockets; none of a simulated one."""


class Network(Protocol):
    """A way to reach other nodes and to be reached."""

    @property
    def is_simulated(self) -> bool:
        """Whether time there is not that of the machine, and may pass in leaps."""

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Listener:
        """Accept streams at an address.

        Args:
            factory: Makes the protocol of each accepted stream.
            host: An address of this machine. A name stands for the first address that it has, and ``::`` for every address
                of both families.
            port: The port; 0 lets the system choose. With ``::`` the one that it chose for IPv6 may be taken for IPv4.

        Raises:
            OSError: The address is taken, or is not ours.
        """

    async def dial(
        self, factory: Callable[[], AnyProtocol], host: str, port: int, *, own: Collection[Address] = ()
    ) -> AnyProtocol:
        """Return the protocol of a new stream; its ``connection_made`` has been called.

        There is no timeout but that of the system, which is minutes: bring your own.

        Args:
            factory: Makes the protocol. Called once, and only when the stream is established.
            host: An address, or a name with several of them.
            port: The port.
            own: The numeric addresses of the dialling node itself: they are passed over, for a name that means a whole service
                means that node, too.

        Raises:
            OwnAddressError: It means nobody but the node itself.
            OSError: Nobody can be reached there.
        """

    async def open_datagrams(
        self, host: str, port: int, *, multicast: bool = True, group: str = "", group_port: int = BEACON_PORT
    ) -> DatagramSocket:
        """Open a socket for datagrams at an address, and in a group if that is possible.

        Args:
            host: An address of this machine, of the interface that the group is reached through; ``0.0.0.0`` and ``::`` mean
                every interface, the latter for both families. A name stands for the first address that it has.
            port: The port; 0 lets the system choose.
            multicast: Whether to be in the group. There is none on the loopback interface of IPv6.
            group: The multicast address; by default that of beacons, of the family of the host, and with ``::`` of each.
            group_port: The port which all members of the group share.

        Raises:
            OSError: The address is taken, or is not ours. That multicast does not work is no error.
        """


class ReceivedDatagrams:
    """The receiving half of a :class:`DatagramSocket`, the same in both implementations: a bounded queue, and counters."""

    def __init__(self) -> None:
        """Create an open socket without anything in its queue."""
        self._queue: deque[tuple[bytes, Address]] = deque()
        self._changed = asyncio.Event()
        self._dropped: Counter[str] = Counter()
        self._has_multicast = False
        self._closed = False

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group work here."""
        return self._has_multicast

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many datagrams were dropped on this side, by reason."""
        return self._dropped

    async def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, and the address where an answer reaches its sender and nobody else."""
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
        """Return whether a datagram may be sent at all; count it as dropped if not."""
        if self._closed:
            self._dropped[CLOSED] += 1
        elif len(data) > DATAGRAM_BYTES_MAX:
            self._dropped[OVERSIZED] += 1
        elif not data:
            self._dropped[REFUSED] += 1  # asyncio would skip it without a word
        else:
            return True
        return False
