"""The network below `iris_py.testing.cores.pastry`: a heap of events, links between `Pastry` cores, and faults.

Links are ordered, and are dialled for the first message to a peer; a break loses the messages under way. Idle links stay open.
A lost segment delays a link by a retransmission. Nodes have places in a plane, evenly spread or in zones, and latency is
distance. `iris_py.testing.cores.pastry_watch` simulates the detection of deaths.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from iris_overlay.ids import ID_BYTES, RING, NodeId, position
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.config import PastryConfig
from iris_overlay.ring.events import Activated, HandoverWanted, LeavesChanged, LeavesDoubted, PeerViolated
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.pastry_watch import DetectorWatch, ModelledWatch, SimulatedPastry
from iris_py.testing.cores.signer import NamedSigner

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.testing.cores.pastry_watch import RingWatch

DIAL_ROUND_TRIPS: Final = 1.5  # TCP and the handshake, before the first message.
DIAL_TIMEOUT_S: Final = 3.0
RECONTACT_S: Final = 2.0  # The period of new contacts for an inactive node.
RETRANSMIT_S: Final = 0.2  # The smallest timeout of Linux's TCP: the cost of a lost segment on a short path.
ZONE_RADIUS: Final = 0.02  # A fraction of the plane's width: 0.8 ms of 40 ms, a city.


class PastryNetwork:
    """Runs the ring cores (`Pastry`) of many nodes with a virtual clock and faults."""

    def __init__(
        self,
        seed: int,
        config: PastryConfig | None = None,
        *,
        width_s: float = 0.04,
        silence_s: float = 2.5,
        zones: int = 0,
        loss: float = 0.0,
        has_detectors: bool = False,
    ) -> None:
        """Create an empty network.

        Args:
            seed: The seed of all random choices.
            width_s: The latency across the plane.
            silence_s: The time until neighbours detect a silent node, in the modelled watch.
            zones: The number of zones; 0 for evenly spread nodes without a zone.
            loss: The share of lost datagrams, and of lost segments below links.
            has_detectors: Whether to run real failure detectors instead of a model.
        """
        self.rng = random.Random(seed)
        self.config = config or PastryConfig()
        self.now = 0.0
        self.nodes: dict[NodeId, SimulatedPastry] = {}
        self.sent: Counter[int] = Counter()  # Link messages by tag.
        self.bytes_sent = 0
        self.dials = 0
        self.loss = loss
        self.violations: list[PeerViolated] = []
        self._width_s = width_s
        self._centres = [(self.rng.random(), self.rng.random()) for _ in range(zones)]
        self._heap: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self._sequence = 0
        # Positions of live active nodes, by side of the partition.
        self._active: dict[int, list[int]] = {0: [], 1: []}
        self._is_cut = False
        self._infos: dict[NodeId, NodeInfo] = {}
        self.watch: RingWatch = DetectorWatch(self) if has_detectors else ModelledWatch(self, silence_s)

    def start_node(self, contacts: list[SimulatedPastry] | None = None, *, is_dialable: bool = True) -> SimulatedPastry:
        """Start a node that joins through contacts, or begins a ring without contacts."""
        index = len(self.nodes)
        identifier = NodeId(self.rng.randbytes(ID_BYTES))
        where, zone = self._settle()
        info = NodeInfo(identifier, (f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}:9000",) if is_dialable else (), zone)
        self._infos[identifier] = info
        rng = random.Random(self.rng.getrandbits(64))
        pastry = Pastry(info, self.config, rng, NamedSigner(info.id))
        pastry.intern_infos(lambda info: self._infos.get(info.id, info))
        node = self.nodes[identifier] = SimulatedPastry(index, info, pastry, where, self.now)
        node.is_dialable = is_dialable
        self.watch.node_started(node)
        if contacts is None:
            pastry.start_alone(self.now)
        for contact in contacts or ():
            self.dial(node, contact.info.id)
        if contacts is not None:
            self.at(self.now + RECONTACT_S, self._recontact, node)
        self.apply(node)
        return node

    def grow(self, count: int, over_s: float, settle_s: float = 5.0) -> None:
        """Start nodes at random times, each through a random active node."""
        if not self.nodes:
            self.start_node()
        times = sorted(self.now + self.rng.random() * over_s for _ in range(count - len(self.live())))
        for time in times:
            self.run_until(time)
            self.start_node([self.random_active()])
        self.run_for(settle_s)

    def crash(self, node: SimulatedPastry, *, is_silent: bool = False) -> None:
        """End a node without a message. A silent end is detected only by silence."""
        node.is_up = False
        # A modelled detector includes the knowledge gained from dials.
        node.is_silent = is_silent and isinstance(self.watch, DetectorWatch)
        node.stopped_at = self.now
        self._set_active(node, is_active=False)
        self.watch.node_stopped(node, is_silent=is_silent)

    def leave(self, node: SimulatedPastry) -> None:
        """Make a node leave; its links close a second later."""
        node.has_left = True
        node.pastry.leave(self.now)
        self._set_active(node, is_active=False)
        self.apply(node)
        self.at(self.now + 1.0, self.crash, node)

    def split(self, sides: Callable[[SimulatedPastry], int]) -> None:
        """Cut the network in two: ``sides`` gives the side of each node."""
        self._is_cut = True
        for node in self.live():
            node.side = sides(node)
        self._active = {0: [], 1: []}
        for node in self.live():
            if node.pastry.is_active:
                self._set_active(node, is_active=True)
        self.watch.network_cut()

    def heal(self, rememberers: int | None = None) -> None:
        """End the partition. All nodes, or the first ``rememberers``, then dial remembered peers about every ten seconds."""
        self._is_cut = False
        for node in self.live():
            for peer in [peer for peer in node.links if self.nodes[peer].side != node.side]:
                # Messages under way are lost, so the link must not live on, even if neither end has noticed.
                self._close(node, self.nodes[peer])
        for node in self.live():
            node.side = 0
        self._active = {0: sorted([*self._active[0], *self._active[1]]), 1: []}
        for node in self.live()[:rememberers]:
            self.at(self.now + 10.0 * self.rng.random(), self._remember, node)

    def meet(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Make a node dial another: to join through it, or, if active by then, to merge with its ring."""
        node.remembered[other.info.id] = other.info
        self.dial(node, other.info.id)

    def at(self, time: float, what: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401 - of any function
        """Schedule a call."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, what, args))

    def run_until(self, time: float) -> None:
        """Advance the time to a moment."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.now, _, what, args = heappop(heap)
            what(*args)
        self.now = time

    def run_for(self, duration_s: float) -> None:
        """Advance the time."""
        self.run_until(self.now + duration_s)

    def live(self) -> list[SimulatedPastry]:
        """Return the live nodes."""
        return [node for node in self.nodes.values() if node.is_up]

    def random_active(self) -> SimulatedPastry:
        """Return a random active node, on either side of a partition."""
        one, other = self._active[0], self._active[1]
        index = self.rng.randrange(len(one) + len(other))
        return self._at_position(one[index] if index < len(one) else other[index - len(one)])

    def has_active(self) -> bool:
        """Return whether any node is active."""
        return bool(self._active[0] or self._active[1])

    def apply(self, node: SimulatedPastry) -> None:
        """Pass on the outputs of a node's ring core: messages, dials, events and timers."""
        pastry = node.pastry
        while True:
            messages, happened = pastry.messages_to_send(), pastry.events_received()
            if not messages and not happened:
                break
            for to, data in messages:
                self._send(node, to, data)
            for event in happened:
                self._handle(node, event)
        deadline = pastry.deadline()
        if deadline is not None and deadline < node.armed_at:
            node.armed_at = deadline
            self.at(max(deadline, self.now), self._fire, node, deadline)

    def _fire(self, node: SimulatedPastry, armed_at: float) -> None:
        if node.is_up and node.armed_at == armed_at:
            node.armed_at = float("inf")
            node.pastry.handle_timeout(self.now)
            self.apply(node)

    def _handle(self, node: SimulatedPastry, event: object) -> None:
        if isinstance(event, Activated):
            node.active_at = self.now
            self._set_active(node, is_active=True)
            self.watch.leaves_changed(node)
        elif isinstance(event, LeavesChanged):
            self.watch.leaves_changed(node)
        elif isinstance(event, LeavesDoubted):
            self.watch.leaves_doubted(node, event)
        elif isinstance(event, HandoverWanted):
            node.pastry.handover_done(event.to, self.now)
        elif isinstance(event, PeerViolated):
            self.violations.append(event)

    def _send(self, node: SimulatedPastry, to: NodeInfo, data: bytes) -> None:
        self.sent[data[1]] += 1
        self.bytes_sent += len(data)
        if to.id in node.links:
            self._transmit(node, to.id, data)
        elif to.id in node.dialling:
            node.dialling[to.id].append(data)
        else:
            self.dial(node, to.id)
            node.dialling[to.id].append(data)

    def _transmit(self, node: SimulatedPastry, to: NodeId, data: bytes) -> None:
        arrival = max(self.now + self.latency_s(node, self.nodes[to]), node.links[to])
        while self.loss and self.rng.random() < self.loss:
            arrival += RETRANSMIT_S
        node.links[to] = arrival
        self.at(arrival, self._receive, self.nodes[to], node, data)

    def _receive(self, node: SimulatedPastry, sender: SimulatedPastry, data: bytes) -> None:
        if not node.is_up or node.side != sender.side:
            self.watch.message_lost(sender, node)
        elif sender.info.id in node.links:
            self.watch.message_received(node, sender.info.id)
            node.pastry.receive(sender.info.id, data, self.now)
            self.apply(node)

    def dial(self, node: SimulatedPastry, to: NodeId) -> None:
        """Make a node dial another one."""
        other = self.nodes[to]
        node.dialling.setdefault(to, [])
        self.dials += 1
        round_trip = 2 * self.latency_s(node, other)
        if node.side != other.side or other.is_silent:
            self.at(self.now + DIAL_TIMEOUT_S, self._dial_failed, node, other)
        elif not other.is_up or not other.is_dialable:
            self.at(self.now + round_trip, self._dial_failed, node, other)
        else:
            self.at(self.now + DIAL_ROUND_TRIPS * round_trip, self._dialled, node, other)

    def _dialled(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        if not node.is_up:
            return
        if not other.is_up or node.side != other.side:
            self._dial_failed(node, other)
            return
        waiting = node.dialling.pop(other.info.id, [])
        for end, peer in ((node, other), (other, node)):
            end.links.setdefault(peer.info.id, self.now)
            end.pastry.link_opened(peer.info, self.now)
        for data in waiting:
            self._transmit(node, other.info.id, data)
        if not node.pastry.is_active:
            node.pastry.join_via(other.info, self.now)
        elif other.info.id in node.remembered:
            del node.remembered[other.info.id]
            node.pastry.merge_with(other.info, self.now)
        self.apply(node)
        self.apply(other)

    def _dial_failed(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        waiting = node.dialling.pop(other.info.id, [])
        if not node.is_up:
            return
        if node.side == other.side:
            node.remembered.pop(other.info.id, None)
        if other.info.id in node.links:  # The peer dialled meanwhile.
            for data in waiting:
                self._transmit(node, other.info.id, data)
            return
        if node.side == other.side and other.is_dialable and not other.is_silent:
            self.watch.dial_refused(node, other)
        node.pastry.contact_failed(other.info.id, waiting, self.now)
        self.apply(node)

    def _close(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        for end, peer in ((node, other), (other, node)):
            if end.links.pop(peer.info.id, None) is not None and end.is_up:
                end.pastry.link_closed(peer.info.id, self.now)
                self.apply(end)

    def _remember(self, node: SimulatedPastry) -> None:
        if not node.is_up or not node.remembered or self._is_cut:
            return
        peers = list(node.remembered)
        peer = peers[self.rng.randrange(len(peers))]
        if peer in node.links:
            del node.remembered[peer]
            node.pastry.merge_with(self.nodes[peer].info, self.now)
            self.apply(node)
        elif peer not in node.dialling:
            self.dial(node, peer)
        self.at(self.now + self.rng.uniform(8.0, 12.0), self._remember, node)

    def _recontact(self, node: SimulatedPastry) -> None:
        if node.is_up and not node.pastry.is_active and self.has_active():
            self.dial(node, self.random_active().info.id)
            self.at(self.now + RECONTACT_S, self._recontact, node)

    def near(self, node: SimulatedPastry) -> list[SimulatedPastry]:
        """Return the nodes that may have this node in their leaf set (ring neighbours)."""
        places = self._active[node.side]
        index = bisect_left(places, position(node.info.id))
        near = {places[(index + step) % len(places)] for step in range(-16, 17)} if places else set()
        return [self._at_position(place) for place in sorted(near)]

    def _set_active(self, node: SimulatedPastry, *, is_active: bool) -> None:
        places = self._active[node.side]
        place = position(node.info.id)
        index = bisect_left(places, place)
        is_there = index < len(places) and places[index] == place
        if is_active and not is_there:
            places.insert(index, place)
        elif is_there and not is_active:
            del places[index]

    def _at_position(self, place: int) -> SimulatedPastry:
        return self.nodes[NodeId((place % RING).to_bytes(ID_BYTES, "big"))]

    def _settle(self) -> tuple[tuple[float, float], str]:
        """Choose a random place, and its zone, for a new node."""
        rng = self.rng
        if not self._centres:
            return (rng.random(), rng.random()), ""
        zone = rng.randrange(len(self._centres))
        x, y = self._centres[zone]
        return (x + rng.gauss(0.0, ZONE_RADIUS), y + rng.gauss(0.0, ZONE_RADIUS)), f"zone-{zone}"

    def latency_s(self, a: SimulatedPastry, b: SimulatedPastry) -> float:
        """Return the latency between two nodes."""
        distance = ((a.where[0] - b.where[0]) ** 2 + (a.where[1] - b.where[1]) ** 2) ** 0.5
        return 0.0005 + self._width_s * float(distance)
