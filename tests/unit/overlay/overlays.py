"""A few overlays and the owner of each, by hand: messages arrive at once, time stands still until it is told to go on."""

from __future__ import annotations

import random
from typing import TypeVar

from iris_overlay.config import OverlayConfig
from iris_overlay.events import DialRequested, Event, LinkReleased, PeerDied, ProtocolViolated
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.overlay import Overlay
from iris_overlay.ring.messages import Direct, LeafAck, LeafProbe, Routed, RoutedKind, encode_ring_message
from iris_py.testing.cores.signer import NamedSigner, signed

E = TypeVar("E", bound=Event)
CONFIG = OverlayConfig()
GROUP = GroupId(b"g" * 16)
ROUNDS_MAX = 10_000


def make_info(number: int, *, is_dialable: bool = True) -> NodeInfo:
    """Return a node of a number below 250; its place on the ring is in the order of the numbers."""
    return NodeInfo(NodeId(bytes([number]) + b"\x01" * 15), (f"198.51.100.{number}:7000",) if is_dialable else ())


LOCAL, ONE, TWO = make_info(100), make_info(1), make_info(2)


def new_overlay(config: OverlayConfig = CONFIG) -> Overlay:
    """Return an overlay that was not started."""
    return Overlay(LOCAL, config, random.Random(1), NamedSigner(LOCAL.id))


def started(*, seeds: tuple[str, ...] = (), remembered: tuple[str, ...] = (), beacons: bool = False) -> Overlay:
    """Return an overlay that looks for others."""
    overlay = new_overlay()
    overlay.start(0.0, seeds, remembered, beacons, remembered_is_complete=True)
    return overlay


def with_leaf(info: NodeInfo = ONE, now: float = 0.0) -> Overlay:
    """Return an overlay in a ring with one other node, whose part the test plays."""
    overlay = started()
    add_leaf(overlay, info, now)
    overlay.messages_to_send()
    overlay.events_received()
    return overlay


def add_leaf(overlay: Overlay, info: NodeInfo, now: float) -> None:
    """Let another node open a link and become a neighbour."""
    overlay.link_opened(info, now)
    overlay.receive_message(info.id, encode_ring_message(LeafProbe(info, [], True)), now)


def relayed(message: Direct | LeafAck | LeafProbe, via: NodeInfo, number: int = 1) -> bytes:
    """Return what a peer passes on for another node to the local one."""
    source = message.source if isinstance(message, Direct) else message.info
    path = (source.id, via.id)
    return encode_ring_message(
        signed(Routed(number, RoutedKind.RELAY, LOCAL.id, source, number, path, (), encode_ring_message(message)))
    )


class Owners:
    """Own overlays as a node does, over wires that lose nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes: dict[NodeId, Overlay] = {}
        self.infos: dict[NodeId, NodeInfo] = {}
        self.logs: dict[NodeId, list[Event]] = {}
        self.links: set[frozenset[NodeId]] = set()
        self.dials: list[tuple[NodeId, str]] = []
        self.stopped: set[NodeId] = set()  # They stand still: nothing answers, nobody refuses.
        self.dead: set[NodeId] = set()  # Nobody listens there.
        self.walled: set[NodeId] = set()  # Dials to them time out, and datagrams do not arrive.

    def add(self, info: NodeInfo, *seeds: NodeInfo, config: OverlayConfig = CONFIG) -> Overlay:
        """Start a node that looks for others at the addresses of seeds."""
        overlay = Overlay(info, config, random.Random(info.id[0]), NamedSigner(info.id))
        self.nodes[info.id], self.infos[info.id], self.logs[info.id] = overlay, info, []
        overlay.start(self.now, [address for seed in seeds for address in seed.addresses], (), False)
        self.settle()
        return overlay

    def link(self, first: NodeInfo, second: NodeInfo) -> None:
        """Open a link, whoever dialled."""
        self.links.add(frozenset((first.id, second.id)))
        self.nodes[first.id].link_opened(second, self.now)
        self.nodes[second.id].link_opened(first, self.now)

    def unlink(self, first: NodeId, second: NodeId, *, is_closed: bool = False) -> None:
        """End a link."""
        pair = frozenset((first, second))
        if pair in self.links:
            self.links.remove(pair)
            for node, peer in ((first, second), (second, first)):
                if self.is_running(node):
                    self.nodes[node].link_lost(peer, self.now, is_closed=is_closed)

    def kill(self, info: NodeInfo) -> None:
        """End a process: links break, and dials are refused."""
        self.dead.add(info.id)
        for pair in [pair for pair in self.links if info.id in pair]:
            (peer,) = pair - {info.id}
            self.unlink(peer, info.id)
        self.settle()

    def is_running(self, node: NodeId) -> bool:
        """Return whether a node handles what arrives."""
        return node not in self.stopped and node not in self.dead

    def settle(self) -> None:
        """Carry everything until nothing moves."""
        for _ in range(ROUNDS_MAX):
            if not any(self._turn(node, overlay) for node, overlay in self.nodes.items() if self.is_running(node)):
                return
        raise AssertionError("it does not settle")

    def advance(self, by_s: float) -> None:
        """Let time pass."""
        end = self.now + by_s
        self.settle()
        while True:
            running = [overlay for node, overlay in self.nodes.items() if self.is_running(node)]
            due = min((deadline for overlay in running if (deadline := overlay.deadline()) is not None), default=end)
            if due > end:
                break
            self.now = max(self.now, due)
            for overlay in running:
                overlay.handle_timeout(self.now)
            self.settle()
        self.now = end

    def of(self, info: NodeInfo, kind: type[E]) -> list[E]:
        """Return the events of a kind that a node reported."""
        return [event for event in self.logs[info.id] if isinstance(event, kind)]

    def is_linked(self, first: NodeInfo, second: NodeInfo) -> bool:
        """Return whether there is a link between two nodes."""
        return frozenset((first.id, second.id)) in self.links

    def _turn(self, node: NodeId, overlay: Overlay) -> bool:
        messages, datagrams, events = overlay.messages_to_send(), overlay.datagrams_to_send(), overlay.events_received()
        for peer, data in messages:
            if frozenset((node, peer)) in self.links and self.is_running(peer):
                self.nodes[peer].receive_message(node, data, self.now)
        source = self._address_of(node)
        for destination, data in datagrams:
            target = None if destination is None else self._find(f"{destination[0]}:{destination[1]}")
            if target is not None and self.is_running(target) and target not in self.walled:
                self.nodes[target].receive_datagram(node, data, source, self.now)
        for event in events:
            self.logs[node].append(event)
            self._handle(node, overlay, event)
        return bool(messages or datagrams or events)

    def _handle(self, node: NodeId, overlay: Overlay, event: Event) -> None:
        if isinstance(event, DialRequested):
            self.dials.append((node, event.address))
            self._dial(node, overlay, event.address)
        elif isinstance(event, LinkReleased):
            self.unlink(node, event.peer, is_closed=True)
        elif isinstance(event, PeerDied | ProtocolViolated):
            self.unlink(node, event.peer)

    def _dial(self, node: NodeId, overlay: Overlay, address: str) -> None:
        target = self._find(address)
        if target is None or target in self.dead:
            overlay.dial_failed(address, self.now, is_refused=True)
        elif target in self.stopped or target in self.walled:
            overlay.dial_failed(address, self.now)
        else:
            overlay.dial_succeeded(address, target, self.now)
            if target != node and frozenset((node, target)) not in self.links:
                self.link(self.infos[node], self.infos[target])

    def _find(self, address: str) -> NodeId | None:
        return next((node for node, info in self.infos.items() if address in info.addresses), None)

    def _address_of(self, node: NodeId) -> tuple[str, int]:
        # Nodes without addresses send from somewhere, too.
        return f"198.51.100.{node[0]}", 7000
