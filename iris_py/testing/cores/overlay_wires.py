"""Simulated wires between simulated nodes: links that stall, reset and are cut, dials, and lossy datagrams.

A link is an ordered stream of messages in each direction. A healthy link loses nothing; a reset loses the messages under way.
Across a partition, and during a stall, nothing arrives, and neither end notices, because idle links do not ping. Held messages
arrive later, as TCP would retransmit them. The end of one side reaches the other in order, behind earlier messages; a sender to
an ended side is notified.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from iris_overlay import events
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.overlay import Overlay

#: The largest number of events. More indicate an endless loop.
STEPS_MAX: Final = 50_000_000

#: Datagrams that wait for a suspended process: a socket buffer of Linux holds about this number of small ones.
BACKLOG_DATAGRAMS_MAX: Final = 256

#: The longest delay of TCP's retransmission after the end of a partition.
RESENT_S: Final = 1.0

#: The silence after which both ends end a link: the keep-alive timeout of real links, less up to an elapsed interval
#: (`iris_py/link/config.py`).
SILENCE_S: Final = (1.5, 2.25)

PORT: Final = 7000


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The permanent faults of the network. Probabilities are below 1."""

    latency_s: tuple[float, float] = (0.0002, 0.002)  # The range of one-way latencies, drawn once per pair.
    dial_failed: float = 0.0  # The share of dials that fail without a refusal, despite a listener.
    dial_timeout_s: float = 3.0  # The timeout of an unanswered dial.
    datagram_lost: float = 0.0
    datagram_repeated: float = 0.0
    datagram_delay_s_max: float = 0.0  # The extra delay of a datagram; more than the gap between two reorders them.
    break_delay_s: tuple[float, float] = (
        0.0,
        0.2,
    )  # The delay until peers of a crashed process, and ends of a reset link, notice.


class Reach(enum.Enum):
    """Whether other nodes can dial a node."""

    OPEN = enum.auto()
    """Any node can dial."""
    HIDDEN = enum.auto()
    """No node can dial: the node has no address."""
    WALLED = enum.auto()
    """No node can dial: dials, and datagrams other than answers, disappear."""


class SimulatedEnd(enum.Enum):
    """The state of a simulated link at one of its ends."""

    OPENING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


@dataclass(eq=False, slots=True)
class SimulatedNode:
    """A simulated node from its start to its end. A restart makes a new node, with a new id."""

    index: int
    info: NodeInfo
    overlay: Overlay
    has_beacons: bool
    reach: Reach
    started_at: float
    is_alive: bool = True
    is_stopped: bool = False
    is_leaving: bool = False
    is_driven: bool = False  # Whether its outputs are being applied.
    backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)  # Input during a standstill.
    resumed_at: list[float] = field(default_factory=list)  # Recent ends of standstills.
    links: dict[NodeId, SimulatedLink] = field(default_factory=dict)
    used: dict[NodeId, float] = field(default_factory=dict)  # The end of the application's use of a link.
    connecting: dict[NodeId, float] = field(default_factory=dict)  # The start of the application's wait for a link.
    groups: dict[GroupId, bytes] = field(default_factory=dict)  # The application's groups, with attributes.
    joined: dict[GroupId, float] = field(default_factory=dict)  # The completed memberships, with their times.
    left: dict[GroupId, float] = field(default_factory=dict)  # The left groups, with the times of completion.
    watched: dict[GroupId, float] = field(default_factory=dict)
    views: dict[GroupId, events.ViewChanged] = field(default_factory=dict)
    commands: dict[GroupId, list[float]] = field(default_factory=dict)  # The times of pending commands.
    received: dict[tuple[GroupId, NodeId], int] = field(default_factory=dict)  # The last multicast of each source.
    log: list[tuple[float, events.Event]] = field(default_factory=list)  # All events but multicasts, with their times.
    wake: float | None = None
    source_hosts: dict[str, None] = field(default_factory=dict)  # Targets of datagrams, which may answer through a wall.
    messages: int = 0
    datagrams: int = 0

    @property
    def id(self) -> NodeId:
        """Return the node id."""
        return self.info.id

    @property
    def is_running(self) -> bool:
        """Return whether the node is alive and not suspended."""
        return self.is_alive and not self.is_stopped

    def times_of(self, kind: type[events.Event]) -> list[float]:
        """Return the times at which the node reported events of a kind."""
        return [when for when, event in self.log if isinstance(event, kind)]


class LinkItem(enum.Enum):
    """The items that travel on a simulated link: messages, and signals of its opening and end."""

    OPEN = enum.auto()
    DATA = enum.auto()
    CLOSE = enum.auto()
    BREAK = enum.auto()


class SimulatedLink:
    """A simulated link: one stream of messages in each direction. In pairs of values, the initiator's comes first."""

    __slots__ = ("ends", "is_given_up", "ready_at", "signs", "stalled_until", "states", "waiting", "was_reset")

    def __init__(self, initiator: SimulatedNode, responder: SimulatedNode) -> None:
        self.ends = (initiator, responder)
        self.states = [SimulatedEnd.OPENING, SimulatedEnd.OPEN]
        self.ready_at = [0.0, 0.0]
        self.waiting: tuple[list[tuple[LinkItem, Any]], list[tuple[LinkItem, Any]]] = ([], [])
        self.stalled_until = 0.0
        self.was_reset = False
        self.signs = 0  # the number of ended silences
        self.is_given_up = False

    def end_of(self, node: SimulatedNode) -> int:
        """Return the index of a node's end in pairs of values: 0 for the initiator, 1 for the responder."""
        return 0 if node is self.ends[0] else 1


class Heap:
    """Future events, and a clock that jumps from one to the next."""

    def __init__(self) -> None:
        self.now, self.steps = 0.0, 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def schedule(self, when: float, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        """Schedule a call."""
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, action, arguments))

    def run_to(self, end: float) -> None:
        """Run all events up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.steps += 1
            assert self.steps <= STEPS_MAX
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)
        self.now = end


@dataclass(eq=False, slots=True)
class _SimulatedDial:
    node: SimulatedNode
    address: str
    is_done: bool = False


class Wires:
    """Carries the messages and datagrams of overlays.

    Args:
        heap: The clock and the future events.
        post: Makes a live node handle an input: at once, or when its process resumes.
    """

    def __init__(
        self,
        heap: Heap,
        rng: random.Random,
        faults: Faults,
        post: Callable[..., None],
        drive: Callable[[SimulatedNode], None],
    ) -> None:
        self.faults = faults
        self.hosts: dict[int, SimulatedNode] = {}
        self.down: dict[int, None] = {}  # Hosts without power, where no dial is refused.
        self.sides: dict[int, int] = {}
        self.mute: dict[int, None] = {}  # Hosts whose outgoing traffic is blocked.
        self.deaf: dict[int, None] = {}  # Hosts whose incoming traffic is blocked.
        self._heap = heap
        self._rng = rng
        self._post = post
        self._drive = drive
        self._latencies: dict[tuple[int, int], float] = {}
        self._pairs: dict[frozenset[NodeId], SimulatedLink] = {}
        self._indices: dict[str, int] = {}

    @staticmethod
    def host_of(index: int) -> str:
        """Return the host address for an index."""
        return f"10.0.{index // 250}.{index % 250 + 1}"

    def add(self, node: SimulatedNode) -> None:
        """Put a node on its host."""
        self.hosts[node.index] = node
        self._indices[self.host_of(node.index)] = node.index
        self.down.pop(node.index, None)

    # Reach

    def is_connected(self, first: SimulatedNode, second: SimulatedNode) -> bool:
        """Tell whether no partition separates two nodes."""
        return self.sides.get(first.index, 0) == self.sides.get(second.index, 0)

    def reaches(self, sender: SimulatedNode, receiver: SimulatedNode) -> bool:
        """Tell whether traffic from one node arrives at another."""
        return self.is_connected(sender, receiver) and sender.index not in self.mute and receiver.index not in self.deaf

    def is_held_up(self, link: SimulatedLink, to: int) -> bool:
        """Tell whether messages on a link wait, in the direction towards end ``to``."""
        return link.stalled_until > self._heap.now or not self.reaches(link.ends[1 - to], link.ends[to])

    def is_impaired(self, link: SimulatedLink) -> bool:
        """Return whether a link is blocked in at least one direction."""
        return self.is_held_up(link, 0) or self.is_held_up(link, 1)

    def links(self) -> list[SimulatedLink]:
        """Return the links that at least one end takes for open."""
        return list(dict.fromkeys(link for node in self.hosts.values() for link in node.links.values()))

    def latency(self, first: SimulatedNode, second: SimulatedNode) -> float:
        """Return the one-way latency between two nodes."""
        pair = (min(first.index, second.index), max(first.index, second.index))
        latency = self._latencies.get(pair)
        if latency is None:
            latency = self._latencies[pair] = self._rng.uniform(*self.faults.latency_s)
        return latency

    def partition(self, sides: Iterable[Iterable[int]]) -> None:
        """Cut sets of indices off from each other; the remaining nodes form one more set."""
        self.sides = {index: number for number, side in enumerate(sides, 1) for index in side}
        self._notice_cuts(self.links())

    def cut(self, node: SimulatedNode, *, mute: bool = False, deaf: bool = False) -> None:
        """Block all traffic from a host, to a host, or both, as a firewall or a broken cable does."""
        for hosts, is_cut in ((self.mute, mute), (self.deaf, deaf)):
            hosts.pop(node.index, None)
            if is_cut:
                hosts[node.index] = None
        self._notice_cuts(node.links.values())

    def _notice_cuts(self, links: Iterable[SimulatedLink]) -> None:
        for link in links:
            if self.is_impaired(link):
                self._watch_silence(link)
            else:
                self._heap.schedule(self._heap.now + self._rng.uniform(0.0, RESENT_S), self._release, link)

    def stall(self, link: SimulatedLink, duration_s: float) -> None:
        """Hold all messages of a link for a while, then deliver them."""
        link.stalled_until = max(link.stalled_until, self._heap.now + duration_s)
        self._heap.schedule(link.stalled_until, self._release, link)
        self._watch_silence(link)

    def end_stalls(self) -> None:
        """Deliver everything held on stalled links."""
        for link in self.links():
            link.stalled_until = min(link.stalled_until, self._heap.now)
            self._release(link)

    def reset(self, link: SimulatedLink) -> None:
        """Break a link: messages in transit are lost, and each end notices after a delay of its own."""
        link.was_reset = True
        for end in (0, 1):
            link.waiting[end].clear()
            delay = self._rng.uniform(*self.faults.break_delay_s)
            self._heap.schedule(self._heap.now + delay, self._reach_process, link, end, LinkItem.BREAK, None)

    def stop(self, node: SimulatedNode) -> None:
        """Handle the suspension of a process: peers may end links because of the silence."""
        for link in node.links.values():
            self._watch_silence(link)

    def resume(self, node: SimulatedNode) -> None:
        """Handle the resumption of a process, which ends the silence on its links."""
        for link in node.links.values():
            self._end_silence(link)

    # The ends of a node

    def send(self, node: SimulatedNode, peer: NodeId, data: bytes) -> None:
        """Send a message to a peer if the node has a link to the peer."""
        link = node.links.get(peer)
        if link is not None:
            self._push(link, 1 - link.end_of(node), LinkItem.DATA, data)

    def end_link(self, node: SimulatedNode, link: SimulatedLink, item: LinkItem) -> None:
        """End a link at one node. CLOSE arrives behind all sent messages; BREAK means a broken connection."""
        end = link.end_of(node)
        if link.states[end] is not SimulatedEnd.CLOSED:
            self._lose(link, end, is_closed=item is LinkItem.CLOSE)
            self._push(link, 1 - end, item, None)

    def end_process(self, node: SimulatedNode, item: LinkItem | None) -> None:
        """End all links of an ended process. With None, the peers are not notified."""
        for link in node.links.values():
            end = link.end_of(node)
            link.states[end] = SimulatedEnd.CLOSED
            if item is LinkItem.BREAK:
                delay = self._rng.uniform(*self.faults.break_delay_s)
                link.ready_at[1 - end] = max(link.ready_at[1 - end], self._heap.now + delay)
            if item is None:
                self._watch_silence(link)
            else:
                self._push(link, 1 - end, item, None)
        node.links.clear()

    # Links

    def _push(self, link: SimulatedLink, to: int, item: LinkItem, data: object) -> None:
        now = self._heap.now
        when = link.ready_at[to] = max(link.ready_at[to], now + self.latency(*link.ends))
        self._heap.schedule(when, self._arrive, link, to, item, data)

    def _arrive(self, link: SimulatedLink, to: int, item: LinkItem, data: object) -> None:
        if link.was_reset:
            if item is LinkItem.OPEN:
                self._post(link.ends[0], self._fail_dial, data, False)
        elif link.waiting[to] or self.is_held_up(link, to):
            link.waiting[to].append((item, data))
        else:
            self._reach_process(link, to, item, data)

    def _release(self, link: SimulatedLink) -> None:
        self._end_silence(link)
        for to in (0, 1):
            if self.is_held_up(link, to):
                continue
            waiting = list(link.waiting[to])
            link.waiting[to].clear()
            for item, data in waiting:
                self._reach_process(link, to, item, data)

    def _watch_silence(self, link: SimulatedLink) -> None:
        self._heap.schedule(self._heap.now + self._rng.uniform(*SILENCE_S), self._give_up, link, link.signs)

    def _end_silence(self, link: SimulatedLink) -> None:
        if not self.is_impaired(link) and all(node.is_running for node in link.ends):
            link.signs += 1

    def _give_up(self, link: SimulatedLink, signs: int) -> None:
        if link.signs == signs and not link.is_given_up:
            link.is_given_up = True
            for end, node in enumerate(link.ends):
                if link.states[end] is SimulatedEnd.OPEN and node.is_alive:
                    self._post(node, self._handle_item, link, end, LinkItem.BREAK, None)

    def _reach_process(self, link: SimulatedLink, to: int, item: LinkItem, data: object) -> None:
        node = link.ends[to]
        if node.is_alive:
            self._post(node, self._handle_item, link, to, item, data)
        elif (
            node.index not in self.down and item in (LinkItem.DATA, LinkItem.OPEN) and link.states[1 - to] is SimulatedEnd.OPEN
        ):
            self._push(link, 1 - to, LinkItem.BREAK, None)

    def _handle_item(self, link: SimulatedLink, to: int, item: LinkItem, data: Any) -> None:  # noqa: ANN401
        node, peer = link.ends[to], link.ends[1 - to]
        state = link.states[to]
        if item is LinkItem.DATA:
            if state is SimulatedEnd.OPEN:
                node.overlay.receive_message(peer.id, data, self._heap.now)
                self._drive(node)
            elif link.states[1 - to] is SimulatedEnd.OPEN:
                self._push(link, 1 - to, LinkItem.BREAK, None)
        elif item is LinkItem.OPEN:
            self._open_dialled(link, data)
        elif state is not SimulatedEnd.CLOSED:
            self._lose(link, to, is_closed=item is LinkItem.CLOSE)

    def _lose(self, link: SimulatedLink, end: int, *, is_closed: bool) -> None:
        node, peer = link.ends[end], link.ends[1 - end]
        link.states[end] = SimulatedEnd.CLOSED
        if node.links.get(peer.id) is link:
            del node.links[peer.id]
            node.overlay.link_lost(peer.id, self._heap.now, is_closed=is_closed)
            self._drive(node)

    # Dials

    def dial(self, node: SimulatedNode, address: str) -> None:
        """Dial an address."""
        now = self._heap.now
        dial = _SimulatedDial(node, address)
        index = self._indices.get(address.rpartition(":")[0], -1)
        target = self.hosts.get(index)
        self._heap.schedule(now + self.faults.dial_timeout_s, self._time_out, dial)
        if target is None or index in self.down or not self._can_shake_hands(node, target):
            return
        if target.reach is Reach.WALLED and target is not node:
            return
        latency = self.latency(node, target)
        if not target.is_alive:
            self._heap.schedule(now + 2 * latency, self._post, node, self._fail_dial, dial, True)
        elif self._rng.random() < self.faults.dial_failed:
            self._heap.schedule(now + 2 * latency, self._post, node, self._fail_dial, dial, False)
        else:
            self._heap.schedule(now + latency, self._post, target, self._accept, dial, target)

    def _can_shake_hands(self, node: SimulatedNode, target: SimulatedNode) -> bool:
        return self.reaches(node, target) and self.reaches(target, node)

    def _time_out(self, dial: _SimulatedDial) -> None:
        if not dial.is_done:
            self._post(dial.node, self._fail_dial, dial, False)

    def _fail_dial(self, dial: _SimulatedDial, is_refused: bool) -> None:
        if not dial.is_done:
            dial.is_done = True
            dial.node.overlay.dial_failed(dial.address, self._heap.now, is_refused=is_refused)
            self._drive(dial.node)

    def _accept(self, dial: _SimulatedDial, target: SimulatedNode) -> None:
        node, now = dial.node, self._heap.now
        if dial.is_done or not node.is_alive or not self._can_shake_hands(node, target):
            return
        if node is target:
            self._finish_dial(dial, target)
            return
        pair = frozenset((node.id, target.id))
        old = self._pairs.get(pair)
        if old is not None:
            theirs, ours = old.states[old.end_of(node)], old.states[old.end_of(target)]
            if theirs is not SimulatedEnd.CLOSED and ours is not SimulatedEnd.CLOSED:
                # Two nodes have at most one link: one is open already, or about to open.
                self._heap.schedule(now + self.latency(node, target), self._post, node, self._finish_dial, dial, target)
                return
            if ours is not SimulatedEnd.CLOSED:  # The initiator saw its end first.
                self._lose(old, old.end_of(target), is_closed=False)
        link = self._pairs[pair] = SimulatedLink(node, target)
        self._push(link, 0, LinkItem.OPEN, dial)
        target.links[node.id] = link
        target.connecting.pop(node.id, None)
        target.overlay.link_opened(node.info, now)
        self._drive(target)

    def _open_dialled(self, link: SimulatedLink, dial: _SimulatedDial) -> None:
        node, peer = link.ends
        if dial.is_done or link.is_given_up:
            link.states[0] = SimulatedEnd.CLOSED
            self._push(link, 1, LinkItem.BREAK, None)
            self._fail_dial(dial, False)
            return
        old = node.links.get(peer.id)
        if old is not None:
            self._lose(old, old.end_of(node), is_closed=False)
        is_dial_first = self._rng.random() < 0.5  # The owner may report the dial and the link in either order.
        if is_dial_first:
            self._finish_dial(dial, peer)
        link.states[0] = SimulatedEnd.OPEN
        node.links[peer.id] = link
        node.connecting.pop(peer.id, None)
        node.overlay.link_opened(peer.info, self._heap.now)
        if not is_dial_first:
            self._finish_dial(dial, peer)
        self._drive(node)

    def _finish_dial(self, dial: _SimulatedDial, peer: SimulatedNode) -> None:
        if not dial.is_done:
            dial.is_done = True
            dial.node.overlay.dial_succeeded(dial.address, peer.id, self._heap.now)
            self._drive(dial.node)

    # Datagrams

    def send_datagram(self, node: SimulatedNode, destination: tuple[str, int] | None, data: bytes) -> None:
        """Send a datagram to a host, or by multicast to all nodes with beacons."""
        source = (self.host_of(node.index), PORT)
        if destination is None:
            for other in list(self.hosts.values()):
                if other.has_beacons and node.has_beacons and other is not node:
                    self._carry(node, other, data, source)
            return
        target = self.hosts.get(self._indices.get(destination[0], -1))
        if target is None or destination[1] != PORT:
            return
        node.source_hosts[destination[0]] = None
        if target.reach is Reach.OPEN or source[0] in target.source_hosts:
            self._carry(node, target, data, source)

    def _carry(self, node: SimulatedNode, target: SimulatedNode, data: bytes, source: tuple[str, int]) -> None:
        faults, rng, heap = self.faults, self._rng, self._heap
        if not target.is_alive or not self.reaches(node, target):
            return
        when = heap.now + self.latency(node, target)
        while not faults.datagram_lost or rng.random() >= faults.datagram_lost:
            delay = rng.uniform(0.0, faults.datagram_delay_s_max) if faults.datagram_delay_s_max else 0.0
            heap.schedule(when + delay, self._post, target, self._receive_datagram, node, target, data, source)
            if not faults.datagram_repeated or rng.random() >= faults.datagram_repeated:
                return

    def _receive_datagram(self, sender: SimulatedNode, target: SimulatedNode, data: bytes, source: tuple[str, int]) -> None:
        target.overlay.receive_datagram(sender.info.id, data, source, self._heap.now)
        self._drive(target)
