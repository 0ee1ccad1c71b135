"""The readings of `iris top`: which nodes to query, and the last two answers of each node combined.

This module does not query, wait or draw. The caller queries the nodes from :meth:`Readings.next_asked`, and passes the answers
to :meth:`Readings.take`.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.observe.queries import ANSWERS_PER_S_MAX, SNAPSHOT_S
from iris_py.observe.reports import Size
from iris_py.overview.caller_failures import RecentFailures
from iris_py.overview.clusters import CLUSTER_PARTS
from iris_py.overview.door_loads import DoorReadings
from iris_py.overview.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.journal import EventRecord
    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReport, NodeReports
    from iris_py.overview.clouds import CloudLine

__all__ = ["INTERVAL_MIN_S", "PARTS", "EventSeen", "NetworkReading", "NodeReading", "Readings", "State"]

#: Minimum time between two readings (seconds). Nodes take snapshots at this interval, so earlier queries get the same answer.
INTERVAL_MIN_S: Final = SNAPSHOT_S
#: Share of a node's query limit that one `iris top` uses. Too small: nodes with hundreds of clusters are read rarely; too
#: large: other observers are refused.
ANSWERS_SHARE: Final = 0.5
#: Interval of searches for nodes (seconds); readings in between query known nodes. Too small: a walk round the ring for each
#: reading, each delayed by silent nodes; too large: new nodes appear late.
SEARCH_S: Final = 5.0
#: How long the same sample of nodes is queried (seconds). Too small: few rates, which need two answers of a node; too large:
#: new nodes are missing.
SAMPLE_KEPT_S: Final = 60.0
#: How long a departed node is shown (seconds), and the maximum number. Too small: departures go unnoticed; too large:
#: short-lived nodes of shell commands fill the list.
GONE_KEPT_S: Final = 60.0
GONE_MAX: Final = 64
#: Maximum number of events kept. Too small: a storm hides its beginning; too large: unused memory.
EVENTS_MAX: Final = 1000

#: The statistics requested from every node for every table; the totals need them.
PARTS: Final = ("counts", "interest", *CLUSTER_PARTS, "subscriptions", "security", "process", "histograms")

#: The result of the last query of a node: an answer, silence, or a refusal; or the node has left the ring.
State: TypeAlias = Literal["answers", "silent", "refuses", "gone"]


@dataclass(slots=True)
class NodeReading:
    """A node of the network, with its last two answers and its state."""

    node: NodeName
    pair: Pair | None = None
    """The last two answers; a single answer is repeated; None without answers."""
    state: State = "silent"
    since: float = 0.0
    """The time when the node got its state (seconds)."""

    @property
    def is_measured(self) -> bool:
        """Whether the node has two different answers, which rates need."""
        return self.pair is not None and self.pair.first is not self.pair.last

    def take(self, report: NodeReport) -> None:
        """Add an answer of the node. An answer from the same snapshot as the last answer is ignored."""
        if self.pair is None:
            self.pair = Pair(report, report)
        elif report.about.uptime_s > self.pair.last.about.uptime_s:
            self.pair = Pair(self.pair.last, report)

    def become(self, state: State, now: float) -> None:
        """Record the state of the node after a query."""
        if state != self.state:
            self.state, self.since = state, now


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event reported by a node."""

    unix_s: float
    """The time, by the clock of this machine."""
    teller: str
    """The reporting node: 32 hexadecimal digits."""
    number: int
    """The event's number at the reporting node."""
    kind: str
    node: str
    name: str
    detail: str
    times: int


@dataclass(frozen=True, slots=True)
class NetworkReading:
    """The result of one reading: the answers and the states of all nodes."""

    at: float
    """The time of the answers (seconds)."""
    pairs: list[Pair]
    """The last two answers of every node that answered."""
    found: NodeReports
    """The last answers, and the nodes without one."""
    seen: list[NodeReading]
    """All nodes, including silent and departed ones."""


class Readings:
    """The state of a network whose nodes are queried repeatedly, for the screen of `iris top`.

    Attributes:
        view: The last reading with rates; None before the first.
        answered_at: The time of the last answer of any node; None without any.
        is_warming: Whether the last answers have no rates yet, so that :attr:`view` is an older reading.
        events: The last events, the newest first.
        latest: The number of the last known event, by node id.
        failures: The errors that callers got in the last minute.
        clouds: The clouds, by the last answers of gateways.
        doors: The doors, by their last answers.
        detail: The node of the detailed table, with all its statistics; None without such a table, or before the answer.
    """

    def __init__(self) -> None:
        self.view: NetworkReading | None = None
        self.answered_at: float | None = None
        self.is_warming = False
        self.events: list[EventSeen] = []
        self.latest: dict[str, int] = {}
        self.failures = RecentFailures()
        self.clouds: list[CloudLine] = []
        self.doors = DoorReadings()
        self.detail: NodeReading | None = None
        self._seen: dict[str, NodeReading] = {}
        self._search: NodeReports | None = None
        self._searched_at = 0.0

    @property
    def interval_min_s(self) -> float:
        """Minimum seconds between two readings, which leaves a part of each node's limit of queries to other observers."""
        answers = max((seen.pair.last.pages for seen in self._seen.values() if seen.pair is not None), default=1)
        return max(INTERVAL_MIN_S, answers / (ANSWERS_PER_S_MAX * ANSWERS_SHARE))

    def next_asked(self, now: float) -> list[NodeName] | None:
        """Return the nodes to query in the next reading; None if nodes have to be searched first."""
        known = [seen.node for seen in self._seen.values() if seen.state == "answers"]
        if self._search is None or not known:
            return None
        kept_s = SAMPLE_KEPT_S if self._search.is_sample else SEARCH_S
        return known if now - self._searched_at < kept_s else None

    def take(self, found: NodeReports, now: float, *, is_search: bool) -> None:
        """Add the answers of a reading, and renew :attr:`view`.

        Args:
            found: The outcomes of the queries.
            now: The time (seconds).
            is_search: Whether the reading searched for nodes.
        """
        if is_search:
            self._search, self._searched_at = found, now
            if found.is_sample:
                self._seen.clear()
        for report in found.reports:
            seen = self._see(report.node, "answers", now)
            self.failures.take(None if seen.pair is None else seen.pair.last, report, now)
            seen.take(report)
        self.failures.forget(now)
        for node in found.missing:
            self._see(node, "silent", now)
        for node in found.refused:
            self._see(node, "refuses", now)
        if is_search and not found.is_sample:
            self._note_gone(found, now)
        self._take_events(found.reports)
        if found.reports:
            self.answered_at = now
        self._renew_view(now)

    def look_at(self, node: str) -> None:
        """Show a node in the detailed table from now on, and drop the data of any other node.

        Args:
            node: The node id; empty for none.
        """
        if self.detail is not None and self.detail.node.id != node:
            self.detail = None

    def take_detail(self, found: NodeReports, now: float) -> None:
        """Add the answer of the node in the detailed table. Without an answer, the last data stay, marked as silent."""
        for report in found.reports:
            if self.detail is None or self.detail.node.id != report.node.id:
                self.detail = NodeReading(report.node)
            self.detail.take(report)
            self.detail.become("answers", now)
        for node in (*found.missing, *found.refused):
            if self.detail is not None and self.detail.node.id == node.id:
                self.detail.become("silent", now)

    def _see(self, node: NodeName, state: State, now: float) -> NodeReading:
        seen = self._seen.get(node.id)
        if seen is None:
            seen = self._seen[node.id] = NodeReading(node, since=now)
        seen.become(state, now)
        return seen

    def _note_gone(self, found: NodeReports, now: float) -> None:
        """Mark known nodes missing from a search as gone; as silent if a part of the ring did not answer. Forget old gone
        nodes.
        """
        met = {report.node.id for report in found.reports}
        met.update(node.id for node in (*found.missing, *found.refused))
        for seen in self._seen.values():
            if seen.node.id not in met:
                seen.become("gone" if found.is_whole else "silent", now)
        gone = sorted((seen for seen in self._seen.values() if seen.state == "gone"), key=attrgetter("since"))
        for number, seen in enumerate(reversed(gone)):
            if number >= GONE_MAX or now - seen.since >= GONE_KEPT_S:
                del self._seen[seen.node.id]

    def _renew_view(self, now: float) -> None:
        answering = [seen for seen in self._seen.values() if seen.state == "answers"]
        self.is_warming = bool(answering) and not any(seen.is_measured for seen in answering)
        if self.is_warming:
            return  # rates without data would be zeros
        assert self._search is not None
        pairs = [seen.pair for seen in answering if seen.pair is not None]
        found = msgspec.structs.replace(
            self._search,
            reports=tuple(pair.last for pair in pairs),
            missing=tuple(seen.node for seen in self._seen.values() if seen.state == "silent"),
            refused=tuple(seen.node for seen in self._seen.values() if seen.state == "refuses"),
        )
        if not found.is_sample:
            found = msgspec.structs.replace(found, size=Size(float(found.asked)))
        self.view = NetworkReading(now, pairs, found, list(self._seen.values()))

    def _take_events(self, reports: Sequence[NodeReport]) -> None:
        new: list[EventSeen] = []
        for report in reports:
            last = self.latest.get(report.node.id, 0)
            told = [event for event in report.events or () if event.number > last]
            if not told:
                continue
            self.latest[report.node.id] = max(event.number for event in told)
            new += [_event_of(report, event) for event in told]
            first = min(told, key=attrgetter("number"))
            if missed := first.number - last - 1:
                new.append(_gap_before(report, first, missed))
        if new:
            self.events = nlargest(EVENTS_MAX, [*self.events, *new], key=attrgetter("unix_s"))
            self.latest = {node: number for node, number in self.latest.items() if node in self._seen}


def _event_of(report: NodeReport, event: EventRecord) -> EventSeen:
    return EventSeen(
        unix_s=report.unix_s_of(event),
        teller=report.node.id,
        number=event.number,
        kind=event.kind,
        node=event.node,
        name=event.name,
        detail=event.detail,
        times=event.times,
    )


def _gap_before(report: NodeReport, event: EventRecord, missed: int) -> EventSeen:
    return EventSeen(
        unix_s=report.unix_s_of(event),
        teller=report.node.id,
        number=event.number - 1,
        kind="gap",
        node="",
        name="",
        detail="overwritten before they were read",
        times=missed,
    )
