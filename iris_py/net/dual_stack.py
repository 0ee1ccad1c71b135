"""Datagrams of a node that listens on every address of both families: a socket of IPv6 and one of IPv4, on one port.

One socket of IPv6 could take both on Linux. Then addresses of IPv4 would show as ``::ffff:192.0.2.1`` everywhere, multicast of
IPv4 would depend on options that other systems refuse there, and some of them have no such sockets at all.
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
    """Datagrams of both families: implements :class:`iris_py.net.network.DatagramSocket`.

    Args:
        ipv6: Those of IPv6; its address is the one of both.
        ipv4: Those of IPv4, on the same port.
    """

    def __init__(self, ipv6: SocketDatagrams, ipv4: SocketDatagrams) -> None:
        super().__init__()
        self._parts = (ipv6, ipv4)
        self._tasks = [asyncio.create_task(self._receive_from(part)) for part in self._parts]

    @property
    def address(self) -> Address:
        """Where this socket alone is reached: the unspecified address of IPv6, which stands for that of IPv4, too."""
        return self._parts[0].address

    @property
    def has_multicast(self) -> bool:
        """Whether datagrams to and from the group of either family work here."""
        return any(part.has_multicast for part in self._parts)

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many datagrams were dropped on this side, by reason."""
        return sum((Counter(part.dropped) for part in self._parts), Counter(self._dropped))

    def send(self, data: bytes, destination: Address | None) -> None:
        """Send a datagram by the socket of its family, or to everyone by both. Never raises and never blocks."""
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
                return  # it is closed
            self._receive_data(data, sender)
