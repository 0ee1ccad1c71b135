"""The order in which the addresses of another node are tried, as far as this machine can tell it without asking.

A node on several networks has an address on each, and not every peer reaches all of them. First comes the address that a link
has shown to be right, then the addresses on networks that this machine is on, too. An address that is one of this machine comes
late: it means a process here, or the other node's own machine, as ``172.17.0.1`` does on every host of Docker. Equals keep the
order that the node itself gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.messages import NodeInfo
from iris_overlay.peers.addresses import canonical_address, numeric_address

if TYPE_CHECKING:
    import ipaddress
    from collections.abc import Collection

    from iris_overlay.detector.events import Address
    from iris_overlay.ids import NodeId

#: Nodes with several addresses of which it is remembered at which a link has reached them; of more, the one whose link opened
#: first is forgotten. Too small: it is dialled at an address that may be wrong before the right one; too large: memory.
SHOWN_MAX: Final = 4096

_Interface: TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"


def put_first(info: NodeInfo, host: str) -> NodeInfo:
    """Return the description of a node with its addresses at a host first: something that it sent came from there."""
    if len(info.addresses) < 2:
        return info
    ordered = tuple(sorted(info.addresses, key=lambda address: address.rpartition(":")[0].strip("[]") != host))
    return info if ordered == info.addresses else NodeInfo(info.id, ordered, info.zone)


class Vantage:
    """The place of this machine among networks."""

    def __init__(self) -> None:
        """Know nothing: the order of addresses is that of their description, and datagrams go to any of them."""
        self._interfaces: tuple[_Interface, ...] = ()
        self._families: Collection[int] = (4, 6)
        self._shown: dict[NodeId, str] = {}

    def settle(self, interfaces: tuple[_Interface, ...], families: Collection[int]) -> None:
        """Take the addresses of this machine.

        Args:
            interfaces: The addresses, each with its network.
            families: 4, 6 or both: those of the addresses that this node can send datagrams to.
        """
        self._interfaces = interfaces
        self._families = families

    def link_opened(self, info: NodeInfo) -> None:
        """Note the address that a link has shown to be right: the first one of the description that came over it."""
        if len(info.addresses) < 2:
            return
        self._shown.pop(info.id, None)
        if len(self._shown) >= SHOWN_MAX:
            del self._shown[next(iter(self._shown))]
        self._shown[info.id] = canonical_address(info.addresses[0]) or ""

    def order(self, info: NodeInfo) -> list[str]:
        """Return the addresses of a node that can be dialled, each in its one spelling, in the order in which to try them."""
        spelled = (canonical_address(address) for address in info.addresses)
        addresses = list(dict.fromkeys(address for address in spelled if address is not None))
        if len(addresses) < 2:
            return addresses
        shown = self._shown.get(info.id)
        return sorted(addresses, key=lambda address: -1 if address == shown else self._rank(address))

    def datagram_address(self, info: NodeInfo) -> Address | None:
        """Return where datagrams reach a node: the first address that is numeric, for helpers have to be told one."""
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
