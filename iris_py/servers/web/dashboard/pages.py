"""The pages of the dashboard, made from the readings of the network. Items are the objects that commands print as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from iris_py.overview.caller_failures import FailureLine, failure_lines, say_rates, unserved_clusters
from iris_py.overview.clouds import CloudLine, GatewayLine, cloud_faults
from iris_py.overview.clusters import ClusterLine, MemberStatsLine, cluster_lines
from iris_py.overview.figures import figures_of
from iris_py.overview.nodes import generations_differ, node_line
from iris_py.overview.pair import share_of
from iris_py.overview.readings import PARTS, EventSeen
from iris_py.overview.rows import link_rows, member_rows, node_row, subscriber_rows
from iris_py.overview.slowness import SlowLine, say_slow, slow_lines
from iris_py.overview.topic_table import TableLine, TokenLine, say_table, say_versions, table_line, token_lines
from iris_py.overview.topics import TopicLine, topic_lines
from iris_py.overview.totals import TotalsLine, totals_of
from iris_py.servers.web.dashboard.page_head import DETAILS_MAX, LINES_MAX, HeadMaker, PageHead, PageName
from iris_py.servers.web.dashboard.ring_page import make_ring_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from iris_py.overview.readings import NodeReading, Readings
    from iris_py.servers.web.dashboard.door_page import DoorMonitor, DoorPage
    from iris_py.servers.web.dashboard.findings_page import Examinations, FindingsPage
    from iris_py.servers.web.dashboard.ring_page import RingPage

__all__ = ["PageSources", "make_page", "statistics_for"]

#: The statistics that a kind of page needs besides those of all pages.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topics",),
    "links": ("peers",),
    "ring": ("peers",),
    "events": ("events",),
    "overview": ("events",),
}


#: Any page.
Page: TypeAlias = (
    "OverviewPage | ClustersPage | ClusterPage | TopicsPage | TopicPage | NodesPage | NodePage | LinksPage | RingPage |"
    " CloudsPage | EventsPage | FindingsPage | DoorPage"
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
    names: dict[str, str]
    """The labels of the nodes in the events, by node id."""


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
    name: str
    """The label of the node; empty without one."""
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
    node_name: str
    """The label of the node; empty without one."""
    peer: str
    peer_name: str
    """The label of the peer; empty without one, or if the peer has not answered."""
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
    gateways: list[GatewayLine]
    """The gateways of this cloud, with all that they report."""
    names: dict[str, str]
    """The labels of the gateways, by node id."""
    findings: list[str]
    """Faults, as sentences."""


class EventsPage(msgspec.Struct, kw_only=True):
    """The last events, the newest first."""

    head: PageHead

    items: list[EventSeen]
    names: dict[str, str]
    """The labels of the nodes in the events, by node id."""


def statistics_for(kinds: set[str]) -> tuple[str, ...]:
    """Return the statistics to request from all nodes while some kinds of pages are shown."""
    further = {part for kind in kinds for part in _PARTS.get(kind, ())}
    return (*PARTS, *sorted(further))


class PageSources(NamedTuple):
    """The sources of all pages."""

    readings: Readings
    examinations: Examinations
    door: DoorMonitor
    gateways: Sequence[GatewayLine]
    """The last answers of the gateways of this cloud."""
    network: str
    """The name of the network."""


def make_page(page: PageName, sources: PageSources, unix_s: float, now: float) -> Page | None:
    """Return a page; None before the first reading with rates.

    Args:
        page: The page.
        sources: The sources.
        unix_s: The time of the last reading, in seconds since 1970.
        now: The time (seconds).
    """
    view = sources.readings.view
    if view is None:
        return None
    head = HeadMaker(page, sources.network, unix_s, view)
    if page.kind == "findings":
        return sources.examinations.page(head, now)
    if page.kind == "door":
        return sources.door.page(head, now)
    return _MAKERS[page.kind](sources, head)


def _overview(sources: PageSources, head: HeadMaker) -> OverviewPage:
    pairs, found = head.view.pairs, head.view.found
    failures = failure_lines(pairs, share_of(pairs, found))
    slow = slow_lines(pairs)
    findings = [
        *say_rates([line for line in failures if line.per_s], unserved_clusters(pairs)),
        *say_slow(slow),
        *cloud_faults(sources.readings.clouds),
        *(
            text
            for text in (generations_differ([node_line(each) for each in found.reports]), say_versions(found.reports))
            if text
        ),
    ]
    clusters = cluster_lines(pairs, found, "requests_per_s")
    events = sources.readings.events[:DETAILS_MAX]
    return OverviewPage(
        head=head.head(len(clusters)),
        totals=totals_of(pairs, found),
        clusters=clusters[:LINES_MAX],
        failures=[line for line in failures if line.per_s][:DETAILS_MAX],
        slow=slow[:DETAILS_MAX],
        clouds=sources.readings.clouds[:DETAILS_MAX],
        findings=findings[:DETAILS_MAX],
        events=events,
        names=_names_of_events(head, events),
    )


def _clusters(_sources: PageSources, head: HeadMaker) -> ClustersPage:
    lines = cluster_lines(head.view.pairs, head.view.found, "requests_per_s")
    return ClustersPage(head=head.head(len(lines)), items=lines[:LINES_MAX])


def _cluster(_sources: PageSources, head: HeadMaker) -> ClusterPage:
    name = head.page.name
    pairs, found = head.view.pairs, head.view.found
    line = next((line for line in cluster_lines(pairs, found, "name") if line.name == name), None)
    slow = [each for each in slow_lines(pairs) if each.cluster == name]
    failures = [each for each in failure_lines(pairs, share_of(pairs, found), [name]) if each.per_s]
    unserved = {each: count for each, count in unserved_clusters(pairs).items() if each == name}
    members = sorted(member_rows(pairs, [name]), key=lambda member: (member.zone, member.address, member.id))
    return ClusterPage(
        head=head.head(len(members)),
        cluster=line,
        items=members[:LINES_MAX],
        slow=slow[:DETAILS_MAX],
        findings=[*say_rates(failures, unserved), *say_slow(slow)][:DETAILS_MAX],
    )


def _topics(_sources: PageSources, head: HeadMaker) -> TopicsPage:
    pairs, found = head.view.pairs, head.view.found
    share = share_of(pairs, found)
    lines, table = topic_lines(pairs, found, None, "delivered_per_s"), table_line(pairs, share)
    return TopicsPage(
        head=head.head(len(lines)),
        items=lines[:LINES_MAX],
        tokens=token_lines(pairs, share)[:LINES_MAX],
        table=table,
        notes=say_table(table, pairs)[:DETAILS_MAX],
    )


def _topic(_sources: PageSources, head: HeadMaker) -> TopicPage:
    name = head.page.name
    names = _names_of(head)
    line = next((line for line in topic_lines(head.view.pairs, head.view.found, None, "pattern") if line.pattern == name), None)
    items = [
        PageSubscriber(
            node=row.node,
            name=names.get(row.node, ""),
            address=row.address,
            zone=row.zone,
            messages_per_s=row.messages_per_s,
            queued=row.statistics.queued_messages,
            dropped=sum(row.statistics.dropped.values()),
        )
        for row in subscriber_rows(head.view.pairs, lambda each: each.pattern == name)
    ]
    return TopicPage(head=head.head(len(items)), topic=line, items=items[:LINES_MAX])


def _nodes(sources: PageSources, head: HeadMaker) -> NodesPage:
    doctor_id = sources.examinations.node_id
    seen = [each for each in head.view.seen if each.state != "gone" or each.node.id != doctor_id]
    items = sorted(map(_page_node, seen), key=lambda item: (item.zone, item.address, item.id))
    return NodesPage(head=head.head(len(items)), items=items[:LINES_MAX])


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


def _node(_sources: PageSources, head: HeadMaker) -> NodePage:
    name = head.page.name
    seen = next((each for each in head.view.seen if each.node.id == name), None)
    pair = None if seen is None else seen.pair
    figures = [] if pair is None else figures_of(pair)
    return NodePage(
        head=head.head(len(figures)),
        node=None if seen is None else _page_node(seen),
        items=[PageFigure(name=each.name, text=each.text, change=each.change) for each in figures[:LINES_MAX]],
    )


def _links(_sources: PageSources, head: HeadMaker) -> LinksPage:
    rows, names = link_rows(head.view.pairs), _names_of(head)
    items = [
        PageLink(
            node=row.node,
            node_name=names.get(row.node, ""),
            peer=row.statistics.peer,
            peer_name=names.get(row.statistics.peer, ""),
            address=row.statistics.address,
            is_congested=row.statistics.is_congested,
            round_trip_s=row.statistics.round_trip_s,
            received_per_s=row.received_per_s,
            sent_per_s=row.sent_per_s,
        )
        for row in rows[:LINES_MAX]
    ]
    return LinksPage(head=head.head(len(rows)), items=items)


def _clouds(sources: PageSources, head: HeadMaker) -> CloudsPage:
    lines = sources.readings.clouds
    return CloudsPage(
        head=head.head(len(lines)),
        items=lines[:LINES_MAX],
        gateways=list(sources.gateways[:DETAILS_MAX]),
        names=_names_of(head, [gateway.node for gateway in sources.gateways]),
        findings=cloud_faults(lines)[:DETAILS_MAX],
    )


def _events(sources: PageSources, head: HeadMaker) -> EventsPage:
    events = sources.readings.events
    shown = events[:LINES_MAX]
    return EventsPage(head=head.head(len(events)), items=shown, names=_names_of_events(head, shown))


def _ring(_sources: PageSources, head: HeadMaker) -> RingPage:
    return make_ring_page(head)


def _names_of(head: HeadMaker, ids: Iterable[str] | None = None) -> dict[str, str]:
    """Return the labels of nodes, by id, without nodes that have none.

    Args:
        head: The head of the page.
        ids: The nodes; None for all.
    """
    names = {seen.node.id: seen.node.name for seen in head.view.seen if seen.node.name}
    return names if ids is None else {each: names[each] for each in ids if each in names}


def _names_of_events(head: HeadMaker, events: Sequence[EventSeen]) -> dict[str, str]:
    return _names_of(head, {node for event in events for node in (event.node, event.teller)})


_MAKERS: Final[Mapping[str, Callable[[PageSources, HeadMaker], Page]]] = {
    "overview": _overview,
    "clusters": _clusters,
    "cluster": _cluster,
    "topics": _topics,
    "topic": _topic,
    "nodes": _nodes,
    "node": _node,
    "links": _links,
    "ring": _ring,
    "clouds": _clouds,
    "events": _events,
}
