"""The pages of the dashboard, made from the readings of the network.

A page is named by its kind and perhaps an object: ``clusters``, ``cluster:quotes``, ``node:1f3a...``. Its items are the objects
that the commands print with ``--json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from iris_py.overview.caller_failures import FailureLine, failure_lines, say_rates, unserved_clusters
from iris_py.overview.clouds import CloudLine, cloud_faults
from iris_py.overview.clusters import ClusterLine, MemberStatsLine, cluster_lines
from iris_py.overview.figures import figures_of
from iris_py.overview.nodes import generations_differ, node_line
from iris_py.overview.pair import AskedSummary, share_of, summary_of
from iris_py.overview.readings import PARTS, EventSeen
from iris_py.overview.rows import link_rows, member_rows, node_row, subscriber_rows
from iris_py.overview.slowness import SlowLine, say_slow, slow_lines
from iris_py.overview.topic_table import TableLine, TokenLine, say_table, say_versions, table_line, token_lines
from iris_py.overview.topics import TopicLine, topic_lines
from iris_py.overview.totals import TotalsLine, totals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_py.overview.readings import NetworkReading, NodeReading, Readings

__all__ = ["KINDS", "PageName", "make_page", "parse_page", "parts_of"]

#: Lines of a table in a page; the summary counts all. Too small: the page hides lines that a filter would find; too large: each
#: second costs megabytes for each viewer.
LINES_MAX: Final = 2_000
#: Events, failures and findings in a page: as many as people read.
DETAILS_MAX: Final = 200
#: The kinds of pages; those with an object need its name.
KINDS: Final[Mapping[str, bool]] = {
    "overview": False,
    "clusters": False,
    "cluster": True,
    "topics": False,
    "topic": True,
    "nodes": False,
    "node": True,
    "links": False,
    "clouds": False,
    "events": False,
}
#: The statistics that a kind of page needs besides those of all pages.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topics",),
    "links": ("peers",),
    "events": ("events",),
    "overview": ("events",),
}


class PageName(NamedTuple):
    """The name of a page."""

    kind: str
    """A key of `KINDS`."""
    name: str = ""
    """The cluster, pattern or node id; empty for a page of the whole network."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


class PageHead(msgspec.Struct, kw_only=True):
    """The head of every page."""

    page: str
    """The name of the page."""
    network: str
    """The name of the network."""
    unix_s: float
    """The time of the answers, by the clock of the door: seconds since 1970."""
    summary: AskedSummary
    """The nodes that answered."""
    command: str
    """The command that shows the same, or acts on it."""


#: Any page.
Page: TypeAlias = (
    "OverviewPage | ClustersPage | ClusterPage | TopicsPage | TopicPage | NodesPage | NodePage | LinksPage | CloudsPage |"
    " EventsPage"
)


class OverviewPage(msgspec.Struct, kw_only=True):
    """The whole network on one page."""

    head: PageHead

    totals: TotalsLine
    clusters: list[ClusterLine]
    """The clusters with the most requests."""
    failures: list[FailureLine]
    """The errors of callers in this moment."""
    slow: list[SlowLine]
    """Members that are much slower than the others of their cluster."""
    clouds: list[CloudLine]
    findings: list[str]
    """Faults, as sentences."""
    events: list[EventSeen]
    """The last events."""


class ClustersPage(msgspec.Struct, kw_only=True):
    """All clusters."""

    head: PageHead

    items: list[ClusterLine]


class ClusterPage(msgspec.Struct, kw_only=True):
    """One cluster."""

    head: PageHead

    cluster: ClusterLine | None
    """The cluster; None if no answering node serves or uses the cluster."""
    items: list[MemberStatsLine]
    """The members."""
    slow: list[SlowLine]
    """Members that are much slower than the others."""
    findings: list[str]
    """Faults, as sentences."""


class TopicsPage(msgspec.Struct, kw_only=True):
    """All subscribed patterns, the first tokens of topics, and the table of interest."""

    head: PageHead

    items: list[TopicLine]
    tokens: list[TokenLine]
    table: TableLine
    notes: list[str]
    """The state of the table, in words."""


class PageSubscriber(msgspec.Struct, kw_only=True):
    """A subscription of a node."""

    node: str
    address: str
    zone: str
    messages_per_s: float
    queued: int
    dropped: int


class TopicPage(msgspec.Struct, kw_only=True):
    """One subscribed pattern."""

    head: PageHead

    topic: TopicLine | None
    """The pattern; None if no answering node subscribes to the pattern."""
    items: list[PageSubscriber]
    """The subscriptions."""


class PageNode(msgspec.Struct, kw_only=True):
    """A node in the table of nodes."""

    id: str
    name: str
    address: str
    zone: str
    state: str
    """``answers``, ``silent``, ``refuses`` or ``gone``."""
    version: str
    uptime_s: float
    requests_per_s: float | None
    queued: int
    dropped_per_s: float | None
    cpu: float | None
    """Processors used now."""
    resident_bytes: int
    lateness_s: float
    """The delay of the event loop."""
    links: int
    round_trip_s: float | None


class NodesPage(msgspec.Struct, kw_only=True):
    """All nodes."""

    head: PageHead

    items: list[PageNode]


class PageFigure(msgspec.Struct, kw_only=True):
    """A number of a node."""

    name: str
    text: str
    change: str
    """The growth per second as text; empty if it is unknown or zero."""


class NodePage(msgspec.Struct, kw_only=True):
    """One node, with all its numbers."""

    head: PageHead

    node: PageNode | None
    """The node; None if it has not answered."""
    items: list[PageFigure]


class PageLink(msgspec.Struct, kw_only=True):
    """A link, by the report of one end."""

    node: str
    peer: str
    address: str
    """The address of the peer."""
    is_congested: bool
    round_trip_s: float | None
    received_per_s: float | None
    """Bytes."""
    sent_per_s: float | None
    """Bytes."""


class LinksPage(msgspec.Struct, kw_only=True):
    """All links."""

    head: PageHead

    items: list[PageLink]


class CloudsPage(msgspec.Struct, kw_only=True):
    """The connections to other clouds."""

    head: PageHead

    items: list[CloudLine]
    findings: list[str]


class EventsPage(msgspec.Struct, kw_only=True):
    """The last events, the newest first."""

    head: PageHead

    items: list[EventSeen]


def parse_page(text: str) -> PageName | None:
    """Return the name of a page; None if the page is unknown."""
    kind, mark, name = text.partition(":")
    if kind not in KINDS or KINDS[kind] != bool(name) or bool(mark) != bool(name):
        return None
    return PageName(kind, name)


def parts_of(kinds: set[str]) -> tuple[str, ...]:
    """Return the statistics to request from all nodes while some kinds of pages are shown."""
    further = {part for kind in kinds for part in _PARTS.get(kind, ())}
    return (*PARTS, *sorted(further))


def make_page(page: PageName, readings: Readings, network: str, unix_s: float) -> Page | None:
    """Return a page; None before the first reading with rates.

    Args:
        page: The page.
        readings: The readings.
        network: The name of the network.
        unix_s: The time of the last reading, in seconds since 1970.
    """
    view = readings.view
    if view is None:
        return None
    return _MAKERS[page.kind](page.name, readings, view, _Head(str(page), network, unix_s))


class _Head(NamedTuple):
    page: str
    network: str
    unix_s: float

    def of(self, view: NetworkReading, command: str, total: int) -> PageHead:
        """Return the head of a page with some lines."""
        summary = summary_of(view.found, shown=min(LINES_MAX, total), total=total)
        return PageHead(page=self.page, network=self.network, unix_s=self.unix_s, summary=summary, command=command)


def _overview(_name: str, readings: Readings, view: NetworkReading, head: _Head) -> OverviewPage:
    pairs, found = view.pairs, view.found
    failures = failure_lines(pairs, share_of(pairs, found))
    slow = slow_lines(pairs)
    findings = [
        *say_rates([line for line in failures if line.per_s], unserved_clusters(pairs)),
        *say_slow(slow),
        *cloud_faults(readings.clouds),
        *(
            text
            for text in (generations_differ([node_line(each) for each in found.reports]), say_versions(found.reports))
            if text
        ),
    ]
    clusters = cluster_lines(pairs, found, "requests_per_s")
    return OverviewPage(
        head=head.of(view, "iris top", len(clusters)),
        totals=totals_of(pairs, found),
        clusters=clusters[:LINES_MAX],
        failures=[line for line in failures if line.per_s][:DETAILS_MAX],
        slow=slow[:DETAILS_MAX],
        clouds=readings.clouds[:DETAILS_MAX],
        findings=findings[:DETAILS_MAX],
        events=readings.events[:DETAILS_MAX],
    )


def _clusters(_name: str, _readings: Readings, view: NetworkReading, head: _Head) -> ClustersPage:
    lines = cluster_lines(view.pairs, view.found, "requests_per_s")
    return ClustersPage(head=head.of(view, "iris clusters", len(lines)), items=lines[:LINES_MAX])


def _cluster(name: str, _readings: Readings, view: NetworkReading, head: _Head) -> ClusterPage:
    pairs, found = view.pairs, view.found
    line = next((line for line in cluster_lines(pairs, found, "name") if line.name == name), None)
    slow = [each for each in slow_lines(pairs) if each.cluster == name]
    failures = [each for each in failure_lines(pairs, share_of(pairs, found), [name]) if each.per_s]
    unserved = {each: count for each, count in unserved_clusters(pairs).items() if each == name}
    members = sorted(member_rows(pairs, [name]), key=lambda member: (member.zone, member.address, member.id))
    return ClusterPage(
        head=head.of(view, f"iris members {name} --stats", len(members)),
        cluster=line,
        items=members[:LINES_MAX],
        slow=slow[:DETAILS_MAX],
        findings=[*say_rates(failures, unserved), *say_slow(slow)][:DETAILS_MAX],
    )


def _topics(_name: str, _readings: Readings, view: NetworkReading, head: _Head) -> TopicsPage:
    pairs, found = view.pairs, view.found
    share = share_of(pairs, found)
    lines, table = topic_lines(pairs, found, None, "delivered_per_s"), table_line(pairs, share)
    return TopicsPage(
        head=head.of(view, "iris topics", len(lines)),
        items=lines[:LINES_MAX],
        tokens=token_lines(pairs, share)[:LINES_MAX],
        table=table,
        notes=say_table(table, pairs)[:DETAILS_MAX],
    )


def _topic(name: str, _readings: Readings, view: NetworkReading, head: _Head) -> TopicPage:
    line = next((line for line in topic_lines(view.pairs, view.found, None, "pattern") if line.pattern == name), None)
    items = [
        PageSubscriber(
            node=row.node,
            address=row.address,
            zone=row.zone,
            messages_per_s=row.messages_per_s,
            queued=row.statistics.queued_messages,
            dropped=sum(row.statistics.dropped.values()),
        )
        for row in subscriber_rows(view.pairs, lambda each: each.pattern == name)
    ]
    return TopicPage(head=head.of(view, f"iris topics '{name}'", len(items)), topic=line, items=items[:LINES_MAX])


def _nodes(_name: str, _readings: Readings, view: NetworkReading, head: _Head) -> NodesPage:
    items = sorted(map(_page_node, view.seen), key=lambda item: (item.zone, item.address, item.id))
    return NodesPage(head=head.of(view, "iris nodes", len(items)), items=items[:LINES_MAX])


def _page_node(seen: NodeReading) -> PageNode:
    row = node_row(seen)
    return PageNode(
        id=seen.node.id,
        name=seen.node.name,
        address=seen.node.address,
        zone=seen.node.zone,
        state=seen.state,
        version=row.version,
        uptime_s=row.uptime_s,
        requests_per_s=row.requests_per_s,
        queued=row.queued,
        dropped_per_s=row.dropped_per_s,
        cpu=row.cpu,
        resident_bytes=row.resident_bytes,
        lateness_s=row.lateness_s,
        links=row.links,
        round_trip_s=row.round_trip_s,
    )


def _node(name: str, _readings: Readings, view: NetworkReading, head: _Head) -> NodePage:
    seen = next((each for each in view.seen if each.node.id == name), None)
    pair = None if seen is None else seen.pair
    figures = [] if pair is None else figures_of(pair)
    return NodePage(
        head=head.of(view, f"iris top --node {name[:8]}", len(figures)),
        node=None if seen is None else _page_node(seen),
        items=[PageFigure(name=each.name, text=each.text, change=each.change) for each in figures[:LINES_MAX]],
    )


def _links(_name: str, _readings: Readings, view: NetworkReading, head: _Head) -> LinksPage:
    rows = link_rows(view.pairs)
    items = [
        PageLink(
            node=row.node,
            peer=row.statistics.peer,
            address=row.statistics.address,
            is_congested=row.statistics.is_congested,
            round_trip_s=row.statistics.round_trip_s,
            received_per_s=row.received_per_s,
            sent_per_s=row.sent_per_s,
        )
        for row in rows[:LINES_MAX]
    ]
    return LinksPage(head=head.of(view, "iris topology", len(rows)), items=items)


def _clouds(_name: str, readings: Readings, view: NetworkReading, head: _Head) -> CloudsPage:
    lines = readings.clouds
    return CloudsPage(
        head=head.of(view, "iris federation status", len(lines)),
        items=lines[:LINES_MAX],
        findings=cloud_faults(lines)[:DETAILS_MAX],
    )


def _events(_name: str, readings: Readings, view: NetworkReading, head: _Head) -> EventsPage:
    events = readings.events
    return EventsPage(head=head.of(view, "iris monitor", len(events)), items=events[:LINES_MAX])


_MAKERS: Final[Mapping[str, Callable[[str, Readings, NetworkReading, _Head], Page]]] = {
    "overview": _overview,
    "clusters": _clusters,
    "cluster": _cluster,
    "topics": _topics,
    "topic": _topic,
    "nodes": _nodes,
    "node": _node,
    "links": _links,
    "clouds": _clouds,
    "events": _events,
}
