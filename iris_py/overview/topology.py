"""The nodes of a network with their links, from the answers of the nodes: as data, and as a picture of the ring."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.pair import AskedSummary, summary_of
from iris_py.overview.ring_picture import NodePosition, draw_groups, draw_nodes, links_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = [
    "NO_GROUP",
    "By",
    "TopologyNodeLine",
    "TopologySummary",
    "counted",
    "draw",
    "groups_of",
    "nodes_of",
    "positions_of",
    "summary_of_topology",
    "title_of",
]

#: The groups of nodes: zones, or served clusters.
By: TypeAlias = Literal["zone", "cluster"]

#: The groups of nodes without a zone, or without a cluster.
NO_GROUP: Final[Mapping[By, str]] = {"zone": "(no zone)", "cluster": "(serves no cluster)"}


class TopologyNodeLine(Line, tag="node", kw_only=True):
    """A node of the network, with its links."""

    id: str
    """The node id: 32 hexadecimal digits."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    zone: str
    """The zone of the node."""
    version: str
    """The version of Iris; empty without an answer."""
    clusters: list[str]
    """The served clusters; `#` and a group id for a cluster with its own secret."""
    links: list[str]
    """The ids of the nodes with a link to the node; the busiest of more than 256."""
    state: Literal["told", "counts", "missing", "refused"]
    """`told`: as the node reports; `counts`: the node answered without names; `missing`: the node did not answer; `refused`:
    the node refused. Links to such nodes are known only from other nodes.
    """


class TopologySummary(AskedSummary, tag="summary", kw_only=True):
    """The end of `iris topology`: the nodes that answered, whether the result is complete, and the number of links."""

    links: int
    """Links between the shown nodes, each counted once."""
    links_beyond: int
    """Reported links to nodes that are not shown."""


def nodes_of(found: NodeReports, own: str = "") -> list[TopologyNodeLine]:
    """Return all known nodes, including silent nodes, in the order of zone, address and id.

    Args:
        found: The answers, with ``peers`` and ``clusters``.
        own: The querying node. Its links are left out, because it leaves soon.
    """
    nodes = [_told(report, own) for report in found.reports]
    nodes += [_untold(node, "missing") for node in found.missing]
    nodes += [_untold(node, "refused") for node in found.refused]
    return sorted(nodes, key=lambda line: (line.zone, line.address, line.id))


def _told(report: NodeReport, own: str) -> TopologyNodeLine:
    served = report.statistics.clusters.items()
    links = [link.peer for link in report.statistics.links.each if link.peer != own]
    keeps_names = bool(report.about.links) and not report.statistics.links.each
    return TopologyNodeLine(
        id=report.node.id,
        name=report.node.name,
        address=report.node.address,
        zone=report.node.zone,
        version=report.about.version,
        clusters=sorted(name for name, each in served if each.service is not None and each.service.handlers),
        links=sorted(links),
        state="counts" if keeps_names else "told",
    )


def _untold(node: NodeName, state: Literal["missing", "refused"]) -> TopologyNodeLine:
    return TopologyNodeLine(
        id=node.id, name=node.name, address=node.address, zone=node.zone, version="", clusters=[], links=[], state=state
    )


def summary_of_topology(nodes: Sequence[TopologyNodeLine], found: NodeReports) -> TopologySummary:
    asked = summary_of(found, shown=len(nodes), total=len(nodes))
    there = {line.id for line in nodes}
    return TopologySummary(
        **msgspec.structs.asdict(asked),
        links=len(links_of(positions_of(nodes, "zone"))),
        links_beyond=sum(link not in there for line in nodes for link in line.links),
    )


def groups_of(node: TopologyNodeLine, by: By) -> list[str]:
    """Return the groups of a node: its zone, or the served clusters."""
    return [group for group in ([node.zone] if by == "zone" else node.clusters) if group]


def positions_of(nodes: Sequence[TopologyNodeLine], by: By) -> list[NodePosition]:
    """Return the nodes for the picture. A node with several clusters has the colour of the largest cluster."""
    sizes = Counter(group for node in nodes for group in groups_of(node, by))
    return [
        NodePosition(
            id=node.id,
            group=min(groups_of(node, by) or [""], key=lambda group: (-sizes[group], group)),
            words=_words_of(node),
            links=frozenset(node.links),
            is_known=node.state == "told",
        )
        for node in nodes
    ]


def _words_of(node: TopologyNodeLine) -> tuple[str, ...]:
    state = {"told": "", "counts": "withholds its names", "missing": "did not answer", "refused": "tells nothing"}[node.state]
    words = (
        node.id,
        node.name,
        node.address,
        f"zone {node.zone}" if node.zone else "",
        f"serves {', '.join(node.clusters)}" if node.clusters else "",
        f"{len(node.links)} links" if node.state == "told" else "",
        state,
    )
    return tuple(word for word in words if word)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def title_of(nodes: Sequence[TopologyNodeLine], network: str) -> str:
    links = links_of(positions_of(nodes, "zone"))
    return f"Network {one_line(network)}: {counted(len(nodes), 'node')}, {counted(len(links), 'link')}"


def draw(
    nodes: Sequence[TopologyNodeLine],
    found: NodeReports,
    *,
    network: str,
    by: By,
    nodes_max: int,
    now: datetime | None = None,
) -> tuple[str, str]:
    """Draw the network as a picture of the ring.

    Args:
        nodes: The nodes.
        found: The answers of the nodes.
        network: The name of the network.
        by: The groups shown by colours.
        nodes_max: More nodes are drawn by groups, or only partly if all are in one group.
        now: The time of the query; None to leave it out.

    Returns:
        The picture as SVG, and a description of its contents.
    """
    places = positions_of(nodes, by)
    groups = len({place.group for place in places})
    notes = _notes_of(nodes, found)
    drawn = counted(len(nodes), "node")
    if now is not None:
        notes.append(f"Seen at {now:%Y-%m-%d %H:%M:%S} UTC.")
    if len(places) <= nodes_max:
        return draw_nodes(places, title_of(nodes, network), notes), drawn
    if groups > 1:
        drawn = f"{drawn} by {by}, because they are more than --max {nodes_max}"
        return draw_groups(
            places, title_of(nodes, network), [f"Drawn by {by}: these are more nodes than --max {nodes_max}.", *notes]
        ), drawn
    in_order = sorted(places, key=lambda place: place.id)
    some = [in_order[number * len(in_order) // nodes_max] for number in range(nodes_max)]
    drawn = f"{nodes_max:,} of {drawn}, evenly round the ring, because they are more than --max {nodes_max}"
    return draw_nodes(some, title_of(nodes, network), [f"The picture shows {drawn}.", *notes]), drawn


def _notes_of(nodes: Sequence[TopologyNodeLine], found: NodeReports) -> list[str]:
    """Return remarks for the picture about missing nodes."""
    notes = []
    if found.is_sample:
        notes.append(
            f"A sample: {len(nodes):,} of about {found.size.nodes:,.0f} nodes, drawn by chance. Other links are left out."
        )
    if len(found.reports) < found.asked:
        notes.append(
            f"{len(found.reports):,} of {found.asked:,} nodes answered. Of the other nodes only links to these are drawn."
        )
    if not found.is_whole:
        notes.append("A part of the ring did not answer, so there may be nodes that were not found.")
    return notes
