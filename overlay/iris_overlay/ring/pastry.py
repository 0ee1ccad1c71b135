"""The routed ring of one node: Pastry with the consistency of MSPastry.

Sources: Rowstron and Druschel 2001; Castro, Costa, Rowstron, "Performance and Dependability of Structured Peer-to-Peer
Overlays", DSN 2004.

The root of a key is the live node nearest to it, and only the root delivers. Three rules keep this true:

- No node enters a leaf set without an answer. A node serves its keys only when all of its leaves have acknowledged it and have
  it in their own leaf sets (`neighbours`).
- A node leaves a leaf set only by death, reported by the owner, or departure. A doubtful node keeps its keys (`routing`).
- A node without any leaf left on a side delivers nothing there until it has found the far edge of the gap.

`joining` joins and merges rings, `routing` forwards messages, and `neighbours` maintains the leaf set. These components share
the data in a `Ring` (state.py), and `Core` passes messages and results between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import InfoError, MessageError, UnknownMessageError
from iris_overlay.ids import ID_BYTES, RING, NodeId, is_nearer, position
from iris_overlay.node_info import NodeInfo, check_info
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


#: The largest estimate of the size of a network. Node ids can be chosen, so an attacker who surrounds this node could make the
#: estimate larger than a message can encode.
SIZE_MAX: Final = 1 << 32


class Pastry:
    """Take part in a ring of nodes, and route messages to the node nearest to a key.

    After any input or command the owner applies the outputs in this order, and repeats until no output is left:

    1. `messages_to_send`: pass each to the link of its peer, in order; dial a peer without a link. A node info without
    addresses can be reached only by a link: without a link, report `contact_failed`.
    2. `events_received`: in the given order.
    3. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Input from peers never raises. Errors of the owner raise before any state changes.
    """

    __slots__ = ("_core", "_ring")

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng, signer: Signer) -> None:
        """Create a node that is in no ring yet.

        Args:
            local: The node itself.
            config: The constants.
            rng: A source of randomness for jitter; no secret depends on it.
            signer: Signs for the node, and verifies signatures of others.

        Raises:
            InfoError: Every peer would reject this node.
        """
        check_info(local)
        self._core = core = Core(local, config, rng, signer)
        self._ring = core.ring

    @property
    def counters(self) -> PastryCounters:
        """The counters of dropped and repeated messages, by reason."""
        return self._ring.counters

    def intern_infos(self, intern: Callable[[NodeInfo], NodeInfo]) -> None:
        """Let tables keep the info returned by a function for an equal one; many nodes in one process can then share infos."""
        self._ring.intern = intern

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Use a clock to measure the time within a turn, for `Delivered.held`; without one, time stands still within a turn."""
        self._ring.clock = clock

    def start_alone(self, now: float) -> None:
        """Start a ring of one; the node is active at once."""
        self._core.become_active(now)
        self._core.finish_turn(now)

    def join_via(self, contact: NodeInfo, now: float) -> None:
        """Join the ring of a linked node. `Activated` follows. Further calls with other nodes may come at any time."""
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
        """Handle a link message from a peer. Never raises: a malformed message becomes `PeerViolated`."""
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
        # A departed node may still have messages to pass on, but is no part of the ring.
        is_welcome = peer not in ring.dead or self._core.revive(peer, now)
        if not is_welcome and not isinstance(decoded, Routed | Got | Direct | Returned):
            return
        self._core.handle(peer, decoded, now)
        self._core.finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Note a new link to a peer, dialled by either side."""
        links = self._ring.links
        links.pop(info.id, None)
        if len(links) >= LINKS_MAX:
            # Keep the links to leaves: an attacker with many links must not make the node forget its neighbours' links.
            leaves = self._ring.leaves
            del links[next((node for node in links if position(node) not in leaves), next(iter(links)))]
        links[info.id] = info
        self._core.neighbours.link_opened(info.id, now)
        if info.id in self._ring.dead:
            self._core.revive(info.id, now)
            self._core.finish_turn(now)

    def link_closed(self, peer: NodeId, now: float) -> None:
        """Note the end of a link, which proves nothing about the peer's life.

        Unacknowledged messages are sent again, because the link may have lost them.
        """
        if self._ring.links.pop(peer, None) is not None:
            self._core.router.link_lost(peer, now)
            self._core.neighbours.link_lost(peer, now)
            self._core.joining.link_lost(peer, now)
            self._core.finish_turn(now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Remove a dead peer, and send its messages another way; a restarted process has another id."""
        if not self._ring.dead.has_left(peer):
            self._core.lose(peer, now + self._ring.config.dead_memory_s, now)

    def peer_doubtful(self, peer: NodeId, doubtful: bool, now: float) -> None:
        """Route around a peer, or no longer. The peer keeps its keys: no other node delivers them until `peer_dead`."""
        if not doubtful:
            self._ring.doubtful.pop(peer, None)
        elif self._ring.find(peer) is not None:
            table = self._ring.doubtful
            if peer not in table and len(table) >= DOUBTFUL_MAX:
                del table[next(iter(table))]
            table[peer] = None

    def give_back(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Send messages for a peer another way, because they found no room or wait too long for a dial."""
        for data in undelivered:
            if self._core.relaying.send_another_way(peer, data, now):
                probe = self._core.neighbours.relayed_probe(peer, now)
                if probe is not None:
                    self._core.relaying.relay(peer, probe, now)
        self._core.finish_turn(now)

    def contact_failed(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Send messages another way, because no link to their receiver can be opened."""
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
        """Note the round-trip time of a peer, for the choice of table entries and for time-outs."""
        info = self._ring.find(peer)
        if info is not None:
            self._ring.consider(info, rtt_s)
            self._core.router.hops.expect(peer, rtt_s)

    def merge_with(self, contact: NodeInfo, now: float) -> None:
        """Check whether a linked node is in the same ring, and merge the two rings if not."""
        self._core.merging.seek(contact, self._core.router, now)
        self._core.finish_turn(now)

    def ask(self, info: NodeInfo, now: float) -> None:
        """Ask a peer for a sign of life, its leaf set, over the link. Harmless after the peer's departure.

        A peer without a link is asked through the ring too, because a dial may take too long.
        """
        ring, neighbours, peer = self._ring, self._core.neighbours, info.id
        if not (ring.is_left or ring.dead.has_left(peer)):
            neighbours.probe_with_leaves(ring.find(peer) or info, now)
            self._core.finish_turn(now)  # an undialable peer has its relayed probe by now
            probe = None if peer in ring.links or neighbours.is_relaying(peer) else neighbours.relayed_probe(peer, now)
            if probe is not None:
                self._core.relaying.relay(peer, probe, now)
                self._core.finish_turn(now)

    def meet(self, info: NodeInfo, now: float) -> None:
        """Probe a node that gave a sign of life, if it belongs in the leaf set but is missing."""
        ring = self._ring
        if ring.is_active and ring.leaves.admits(position(info.id)) and ring.revive(info.id):
            self._core.neighbours.hear((info,), now)
            self._core.finish_turn(now)

    def resume(self, now: float) -> None:
        """Send the leaf set to neighbours after a standstill of this process: they may believe the local node dead."""
        if self._ring.is_active:
            self._core.neighbours.spread_news(now)
            self._core.finish_turn(now)

    def handover_done(self, to: NodeInfo, now: float) -> None:
        """Acknowledge a new root after the owner has handed its state over, as `HandoverWanted` asks."""
        self._core.neighbours.handover_done(to.id, now)

    def handle_timeout(self, now: float) -> None:
        """Act on the deadlines that have passed; harmless if early."""
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
        """Send a payload to the root of a key. `Delivered` follows there, possibly here; `Undeliverable` if it is given up.

        Args:
            key: The destination, ID_BYTES.
            payload: At most PAYLOAD_BYTES_MAX.
            now: Monotonic seconds.
            exclude_self: Whether to deliver at the nearest node other than the local one.
            around: A node that does not count as root. The message avoids this node, and the usual first hop, as far as the
                local node can decide.
            is_timed: Whether to report `Delivered.held`.

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
        """Send a payload to a node directly, or through the ring if it is undialable. `Received` follows there.

        Raises:
            InfoError: The payload is too large.
        """
        _check(peer.id, payload)
        ring = self._ring
        if peer.id == ring.local.id:
            ring.emit(Received(ring.local, payload))
            return
        self._core.relaying.send(peer, payload, now)
        self._core.finish_turn(now)

    def answer(self, path: tuple[NodeId, ...], payload: bytes, now: float) -> None:
        """Send a payload back along the path of a `Delivered`, or through the ring. `Received` follows at path[0].

        Raises:
            InfoError: The payload is too large.
        """
        ring = self._ring
        _check(path[0] if path else ring.local.id, payload)
        if not path or path[0] == ring.local.id:
            ring.emit(Received(ring.local, payload))
        else:
            self._core.relaying.send_back(path, ring.encode_direct(payload))

    def leave(self, now: float) -> None:
        """Tell the leaf set and all linked nodes of the local node's departure; then be inactive, and acknowledge nothing."""
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
        """Return whether the local node is active, and of all known live nodes the nearest to a key."""
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

    def others(self) -> list[NodeInfo] | None:
        """Return the other nodes of the ring; None unless all are known: of a small ring, while none is missing."""
        leaves = self._ring.leaves
        return leaves.members() if self._ring.is_active and leaves.is_complete else None

    def replicas(self, key: bytes, count: int = 2) -> list[NodeInfo]:
        """Return the leaves nearest to a key, without the local node."""
        return self._ring.leaves.nearest_members(position(key), count)

    def known(self) -> list[NodeInfo]:
        """Return the nodes in the leaf set and the routing table."""
        ring = self._ring
        return list({info.id: info for info in (*ring.leaves.members(), *ring.table.entries())}.values())

    def find(self, node: NodeId) -> NodeInfo | None:
        """Return the info of a node that has a link, or is in the leaf set or the table; None for other nodes."""
        return self._ring.find(node)

    def has_left(self, node: NodeId) -> bool:
        """Return whether a node has left in good order."""
        return self._ring.dead.has_left(node)

    def is_leaf(self, node: NodeId) -> bool:
        """Return whether a node is in the leaf set."""
        return position(node) in self._ring.leaves

    def admits(self, node: NodeId) -> bool:
        """Return whether a node would be in the leaf set if it were in the same ring."""
        return self._ring.leaves.admits(position(node))

    def right_neighbour(self) -> NodeInfo | None:
        """Return the next node clockwise, or None."""
        right = self._ring.leaves.right
        return right[0] if right else None

    def size_estimate(self) -> int:
        """Return the estimated number of nodes in the ring, from the density of the leaves; exact for few nodes.

        The relative standard deviation is about 1 / sqrt(16), a quarter.
        """
        leaves = self._ring.leaves
        if leaves.is_complete or leaves.extent is None or len(leaves) < self._ring.config.leaf_half:
            return len(leaves) + 1  # two remaining leaves of a damaged set may be adjacent
        return min(SIZE_MAX, max(len(leaves) + 1, round(len(leaves) * RING / max(1, leaves.extent))))

    def state_sizes(self) -> dict[str, int]:
        """Return the sizes of the tables that grow with the network or its traffic, by name: for metrics and tests."""
        ring = self._ring
        sizes = {"leaves": len(ring.leaves), "table": len(ring.table), "links": len(ring.links), "dead": len(ring.dead)}
        return sizes | self._core.router.state_sizes()

    def messages_to_send(self) -> list[tuple[NodeInfo, bytes]]:
        """Remove and return the link messages to send."""
        return self._ring.take_messages()

    def events_received(self) -> list[PastryEvent]:
        """Remove and return the events for the owner."""
        return self._ring.take_events()

    def deadline(self) -> float | None:
        """Return the next time for `handle_timeout`, or None."""
        return self._ring.timers.deadline()


def _check(key: bytes, payload: bytes) -> None:
    if len(key) != ID_BYTES:
        raise InfoError(f"a key of {len(key)} bytes: pass {ID_BYTES}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InfoError(f"a payload of {len(payload)} bytes: send at most {PAYLOAD_BYTES_MAX}")
