"""The consequences of signs of life and of death."""

from __future__ import annotations

import random

import pytest

from iris_overlay.config import OverlayConfig
from iris_overlay.detector.config import CHECKS_MAX
from iris_overlay.detector.events import Alive, Dead, Pinged, Suspected
from iris_overlay.events import Counters, Event, PeerDied, PeerSuspected
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.contacts import Contacts
from iris_overlay.peers.dialler import Dialler
from iris_overlay.peers.hearsay import Hearsay
from iris_overlay.peers.liveness import BURIED_MAX, BURIED_S, DOUBT_S, Liveness, is_loopback
from iris_overlay.peers.vantage import Vantage, put_first
from iris_overlay.ring.messages import LeafProbe, Leaving, Routed, decode_ring_message, encode_ring_message
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner

CONFIG = OverlayConfig()


def node(number: int, *addresses: str) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(2, "big") * 8), addresses or (f"198.51.100.{number % 250}:7000",))


LOCAL = node(500, "192.0.2.1:7000")
ONE, TWO = node(1), node(2)


class Harness:
    """A liveness and the parts that it speaks to; the ring has only the local node at first."""

    def __init__(self, local: NodeInfo = LOCAL) -> None:
        rng = random.Random(1)
        self.ring = Pastry(local, CONFIG.ring, rng, NamedSigner(local.id))
        self.groups = GroupLayer(local, CONFIG.groups, rng, self.ring, Counters(), NamedSigner(local.id))
        self.vantage = vantage = Vantage()
        hearsay = Hearsay(CONFIG.contacts)
        self.contacts = Contacts(local, CONFIG.contacts, vantage, hearsay)
        self.dialler = Dialler(local, CONFIG, rng, Counters(), lambda node: False, vantage, hearsay)
        self.liveness = Liveness(local, CONFIG, rng, self.ring, self.groups, self.contacts, self.dialler, vantage)
        self.ring.start_alone(0.0)

    def pinged(self, now: float) -> set[tuple[str, int]]:
        """Return where datagrams go within the next seconds."""
        while (due := self.liveness.deadline()) is not None and due < now + 5.0:
            self.liveness.handle_timeout(due)
        return {address for address, _data in self.liveness.detector.datagrams_to_send()}

    def add_leaf(self, info: NodeInfo, now: float = 0.0) -> None:
        self.ring.link_opened(info, now)
        self.ring.receive(info.id, encode_ring_message(LeafProbe(info, [], True)), now)
        self.ring.messages_to_send()
        self.ring.events_received()
        self.liveness.refresh(now)

    def take(self) -> list[Event]:
        """Take what asks the owner to do something; a suspicion is only told."""
        events, self.liveness.events = self.liveness.events, []
        return [event for event in events if not isinstance(event, PeerSuspected)]

    def run(self, now: float, until: float) -> list[float]:
        """Let nobody answer; return when somebody died."""
        died = []
        while True:
            for event in self.liveness.detector.events_received():
                self.liveness.handle_detector(event, now)
                died += [now for _ in self.take()]
            due = self.liveness.deadline()
            if due is None or due > until:
                return died
            now = due
            self.liveness.handle_timeout(now)

    def next_hop(self, key: bytes) -> NodeInfo:
        """Return whom a message for a key is given to."""
        self.ring.messages_to_send()
        self.ring.route(key, b"x", 0.0)
        (to,) = [to for to, data in self.ring.messages_to_send() if isinstance(decode_ring_message(data), Routed)]
        return to

    def dials(self) -> list[str]:
        self.dialler.handle_timeout(1000.0, 2)
        self.dialler.request_dials(1000.0, 100)
        return [request.address for request in self.dialler.requests]


def test_datagrams_go_to_the_address_that_a_link_has_shown_to_be_right_from_the_next_look_on() -> None:
    harness = Harness()
    peer = node(1, "203.0.113.1:7000", "10.0.0.1:7000")
    harness.add_leaf(peer)
    assert harness.pinged(0.0) == {("203.0.113.1", 7000)}
    harness.vantage.link_opened(put_first(peer, "10.0.0.1"))
    harness.liveness.refresh(5.0)
    assert harness.pinged(5.0) == {("10.0.0.1", 7000)}


def test_who_is_on_loopback() -> None:
    assert is_loopback(node(1, "127.0.0.1:1"))
    assert is_loopback(node(1, "[::1]:1"))
    assert not is_loopback(node(1, "192.0.2.1:1"))
    assert not is_loopback(NodeInfo(ONE.id, ()))


def test_a_leaf_that_falls_silent_is_buried_within_three_seconds_and_looked_for() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    (died,) = harness.run(0.0, 20.0)
    assert died <= 3.0
    assert harness.ring.leaves() == []
    assert harness.liveness.is_buried(ONE.id)
    assert harness.dials() == list(ONE.addresses)


def test_a_peer_that_only_a_link_knew_is_buried_when_nothing_answers() -> None:
    harness = Harness()
    harness.liveness.link_broke(ONE, 10.0)
    assert [request.address for request in harness.contacts.requests_to_dial()] == list(ONE.addresses)
    assert [address for address, _ in harness.liveness.detector.datagrams_to_send()] == [("198.51.100.1", 7000)]
    (died,) = harness.run(10.0, 20.0)
    assert died - 10.0 <= CONFIG.detector.check_s_max
    assert harness.dials() == list(ONE.addresses)


def test_a_peer_whose_link_broke_and_that_answers_lives() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.liveness.link_broke(ONE, 10.0)
    harness.liveness.link_opened(ONE.id, 10.1)
    (verdict,) = harness.liveness.detector.events_received()
    assert isinstance(verdict, Alive)
    harness.liveness.handle_detector(verdict, 10.1)
    assert harness.take() == []
    assert harness.ring.leaves() == [ONE]


def test_a_refused_dial_is_the_end_and_nobody_looks_for_it() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.contacts.dial_succeeded(ONE.addresses[0], ONE.id, 0.0)
    harness.dialler.look_for(ONE, 0.0)
    assert harness.liveness.refused(ONE, 1.0)
    assert harness.take() == [PeerDied(ONE.id, is_silent=False)]
    assert harness.ring.leaves() == []
    assert harness.dials() == []
    assert harness.run(1.0, 4.0) == []  # What the detector thinks of it comes too late.


def test_an_address_where_nobody_was_reached_before_proves_nothing_unless_a_link_just_broke() -> None:
    harness = Harness()
    harness.add_leaf(ONE)  # it has dialled, and what it says of its addresses may be wrong
    assert not harness.liveness.refused(ONE, 1.0)
    assert harness.take() == []
    assert harness.ring.leaves() == [ONE]
    harness.liveness.heard_from(ONE.id, 1.1)  # it answers through the ring
    harness.liveness.handle_timeout(1.0 + DOUBT_S)
    assert harness.take() == []
    harness.liveness.link_broke(ONE, 2.0)
    assert harness.liveness.refused(ONE, 2.0)
    assert harness.take() == [PeerDied(ONE.id, is_silent=False)]


def test_who_may_have_a_wrong_address_and_does_not_answer_through_the_ring_is_dead() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    assert not harness.liveness.refused(ONE, 1.0)
    harness.liveness.handle_timeout(1.0 + DOUBT_S - 0.01)
    assert harness.take() == []
    harness.liveness.handle_timeout(1.0 + DOUBT_S)
    assert harness.take() == [PeerDied(ONE.id)]
    assert harness.ring.leaves() == []


def test_a_loopback_address_of_another_machine_proves_nothing() -> None:
    there = node(1, "127.0.0.1:7000")
    distant = Harness()
    distant.liveness.link_broke(there, 0.0)
    assert not distant.liveness.refused(there, 0.0)
    here = Harness(node(500, "127.0.0.1:7001"))
    here.liveness.link_broke(there, 0.0)
    assert here.liveness.refused(there, 0.0)
    assert here.take() == [PeerDied(there.id, is_silent=False)]


def test_a_death_is_reported_once_however_many_notice() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.liveness.handle_detector(Dead(ONE.id), 1.0)
    harness.liveness.refused(ONE, 1.5)
    harness.liveness.handle_detector(Dead(ONE.id), 1.0 + BURIED_S - 0.1)
    assert harness.take() == [PeerDied(ONE.id)]


def test_who_died_twice_is_reported_twice() -> None:
    harness = Harness()
    harness.liveness.bury(ONE, 1.0, is_silent=True)
    harness.liveness.heard_from(ONE.id, 1.1)
    assert not harness.liveness.is_buried(ONE.id)
    harness.liveness.bury(ONE, 1.2, is_silent=True)
    assert harness.take() == [PeerDied(ONE.id), PeerDied(ONE.id)]


def test_who_is_a_leaf_again_by_something_late_is_buried_again() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.run(0.0, 4.0)
    assert harness.ring.leaves() == []
    harness.add_leaf(ONE, 4.0)
    harness.liveness.leaves_added([ONE], 4.0)
    harness.take()
    harness.run(4.0, 6.0)
    assert harness.ring.leaves() == []


def test_who_left_in_good_order_did_not_die() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.contacts.connect(ONE, 0.5)
    harness.dialler.look_for(ONE, 0.5)
    harness.ring.receive(ONE.id, encode_ring_message(Leaving()), 1.0)
    harness.liveness.left(ONE.id, 1.0)
    assert harness.contacts.waiting_count == 0
    assert harness.dials() == []
    harness.liveness.handle_detector(Dead(ONE.id), 1.5)  # It was asked before it left.
    assert harness.take() == []
    assert harness.dials() == []


def test_a_doubtful_peer_is_asked_over_its_link_and_routed_around() -> None:
    harness = Harness()
    harness.add_leaf(ONE)
    harness.add_leaf(TWO)
    harness.liveness.handle_detector(Suspected(ONE.id), 1.0)
    ((to, data),) = harness.ring.messages_to_send()
    assert to == ONE
    assert isinstance(decode_ring_message(data), LeafProbe)
    harness.liveness.handle_detector(Alive(ONE.id, 0.01), 1.1)
    harness.liveness.handle_detector(Suspected(NodeId(b"?" * 16)), 1.1)  # Nobody knows it.
    assert harness.take() == []


@pytest.mark.parametrize("how", ["suspected", "link broke"])
def test_a_doubtful_peer_is_routed_around_until_it_answers(how: str) -> None:
    harness = Harness()
    for distance in range(1, 2 * CONFIG.ring.leaf_half):
        harness.add_leaf(node(500 - distance))
        harness.add_leaf(node(500 + distance))
    far, beside = node(0x8000), node(0x7F00)
    harness.add_leaf(far)
    harness.add_leaf(beside)
    assert harness.next_hop(far.id) == far
    if how == "suspected":
        harness.liveness.handle_detector(Suspected(far.id), 1.0)
    else:
        harness.liveness.link_broke(far, 1.0)
    assert harness.next_hop(far.id) == beside
    harness.liveness.handle_detector(Alive(far.id, None), 1.1)
    assert harness.next_hop(far.id) == far


def test_a_link_is_wanted_to_who_fell_silent_but_not_to_who_is_surely_gone() -> None:
    harness = Harness()
    harness.liveness.bury(ONE, 10.0, is_silent=True)
    harness.liveness.bury(TWO, 10.0, is_silent=False)
    harness.take()
    assert harness.liveness.wanted(ONE, 11.0)
    assert harness.take() == []
    assert not harness.liveness.wanted(TWO, 11.0)
    assert harness.take() == [PeerDied(TWO.id, is_silent=False)]
    assert len(harness.run(11.0, 20.0)) == 1  # Nothing answers there.


def test_when_one_falls_silent_the_other_leaves_are_asked_at_once() -> None:
    harness = Harness()
    for number in range(1, 9):
        harness.add_leaf(node(number))
    harness.liveness.detector.datagrams_to_send()
    harness.liveness.handle_detector(Dead(ONE.id), 1.0)
    asked = {address for address, _ in harness.liveness.detector.datagrams_to_send()}
    assert asked == {(f"198.51.100.{number}", 7000) for number in range(2, 9)}


def test_what_is_remembered_is_bounded() -> None:
    harness = Harness()
    for number in range(1, BURIED_MAX + 100):
        harness.liveness.bury(node(number), 1.0, is_silent=True)
    assert harness.liveness.is_buried(node(BURIED_MAX + 99).id)
    assert not harness.liveness.is_buried(ONE.id)
    assert sum(harness.liveness.is_buried(node(number).id) for number in range(1, BURIED_MAX + 100)) == BURIED_MAX
    assert len(harness.dialler) == CONFIG.lost_max
    broken = Harness()
    for number in range(1, CHECKS_MAX + 100):
        broken.liveness.link_broke(node(number), 1.0)
    assert len(broken.run(1.0, 10.0)) == CHECKS_MAX


def test_a_lone_node_watches_nobody() -> None:
    harness = Harness()
    harness.liveness.refresh(0.0)
    assert harness.run(0.0, 4.0) == []
    assert harness.liveness.detector.datagrams_to_send() == []
    assert harness.liveness.deadline() == CONFIG.contacts_refresh_s


@pytest.mark.parametrize(("source", "address"), [(("198.51.100.7", 7000), "198.51.100.7:7000"), (("::1", 7000), "[::1]:7000")])
def test_who_pings_and_belongs_into_the_leaf_set_is_probed(source: tuple[str, int], address: str) -> None:
    harness = Harness()
    harness.liveness.handle_detector(Pinged(TWO.id, source), 1.0)
    ((asked, data),) = harness.ring.messages_to_send()
    assert asked == NodeInfo(TWO.id, (address,))
    assert isinstance(decode_ring_message(data), LeafProbe)
    harness.add_leaf(ONE, 2.0)
    harness.liveness.handle_detector(Pinged(ONE.id, source), 3.0)  # it is there
    assert harness.ring.messages_to_send() == []


@pytest.mark.parametrize("how", ["link_opened", "leaves_added"])
def test_a_sign_of_life_ends_a_burial(how: str) -> None:
    """Otherwise the next death, right after it, would be reported to nobody."""
    harness = Harness()
    harness.liveness.bury(ONE, 1.0, is_silent=True)
    if how == "link_opened":
        harness.liveness.link_opened(ONE.id, 1.1)
    else:
        harness.liveness.leaves_added([ONE], 1.1)
    assert not harness.liveness.is_buried(ONE.id)
    harness.liveness.bury(ONE, 1.2, is_silent=True)
    assert harness.take() == [PeerDied(ONE.id), PeerDied(ONE.id)]


def test_each_suspicion_is_told() -> None:
    harness = Harness()
    harness.liveness.handle_detector(Suspected(ONE.id), 1.0)
    assert harness.liveness.events == [PeerSuspected(ONE.id)]
