"""The nodes of a network by their own reports, and whether all hold the same generations of the secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.json_lines import Line
from iris_py.observe.node_name import short_id
from iris_py.overview.generations import GenerationsHolder, describe_holdings, holdings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.reports import NodeReport

__all__ = ["NodeLine", "generations_differ", "node_line"]


class NodeLine(Line, tag="node", kw_only=True):
    """A node of the network, by its own report."""

    id: str
    """The node id: 32 hexadecimal digits."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    zone: str
    """The zone of the node."""
    version: str
    """The version of Iris."""
    uptime_s: float
    """Age of the node, in seconds."""
    unix_s: float
    """Clock of the node at its answer: seconds since 1970."""
    links: int
    """Number of open links."""
    clusters: int
    """Number of clusters served."""
    subscriptions: int
    """Number of open subscriptions."""
    seals: str
    """The id of the secret's generation used to encrypt: 16 hexadecimal digits; empty if the node does not report it."""
    accepts: list[str]
    """The ids of the accepted generations."""
    round_trip_s: float
    """Round-trip time of the query, in seconds."""


def generations_differ(lines: Sequence[NodeLine]) -> str:
    """Return a sentence about nodes with different generations of the secret; empty if all nodes hold the same."""
    holdings = holdings_of(
        GenerationsHolder(line.address or short_id(line.id), line.seals, tuple(line.accepts)) for line in lines
    )
    return f"nodes hold different generations of the secret: {describe_holdings(holdings)}" if len(holdings) > 1 else ""


def node_line(report: NodeReport) -> NodeLine:
    """Convert the report of a node."""
    node, about, security = report.node, report.about, report.statistics.security
    return NodeLine(
        id=node.id,
        name=node.name,
        address=node.address,
        zone=node.zone,
        version=about.version,
        uptime_s=round(about.uptime_s, 3),
        unix_s=round(about.unix_s, 3),
        links=about.links,
        clusters=about.clusters,
        subscriptions=about.subscriptions,
        seals=security.primary,
        accepts=list(security.accepted),
        round_trip_s=round(report.round_trip_s, 6),
    )
