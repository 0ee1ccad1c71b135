"""Made-up nodes whose addresses all lead to one host: however an insider tells of them, they cost a bounded number of dials."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from iris_overlay.events import DialRequested, Event, LinkReleased, PeerDied, ProtocolViolated
from iris_overlay.groups.messages import GroupMessage, encode_group_message
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo, encode_beacon
from iris_overlay.overlay import Overlay
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.ring.messages import Direct, LeafProbe, RingMessage, encode_ring_message
from iris_py.net.resting_addresses import DIALS_MAX, REST_S, AddressRestsError, RestingAddresses
from iris_py.testing.cores.signer import NamedSigner
from tests.fuzz.source import Source
from tests.fuzz.values import Values
from tests.property.test_overlay_lies import GROUPS, PEERS, permitted
from tests.unit.overlay.overlays import CONFIG, LOCAL

#: Names of one host, for example below a wildcard of the attacker's own domain: no spelling shows that they are one.
NAMES = [f"n{number}.victim.example:443" for number in range(2048)]
MADE_UP = [
    NodeInfo(NodeId(bytes([number]) + random.Random(number).randbytes(15)), tuple(NAMES[8 * number : 8 * number + 8]))
    for number in range(250)
]
ATTACKER, OTHER = PEERS[:2]
WATCHED_S = 60.0
MESSAGES = 200


def names_nodes(kind: Any) -> bool:
    """Tell whether a message of a kind can name a node with its addresses."""
    seen, waiting = set[Any](), [kind]
    while waiting:
        annotation = waiting.pop()
        if annotation is NodeInfo:
            return True
        if annotation in seen:
            continue
        seen.add(annotation)
        is_struct = isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
        waiting += get_type_hints(annotation).values() if is_struct else get_args(annotation)
    return False


KINDS = [kind for kind in (*get_args(RingMessage), *get_args(GroupMessage)) if names_nodes(kind)]


class Victim:
    """An honest node with two links, which counts its dials. Whatever it dials refuses.

    Args:
        beacons: Whether it takes beacons.
        host: Where all names lead; empty if the owner of the overlay does not resolve them.
    """

    def __init__(self, *, beacons: bool = False, host: str = "") -> None:
        self.now = 0.0
        self.dials: list[str] = []
        self.begun: list[float] = []
        self._host = host
        self._resting = RestingAddresses()
        self.overlay = Overlay(LOCAL, CONFIG, random.Random(1), NamedSigner(LOCAL.id))
        self.overlay.start(self.now, [], [], beacons, True)
        self.linked = set[NodeId]()
        for info in (ATTACKER, OTHER):
            self.meet(info)
            self.overlay.receive_message(info.id, encode_ring_message(LeafProbe(info, [], True)), self.now)
            self.settle()

    def meet(self, info: NodeInfo) -> None:
        if info.id not in self.linked:
            self.linked.add(info.id)
            self.overlay.link_opened(info, self.now)

    def settle(self) -> None:
        """Let every dial fail, and do whatever else the overlay asks for."""
        self.overlay.messages_to_send()
        self.overlay.datagrams_to_send()
        events: list[Event] = self.overlay.events_received()
        while events:
            for event in events:
                if isinstance(event, DialRequested):
                    if "victim" in event.address:
                        self.dials.append(event.address)
                        assert not event.is_proven
                    if self.may_begin(event):
                        self.overlay.dial_failed(event.address, self.now, is_refused=True)
                    else:
                        self.overlay.dial_rested(event.address, self.now)
                elif isinstance(event, ProtocolViolated | LinkReleased | PeerDied) and event.peer in self.linked:
                    self.linked.discard(event.peer)
                    self.overlay.link_lost(event.peer, self.now)
            events = self.overlay.events_received()
            self.overlay.messages_to_send()

    def may_begin(self, dial: DialRequested) -> bool:
        """Resolve an address as the owner of the overlay does, and tell whether a connection begins."""
        if not self._host or "victim" not in dial.address:
            return True
        try:
            self._resting.begin((self._host, 443), self.now)
        except AddressRestsError:
            return False
        self.begun.append(self.now)
        return True

    def wait(self, duration_s: float) -> None:
        until = self.now + duration_s
        while (due := self.overlay.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.overlay.handle_timeout(self.now)
            self.settle()
        self.now = until


def test_kinds_of_messages_are_found() -> None:
    assert LeafProbe in KINDS
    assert len(KINDS) > 15


def attack(victim: Victim, kind: Any) -> None:
    """Let the attacker name made-up nodes in messages of a kind, for a while, and then wait as long."""
    rng = random.Random(7)
    values = Values([ATTACKER, MADE_UP[0]] * 64 + MADE_UP[:128], GROUPS)  # many speak only for their sender
    for group in GROUPS:
        victim.overlay.watch_group(group, victim.now)
    for _ in range(MESSAGES):
        message = values.message(kind, Source(rng.randbytes(400)))
        if kind in get_args(GroupMessage):
            message = Direct(ATTACKER, encode_group_message(permitted(message)))
        victim.meet(ATTACKER)
        victim.overlay.receive_message(ATTACKER.id, encode_ring_message(message), victim.now)
        victim.settle()
        victim.wait(WATCHED_S / MESSAGES)
    victim.wait(WATCHED_S)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_made_up_nodes_cost_a_bounded_number_of_dials(kind: Any) -> None:
    victim = Victim()
    attack(victim, kind)
    config = ContactsConfig()
    # Those that the attacker is charged for, and those of which nobody knows any more who named them.
    limit = 2 * (config.hearsay_dials_max + 2 * WATCHED_S * config.hearsay_dials_per_s)
    assert len(victim.dials) <= limit, kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_names_that_lead_to_one_host_share_the_rest_of_its_address(kind: Any) -> None:
    victim = Victim(host="203.0.113.9")
    attack(victim, kind)
    begun = victim.begun
    assert all(later - earlier >= REST_S for earlier, later in zip(begun, begun[DIALS_MAX:], strict=False))
    config = ContactsConfig()
    limit = 2 * (config.hearsay_dials_max + 2 * WATCHED_S * config.hearsay_dials_per_s)
    assert len(victim.dials) <= limit, "names that are looked up are bounded as dials are"
    assert bool(begun) == bool(victim.dials)


def test_another_peer_that_names_living_nodes_is_not_charged() -> None:
    victim = Victim()
    probe = LeafProbe(ATTACKER, MADE_UP[:60], True)
    victim.overlay.receive_message(ATTACKER.id, encode_ring_message(probe), victim.now)
    victim.settle()
    victim.wait(1.0)
    spent = len(victim.dials)
    assert spent >= ContactsConfig().hearsay_dials_max, "the attacker has used up its allowance"
    named = NodeInfo(NodeId(bytes([101]) + b"\x02" * 15), ("198.51.100.200:7000",))
    victim.overlay.receive_message(OTHER.id, encode_ring_message(LeafProbe(OTHER, [named], True)), victim.now)
    assert DialRequested("198.51.100.200:7000", named.id) in victim.overlay.events_received()


def test_a_recorded_beacon_gets_one_answer_and_a_few_dials() -> None:
    """The node has started since, so it takes the beacon for new; who plays it stands elsewhere than its sender."""
    victim = Victim(beacons=True)
    victim.settle()
    dead = MADE_UP[150]
    beacon = encode_beacon(dead, wants_answer=True, peers=0)
    assert beacon is not None
    victim.overlay.receive_datagram(dead.id, beacon, ("203.0.113.9", 5), victim.now)
    answers = [data for to, data in victim.overlay.datagrams_to_send() if to == ("203.0.113.9", 5)]
    victim.settle()
    victim.wait(3 * WATCHED_S)
    assert len(answers) <= 1
    assert all(len(answer) <= len(beacon) for answer in answers)
    times = Counter(victim.dials)
    assert set(times) <= set(dead.addresses)
    assert max(times.values(), default=0) <= CONFIG.unmet_failures_max
    assert times, "it was dialled"
