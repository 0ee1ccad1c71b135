"""Connections by the host they come from, and which of them makes room for another one (docs/design.md 3.2, 3.9).

A host that opens connections faster than handshakes take must not keep others out. So the host with the most of them makes
room, and of several such hosts a random one: a node that dials once competes only with others that dial once. Of one host a
random connection goes, not the oldest: the oldest is that of an honest node that is far away. Those that have not shown by a
first message that they hold the secret go before those that have: so a flood without the secret does not even push out honest
nodes at its own address, unless it repeats first messages that it has heard.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from iris_overlay.environment import Rng
    from iris_py.link.link import Link

#: Connections of a host that are looked at for one that has shown nothing. Too small: where most of them have shown something,
#: one of these goes though there are others; too large: where all of them have, each accept looks at as many.
PICKS: Final = 8
#: Behind so many bits an IPv6 host has as many addresses as it likes (RFC 4291, section 2.5.4).
IPV6_PREFIX_BITS: Final = 64

Item = TypeVar("Item", bound="Hashable")


class _Bag(Generic[Item]):
    """A set of which a random one can be taken, all in constant time."""

    __slots__ = ("_items", "_places")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._places: dict[Item, int] = {}  # Invariant: _items[_places[item]] == item

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Return all, in no order that means anything."""
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
    """Connections by the host they come from. Adding, removing and choosing one take constant time.

    Args:
        rng: The randomness of the choice.
    """

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._networks: dict[Link, str] = {}
        self._links: dict[str, _Bag[Link]] = {}  # by network
        self._by_count: list[_Bag[str]] = [_Bag()]  # networks by how many connections they have
        self._most = 0  # the last that is not empty

    def __len__(self) -> int:
        return len(self._networks)

    def add(self, link: Link, address: str) -> None:
        """Add a connection that comes from an IP address."""
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
        """Remove a connection, if it is there."""
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
        """Return the one that is to make room. There has to be one."""
        links = self._links[self._by_count[self._most].choose(self._rng)]
        link = links.choose(self._rng)
        for _ in range(PICKS - 1):
            if not link.proofs.generations:
                break
            link = links.choose(self._rng)
        return link

    def largest(self) -> Iterator[Iterable[Link]]:
        """Return the connections of each host, the host with the most first. The crowd must not change meanwhile."""
        for networks in reversed(self._by_count):
            for network in networks:
                yield self._links[network]


def network_of(address: str) -> str:
    """Return what counts as one host: an IPv4 address, or the first 64 bits of an IPv6 address; anything else as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, IPV6_PREFIX_BITS), strict=False))
