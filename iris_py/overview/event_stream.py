"""For `iris monitor`: follows the events of many nodes. Reads each node from its last known event, and merges all in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.defaults import NODES_SAMPLED
from iris_py.json_lines import Line
from iris_py.observe.journal import EVENTS_MAX
from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from iris_py.observe.journal import EventRecord
    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = ["DeathLine", "EventLine", "Following", "GapLine", "NodeChangeLine", "event_lines"]

#: Number of consecutive unanswered queries after which a node is given up. Too small: a busy node seems to be gone; too large:
#: departed nodes are queried for long.
MISSES_MAX: Final = 3
#: Maximum number of departed nodes whose last event number is remembered. A forgotten node that returns repeats its events.
GONE_MAX: Final = 4096

#: The changes of a watched node.
Change = Literal["found", "back", "restarted", "silent", "gone", "closed"]


class EventLine(Line, tag="event", kw_only=True):
    """An event, as a node recorded it."""

    time: datetime
    """Time of the event, by the clock of this machine, in UTC; its error is at most the round trip of the node's answer."""
    id: str
    """The id of the reporting node."""
    address: str
    """The address of the reporting node."""
    zone: str
    """The zone of the reporting node."""
    id_name: str
    """The label of the reporting node; empty if it has none."""
    number: int
    """The number of the event at the reporting node."""
    event: str
    """The kind of event: `joined`, `left`, `suspected`, `died`, `link_opened` ..."""
    node: str
    """The id of the node concerned; empty if that is the reporting node or unknown."""
    node_name: str
    """The label of the node concerned; empty if unknown."""
    node_address: str
    """The `host:port` of the node concerned; empty if unknown."""
    node_zone: str
    """The zone of the node concerned."""
    name: str
    """The cluster or topic concerned; `#` and a group id for a cluster with its own secret."""
    detail: str
    """The reason, as text."""
    times: int
    """Number of occurrences since the previous report: continuing events are recorded every 10 seconds."""


class DeathLine(Line, tag="death", kw_only=True):
    """A dead node, by the reports of all watched nodes; with `--raw`, all events have separate lines instead."""

    time: datetime
    """Time of the first of these events, in UTC."""
    node: str
    """The id of the dead node."""
    node_name: str
    """The label of the dead node; empty if unknown."""
    node_address: str
    """The `host:port` on which the node listened; empty if unknown."""
    node_zone: str
    """The zone of the node."""
    said_by: int
    """Number of watched nodes that report the death."""
    watched: int
    """Number of watched nodes. Not every node has contact with every other."""
    links_lost: int
    """Number of watched nodes that lost a link to the dead node."""
    clusters: list[str]
    """The clusters that lost the node as a member, if a watched node used them."""
    detail: str
    """The reason, as text."""


class GapLine(Line, tag="gap", kw_only=True):
    """A gap in a node's events, overwritten by the node before they were read."""

    time: datetime
    """Time of the first event after the gap, in UTC."""
    id: str
    """The node id."""
    address: str
    """The address of the node."""
    missed: int | None
    """Number of lost events; None if their number in the requested time is unknown."""


class NodeChangeLine(Line, tag="node", kw_only=True):
    """A change of a watched node, noticed by this command; not an event of the node."""

    time: datetime
    """Time of the change, in UTC."""
    id: str
    """The node id."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    zone: str
    """The zone of the node."""
    change: Change
    """`found`: new since the start; `silent`: does not answer; `back`: answers again; `gone`: given up; `restarted`: its event
    numbers begin anew; `closed`: reports no events, by its settings, under too many queries, or in an older version.
    """


#: An event: time, id of the recording node, number there, and line to print.
_Entry: TypeAlias = tuple[float, str, int, EventLine | GapLine]


@dataclass(slots=True)
class WatchedNode:
    """A watched node, and how far its events have been read.

    Attributes:
        node: The name of the node.
        last: The number of the last event read.
        last_at: The time of that event.
        now_s: The age of the node at its last answer (seconds).
        is_unread: Whether no event was read yet; then overwritten events are not missed.
        misses: Number of consecutive unanswered queries.
        is_resting: Whether the node is not read until the next search for nodes, because a silent node would delay all others.
        is_closed: Whether the change `closed` was reported.
    """

    node: NodeName
    last: int = 0
    last_at: float = -inf
    now_s: float = -inf
    is_unread: bool = True
    misses: int = 0
    is_resting: bool = False
    is_closed: bool = False


class Following:
    """Turns the answers of nodes into lines about their events.

    Args:
        kinds: The kinds of events to report; empty for all.
        since_unix_s: Start of the reported time, in seconds since 1970; ``-inf`` for all events that nodes keep.
        begin: The number of the event after which the first nodes are read; None to begin with new events. Nodes found
            later are read from their first event.
        sample: Maximum number of nodes watched in a large network.

    Attributes:
        watched: The watched nodes, by id.
    """

    def __init__(
        self, *, kinds: Collection[str] = (), since_unix_s: float, begin: int | None, sample: int = NODES_SAMPLED
    ) -> None:
        self.watched: dict[str, WatchedNode] = {}
        self._kinds = frozenset(kinds)
        self._since_unix_s = since_unix_s
        self._begin = begin
        self._sample = sample
        self._has_found = False
        self._gone: dict[str, WatchedNode] = {}
        self._read: list[_Entry] = []
        self._held: list[_Entry] = []

    def name_of(self, id_: str) -> NodeName:
        """Return the name of a node that is or was watched; for any other node only the id."""
        known = self.watched.get(id_) or self._gone.get(id_)
        return NodeName(id_) if known is None else known.node

    def due(self) -> list[NodeName]:
        """Return the nodes to be read now: all watched nodes except silent and closed ones."""
        return [each.node for each in self.watched.values() if not each.is_resting]

    def numbers(self) -> dict[str, int]:
        """Return the number of the last event read from each watched node, by node id."""
        return {id_: each.last for id_, each in self.watched.items()}

    def find(self, found: NodeReports, now_unix_s: float) -> list[NodeChangeLine]:
        """Update the watched nodes by a search for nodes; return the changes of nodes, none for the first search.

        Args:
            found: The answers, without parts.
            now_unix_s: The time.
        """
        changes: list[NodeChangeLine] = []
        watched_max = self._sample if found.is_sample else inf
        for known in self.watched.values():
            known.is_resting = False
        for report in found.reports:
            each, is_back = self.watched.get(report.node.id), False
            if each is None and len(self.watched) < watched_max:
                each = self._gone.pop(report.node.id, None)
                is_back = each is not None
                each = self.watched[report.node.id] = each or self._meet(report)
                if self._has_found and not is_back:
                    changes.append(_change(each, "found", now_unix_s))
            if each is not None:
                if is_back or each.misses:
                    changes.append(_change(each, "back", now_unix_s))
                each.misses, each.node = 0, report.node
        for node in found.refused:
            if node.id in self.watched or len(self.watched) < watched_max:
                self._close(self.watched.setdefault(node.id, WatchedNode(node)), now_unix_s, changes)
        is_everybody = not found.is_sample and found.is_whole
        told = {node.id for node in (*found.missing, *found.refused)} | {report.node.id for report in found.reports}
        for known in self.watched.values():
            if known.misses and is_everybody and known.node.id not in told:
                known.misses = MISSES_MAX
        self._miss(found.missing, now_unix_s, changes)
        self._has_found = True
        return changes

    def read(self, found: NodeReports, now_unix_s: float) -> list[NodeChangeLine]:
        """Take the events in the answers; return the changes of the nodes themselves, such as `restarted`."""
        changes: list[NodeChangeLine] = []
        for report in found.reports:
            each = self.watched.get(report.node.id)
            if each is None:
                continue
            if report.events is None:
                self._close(each, now_unix_s, changes)
                continue
            if each.misses:
                changes.append(_change(each, "back", now_unix_s))
                each.misses = 0
            about = report.about
            if about.now_s < each.now_s:
                each.last, each.is_unread = 0, True  # the next answer has all of its events
                changes.append(_change(each, "restarted", now_unix_s))
            else:
                self._read_events(each, report)
            each.now_s = about.now_s
        for node in found.refused:
            if (known := self.watched.get(node.id)) is not None:
                self._close(known, now_unix_s, changes)
        self._miss(found.missing, now_unix_s, changes)
        return changes

    def take(self, before_unix_s: float = inf) -> list[EventLine | GapLine]:
        """Return the events before a time, in order. Use the time of the last queries: no earlier event can follow.

        Later events are held until the next call, which returns them in any case, because clocks may be set back.
        """
        ripe = [*self._held, *(entry for entry in self._read if entry[0] < before_unix_s)]
        self._held = [entry for entry in self._read if entry[0] >= before_unix_s]
        self._read = []
        return [entry[3] for entry in sorted(ripe, key=lambda entry: entry[:3])]

    def _meet(self, report: NodeReport) -> WatchedNode:
        if self._begin is None and not self._has_found:
            return WatchedNode(report.node, last=report.about.last_event, now_s=report.about.now_s, is_unread=False)
        last = min(self._begin or 0, report.about.last_event)
        return WatchedNode(report.node, last=last, is_unread=not self._begin)

    def _read_events(self, each: WatchedNode, report: NodeReport) -> None:
        assert report.events is not None
        for event in report.events[-EVENTS_MAX:]:  # an honest node has no more
            if event.number <= each.last:
                continue
            # The delay of each answer differs: keep the order of one node's events.
            at = max(report.unix_s_of(event), each.last_at)
            missed = event.number - each.last - 1
            if missed:
                self._note_gap(each, report, event.number, missed, at)
            each.last, each.last_at, each.is_unread = event.number, at, False
            if at >= self._since_unix_s and (not self._kinds or event.kind in self._kinds):
                self._read.append((at, each.node.id, event.number, _line(each.node, event, at)))
        each.is_unread = False

    def _note_gap(self, each: WatchedNode, report: NodeReport, number: int, missed: int, at: float) -> None:
        if at < self._since_unix_s:
            return  # they are before the requested time
        is_older = each.is_unread and report.received_unix_s - report.about.now_s < self._since_unix_s
        line = GapLine(time=_moment(at), id=each.node.id, address=each.node.address, missed=None if is_older else missed)
        self._read.append((at, each.node.id, number - 1, line))

    def _close(self, each: WatchedNode, now_unix_s: float, changes: list[NodeChangeLine]) -> None:
        each.is_resting = True
        if not each.is_closed:
            each.is_closed = True
            changes.append(_change(each, "closed", now_unix_s))

    def _miss(self, missing: Iterable[NodeName], now_unix_s: float, changes: list[NodeChangeLine]) -> None:
        """Count unanswered queries, and give up nodes that have not answered `MISSES_MAX` times."""
        for node in missing:
            each = self.watched.get(node.id)
            if each is None:
                continue
            each.is_resting = True
            each.misses += 1
            if each.misses == 1:
                changes.append(_change(each, "silent", now_unix_s))
        for each in [*self.watched.values()]:
            if each.misses >= MISSES_MAX:
                changes.append(_change(each, "gone", now_unix_s))
                each.misses, each.is_resting = 0, False
                self._gone[each.node.id] = self.watched.pop(each.node.id)
                if len(self._gone) > GONE_MAX:
                    del self._gone[next(iter(self._gone))]


def event_lines(found: NodeReports) -> list[EventLine]:
    """Return all events in the answers of nodes, in order of time."""
    lines = [
        _line(report.node, event, report.unix_s_of(event))
        for report in found.reports
        for event in (report.events or ())[-EVENTS_MAX:]  # an honest node has no more
    ]
    return sorted(lines, key=lambda line: (line.time, line.id, line.number))


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(max(0.0, unix_s), UTC)


def _line(node: NodeName, event: EventRecord, at: float) -> EventLine:
    return EventLine(
        time=_moment(at),
        id=node.id,
        address=node.address,
        zone=node.zone,
        id_name=node.name,
        number=event.number,
        event=event.kind,
        node=event.node,
        node_name=event.node_name,
        node_address=event.node_address,
        node_zone=event.node_zone,
        name=event.name,
        detail=event.detail,
        times=event.times,
    )


def _change(each: WatchedNode, change: Change, now_unix_s: float) -> NodeChangeLine:
    node = each.node
    return NodeChangeLine(
        time=_moment(now_unix_s), id=node.id, name=node.name, address=node.address, zone=node.zone, change=change
    )
