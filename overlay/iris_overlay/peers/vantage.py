"""The dial order of another node's addresses, decided without a question to any node.

A node on several networks has an address on each, and not every peer reaches all of them. First comes the address confirmed by
a link, then the addresses on networks of this machine. An address of this machine itself comes late: it means a local process
or the other node's own machine, as ``172.17.0.1`` does on every Docker host. Otherwise the order of the node itself remains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.addresses import canonical_address, numeric_address

if TYPE_CHECKING:
    import ipaddress
    from collections.abc import Collection

    from iris_overlay.detector.events import Address
    from iris_overlay.ids import NodeId

#: The largest number of nodes with several addresses that are remembered with the address of their link; beyond it the first
#: one is forgotten. Too small: a node is dialled at a wrong address first; too large: memory.
SHOWN_MAX: Final = 4096

_Interface: TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"


def put_first(info: NodeInfo, host: str) -> NodeInfo:
    """Return a node info with the addresses at `host` first, the host from which the node has sent a message."""
    if len(info.addresses) < 2:
        return info
    ordered = tuple(sorted(info.addresses, key=lambda address: address.rpartition(":")[0].strip("[]") != host))
    return info if ordered == info.addresses else NodeInfo(info.id, ordered, info.zone)


class Vantage:
    """The networks of this machine, by which the addresses of other nodes are ordered for dials."""

    def __init__(self) -> None:
        """Start without networks: addresses keep their order, and datagrams may go to any of them."""
        self._interfaces: tuple[_Interface, ...] = ()
        self._families: Collection[int] = (4, 6)
        self._shown: dict[NodeId, str] = {}

    def settle(self, interfaces: tuple[_Interface, ...], families: Collection[int]) -> None:
        """Set the addresses of this machine, and the IP versions usable for datagrams.

        Args:
            interfaces: The addresses, each with its network.
            families: 4, 6 or both: the IP versions usable for datagrams.
        """
        self._interfaces = interfaces
        self._families = families

    def link_opened(self, info: NodeInfo) -> None:
        """Note the address confirmed by a link: the first one in the node info received over it."""
        if len(info.addresses) < 2:
            return
        self._shown.pop(info.id, None)
        if len(self._shown) >= SHOWN_MAX:
            del self._shown[next(iter(self._shown))]
        self._shown[info.id] = canonical_address(info.addresses[0]) or ""

    def order(self, info: NodeInfo) -> list[str]:
        """Return the dialable addresses of a node in canonical form, in the order of dials."""
        spelled = (canonical_address(address) for address in info.addresses)
        addresses = list(dict.fromkeys(address for address in spelled if address is not None))
        if len(addresses) < 2:
            return addresses
        shown = self._shown.get(info.id)
        return sorted(addresses, key=lambda address: -1 if address == shown else self._rank(address))

    def datagram_address(self, info: NodeInfo) -> Address | None:
        """Return the address for datagrams to a node: the first numeric one, because helpers need a numeric address."""
        for address in self.order(info):
            found = numeric_address(address)
            if found is not None and found[0].version in self._families:
                return str(found[0]), found[1]
        return None

    def _rank(self, address: str) -> int:
        found = numeric_address(address)
        if found is None:
            return 1
        ip = found[0]
        near = [each for each in self._interfaces if ip in each.network]
        if any(each.ip == ip for each in near):
            return 2
        if near:
            return 0
        has_family = not self._interfaces or any(each.version == ip.version for each in self._interfaces)
        return 1 if has_family else 3
