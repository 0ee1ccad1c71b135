"""The journal of a node: dropped messages counted by reason, and the last events, numbered.

Events are not sent to other nodes, so an event costs only its place: readers ask for the events after a number. Peers decide
how often some events occur. So the journal notes an event of a kind and subject once in ``BURST_S``, and the next event counts
the occurrences.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.observe.departures import Departures
from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Events to keep. Too small: a short storm hides its cause; too large: memory, and answers too long to read.
EVENTS_MAX: Final = 512
#: The time between two noted events of a kind and subject, in seconds. Too small: a peer that comes and goes pushes out all
#: other events; too large: continuing events show up late.
BURST_S: Final = 10.0
#: Number of kinds and subjects for which the time of the last event is known. Beyond it the oldest is forgotten, and its next
#: event noted at once.
BURSTS_MAX: Final = 1024

NOBODY: Final = NodeName("")

#: Each kind of event, with its meaning.
KINDS: Final = {
    "joined": "A member appeared in the membership view of a cluster that this node uses.",
    "left": "A member left the membership view of a cluster that this node uses.",
    "suspected": "A node does not answer the failure detector. It may be busy.",
    "died": "The failure detector found a node dead.",
    "link_opened": "A link to a node is open.",
    "link_closed": "The link to a node ended cleanly; the detail is the reason.",
    "link_lost": "The link to a node broke; the detail is the reason.",
    "topics_differ": "A linked node and this one do not receive each other's publications; the detail has both versions.",
    "refused": "A connection to this node, or one of its dials, ended without an authenticated peer: its address, and why.",
    "dropped": "Messages were dropped; the detail is the reason.",
    "paused": "A subscriber paused this node as a publisher.",
    "stalled": "This process stood still, or its event loop was blocked, and this node asks its peers whether they wait.",
    "cloud_up": "This gateway reaches another cloud, which it did not reach before; the name is that of the cloud.",
    "cloud_down": "This gateway no longer reaches another cloud.",
    "line_opened": "A cloud link of this gateway is open; the detail is the address of the other gateway.",
    "line_lost": "A cloud link has ended; the detail is the address of the other gateway and the reason.",
    "catalogue_changed": "A gateway of another cloud has changed its exports to this cloud.",
}


#: The answers of a node to others: everything; numbers without the names of clusters, topics, groups and peers; or nothing.
Observe: TypeAlias = Literal["all", "counts", "none"]


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event at a node."""

    number: int
    """The number of the event: 1 for the first event of the node, then consecutive. A larger step means missed events."""
    at_s: float
    """The time of the event, in seconds since the start of the node."""
    kind: str
    """One of ``joined``, ``left``, ``suspected``, ``died``, ``link_opened``, ``link_closed``, ``link_lost``, ``topics_differ``,
    ``refused``, ``dropped``, ``paused``, ``stalled``, and of gateways ``cloud_up``, ``cloud_down``, ``line_opened``,
    ``line_lost`` and ``catalogue_changed``."""
    node: str = ""
    """The node concerned: 32 hexadecimal digits; empty for this node, or if unknown."""
    node_name: str = ""
    """The name of that node; empty if it has none."""
    node_address: str = ""
    """The ``host:port`` where that node listens, if known."""
    node_zone: str = ""
    """The zone of that node."""
    name: str = ""
    """The cluster, topic or cloud concerned."""
    detail: str = ""
    """The reason, for people."""
    times: int = 1
    """The number of occurrences since the last record: a continuing event is recorded every 10 seconds."""


class Journal:
    """The events of one node, and its drops (messages lost to full queues or faults) by reason.

    Attributes:
        drops: The number of drops, by reason.
        now: The present time, set by the owner (seconds).
        started_at: The start of the node, set by the owner.
        last: The number of the last event; 0 before the first.
        departures: The nodes that left or died.
        on_event: Called with noted events in the form for this program: for the log.
        on_noted: Called after each noted event, while a reader waits.
    """

    def __init__(self) -> None:
        self.drops: dict[str, int] = {}
        self.now = 0.0
        self.started_at = 0.0
        self.last = 0
        self.departures = Departures()
        self.on_event: Callable[[EventRecord], None] | None = None
        self.on_noted: Callable[[], None] | None = None
        self._events: deque[tuple[EventRecord, EventRecord]] = deque(maxlen=EVENTS_MAX)  # for this program, for other nodes
        self._bursts: dict[tuple[str, str, str], list[float]] = {}  # time of the last event, and occurrences since then

    def count_drop(self, reason: str, times: int = 1) -> int:
        """Count dropped messages, and note the event. Returns the total for the reason."""
        count = self.drops[reason] = self.drops.get(reason, 0) + times
        self.note("dropped", subject=reason, detail=reason, times=times)
        return count

    def note(
        self,
        kind: str,
        subject: str = "",
        *,
        node: NodeName | None = None,
        name: str = "",
        told_name: str = "",
        detail: str = "",
        times: int = 1,
    ) -> None:
        """Note an event. An event of the same kind, subject and name within ``BURST_S`` is only counted.

        Args:
            kind: One of ``KINDS``.
            subject: Identifies repetitions, together with kind and name.
            node: The node concerned.
            name: The cluster or topic.
            told_name: The replacement of the name for other nodes; empty if they may know the name.
            detail: The reason.
            times: The number of occurrences.
        """
        if node is not None and kind == "died":
            self.departures.note("died", node, self.now - self.started_at, detail)
        elif node is not None and kind == "link_opened":
            self.departures.take_back(node.id)
        now, key = self.now, (kind, subject, name)
        burst = self._bursts.get(key)
        if burst is None:
            if len(self._bursts) >= BURSTS_MAX:
                del self._bursts[next(iter(self._bursts))]
            burst = self._bursts[key] = [-BURST_S, 0]
        burst[1] += times
        if now - burst[0] < BURST_S:
            return
        times = int(burst[1])
        burst[0], burst[1] = now, 0
        self.last += 1
        about = NOBODY if node is None else node
        event = EventRecord(
            number=self.last,
            at_s=now - self.started_at,
            kind=kind,
            node=about.id,
            node_name=about.name,
            node_address=about.address,
            node_zone=about.zone,
            name=name,
            detail=detail,
            times=times,
        )
        self._events.append((event, msgspec.structs.replace(event, name=told_name) if told_name else event))
        if self.on_event is not None:
            self.on_event(event)
        if self.on_noted is not None:
            self.on_noted()

    def note_at(
        self, now: float, kind: str, subject: str = "", *, node: NodeName | None = None, name: str = "", detail: str = ""
    ) -> None:
        """Set the present time, and note an event as :meth:`note` does."""
        self.now = now
        self.note(kind, subject, node=node, name=name, detail=detail)

    def note_leaving(self, node: NodeName, detail: str) -> None:
        """Record in ``departures`` that a node has announced to leave."""
        self.departures.note("left", node, self.now - self.started_at, detail)

    def since(self, number: int) -> tuple[EventRecord, ...]:
        """Return the kept events after a number, the oldest first."""
        return tuple(event for event, _told in self._after(number))

    def told_since(self, number: int) -> tuple[EventRecord, ...]:
        """Return the kept events after a number for other nodes: without the names of clusters with a secret of their own."""
        return tuple(told for _event, told in self._after(number))

    def _after(self, number: int) -> Iterator[tuple[EventRecord, EventRecord]]:
        known = max(0, self.last - max(0, number))
        return islice(self._events, max(0, len(self._events) - known), None)
