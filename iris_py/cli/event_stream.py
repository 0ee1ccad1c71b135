"""Following the events of many nodes: each is read after the last number that is known of it, and all are told in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.cli.output import Line
from iris_py.defaults import NODES_SAMPLED
from iris_py.observe.journal import EVENTS_MAX
from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from iris_py import EventRecord, NodeReport, NodeReports

__all__ = ["DeathLine", "EventLine", "Following", "GapLine", "NodeChangeLine", "event_lines"]

#: Questions in a row without an answer after which a node is not asked any more. Too small: one that is busy for a while seems
#: to have gone. Too large: each that has gone is asked for long.
MISSES_MAX: Final = 3
#: Nodes that have gone of which it is remembered what was read. Beyond it, one that comes back tells again what it has told.
GONE_MAX: Final = 4096

#: What is said of a node that is watched.
Change = Literal["found", "back", "restarted", "silent", "gone", "closed"]


class EventLine(Line, tag="event", kw_only=True):
    """An event of a node."""

    time: datetime
    """When it happened, by the clock of this machine, in UTC: as exact as the answer of the node was quick."""
    id: str
    """The node that noted it."""
    address: str
    """Where that node listens."""
    zone: str
    """Where it says it is."""
    id_name: str
    """The name of that node, a label for people; empty if it tells none."""
    number: int
    """The number of the event at that node."""
    event: str
    """The kind of event: `joined`, `left`, `suspected`, `died`, `link_opened` ..."""
    node: str
    """The node that it is about; empty for the one that noted it, and where nobody is known."""
    node_name: str
    """The name of the node that it is about; empty if it is not known."""
    node_address: str
    """The `host:port` where that node listens; empty if it is not known."""
    node_zone: str
    """The zone that that node says it is in."""
    name: str
    """The cluster or topic that it is about; `#` and a group id for a cluster that has a secret of its own."""
    detail: str
    """The reason, for people."""
    times: int
    """How often it happened since it was noted last: what goes on is noted every 10 seconds."""


class DeathLine(Line, tag="death", kw_only=True):
    """A node that has died, by all that the watched nodes have noted of it; with `--raw` each event is a line of its own."""

    time: datetime
    """When the first of these events happened, in UTC."""
    node: str
    """The node that has died."""
    node_name: str
    """Its name, a label for people; empty if it is not known."""
    node_address: str
    """The `host:port` where it listened; empty if it is not known."""
    node_zone: str
    """The zone that it said it was in."""
    said_by: int
    """How many of the watched nodes have found it dead."""
    watched: int
    """How many nodes were watched. Not every node has to do with every other one."""
    links_lost: int
    """How many of them had a link to it that ended."""
    clusters: list[str]
    """The clusters that it is no member of any more, as far as one of them used them."""
    detail: str
    """The reason, for people."""


class GapLine(Line, tag="gap", kw_only=True):
    """Events of a node that cannot be had any more: others had overwritten them before they were read."""

    time: datetime
    """When the first event after them happened, in UTC."""
    id: str
    """The node."""
    address: str
    """Where it listens."""
    missed: int | None
    """How many they are; None if it is not known how many of them are of the time that is of interest."""


class NodeChangeLine(Line, tag="node", kw_only=True):
    """A change of a node that is watched: no event of it, but what is seen from here."""

    time: datetime
    """When it was seen, in UTC."""
    id: str
    """The node."""
    name: str
    """Its name, a label for people; empty if it tells none."""
    address: str
    """Where it listens."""
    zone: str
    """Where it says it is."""
    change: Change
    """`found` after the beginning; `silent`: it does not answer; `back`: it does again; `gone`: it is not asked any more;
    `restarted`: its numbers begin anew; `closed`: it tells no events, for it keeps them to itself, too many ask it, or its
    version knows none."""


#: When it happened, at which node, its number there, and the line of it.
_Entry: TypeAlias = tuple[float, str, int, EventLine | GapLine]


@dataclass(slots=True)
class Watched:
    """A node, and what was read of it.

    Attributes:
        node: Its name.
        last: The number of the last event that was read.
        last_at: When that happened.
        now_s: Its age when it answered last.
        is_unread: Whether nothing was read yet, so that older events may be overwritten without being missed.
        misses: Questions in a row without an answer.
        is_resting: Whether it is not read until nodes are looked for again: one that does not answer would hold up all others.
        is_closed: Whether it has been said that it tells no events.
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
    """Makes lines of what nodes answer.

    Args:
        kinds: The kinds of events that are told; none for all.
        since_unix_s: From when on events are told: seconds since 1970. ``-inf`` for all that nodes keep.
        begin: The number after which nodes are read; None for from now on, apart from nodes that are found later: nothing of
            them is missed.
        sample: How many nodes of a large network are watched at once.

    Attributes:
        watched: The nodes that are watched, by id.
    """

    def __init__(
        self, *, kinds: Collection[str] = (), since_unix_s: float, begin: int | None, sample: int = NODES_SAMPLED
    ) -> None:
        self.watched: dict[str, Watched] = {}
        self._kinds = frozenset(kinds)
        self._since_unix_s = since_unix_s
        self._begin = begin
        self._sample = sample
        self._has_found = False
        self._gone: dict[str, Watched] = {}
        self._read: list[_Entry] = []
        self._held: list[_Entry] = []

    def name_of(self, id_: str) -> NodeName:
        """Return what is known of a node that is or was watched; only its id of any other one."""
        known = self.watched.get(id_) or self._gone.get(id_)
        return NodeName(id_) if known is None else known.node

    def due(self) -> list[NodeName]:
        """Return the nodes to read now."""
        return [each.node for each in self.watched.values() if not each.is_resting]

    def numbers(self) -> dict[str, int]:
        """Return the number of the last event that was read, by node."""
        return {id_: each.last for id_, each in self.watched.items()}

    def find(self, found: NodeReports, now_unix_s: float) -> list[NodeChangeLine]:
        """Take the signs of life of the nodes that were looked for. Those of the first time are no news.

        Args:
            found: The answers, of no parts.
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
                self._close(self.watched.setdefault(node.id, Watched(node)), now_unix_s, changes)
        is_everybody = not found.is_sample and found.is_whole
        told = {node.id for node in (*found.missing, *found.refused)} | {report.node.id for report in found.reports}
        for known in self.watched.values():
            if known.misses and is_everybody and known.node.id not in told:
                known.misses = MISSES_MAX
        self._miss(found.missing, now_unix_s, changes)
        self._has_found = True
        return changes

    def read(self, found: NodeReports, now_unix_s: float) -> list[NodeChangeLine]:
        """Take the events of nodes that were due, after their numbers. Returns what is seen of the nodes themselves."""
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
                each.last, each.is_unread = 0, True  # the next answer has all of them
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
        """Return what has happened before a time, in order. Before that of the last questions nothing else can come.

        What is later is held until the next call, which returns it in any case: clocks are set back now and then.
        """
        ripe = [*self._held, *(entry for entry in self._read if entry[0] < before_unix_s)]
        self._held = [entry for entry in self._read if entry[0] >= before_unix_s]
        self._read = []
        return [entry[3] for entry in sorted(ripe, key=lambda entry: entry[:3])]

    def _meet(self, report: NodeReport) -> Watched:
        if self._begin is None and not self._has_found:
            return Watched(report.node, last=report.about.last_event, now_s=report.about.now_s, is_unread=False)
        last = min(self._begin or 0, report.about.last_event)
        return Watched(report.node, last=last, is_unread=not self._begin)

    def _read_events(self, each: Watched, report: NodeReport) -> None:
        assert report.events is not None
        for event in report.events[-EVENTS_MAX:]:  # no honest node has more
            if event.number <= each.last:
                continue
            # The way of each answer takes some other time: those of one node keep their order nevertheless.
            at = max(report.unix_s_of(event), each.last_at)
            missed = event.number - each.last - 1
            if missed:
                self._note_gap(each, report, event.number, missed, at)
            each.last, each.last_at, each.is_unread = event.number, at, False
            if at >= self._since_unix_s and (not self._kinds or event.kind in self._kinds):
                self._read.append((at, each.node.id, event.number, _line(each.node, event, at)))
        each.is_unread = False

    def _note_gap(self, each: Watched, report: NodeReport, number: int, missed: int, at: float) -> None:
        if at < self._since_unix_s:
            return  # they are older than what is of interest
        is_older = each.is_unread and report.received_unix_s - report.about.now_s < self._since_unix_s
        line = GapLine(time=_moment(at), id=each.node.id, address=each.node.address, missed=None if is_older else missed)
        self._read.append((at, each.node.id, number - 1, line))

    def _close(self, each: Watched, now_unix_s: float, changes: list[NodeChangeLine]) -> None:
        each.is_resting = True
        if not each.is_closed:
            each.is_closed = True
            changes.append(_change(each, "closed", now_unix_s))

    def _miss(self, missing: Iterable[NodeName], now_unix_s: float, changes: list[NodeChangeLine]) -> None:
        """Count nodes that did not answer, and forget those that have not for long."""
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
    """Return all events that nodes have told, in order of time."""
    lines = [
        _line(report.node, event, report.unix_s_of(event))
        for report in found.reports
        for event in (report.events or ())[-EVENTS_MAX:]  # no honest node has more
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


def _change(each: Watched, change: Change, now_unix_s: float) -> NodeChangeLine:
    node = each.node
    return NodeChangeLine(
        time=_moment(now_unix_s), id=node.id, name=node.name, address=node.address, zone=node.zone, change=change
    )
