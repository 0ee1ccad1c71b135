"""A few nodes of a ring by hand: messages arrive at once, time stands still until it is told to go on."""

from __future__ import annotations

import random
from typing import TypeVar

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.config import PastryConfig
from iris_overlay.ring.events import HandoverWanted, PastryEvent
from iris_overlay.ring.messages import decode_ring_message
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner

E = TypeVar("E", bound=PastryEvent)
CONFIG = PastryConfig()


def make_info(first: int, *, is_dialable: bool = True) -> NodeInfo:
    return NodeInfo(NodeId(bytes([first]) + bytes(15)), (f"192.0.2.{first}:9000",) if is_dialable else ())


def make_key(first: int) -> bytes:
    return bytes([first]) + b"\x01" * 15


class Wires:
    """Carry messages at once, and note events. Whoever is in `down` gets nothing, as if the link had taken it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes: dict[NodeId, Pastry] = {}
        self.infos: dict[int, NodeInfo] = {}
        self.events: dict[NodeId, list[PastryEvent]] = {}
        self.down: set[NodeId] = set()
        self.refusing: set[NodeId] = set()
        self.linked_with: dict[NodeId, set[NodeId]] = {}  # of nodes that nobody can dial, who reaches them
        self.hands_over = True
        self.sent: list[tuple[NodeId, NodeId, object]] = []

    def add(self, first: int, contact: int | None = None, *, is_dialable: bool = True) -> Pastry:
        info = make_info(first, is_dialable=is_dialable)
        pastry = Pastry(info, CONFIG, random.Random(first), NamedSigner(info.id))
        self.nodes[info.id], self.infos[first], self.events[info.id] = pastry, info, []
        if contact is None:
            pastry.start_alone(self.now)
        else:
            self.link(first, contact)
            pastry.join_via(self.infos[contact], self.now)
        self.settle()
        return pastry

    def link(self, a: int, b: int) -> None:
        self.nodes[self.infos[a].id].link_opened(self.infos[b], self.now)
        self.nodes[self.infos[b].id].link_opened(self.infos[a], self.now)

    def settle(self) -> None:
        for _ in range(10_000):
            if not any(self.turn(node, pastry) for node, pastry in self.nodes.items() if node not in self.down):
                return
        raise AssertionError("it does not settle")

    def turn(self, node: NodeId, pastry: Pastry) -> bool:
        messages, happened = pastry.messages_to_send(), pastry.events_received()
        for to, data in messages:
            self.sent.append((node, to.id, decode_ring_message(data)))
            if node in self.linked_with:  # it dials
                self.linked_with[node].add(to.id)
            if to.id in self.refusing or node not in self.linked_with.get(to.id, {node}):
                pastry.contact_failed(to.id, [data], self.now)
            elif to.id not in self.down:
                self.nodes[to.id].receive(node, data, self.now)
        for event in happened:
            self.events[node].append(event)
            if isinstance(event, HandoverWanted) and self.hands_over:
                pastry.handover_done(event.to, self.now)
        return bool(messages or happened)

    def advance(self, by_s: float) -> None:
        end = self.now + by_s
        while True:
            self.settle()
            deadlines = [pastry.deadline() for node, pastry in self.nodes.items() if node not in self.down]
            first = min((deadline for deadline in deadlines if deadline is not None), default=end)
            if first > end:
                break
            self.now = max(self.now, first)
            for node, pastry in self.nodes.items():
                if node not in self.down:
                    pastry.handle_timeout(self.now)
            if first == end:
                break
        self.now = end
        self.settle()

    def of(self, first: int, kind: type[E]) -> list[E]:
        return [event for event in self.events[self.infos[first].id] if isinstance(event, kind)]

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, _, message in self.sent)


def make_ring(*firsts: int) -> Wires:
    wires = Wires()
    for index, first in enumerate(firsts):
        wires.add(first, firsts[0] if index else None)
    return wires
