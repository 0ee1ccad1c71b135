"""The sources of load in `iris top`: publishing nodes, and nodes with open tunnels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.observe.node_name import short_name
from iris_py.observe.statistics import TopicStatistics
from iris_py.overview.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.reports import NodeReport
    from iris_py.overview.pair import Pair

__all__ = ["PublisherLine", "TunnelsLine", "publisher_lines", "say_publishers", "say_tunnels", "tunnels_lines"]

_NO_TOPIC = TopicStatistics()


class PublisherLine(Line, tag="publisher", kw_only=True):
    """The publications of one node to topics with one first token."""

    id: str
    """The node id."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    topic: str
    """The first token of the topics, as in `news`."""
    published_per_s: float
    """Messages published per second."""
    published: int
    """Messages published since the start."""
    pauses: int
    """Number of pauses requested by subscribers."""


class TunnelsLine(Line, tag="tunnels", kw_only=True):
    """The tunnels of one node at one member of a cluster."""

    cluster: str
    """The cluster."""
    member: str
    """The node id of the member."""
    member_address: str
    """The address of the member."""
    holder: str
    """The node id of the node that opened the tunnels."""
    holder_name: str
    """The label of that node; empty without one, or without an answer."""
    holder_address: str
    """The address of that node; empty without an answer."""
    tunnels: int
    """Number of open tunnels of the node at the member."""
    open: int
    """Tunnels open at the member now, of all holders."""
    max: int
    """Maximum number of open tunnels."""


def publisher_lines(pairs: Sequence[Pair]) -> list[PublisherLine]:
    """Return a line for each node and first token with publications, the highest rate first."""
    lines = []
    for pair in pairs:
        node = pair.last.node
        for topic, each in pair.last.statistics.topics.items():
            if not each.published:
                continue

            def published(report: NodeReport, topic: str = topic) -> int:
                return report.statistics.topics.get(topic, _NO_TOPIC).published

            lines.append(
                PublisherLine(
                    id=node.id,
                    name=node.name,
                    address=node.address,
                    topic=topic,
                    published_per_s=round(pair.per_s(published), 3),
                    published=each.published,
                    pauses=each.pauses_obeyed,
                )
            )
    return sorted(lines, key=lambda line: (-line.published_per_s, -line.published, line.topic, line.id))


def tunnels_lines(pairs: Sequence[Pair]) -> list[TunnelsLine]:
    """Return a line for each node with open tunnels at a member, the most tunnels first."""
    nodes = {pair.last.node.id: pair.last.node for pair in pairs}
    lines = []
    for pair in pairs:
        for name, cluster in pair.last.statistics.clusters.items():
            service = cluster.service
            if service is None:
                continue
            for holder, count in service.tunnel_holders.items():
                known = nodes.get(holder)
                lines.append(
                    TunnelsLine(
                        cluster=name,
                        member=pair.last.node.id,
                        member_address=pair.last.node.address,
                        holder=holder,
                        holder_name="" if known is None else known.name,
                        holder_address="" if known is None else known.address,
                        tunnels=count,
                        open=service.tunnels_open,
                        max=service.tunnels_max,
                    )
                )
    return sorted(lines, key=lambda line: (-line.tunnels, line.cluster, line.member, line.holder))


def say_publishers(lines: Sequence[PublisherLine]) -> list[str]:
    """Return a text about each publishing node."""
    return [
        f"{one_line(line.topic)}: {format_count(line.published_per_s)}/s by {short_name(line.id, one_line(line.name))} at "
        f"{one_line(line.address)}"
        for line in lines
        if line.published_per_s
    ]


def say_tunnels(lines: Sequence[TunnelsLine]) -> list[str]:
    """Return a text about each node with open tunnels."""
    return [
        f"{one_line(line.cluster)}: {line.tunnels} held by {short_name(one_line(line.holder), one_line(line.holder_name))}"
        f"{f' at {one_line(line.holder_address)}' if line.holder_address else ''}, {line.open} of {line.max} open at "
        f"{line.member[:8]}"
        for line in lines
    ]
