"""The routed ring of one node: Pastry (Rowstron and Druschel 2001) with the consistency of MSPastry (Castro, Costa, Rowstron,
"Performance and Dependability of Structured Peer-to-Peer Overlays", DSN 2004).

The root of a key is the live node nearest to it, and only the root delivers. What keeps that true:

- Nobody enters a leaf set without having answered, and a node answers for its keys only when all of its leaves have
  acknowledged it, that is, have it in theirs (`neighbours`).
- Nobody leaves a leaf set but by death, which the owner reports. A node that is merely doubtful keeps its keys (`routing`).
- A node that has lost a whole side of its leaf set delivers nothing on that side until it has found the far edge of the gap.

A join is `joining`, messages on their way are `routing`, the leaf set is `neighbours`, two rings become one in `merging`; they
share a `Ring` of data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from overlay.errors import InfoError, MessageError
from overlay.graves import NEVER
from overlay.ids import ID_BYTES, NodeId, is_nearer, position
from overlay.joining import Joining
from overlay.merging import Merging
from overlay.messages import NodeInfo, check_info
from overlay.neighbours import Neighbours
from overlay.pastry_events import Activated, PeerViolated, Received
from overlay.relaying import Relaying
from overlay.ring import LINKS_MAX, Ring, Timer
from overlay.routing import Router
from overlay.routing_messages import (
    PAYLOAD_BYTES_MAX,
    Direct,
    Got,
    JoinAnswer,
    JoinWaiting,
    Kind,
    LeafAck,
    LeafProbe,
    Leaving,
    MergeHint,
    Returned,
    Routed,
    RowAnswer,
    RowAsk,
    decode_ring_message,
    encode_ring_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from overlay.config import Rng
    from overlay.pastry_config import PastryConfig
    from overlay.pastry_events import PastryEvent
    from overlay.ring import PastryCounters
    from overlay.routing_messages import RingMessage


class Pastry:
    """Take part in a ring of nodes, and route messages to the node nearest to a key.

    After any input or command the owner applies the outputs, in this order, and repeats while something moved:

    1. `messages_to_send`: give each to the link of its peer, in order; dial if there is none. A node info without addresses
       is known by a link alone: without that, report `contact_failed`.
    2. `events_received`: in the order given.
    3. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Nothing from a peer raises. Errors of the owner raise before any state changes.
    """

    __slots__ = ("_is_answered", "_joining", "_merging", "_neighbours", "_relaying", "_ring", "_router")

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng) -> None:
        """Create a node that is in no ring yet.

        Raises:
            InfoError: No peer would accept this node.
        """
        check_info(local)
        self._ring = ring = Ring(local, config, rng)
        self._router = Router(ring)
        self._relaying = Relaying(ring, self._router)
        self._neighbours = Neighbours(ring)
        self._joining = Joining(ring)
        self._merging = Merging(ring)
        self._is_answered = False  # Whether a ring told this joiner where it belongs.

    @property
    def counters(self) -> PastryCounters:
        """Return what was dropped or done again, by reason."""
        return self._ring.counters

    def intern_infos(self, intern: Callable[[NodeInfo], NodeInfo]) -> None:
        """Let tables keep the info that a function returns for an equal one: many nodes in one process share them then."""
        self._ring.intern = intern

    def start_alone(self, now: float) -> None:
        """Begin a ring of one. Active at once."""
        self._become_active(now)
        self._finish_turn(now)

    def join_via(self, contact: NodeInfo, now: float) -> None:
        """Join the ring of a node that a link is open to; call it again with others at any time. `Activated` follows."""
        ring = self._ring
        if ring.is_active or ring.is_left or contact.id == ring.local.id:
            return
        self._joining.add_contact(contact)
        if (Timer.JOIN, None) not in ring.timers or not self._joining.is_asking:
            self._joining.ask(self._router, now)

    def receive(self, peer: NodeId, message: bytes, now: float) -> None:
        """Handle a link message of a peer. Nothing raises: a malformed one becomes `PeerViolated`."""
        ring = self._ring
        try:
            decoded = decode_ring_message(message)
        except MessageError as exc:
            ring.counters.messages_invalid += 1
            ring.emit(PeerViolated(peer, str(exc)))
            return
        if peer in ring.dead and not self._revive(peer, now):
            return
        self._handle(peer, decoded, now)
        self._finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle that a link to a peer is open, whoever dialled."""
        links = self._ring.links
        links.pop(info.id, None)
        if len(links) >= LINKS_MAX:
            del links[next(iter(links))]
        links[info.id] = info
        if info.id in self._ring.dead:
            self._revive(info.id, now)
            self._finish_turn(now)

    def link_closed(self, peer: NodeId, now: float) -> None:
        """Handle that there is no link to a peer any more; that says nothing about its life.

        What it did not acknowledge is sent again: it may have been on the link.
        """
        if self._ring.links.pop(peer, None) is not None:
            self._router.link_lost(peer, now)
            self._finish_turn(now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Handle that a peer is dead: a restarted process has another id."""
        if not self._ring.dead.has_left(peer):
            self._lose(peer, now + self._ring.config.dead_memory_s, now)

    def peer_left(self, peer: NodeId, now: float) -> None:
        """Handle that a peer left the network in good order."""
        self._lose(peer, NEVER, now)

    def peer_doubtful(self, peer: NodeId, doubtful: bool, now: float) -> None:
        """Route around a peer, or not any more. It keeps its keys: nobody else delivers them until `peer_dead`."""
        if not doubtful:
            self._ring.doubtful.pop(peer, None)
        elif self._ring.find(peer) is not None:
            self._ring.doubtful[peer] = None

    def contact_failed(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Handle that messages could not be given to a peer; they are sent another way."""
        ring = self._ring
        ring.links.pop(peer, None)
        ring.table.remove(peer)
        self._joining.drop_contact(peer)
        for data in undelivered:
            self._relaying.send_another_way(peer, data, now)
        ring.unreachable.add(peer, now + ring.config.dead_memory_s)
        probe = self._neighbours.relayed_probe(peer, now)
        if probe is not None:
            self._relaying.relay(peer, probe, now)
        else:
            self._neighbours.unreachable(peer, now)
        self._router.hop_failed(peer, now)
        self._finish_turn(now)

    def rtt_measured(self, peer: NodeId, rtt_s: float, now: float) -> None:
        """Learn how near a peer is."""
        info = self._ring.find(peer)
        if info is not None:
            self._ring.consider(info, rtt_s)
            self._router.hops.expect(peer, rtt_s)

    def merge_with(self, contact: NodeInfo, now: float) -> None:
        """Look whether a node that a link is open to is in the same ring, and merge the two rings if it is not."""
        self._merging.seek(contact, self._router, now)
        self._finish_turn(now)

    def handover_done(self, to: NodeInfo, now: float) -> None:
        """Handle that what a `HandoverWanted` asked for was sent."""
        self._neighbours.handover_done(to.id, now)

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""
        for timer, item in self._ring.timers.expired(now):
            self._handle_timer(timer, item, now)
        self._finish_turn(now)

    def route(self, key: bytes, payload: bytes, now: float, *, exclude_self: bool = False) -> None:
        """Send to the root of a key. `Delivered` follows there, which may be here; `Undeliverable` here when it is given up.

        Args:
            key: ID_BYTES.
            payload: At most PAYLOAD_BYTES_MAX.
            now: Monotonic seconds.
            exclude_self: Deliver at the nearest node other than the local one.

        Raises:
            InfoError: The key or the payload has a wrong size.
        """
        _check(key, payload)
        self._router.originate(Kind.PAYLOAD, key, payload, now, excludes_source=exclude_self)
        self._finish_turn(now)

    def send(self, peer: NodeInfo, payload: bytes, now: float) -> None:
        """Send to a node directly; if it cannot be dialled, through the ring. `Received` follows there.

        Raises:
            InfoError: The payload is too large.
        """
        _check(peer.id, payload)
        ring = self._ring
        if peer.id == ring.local.id:
            ring.emit(Received(ring.local, payload))
            return
        self._relaying.send(peer, Direct(ring.local, payload), now)
        self._finish_turn(now)

    def answer(self, path: tuple[NodeId, ...], payload: bytes, now: float) -> None:
        """Send back along the path of a `Delivered`; where that is broken, through the ring. `Received` follows at path[0].

        Raises:
            InfoError: The payload is too large.
        """
        ring = self._ring
        _check(path[0] if path else ring.local.id, payload)
        if not path or path[0] == ring.local.id:
            ring.emit(Received(ring.local, payload))
        else:
            self._relaying.send_back(path, ring.local, encode_ring_message(Direct(ring.local, payload)))

    def leave(self, now: float) -> None:
        """Tell the leaf set and everybody who has a link to this node. It is inactive then, and acknowledges nothing."""
        ring = self._ring
        if ring.is_left:
            return
        told = {info.id: info for info in (*ring.leaves.members(), *ring.links.values())}
        self._router.hops.flush()
        ring.is_active = False
        ring.is_left = True
        self._joining.stop()
        for info in told.values():
            ring.tell(info, Leaving())
        self._router.release_held(now)

    def is_root(self, key: bytes) -> bool:
        """Return whether the local node is active, and the nearest to a key of all nodes it knows to live."""
        ring = self._ring
        place = position(key)
        if not ring.is_active or not ring.leaves.covers(place) or ring.leaves.is_in_gap(place):
            return False
        nearest = ring.leaves.nearest(place)
        return nearest is None or is_nearer(place, ring.place, position(nearest.id))

    @property
    def is_active(self) -> bool:
        """Return whether the node is part of a ring."""
        return self._ring.is_active

    def leaves(self) -> list[NodeInfo]:
        """Return the leaf set: the nearest on either side alternately."""
        return self._ring.leaves.neighbours(len(self._ring.leaves))

    def replicas(self, key: bytes, count: int = 2) -> list[NodeInfo]:
        """Return the leaves nearest to a key, the local node not among them."""
        return self._ring.leaves.nearest_members(position(key), count)

    def known(self) -> list[NodeInfo]:
        """Return the leaf set and the table."""
        ring = self._ring
        return list({info.id: info for info in (*ring.leaves.members(), *ring.table.entries())}.values())

    def contact_ids_needed(self) -> list[NodeId]:
        """Return whose life matters, who should be probed and whose links kept: leaf set and table, and whom it awaits."""
        ids = dict.fromkeys(info.id for info in self.known())
        ids.update(dict.fromkeys(self._neighbours.awaited()))
        ids.update(dict.fromkeys(info.id for info in self._joining.contacts()))
        return list(ids)

    def state_sizes(self) -> dict[str, int]:
        """Return how many entries the tables have that grow with the network or its traffic, by name: for metrics and tests."""
        ring = self._ring
        sizes = {"leaves": len(ring.leaves), "table": len(ring.table), "links": len(ring.links), "dead": len(ring.dead)}
        return sizes | self._router.state_sizes()

    def messages_to_send(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the link messages to send."""
        return self._ring.take_messages()

    def events_received(self) -> list[PastryEvent]:
        """Take what happened."""
        return self._ring.take_events()

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        return self._ring.timers.deadline()

    def _handle(self, peer: NodeId, message: RingMessage, now: float) -> None:
        handler = _HANDLERS[type(message)]
        handler(self, peer, message, now)

    def _on_routed(self, peer: NodeId, message: Routed, now: float) -> None:
        if self._ring.is_left:
            return
        if message.kind is Kind.JOIN and not self._ring.is_active:
            self._joining.receive_request(message, peer)
        self._router.receive(peer, message, now)

    def _on_got(self, peer: NodeId, message: Got, now: float) -> None:
        self._router.hops.receive_got(peer, message, now)

    def _on_direct(self, peer: NodeId, message: Direct, now: float) -> None:
        self._ring.emit(Received(message.source, message.payload))

    def _on_returned(self, peer: NodeId, message: Returned, now: float) -> None:
        if message.path:
            self._relaying.send_back(message.path, message.source, message.payload)
        else:
            self._unwrap(message.payload, now)

    def _on_probe(self, peer: NodeId, message: LeafProbe, now: float) -> None:
        if self._is_sent_by(peer, message.info.id):
            self._neighbours.receive_probe(message, now)

    def _on_ack(self, peer: NodeId, message: LeafAck, now: float) -> None:
        if self._is_sent_by(peer, message.info.id):
            self._neighbours.receive_ack(message, now)

    def _is_sent_by(self, peer: NodeId, claimed: NodeId) -> bool:
        """Return whether to look at a probe or its answer: whoever speaks for another could put it into leaf sets."""
        if peer != claimed or claimed == self._ring.local.id:
            self._ring.emit(PeerViolated(peer, "a probe in the name of another node"))
            return False
        return not self._ring.is_left

    def _on_join_answer(self, peer: NodeId, message: JoinAnswer, now: float) -> None:
        ring = self._ring
        if ring.is_left:
            return
        ring.learn(message.nodes, now)
        if not ring.is_active:
            self._is_answered = True
            ring.timers.set((Timer.JOIN, None), now + ring.config.probe_timeout_s + ring.config.join_retry_s)
        self._neighbours.hear((message.info, *message.leaves), now)

    def _on_join_waiting(self, peer: NodeId, message: JoinWaiting, now: float) -> None:
        if not self._ring.is_active and not self._ring.is_left:
            self._joining.receive_waiting(message, now)

    def _on_row_ask(self, peer: NodeId, message: RowAsk, now: float) -> None:
        ring = self._ring
        row = ring.table.row(message.row)
        if row and ring.is_active:
            ring.tell(message.info, RowAnswer(row))

    def _on_row_answer(self, peer: NodeId, message: RowAnswer, now: float) -> None:
        self._ring.learn(message.nodes, now)

    def _on_hint(self, peer: NodeId, message: MergeHint, now: float) -> None:
        self._merging.receive_hint(message, now)

    def _on_leaving(self, peer: NodeId, message: Leaving, now: float) -> None:
        self._lose(peer, NEVER, now)

    def _handle_timer(self, timer: Timer, item: NodeId | int | None, now: float) -> None:
        ring = self._ring
        if timer is Timer.HOP:
            self._router.hop_timed_out(cast("int", item), now)
        elif timer is Timer.ACKNOWLEDGE:
            self._router.hops.flush()
        elif timer is Timer.HELD:
            self._router.release_held(now)
        elif ring.is_left:
            return
        elif timer is Timer.PROBE:
            node = cast("NodeId", item)
            probe = self._neighbours.probe_timed_out(node, now)
            if probe is not None:
                self._relaying.relay(node, probe, now)
        elif timer is Timer.HANDOVER:
            self._neighbours.handover_done(cast("NodeId", item), now)
        elif timer is Timer.REPAIR:
            self._neighbours.repair(now)
        elif timer is Timer.NEWS:
            self._neighbours.spread_news(now)
        elif timer is Timer.EXCHANGE:
            self._neighbours.exchange(now)
            self._router.purge(now)
        elif timer is Timer.SEEK:
            self._merging.seek_hinted(self._router, now)
        elif timer is Timer.JOIN and not ring.is_active:
            self._retry_join(now)

    def _retry_join(self, now: float) -> None:
        if not self._joining.should_start_alone():
            self._joining.ask(self._router, now)
            return
        self._become_active(now)

    def _become_active(self, now: float) -> None:
        ring = self._ring
        if ring.is_active or ring.is_left:
            return
        ring.is_active = True
        contacts = self._joining.stop()
        self._neighbours.become_active()
        ring.timers.set((Timer.EXCHANGE, None), now + ring.config.exchange_interval_s * ring.rng.uniform(0.1, 1.0))
        ring.emit(Activated())
        for contact in contacts:
            self._merging.seek(contact, self._router, now)
        self._router.release_held(now)

    def _finish_turn(self, now: float) -> None:
        """Carry between the parts what came up; each step may cause another."""
        ring, neighbours, router = self._ring, self._neighbours, self._router
        while router.arrived or neighbours.has_closed:
            if neighbours.has_closed:
                neighbours.has_closed = False
                if not ring.is_active and self._is_answered and len(ring.leaves):
                    self._become_active(now)
                elif router.has_held():
                    router.release_held(now)
            arrived, router.arrived = router.arrived, []
            for message in arrived:
                if message.kind is Kind.JOIN:
                    self._joining.answer(message, neighbours)
                elif message.kind is Kind.SEEK:
                    self._merging.receive_seek(message, neighbours, now)
                else:
                    self._unwrap(message.payload, now)
        if neighbours.has_news:
            neighbours.has_news = False
            if (Timer.NEWS, None) not in ring.timers:
                ring.timers.set((Timer.NEWS, None), now + ring.config.news_delay_s)

    def _unwrap(self, data: bytes, now: float) -> None:
        """Handle a link message that came through the ring."""
        unwrapped = self._relaying.unwrap(data)
        if unwrapped is not None:
            peer, message = unwrapped
            if peer not in self._ring.dead or self._revive(peer, now):
                self._handle(peer, message, now)

    def _revive(self, peer: NodeId, now: float) -> bool:
        """Handle that a node believed dead has sent something; return False if it had left."""
        ring = self._ring
        if not ring.revive(peer):
            return False
        info = ring.links.get(peer)
        if info is not None and ring.is_active:
            self._neighbours.hear((info,), now)
        return True

    def _lose(self, peer: NodeId, until: float, now: float) -> None:
        ring = self._ring
        ring.dead.add(peer, until)
        ring.links.pop(peer, None)
        ring.doubtful.pop(peer, None)
        ring.table.remove(peer)
        self._joining.drop_contact(peer)
        self._neighbours.lose(peer, now)
        self._router.hop_failed(peer, now)
        self._finish_turn(now)


def _check(key: bytes, payload: bytes) -> None:
    if len(key) != ID_BYTES:
        raise InfoError(f"a key of {len(key)} bytes: pass {ID_BYTES}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InfoError(f"a payload of {len(payload)} bytes: send at most {PAYLOAD_BYTES_MAX}")


_HANDLERS: dict[type[RingMessage], Callable[[Pastry, NodeId, Any, float], None]] = {
    LeafProbe: Pastry._on_probe,
    LeafAck: Pastry._on_ack,
    Routed: Pastry._on_routed,
    Got: Pastry._on_got,
    Direct: Pastry._on_direct,
    Returned: Pastry._on_returned,
    JoinAnswer: Pastry._on_join_answer,
    JoinWaiting: Pastry._on_join_waiting,
    RowAsk: Pastry._on_row_ask,
    RowAnswer: Pastry._on_row_answer,
    MergeHint: Pastry._on_hint,
    Leaving: Pastry._on_leaving,
}
