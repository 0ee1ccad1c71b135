"""Routing of messages to the root of their key, hop by hop (Castro, Costa, Rowstron, DSN 2004, sections 3.2 and 4.1).

The leaf set decides if it covers the key; otherwise the table brings a message nearer. Every hop is acknowledged, and the
forwarding node keeps a message until then: if the hop fails or is silent, the message takes another way.

**The last hop is never skipped**: as long as the root may live, no other node may deliver its keys. The root is tried again
until it answers or is declared dead. If this node cannot reach the root at all, for example an undialable one, the message goes
through another leaf.

A message is **held** while its next hop is undecided: during a join, while a side of the leaf set is gone, or if no possible
hop can take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.ids import NodeId, is_nearer, position, shared_digits
from iris_overlay.node_info import SEQUENCE_MAX
from iris_overlay.ring.events import Delivered, Undeliverable
from iris_overlay.ring.hops import Hops, PendingHop
from iris_overlay.ring.memory import Arrivals
from iris_overlay.ring.messages import (
    PATH_LENGTH_MAX,
    ROWS_TOLD_MAX,
    Direct,
    Returned,
    Routed,
    RoutedKind,
    RowAsk,
    decode_ring_message,
    encode_ring_message,
    signed_part,
)
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.state import Ring

#: The largest number of messages held until their root is known. Beyond it the oldest is dropped (and counted). Too small:
#: messages get lost during a repair; too large: memory.
HELD_MAX: Final = 1024

#: The longest hold. A join or a repair takes a few seconds at worst; later the senders have given up.
HELD_S_MAX: Final = 30.0

#: The shortest time between requests for a row of the table after a missing entry: the ring may have no such node.
ROW_ASKED_S: Final = 10.0

#: The number of consecutive hops that cannot take a message, after which the message is held. Too small: it waits although
#: another leaf might take it. Too large: work, when all hops are beyond a partition.
REFUSALS_MAX: Final = 8

#: The number of leaves that a message has passed without reaching its root, after which the message is held. Too small: a root
#: with few links is not reached. Too large: while the root is beyond a partition and not declared dead, the message wanders
#: among the leaves until its path is full.
DETOURS_MAX: Final = 4

#: The number of attempts for a relayed message. Its receiver is probably gone, since it could not be reached directly.
RELAY_ATTEMPTS: Final = 3


class Router:
    """Route messages to the root of their key: forward, deliver and acknowledge them, or send them another way."""

    __slots__ = (
        "_held",
        "_missing_row",
        "_number",
        "_ring",
        "_row_asked",
        "_seen",
        "arrived",
        "hops",
    )

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        # Messages at their root here that are not for the layer above, for Core to take.
        self.arrived: list[Routed] = []
        self.hops = Hops(ring)
        self._held: list[PendingHop] = []
        self._seen = Arrivals()
        # Repairs of the table found necessary by a message.
        self._missing_row: int | None = None
        self._row_asked: dict[int, float] = {}
        # Node ids are never used again, so numbers may start at zero.
        self._number = 0

    def originate(
        self,
        kind: RoutedKind,
        key: bytes,
        payload: bytes,
        now: float,
        *,
        excludes: tuple[NodeId, ...] = (),
        first: NodeInfo | None = None,
        tried: tuple[NodeId, ...] = (),
        is_timed: bool = False,
    ) -> None:
        """Route a message of the local node.

        Args:
            kind: The purpose.
            key: The destination.
            payload: The content.
            now: Monotonic seconds.
            excludes: Nodes that do not count as root of the key.
            first: The first hop, instead of the one from the local tables.
            tried: Nodes to avoid as hops.
            is_timed: Whether each node of the path reports its time.
        """
        ring = self._ring
        message = Routed(0, kind, key, ring.local, self.next_number(), (), excludes, payload)
        message = msgspec.structs.replace(message, signature=ring.signer.sign(signed_part(message)))
        pending = PendingHop(message, tried, ring.read_clock(now) if is_timed else None)
        if first is not None:
            self._forward(pending, first, now)
        else:
            self._dispatch(pending, now)

    def usual_hop(self, key: bytes) -> tuple[NodeId, ...]:
        """Return the usual first hop of local messages to a key; empty for a key of the leaf set."""
        hop = None if self._ring.leaves.covers(position(key)) else self._ring.table.next_hop(position(key))
        return () if hop is None else (hop.id,)

    def next_number(self) -> int:
        """Return the number of the next message of the local node."""
        self._number += 1
        return self._number

    def is_genuine(self, message: Routed | Returned, now: float) -> bool:
        """Return whether a message from other nodes is signed by its source and new."""
        ring, source = self._ring, message.source.id
        if (source, message.number) in self._seen:
            ring.counters.repetitions_dropped += 1
            return False
        if not ring.signer.verify(source, signed_part(message), message.signature):
            ring.counters.signatures_invalid += 1
            return False
        return self._seen.is_new(source, message.number, now)

    def receive(self, peer: NodeId, message: Routed, now: float) -> None:
        """Acknowledge a routed message of a peer, and deliver, forward or hold it."""
        ring = self._ring
        if ring.newcomers:
            ring.admit_newcomers(now)
        self.hops.note(peer, message.sequence, now)
        if message.source.id != ring.local.id:
            if message.kind is RoutedKind.JOIN:
                ring.note_newcomer(message.source, now)
            else:
                ring.learn((message.source,), now)
        if len(message.path) >= PATH_LENGTH_MAX:
            ring.counters.hop_limit_reached += 1
            return
        self._dispatch(PendingHop(message, taken_at=ring.read_clock(now) if message.held else None), now)

    def hop_timed_out(self, sequence: int, now: float) -> None:
        """Send a message another way after its hop was silent; only a silent root is asked again."""
        pending = self.hops.take(sequence)
        if pending is None or pending.hop is None:
            return
        pending.refusals = 0
        if pending.hop.id not in pending.tried and not self._is_root(pending.message, pending.hop):
            pending.tried = (*pending.tried, pending.hop.id)
        self._again(pending, now)

    def hop_refused(self, sequence: int, now: float) -> None:
        """Send a message that its hop could not take another way, or through a neighbour of the root to the root."""
        pending = self.hops.take(sequence)
        if pending is not None and pending.hop is not None:
            self._refuse(pending, pending.hop.id, now)

    def hop_failed(self, node: NodeId, now: float) -> None:
        """Send the unacknowledged messages of a dead or unreachable hop another way."""
        for pending in self.hops.take_all(node):
            self._refuse(pending, node, now)
        self.hops.forget(node)

    def link_lost(self, node: NodeId, now: float) -> None:
        """Repeat the unacknowledged messages to a node, because its broken link may have lost them."""
        for pending in self.hops.take_all(node):
            self._again(pending, now)

    def release_held(self, now: float) -> None:
        """Try again to deliver or forward the held messages; drop those held for too long."""
        held, self._held = self._held, []
        for pending in held:
            if pending.held_since is not None and now - pending.held_since > HELD_S_MAX:
                self._drop(pending, "its root was not known in time")
                self._ring.counters.held_dropped += 1
            else:
                self._dispatch(pending, now)

    def has_held(self) -> bool:
        """Return whether messages are held."""
        return bool(self._held)

    def state_sizes(self) -> dict[str, int]:
        """Return the sizes of the router's tables, by name."""
        return {"pending": len(self.hops), "held": len(self._held), "arrivals": len(self._seen)}

    def purge(self, now: float) -> None:
        """Forget the arrivals that are too old to be repeated."""
        self._seen.purge(now)

    def _dispatch(self, pending: PendingHop, now: float) -> None:
        """Deliver, forward or hold a message."""
        ring = self._ring
        message = pending.message
        key = position(message.key)
        if message.kind is RoutedKind.RELAY:
            self._dispatch_relay(pending, key, now)
            return
        leaves = ring.leaves
        if not ring.is_active:
            nearest = leaves.nearest(key) if ring.is_left else None
            if nearest is None:
                self._hold(pending, now)
            else:
                self._forward(pending, nearest, now)
            return
        excluded = {position(node) for node in message.excludes}
        hop: NodeInfo | None
        if leaves.covers(key):
            hop = leaves.nearest(key, excluded)
            if hop is None or is_nearer(key, ring.place, position(hop.id)):
                if ring.place in excluded:
                    self._to_other(pending, hop, now)
                elif leaves.is_in_gap(key):
                    self._hold(pending, now)
                elif (linked := self._linked(pending, excluded)) is not None:
                    self._forward(pending, linked, now)
                else:
                    self._deliver(message, now)
                return
            if hop.id in pending.tried or not ring.is_reachable(hop, now):
                # This node cannot reach the root. Another leaf may, unless that was tried too.
                away = {*excluded, *map(position, (hop.id, *pending.tried, *message.path))}
                other = ring.nearest_reachable(key, away, now)
                detours = sum(position(node) in leaves for node in message.path)
                if detours >= DETOURS_MAX or (other is None and hop.id in pending.tried):
                    pending.tried = ()
                    self._hold(pending, now)
                    return
                hop = other or hop
            self._forward(pending, hop, now)
            return
        hop = self._hop_by_table(pending, key, now)
        if hop is None:
            self._hold(pending, now)
        else:
            self._forward(pending, hop, now)
            self._maybe_ask_row(hop, now)

    def _linked(self, pending: PendingHop, excluded: set[int]) -> NodeInfo | None:
        """Return the linked node with the key as its id, or None: during a merge it may not be a leaf yet."""
        linked = self._ring.links.get(NodeId(pending.message.key))
        if linked is None or position(linked.id) in excluded or linked.id in pending.tried or linked.id in self._ring.dead:
            return None
        return linked

    def _maybe_ask_row(self, hop: NodeInfo, now: float) -> None:
        """Ask the hop used in place of a missing table entry for the entries of the same row."""
        row, self._missing_row = self._missing_row, None
        if row is not None and now - self._row_asked.get(row, -ROW_ASKED_S) >= ROW_ASKED_S:
            self._row_asked[row] = now
            self._ring.tell(hop, RowAsk(self._ring.local, row))

    def _to_other(self, pending: PendingHop, hop: NodeInfo | None, now: float) -> None:
        """Pass a message to the nearest other node, because the local node is nearest but excluded as root."""
        if hop is not None and hop.id not in pending.tried:
            self._forward(pending, hop, now)
        elif self._ring.leaves.is_complete and hop is None:
            self._drop(pending, "there is no other node")
        else:
            pending.tried = ()
            self._hold(pending, now)

    def _dispatch_relay(self, pending: PendingHop, key: int, now: float) -> None:
        ring = self._ring
        message = pending.message
        if key == ring.place:
            if self.is_genuine(message, now):
                self.arrived.append(message)
            return
        target = ring.leaves.get(key) or ring.links.get(NodeId(message.key))
        if target is not None and target.id not in pending.tried and ring.is_reachable(target, now):
            self._forward(pending, target, now)
            return
        hop = self._relay_hop(pending, key, now)
        if hop is None:
            ring.counters.relays_dropped += 1
            self._drop(pending, "the receiver is not in the ring")
        else:
            self._forward(pending, hop, now)

    def _relay_hop(self, pending: PendingHop, key: int, now: float) -> NodeInfo | None:
        """Return the next hop towards a node without a link."""
        ring = self._ring
        leaves = ring.leaves
        away = {position(node) for node in (*pending.tried, *pending.message.path)}
        if not ring.is_active and not ring.is_left:
            # A joiner's leaf set proves nothing yet, but its linked nodes are in the ring.
            links = [info for info in ring.links.values() if position(info.id) not in away]
            return ring.nearest_reachable(key, away, now) or (links[0] if links else None)
        if not leaves.covers(key):
            return self._hop_by_table(pending, key, now)
        # A live receiver has links to nodes near it; the local node has none.
        target = leaves.get(key)
        nearest = ring.nearest_reachable(key, away | {key}, now)
        if nearest is None or not (pending.tried or target or is_nearer(key, position(nearest.id), ring.place)):
            return None
        return nearest

    def _hop_by_table(self, pending: PendingHop, key: int, now: float) -> NodeInfo | None:
        ring = self._ring
        tried, path, doubtful = pending.tried, pending.message.path, ring.doubtful
        hop, excluded = ring.table.next_hop(key), pending.message.excludes
        if hop is not None and not (hop.id in tried or hop.id in doubtful or hop.id in path or hop.id in excluded):
            return hop
        if hop is None:
            self._missing_row = shared_digits(ring.place, key)
        avoid = {*tried, *path, *doubtful, *excluded}
        hop = ring.table.detour(key, avoid)
        near = ring.nearest_reachable(key, {position(node) for node in avoid}, now)
        if near is not None and not is_nearer(key, position(near.id), ring.place):
            near = None
        if hop is None or (near is not None and is_nearer(key, position(near.id), position(hop.id))):
            hop = near
        if hop is None and tried:
            # A hop that was silent once is better than none.
            pending.tried = ()
            near = ring.leaves.nearest(key, [position(node) for node in excluded])
            hop = near if near is not None and is_nearer(key, position(near.id), ring.place) else None
        return hop

    def _deliver(self, message: Routed, now: float) -> None:
        ring = self._ring
        if message.path and not self.is_genuine(message, now):  # a message without a path never left this node
            return
        ring.counters.delivered += bool(message.path)
        ring.counters.hops += len(message.path)
        if message.kind is RoutedKind.PAYLOAD:
            ring.emit(Delivered(message.key, message.payload, message.source, message.path, message.held))
        else:
            self.arrived.append(message)

    def _forward(self, pending: PendingHop, hop: NodeInfo, now: float) -> None:
        ring = self._ring
        message = pending.message
        sequence = self.hops.next_sequence()
        nodes = self._with_rows(message) if message.kind is RoutedKind.JOIN else message.nodes
        ring.counters.relayed += bool(message.path)
        path = (*message.path, ring.local.id)
        data = encode_ring_message(
            Routed(
                sequence,
                message.kind,
                message.key,
                message.source,
                message.number,
                path,
                message.excludes,
                message.payload,
                nodes,
                message.signature,
                () if pending.taken_at is None else self._times_with_own(message, pending.taken_at, now),
            )
        )
        ring.tell_bytes(hop, data)
        self.hops.watch(pending, hop, sequence, now)

    def _times_with_own(self, message: Routed, taken_at: float, now: float) -> tuple[int, ...]:
        """Return how long each node of the path kept the message (microseconds), this node last; empty if a time is missing."""
        if len(message.held) != len(message.path):
            return ()
        kept_s = self._ring.read_clock(now) - taken_at
        return (*message.held, min(SEQUENCE_MAX, max(0, round(kept_s * 1e6))))

    def _with_rows(self, message: Routed) -> list[NodeInfo]:
        """Return the rows collected by a join, with the local rows useful to the joiner."""
        ring = self._ring
        if message.source.id == ring.local.id:
            return []
        # Previous hops added the lower rows; higher ones share no more digits with the joiner than this node does.
        key = position(message.key)
        before = shared_digits(position(message.path[-1]), key) if len(message.path) > 1 else 0
        known = {info.id: info for info in message.nodes}
        rows = [info for row in range(before, shared_digits(ring.place, key) + 1) for info in ring.table.row(row)]
        for info in (ring.local, *rows):
            if len(known) < ROWS_TOLD_MAX:
                known.setdefault(info.id, info)
        return list(known.values())

    def _refuse(self, pending: PendingHop, node: NodeId, now: float) -> None:
        """Avoid a hop that could not take a message, without counting an attempt; hold the message if no hop is left.

        In a partition all hops of one side fail at once, before any is declared dead.
        """
        pending.tried = (*pending.tried, node)
        if pending.message.kind is not RoutedKind.RELAY:
            pending.attempts -= 1
            pending.refusals += 1
            if pending.refusals >= REFUSALS_MAX:
                pending.refusals = 0
                pending.tried = ()
                self._hold(pending, now)
                return
        self._again(pending, now)

    def _again(self, pending: PendingHop, now: float) -> None:
        ring = self._ring
        attempts_max = RELAY_ATTEMPTS if pending.message.kind is RoutedKind.RELAY else ring.config.route_attempts
        if pending.attempts >= attempts_max:
            ring.counters.given_up += 1
            self._drop(pending, "no hop accepted it")
            return
        ring.counters.retransmissions += 1
        self._dispatch(pending, now)

    def _drop(self, pending: PendingHop, reason: str) -> None:
        message, ring = pending.message, self._ring
        if message.source.id != ring.local.id:
            return
        if not ring.signer.verify(ring.local.id, signed_part(message), message.signature):
            ring.counters.signatures_invalid += 1  # another node made the message in this node's name
            return
        if message.kind is RoutedKind.PAYLOAD:
            self._ring.emit(Undeliverable(message.key, message.payload, reason))
        elif message.kind is RoutedKind.RELAY:
            relayed = decode_ring_message(message.payload)
            if isinstance(relayed, Direct):
                self._ring.emit(Undeliverable(message.key, relayed.payload, reason))

    def _hold(self, pending: PendingHop, now: float) -> None:
        ring = self._ring
        if len(self._held) >= HELD_MAX:
            self._drop(self._held.pop(0), "too many messages wait for their root to be known")
            ring.counters.held_dropped += 1
        if pending.held_since is None:
            pending.held_since = now
        self._held.append(pending)
        key = (Timer.HELD, None)
        if key not in ring.timers:
            ring.timers.set(key, now + ring.config.hop_timeout_s)

    def _is_root(self, message: Routed, hop: NodeInfo) -> bool:
        """Return whether a hop is the root of a message, as far as known, and so cannot be avoided."""
        leaves = self._ring.leaves
        key = position(message.key)
        if not leaves.covers(key):
            return False
        nearest = leaves.nearest(key, [position(node) for node in message.excludes])
        return nearest is not None and nearest.id == hop.id
