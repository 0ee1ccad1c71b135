"""The nodes of a simulated ring, and their watches: the detection of deaths, and the measurement of distances.

`ModelledWatch` is a model, cheap enough for 100,000 nodes. Nodes with a link to an ended process detect the end within 0.1 s,
ring neighbours detect a silent node after `silence_s`, and one contact per second is measured, as by a real detector.

`DetectorWatch` runs a `Detector` of the overlay for every node, over lossy datagrams. A death is a verdict of the detector, or
a refused dial, as in `Liveness`; wrong verdicts about live nodes are counted.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Alive, Contact, Pinged, Suspected
from iris_overlay.peers.silence_search import SilenceSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.detector.events import Address, DetectorEvent
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.events import LeavesDoubted
    from iris_overlay.ring.pastry import Pastry

#: Peers to look for after a partition; one that answers is enough, and more only cost dials.
REMEMBERED_MAX: Final = 16

#: Bytes that sealing adds to a datagram (`iris_security.datagram`).
SEAL_BYTES: Final = 49

#: The period of a modelled watch's measurements, as `DetectorConfig.period_s`.
PROBE_PERIOD_S: Final = 1.0

#: The period of reporting new table entries to a detector, as `OverlayConfig.contacts_refresh_s`.
REFRESH_S: Final = 5.0

#: The silence that breaks a link while an answer is outstanding, as `iris_py.link.link.KEEPALIVE_TIMEOUT_S`.
STUCK_S: Final = 2.25

#: How long further signs of the same death are ignored, as `iris_overlay.peers.liveness.BURIED_S`.
BURIED_S: Final = 5.0


class SimulatedPastry:
    """A node of a simulated ring: its ring core, its links, and data for measurements."""

    def __init__(self, index: int, info: NodeInfo, pastry: Pastry, where: tuple[float, float], started_at: float) -> None:
        self.index = index
        self.info = info
        self.pastry = pastry
        self.where = where
        self.started_at = started_at
        self.active_at: float | None = None
        self.is_up = True
        self.stopped_at = float("inf")
        self.side = 0
        self.is_dialable = True
        self.is_silent = False  # The node ended without a sign, and dials to its host are not refused.
        self.has_left = False
        self.to_measure: list[NodeId] = []
        # By peer: the arrival time of the last message, to keep the order of a link.
        self.links: dict[NodeId, float] = {}
        self.dialling: dict[NodeId, list[bytes]] = {}
        self.remembered: dict[NodeId, NodeInfo] = {}
        self.armed_at = float("inf")


class WatchedNetwork(Protocol):
    """The simulated network, for a watch."""

    now: float
    rng: random.Random
    nodes: dict[NodeId, SimulatedPastry]
    loss: float

    def at(self, time: float, what: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401 - of any function
        """Schedule a call."""

    def apply(self, node: SimulatedPastry) -> None:
        """Apply the outputs of a node."""

    def dial(self, node: SimulatedPastry, to: NodeId) -> None:
        """Make a node dial another one."""

    def live(self) -> list[SimulatedPastry]:
        """Return the live nodes."""

    def near(self, node: SimulatedPastry) -> list[SimulatedPastry]:
        """Return the nodes that may have this node in their leaf set (ring neighbours)."""

    def latency_s(self, a: SimulatedPastry, b: SimulatedPastry) -> float:
        """Return the latency between two nodes."""


class RingWatch:
    """The base of all watches (failure detection of a simulated ring): receives all notifications, and detects nothing."""

    def __init__(self, network: WatchedNetwork) -> None:
        self._network = network
        self.datagrams = 0
        self.datagram_bytes = 0
        self.false_deaths = 0
        """Deaths declared of running, reachable nodes."""

    def node_started(self, node: SimulatedPastry) -> None:
        """Handle the start of a node."""

    def node_stopped(self, node: SimulatedPastry, *, is_silent: bool) -> None:
        """Handle the end of a process; a silent end breaks no links."""

    def network_cut(self) -> None:
        """Handle a partition."""

    def leaves_changed(self, node: SimulatedPastry) -> None:
        """Handle a change of a node's leaf set, or its activation."""

    def leaves_doubted(self, node: SimulatedPastry, event: LeavesDoubted) -> None:
        """Handle doubts whether a node's leaves are alive, because another node's leaf set lacks them."""

    def message_received(self, node: SimulatedPastry, peer: NodeId) -> None:
        """Handle a sign of life."""

    def message_lost(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Handle the loss of a message a node had given to a link."""

    def dial_refused(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Handle a refused dial to a known node."""

    def _remember(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        if len(node.remembered) < REMEMBERED_MAX and other.is_up:
            node.remembered[other.info.id] = other.info


class ModelledWatch(RingWatch):
    """A model of failure detection: each death is detected after a random delay, and one contact at a time is measured.

    No datagrams are sent or counted.
    """

    def __init__(self, network: WatchedNetwork, silence_s: float) -> None:
        super().__init__(network)
        self._silence_s = silence_s
        self._watch_until = float("-inf")

    def node_started(self, node: SimulatedPastry) -> None:
        """Begin to measure a new node's contacts."""
        # Spread over the period without a draw: the golden ratio.
        self._network.at(self._network.now + PROBE_PERIOD_S * (node.index * 0.618034 % 1.0), self._measure, node)

    def node_stopped(self, node: SimulatedPastry, *, is_silent: bool) -> None:
        """Schedule the detection of an end: soon by nodes with a link, late by ring neighbours or after a silent end."""
        network = self._network
        watchers = {peer: network.nodes[peer] for peer in node.links} | {near.info.id: near for near in network.near(node)}
        for watcher in watchers.values():
            if not is_silent and node.info.id in watcher.links:
                delay = 0.001 + 0.1 * network.rng.random()
            else:
                delay = self._silence_s * network.rng.uniform(0.8, 1.0)
            network.at(network.now + delay, self._notice, watcher, node)
        self._keep_watch()

    def network_cut(self) -> None:
        """Schedule the detection by all nodes with a link to the other side."""
        network = self._network
        for node in network.live():
            for peer in list(node.links):
                other = network.nodes[peer]
                if other.side != node.side and other.is_up:
                    delay = self._silence_s * network.rng.uniform(0.8, 1.0)
                    network.at(network.now + delay, self._notice, node, other)

    def _measure(self, node: SimulatedPastry) -> None:
        network = self._network
        if not node.is_up:
            return
        network.at(network.now + PROBE_PERIOD_S, self._measure, node)
        if not node.to_measure:
            node.to_measure = [info.id for info in node.pastry.known()]
            network.rng.shuffle(node.to_measure)
        if node.to_measure:
            other = network.nodes[node.to_measure.pop()]
            if other.is_up and other.side == node.side:
                node.pastry.rtt_measured(other.info.id, 2 * network.latency_s(node, other), network.now)

    def _notice(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Make a node notice that another node has ended, or is on the other side of a partition."""
        if not node.is_up or (other.is_up and other.side == node.side):
            return
        node.links.pop(other.info.id, None)
        self._remember(node, other)
        node.pastry.peer_dead(other.info.id, self._network.now)
        self._network.apply(node)

    def _keep_watch(self) -> None:
        """Look for ended nodes among leaves for a while, because a leaf may be added just before the detection."""
        now = self._network.now
        if self._watch_until < now:
            self._network.at(now + self._silence_s, self._watch)
        self._watch_until = now + 10 * self._silence_s

    def _watch(self) -> None:
        network = self._network
        for node in network.live():
            for info in node.pastry.leaves():
                other = network.nodes[info.id]
                if not other.is_up and other.stopped_at < network.now - self._silence_s:
                    self._notice(node, other)
        if network.now < self._watch_until:
            network.at(network.now + self._silence_s, self._watch)


class Probed:
    """A simulated node with its failure detector."""

    __slots__ = ("address", "armed_at", "buried", "contact", "detector", "node", "silence_search", "stuck")

    def __init__(self, node: SimulatedPastry, detector: Detector, address: Address) -> None:
        self.node = node
        self.detector = detector
        self.silence_search = SilenceSearch(random.Random(node.index))
        self.address = address
        self.contact = Contact(node.info.id, address if node.is_dialable else None)
        self.armed_at = float("inf")
        self.buried: dict[NodeId, float] = {}
        self.stuck: set[NodeId] = set()


class DetectorWatch(RingWatch):
    """Runs the overlay's real failure detectors over simulated datagrams."""

    def __init__(self, network: WatchedNetwork) -> None:
        super().__init__(network)
        self._by_id: dict[NodeId, Probed] = {}
        self._by_address: dict[Address, Probed] = {}

    def node_started(self, node: SimulatedPastry) -> None:
        """Make the failure detector of a new node."""
        network = self._network
        detector = Detector(node.info.id, None, random.Random(network.rng.getrandbits(64)))
        probed = Probed(node, detector, (f"10.{node.index >> 16}.{node.index >> 8 & 255}.{node.index & 255}", 9000))
        self._by_id[node.info.id] = self._by_address[probed.address] = probed
        network.at(network.now + REFRESH_S, self._refresh_again, probed)

    def node_stopped(self, node: SimulatedPastry, *, is_silent: bool) -> None:
        """Break the links of an ended process, as an operating system does."""
        network = self._network
        if is_silent:
            return
        for peer in list(node.links):
            other = network.nodes[peer]
            if other.side == node.side:
                network.at(network.now + network.latency_s(node, other), self._break, other, node)

    def leaves_changed(self, node: SimulatedPastry) -> None:
        """Tell the detector its contacts: the right-hand neighbour, the leaf set, the table."""
        probed, by_id = self._by_id[node.info.id], self._by_id
        pastry = node.pastry
        right = pastry.right_neighbour()
        contacts = [by_id[info.id].contact for info in (*pastry.leaves(), *pastry.known())]
        probed.detector.set_contacts(by_id[right.id].contact if right is not None else None, contacts, self._network.now)
        self._drive(probed)

    def leaves_doubted(self, node: SimulatedPastry, event: LeavesDoubted) -> None:
        """Make the detector check the leaves in doubt."""
        probed = self._by_id[node.info.id]
        probed.detector.look_at(event.leaves, event.witness, self._network.now)
        self._drive(probed)

    def message_received(self, node: SimulatedPastry, peer: NodeId) -> None:
        """Tell the detector that the peer is alive."""
        probed = self._by_id[node.info.id]
        probed.buried.pop(peer, None)
        probed.detector.heard_from(peer, self._network.now)
        self._drive(probed)

    def message_lost(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Schedule the end of the link, after the timeout of its keep-alive."""
        probed = self._by_id[node.info.id]
        if other.info.id not in probed.stuck:
            probed.stuck.add(other.info.id)
            self._network.at(self._network.now + STUCK_S, self._break_stuck, node, other)

    def dial_refused(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Treat a refused dial as proof of death."""
        probed = self._by_id[node.info.id]
        probed.detector.refused(other.info.id, self._network.now)
        self._bury(probed, other.info.id, is_silent=False)
        self._drive(probed)

    def _refresh_again(self, probed: Probed) -> None:
        if probed.node.is_up:
            self.leaves_changed(probed.node)
            self._network.at(self._network.now + REFRESH_S, self._refresh_again, probed)

    def _break_stuck(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        self._by_id[node.info.id].stuck.discard(other.info.id)
        if not other.is_up or other.side != node.side:
            self._break(node, other)

    def _break(self, node: SimulatedPastry, other: SimulatedPastry) -> None:
        """Handle a broken link: check the peer at once, by a dial and by a ping."""
        if not node.is_up or node.links.pop(other.info.id, None) is None:
            return
        network, probed, peer = self._network, self._by_id[node.info.id], other.info.id
        node.pastry.link_closed(peer, network.now)
        if not other.has_left and peer not in probed.buried:
            node.pastry.peer_doubtful(peer, True, network.now)
            probed.detector.check(self._by_id[peer].contact, network.now)
            if other.is_dialable and peer not in node.dialling:
                network.dial(node, peer)
        network.apply(node)
        self._drive(probed)

    def _drive(self, probed: Probed) -> None:
        detector, network = probed.detector, self._network
        while True:
            datagrams, happened = detector.datagrams_to_send(), detector.events_received()
            if not datagrams and not happened:
                break
            for address, data in datagrams:
                self._carry(probed, address, data)
            for event in happened:
                self._handle(probed, event)
        deadline = detector.deadline()
        if deadline is not None and deadline < probed.armed_at:
            probed.armed_at = deadline
            network.at(max(deadline, network.now), self._fire, probed, deadline)

    def _fire(self, probed: Probed, armed_at: float) -> None:
        if probed.node.is_up and probed.armed_at == armed_at:
            probed.armed_at = float("inf")
            probed.detector.handle_timeout(self._network.now)
            self._drive(probed)

    def _carry(self, probed: Probed, address: Address, data: bytes) -> None:
        network = self._network
        self.datagrams += 1
        self.datagram_bytes += len(data) + SEAL_BYTES
        to = self._by_address[address]
        if to.node.side == probed.node.side and not (network.loss and network.rng.random() < network.loss):
            network.at(network.now + network.latency_s(probed.node, to.node), self._receive, to, data, probed)

    def _receive(self, probed: Probed, data: bytes, sender: Probed) -> None:
        if probed.node.is_up and probed.node.side == sender.node.side:
            probed.detector.receive_datagram(sender.node.info.id, data, sender.address, self._network.now)
            self._drive(probed)

    def _handle(self, probed: Probed, event: DetectorEvent) -> None:
        pastry, now = probed.node.pastry, self._network.now
        if isinstance(event, Suspected):
            pastry.peer_doubtful(event.peer, True, now)
            pastry.ask(self._network.nodes[event.peer].info, now)
        elif isinstance(event, Alive):
            pastry.peer_doubtful(event.peer, False, now)
            if event.rtt_s is not None:
                pastry.rtt_measured(event.peer, event.rtt_s, now)
            return  # The event makes a node send nothing.
        elif isinstance(event, Pinged):
            pastry.meet(self._network.nodes[event.peer].info, now)
        elif pastry.find(event.peer) is not None:
            self._bury(probed, event.peer, is_silent=True)
        self._network.apply(probed.node)

    def _bury(self, probed: Probed, peer: NodeId, *, is_silent: bool) -> None:
        network, node, other = self._network, probed.node, self._network.nodes[peer]
        if network.now - probed.buried.get(peer, float("-inf")) < BURIED_S:
            return
        probed.buried[peer] = network.now
        self.false_deaths += other.is_up and other.side == node.side and not other.has_left
        if not other.is_up or other.side != node.side:
            node.links.pop(peer, None)
        self._remember(node, other)
        node.pastry.peer_dead(peer, network.now)
        network.apply(node)
        if is_silent:
            leaves = [info.id for info in node.pastry.leaves()]
            table = (info.id for info in node.pastry.known())
            probed.detector.look_at(probed.silence_search.whom(peer, leaves, (), table, network.now), peer, network.now)
