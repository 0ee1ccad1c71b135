"""Datagrams of a node that listens on every address of both families: an IPv6 and an IPv4 socket on one port.

On Linux, one IPv6 socket could serve both. But then IPv4 addresses would appear as ``::ffff:192.0.2.1`` everywhere, IPv4
multicast would need options rejected there by other systems, and some systems have no such sockets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from iris_py.net.network import UNREACHABLE, ReceivedDatagrams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.net.datagrams import SocketDatagrams
    from iris_py.net.network import Address

__all__ = ["DualDatagrams"]


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
