"""A network of overlays with a virtual clock: a heap of events, no sockets, no event loop.

One seed determines all random choices, so a failure can be reproduced from its seed::

    simulation = OverlaySimulation(seed=7)
    nodes = [simulation.start_node() for _ in range(50)]
    simulation.watch_group(nodes[0], group)
    simulation.join_group(nodes[1], group)
    simulation.run_until(simulation.is_converged, limit_s=5.0)

The simulation acts as the owner of every overlay: it dials, closes released links, and breaks links to dead nodes.
`overlay_wires` simulates the network, `overlay_checks` checks the promises all the time, and `overlay_faults` draws random
faults.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any, Final

from iris_overlay import events
from iris_overlay.config import OverlayConfig
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.overlay import Overlay
from iris_py.testing.cores.overlay_checks import Checks
from iris_py.testing.cores.overlay_wires import PORT, Faults, Heap, LinkItem, Reach, SimulatedNode, Wires
from iris_py.testing.cores.signer import NamedSigner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.testing.cores.overlay_wires import SimulatedLink

CHECK_INTERVAL_S: Final = 0.25

# The extra time for all promises after each kind of fault: see overlay_checks.
AFTER_HEAL_S: Final = 30.0
AFTER_PARTITION_S: Final = 15.0
AFTER_STOP_S: Final = 5.0
AFTER_STALL_S: Final = 5.0
AFTER_CRASHES_S: Final = 10.0

#: How long a resumed node remembers its standstill, at least without answers from others.
STOPS_S: Final = 10.0

CRASHES_S: Final = 5.0
#: More crashes than this within CRASHES_S may take the root of a group together with all its copies.
CRASHES_MAX: Final = 2


class OverlaySimulation:
    """Runs the overlays of many nodes against each other, and checks their promises.

    Nodes have indices; a node can end, and another node can start at the same index.

    Attributes:
        nodes: The last node at each index.
        checks: The checks, which raise AssertionError as time advances.
        hint: Text appended to errors, with the way to reproduce them.
        packets_received: The number of packets received through the ring.
    """

    def __init__(
        self, seed: int, *, config: OverlayConfig | None = None, faults: Faults | None = None, is_checked: bool = True
    ) -> None:
        self.nodes: dict[int, SimulatedNode] = {}
        self.hint = ""
        self.packets_received: int = 0
        self._seed = seed
        self._config = config if config is not None else OverlayConfig()
        self._rng = random.Random(seed)
        self._heap = Heap()
        self._trace = hashlib.sha256()
        self._wires = Wires(self._heap, self._rng, faults if faults is not None else Faults(), self._post, self._drive)
        self._crashed_at: list[float] = []
        self._casts = 0
        self._is_checked = is_checked
        self.checks: Checks = Checks(self)
        self._heap.schedule(CHECK_INTERVAL_S, self._check)

    @property
    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._heap.now

    @property
    def steps(self) -> int:
        """Return the number of events run so far."""
        return self._heap.steps

    @property
    def faults(self) -> Faults:
        """Return the permanent faults of the network."""
        return self._wires.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._wires.faults = faults

    @property
    def config(self) -> OverlayConfig:
        """Return the settings common to all nodes."""
        return self._config

    @property
    def wires(self) -> Wires:
        """Return the simulated network between the nodes."""
        return self._wires

    # Nodes

    def address_of(self, index: int) -> str:
        """Return the listening address of the node at an index."""
        return f"{Wires.host_of(index)}:{PORT}"

    def start_node(
        self, index: int | None = None, *, seeds: Sequence[str] = (), remembered: Sequence[str] = (), beacons: bool = True,
        remembered_is_complete: bool = False, zone: str | None = None, reach: Reach = Reach.OPEN,
    ) -> int:  # fmt: skip
        """Start a node at an index without a live node, by default the next new one; return the index."""
        index = len(self.nodes) if index is None else index
        assert index not in self.nodes or not self.nodes[index].is_alive
        addresses = () if reach is Reach.HIDDEN else (self.address_of(index),)
        info = NodeInfo(NodeId(self._rng.randbytes(ID_BYTES)), addresses, f"zone{index % 3}" if zone is None else zone)
        overlay = Overlay(info, self._config, random.Random(self._rng.random()), NamedSigner(info.id))
        node = self.nodes[index] = SimulatedNode(index, info, overlay, beacons, reach, self.now)
        self._wires.add(node)
        self._command(node, overlay.start, seeds, remembered, beacons, remembered_is_complete, is_now_first=True)
        return index

    def live_nodes(self) -> list[SimulatedNode]:
        """Return the live nodes, including leaving and suspended ones."""
        return [node for node in self.nodes.values() if node.is_alive]

    def crash(self, index: int) -> None:
        """Kill a process: its links end, and dials to the node are refused."""
        self._end(self.nodes[index], LinkItem.BREAK)

    def fail(self, index: int) -> None:
        """Cut the power of a host: links do not end visibly, and dials get no answer."""
        self._wires.down[index] = None
        self._end(self.nodes[index], None)

    def stop(self, index: int) -> None:
        """Suspend a process. Its input waits."""
        node = self.nodes[index]
        node.is_stopped = True
        self._wires.stop(node)
        self.checks.disturb(0.0)

    def resume(self, index: int) -> None:
        """Resume a suspended process, which reads its waiting input and runs its timers late."""
        node = self.nodes[index]
        if not node.is_stopped:
            return
        # A resumed node doubts itself, more after each standstill: all its timeouts grow (detector.py of the overlay).
        node.resumed_at = [when for when in node.resumed_at if self.now - when < STOPS_S] + [self.now]
        self.checks.disturb(AFTER_STOP_S * len(node.resumed_at))
        node.is_stopped = False
        if not node.is_alive:
            return
        self._wires.resume(node)
        # Some event loops run late timers first, others read sockets first.
        is_timer_first = self._rng.random() < 0.5
        if is_timer_first:
            self._time_out(node)
        backlog = list(node.backlog)
        node.backlog.clear()
        for action, arguments in backlog:
            self._post(node, action, *arguments)
        if not is_timer_first:
            self._time_out(node)

    def leave(self, index: int) -> None:
        """Make a node leave the network and stop."""
        node = self.nodes[index]
        if node.is_leaving:
            return
        node.is_leaving = True
        node.joined.clear()
        node.groups.clear()
        for times in node.commands.values():
            times.append(self.now)
        self._command(node, node.overlay.leave)

    # Groups

    def join_group(self, index: int, group: GroupId, attributes: bytes = b"") -> None:
        """Make a node join a group."""
        node = self.nodes[index]
        if node.is_leaving:
            return
        node.groups[group] = attributes
        node.left.pop(group, None)
        node.commands.setdefault(group, []).append(self.now)
        self._command(node, node.overlay.join_group, group, attributes)

    def leave_group(self, index: int, group: GroupId) -> None:
        """Make a node leave a group."""
        node = self.nodes[index]
        node.groups.pop(group, None)
        node.joined.pop(group, None)
        node.commands.setdefault(group, []).append(self.now)
        self._command(node, node.overlay.leave_group, group)

    def watch_group(self, index: int, group: GroupId) -> None:
        """Make a node watch a group."""
        node = self.nodes[index]
        node.watched.setdefault(group, self.now)
        self._command(node, node.overlay.watch_group, group)

    def unwatch_group(self, index: int, group: GroupId) -> None:
        """Make a node stop watching a group."""
        node = self.nodes[index]
        node.watched.pop(group, None)
        node.views.pop(group, None)
        self._command(node, node.overlay.unwatch_group, group)

    def cast(self, index: int, group: GroupId) -> None:
        """Multicast from a node to a group; the checks follow the delivery."""
        node = self.nodes[index]
        self._casts += 1
        self.checks.note_cast(node, group, self._casts)
        self._command(node, node.overlay.cast, group, self._casts.to_bytes(8, "big"))

    def connect(self, index: int, info: NodeInfo, use_s: float = 0.0) -> None:
        """Open a link from a node to another, as its application would, and keep using the link for a while."""
        node = self.nodes[index]
        node.used[info.id] = self.now + use_s
        if info.id not in node.links:
            node.connecting.setdefault(info.id, self.now)
        self._command(node, node.overlay.connect, info)

    def send(self, index: int, info: NodeInfo, payload: bytes) -> None:
        """Send a packet from a node through the ring."""
        node = self.nodes[index]
        self._command(node, node.overlay.send, info, payload)

    def send_raw(self, sender: int, receiver: int, data: bytes) -> None:
        """Send arbitrary bytes over the link of two nodes, as a faulty node might."""
        self._wires.send(self.nodes[sender], self.nodes[receiver].id, data)

    # The network

    def partition(self, sides: Sequence[Sequence[int]]) -> None:
        """Cut sets of indices off from each other; the remaining nodes form one more set."""
        self.checks.disturb(AFTER_PARTITION_S)
        self._wires.partition(sides)

    def heal(self) -> None:
        """End the partition."""
        if self._wires.sides:
            self._wires.partition(())
            self.checks.disturb(AFTER_HEAL_S)

    def cut(self, index: int, *, mute: bool = False, deaf: bool = False) -> None:
        """Block all traffic from a host, to a host, or both; with neither, restore the host."""
        self.checks.disturb(AFTER_PARTITION_S)
        self._wires.cut(self.nodes[index], mute=mute, deaf=deaf)

    def reset_link(self, first: int, second: int) -> bool:
        """Reset the link between two nodes; return whether they have one."""
        link = self._link(first, second)
        if link is not None:
            self.checks.disturb(0.0)
            self._wires.reset(link)
        return link is not None

    def stall_link(self, first: int, second: int, duration_s: float) -> bool:
        """Block the link between two nodes for a while; return whether they have one."""
        link = self._link(first, second)
        if link is not None:
            self.checks.disturb(duration_s + AFTER_STALL_S)
            self._wires.stall(link, duration_s)
        return link is not None

    # Time

    def run_for(self, duration_s: float) -> None:
        """Advance the time."""
        self._heap.run_to(self.now + duration_s)

    def run_until(self, predicate: Callable[[], bool], limit_s: float, step_s: float = 0.01) -> float:
        """Advance the time until a predicate holds, checked at every step; return the elapsed time."""
        start = self.now
        while not predicate():
            if self.now - start > limit_s:
                raise self.error(f"not true since {start:.3f} s: {self.checks.problems()[:8]}")
            self._heap.run_to(self.now + step_s)
        return self.now - start

    def trace_hash(self) -> str:
        """Return a hash of all events so far, in order."""
        return self._trace.hexdigest()

    def is_converged(self) -> bool:
        """Return whether each side of a partition has one ring, with correct directories and views."""
        return not self.checks.problems()

    def size_errors(self, name: str, limit: int) -> list[str]:
        """Return the nodes whose table of a name exceeds a limit."""
        sizes = [(node.index, node.overlay.table_sizes()[name]) for node in self.live_nodes()]
        return [f"{index} has {size} {name}" for index, size in sizes if size > limit]

    def error(self, text: str) -> AssertionError:
        """Return an error with the way to reproduce the failure."""
        place = f"seed {self._seed}, {self.now:.3f} s, step {self.steps}"
        return AssertionError(f"{place}: {text}{self.hint}")

    # Inside

    def _link(self, first: int, second: int) -> SimulatedLink | None:
        return self.nodes[first].links.get(self.nodes[second].id) if second in self.nodes and first in self.nodes else None

    def _end(self, node: SimulatedNode, item: LinkItem | None) -> None:
        if not node.is_alive:
            return
        node.is_alive = False
        self._wires.end_process(node, item)
        self.checks.note_death(node)
        self._crashed_at = [when for when in self._crashed_at if self.now - when < CRASHES_S] + [self.now]
        self.checks.disturb(AFTER_CRASHES_S if len(self._crashed_at) > CRASHES_MAX else 0.0)

    def _check(self) -> None:
        if self._is_checked:
            self.checks.run()
        self._heap.schedule(self.now + CHECK_INTERVAL_S, self._check)

    def _command(
        self, node: SimulatedNode, command: Callable[..., None], *arguments: object, is_now_first: bool = False
    ) -> None:
        """Run a command of a node's application; for a suspended process, after the process resumes."""
        if node.is_alive:
            self._post(node, self._run_command, node, command, arguments, is_now_first)

    def _run_command(
        self, node: SimulatedNode, command: Callable[..., None], arguments: tuple[object, ...], first: bool
    ) -> None:
        self._trace.update(f"{self.now!r} {command.__name__} {node.index} {arguments!r}\n".encode())
        if first:
            command(self.now, *arguments)
        else:
            command(*arguments, self.now)
        self._drive(node)

    def _post(self, node: SimulatedNode, action: Callable[..., None], *arguments: object) -> None:
        if node.is_alive:
            if node.is_stopped:
                node.backlog.append((action, arguments))
            else:
                action(*arguments)

    def _drive(self, node: SimulatedNode) -> None:
        """Pass on the outputs of a node's overlay, in the order the overlay requires, until none are left."""
        if node.is_driven:
            return  # An event made the owner break a link: the outer call handles the consequences.
        node.is_driven = True
        overlay, wires, trace = node.overlay, self._wires, self._trace
        while True:
            messages = overlay.messages_to_send()
            if messages:
                node.messages += len(messages)
                for peer, data in messages:
                    wires.send(node, peer, data)
                    trace.update(data)
            datagrams = overlay.datagrams_to_send()
            if datagrams:
                node.datagrams += len(datagrams)
                for destination, data in datagrams:
                    wires.send_datagram(node, destination, data)
            happened = overlay.events_received()
            if not happened:
                break
            for event in happened:
                self._handle_event(node, event)
            if not node.is_alive:
                return
        node.is_driven = False
        trace.update(b"%d %.9f" % (node.index, self.now))
        deadline = overlay.deadline()
        if deadline is not None and (node.wake is None or deadline < node.wake):
            node.wake = max(deadline, self.now)
            self._heap.schedule(node.wake, self._fire, node, node.wake)

    def _fire(self, node: SimulatedNode, when: float) -> None:
        if node.wake != when or not node.is_alive:
            return
        node.wake = None
        if not node.is_stopped:
            self._time_out(node)

    def _time_out(self, node: SimulatedNode) -> None:
        deadline = node.overlay.deadline()
        if deadline is not None and deadline <= self.now:
            node.overlay.handle_timeout(self.now)
        self._drive(node)

    def _handle_event(self, node: SimulatedNode, event: events.Event) -> None:
        handle = _HANDLERS.get(type(event))
        if not isinstance(event, events.Cast):
            node.log.append((self.now, event))
        if handle is not None:
            handle(self, node, event)

    def _on_dial(self, node: SimulatedNode, event: events.DialRequested) -> None:
        self._wires.dial(node, event.address)

    def _on_released(self, node: SimulatedNode, event: events.LinkReleased) -> None:
        link = node.links.get(event.peer)
        if link is not None and node.used.get(event.peer, 0.0) <= self.now:
            node.used.pop(event.peer, None)
            self._wires.end_link(node, link, LinkItem.CLOSE)

    def _on_break(self, node: SimulatedNode, event: events.PeerDied | events.ProtocolViolated) -> None:
        if isinstance(event, events.PeerDied):
            node.connecting.pop(event.peer, None)
        link = node.links.get(event.peer)
        if link is not None:
            self._wires.end_link(node, link, LinkItem.BREAK)

    def _on_connect_failed(self, node: SimulatedNode, event: events.ConnectFailed) -> None:
        node.connecting.pop(event.peer, None)

    def _on_view(self, node: SimulatedNode, event: events.ViewChanged) -> None:
        if event.group in node.watched:
            node.views[event.group] = event

    def _on_cast(self, node: SimulatedNode, event: events.Cast) -> None:
        self.checks.note_received(node, event)

    def _on_packet(self, node: SimulatedNode, event: events.PacketReceived) -> None:
        self.packets_received += 1

    def _on_completed(self, node: SimulatedNode, event: events.GroupJoined | events.GroupLeft) -> None:
        asked_at = node.commands[event.group].pop(0)
        if not node.commands[event.group]:
            if isinstance(event, events.GroupJoined):
                node.joined[event.group] = self.now
            else:
                node.left[event.group] = self.now
            if self._is_checked:
                self.checks.check_told(node, event.group, asked_at)

    def _on_departed(self, node: SimulatedNode, event: events.Departed) -> None:
        node.is_alive = False
        self._wires.end_process(node, LinkItem.CLOSE)
        self.checks.note_death(node)


_HANDLERS: Final[dict[type[events.Event], Callable[[OverlaySimulation, SimulatedNode, Any], None]]] = {
    events.DialRequested: OverlaySimulation._on_dial,
    events.LinkReleased: OverlaySimulation._on_released,
    events.PeerDied: OverlaySimulation._on_break,
    events.ProtocolViolated: OverlaySimulation._on_break,
    events.ConnectFailed: OverlaySimulation._on_connect_failed,
    events.ViewChanged: OverlaySimulation._on_view,
    events.Cast: OverlaySimulation._on_cast,
    events.PacketReceived: OverlaySimulation._on_packet,
    events.GroupJoined: OverlaySimulation._on_completed,
    events.GroupLeft: OverlaySimulation._on_completed,
    events.Departed: OverlaySimulation._on_departed,
}
