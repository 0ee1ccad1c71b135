"""The rows of tables about a network that is queried repeatedly: nodes, members, subscriptions, links and clouds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_py.overview.clusters import MemberStatsLine, member_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.observe.reports import NodeReport
    from iris_py.observe.statistics import LinkStatistics, SubscriptionStatistics
    from iris_py.overview.clouds import CloudLine
    from iris_py.overview.pair import Pair
    from iris_py.overview.readings import NodeReading, Readings

__all__ = [
    "CloudRow",
    "LinkRow",
    "NodeRow",
    "SubscriberRow",
    "cloud_rows",
    "link_rows",
    "member_rows",
    "node_row",
    "subscriber_rows",
]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node in the table of nodes."""

    seen: NodeReading
    requests_per_s: float | None
    queued: int
    dropped_per_s: float | None
    cpu: float | None
    resident_bytes: int
    lateness_s: float
    uptime_s: float
    links: int
    round_trip_s: float | None
    version: str


@dataclass(frozen=True, slots=True)
class SubscriberRow:
    """A subscription of a node in the table of a topic's subscribers."""

    node: str
    address: str
    zone: str
    number: int
    statistics: SubscriptionStatistics
    messages_per_s: float


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link in the table of links, by the report of one end."""

    node: str
    address: str
    statistics: LinkStatistics
    received_per_s: float | None
    sent_per_s: float | None


@dataclass(frozen=True, slots=True)
class CloudRow:
    """The connection of a gateway to another cloud in the table of clouds."""

    line: CloudLine
    address: str
    """The address of that gateway; empty if unknown."""


def member_rows(pairs: Sequence[Pair], names: Sequence[str]) -> list[MemberStatsLine]:
    """Return the members of a cluster.

    Args:
        pairs: Two answers of each node.
        names: The names that nodes may use for the cluster in their answers.
    """
    rows = []
    for pair in pairs:
        for name in names:
            found = pair.last.statistics.clusters.get(name)
            if found is not None and found.service is not None and found.service.handlers:
                rows.append(member_line(pair, name))
                break
    return rows


def node_row(seen: NodeReading) -> NodeRow:
    """Return the row of a node, without numbers before its first answer."""
    pair = seen.pair
    if pair is None:
        return NodeRow(seen, None, 0, None, None, 0, 0.0, 0.0, 0, None, "")
    statistics, about = pair.last.statistics, pair.last.about

    def per_s(read: Callable[[NodeReport], float]) -> float | None:
        return pair.per_s(read) if seen.is_measured and seen.state == "answers" else None

    return NodeRow(
        seen=seen,
        requests_per_s=per_s(lambda report: report.statistics.executed),
        queued=sum(each.service.queued_messages for each in statistics.clusters.values() if each.service is not None)
        + sum(each.queued_messages for each in statistics.subscriptions),
        dropped_per_s=per_s(lambda report: sum(report.statistics.drops.values())),
        cpu=per_s(lambda report: report.statistics.process.cpu_s),
        resident_bytes=statistics.process.resident_bytes,
        lateness_s=statistics.process.loop_lateness_s,
        uptime_s=about.uptime_s,
        links=about.links,
        round_trip_s=pair.last.round_trip_s,
        version=about.version,
    )


def subscriber_rows(pairs: Sequence[Pair], is_wanted: Callable[[SubscriptionStatistics], bool]) -> list[SubscriberRow]:
    """Return a row for each wanted subscription.

    Args:
        pairs: Two answers of each node.
        is_wanted: Returns whether a subscription is wanted, such as those to a pattern, or in a group.
    """
    rows = []
    for pair in pairs:
        before = [each for each in pair.first.statistics.subscriptions if is_wanted(each)]
        after = [each for each in pair.last.statistics.subscriptions if is_wanted(each)]
        elapsed_s = pair.last.about.uptime_s - pair.first.about.uptime_s
        for number, each in enumerate(after):
            grown = each.delivered - before[number].delivered if len(before) == len(after) else 0
            rate = max(0, grown) / elapsed_s if elapsed_s > 0.0 else 0.0
            rows.append(SubscriberRow(pair.last.node.id, pair.last.node.address, pair.last.node.zone, number, each, rate))
    return rows


def cloud_rows(gathering: Readings) -> list[CloudRow]:
    """Return a row for each pair of gateway and cloud."""
    seen = [] if gathering.view is None else gathering.view.seen
    addresses = {each.node.id: each.node.address for each in seen}
    return [CloudRow(line, addresses.get(line.gateway, "")) for line in gathering.clouds]


def link_rows(pairs: Sequence[Pair]) -> list[LinkRow]:
    """Return a row for each end of a link."""
    rows = []
    for pair in pairs:
        before = {each.peer: each for each in pair.first.statistics.links.each}
        elapsed_s = pair.last.about.uptime_s - pair.first.about.uptime_s
        for each in pair.last.statistics.links.each:
            first = before.get(each.peer)
            received = sent = None
            if first is not None and elapsed_s > 0.0:
                received = max(0, each.received_bytes - first.received_bytes) / elapsed_s
                sent = max(0, each.sent_bytes - first.sent_bytes) / elapsed_s
            rows.append(LinkRow(pair.last.node.id, pair.last.node.address, each, received, sent))
    return rows
