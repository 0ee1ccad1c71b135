"""The page of the ring: all nodes in the order of their ids with their links, or in a large network their zones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.overview.topology import nodes_of
from iris_py.servers.web.dashboard.page_head import PageHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.overview.topology import TopologyNodeLine
    from iris_py.servers.web.dashboard.page_head import HeadMaker

__all__ = ["RingPage", "make_ring_page"]

#: Nodes of a picture; more nodes are drawn by zones. Too small: a network of some racks has no picture of its nodes; too large:
#: dots hide each other, and each second costs a viewer hundreds of kilobytes.
RING_NODES_MAX: Final = 500
#: Links of a picture. Nodes of `RING_NODES_MAX` have fewer, unless most of their links are requested ones.
RING_LINKS_MAX: Final = 20_000
#: Zones of a picture of a large network, the largest ones. Too small: zones are missing; too large: nobody tells them apart.
RING_ZONES_MAX: Final = 64


class PageRingNode(msgspec.Struct, kw_only=True):
    """A node on the ring."""

    id: str
    name: str
    address: str
    zone: str
    state: str
    """``told``, ``counts``, ``missing`` or ``refused``, as for `iris topology --json`."""
    links: int
    """Links to the nodes of the picture, by the report of either end."""


class PageRingZone(msgspec.Struct, kw_only=True):
    """A zone in the picture of a large network."""

    zone: str
    """Empty for the nodes without a zone."""
    nodes: int
    links: int
    """Links within the zone."""


class RingPage(msgspec.Struct, kw_only=True):
    """The ring."""

    head: PageHead

    items: list[PageRingNode]
    """The nodes, in the order of their ids; empty in a network of more than 500."""
    links: list[tuple[int, int]]
    """The links, each once: positions in ``items``."""
    zones: list[PageRingZone]
    """The zones, the largest first; empty if the nodes are shown."""
    zone_links: list[tuple[int, int, int]]
    """The links between two zones: their positions in ``zones``, and the number of links."""
    links_total: int
    """The number of links between all nodes that answered, also of those left out here."""


def make_ring_page(head: HeadMaker) -> RingPage:
    """Return the page."""
    nodes = sorted(nodes_of(head.view.found), key=lambda node: node.id)
    links = _links_of(nodes)
    is_small = len(nodes) <= RING_NODES_MAX
    shown = sorted(links)[:RING_LINKS_MAX] if is_small else []
    zones, zone_links = ([], []) if is_small else _zones_of(nodes, links)
    return RingPage(
        head=head.head(len(nodes), len(nodes) if is_small else 0),
        items=_items_of(nodes, shown) if is_small else [],
        links=shown,
        zones=zones,
        zone_links=zone_links,
        links_total=len(links),
    )


def _links_of(nodes: Sequence[TopologyNodeLine]) -> set[tuple[int, int]]:
    """Return each link between two nodes once, as their positions, even if only one end reports the link."""
    places = {node.id: place for place, node in enumerate(nodes)}
    links: set[tuple[int, int]] = set()
    for place, node in enumerate(nodes):
        for peer in node.links:
            other = places.get(peer, place)
            if other > place:
                links.add((place, other))
            elif other < place:
                links.add((other, place))
    return links


def _items_of(nodes: Sequence[TopologyNodeLine], links: Sequence[tuple[int, int]]) -> list[PageRingNode]:
    counts = Counter(place for link in links for place in link)
    return [
        PageRingNode(id=node.id, name=node.name, address=node.address, zone=node.zone, state=node.state, links=counts[place])
        for place, node in enumerate(nodes)
    ]


def _zones_of(
    nodes: Sequence[TopologyNodeLine], links: Iterable[tuple[int, int]]
) -> tuple[list[PageRingZone], list[tuple[int, int, int]]]:
    """Return the largest zones, and the links between them."""
    sizes = Counter(node.zone for node in nodes)
    names = sorted(sizes, key=lambda zone: (-sizes[zone], zone))[:RING_ZONES_MAX]
    places = {zone: place for place, zone in enumerate(names)}
    zone_of = [places.get(node.zone, -1) for node in nodes]
    ends = ((zone_of[one], zone_of[other]) for one, other in links)
    between = Counter((min(pair), max(pair)) for pair in ends if min(pair) >= 0)
    zones = [PageRingZone(zone=zone, nodes=sizes[zone], links=between[place, place]) for place, zone in enumerate(names)]
    return zones, [(one, other, count) for (one, other), count in sorted(between.items()) if one != other]
