"""Connections by the host they come from, and the choice of a connection to evict (docs/design.md 3.2, 3.9).

A host that opens connections faster than handshakes complete must not keep other hosts out. So the host with the most
connections loses a random connection; a tie is broken at random, so a node with a single connection competes only with its
equals. The choice ignores age, because the oldest connection may belong to a distant honest node. Connections without a first
message under the network's secret go first: a flood without the secret does not even evict honest nodes at the same address,
unless the flood replays first messages.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from iris_overlay.environment import Rng
    from iris_py.link.link import Link

#: Number of random connections of a host tried to find one without a valid first message. Too small: a proved connection is
#: evicted although unproved ones exist; too large: where all are proved, each accept tries this many.
PICKS: Final = 8
#: Prefix length of an IPv6 network, whose owner has all its addresses (RFC 4291, section 2.5.4).
IPV6_PREFIX_BITS: Final = 64

Item = TypeVar("Item", bound="Hashable")


class _Bag(Generic[Item]):
    """A set that can return a random element; all operations take constant time."""

    __slots__ = ("_items", "_places")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._places: dict[Item, int] = {}  # Invariant: _items[_places[item]] == item

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, in arbitrary order."""
        return iter(self._items)

    def add(self, item: Item) -> None:
        self._places[item] = len(self._items)
        self._items.append(item)

    def remove(self, item: Item) -> None:
        place, last = self._places.pop(item), self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def choose(self, rng: Rng) -> Item:
        return self._items[rng.randrange(len(self._items))]


class Crowd:
    """The connections of a node by the host they come from, to choose one to evict. All operations take constant time.

    Args:
        rng: The randomness of the choice.
    """

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._networks: dict[Link, str] = {}
        self._links: dict[str, _Bag[Link]] = {}  # by network
        self._by_count: list[_Bag[str]] = [_Bag()]  # networks by their number of connections
        self._most = 0  # the last non-empty index

    def __len__(self) -> int:
        return len(self._networks)

    def add(self, link: Link, address: str) -> None:
        """Add a connection from an IP address."""
        network = self._networks[link] = network_of(address)
        links = self._links.setdefault(network, _Bag())
        links.add(link)
        count = len(links)
        if count > 1:
            self._by_count[count - 1].remove(network)
        if count == len(self._by_count):
            self._by_count.append(_Bag())
        self._by_count[count].add(network)
        self._most = max(self._most, count)

    def discard(self, link: Link) -> None:
        """Remove a connection, if present."""
        network = self._networks.pop(link, None)
        if network is None:
            return
        links = self._links[network]
        count = len(links)
        links.remove(link)
        self._by_count[count].remove(network)
        if count > 1:
            self._by_count[count - 1].add(network)
        else:
            del self._links[network]
        if not self._by_count[self._most]:
            self._most -= 1

    def choose(self) -> Link:
        """Return the connection to evict: one of the host with the most, if possible without a proof of the secret.

        The crowd must not be empty.
        """
        links = self._links[self._by_count[self._most].choose(self._rng)]
        link = links.choose(self._rng)
        for _ in range(PICKS - 1):
            if not link.proofs.generations:
                break
            link = links.choose(self._rng)
        return link

    def largest(self) -> Iterator[Iterable[Link]]:
        """Yield the connections of each host, the host with the most first. The crowd must not change meanwhile."""
        for networks in reversed(self._by_count):
            for network in networks:
                yield self._links[network]


def network_of(address: str) -> str:
    """Return the network counted as a host: the IPv4 address, or the first 64 bits of the IPv6 address.

    Other text is returned unchanged.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, IPV6_PREFIX_BITS), strict=False))
