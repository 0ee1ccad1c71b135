"""The tables of `iris top`: their columns, their rows from the readings, and the filter and order of rows.

A place is one table: all clusters, the members of one cluster, all nodes, the numbers of one node, and so on. This module does
not draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from iris_py.logs import one_line
from iris_py.overview.caller_failures import word_of
from iris_py.overview.clouds import failed_text
from iris_py.overview.clusters import ClusterLine, MemberStatsLine, cluster_lines, members_text
from iris_py.overview.door_loads import DoorLoad
from iris_py.overview.figures import NodeFigure, figures_of
from iris_py.overview.generations import short_generations
from iris_py.overview.groups import GroupLine, group_lines, patterns_text
from iris_py.overview.load_sources import PublisherLine, TunnelsLine, publisher_lines, tunnels_lines
from iris_py.overview.pair import share_of
from iris_py.overview.readings import PARTS, EventSeen
from iris_py.overview.rows import (
    CloudRow,
    LinkRow,
    NodeRow,
    SubscriberRow,
    cloud_rows,
    link_rows,
    member_rows,
    node_row,
    subscriber_rows,
)
from iris_py.overview.topics import TopicLine, topic_lines, way_of
from iris_py.overview.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_py.overview.readings import Readings

__all__ = [
    "ROWS_MAX",
    "TABS",
    "Arranged",
    "Field",
    "Kind",
    "RowOrder",
    "Sheet",
    "TablePlace",
    "arrange",
    "next_place",
    "parts_of",
    "rows_of",
    "sheet_of",
]

#: Maximum number of rows in a table. Too small: scrolling misses rows; too large: a reading takes the processor for longer than
#: a key may wait.
ROWS_MAX: Final = 200
#: Digits of a node id that distinguish nodes for people.
ID_SHOWN: Final = 8

Kind: TypeAlias = Literal[
    "clusters",
    "members",
    "nodes",
    "node",
    "topics",
    "subscribers",
    "groups",
    "group",
    "links",
    "events",
    "publishers",
    "tunnels",
    "clouds",
    "doors",
]
#: The kinds of tables with a tab.
TABS: Final[tuple[Kind, ...]] = (
    "clusters",
    "nodes",
    "topics",
    "groups",
    "links",
    "events",
    "publishers",
    "tunnels",
    "clouds",
    "doors",
)
Row = TypeVar("Row")
#: The value by which a row is sorted. None comes last in both directions.
Value: TypeAlias = "str | float | None"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table of the screen: its kind, and the shown cluster, node or pattern."""

    kind: Kind
    name: str = ""
    """The cluster, node or pattern shown; empty for all."""
    alias: str = ""
    """For a cluster with a secret of its own: its name in the answers of nodes."""

    @property
    def title(self) -> str:
        """The title of the table as text."""
        shown = self.name[:ID_SHOWN] if self.kind == "node" else one_line(self.name)
        return f"{_TITLES[self.kind]} {shown}".rstrip()


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column of a table."""

    title: str
    width: int
    """Characters; for a flexible column, the minimum."""
    text: Callable[[Row], str]
    value: Callable[[Row], Value]
    is_number: bool = True
    """Whether the column is right-aligned, and sorted from the largest."""
    is_flexible: bool = False
    """Whether the column gets the remaining room."""
    is_wide: bool = False
    """Whether narrow terminals omit the column."""


@dataclass(frozen=True)
class Sheet(Generic[Row]):
    """The columns of a table, and the presentation of its rows."""

    fields: tuple[Field[Row], ...]
    key: Callable[[Row], str]
    """The key that identifies a row from reading to reading."""
    sort: str
    """The title of the first sorting column; empty for the original order."""
    mark: Callable[[Row], Literal["", "bad", "faint"]] = lambda row: ""
    """The emphasis of a row."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of a table's rows: by a column, ascending or descending."""

    title: str
    """The column; empty for the original order."""
    is_descending: bool = True


@dataclass(frozen=True)
class Arranged(Generic[Row]):
    """The rows of a table after filter, order and limit."""

    rows: Sequence[Row]
    """At most ``ROWS_MAX``."""
    matching: int
    """Number of rows that pass the filter."""
    total: int
    """Number of all rows."""


def arrange(sheet: Sheet[Row], rows: Iterable[Row], order: RowOrder, wanted: str) -> Arranged[Row]:
    """Filter and sort the rows of a table, and limit their number.

    Args:
        sheet: The columns.
        rows: All rows.
        order: The order. Rows with the same value keep their original order.
        wanted: The filter: a text that some cell of a row contains, ignoring case. Empty for all rows.
    """
    every = list(rows)
    words = wanted.casefold()
    kept = [row for row in every if any(words in each.text(row).casefold() for each in sheet.fields)] if words else every
    sorted_by = next((each for each in sheet.fields if each.title == order.title), None)
    if sorted_by is not None:
        value = sorted_by.value
        known = [row for row in kept if value(row) is not None]
        known.sort(key=lambda row: _sortable(value(row)), reverse=order.is_descending)
        kept = known + [row for row in kept if value(row) is None]
    return Arranged(kept[:ROWS_MAX], len(kept), len(every))


def _sortable(value: Value) -> tuple[float, str]:
    return (0.0, value.casefold()) if isinstance(value, str) else (value or 0.0, "")


def parts_of(place: TablePlace) -> tuple[str, ...]:
    """Return the statistics to request from all nodes while a table is shown; nodes send no further ones."""
    further: dict[Kind, str] = {
        "topics": "shares",
        "groups": "shares",
        "links": "peers",
        "events": "events",
        "publishers": "topics",
    }
    return (*PARTS, further[place.kind]) if place.kind in further else PARTS


def sheet_of(place: TablePlace) -> Sheet[Any]:
    """Return the columns of a table."""
    return _SHEETS[place.kind]


def rows_of(place: TablePlace, gathering: Readings) -> Sequence[Any]:
    """Return all rows of a table, without filter and order; empty before the first reading."""
    view = gathering.view
    if place.kind == "node":
        detail = gathering.detail
        return [] if detail is None or detail.node.id != place.name or detail.pair is None else figures_of(detail.pair)
    if place.kind == "events":
        return gathering.events
    if place.kind == "clouds":
        return cloud_rows(gathering)
    if place.kind == "doors":
        return gathering.doors.loads
    if view is None:
        return []
    if place.kind == "clusters":
        return cluster_lines(view.pairs, view.found, "name")
    if place.kind == "members":
        return member_rows(view.pairs, [name for name in (place.name, place.alias) if name])
    if place.kind == "nodes":
        return [node_row(seen) for seen in view.seen]
    if place.kind == "topics":
        return topic_lines(view.pairs, view.found, None, "pattern")
    if place.kind == "subscribers":
        return subscriber_rows(view.pairs, lambda each: each.pattern == place.name)
    if place.kind == "groups":
        return group_lines(view.pairs, share_of(view.pairs, view.found))
    if place.kind == "group":
        return subscriber_rows(view.pairs, lambda each: each.group == place.name)
    if place.kind == "publishers":
        return publisher_lines(view.pairs)
    if place.kind == "tunnels":
        return tunnels_lines(view.pairs)
    return link_rows(view.pairs)


def next_place(row: object) -> TablePlace | None:
    """Return the table to show when a row is selected; None if the row has none."""
    if isinstance(row, ClusterLine):
        return TablePlace("members", row.name)
    if isinstance(row, TopicLine):
        return TablePlace("subscribers", row.pattern)
    if isinstance(row, GroupLine):
        return TablePlace("group", row.name)
    if isinstance(row, NodeRow):
        return TablePlace("node", row.seen.node.id)
    if isinstance(row, MemberStatsLine | PublisherLine):
        return TablePlace("node", row.id)
    if isinstance(row, DoorLoad):
        return TablePlace("node", row.node)
    if isinstance(row, TunnelsLine):
        return TablePlace("node", row.holder)
    if isinstance(row, SubscriberRow | LinkRow):
        return TablePlace("node", row.node)
    if isinstance(row, EventSeen):
        return TablePlace("node", row.teller)
    if isinstance(row, CloudRow):
        return TablePlace("node", row.line.gateway)
    return None


def _count(number: float | None) -> str:
    return "" if number is None else format_count(number)


def _rate(bytes_per_s: float | None) -> str:
    return "" if bytes_per_s is None else format_bytes(bytes_per_s)


def _error(row: ClusterLine) -> str:
    return "no members" if row.is_unserved and not row.error else word_of(row.error)


def _state(row: NodeRow) -> str:
    return format_seconds(row.uptime_s) if row.seen.state == "answers" else row.seen.state.upper()


def _secret(row: NodeRow) -> str:
    if row.seen.pair is None:
        return ""
    security = row.seen.pair.last.statistics.security
    return one_line(short_generations(security.primary, security.accepted))


def _door_state(row: DoorLoad) -> str:
    return "CLOSING" if row.door.is_draining else "open"


def _moment(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "?"


#: Events that need attention, as opposed to normal arrivals and departures.
_BAD: Final = frozenset({"died", "link_lost", "refused", "dropped", "stalled", "topics_differ"})
_TITLES: Final[dict[Kind, str]] = {
    "clusters": "Clusters",
    "members": "Members of",
    "nodes": "Nodes",
    "node": "Node",
    "topics": "Topics",
    "subscribers": "Subscriptions to",
    "groups": "Groups",
    "group": "Subscriptions in the group",
    "links": "Links",
    "events": "Events",
    "publishers": "Publishers",
    "tunnels": "Tunnels",
    "clouds": "Clouds",
    "doors": "Doors",
}

_CLUSTERS: Final = Sheet[ClusterLine](
    fields=(
        Field("cluster", 14, lambda row: one_line(row.name), lambda row: row.name, is_number=False, is_flexible=True),
        Field("members", 9, members_text, lambda row: row.members),
        Field("req/s", 8, lambda row: format_count(row.requests_per_s), lambda row: row.requests_per_s),
        Field("errors/s", 10, lambda row: format_count(row.errors_per_s), lambda row: row.errors_per_s),
        Field("error", 14, _error, _error, is_number=False),
        Field("failed/s", 10, lambda row: format_count(row.failed_per_s), lambda row: row.failed_per_s, is_wide=True),
        Field("waiting", 9, lambda row: format_count(row.waiting), lambda row: row.waiting, is_wide=True),
        Field("running", 9, lambda row: format_count(row.running), lambda row: row.running, is_wide=True),
        Field("queued", 8, lambda row: format_count(row.queued), lambda row: row.queued),
        Field("rejected", 10, lambda row: format_count(row.rejected), lambda row: row.rejected, is_wide=True),
        Field("p99", 9, lambda row: format_seconds(row.p99_s), lambda row: row.p99_s),
    ),
    key=lambda row: row.name,
    sort="req/s",
    mark=lambda row: (
        "bad"
        if row.failed_per_s or row.errors_per_s or row.is_unserved
        else "faint"
        if not row.members and not row.requests_per_s
        else ""
    ),
)
_MEMBERS: Final = Sheet[MemberStatsLine](
    fields=(
        Field("member", 9, lambda row: row.id[:ID_SHOWN], lambda row: row.id, is_number=False),
        Field("name", 16, lambda row: row.name, lambda row: row.name, is_number=False, is_flexible=True, is_wide=True),
        Field("address", 22, lambda row: one_line(row.address), lambda row: row.address, is_number=False, is_flexible=True),
        Field("zone", 10, lambda row: one_line(row.zone), lambda row: row.zone, is_number=False, is_wide=True),
        Field("req/s", 9, lambda row: format_count(row.requests_per_s), lambda row: row.requests_per_s),
        Field("queued", 8, lambda row: format_count(row.queued), lambda row: row.queued),
        Field("running", 10, lambda row: f"{row.running}/{row.concurrency}", lambda row: row.running),
        Field("p99", 9, lambda row: format_seconds(row.p99_s), lambda row: row.p99_s),
        Field("failed", 9, lambda row: format_count(row.failed), lambda row: row.failed),
        Field("rejected", 10, lambda row: format_count(row.rejected), lambda row: row.rejected, is_wide=True),
        Field("weight", 8, lambda row: f"{row.weight:g}", lambda row: row.weight, is_wide=True),
    ),
    key=lambda row: row.id,
    sort="req/s",
)
_NODES: Final = Sheet[NodeRow](
    fields=(
        Field("node", 9, lambda row: row.seen.node.id[:ID_SHOWN], lambda row: row.seen.node.id, is_number=False),
        Field(
            "name",
            16,
            lambda row: row.seen.node.name,
            lambda row: row.seen.node.name,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field(
            "address",
            17,
            lambda row: one_line(row.seen.node.address),
            lambda row: row.seen.node.address,
            is_number=False,
            is_flexible=True,
        ),
        Field(
            "zone",
            12,
            lambda row: one_line(row.seen.node.zone),
            lambda row: row.seen.node.zone,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field("version", 9, lambda row: one_line(row.version), lambda row: row.version, is_number=False, is_wide=True),
        Field("secret", 12, _secret, _secret, is_number=False, is_wide=True),
        Field("req/s", 10, lambda row: _count(row.requests_per_s), lambda row: row.requests_per_s),
        Field("queued", 8, lambda row: format_count(row.queued), lambda row: row.queued),
        Field("drops/s", 9, lambda row: _count(row.dropped_per_s), lambda row: row.dropped_per_s),
        Field("links", 7, lambda row: str(row.links), lambda row: row.links, is_wide=True),
        Field("cpu", 7, lambda row: "" if row.cpu is None else f"{row.cpu:.1%}", lambda row: row.cpu),
        Field("memory", 9, lambda row: format_bytes(row.resident_bytes), lambda row: row.resident_bytes),
        Field("loop late", 11, lambda row: format_seconds(row.lateness_s), lambda row: row.lateness_s, is_wide=True),
        Field("round trip", 12, lambda row: format_seconds(row.round_trip_s), lambda row: row.round_trip_s, is_wide=True),
        Field("up", 9, _state, lambda row: row.uptime_s if row.seen.state == "answers" else -1.0),
    ),
    key=lambda row: row.seen.node.id,
    sort="req/s",
    mark=lambda row: "" if row.seen.state == "answers" else "faint" if row.seen.state == "refuses" else "bad",
)
_FIGURES: Final = Sheet[NodeFigure](
    fields=(
        Field("number", 30, lambda row: one_line(row.name), lambda row: row.name, is_number=False, is_flexible=True),
        Field("now", 22, lambda row: one_line(row.text), lambda row: row.value),
        Field("change/s", 14, lambda row: row.change, lambda row: row.per_s),
    ),
    key=lambda row: row.name,
    sort="",
)
_TOPICS: Final = Sheet[TopicLine](
    fields=(
        Field("pattern", 16, lambda row: one_line(row.pattern), lambda row: row.pattern, is_number=False, is_flexible=True),
        Field("subscriptions", 15, lambda row: format_count(row.subscriptions), lambda row: row.subscriptions),
        Field("messages/s", 12, lambda row: format_count(row.delivered_per_s), lambda row: row.delivered_per_s),
        Field("dropped", 12, lambda row: format_count(row.dropped), lambda row: row.dropped),
        Field("queued", 10, lambda row: format_count(row.queued), lambda row: row.queued),
        Field("oldest", 10, lambda row: format_seconds(row.oldest_s) if row.oldest_s else "", lambda row: row.oldest_s),
        Field("way", 10, way_of, way_of, is_number=False, is_wide=True),
    ),
    key=lambda row: row.pattern,
    sort="messages/s",
    mark=lambda row: "bad" if row.dropped else "",
)
_GROUPS: Final = Sheet[GroupLine](
    fields=(
        Field("group", 14, lambda row: one_line(row.name), lambda row: row.name, is_number=False, is_flexible=True),
        Field(
            "patterns",
            16,
            lambda row: one_line(patterns_text(row)),
            patterns_text,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field("members", 9, lambda row: format_count(row.members), lambda row: row.members),
        Field("publishers", 12, lambda row: format_count(row.publishers), lambda row: row.publishers, is_wide=True),
        Field("given/s", 10, lambda row: format_count(row.given_per_s), lambda row: row.given_per_s),
        Field("given", 11, lambda row: format_count(row.given), lambda row: row.given, is_wide=True),
        Field("taken", 11, lambda row: format_count(row.taken), lambda row: row.taken),
        Field("outstanding", 13, lambda row: format_count(row.outstanding), lambda row: row.outstanding),
        Field("lost", 8, lambda row: format_count(row.lost), lambda row: row.lost),
        Field("full", 8, lambda row: format_count(row.full), lambda row: row.full),
    ),
    key=lambda row: row.name,
    sort="given/s",
    mark=lambda row: "bad" if row.lost else "",
)


def _subscriber_sheet(other: Field[SubscriberRow]) -> Sheet[SubscriberRow]:
    """Return a table of subscriptions, with a column for the property that the rows do not have in common."""
    return Sheet[SubscriberRow](
        fields=(
            Field("node", 9, lambda row: row.node[:ID_SHOWN], lambda row: row.node, is_number=False),
            Field("address", 20, lambda row: one_line(row.address), lambda row: row.address, is_number=False, is_flexible=True),
            Field("zone", 8, lambda row: one_line(row.zone), lambda row: row.zone, is_number=False, is_wide=True),
            other,
            Field(
                "policy",
                12,
                lambda row: one_line(row.statistics.policy),
                lambda row: row.statistics.policy,
                is_number=False,
                is_wide=True,
            ),
            Field("messages/s", 12, lambda row: format_count(row.messages_per_s), lambda row: row.messages_per_s),
            Field(
                "dropped",
                11,
                lambda row: format_count(sum(row.statistics.dropped.values())),
                lambda row: sum(row.statistics.dropped.values()),
            ),
            Field(
                "queued",
                9,
                lambda row: format_count(row.statistics.queued_messages),
                lambda row: row.statistics.queued_messages,
            ),
            Field("of", 8, lambda row: format_count(row.statistics.queue_messages), lambda row: row.statistics.queue_messages),
            Field(
                "oldest",
                9,
                lambda row: format_seconds(row.statistics.oldest_s) if row.statistics.oldest_s else "",
                lambda row: row.statistics.oldest_s,
            ),
        ),
        key=lambda row: f"{row.node} {row.number}",
        sort="messages/s",
        mark=lambda row: "bad" if row.statistics.dropped else "",
    )


_SUBSCRIBERS: Final = _subscriber_sheet(
    Field(
        "group", 10, lambda row: one_line(row.statistics.group), lambda row: row.statistics.group, is_number=False, is_wide=True
    )
)
_GROUP_SUBSCRIBERS: Final = _subscriber_sheet(
    Field(
        "pattern",
        12,
        lambda row: one_line(row.statistics.pattern),
        lambda row: row.statistics.pattern,
        is_number=False,
        is_flexible=True,
        is_wide=True,
    )
)
_LINKS: Final = Sheet[LinkRow](
    fields=(
        Field("node", 9, lambda row: row.node[:ID_SHOWN], lambda row: row.node, is_number=False),
        Field(
            "address",
            17,
            lambda row: one_line(row.address),
            lambda row: row.address,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field("peer", 9, lambda row: row.statistics.peer[:ID_SHOWN], lambda row: row.statistics.peer, is_number=False),
        Field(
            "peer name",
            16,
            lambda row: one_line(row.statistics.name),
            lambda row: row.statistics.name,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field(
            "peer address",
            17,
            lambda row: one_line(row.statistics.address),
            lambda row: row.statistics.address,
            is_number=False,
            is_flexible=True,
        ),
        Field(
            "peer zone",
            12,
            lambda row: one_line(row.statistics.zone),
            lambda row: row.statistics.zone,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field("in/s", 10, lambda row: _rate(row.received_per_s), lambda row: row.received_per_s),
        Field("out/s", 10, lambda row: _rate(row.sent_per_s), lambda row: row.sent_per_s),
        Field("queued", 9, lambda row: format_bytes(row.statistics.queued_bytes), lambda row: row.statistics.queued_bytes),
        Field("awaited", 9, lambda row: format_count(row.statistics.awaited), lambda row: row.statistics.awaited, is_wide=True),
        Field("ping", 8, lambda row: format_seconds(row.statistics.round_trip_s), lambda row: row.statistics.round_trip_s),
    ),
    key=lambda row: f"{row.node} {row.statistics.peer}",
    sort="out/s",
    mark=lambda row: "bad" if row.statistics.is_congested else "",
)
_EVENTS: Final = Sheet[EventSeen](
    fields=(
        Field("time", 9, lambda row: _moment(row.unix_s), lambda row: row.unix_s),
        Field("at", 9, lambda row: row.teller[:ID_SHOWN], lambda row: row.teller, is_number=False),
        Field("event", 12, lambda row: one_line(row.kind), lambda row: row.kind, is_number=False),
        Field("about", 9, lambda row: one_line(row.node[:ID_SHOWN]), lambda row: row.node, is_number=False),
        Field("name", 12, lambda row: one_line(row.name), lambda row: row.name, is_number=False, is_flexible=True),
        Field("detail", 12, lambda row: one_line(row.detail), lambda row: row.detail, is_number=False, is_flexible=True),
        Field("times", 7, lambda row: format_count(row.times), lambda row: row.times),
    ),
    key=lambda row: f"{row.teller} {row.number}",
    sort="time",
    mark=lambda row: "bad" if row.kind in _BAD else "",
)
_PUBLISHERS: Final = Sheet[PublisherLine](
    fields=(
        Field("node", 9, lambda row: row.id[:ID_SHOWN], lambda row: row.id, is_number=False),
        Field(
            "name", 16, lambda row: one_line(row.name), lambda row: row.name, is_number=False, is_flexible=True, is_wide=True
        ),
        Field("address", 20, lambda row: one_line(row.address), lambda row: row.address, is_number=False, is_flexible=True),
        Field("topic", 14, lambda row: one_line(row.topic), lambda row: row.topic, is_number=False, is_flexible=True),
        Field("published/s", 13, lambda row: format_count(row.published_per_s), lambda row: row.published_per_s),
        Field("published", 12, lambda row: format_count(row.published), lambda row: row.published),
        Field("pauses", 9, lambda row: format_count(row.pauses), lambda row: row.pauses),
    ),
    key=lambda row: f"{row.id} {row.topic}",
    sort="published/s",
)
_TUNNELS: Final = Sheet[TunnelsLine](
    fields=(
        Field("cluster", 12, lambda row: one_line(row.cluster), lambda row: row.cluster, is_number=False, is_flexible=True),
        Field("member", 9, lambda row: row.member[:ID_SHOWN], lambda row: row.member, is_number=False),
        Field(
            "member address",
            20,
            lambda row: one_line(row.member_address),
            lambda row: row.member_address,
            is_number=False,
            is_wide=True,
        ),
        Field("held by", 9, lambda row: one_line(row.holder[:ID_SHOWN]), lambda row: row.holder, is_number=False),
        Field(
            "name",
            16,
            lambda row: one_line(row.holder_name),
            lambda row: row.holder_name,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
        Field(
            "address",
            20,
            lambda row: one_line(row.holder_address),
            lambda row: row.holder_address,
            is_number=False,
            is_flexible=True,
        ),
        Field("tunnels", 9, lambda row: format_count(row.tunnels), lambda row: row.tunnels),
        Field("open", 8, lambda row: format_count(row.open), lambda row: row.open),
        Field("of", 8, lambda row: format_count(row.max), lambda row: row.max),
    ),
    key=lambda row: f"{row.cluster} {row.member} {row.holder}",
    sort="tunnels",
    mark=lambda row: "bad" if 0 < row.max <= row.open else "",
)
_CLOUDS: Final = Sheet[CloudRow](
    fields=(
        Field("cloud", 8, lambda row: one_line(row.line.cloud), lambda row: row.line.cloud, is_number=False, is_flexible=True),
        Field("state", 7, lambda row: "up" if row.line.is_up else "DOWN", lambda row: row.line.is_up, is_number=False),
        Field("gateway", 9, lambda row: one_line(row.line.gateway[:ID_SHOWN]), lambda row: row.line.gateway, is_number=False),
        Field("address", 16, lambda row: one_line(row.address), lambda row: row.address, is_number=False, is_flexible=True),
        Field("lines", 7, lambda row: str(row.line.lines), lambda row: row.line.lines),
        Field("round trip", 12, lambda row: format_seconds(row.line.round_trip_s), lambda row: row.line.round_trip_s),
        Field(
            "failed",
            18,
            lambda row: failed_text(row.line),
            lambda row: sum(row.line.failed.values()),
            is_number=False,
            is_flexible=True,
        ),
        Field(
            "trouble",
            30,
            lambda row: one_line(row.line.trouble),
            lambda row: row.line.trouble,
            is_number=False,
            is_flexible=True,
            is_wide=True,
        ),
    ),
    key=lambda row: f"{row.line.cloud} {row.line.gateway}",
    sort="",
    mark=lambda row: "" if row.line.is_up else "bad",
)
_DOORS: Final = Sheet[DoorLoad](
    fields=(
        Field("door", 9, lambda row: row.node[:ID_SHOWN], lambda row: row.node, is_number=False),
        Field("kind", 6, lambda row: one_line(row.door.kind), lambda row: row.door.kind, is_number=False),
        Field(
            "address",
            14,
            lambda row: one_line(row.door.address),
            lambda row: row.door.address,
            is_number=False,
            is_flexible=True,
        ),
        Field(
            "version", 9, lambda row: one_line(row.door.version), lambda row: row.door.version, is_number=False, is_wide=True
        ),
        Field("clients", 9, lambda row: format_count(row.figures.clients), lambda row: row.figures.clients),
        Field(
            "subscriptions",
            15,
            lambda row: format_count(row.figures.subscriptions),
            lambda row: row.figures.subscriptions,
            is_wide=True,
        ),
        Field("in/s", 7, lambda row: _count(row.in_per_s), lambda row: row.in_per_s),
        Field("out/s", 7, lambda row: _count(row.out_per_s), lambda row: row.out_per_s),
        Field("refused", 9, lambda row: format_count(row.figures.refused), lambda row: row.figures.refused),
        Field("ended", 8, lambda row: format_count(row.figures.ended), lambda row: row.figures.ended),
        Field("lost", 8, lambda row: format_count(row.figures.dropped), lambda row: row.figures.dropped, is_wide=True),
        Field("waiting", 9, lambda row: format_bytes(row.figures.waiting_bytes), lambda row: row.figures.waiting_bytes),
        Field("state", 9, _door_state, _door_state, is_number=False, is_wide=True),
    ),
    key=lambda row: row.door.id,
    sort="clients",
    mark=lambda row: "faint" if row.door.is_draining else "bad" if row.lost_per_s else "",
)
_SHEETS: Final[dict[Kind, Sheet[Any]]] = {
    "clusters": _CLUSTERS,
    "members": _MEMBERS,
    "nodes": _NODES,
    "node": _FIGURES,
    "topics": _TOPICS,
    "subscribers": _SUBSCRIBERS,
    "groups": _GROUPS,
    "group": _GROUP_SUBSCRIBERS,
    "links": _LINKS,
    "events": _EVENTS,
    "publishers": _PUBLISHERS,
    "tunnels": _TUNNELS,
    "clouds": _CLOUDS,
    "doors": _DOORS,
}
