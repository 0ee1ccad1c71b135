"""What a node needs of a network: streams that it dials and accepts, and datagrams that find its peers.

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
    from collections.abc import Callable, Mapping, Sequence

#: Host and port.
Address: TypeAlias = tuple[str, int]

#: Where beacons meet. Of the block which stays inside one organisation (RFC 2365, 239.255/16), so no router forwards it far.
BEACON_GROUP = "239.255.73.82"
BEACON_PORT = 14142

#: The largest beacon. An IPv6 path carries at least 1,280 bytes, tunnels included; above that a datagram travels in fragments,
#: and is lost when one of them is.
BEACON_BYTES_MAX = 1_200

#: Beacons that wait to be taken by :meth:`BeaconSocket.receive`. Two hundred nodes that start in one instant fit; what comes
#: after that is dropped, since beacons are repeated for ever.
BEACONS_RECEIVED_MAX = 256

#: Why a beacon was dropped, the keys of :attr:`BeaconSocket.dropped`.
OVERSIZED = "oversized"  # longer than BEACON_BYTES_MAX
CLOSED = "closed"  # sent after close
FULL = "full"  # the system takes datagrams more slowly than they are sent
UNREACHABLE = "unreachable"  # no interface for it, or not an address
REFUSED = "refused"  # the system reported an error
OVERFLOW = "overflow"  # received, but nobody took the ones before

AnyProtocol = TypeVar("AnyProtocol", bound="asyncio.BufferedProtocol")


class Listener(Protocol):
    """An open door for streams."""

    @property
    def address(self) -> Address:
        """The address listened on, with the port that was chosen where port 0 was asked for."""

    def close(self) -> None:
        """Accept no more streams; those already accepted live on. May be called again."""


class BeaconSocket(Protocol):
    """Datagrams that may get lost, doubled and reordered: to everyone in a group, or to one address."""

    @property
    def degraded(self) -> bool:
        """Whether some of what was asked for does not work here, for example multicast on one of the interfaces."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many datagrams were dropped on this side, by reason."""

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram, or count it as dropped. Never raises and never blocks.

        Args:
            data: At most ``BEACON_BYTES_MAX`` bytes.
            destination: An IPv4 address and port; None for everyone in the group, this very socket included, on every
                interface. Who is reached by several interfaces receives several copies.
        """

    async def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram, and the address where an answer reaches its sender and nobody else.

        Raises:
            ConnectionAbortedError: The socket is closed, be it before or during this call.
        """

    def close(self) -> None:
        """Stop sending and receiving. May be called again."""


class Network(Protocol):
    """A way to reach other nodes and to be reached."""

    async def listen(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Listener:
        """Accept streams at an address.

        Args:
            factory: Makes the protocol of each accepted stream.
            host: An address of this machine. A name stands for the first address that it has.
            port: The port; 0 lets the system choose.

        Raises:
            OSError: The address is taken, or is not ours.
        """

    async def dial(self, factory: Callable[[], AnyProtocol], host: str, port: int) -> AnyProtocol:
        """Return the protocol of a new stream; its ``connection_made`` has been called.

        There is no timeout but that of the system, which is minutes: bring your own.

        Args:
            factory: Makes the protocol. Called once, and only when the stream is established.
            host: An address, or a name with several of them.
            port: The port.

        Raises:
            OSError: Nobody can be reached there.
        """

    async def open_beacons(
        self, interfaces: Sequence[str], *, group: str = BEACON_GROUP, port: int = BEACON_PORT
    ) -> BeaconSocket:
        """Open a socket for beacons. Where multicast does not work it is degraded, and does what does work.

        Args:
            interfaces: The IPv4 addresses of the interfaces to use; ``0.0.0.0`` lets the system choose one.
            group: The multicast address.
            port: The port which all members of the group share.
        """


class ReceivedBeacons:
    """The receiving half of a :class:`BeaconSocket`, the same in both implementations: a bounded queue, and counters."""

    def __init__(self) -> None:
        """Create an open socket without anything in its queue."""
        self._queue: deque[tuple[bytes, Address]] = deque()
        self._changed = asyncio.Event()
        self._dropped: Counter[str] = Counter()
        self._degraded = False
        self._closed = False

    @property
    def degraded(self) -> bool:
        """Whether some of what was asked for does not work here."""
        return self._degraded

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
        raise ConnectionAbortedError(errno.ECONNABORTED, "the beacon socket is closed")

    def _receive_data(self, data: bytes, sender: Address) -> None:
        """Queue a datagram from the network, or count it as dropped."""
        if len(self._queue) >= BEACONS_RECEIVED_MAX:
            self._dropped[OVERFLOW] += 1
            return
        self._queue.append((data, sender))
        self._changed.set()

    def _is_sendable(self, data: bytes) -> bool:
        """Return whether a datagram may be sent at all; count it as dropped if not."""
        if self._closed:
            self._dropped[CLOSED] += 1
        elif len(data) > BEACON_BYTES_MAX:
            self._dropped[OVERSIZED] += 1
        elif not data:
            self._dropped[REFUSED] += 1  # asyncio would skip it without a word
        else:
            return True
        return False
