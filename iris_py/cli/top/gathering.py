"""The readings of `iris top`: which nodes are asked when, and what the last two answers of each say together.

Nothing here asks, waits or draws. The owner asks what :meth:`Gathering.next_asked` says, and gives what came to
:meth:`Gathering.take`.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.cli.failures import RecentFailures
from iris_py.cli.network import Pair
from iris_py.observe.queries import ANSWERS_PER_S_MAX, SNAPSHOT_S
from iris_py.observe.reports import Size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import EventRecord, NodeName, NodeReport, NodeReports
    from iris_py.cli.top.clouds import CloudLine

__all__ = ["INTERVAL_MIN_S", "EventSeen", "Gathering", "Seen", "State", "View"]

#: Between two readings at least (seconds): a node takes its numbers so often, so more questions would get the same answer.
INTERVAL_MIN_S: Final = SNAPSHOT_S
#: How much of what a node answers in a second one `iris top` asks for. Too small: nodes with hundreds of clusters are read
#: seldom; too large: others who look at them are refused.
ANSWERS_SHARE: Final = 0.5
#: How often nodes are looked for (seconds). In between those are asked that have answered. Too small: a walk round the ring for
#: each reading, and each is held up by nodes that are silent; too large: new nodes are shown late.
SEARCH_S: Final = 5.0
#: How long a sample is kept (seconds). Too small: hardly any rates, which need two answers of a node; too large: what is new
#: is not in it.
SAMPLE_KEPT_S: Final = 60.0
#: How long a node that is gone is shown (seconds), and how many of them. Too small: nobody sees what has happened; too large:
#: commands of shells, which are nodes for a moment, fill the list.
GONE_KEPT_S: Final = 60.0
GONE_MAX: Final = 64
#: Events that are kept. Too small: a storm hides what began it; too large: memory for what nobody reads.
EVENTS_MAX: Final = 1000

#: What a node did when it was asked last: it answered, was silent, or refused; or it is in the ring no more.
State: TypeAlias = Literal["answers", "silent", "refuses", "gone"]


@dataclass(slots=True)
class Seen:
    """A node, as the readings show it."""

    node: NodeName
    pair: Pair | None = None
    """Its last two answers, which are the same one if there is only one; None if it has never answered."""
    state: State = "silent"
    since: float = 0.0
    """When it was found in this state (seconds)."""

    @property
    def is_measured(self) -> bool:
        """Whether it has rates: there are two answers."""
        return self.pair is not None and self.pair.first is not self.pair.last

    def take(self, report: NodeReport) -> None:
        """Take an answer. One that is from the same snapshot as the last one says nothing new."""
        if self.pair is None:
            self.pair = Pair(report, report)
        elif report.about.uptime_s > self.pair.last.about.uptime_s:
            self.pair = Pair(self.pair.last, report)

    def become(self, state: State, now: float) -> None:
        """Note what it did when it was asked."""
        if state != self.state:
            self.state, self.since = state, now


@dataclass(frozen=True, slots=True)
class EventSeen:
    """Something that happened at a node."""

    unix_s: float
    """When, by the clock of this machine."""
    teller: str
    """The node that tells of it: 32 hexadecimal digits."""
    number: int
    """Its number there."""
    kind: str
    node: str
    name: str
    detail: str
    times: int


@dataclass(frozen=True, slots=True)
class View:
    """One reading."""

    at: float
    """When the answers were there (seconds)."""
    pairs: list[Pair]
    """The last two answers of every node that answered."""
    found: NodeReports
    """The last answers, and who gave none."""
    seen: list[Seen]
    """Each node, also those that did not answer and those that are gone."""


class Gathering:
    """The knowledge of a network whose nodes are asked again and again.

    Attributes:
        view: The last reading that has rates; None before there is one.
        answered_at: When a node answered last; None if none ever has.
        is_warming: Whether the last answers have no rates yet, so that :attr:`view` is an older reading.
        events: The last events, the newest first.
        latest: The number of the last event that is known, by the id of its node.
        failures: The errors that callers got in the last minute.
        clouds: The clouds, as gateways told when they were asked last.
        detail: The node that is looked at, with all that it tells; None if there is none, or it has not answered.
    """

    def __init__(self) -> None:
        self.view: View | None = None
        self.answered_at: float | None = None
        self.is_warming = False
        self.events: list[EventSeen] = []
        self.latest: dict[str, int] = {}
        self.failures = RecentFailures()
        self.clouds: list[CloudLine] = []
        self.detail: Seen | None = None
        self._seen: dict[str, Seen] = {}
        self._search: NodeReports | None = None
        self._searched_at = 0.0

    @property
    def interval_min_s(self) -> float:
        """Seconds that are to be between two readings: no node is asked for more than a share of what it answers."""
        answers = max((seen.pair.last.pages for seen in self._seen.values() if seen.pair is not None), default=1)
        return max(INTERVAL_MIN_S, answers / (ANSWERS_PER_S_MAX * ANSWERS_SHARE))

    def next_asked(self, now: float) -> list[NodeName] | None:
        """Return the nodes to ask now; None if nodes are to be looked for."""
        known = [seen.node for seen in self._seen.values() if seen.state == "answers"]
        if self._search is None or not known:
            return None
        kept_s = SAMPLE_KEPT_S if self._search.is_sample else SEARCH_S
        return known if now - self._searched_at < kept_s else None

    def take(self, found: NodeReports, now: float, *, is_search: bool) -> None:
        """Take the answers to a reading.

        Args:
            found: What became of the questions.
            now: The time (seconds).
            is_search: Whether nodes were looked for.
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
        """Look at a node in detail from now on.

        Args:
            node: Its id; empty to look at none.
        """
        if self.detail is not None and self.detail.node.id != node:
            self.detail = None

    def take_detail(self, found: NodeReports, now: float) -> None:
        """Take the answer of the node that is looked at, with all parts. If it does not answer, the last ones stay."""
        for report in found.reports:
            if self.detail is None or self.detail.node.id != report.node.id:
                self.detail = Seen(report.node)
            self.detail.take(report)
            self.detail.become("answers", now)
        for node in (*found.missing, *found.refused):
            if self.detail is not None and self.detail.node.id == node.id:
                self.detail.become("silent", now)

    def _see(self, node: NodeName, state: State, now: float) -> Seen:
        seen = self._seen.get(node.id)
        if seen is None:
            seen = self._seen[node.id] = Seen(node, since=now)
        seen.become(state, now)
        return seen

    def _note_gone(self, found: NodeReports, now: float) -> None:
        """Mark the nodes that a walk did not meet. If it had a gap, they may be there."""
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
            return  # rates of nothing would be zeros
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
        self.view = View(now, pairs, found, list(self._seen.values()))

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
