"""A simulation of the groups layer alone, over a perfect ring: every node knows every change of the ring at once.

Direct messages arrive in order per pair of nodes, routed ones in any order. A crash loses direct messages under way to the
node; routed ones are lost or reach the node's successor. Neighbours in the ring, and nodes with a link, detect deaths.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from iris_overlay.events import Cast, Claimed, Counters, GroupJoined, GroupLeft, TableChanged, ViewChanged
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.entries import apply, diff
from iris_overlay.groups.io import AnswerTo, HandoverDone, RouteTo, SendTo
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.messages import NodeInfo
from iris_py.testing.cores.signer import NamedSigner

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.events import Event
    from iris_overlay.groups.io import GroupOutput, Path

LEAF_HALF = 8

#: The start of simulated time (seconds since 1970), and the largest error of a node's clock. No result may depend on either.
EPOCH_UNIX_S = 1_700_000_000.0
CLOCKS_DIFFER_S = 60.0
RING_SIZE = 1 << (8 * ID_BYTES)


def position(key: bytes) -> int:
    """Return the position of a key on the ring."""
    return int.from_bytes(key, "big")


def distance(a: int, b: int) -> int:
    """Return the shorter of both distances between two positions on the ring."""
    way = (a - b) % RING_SIZE
    return min(way, RING_SIZE - way)


def apply_changes(table: dict[NodeId, bytes], event: TableChanged) -> None:
    """Apply the reported changes of a table to the entries of its members; the changes have to be exact."""
    for node in event.removed:
        del table[node]
    for node, change in event.changes.items():
        before = table.get(node, b"")
        assert node in table or change.member is not None, "a new member without its info"
        after = apply(before, change.added, change.removed)
        assert diff(before, after) == (change.added, change.removed), "a change that the owner knows"
        table[node] = after
    assert event.size == len(table)


class PerfectRing:
    """The ring as all of its nodes know it, without delay or error."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.infos: dict[int, NodeInfo] = {}

    def add(self, info: NodeInfo) -> None:
        """Add a node."""
        insort(self.positions, position(info.id))
        self.infos[position(info.id)] = info

    def remove(self, node: NodeId) -> None:
        """Remove a node."""
        del self.positions[bisect_left(self.positions, position(node))]
        del self.infos[position(node)]

    def root(self, key: bytes) -> NodeInfo:
        """Return the node nearest to a key. Of two equally near nodes, the one with the smaller position is the root."""
        target, count = position(key), len(self.positions)
        index = bisect_left(self.positions, target)
        near = [self.positions[(index + step) % count] for step in (-1, 0)]
        return self.infos[min(near, key=lambda other: (distance(other, target), other))]

    def leaves(self, node: NodeId) -> list[NodeInfo]:
        """Return the leaf set of a node."""
        count = len(self.positions)
        index = bisect_left(self.positions, position(node))
        steps = range(-min(LEAF_HALF, (count - 1) // 2), min(LEAF_HALF, count // 2) + 1)
        return [self.infos[self.positions[(index + step) % count]] for step in steps if step]


class NodeRing:
    """The ring as seen by the groups layer of a node: the true ring of the node's side."""

    def __init__(self, node: SimulatedGroupNode) -> None:
        self._node = node

    def is_root(self, key: bytes) -> bool:
        """Return whether the node is the root of a key."""
        node = self._node
        return node.is_active and bool(node.ring.positions) and node.ring.root(key).id == node.info.id

    def replicas(self, key: bytes, count: int) -> list[NodeInfo]:
        """Return up to ``count`` nodes of the leaf set (ring neighbours), the nearest to a key first."""
        target = position(key)
        leaves = self._node.ring.leaves(self._node.info.id) if self._node.info.id in self._node.members_of_ring() else []
        return sorted(leaves, key=lambda info: distance(position(info.id), target))[:count]


class SimulatedGroupNode:
    """A simulated node: its groups layer, and a record of its events and views."""

    def __init__(self, simulation: GroupSimulation, info: NodeInfo, side: int) -> None:
        self.info = info
        # The side of the partition, and the ring that the node believes in.
        self.side = side
        self.ring_id = side
        self.simulation = simulation
        self.is_live = True
        self.is_active = False
        self.is_stalled = False
        self.counters = Counters()
        rng = random.Random(simulation.rng.getrandbits(64))
        self.layer = GroupLayer(info, simulation.config, rng, NodeRing(self), self.counters, NamedSigner(info.id))
        self.waiting: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self.buffered: list[tuple[bytes, bytes, NodeInfo]] = []
        self.handovers: set[NodeId] = set()
        self.log: list[tuple[float, Event]] = []
        self.views: dict[GroupId, ViewChanged] = {}
        # The watched tables, put together from the reported changes; and the entries and pending numbers of own claims.
        self.tables: dict[GroupId, dict[NodeId, bytes]] = {}
        self.entries: dict[GroupId, bytes] = {}
        self.claims: dict[int, float] = {}
        self.casts: list[Cast] = []
        self.joined: dict[GroupId, float] = {}
        self.wanted: dict[GroupId, float] = {}
        self.watched: dict[GroupId, float] = {}
        self.timer: float | None = None

    @property
    def ring(self) -> PerfectRing:
        """Return the ring to which the node belongs."""
        return self.simulation.rings[self.ring_id]

    def members_of_ring(self) -> set[NodeId]:
        """Return the ids of the nodes in the same ring."""
        return self.simulation.in_ring[self.ring_id]


class GroupSimulation:
    """Runs the groups layers of many nodes in virtual time, over a perfect ring."""

    def __init__(
        self,
        seed: int,
        *,
        config: GroupConfig | None = None,
        latency_s: tuple[float, float] = (0.001, 0.02),
        detection_s: tuple[float, float] = (0.05, 0.5),
    ) -> None:
        """Create an empty network.

        Args:
            seed: The seed of all random choices.
            latency_s: The range of a hop's latency.
            detection_s: The range of the delay before the ring detects a crash.
        """
        self.rng = random.Random(seed)
        self._clocks = random.Random(seed)
        self.config = config or GroupConfig()
        self.now = 0.0
        self.nodes: dict[NodeId, SimulatedGroupNode] = {}
        self.rings: dict[int, PerfectRing] = {0: PerfectRing(), 1: PerfectRing()}
        self.in_ring: dict[int, set[NodeId]] = {0: set(), 1: set()}
        self.disturbed_at = 0.0
        self.messages = 0
        self.bytes = 0
        # Called when a claim of a node completes, with its number.
        self.on_claimed: Callable[[SimulatedGroupNode, int], None] | None = None
        self._latency_s = latency_s
        self._detection_s = detection_s
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._steps = 0
        self._last: dict[tuple[NodeId, NodeId], float] = {}

    # Faults and starts

    def start_node(self, *, side: int = 0) -> SimulatedGroupNode:
        """Start a node: its neighbours hand over their directories, then the node becomes active."""
        info = NodeInfo(NodeId(self.rng.randbytes(ID_BYTES)), (f"node-{len(self.nodes)}:1",))
        node = self.nodes[info.id] = SimulatedGroupNode(self, info, side)
        wrong_s = self._clocks.uniform(-CLOCKS_DIFFER_S, CLOCKS_DIFFER_S)
        node.layer.start(self.now, EPOCH_UNIX_S + self.now + wrong_s)
        self.enter(node)
        return node

    def enter(self, node: SimulatedGroupNode) -> None:
        """Put a node into the ring of its side."""
        ring = node.ring
        before = self._leaf_sets(node.ring_id, position(node.info.id))
        ring.add(node.info)
        node.members_of_ring().add(node.info.id)
        neighbours = [self.nodes[info.id] for info in ring.leaves(node.info.id)]
        self._tell_leaves(before)
        node.handovers = {other.info.id for other in neighbours if other.is_active and not other.is_stalled}
        for other in neighbours:
            if other.is_active:
                self._input(other, GroupLayer.handover_wanted, node.info)
        self.call_at(self.now + 1.0, lambda: self._activate(node))
        if not node.handovers:
            self._activate(node)

    def crash(self, node: SimulatedGroupNode) -> None:
        """Kill a node; its neighbours detect the crash a little later."""
        self.disturbed_at = self.now
        node.is_live = node.is_active = False
        if not node.is_stalled:
            self.call_at(self.now + self.rng.uniform(*self._detection_s), lambda: self._notice(node))

    def stall(self, node: SimulatedGroupNode, duration_s: float) -> None:
        """Suspend the process of a node for a while; after 3 s it is considered dead."""
        self.disturbed_at = self.now
        node.is_stalled = True
        self.call_at(self.now + 3.0, lambda: self._notice(node) if node.is_stalled or not node.is_live else None)
        self.call_at(self.now + duration_s, lambda: self._resume(node))

    def split(self) -> None:
        """Cut the network into two random parts."""
        self.disturbed_at = self.now
        for node in self.nodes.values():
            node.side = int(self.rng.random() < 0.5)
        self.call_at(self.now + self.rng.uniform(*self._detection_s), self._arrange)

    def heal(self) -> None:
        """End the partition: both rings become one at once."""
        self.disturbed_at = self.now
        for node in self.nodes.values():
            node.side = 0
        self.call_at(self.now + self.rng.uniform(*self._detection_s), self._arrange)

    # Time

    def run_for(self, duration_s: float, check: Callable[[], None] | None = None, every_s: float = 0.25) -> None:
        """Advance the time, and call ``check`` periodically."""
        end = self.now + duration_s
        next_check = self.now + every_s
        while True:
            upto = min(end, next_check)
            while self._heap and self._heap[0][0] <= upto:
                self.now, _, action = heappop(self._heap)
                action()
            self.now = upto
            if upto == next_check:
                next_check += every_s
                if check is not None:
                    check()
            if upto == end:
                return

    # Commands

    def join(self, node: SimulatedGroupNode, group: GroupId, attributes: bytes = b"") -> None:
        """Make a node a member of a group."""
        node.wanted[group] = self.now
        self._input(node, GroupLayer.join_group, group, attributes)

    def leave(self, node: SimulatedGroupNode, group: GroupId) -> None:
        """End a membership."""
        node.wanted.pop(group, None)
        node.entries.pop(group, None)
        self._input(node, GroupLayer.leave_group, group)

    def watch(self, node: SimulatedGroupNode, group: GroupId) -> None:
        """Watch a group."""
        node.watched[group] = self.now
        self._input(node, GroupLayer.watch_group, group)

    def watch_table(self, node: SimulatedGroupNode, group: GroupId) -> None:
        """Watch a table."""
        node.watched[group] = self.now
        self._input(node, GroupLayer.watch_table, group)

    def claim(self, node: SimulatedGroupNode, group: GroupId, added: bytes, removed: bytes = b"") -> int:
        """Change the entries of a node in a table. Return the number of its completion; 0 while the node stands still."""
        node.wanted.setdefault(group, self.now)
        node.entries[group] = apply(node.entries.get(group, b""), added, removed)

        numbers = [0]

        def command(layer: GroupLayer, now: float) -> None:
            numbers.append(layer.claim(group, b"", added, removed, now))
            node.claims[numbers[-1]] = now

        self._input(node, command)
        return numbers[-1]

    def cast(self, node: SimulatedGroupNode, group: GroupId, payload: bytes) -> None:
        """Multicast a payload from a node to a group."""
        self._input(node, GroupLayer.cast, group, payload)

    # Queries

    def live_nodes(self, side: int | None = None) -> list[SimulatedGroupNode]:
        """Return the live nodes, of one side or of both."""
        return [node for node in self.nodes.values() if node.is_live and side in (None, node.ring_id)]

    def directories(self, group: GroupId, side: int = 0) -> list[SimulatedGroupNode]:
        """Return the nodes of a side that act as root of a group."""
        return [node for node in self.live_nodes(side) if not node.is_stalled and node.layer.directory_of(group) is not None]

    def fingerprint(self) -> list[tuple[float, str]]:
        """Return all events, for comparisons of runs."""
        return [(time, repr(event)) for node in self.nodes.values() for time, event in node.log]

    # Inside

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Call a function at a virtual time."""
        self._steps += 1
        heappush(self._heap, (when, self._steps, action))

    def _latency(self) -> float:
        return self.rng.uniform(*self._latency_s)

    def _input(self, node: SimulatedGroupNode, method: Callable[..., None], *arguments: object) -> None:
        """Call a method of a node's layer, and apply its outputs."""
        if not node.is_live:
            return
        if node.is_stalled:
            node.waiting.append((method, arguments))
            return
        method(node.layer, *arguments, self.now)
        self.apply(node)

    def apply(self, node: SimulatedGroupNode) -> None:
        """Pass on the outputs of a node's groups layer: messages, events and timers."""
        for output in node.layer.outputs_to_send():
            self._apply_output(node, output)
        for event in node.layer.events_received():
            node.log.append((self.now, event))
            if isinstance(event, ViewChanged):
                node.views[event.group] = event
            elif isinstance(event, TableChanged):
                apply_changes(node.tables.setdefault(event.group, {}), event)
            elif isinstance(event, Claimed):
                del node.claims[event.number]
                if self.on_claimed is not None:
                    self.on_claimed(node, event.number)
            elif isinstance(event, Cast):
                node.casts.append(event)
            elif isinstance(event, GroupJoined):
                node.joined[event.group] = self.now
            elif isinstance(event, GroupLeft):
                node.joined.pop(event.group, None)
        deadline = node.layer.deadline()
        if deadline is not None and (node.timer is None or deadline < node.timer):
            node.timer = max(deadline, self.now)
            self.call_at(node.timer, lambda: self._fire(node, node.timer))

    def _fire(self, node: SimulatedGroupNode, when: float | None) -> None:
        if node.timer is None or self.now < node.timer:
            return
        node.timer = None
        self._input(node, GroupLayer.handle_timeout)

    def _apply_output(self, node: SimulatedGroupNode, output: GroupOutput) -> None:
        if isinstance(output, HandoverDone):
            joiner = self.nodes[output.to.id]
            joiner.handovers.discard(node.info.id)
            if not joiner.handovers:
                self.call_at(self.now + 2 * self._latency_s[1], lambda: self._activate(joiner))
            return
        self.messages += 1
        self.bytes += len(output.payload)
        if isinstance(output, RouteTo):
            delay = self._latency() + self._latency() + self._latency()
            assert output.around is None, "nothing is doubted here"
            self.call_at(self.now + delay, lambda: self._route(node, output.key, output.payload, 0))
        elif isinstance(output, SendTo):
            pair = (node.info.id, output.info.id)
            when = max(self.now + self._latency(), self._last.get(pair, 0.0))
            self._last[pair] = when
            self.call_at(when, lambda: self._send(node, output.info.id, output.payload))
        else:
            assert isinstance(output, AnswerTo)
            self.call_at(self.now + 3 * self._latency(), lambda: self._send(node, output.path[0], output.payload))

    def _send(self, source: SimulatedGroupNode, receiver: NodeId, payload: bytes) -> None:
        node = self.nodes[receiver]
        if node.side == source.side and (source.is_live or self.rng.random() < 0.5):
            self._input(node, GroupLayer.received, source.info, payload)
        if node.side != source.side or not node.is_live:
            when = self.now + self._detection_s[1]
            self.call_at(when, lambda: self._input(source, GroupLayer.undeliverable, receiver, payload))

    def _route(self, source: SimulatedGroupNode, key: bytes, payload: bytes, attempts: int) -> None:
        if not source.ring.positions:
            return
        root = self.nodes[source.ring.root(key).id]
        if not root.is_live or root.is_stalled or root.side != source.side:
            # The previous hop notices, and retries until the ring is repaired; or the message died with the hop.
            if attempts < 100 and self.rng.random() < 0.99:
                self.call_at(self.now + 0.1, lambda: self._route(source, key, payload, attempts + 1))
        elif not root.is_active:
            root.buffered.append((key, payload, source.info))
        else:
            path: Path = (source.info.id,)
            self._input(root, GroupLayer.delivered, key, payload, source.info, path)

    def _activate(self, node: SimulatedGroupNode) -> None:
        if node.is_active or not node.is_live:
            return
        node.is_active = True
        self._input(node, GroupLayer.activated)
        buffered, node.buffered = node.buffered, []
        for key, payload, source in buffered:
            self._route(self.nodes[source.id], key, payload, 0)

    def _resume(self, node: SimulatedGroupNode) -> None:
        node.is_stalled = False
        if not node.is_live:
            return
        self._input(node, GroupLayer.resume)
        waiting, node.waiting = node.waiting, deque()
        for method, arguments in waiting:
            self._input(node, method, *arguments)
        node.timer = None
        self._input(node, GroupLayer.handle_timeout)
        if node.info.id not in node.members_of_ring():
            node.ring_id = node.side
            before = self._leaf_sets(node.ring_id, position(node.info.id))
            node.ring.add(node.info)
            node.members_of_ring().add(node.info.id)
            self._tell_leaves(before)
            self._input(node, GroupLayer.leaves_changed, [], [])

    def _notice(self, node: SimulatedGroupNode) -> None:
        """Remove a dead node from the ring. Notify ring neighbours, and nodes with a groups layer that needs the node."""
        if node.info.id not in node.members_of_ring():
            return
        before = self._leaf_sets(node.ring_id, position(node.info.id))
        node.ring.remove(node.info.id)
        node.members_of_ring().discard(node.info.id)
        for other in self.live_nodes():
            if other.ring_id != node.ring_id or other is node:
                continue
            is_leaf = any(info.id == node.info.id for info in before.get(other.info.id, ()))
            if is_leaf or other.layer.needs(node.info.id):
                self._input(other, GroupLayer.peer_dead, node.info.id)
        self._tell_leaves(before)

    def _arrange(self) -> None:
        """Put every node into the ring of its side, and notify all of them."""
        members = [node for node in self.nodes.values() if node.info.id in node.members_of_ring()]
        before = {node.info.id: node.ring.leaves(node.info.id) for node in members}
        for node in members:
            node.ring.remove(node.info.id)
            node.members_of_ring().discard(node.info.id)
        for node in members:
            node.ring_id = node.side
            node.ring.add(node.info)
            node.members_of_ring().add(node.info.id)
        for node in members:
            gone = [other.info.id for other in members if other.side != node.side]
            leaves = {info.id for info in before[node.info.id]}
            for peer in gone:
                if peer in leaves or node.layer.needs(peer):
                    self._input(node, GroupLayer.peer_dead, peer)
        self._tell_leaves(before)

    def _leaf_sets(self, side: int, where: int) -> dict[NodeId, list[NodeInfo]]:
        """Return the leaf sets (ring neighbours) of the nodes around a position, by node id."""
        ring = self.rings[side]
        count = len(ring.positions)
        index = bisect_left(ring.positions, where)
        around = {ring.positions[(index + step) % count] for step in range(-LEAF_HALF - 1, LEAF_HALF + 2)} if count else set()
        return {ring.infos[other].id: ring.leaves(ring.infos[other].id) for other in sorted(around)}

    def _tell_leaves(self, before: dict[NodeId, list[NodeInfo]]) -> None:
        for node_id, old in before.items():
            node = self.nodes[node_id]
            if node_id not in node.members_of_ring():
                continue
            new = node.ring.leaves(node_id)
            old_ids, new_ids = {info.id for info in old}, {info.id for info in new}
            if old_ids != new_ids and node.is_live:
                added = [info for info in new if info.id not in old_ids]
                removed = [info.id for info in old if info.id not in new_ids]
                self._input(node, GroupLayer.leaves_changed, added, removed)
