"""A network of overlays under a virtual clock: a heap of events, no sockets, no event loop.

Everything random comes from one seed, so that a failure is found again by its seed::

    simulation = OverlaySimulation(seed=7)
    nodes = [simulation.start_node() for _ in range(50)]
    simulation.watch_group(nodes[0], group)
    simulation.join_group(nodes[1], group)
    simulation.run_until(simulation.is_converged, limit_s=5.0)

Links are ordered and lose nothing while they hold, but they break, and what is under way is lost then. Two nodes that dial
each other keep the link of the smaller id (docs/design.md 3.8). Datagrams fare as `Faults` says.
Safety is checked all the time: completed joins and leaves are known to everybody with a link to that node, and no dead node
stays in a view. The other checkers are for the end, when the faults are over.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from overlay import events
from overlay.config import OverlayConfig
from overlay.ids import ID_BYTES, GroupId, NodeId
from overlay.messages import NodeInfo
from overlay.overlay import Overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STEPS_MAX: Final = 5_000_000  # More steps are a loop.


@dataclass(frozen=True, slots=True)
class Faults:
    """Say how bad the network is. Probabilities are below 1."""

    latency_s: tuple[float, float] = (0.0002, 0.002)  # The one-way time of a pair is drawn from this range, once.
    dial_refused: float = 0.0  # How many dials are refused though somebody listens.
    dial_timeout_s: float = 3.0  # When a dial across a partition fails.
    datagram_lost: float = 0.0
    datagram_repeated: float = 0.0
    datagram_delay_s_max: float = 0.0  # Extra delay of each datagram; more than the time between two reorders them.
    break_delay_s: tuple[float, float] = (0.0, 0.2)  # When the peers of a crashed node notice, and the ends of a broken link.
    silence_delay_s: tuple[float, float] = (2.0, 2.9)  # When the ends of a link across a partition notice: keep-alive.
    dead_view_s_max: float = 3.0  # How long a dead node may stay in a view.


@dataclass(eq=False)
class _Link:
    """An ordered stream of messages each way between two nodes."""

    ends: tuple[SimulatedNode, SimulatedNode]  # The one that dialled comes first.
    ready_at: dict[NodeId, float]  # The earliest delivery to each end: after its side opened, after the previous message.
    is_broken: bool = False

    def other(self, node: SimulatedNode) -> SimulatedNode:
        return self.ends[1] if node is self.ends[0] else self.ends[0]


@dataclass(eq=False)
class SimulatedNode:
    """One life of a node: a restart makes another one, with a new id."""

    index: int
    info: NodeInfo
    overlay: Overlay
    has_beacons: bool
    is_alive: bool = True
    links: dict[NodeId, _Link] = field(default_factory=dict)
    groups: dict[GroupId, bytes] = field(default_factory=dict)  # The truth that views are compared with.
    watched: dict[GroupId, None] = field(default_factory=dict)
    views: dict[GroupId, dict[NodeId, events.GroupMember]] = field(default_factory=dict)
    commands: dict[GroupId, list[float]] = field(default_factory=dict)  # The times of those under way.
    log: list[tuple[float, type[events.Event]]] = field(default_factory=list)  # All events, with their time.
    timer: float | None = None

    @property
    def id(self) -> NodeId:
        """Return the id of this life."""
        return self.info.id

    def times_of(self, kind: type[events.Event]) -> list[float]:
        """Return when events of a kind happened."""
        return [when for when, happened in self.log if happened is kind]


class OverlaySimulation:
    """Run overlays against each other. Nodes have indices; the node at an index may stop and start again."""

    def __init__(self, seed: int, *, config: OverlayConfig | None = None, faults: Faults | None = None) -> None:
        self.now, self.steps = 0.0, 0
        self.faults = faults if faults is not None else Faults()
        self.nodes: dict[int, SimulatedNode] = {}
        self._seed = seed
        self._config = config if config is not None else OverlayConfig()
        self._rng = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._trace = hashlib.sha256()
        self._latencies: dict[tuple[int, int], float] = {}
        self._sides: dict[int, int] = {}
        self._died_at: dict[NodeId, float] = {}
        self._next_check = 0.0

    def address_of(self, index: int) -> str:
        """Return where the node of an index listens."""
        return f"10.0.{index // 250}.{index % 250 + 1}:7000"

    def start_node(
        self, index: int | None = None, *, seeds: Sequence[str] = (), remembered: Sequence[str] = (), beacons: bool = True,
        remembered_is_complete: bool = False,
    ) -> int:  # fmt: skip
        """Start a node at an index without a live node, by default the next new one; return the index."""
        index = len(self.nodes) if index is None else index
        assert index not in self.nodes or not self.nodes[index].is_alive
        info = NodeInfo(NodeId(self._rng.randbytes(ID_BYTES)), (self.address_of(index),), f"zone{index % 3}")
        overlay = Overlay(info, self._config, random.Random(self._rng.random()))
        node = self.nodes[index] = SimulatedNode(index, info, overlay, beacons)
        overlay.start(self.now, seeds, remembered, beacons, remembered_is_complete)
        self._drive(node)
        return index

    def live_nodes(self) -> list[SimulatedNode]:
        """Return the nodes that run, leaving ones included."""
        return [node for node in self.nodes.values() if node.is_alive]

    def join_group(self, index: int, group: GroupId, attributes: bytes = b"") -> None:
        """Let a node join a group."""
        node = self.nodes[index]
        node.groups[group] = attributes
        node.commands.setdefault(group, []).append(self.now)
        self._input(node, node.overlay.join_group, group, attributes)

    def leave_group(self, index: int, group: GroupId) -> None:
        """Let a node leave a group."""
        node = self.nodes[index]
        node.groups.pop(group, None)
        node.commands.setdefault(group, []).append(self.now)
        self._input(node, node.overlay.leave_group, group)

    def watch_group(self, index: int, group: GroupId) -> None:
        """Let a node watch a group."""
        node = self.nodes[index]
        node.watched[group] = None
        self._input(node, node.overlay.watch_group, group)

    def leave(self, index: int) -> None:
        """Let a node leave the network and stop."""
        node = self.nodes[index]
        node.groups.clear()
        for times in node.commands.values():
            times.append(self.now)
        self._input(node, node.overlay.leave)

    def send_raw(self, sender: int, receiver: int, data: bytes) -> None:
        """Send any bytes through the link of two nodes, as a faulty node might."""
        self._send(self.nodes[sender], self.nodes[receiver].id, data)

    def crash(self, index: int) -> None:
        """Stop a node without a word."""
        node = self.nodes[index]
        node.is_alive = False
        self._died_at[node.id] = self.now
        for link in [link for link in self._links() if node in link.ends]:
            self._break(link, self.faults.break_delay_s)

    def partition(self, sides: Sequence[Sequence[int]]) -> None:
        """Let no byte pass between these sets of indices; those in none of them are one more set."""
        self._sides = {index: number for number, side in enumerate(sides, 1) for index in side}
        for link in [link for link in self._links() if not self._is_reachable(*link.ends)]:
            self._break(link, self.faults.silence_delay_s)

    def heal(self) -> None:
        """End the partition."""
        self._sides = {}

    def break_link(self, first: int, second: int) -> None:
        """Break the link between two nodes, if there is one; each end notices at its own time."""
        link = self.nodes[first].links.get(self.nodes[second].id)
        if link is not None:
            self._break(link, self.faults.break_delay_s)

    def run_for(self, duration_s: float) -> None:
        """Let time pass."""
        self._run_to(self.now + duration_s)

    def run_until(self, predicate: Callable[[], bool], limit_s: float) -> float:
        """Let time pass until something is true, asked after every eventful 10 ms; return how long it took."""
        start = self.now
        while not predicate():
            if self.now - start > limit_s or not self._heap:
                raise self._error(f"not true since {start:.3f} s: {self.peer_errors() + self.view_errors()}")
            self._run_to(self._heap[0][0] + 0.01)
        return self.now - start

    def trace_hash(self) -> str:
        """Return a hash of everything that happened so far, in order."""
        return self._trace.hexdigest()

    def is_converged(self) -> bool:
        """Return whether all searches are over, peers are mutual, and views equal the truth."""
        return all(node.times_of(events.Settled) for node in self.live_nodes()) and not self.peer_errors() + self.view_errors()

    def peer_errors(self) -> list[str]:
        """Find peers that are dead, or that do not have the node for a peer."""
        peers = {node.id: {info.id for info in node.overlay.peers()} for node in self.live_nodes()}
        wrong = [node.index for node in self.live_nodes() if any(node.id not in peers.get(peer, ()) for peer in peers[node.id])]
        return [f"{index} has a peer that does not have it" for index in wrong]

    def view_errors(self) -> list[str]:
        """Find views that differ from what the nodes within reach joined."""
        errors: list[str] = []
        nodes = self.live_nodes()
        for node, group in [(watcher, group) for watcher in nodes for group in watcher.watched]:
            members = [other for other in nodes if group in other.groups and self._is_reachable(node, other)]
            truth = {other.id: events.GroupMember(other.info, other.groups[group]) for other in members}
            if (view := node.views.get(group)) != truth:
                errors.append(f"{node.index} sees {'nothing' if view is None else len(view)} instead of {len(truth)}")
        return errors

    def size_errors(self, limit: int) -> list[str]:
        """Find tables of overlays with more entries than a limit."""
        sizes = [(node.index, *item) for node in self.live_nodes() for item in node.overlay.table_sizes().items()]
        return [f"{index} has {size} {name}" for index, name, size in sizes if size > limit]

    def check_safety(self) -> None:
        """Raise AssertionError if somebody sees a node that died long ago."""
        dead = [node_id for node_id, when in self._died_at.items() if self.now - when > self.faults.dead_view_s_max]
        for node in self.live_nodes():
            if any(node_id in view for view in node.views.values() for node_id in dead):
                raise self._error(f"{node.index} sees a dead node")

    def _check_told(self, node: SimulatedNode, group: GroupId) -> None:
        """Verify that everybody who watches the group and can send to the node knows whether it is a member."""
        asked_at = node.commands[group].pop(0)
        if node.commands[group] or self.now - asked_at >= self._config.told_timeout_s:
            return  # Another command is under way, or the bound passed: nothing is promised.
        for other in self.live_nodes():
            link = node.links.get(other.id)
            is_linked = link is not None and link is other.links.get(node.id) and not link.is_broken
            if is_linked and group in other.watched and (node.id in other.views.get(group, ())) != (group in node.groups):
                raise self._error(f"{other.index} has a link to {node.index}, but was not told")

    def _drive(self, node: SimulatedNode) -> None:
        for peer, data in node.overlay.messages_to_send():
            self._send(node, peer, data)
        for destination, data in node.overlay.datagrams_to_send():
            self._send_datagram(node, destination, data)
        for event in node.overlay.events_received():
            self._handle_event(node, event)
        deadline = node.overlay.deadline()
        if deadline is not None and deadline != node.timer:
            node.timer = deadline
            self._schedule(deadline, self._fire_timer, node, deadline)

    def _input(self, node: SimulatedNode, receive: Callable[..., None], *arguments: object) -> None:
        if node.is_alive:
            self._trace.update(f"{self.now!r} {receive.__name__} {node.index} {arguments!r}\n".encode())
            receive(*arguments, self.now)
            self._drive(node)

    def _fire_timer(self, node: SimulatedNode, deadline: float) -> None:
        if node.timer == deadline:
            node.timer = None
            self._input(node, node.overlay.handle_timeout)

    def _handle_event(self, node: SimulatedNode, event: events.Event) -> None:
        shown = list(event.members) if isinstance(event, events.ViewChanged) else event
        self._trace.update(f"{self.now!r} {node.index} {type(event).__name__} {shown!r}\n".encode())
        node.log.append((self.now, type(event)))
        if isinstance(event, events.ViewChanged):
            node.views[event.group] = event.members
        elif isinstance(event, events.DialRequested):
            self._dial(node, event.address)
        elif isinstance(event, events.GroupJoined | events.GroupLeft):
            self._check_told(node, event.group)
        elif isinstance(event, events.Departed):
            for group in node.commands:
                self._check_told(node, group)
            node.is_alive = False
            self._died_at[node.id] = self.now
            for link in node.links.values():  # A clean close comes after everything that was sent.
                peer = link.other(node)
                when = max(link.ready_at[peer.id], self.now + self._latency(node, peer))
                self._schedule(when, self._lose, link, peer)
        elif isinstance(event, events.ProtocolViolated) and event.peer in node.links:
            self._break(node.links[event.peer], (0.0, 0.001))

    def _dial(self, node: SimulatedNode, address: str) -> None:
        target = next((other for other in self.live_nodes() if self.address_of(other.index) == address), None)
        is_silent = target is not None and not self._is_reachable(node, target)
        if target is None or is_silent or self._rng.random() < self.faults.dial_refused:
            delay_s = self.faults.dial_timeout_s if is_silent else self.faults.latency_s[1]
            self._schedule(self.now + delay_s, self._input, node, node.overlay.dial_failed, address)
        else:
            self._schedule(self.now + self._latency(node, target), self._accept, node, target, address)

    def _accept(self, initiator: SimulatedNode, responder: SimulatedNode, address: str) -> None:
        if not (initiator.is_alive and responder.is_alive and self._is_reachable(initiator, responder)):
            self._input(initiator, initiator.overlay.dial_failed, address)
            return
        answered = self.now + self._latency(initiator, responder)
        link = _Link((initiator, responder), {initiator.id: answered, responder.id: self.now})
        self._schedule(answered, self._finish_dial, link, address)
        if initiator is not responder:
            self._open(responder, link)

    def _finish_dial(self, link: _Link, address: str) -> None:
        node, peer = link.ends
        held = node.links.get(peer.id)
        is_duplicate = held is not None and not held.is_broken
        is_lost = link.is_broken or not peer.is_alive or not self._is_reachable(node, peer)
        if is_lost and not is_duplicate:
            self._input(node, node.overlay.dial_failed, address)
            return
        is_dial_first = self._rng.random() < 0.5  # The owner may report the dial and the link in either order.
        if is_dial_first:
            self._input(node, node.overlay.dial_succeeded, address, peer.id)
        if node is not peer and not is_lost:
            self._open(node, link)
        if not is_dial_first:
            self._input(node, node.overlay.dial_succeeded, address, peer.id)

    def _open(self, node: SimulatedNode, link: _Link) -> None:
        # Of two links, the one that the smaller id dialled stays, at both ends; a broken one never does.
        initiator, responder = link.ends
        peer = link.other(node)
        old = node.links.get(peer.id)
        if old is None or old.is_broken or initiator.id < responder.id:
            node.links[peer.id] = link
            self._input(node, node.overlay.link_opened, peer.info)
        elif node is responder:
            link.is_broken = True

    def _send(self, node: SimulatedNode, peer: NodeId, data: bytes) -> None:
        link = node.links.get(peer)
        if link is not None and not link.is_broken:
            receiver = link.other(node)
            when = link.ready_at[receiver.id] = max(link.ready_at[receiver.id], self.now + self._latency(node, receiver))
            self._schedule(when, self._deliver, link, receiver, node.id, data)

    def _deliver(self, link: _Link, receiver: SimulatedNode, sender: NodeId, data: bytes) -> None:
        if not link.is_broken:
            self._input(receiver, receiver.overlay.receive_message, sender, data)

    def _break(self, link: _Link, delay_s: tuple[float, float]) -> None:
        if not link.is_broken:
            link.is_broken = True
            for node in link.ends:
                self._schedule(self.now + self._rng.uniform(*delay_s), self._lose, link, node)

    def _lose(self, link: _Link, node: SimulatedNode) -> None:
        link.is_broken = True
        peer = link.other(node).id
        if node.links.get(peer) is link:
            del node.links[peer]
            self._input(node, node.overlay.link_lost, peer)

    def _links(self) -> list[_Link]:
        return list(dict.fromkeys(link for node in self.nodes.values() for link in node.links.values()))

    def _send_datagram(self, node: SimulatedNode, destination: tuple[str, int] | None, data: bytes) -> None:
        source = (f"node{node.index}", 7001)
        for other in [other for other in self.live_nodes() if other.has_beacons and self._is_reachable(node, other)]:
            is_heard = destination in (None, (f"node{other.index}", 7001))
            while is_heard and self._rng.random() >= self.faults.datagram_lost:
                when = self.now + self._latency(node, other) + self._rng.uniform(0.0, self.faults.datagram_delay_s_max)
                self._schedule(when, self._input, other, other.overlay.receive_datagram, data, source)
                is_heard = self._rng.random() < self.faults.datagram_repeated

    def _is_reachable(self, first: SimulatedNode, second: SimulatedNode) -> bool:
        return self._sides.get(first.index, 0) == self._sides.get(second.index, 0)

    def _latency(self, first: SimulatedNode, second: SimulatedNode) -> float:
        pair = (min(first.index, second.index), max(first.index, second.index))
        if pair not in self._latencies:
            self._latencies[pair] = self._rng.uniform(*self.faults.latency_s)
        return self._latencies[pair]

    def _schedule(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, action, arguments))

    def _run_to(self, end: float) -> None:
        while self._heap and self._heap[0][0] <= end:
            self.steps += 1
            assert self.steps <= STEPS_MAX
            self.now, _, action, arguments = heappop(self._heap)
            action(*arguments)
            if self.now >= self._next_check:
                self._next_check = self.now + 0.25
                self.check_safety()
        self.now = end

    def _error(self, text: str) -> AssertionError:
        return AssertionError(f"seed {self._seed}, {self.now:.3f} s, step {self.steps}: {text}")
