"""The routed ring of one node: Pastry with the consistency of MSPastry.

Sources: Rowstron and Druschel 2001; Castro, Costa, Rowstron, "Performance and Dependability of Structured Peer-to-Peer
Overlays", DSN 2004.

The root of a key is the live node nearest to it, and only the root delivers. What keeps that true:

- Nobody enters a leaf set without having answered, and a node answers for its keys only when all of its leaves have
  acknowledged it, that is, have it in theirs (`neighbours`).
- Nobody leaves a leaf set but by death, which the owner reports. A node that is merely doubtful keeps its keys (`routing`).
- A node that has lost a whole side of its leaf set delivers nothing on that side until it has found the far edge of the gap.

A join is `joining`, messages on their way are `routing`, the leaf set is `neighbours`, two rings become one in `merging`; they
share a `Ring` of data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import InfoError, MessageError, UnknownMessageError
from iris_overlay.ids import ID_BYTES, RING, NodeId, is_nearer, position
from iris_overlay.messages import NodeInfo, check_info
from iris_overlay.ring.core import Core
from iris_overlay.ring.events import PeerViolated, Received
from iris_overlay.ring.messages import (
    PAYLOAD_BYTES_MAX,
    Direct,
    Got,
    Leaving,
    Returned,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
)
from iris_overlay.ring.state import DOUBTFUL_MAX, LINKS_MAX, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng, Signer
    from iris_overlay.ring.config import PastryConfig
    from iris_overlay.ring.events import PastryEvent
    from iris_overlay.ring.state import PastryCounters


#: The largest estimate of the size of a network. Nodes choose their own ids, and whoever crowds around this one would make it
#: believe in more nodes than a message can name.
SIZE_MAX: Final = 1 << 32


class Pastry:
    """Take part in a ring of nodes, and route messages to the node nearest to a key.

    After any input or command the owner applies the outputs, in this order, and repeats while something moved:

    1. `messages_to_send`: give each to the link of its peer, in order; dial if there is none. A node info without addresses
       is known by a link alone: without that, report `contact_failed`.
    2. `events_received`: in the order given.
    3. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Nothing from a peer raises. Errors of the owner raise before any state changes.
    """

    __slots__ = ("_core", "_ring")

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng, signer: Signer) -> None:
        """Create a node that is in no ring yet.

        Args:
            local: The node itself.
            config: The constants.
            rng: A source of randomness for jitter; nothing secret depends on it.
            signer: Signs for the node, and checks what others signed.

        Raises:
            InfoError: No peer would accept this node.
        """
        check_info(local)
        self._core = core = Core(local, config, rng, signer)
        self._ring = core.ring

    @property
    def counters(self) -> PastryCounters:
        """Return what was dropped or done again, by reason."""
        return self._ring.counters

    def intern_infos(self, intern: Callable[[NodeInfo], NodeInfo]) -> None:
        """Let tables keep the info that a function returns for an equal one: many nodes in one process share them then."""
        self._ring.intern = intern

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Let a clock show how long a turn takes already, for `Delivered.held`; without it, time stands still within a turn."""
        self._ring.clock = clock

    def start_alone(self, now: float) -> None:
        """Begin a ring of one. Active at once."""
        self._core.become_active(now)
        self._core.finish_turn(now)

    def join_via(self, contact: NodeInfo, now: float) -> None:
        """Join the ring of a node that a link is open to; call it again with others at any time. `Activated` follows."""
        ring = self._ring
        if ring.is_active or ring.is_left or contact.id == ring.local.id:
            return
        joining, router = self._core.joining, self._core.router
        joining.add_contact(contact)
        if joining.is_waiting:
            joining.ask_untried(router, now)
        elif (Timer.JOIN, None) not in ring.timers or not joining.is_asking:
            joining.ask(router, now)

    def receive(self, peer: NodeId, message: bytes, now: float) -> None:
        """Handle a link message of a peer. Nothing raises: a malformed one becomes `PeerViolated`."""
        ring = self._ring
        try:
            decoded = decode_ring_message(message)
        except UnknownMessageError:
            ring.counters.messages_unknown += 1
            return
        except MessageError as exc:
            ring.counters.messages_invalid += 1
            ring.emit(PeerViolated(peer, str(exc)))
            return
        # Whoever left may still have something to pass on, but is no part of the ring.
        is_welcome = peer not in ring.dead or self._core.revive(peer, now)
        if not is_welcome and not isinstance(decoded, Routed | Got | Direct | Returned):
            return
        self._core.handle(peer, decoded, now)
        self._core.finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle that a link to a peer is open, whoever dialled."""
        links = self._ring.links
        links.pop(info.id, None)
        if len(links) >= LINKS_MAX:
            # Not a leaf: whoever opens many links must not make the node forget that it has those to its neighbours.
            leaves = self._ring.leaves
            del links[next((node for node in links if position(node) not in leaves), next(iter(links)))]
        links[info.id] = info
        self._core.neighbours.link_opened(info.id, now)
        if info.id in self._ring.dead:
            self._core.revive(info.id, now)
            self._core.finish_turn(now)

    def link_closed(self, peer: NodeId, now: float) -> None:
        """Handle that there is no link to a peer any more; that says nothing about its life.

        What it did not acknowledge is sent again: it may have been on the link.
        """
        if self._ring.links.pop(peer, None) is not None:
            self._core.router.link_lost(peer, now)
            self._core.neighbours.link_lost(peer, now)
            self._core.joining.link_lost(peer, now)
            self._core.finish_turn(now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Handle that a peer is dead: a restarted process has another id."""
        if not self._ring.dead.has_left(peer):
            self._core.lose(peer, now + self._ring.config.dead_memory_s, now)

    def peer_doubtful(self, peer: NodeId, doubtful: bool, now: float) -> None:
        """Route around a peer, or not any more. It keeps its keys: nobody else delivers them until `peer_dead`."""
        if not doubtful:
            self._ring.doubtful.pop(peer, None)
        elif self._ring.find(peer) is not None:
            table = self._ring.doubtful
            if peer not in table and len(table) >= DOUBTFUL_MAX:
                del table[next(iter(table))]
            table[peer] = None

    def give_back(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Handle that there was no room for messages to a peer, or a dial takes long; they are sent another way."""
        for data in undelivered:
            if self._core.relaying.send_another_way(peer, data, now):
                probe = self._core.neighbours.relayed_probe(peer, now)
                if probe is not None:
                    self._core.relaying.relay(peer, probe, now)
        self._core.finish_turn(now)

    def contact_failed(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Handle that messages could not be given to a peer; they are sent another way."""
        ring = self._ring
        ring.links.pop(peer, None)
        ring.table.remove(peer)
        self._core.joining.drop_contact(peer)
        for data in undelivered:
            self._core.relaying.send_another_way(peer, data, now)
        ring.unreachable.add(peer, now + ring.config.unreachable_memory_s)
        probe = self._core.neighbours.relayed_probe(peer, now)
        if probe is not None:
            self._core.relaying.relay(peer, probe, now)
        else:
            self._core.neighbours.unreachable(peer, now)
        self._core.router.hop_failed(peer, now)
        self._core.finish_turn(now)

    def rtt_measured(self, peer: NodeId, rtt_s: float, now: float) -> None:
        """Learn how near a peer is."""
        info = self._ring.find(peer)
        if info is not None:
            self._ring.consider(info, rtt_s)
            self._core.router.hops.expect(peer, rtt_s)

    def merge_with(self, contact: NodeInfo, now: float) -> None:
        """Look whether a node that a link is open to is in the same ring, and merge the two rings if it is not."""
        self._core.merging.seek(contact, self._core.router, now)
        self._core.finish_turn(now)

    def ask(self, info: NodeInfo, now: float) -> None:
        """Have a peer show over its link that it lives: it answers with its leaf set. Harmless if it has left.

        Without a link it is asked through the ring as well: to dial it may take longer than it has.
        """
        ring, neighbours, peer = self._ring, self._core.neighbours, info.id
        if not (ring.is_left or ring.dead.has_left(peer)):
            neighbours.probe_with_leaves(ring.find(peer) or info, now)
            self._core.finish_turn(now)  # It is relayed by now if nobody can dial it.
            probe = None if peer in ring.links or neighbours.is_relaying(peer) else neighbours.relayed_probe(peer, now)
            if probe is not None:
                self._core.relaying.relay(peer, probe, now)
                self._core.finish_turn(now)

    def meet(self, info: NodeInfo, now: float) -> None:
        """Handle that a node showed that it lives: it is probed if it belongs into the leaf set and is not there."""
        ring = self._ring
        if ring.is_active and ring.leaves.admits(position(info.id)) and ring.revive(info.id):
            self._core.neighbours.hear((info,), now)
            self._core.finish_turn(now)

    def resume(self, now: float) -> None:
        """Handle that this node stood still: its neighbours may have buried it."""
        if self._ring.is_active:
            self._core.neighbours.spread_news(now)
            self._core.finish_turn(now)

    def handover_done(self, to: NodeInfo, now: float) -> None:
        """Handle that what a `HandoverWanted` asked for was sent."""
        self._core.neighbours.handover_done(to.id, now)

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""
        for timer, item in self._ring.timers.expired(now):
            self._core.handle_timer(timer, item, now)
        self._core.finish_turn(now)

    def route(
        self,
        key: bytes,
        payload: bytes,
        now: float,
        *,
        exclude_self: bool = False,
        around: NodeId | None = None,
        is_timed: bool = False,
    ) -> None:
        """Send to the root of a key. `Delivered` follows there, which may be here; `Undeliverable` here when it is given up.

        Args:
            key: ID_BYTES.
            payload: At most PAYLOAD_BYTES_MAX.
            now: Monotonic seconds.
            exclude_self: Deliver at the nearest node other than the local one.
            around: A node that does not count as root, and is not on the way as far as the local node can see to it; nor is the
                first hop that the message would take otherwise.
            is_timed: Whether `Delivered.held` is wanted.

        Raises:
            InfoError: The key or the payload has a wrong size.
        """
        _check(key, payload)
        excludes: tuple[NodeId, ...] = (self._ring.local.id,) if exclude_self else ()
        tried: tuple[NodeId, ...] = ()
        if around is not None:
            excludes, tried = (*excludes, around), (around, *self._core.router.usual_hop(key))
        self._core.router.originate(RoutedKind.PAYLOAD, key, payload, now, excludes=excludes, tried=tried, is_timed=is_timed)
        self._core.finish_turn(now)

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
        self._core.relaying.send(peer, Direct(ring.local, payload), now)
        self._core.finish_turn(now)

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
            self._core.relaying.send_back(path, encode_ring_message(Direct(ring.local, payload)))

    def leave(self, now: float) -> None:
        """Tell the leaf set and everybody who has a link to this node. It is inactive then, and acknowledges nothing."""
        ring = self._ring
        if ring.is_left:
            return
        told = {info.id: info for info in (*ring.leaves.members(), *ring.links.values())}
        self._core.router.hops.flush()
        ring.is_active = False
        ring.is_left = True
        self._core.joining.stop()
        for info in told.values():
            if ring.is_reachable(info, now):
                ring.tell(info, Leaving())
            else:
                self._core.relaying.relay(info.id, encode_ring_message(Leaving()), now)
        self._core.router.release_held(now)

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

    def find(self, node: NodeId) -> NodeInfo | None:
        """Return what is known about a node that there is a link to, or that is in the leaf set or the table."""
        return self._ring.find(node)

    def has_left(self, node: NodeId) -> bool:
        """Return whether a node said good-bye."""
        return self._ring.dead.has_left(node)

    def is_leaf(self, node: NodeId) -> bool:
        """Return whether a node is in the leaf set."""
        return position(node) in self._ring.leaves

    def admits(self, node: NodeId) -> bool:
        """Return whether a node would be in the leaf set if it were in the same ring."""
        return self._ring.leaves.admits(position(node))

    def right_neighbour(self) -> NodeInfo | None:
        """Return the next node clockwise."""
        right = self._ring.leaves.right
        return right[0] if right else None

    def size_estimate(self) -> int:
        """Return about how many nodes the ring has, from how densely the leaves lie; with few nodes exactly.

        The relative standard deviation is about 1 / sqrt(16), a quarter.
        """
        leaves = self._ring.leaves
        if leaves.is_complete or leaves.extent is None or len(leaves) < self._ring.config.leaf_half:
            return len(leaves) + 1  # Two that are left of a damaged leaf set may lie side by side.
        return min(SIZE_MAX, max(len(leaves) + 1, round(len(leaves) * RING / max(1, leaves.extent))))

    def state_sizes(self) -> dict[str, int]:
        """Return how many entries the tables have that grow with the network or its traffic, by name: for metrics and tests."""
        ring = self._ring
        sizes = {"leaves": len(ring.leaves), "table": len(ring.table), "links": len(ring.links), "dead": len(ring.dead)}
        return sizes | self._core.router.state_sizes()

    def messages_to_send(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the link messages to send."""
        return self._ring.take_messages()

    def events_received(self) -> list[PastryEvent]:
        """Take what happened."""
        return self._ring.take_events()

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        return self._ring.timers.deadline()


def _check(key: bytes, payload: bytes) -> None:
    if len(key) != ID_BYTES:
        raise InfoError(f"a key of {len(key)} bytes: pass {ID_BYTES}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InfoError(f"a payload of {len(payload)} bytes: send at most {PAYLOAD_BYTES_MAX}")
