"""Leaf set maintenance: probe nodes before they enter, and replace dead ones (Castro, Costa, Rowstron, DSN 2004, 3.1).

No node enters the leaf set by hearsay. A node heard of, and near enough, is sent a `LeafProbe`. The `LeafAck` proves that the
node lives **and has the prober in its own leaf set**. Both messages carry leaf sets, so nearer nodes are heard of and probed
until no nearer node is left: the search is closed. A node adds the prober before it acknowledges. So of two nodes joining
beside each other, at least one hears of the other from a shared leaf before activation.

After a death, the farthest live leaf of that side is probed, because its leaf set reaches farther. When a whole side is gone,
the nearest known node in that direction is asked, then nearer nodes from its answer, so the gap is crossed in a few steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.ids import RING, clockwise, position
from iris_overlay.ring.events import HandoverWanted, LeavesDoubted, PeerAnswered, PeerSilent
from iris_overlay.ring.leafset import span
from iris_overlay.ring.messages import LEAVES_TOLD_MAX, LeafAck, LeafProbe, RowAsk, encode_ring_message
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.state import Ring

#: The largest number of concurrent probes: a leaf set and the same number again; other nodes wait among the heard ones. Too
#: small: searches take more rounds; too large: bursts of dials.
PROBES_MAX: Final = 32

#: The largest number of nodes heard of that wait for their probe. Beyond it new ones are dropped, and mentioned again later.
#: Too small: searches take longer; too large: a liar costs more memory and dials.
HEARD_MAX: Final = 128

#: The number of probes through the ring to an undialable node, which may not be in all leaf sets yet. Too small: a live node is
#: missed; too large: a dead one delays the search.
RELAYS_MAX: Final = 3

#: The time between questions through the ring to a leaf without address and link: no other sign shows that it lives. Too small:
#: messages for each such pair of leaves. Too large: a dead one stays in the leaf set for longer.
HIDDEN_ASKED_S: Final = 4.0

#: The number of consecutive unanswered questions after which a leaf without address and link counts as dead. Too small: while
#: two rings merge, a path to the leaf and back is found late, and a live leaf counts as dead. Too large: a dead one stays in
#: the leaf set for longer.
HIDDEN_UNANSWERED_MAX: Final = 4

#: The largest number of leaves without an address that are asked in turn. Beyond it former leaves are forgotten. Too small:
#: each new one causes a scan. Too large: memory, for attackers that come nearer and nearer.
HIDDEN_MAX: Final = 64

#: The time after which a node without an answer is asked again, because during a merge a path to it and back may be missing.
#: Too small: it is still missing. Too large: the node is missing in the leaf set for that time.
GIVEN_UP_S: Final = 5.0

#: The number of times that a node without an answer is asked again after `GIVEN_UP_S`. Too small: a node asked just before the
#: end of a partition is missing until its death is forgotten. Too large: dead nodes mentioned by others are dialled that often.
ASKED_AGAIN_MAX: Final = 2

#: The number of nodes from the table to include in an acknowledgement, on either side of the prober.
NEAR_TOLD: Final = 4


class Neighbours:
    """Maintain the leaf set: probe nodes before they enter, acknowledge probes, and replace dead leaves."""

    __slots__ = (
        "_acknowledged",
        "_exchange_right",
        "_given_up",
        "_has_lost_neighbour",
        "_heard",
        "_hidden",
        "_is_doubted",
        "_is_to_repeat",
        "_owed",
        "_probes",
        "_repair_attempts",
        "_ring",
        "_unanswered",
        "has_changed",
        "has_closed",
        "is_searching",
    )

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.is_searching = False
        # Flags for Core to take: the search is closed; the leaf set has news, by a node of another ring or the neighbour's
        # death.
        self.has_closed = False
        self.has_changed = False
        # Unanswered probes, with the number sent through the ring because the node is undialable.
        self._probes: dict[NodeId, tuple[NodeInfo, int]] = {}
        # Nodes that missed the time-out, with the number of misses: the answer of an undialable node may come late, through the
        # ring.
        self._given_up: dict[NodeId, tuple[NodeInfo, int]] = {}
        # Leaves without an address that are asked through the ring, with the number of consecutive unanswered questions.
        self._unanswered: dict[NodeId, int] = {}
        # Leaves with a scheduled question. Invariant: includes all of _unanswered.
        self._hidden: dict[NodeId, None] = {}
        self._heard: dict[int, NodeInfo] = {}
        # While joining: the nodes that have this node in their leaf sets. Emptied when active.
        self._acknowledged: dict[NodeId, None] = {}
        # Acknowledgements that wait for a handover.
        self._owed: dict[NodeId, NodeInfo] = {}
        self._repair_attempts = 0
        self._is_doubted = False
        # The right-hand neighbour died; only this node watches it closely.
        self._has_lost_neighbour = False
        self._is_to_repeat = False
        self._exchange_right = False

    def hear(self, infos: Iterable[NodeInfo], now: float) -> None:
        """Probe the nodes mentioned by others that would be leaves."""
        ring, leaves, heard = self._ring, self._ring.leaves, self._heard
        for info in infos:
            place = position(info.id)
            if place in heard or not self._is_wanted(info, place) or ring.dead.has(info.id, now):
                continue
            if len(heard) < HEARD_MAX:
                heard[place] = info
                self.is_searching = True
        if self.is_searching:
            for place in leaves.wanted(place for place in heard if place not in leaves):
                self.probe(heard[place], now)
            if not ring.is_active:
                for place in [place for place in heard if place in leaves]:
                    self.probe(heard[place], now)
            self._maybe_close(now)

    def probe(self, info: NodeInfo, now: float) -> None:
        """Probe a node, unless a probe is running or done."""
        # A node may have acknowledged but since been displaced, by others that then died.
        is_done = info.id in self._acknowledged and position(info.id) in self._ring.leaves
        if info.id in self._probes or is_done or len(self._probes) >= PROBES_MAX:
            return
        self._probes[info.id] = (info, 0)
        self.is_searching = True
        self._send_probe(info, now)

    def probe_with_leaves(self, info: NodeInfo, now: float) -> None:
        """Send a node the leaf set, and ask for its own."""
        if info.id in self._probes:
            # Changes since that probe have to be sent too.
            self._send_probe(info, now)
        else:
            self.probe(info, now)

    def receive_probe(self, probe: LeafProbe, now: float) -> None:
        """Add the prober, hand state over to it, acknowledge the probe, and probe nearer nodes mentioned in it."""
        ring = self._ring
        info = probe.info
        is_new = self._add(info, now, is_active=probe.is_active)
        if not ring.is_active and info.id not in self._acknowledged:
            # The prober has heard of this node, but counts as a leaf only when it has this one too.
            if len(self._heard) < HEARD_MAX:
                self._heard.setdefault(position(info.id), info)
            self.is_searching = True
        if is_new and ring.is_active and ring.leaves.is_neighbour(position(info.id)):
            self._owed[info.id] = info
            ring.timers.set((Timer.HANDOVER, info.id), now + ring.config.handover_timeout_s)
            ring.emit(HandoverWanted(info))
        elif info.id not in self._owed:
            self._acknowledge(info)
        if probe.is_active:
            self._compare(info, probe.leaves, now)
        self.hear(probe.leaves, now)

    def relayed_ack(self, info: NodeInfo) -> bytes | None:
        """Return the answer to a probe through the ring, to be sent the same way; None with a link or a pending handover.

        The prober doubts this node's life, and a dial may take longer than the prober waits.
        """
        if info.id in self._ring.links or info.id in self._owed:
            return None
        return encode_ring_message(self._make_ack(info))

    def receive_ack(self, ack: LeafAck, now: float) -> None:
        """Add a node that answered a probe, and probe nearer nodes mentioned in the answer."""
        ring = self._ring
        info = ack.info
        if info.id in self._unanswered:
            self._expect_hidden(info, now)
        is_late = self._forget_given_up(info.id)
        if info.id not in ring.links:
            ring.emit(PeerAnswered(info.id))  # the only sign of life if a firewall drops datagrams
        if self._probes.pop(info.id, None) is None and not is_late:
            return
        ring.timers.cancel((Timer.PROBE, info.id))
        is_new = self._add(info, now, is_active=ack.is_active)
        if not ring.is_active:
            self._note_acknowledged(info.id)
        elif is_new and ring.leaves.is_neighbour(position(info.id)):
            ring.emit(HandoverWanted(info))
        self._is_doubted |= not ack.is_whole or any(ring.dead.has(leaf.id, now) for leaf in ack.leaves)
        if ack.is_active:
            self._compare(info, ack.leaves, now)
        self.hear(ack.leaves, now)
        self._maybe_close(now)

    def handover_done(self, node: NodeId, now: float) -> None:
        """Send the acknowledgement that waited for a handover."""
        info = self._owed.pop(node, None)
        if info is not None:
            self._ring.timers.cancel((Timer.HANDOVER, node))
            self._acknowledge(info)

    def lose(self, node: NodeId, now: float, *, is_told: bool) -> None:
        """Remove a dead or departed node, and look for a replacement if it was a leaf.

        Args:
            node: The node.
            now: The time.
            is_told: Whether the node itself told its leaves.
        """
        ring = self._ring
        self._owed.pop(node, None)
        self._acknowledged.pop(node, None)
        self._forget_given_up(node)
        self._forget_hidden(node)
        right = ring.leaves.right
        if right and right[0].id == node and not is_told:
            # The detectors of its other leaves probe it only rarely, or when told.
            self._has_lost_neighbour = self.has_changed = True
        info = ring.leaves.get(position(node))
        was_leaf = ring.leaves.remove(node)
        self.give_up(node, now)
        if info is not None and not (info.addresses or is_told):
            # The node may live, but cannot be dialled to find out; during a merge a path to it may be missing.
            self._note_given_up(info, now)
        if was_leaf and not ring.is_left:
            self._repair_attempts = 0
            self.repair(now)

    def link_opened(self, node: NodeId, now: float) -> None:
        """Repeat over a new link a probe sent through the ring, which may be lost while two rings merge."""
        info, relays = self._probes.get(node, (None, 0))
        if info is not None and relays:
            self._probes[node] = (info, 0)
            self._send_probe(info, now)

    def link_lost(self, node: NodeId, now: float) -> None:
        """Repeat a probe if a broken link may have lost it or its answer."""
        probe = self._probes.get(node)
        if probe is not None:
            self._send_probe(probe[0], now)

    def give_up(self, node: NodeId, now: float) -> None:
        """Stop waiting for a node that does not answer, and consider nodes farther away."""
        ring = self._ring
        self._heard.pop(position(node), None)
        if self._probes.pop(node, None) is not None:
            ring.timers.cancel((Timer.PROBE, node))
            self._is_doubted = True
            self.hear((), now)
            self._maybe_close(now)

    def relayed_probe(self, node: NodeId, now: float) -> bytes | None:
        """Return a probe to send through the ring to an undialable node; None if no further one is useful."""
        ring = self._ring
        info, relays = self._probes.get(node, (None, 0))
        # A node with an address was asked directly too.
        if info is None or relays >= (RELAYS_MAX - 1 if info.addresses else RELAYS_MAX):
            return None
        self._probes[node] = (info, relays + 1)
        ring.timers.set((Timer.PROBE, node), now + ring.config.probe_timeout_s / RELAYS_MAX)
        return encode_ring_message(self._make_probe())

    def is_relaying(self, node: NodeId) -> bool:
        """Return whether a probe of a node was sent through the ring and is unanswered."""
        return self._probes.get(node, (None, 0))[1] > 0

    def probe_timed_out(self, node: NodeId, now: float) -> bytes | None:
        """Return a further probe to send through the ring, see `relayed_probe`; if none is useful, give the node up."""
        if node not in self._ring.links or self._probes.get(node, (None, 0))[1]:
            data = self.relayed_probe(node, now)
            if data is not None:
                return data
        self.unreachable(node, now)
        return None

    def unreachable(self, node: NodeId, now: float) -> None:
        """Give up a node after its last probe failed; ask a node that is no leaf again later."""
        ring = self._ring
        if node in self._probes and position(node) not in ring.leaves:
            ring.dead.add(node, now + ring.config.dead_memory_s)
            self._note_given_up(self._probes[node][0], now)
        self.give_up(node, now)

    def _note_given_up(self, info: NodeInfo, now: float) -> None:
        """Remember a node that did not answer, and ask it again later, a few times."""
        _, times = self._given_up.get(info.id, (None, 0))
        if not times and len(self._given_up) >= HEARD_MAX:
            self._forget_given_up(next(iter(self._given_up)))
        self._given_up[info.id] = (info, times + 1)
        if times < ASKED_AGAIN_MAX:
            self._ring.timers.set((Timer.GIVEN_UP, info.id), now + GIVEN_UP_S)

    def _forget_given_up(self, node: NodeId) -> bool:
        """Stop asking a node that did not answer; return whether it was remembered."""
        self._ring.timers.cancel((Timer.GIVEN_UP, node))
        return self._given_up.pop(node, None) is not None

    def ask_again(self, node: NodeId, now: float) -> None:
        """Probe a node without an answer again, unless its death was observed."""
        given_up = self._given_up.get(node)
        if given_up is not None:
            self._ring.dead.discard(node)
            self.hear(given_up[:1], now)

    def ask_hidden(self, node: NodeId, now: float) -> bytes | None:
        """Return the probe to send through the ring to a leaf without an address; None if not needed.

        Such a leaf cannot be pinged, and without a link its death breaks no link.
        """
        ring = self._ring
        info = ring.leaves.get(position(node))
        if info is None or info.addresses:
            self._forget_hidden(node)
            return None
        if (node in ring.links and node not in self._unanswered) or not ring.is_active:
            self._expect_hidden(info, now)
            return None
        unanswered = self._unanswered.get(node, 0)
        if unanswered >= HIDDEN_UNANSWERED_MAX:
            self._forget_hidden(node)
            ring.emit(PeerSilent(info))
            return None
        self._unanswered[node] = unanswered + 1
        self._ask_hidden_at(node, now + ring.config.probe_timeout_s / RELAYS_MAX)
        return encode_ring_message(self._make_probe())

    def repair(self, now: float) -> None:
        """Probe nodes with possible knowledge of replacements, on the sides that lost leaves."""
        ring = self._ring
        leaves = ring.leaves
        self._is_doubted = False
        # A node that has lost all leaves has no short side, but nodes too far away to be leaves may be left.
        for is_right in leaves.short_sides or ([True, False] if not leaves else []):
            asked = leaves.edge(is_right=is_right) or self._nearest_known(now, is_right=is_right)
            if asked is None:
                continue
            self.is_searching = True
            self.probe(asked, now)
        if leaves.is_short:
            self.is_searching = True
            self._maybe_close(now)

    def exchange(self, now: float) -> None:
        """Compare leaf sets with a random leaf, and a row of the table with a random entry."""
        ring = self._ring
        ring.timers.set((Timer.EXCHANGE, None), now + ring.config.exchange_interval_s * ring.rng.uniform(0.8, 1.2))
        ring.admit_newcomers(now)
        self._exchange_right = not self._exchange_right
        side = ring.leaves.right if self._exchange_right else ring.leaves.left
        if side:
            self.probe_with_leaves(side[ring.rng.randrange(len(side))], now)
        rows = ring.table.rows()
        if rows:
            number = ring.rng.randrange(rows)
            row = ring.table.row(number)
            if row:
                ring.tell(row[ring.rng.randrange(len(row))], RowAsk(ring.local, number))

    def gather_news(self, now: float) -> None:
        """Schedule `spread_news`, twice because two merging rings have wrong edges at first."""
        self._is_to_repeat = True
        timers, config = self._ring.timers, self._ring.config
        if (Timer.NEWS, None) not in timers:
            timers.set((Timer.NEWS, None), now + config.news_delay_s)

    def spread_news(self, now: float) -> None:
        """Send the leaf set to its edges, which may not know new members; to all leaves after the neighbour's death."""
        leaves = self._ring.leaves
        told = {info.id: info for side in (leaves.left, leaves.right) for info in (side[:1] + side[-1:])}
        if self._has_lost_neighbour:
            self._has_lost_neighbour = False
            told = {info.id: info for info in leaves.members()}
        for info in told.values():
            self.probe_with_leaves(info, now)
        if self._is_to_repeat:
            self._is_to_repeat = False
            self._ring.timers.set((Timer.NEWS, None), now + self._settled_check_s())

    def become_active(self) -> None:
        """Forget the state needed only for joining."""
        self._acknowledged = {}

    def told_leaves(self) -> list[NodeInfo]:
        """Return the leaf set for a message, at most LEAVES_TOLD_MAX nodes."""
        return self._ring.leaves.members()[:LEAVES_TOLD_MAX]

    def _compare(self, other: NodeInfo, leaves: list[NodeInfo], now: float) -> None:
        """Ask the owner to check leaves missing at another leaf, if that leaf has members beyond them.

        The detector probes most leaves rarely; the neighbour notices a death. But the neighbour may learn of the death by a
        refused dial, and then tells no other node.
        """
        ring = self._ring
        if not ring.is_active:
            return
        owner, told = position(other.id), {position(info.id) for info in leaves}
        ahead, behind = span(owner, told, ring.config.leaf_half)
        lacking = {position(info.id): info for info in ring.leaves.members() if position(info.id) not in told}
        places = [place for place in lacking if clockwise(owner, place) < ahead or clockwise(place, owner) < behind]
        doubted = [lacking[place] for place in places if place != owner]
        # The other node need not be a leaf here: perhaps only a dead leaf keeps it out.
        if not ring.leaves.admits_without(owner, places):
            return
        if doubted:
            ring.emit(LeavesDoubted([info.id for info in doubted], other.id))
        for info in doubted:
            if not info.addresses and info.id not in self._unanswered:
                # A link may exist, but after a power failure of the host it proves nothing for long.
                self._ask_hidden_at(info.id, now)
                self._unanswered[info.id] = 0

    def _expect_hidden(self, info: NodeInfo, now: float) -> None:
        """Note a sign of life of a leaf without an address, and schedule the next question."""
        self._unanswered.pop(info.id, None)
        self._ask_hidden_at(info.id, now + HIDDEN_ASKED_S * self._ring.rng.uniform(0.8, 1.2))

    def _ask_hidden_at(self, node: NodeId, when: float) -> None:
        ring = self._ring
        if node not in self._hidden and len(self._hidden) >= HIDDEN_MAX:
            for other in [other for other in self._hidden if position(other) not in ring.leaves]:
                self._forget_hidden(other)
        self._hidden[node] = None
        ring.timers.set((Timer.HIDDEN, node), when)

    def _forget_hidden(self, node: NodeId) -> None:
        self._unanswered.pop(node, None)
        if node in self._hidden:
            del self._hidden[node]
            self._ring.timers.cancel((Timer.HIDDEN, node))

    def _note_acknowledged(self, node: NodeId) -> None:
        """Remember a node with the local joiner in its leaf set; keep at most HEARD_MAX former leaves."""
        if len(self._acknowledged) >= HEARD_MAX:
            leaves = self._ring.leaves
            self._acknowledged = {other: None for other in self._acknowledged if position(other) in leaves}
        self._acknowledged[node] = None

    def _is_wanted(self, info: NodeInfo, place: int) -> bool:
        leaves = self._ring.leaves
        if place in leaves:
            return not self._ring.is_active and info.id not in self._acknowledged
        return leaves.admits(place)

    def _add(self, info: NodeInfo, now: float, *, is_active: bool) -> bool:
        ring = self._ring
        place = position(info.id)
        self._heard.pop(place, None)
        if is_active:
            ring.consider(info)
        else:
            ring.note_newcomer(info, now)
        is_new = ring.add_leaf(info)
        if not info.addresses and place in ring.leaves:
            self._expect_hidden(info, now)
        if not is_new:
            return False
        if ring.is_active and is_active and not ring.leaves.is_edge(place):
            # An unknown active node in the middle of the leaf set comes from another ring.
            self.has_changed = True
        return True

    def _send_probe(self, info: NodeInfo, now: float) -> None:
        ring = self._ring
        ring.tell(info, self._make_probe())
        # An undialable node, for example behind a firewall, may be reached through the ring before the dial fails.
        timeout_s = ring.config.probe_timeout_s
        ring.timers.set((Timer.PROBE, info.id), now + (timeout_s if info.id in ring.links else timeout_s / RELAYS_MAX))

    def _make_probe(self) -> LeafProbe:
        # A joiner has nothing to tell: it knows its leaves from other leaves.
        ring = self._ring
        return LeafProbe(ring.local, self.told_leaves() if ring.is_active else [], ring.is_active)

    def _acknowledge(self, info: NodeInfo) -> None:
        self._ring.tell(info, self._make_ack(info))

    def _make_ack(self, info: NodeInfo) -> LeafAck:
        ring = self._ring
        leaves = self.told_leaves()
        place = position(info.id)
        if place not in ring.leaves:
            near = sorted(ring.table.entries(), key=lambda entry: clockwise(place, position(entry.id)))
            near = [entry for entry in near if entry.id != info.id]
            leaves.extend(near[:NEAR_TOLD] + near[NEAR_TOLD:][-NEAR_TOLD:])
        return LeafAck(ring.local, leaves[:LEAVES_TOLD_MAX], ring.is_active, not ring.leaves.is_short)

    def _nearest_known(self, now: float, *, is_right: bool) -> NodeInfo | None:
        """Return the nearest known node in one direction, for a side without members."""
        ring = self._ring
        best, best_distance = None, RING
        for info in (*ring.table.entries(), *ring.leaves.members(), *ring.links.values()):
            distance = clockwise(ring.place, position(info.id))
            distance = distance if is_right else RING - distance
            if distance < best_distance and not ring.dead.has(info.id, now):
                best, best_distance = info, distance
        return best

    def _maybe_close(self, now: float) -> None:
        # Nodes that missed earlier probes are no reason to wait: after a partition one more is always left.
        if not self.is_searching or any(node not in self._given_up for node in self._probes):
            return
        ring = self._ring
        leaves = ring.leaves
        self._heard.clear()
        if leaves.is_short:
            self._repair_attempts += 1
            nobody = not leaves and len(ring.table) == 0
            if not nobody and self._is_doubted and self._repair_attempts <= ring.config.repair_attempts:
                ring.timers.set((Timer.REPAIR, None), now + ring.config.repair_retry_s * ring.rng.uniform(0.8, 1.2))
                return
            for is_right in leaves.short_sides:
                leaves.settle(is_right=is_right)
            # This is an assumption: after a mass failure the asked nodes were repairing too.
            ring.timers.set((Timer.NEWS, None), now + self._settled_check_s())
        self._repair_attempts = 0
        self.is_searching = False
        self.has_closed = True

    def _settled_check_s(self) -> float:
        return self._ring.config.settled_check_s * self._ring.rng.uniform(0.8, 1.2)
