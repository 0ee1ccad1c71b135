"""Simulated wires between simulated nodes: links that stall, reset and are cut, dials, and datagrams that get lost.

A link is an ordered stream of messages each way. While it holds nothing is lost; what is under way when it is reset is. Across
a partition, and while it stalls, nothing arrives, and neither end notices: idle links do not ping. All of it arrives later,
for TCP sends it again. When one end has ended, the other one hears of it in order, after everything that was sent before; who
sends to an end that is gone is told so.
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
    from iris_overlay.messages import NodeInfo
    from iris_overlay.overlay import Overlay

#: More steps are a loop.
STEPS_MAX: Final = 50_000_000

#: Datagrams that wait for a process that stands still: a socket buffer of Linux holds about as many small ones.
BACKLOG_DATAGRAMS_MAX: Final = 256

#: How long after the end of a partition TCP sends what waited, at most.
RESENT_S: Final = 1.0

#: How much longer a link may be silent before its ends give it up: the keep-alive time-out of real ones, less up to an interval
#: that has passed already (`iris_py/link/config.py`).
SILENCE_S: Final = (1.5, 2.25)

PORT: Final = 7000


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Say how bad the network is all the time. Probabilities are below 1."""

    latency_s: tuple[float, float] = (0.0002, 0.002)  # The one-way time of a pair is drawn from this range, once.
    dial_failed: float = 0.0  # How many dials fail, unrefused, though somebody listens.
    dial_timeout_s: float = 3.0  # When a dial fails that nobody answers.
    datagram_lost: float = 0.0
    datagram_repeated: float = 0.0
    datagram_delay_s_max: float = 0.0  # Extra delay of each datagram; more than the time between two reorders them.
    break_delay_s: tuple[float, float] = (
        0.0,
        0.2,
    )  # When the peers of a crashed process, and the ends of a reset link, notice.


class Reach(enum.Enum):
    """Tell who can dial a node."""

    OPEN = enum.auto()
    """Everybody."""
    HIDDEN = enum.auto()
    """Nobody: it has no address to tell."""
    WALLED = enum.auto()
    """Nobody: dials to its addresses, and datagrams that answer none of its own, disappear."""


class End(enum.Enum):
    """Tell the state of one end of a link."""

    OPENING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


@dataclass(eq=False, slots=True)
class SimulatedNode:
    """One life of a node: a restart makes another one, with a new id."""

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
    backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)  # What came while it stood still.
    resumed_at: list[float] = field(default_factory=list)  # When it went on after it had stood still, lately.
    links: dict[NodeId, SimulatedLink] = field(default_factory=dict)
    used: dict[NodeId, float] = field(default_factory=dict)  # Until when the application uses the link to a node.
    connecting: dict[NodeId, float] = field(default_factory=dict)  # Since when the application waits for a link.
    groups: dict[GroupId, bytes] = field(default_factory=dict)  # What the application joined, with the attributes.
    joined: dict[GroupId, float] = field(default_factory=dict)  # The memberships that are complete, and since when.
    left: dict[GroupId, float] = field(default_factory=dict)  # Those that were left, and when that was complete.
    watched: dict[GroupId, float] = field(default_factory=dict)
    views: dict[GroupId, events.ViewChanged] = field(default_factory=dict)
    commands: dict[GroupId, list[float]] = field(default_factory=dict)  # The times of those under way.
    received: dict[tuple[GroupId, NodeId], int] = field(default_factory=dict)  # The last cast of each source.
    log: list[tuple[float, events.Event]] = field(default_factory=list)  # All events but casts, with their time.
    wake: float | None = None
    source_hosts: dict[str, None] = field(default_factory=dict)  # To whom it sent datagrams: they may answer through a wall.
    messages: int = 0
    datagrams: int = 0

    @property
    def id(self) -> NodeId:
        """Return the id of this life."""
        return self.info.id

    @property
    def is_running(self) -> bool:
        """Return whether it lives and does not stand still."""
        return self.is_alive and not self.is_stopped

    def times_of(self, kind: type[events.Event]) -> list[float]:
        """Return when events of a kind happened."""
        return [when for when, event in self.log if isinstance(event, kind)]


class Item(enum.Enum):
    """Tell what travels on a link."""

    OPEN = enum.auto()
    DATA = enum.auto()
    CLOSE = enum.auto()
    BREAK = enum.auto()


class SimulatedLink:
    """A stream of messages each way between two nodes; of each pair the first belongs to the one that dialled."""

    __slots__ = ("ends", "is_given_up", "ready_at", "signs", "stalled_until", "states", "waiting", "was_reset")

    def __init__(self, initiator: SimulatedNode, responder: SimulatedNode) -> None:
        self.ends = (initiator, responder)
        self.states = [End.OPENING, End.OPEN]
        self.ready_at = [0.0, 0.0]
        self.waiting: tuple[list[tuple[Item, Any]], list[tuple[Item, Any]]] = ([], [])
        self.stalled_until = 0.0
        self.was_reset = False
        self.signs = 0  # how often a silence has ended
        self.is_given_up = False

    def end_of(self, node: SimulatedNode) -> int:
        """Return the number of the end that is at a node."""
        return 0 if node is self.ends[0] else 1


class Heap:
    """Events to come, and a clock that jumps from one to the next."""

    def __init__(self) -> None:
        self.now, self.steps = 0.0, 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def schedule(self, when: float, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        """Let something happen."""
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, action, arguments))

    def run_to(self, end: float) -> None:
        """Let everything happen up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.steps += 1
            assert self.steps <= STEPS_MAX
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)
        self.now = end


@dataclass(eq=False, slots=True)
class _Dial:
    node: SimulatedNode
    address: str
    is_done: bool = False


class Wires:
    """Carry what overlays send.

    Args:
        heap: Time.
        rng: For everything that is left to chance.
        faults: How bad the network is.
        post: Lets a node that lives handle something, at once or when it stands still no more.
        drive: Applies the outputs of a node.
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
        self.down: dict[int, None] = {}  # Hosts without power: nobody refuses there.
        self.sides: dict[int, int] = {}
        self.mute: dict[int, None] = {}  # Hosts from which nothing arrives anywhere.
        self.deaf: dict[int, None] = {}  # Hosts at which nothing arrives.
        self._heap = heap
        self._rng = rng
        self._post = post
        self._drive = drive
        self._latencies: dict[tuple[int, int], float] = {}
        self._pairs: dict[frozenset[NodeId], SimulatedLink] = {}
        self._indices: dict[str, int] = {}

    @staticmethod
    def host_of(index: int) -> str:
        """Return the address of the host of an index."""
        return f"10.0.{index // 250}.{index % 250 + 1}"

    def add(self, node: SimulatedNode) -> None:
        """Put a node on its host."""
        self.hosts[node.index] = node
        self._indices[self.host_of(node.index)] = node.index
        self.down.pop(node.index, None)

    # Reach

    def is_connected(self, first: SimulatedNode, second: SimulatedNode) -> bool:
        """Return whether no partition lies between two nodes."""
        return self.sides.get(first.index, 0) == self.sides.get(second.index, 0)

    def reaches(self, sender: SimulatedNode, receiver: SimulatedNode) -> bool:
        """Return whether what a node sends arrives at another one."""
        return self.is_connected(sender, receiver) and sender.index not in self.mute and receiver.index not in self.deaf

    def is_held_up(self, link: SimulatedLink, to: int) -> bool:
        """Return whether nothing passes a link towards one of its ends."""
        return link.stalled_until > self._heap.now or not self.reaches(link.ends[1 - to], link.ends[to])

    def is_impaired(self, link: SimulatedLink) -> bool:
        """Return whether nothing passes a link in one direction at least."""
        return self.is_held_up(link, 0) or self.is_held_up(link, 1)

    def links(self) -> list[SimulatedLink]:
        """Return the links that some end believes in."""
        return list(dict.fromkeys(link for node in self.hosts.values() for link in node.links.values()))

    def latency(self, first: SimulatedNode, second: SimulatedNode) -> float:
        """Return the one-way time between two nodes."""
        pair = (min(first.index, second.index), max(first.index, second.index))
        latency = self._latencies.get(pair)
        if latency is None:
            latency = self._latencies[pair] = self._rng.uniform(*self.faults.latency_s)
        return latency

    def partition(self, sides: Iterable[Iterable[int]]) -> None:
        """Let no byte pass between these sets of indices; those in none of them are one more set."""
        self.sides = {index: number for number, side in enumerate(sides, 1) for index in side}
        self._notice_cuts(self.links())

    def cut(self, node: SimulatedNode, *, mute: bool = False, deaf: bool = False) -> None:
        """Let nothing that a host sends arrive, nothing arrive at it, or both, as a firewall or a broken cable does."""
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
        """Let nothing arrive over a link for a while, then all of it."""
        link.stalled_until = max(link.stalled_until, self._heap.now + duration_s)
        self._heap.schedule(link.stalled_until, self._release, link)
        self._watch_silence(link)

    def end_stalls(self) -> None:
        """Let everything that waits on stalled links arrive."""
        for link in self.links():
            link.stalled_until = min(link.stalled_until, self._heap.now)
            self._release(link)

    def reset(self, link: SimulatedLink) -> None:
        """Lose what is under way; both ends notice, each at its own time."""
        link.was_reset = True
        for end in (0, 1):
            link.waiting[end].clear()
            delay = self._rng.uniform(*self.faults.break_delay_s)
            self._heap.schedule(self._heap.now + delay, self._reach_process, link, end, Item.BREAK, None)

    def stop(self, node: SimulatedNode) -> None:
        """Let nothing leave a process that stands still."""
        for link in node.links.values():
            self._watch_silence(link)

    def resume(self, node: SimulatedNode) -> None:
        """Let a process go on."""
        for link in node.links.values():
            self._end_silence(link)

    # The ends of a node

    def send(self, node: SimulatedNode, peer: NodeId, data: bytes) -> None:
        """Send a message over the link to a peer, if there is one."""
        link = node.links.get(peer)
        if link is not None:
            self._push(link, 1 - link.end_of(node), Item.DATA, data)

    def end_link(self, node: SimulatedNode, link: SimulatedLink, item: Item) -> None:
        """End a link at a node: with CLOSE after everything that was sent, with BREAK at once."""
        end = link.end_of(node)
        if link.states[end] is not End.CLOSED:
            self._lose(link, end, is_closed=item is Item.CLOSE)
            self._push(link, 1 - end, item, None)

    def end_process(self, node: SimulatedNode, item: Item | None) -> None:
        """End all links of a node that stops to exist; with None nobody is told."""
        for link in node.links.values():
            end = link.end_of(node)
            link.states[end] = End.CLOSED
            if item is Item.BREAK:
                delay = self._rng.uniform(*self.faults.break_delay_s)
                link.ready_at[1 - end] = max(link.ready_at[1 - end], self._heap.now + delay)
            if item is None:
                self._watch_silence(link)
            else:
                self._push(link, 1 - end, item, None)
        node.links.clear()

    # Links

    def _push(self, link: SimulatedLink, to: int, item: Item, data: object) -> None:
        now = self._heap.now
        when = link.ready_at[to] = max(link.ready_at[to], now + self.latency(*link.ends))
        self._heap.schedule(when, self._arrive, link, to, item, data)

    def _arrive(self, link: SimulatedLink, to: int, item: Item, data: object) -> None:
        if link.was_reset:
            if item is Item.OPEN:
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
                if link.states[end] is End.OPEN and node.is_alive:
                    self._post(node, self._handle_item, link, end, Item.BREAK, None)

    def _reach_process(self, link: SimulatedLink, to: int, item: Item, data: object) -> None:
        node = link.ends[to]
        if node.is_alive:
            self._post(node, self._handle_item, link, to, item, data)
        elif node.index not in self.down and item in (Item.DATA, Item.OPEN) and link.states[1 - to] is End.OPEN:
            self._push(link, 1 - to, Item.BREAK, None)

    def _handle_item(self, link: SimulatedLink, to: int, item: Item, data: Any) -> None:  # noqa: ANN401
        node, peer = link.ends[to], link.ends[1 - to]
        state = link.states[to]
        if item is Item.DATA:
            if state is End.OPEN:
                node.overlay.receive_message(peer.id, data, self._heap.now)
                self._drive(node)
            elif link.states[1 - to] is End.OPEN:
                self._push(link, 1 - to, Item.BREAK, None)
        elif item is Item.OPEN:
            self._open_dialled(link, data)
        elif state is not End.CLOSED:
            self._lose(link, to, is_closed=item is Item.CLOSE)

    def _lose(self, link: SimulatedLink, end: int, *, is_closed: bool) -> None:
        node, peer = link.ends[end], link.ends[1 - end]
        link.states[end] = End.CLOSED
        if node.links.get(peer.id) is link:
            del node.links[peer.id]
            node.overlay.link_lost(peer.id, self._heap.now, is_closed=is_closed)
            self._drive(node)

    # Dials

    def dial(self, node: SimulatedNode, address: str) -> None:
        """Make a connection."""
        now = self._heap.now
        dial = _Dial(node, address)
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

    def _time_out(self, dial: _Dial) -> None:
        if not dial.is_done:
            self._post(dial.node, self._fail_dial, dial, False)

    def _fail_dial(self, dial: _Dial, is_refused: bool) -> None:
        if not dial.is_done:
            dial.is_done = True
            dial.node.overlay.dial_failed(dial.address, self._heap.now, is_refused=is_refused)
            self._drive(dial.node)

    def _accept(self, dial: _Dial, target: SimulatedNode) -> None:
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
            if theirs is not End.CLOSED and ours is not End.CLOSED:
                # One link between two nodes: there is one already, or it is about to open.
                self._heap.schedule(now + self.latency(node, target), self._post, node, self._finish_dial, dial, target)
                return
            if ours is not End.CLOSED:  # The dialler saw it end first.
                self._lose(old, old.end_of(target), is_closed=False)
        link = self._pairs[pair] = SimulatedLink(node, target)
        self._push(link, 0, Item.OPEN, dial)
        target.links[node.id] = link
        target.connecting.pop(node.id, None)
        target.overlay.link_opened(node.info, now)
        self._drive(target)

    def _open_dialled(self, link: SimulatedLink, dial: _Dial) -> None:
        node, peer = link.ends
        if dial.is_done or link.is_given_up:
            link.states[0] = End.CLOSED
            self._push(link, 1, Item.BREAK, None)
            self._fail_dial(dial, False)
            return
        old = node.links.get(peer.id)
        if old is not None:
            self._lose(old, old.end_of(node), is_closed=False)
        is_dial_first = self._rng.random() < 0.5  # The owner may report the dial and the link in either order.
        if is_dial_first:
            self._finish_dial(dial, peer)
        link.states[0] = End.OPEN
        node.links[peer.id] = link
        node.connecting.pop(peer.id, None)
        node.overlay.link_opened(peer.info, self._heap.now)
        if not is_dial_first:
            self._finish_dial(dial, peer)
        self._drive(node)

    def _finish_dial(self, dial: _Dial, peer: SimulatedNode) -> None:
        if not dial.is_done:
            dial.is_done = True
            dial.node.overlay.dial_succeeded(dial.address, peer.id, self._heap.now)
            self._drive(dial.node)

    # Datagrams

    def send_datagram(self, node: SimulatedNode, destination: tuple[str, int] | None, data: bytes) -> None:
        """Send a datagram to a host, or to everybody who hears multicast."""
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
