"""The state shared by the components of `Pastry`: known nodes, nodes believed dead, messages to send, and timers.

The state decides nothing. The components (`Neighbours`, `Router`, `Joining`, `Merging`) read and change it, and know each other
only through the calls of `Core`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from iris_overlay.ids import position
from iris_overlay.ring.events import LeavesChanged
from iris_overlay.ring.leafset import LeafSet
from iris_overlay.ring.memory import DepartedNodes
from iris_overlay.ring.messages import Direct, encode_ring_message
from iris_overlay.ring.table import RoutingTable
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.environment import Rng, Signer
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.config import PastryConfig
    from iris_overlay.ring.events import PastryEvent
    from iris_overlay.ring.messages import RingMessage

#: The largest number of open links remembered; beyond it the oldest link to a node that is no leaf is forgotten, and `leave`
#: does not tell its peer. Too small: peers learn late of a departure; too large: memory.
LINKS_MAX: Final = 4096

#: The largest number of doubtful nodes to route around; beyond it the first one is trusted again. Too small: messages wait for
#: dead hops; too large: memory.
DOUBTFUL_MAX: Final = 512

#: The largest number of joining nodes remembered; beyond it new ones are dropped, and mentioned by others later. Too small:
#: tables fill later; too large: memory.
NEWCOMERS_MAX: Final = 64

#: The time after which a joining node goes into the table: the longest join without failures.
NEWCOMER_S: Final = 5.0


class Timer(enum.IntEnum):
    """The purpose of a deadline; the key of the deadline adds a node or a number."""

    PROBE = 0
    HANDOVER = 1
    REPAIR = 2
    NEWS = 3
    EXCHANGE = 4
    HOP = 5
    ACKNOWLEDGE = 6
    JOIN = 7
    SEEK = 8
    HELD = 9
    HIDDEN = 10
    GIVEN_UP = 11


TimerKey: TypeAlias = "tuple[Timer, NodeId | int | None]"


class PastryCounters(msgspec.Struct):
    """The counters of dropped and repeated messages of a ring, by reason."""

    messages_invalid: int = 0
    """Messages that violated the protocol."""
    messages_unknown: int = 0
    """Messages of a kind known only to newer versions."""
    signatures_invalid: int = 0
    """Messages from other nodes without a valid signature of their source."""
    repetitions_dropped: int = 0
    """Routed messages that arrived again."""
    retransmissions: int = 0
    """Routed messages that were sent again, to the same hop or another way."""
    hop_limit_reached: int = 0
    """Routed messages dropped because their path was full: a loop."""
    given_up: int = 0
    """Routed messages dropped after all attempts."""
    held_dropped: int = 0
    """Routed messages dropped because too many were held, or for too long."""
    relays_dropped: int = 0
    """Relayed messages for a receiver that is not in the ring."""
    pending_dropped: int = 0
    """Routed messages no longer repeated because too many were unacknowledged."""
    relayed: int = 0
    """Forwarded messages of other nodes."""
    delivered: int = 0
    """Messages of other nodes delivered here, at their root."""
    hops: int = 0
    """The total number of hops of the delivered messages."""


class Ring:
    """The state shared by the components of one node's ring: known nodes, messages to send, events and timers."""

    __slots__ = (
        "_direct",
        "_outbox",
        "_told_leaves",
        "_told_version",
        "clock",
        "config",
        "counters",
        "dead",
        "doubtful",
        "events",
        "intern",
        "is_active",
        "is_left",
        "leaves",
        "links",
        "local",
        "newcomers",
        "place",
        "rng",
        "signer",
        "table",
        "timers",
        "unreachable",
    )

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng, signer: Signer) -> None:
        self.local = local
        self.place = position(local.id)
        self.config = config
        self.rng = rng
        self.signer = signer
        self.leaves = LeafSet(self.place, config.leaf_half)
        self.table = RoutingTable(self.place, local.zone)
        self.links: dict[NodeId, NodeInfo] = {}
        self.doubtful: dict[NodeId, None] = {}
        # Dead and departed nodes, which hearsay must not put into the leaf set; and undialable ones, also not into the table.
        self.dead = DepartedNodes()
        self.unreachable = DepartedNodes()
        # Joining nodes, and the times when they should be active and go into the table.
        self.newcomers: list[tuple[float, NodeInfo]] = []
        self.is_active = False
        self.is_left = False
        self.timers: DeadlineTable[TimerKey] = DeadlineTable()
        self.counters = PastryCounters()
        self.events: list[PastryEvent] = []
        # A simulation of many nodes in one process keeps one copy of each info; see `Pastry.intern_infos`.
        self.intern: Callable[[NodeInfo], NodeInfo] | None = None
        # Measures the time within a turn; without it, time stands still within a turn.
        self.clock: Callable[[], float] | None = None
        self._outbox: list[tuple[NodeInfo, bytes]] = []
        self._direct: tuple[bytes, bytes] | None = None  # the last payload of the turn, and its message
        self._told_leaves: dict[NodeId, NodeInfo] = {}
        self._told_version = 0

    def read_clock(self, now: float) -> float:
        """Return the time of the clock, or without one the time of this turn."""
        return now if self.clock is None else self.clock()

    def tell(self, to: NodeInfo, message: RingMessage) -> None:
        """Queue a message to a node."""
        self._outbox.append((to, encode_ring_message(message)))

    def encode_direct(self, payload: bytes) -> bytes:
        """Return the message with a payload of the layer above; it is encoded once for all receivers within a turn."""
        if self._direct is None or self._direct[0] is not payload:
            self._direct = payload, encode_ring_message(Direct(self.local, payload))
        return self._direct[1]

    def tell_bytes(self, to: NodeInfo, message: bytes) -> None:
        """Queue an encoded message to a node."""
        self._outbox.append((to, message))

    def take_messages(self) -> list[tuple[NodeInfo, bytes]]:
        """Remove and return the queued messages."""
        outbox, self._outbox, self._direct = self._outbox, [], None
        return outbox

    def emit(self, event: PastryEvent) -> None:
        """Queue an event, after the changes of the leaf set that it depends on."""
        if self.leaves.version != self._told_version:
            self._tell_leaves()
        self.events.append(event)

    def take_events(self) -> list[PastryEvent]:
        """Remove and return the queued events, with a change of the leaf set if any."""
        if self.leaves.version != self._told_version:
            self._tell_leaves()
        events = self.events
        if events:
            self.events = []
        return events

    def find(self, node: NodeId) -> NodeInfo | None:
        """Return the info of a node that has a link, or is in the leaf set or the table; else None."""
        return self.links.get(node) or self.leaves.get(position(node)) or self.table.get(node)

    def is_reachable(self, info: NodeInfo, now: float) -> bool:
        """Return whether a node has a link, or may be dialled."""
        node = info.id
        return node in self.links or (bool(info.addresses) and not self.unreachable.has(node, now))

    def nearest_reachable(self, key: int, excluding: set[int], now: float) -> NodeInfo | None:
        """Return the reachable leaf nearest to a key, or None."""
        while True:
            info = self.leaves.nearest(key, excluding)
            if info is None or self.is_reachable(info, now):
                return info
            excluding.add(position(info.id))

    def learn(self, infos: Iterable[NodeInfo], now: float) -> None:
        """Consider nodes mentioned by others for the table, unless they are believed dead or unreachable."""
        for info in infos:
            node = info.id
            if not self.dead.has(node, now) and self.is_reachable(info, now):
                self.consider(info)

    def note_newcomer(self, info: NodeInfo, now: float) -> None:
        """Remember a joining node for the table. In the table now, it would get messages, and have to hold them."""
        if len(self.newcomers) < NEWCOMERS_MAX:
            self.newcomers.append((now + NEWCOMER_S, info))

    def admit_newcomers(self, now: float) -> None:
        """Consider the joining nodes that should be active by now for the table."""
        while self.newcomers and self.newcomers[0][0] <= now:
            self.learn((self.newcomers.pop(0)[1],), now)

    def consider(self, info: NodeInfo, rtt_s: float | None = None) -> None:
        """Put a node into the table if its place is free or holds a farther node."""
        if self.table.consider(info, rtt_s) and self.intern is not None:
            self.table.remove(info.id)
            self.table.consider(self.intern(info), rtt_s)

    def add_leaf(self, info: NodeInfo) -> bool:
        """Add a node to the leaf set after its answer; return whether the node is new there."""
        return self.leaves.add(info if self.intern is None else self.intern(info))

    def revive(self, node: NodeId) -> bool:
        """Believe a node alive and reachable after its own message; return False if the node had left for good."""
        self.unreachable.discard(node)
        if node not in self.dead:
            return True
        if self.dead.has_left(node):
            return False
        # The other nodes believed dead may have been cut off together with it.
        self.dead.clear()
        return True

    def _tell_leaves(self) -> None:
        self._told_version = self.leaves.version
        told = self._told_leaves
        members = {info.id: info for info in self.leaves.members()}
        added = [info for node, info in members.items() if node not in told]
        removed = [node for node in told if node not in members]
        if added or removed:
            self._told_leaves = members
            self.events.append(LeavesChanged(added, removed))
