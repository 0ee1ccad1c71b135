"""The dispatch within the ring: pass messages to the components, and results between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from iris_overlay.ring.events import Activated, PeerLeft, PeerViolated, Received
from iris_overlay.ring.join import Joining, Merging
from iris_overlay.ring.memory import NEVER
from iris_overlay.ring.messages import (
    Direct,
    Got,
    JoinAnswer,
    JoinWaiting,
    LeafAck,
    LeafProbe,
    Leaving,
    MergeHint,
    Returned,
    Routed,
    RoutedKind,
    RowAnswer,
    RowAsk,
)
from iris_overlay.ring.neighbours import Neighbours
from iris_overlay.ring.relay import Relaying
from iris_overlay.ring.routing import Router
from iris_overlay.ring.state import Ring, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng, Signer
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.config import PastryConfig
    from iris_overlay.ring.messages import RingMessage


class Core:
    """The components of a node's ring, composed for `Pastry`: dispatches messages to the components, and results among them."""

    __slots__ = ("_is_answered", "joining", "merging", "neighbours", "relaying", "ring", "router")

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng, signer: Signer) -> None:
        self.ring = ring = Ring(local, config, rng, signer)
        self.router = Router(ring)
        self.relaying = Relaying(ring, self.router)
        self.neighbours = Neighbours(ring)
        self.joining = Joining(ring)
        self.merging = Merging(ring)
        self._is_answered = False  # whether a ring told this joiner its place

    def handle(self, peer: NodeId, message: RingMessage, now: float) -> None:
        """Pass a message of a peer, received over its link or through the ring, to the component concerned."""
        handler = _HANDLERS[type(message)]
        handler(self, peer, message, now)

    def _on_routed(self, peer: NodeId, message: Routed, now: float) -> None:
        if self.ring.is_left:
            return
        if message.kind is RoutedKind.JOIN and not self.ring.is_active:
            self.joining.receive_request(message, peer)
        self.router.receive(peer, message, now)

    def _on_got(self, peer: NodeId, message: Got, now: float) -> None:
        self.router.hops.receive_got(peer, message, now)

    def _on_direct(self, peer: NodeId, message: Direct, now: float) -> None:
        if message.source.id != peer:
            self.ring.emit(PeerViolated(peer, "a message in the name of another node"))
        else:
            self.ring.emit(Received(message.source, message.payload))

    def _on_returned(self, peer: NodeId, message: Returned, now: float) -> None:
        if message.path:
            self.relaying.pass_back(message)
        elif message.to == self.ring.local.id and self.router.is_genuine(message, now):
            self._unwrap(message.payload, now, message.source.id)

    def _on_probe(self, peer: NodeId, message: LeafProbe, now: float) -> None:
        if self._is_sent_by(peer, message.info.id):
            self.neighbours.receive_probe(message, now)

    def _on_ack(self, peer: NodeId, message: LeafAck, now: float) -> None:
        if self._is_sent_by(peer, message.info.id):
            if not self._is_answered and message.is_active and message.is_whole:
                # A node that has this joiner in its leaf set knows as much as the root of its id. That root may be joining too,
                # and wait for this node.
                self._is_answered = any(leaf.id == self.ring.local.id for leaf in message.leaves)
            self.neighbours.receive_ack(message, now)

    def _is_sent_by(self, peer: NodeId, claimed: NodeId) -> bool:
        """Return whether a message comes from the node it describes; else a peer could put other nodes into leaf sets."""
        if peer != claimed or claimed == self.ring.local.id:
            self.ring.emit(PeerViolated(peer, "a message in the name of another node"))
            return False
        return not self.ring.is_left

    def _on_join_answer(self, peer: NodeId, message: JoinAnswer, now: float) -> None:
        ring = self.ring
        if not self._is_sent_by(peer, message.info.id):
            return
        ring.learn(message.nodes, now)
        if not ring.is_active:
            self._is_answered = True
            ring.timers.set((Timer.JOIN, None), now + ring.config.probe_timeout_s + ring.config.join_retry_s)
        self.neighbours.hear((message.info, *message.leaves), now)
        if not (ring.is_active or self.neighbours.is_searching):
            # The answer is late: all nodes named in it have probed this joiner before, and acknowledged it.
            self.neighbours.has_closed = True

    def _on_join_waiting(self, peer: NodeId, message: JoinWaiting, now: float) -> None:
        if self._is_sent_by(peer, message.info.id) and not self.ring.is_active:
            self.joining.receive_waiting(message, self.router, now)

    def _on_row_ask(self, peer: NodeId, message: RowAsk, now: float) -> None:
        ring = self.ring
        row = ring.table.row(message.row)
        if self._is_sent_by(peer, message.info.id) and row and ring.is_active:
            ring.tell(message.info, RowAnswer(row))

    def _on_row_answer(self, peer: NodeId, message: RowAnswer, now: float) -> None:
        self.ring.learn(message.nodes, now)

    def _on_hint(self, peer: NodeId, message: MergeHint, now: float) -> None:
        self.merging.receive_hint(message, now)

    def _on_leaving(self, peer: NodeId, message: Leaving, now: float) -> None:
        self.lose(peer, NEVER, now)
        self.ring.emit(PeerLeft(peer))

    def handle_timer(self, timer: Timer, item: NodeId | int | None, now: float) -> None:
        """Pass an expired deadline to the component concerned."""
        ring = self.ring
        if timer is Timer.HOP:
            self.router.hop_timed_out(cast("int", item), now)
        elif timer is Timer.ACKNOWLEDGE:
            self.router.hops.flush()
        elif timer is Timer.HELD:
            self.router.release_held(now)
        elif ring.is_left:
            return
        elif timer is Timer.PROBE:
            node = cast("NodeId", item)
            probe = self.neighbours.probe_timed_out(node, now)
            if probe is not None:
                self.relaying.relay(node, probe, now)
        elif timer is Timer.HANDOVER:
            self.neighbours.handover_done(cast("NodeId", item), now)
        elif timer is Timer.REPAIR:
            self.neighbours.repair(now)
        elif timer is Timer.NEWS:
            self.neighbours.spread_news(now)
        elif timer is Timer.HIDDEN:
            self._ask_hidden(cast("NodeId", item), now)
        elif timer is Timer.GIVEN_UP:
            self.neighbours.ask_again(cast("NodeId", item), now)
        elif timer is Timer.EXCHANGE:
            self.neighbours.exchange(now)
            self.router.purge(now)
        elif timer is Timer.SEEK:
            self.merging.seek_hinted(self.router, now)
        elif timer is Timer.JOIN and not ring.is_active:
            self._retry_join(now)

    def _ask_hidden(self, node: NodeId, now: float) -> None:
        probe = self.neighbours.ask_hidden(node, now)
        if probe is not None:
            self.relaying.relay(node, probe, now)

    def _retry_join(self, now: float) -> None:
        if not self.joining.should_start_alone():
            self.joining.ask(self.router, now)
            return
        self.become_active(now)

    def become_active(self, now: float) -> None:
        """Become part of the ring: report activation, serve keys, and send the held messages."""
        ring = self.ring
        if ring.is_active or ring.is_left:
            return
        ring.is_active = True
        contacts = self.joining.stop()
        self.neighbours.become_active()
        ring.timers.set((Timer.EXCHANGE, None), now + ring.config.exchange_interval_s * ring.rng.uniform(0.1, 1.0))
        ring.emit(Activated())
        for contact in contacts:
            self.merging.seek(contact, self.router, now)
        self.router.release_held(now)

    def finish_turn(self, now: float) -> None:
        """Pass results between the components until none is left."""
        ring, neighbours, router = self.ring, self.neighbours, self.router
        while router.arrived or neighbours.has_closed:
            if neighbours.has_closed:
                neighbours.has_closed = False
                if not ring.is_active and self._is_answered and len(ring.leaves):
                    self.become_active(now)
                elif router.has_held():
                    router.release_held(now)
            arrived, router.arrived = router.arrived, []
            for message in arrived:
                if message.kind is RoutedKind.JOIN:
                    self.joining.answer(message, neighbours, self.relaying)
                elif message.kind is RoutedKind.SEEK:
                    probe = self.merging.receive_seek(message, neighbours, now)
                    if probe is not None:
                        self.relaying.send_back(message.path, probe)
                else:
                    self._unwrap(message.payload, now, message.source.id)
        if neighbours.has_changed:
            neighbours.has_changed = False
            neighbours.gather_news(now)

    def _unwrap(self, data: bytes, now: float, source: NodeId) -> None:
        """Handle a link message that came through the ring from an authenticated node."""
        unwrapped = self.relaying.unwrap(data, source, now)
        if unwrapped is not None:
            peer, message = unwrapped
            # An answer to a joiner stays valid, and may well arrive, after the death of its sender.
            is_life = not isinstance(message, Leaving | JoinAnswer)
            if is_life and peer in self.ring.dead and not self.revive(peer, now):
                return
            self.handle(peer, message, now)
            answer = self.neighbours.relayed_ack(message.info) if isinstance(message, LeafProbe) else None
            if answer is not None:
                self.relaying.relay(peer, answer, now)

    def revive(self, peer: NodeId, now: float) -> bool:
        """Believe a node alive again after a message of its own; return False if the node had left for good."""
        ring = self.ring
        if not ring.revive(peer):
            return False
        info = ring.links.get(peer)
        if info is not None and ring.is_active:
            self.neighbours.hear((info,), now)
        return True

    def lose(self, peer: NodeId, until: float, now: float) -> None:
        """Remove a dead or departed node from the leaf set and the table, and send its messages another way."""
        ring = self.ring
        ring.dead.add(peer, until)
        if until != NEVER:
            ring.links.pop(peer, None)  # the link to a leaving node closes a little later
        ring.doubtful.pop(peer, None)
        ring.table.remove(peer)
        self.joining.drop_contact(peer)
        self.neighbours.lose(peer, now, is_told=until == NEVER)
        self.router.hop_failed(peer, now)
        self.finish_turn(now)


_HANDLERS: dict[type[RingMessage], Callable[[Core, NodeId, Any, float], None]] = {
    LeafProbe: Core._on_probe,
    LeafAck: Core._on_ack,
    Routed: Core._on_routed,
    Got: Core._on_got,
    Direct: Core._on_direct,
    Returned: Core._on_returned,
    JoinAnswer: Core._on_join_answer,
    JoinWaiting: Core._on_join_waiting,
    RowAsk: Core._on_row_ask,
    RowAnswer: Core._on_row_answer,
    MergeHint: Core._on_hint,
    Leaving: Core._on_leaving,
}
