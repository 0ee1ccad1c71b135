"""Links to nodes that one of two can dial, and packets for those that can have none."""

from __future__ import annotations

import random

import pytest

from iris_overlay.errors import InfoError
from iris_overlay.events import ConnectFailed, Counters, Event, PacketReceived
from iris_overlay.groups.messages import Told, encode_group_message
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.peers.contacts import ContactFailed, Contacts
from iris_overlay.peers.dial_back import (
    DIAL_BACK,
    DIAL_BACK_S,
    PACKET,
    PACKET_BYTES_MAX,
    REVERSAL_DELAY_S,
    WANTED_MAX,
    Reaching,
)
from iris_overlay.peers.hearsay import Hearsay
from iris_overlay.peers.vantage import Vantage
from iris_overlay.ring.config import PastryConfig
from iris_overlay.ring.messages import PAYLOAD_BYTES_MAX, Direct, LeafProbe, Routed, decode_ring_message, encode_ring_message
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner


def node(number: int, *addresses: str) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(2, "big") * 8), addresses or (f"198.51.100.{number % 250}:7000",))


LOCAL, ONE, TWO = node(5000), node(1), node(2)


class Harness:
    """The local node is in a ring with ONE, who forwards."""

    def __init__(self, local: NodeInfo = LOCAL, *, is_active: bool = True) -> None:
        self.ring = Pastry(local, PastryConfig(), random.Random(1), NamedSigner(local.id))
        self.contacts = Contacts(local, ContactsConfig(), Vantage(), Hearsay(ContactsConfig()))
        self.counters = Counters()
        self.reaching = Reaching(local, self.ring, self.contacts, self.counters)
        self.ring.link_opened(ONE, 0.0)
        if is_active:
            self.ring.start_alone(0.0)
            self.ring.receive(ONE.id, encode_ring_message(LeafProbe(ONE, [], True)), 0.0)
        self.sent()

    def fail(self, info: NodeInfo, now: float, *undelivered: bytes, is_dead: bool = False, is_overflow: bool = False) -> None:
        failure = ContactFailed(info, list(undelivered), is_overflow=is_overflow)
        self.reaching.contact_failed(failure, is_dead=is_dead, now=now)

    def events(self) -> list[Event]:
        events, self.reaching.events = self.reaching.events, []
        return events

    def sent(self) -> list[tuple[NodeId, bytes]]:
        """Return whom what was sent through the ring to."""
        sent = []
        for _, data in self.ring.messages_to_send():
            message = decode_ring_message(data)
            if isinstance(message, Routed):
                relayed = decode_ring_message(message.payload)
                assert isinstance(relayed, Direct)
                sent.append((NodeId(message.key), relayed.payload))
        return sent


def test_whom_a_dial_reaches_needs_nothing_else() -> None:
    harness = Harness()
    harness.reaching.connect(TWO, 0.0)
    harness.reaching.connect(TWO, 0.0)
    harness.reaching.connect(LOCAL, 0.0)
    assert [request.peer for request in harness.contacts.requests_to_dial()] == [TWO.id]
    harness.reaching.link_opened(TWO.id)
    harness.reaching.link_opened(TWO.id)
    assert len(harness.reaching) == 0
    assert harness.sent() == []
    assert harness.events() == []
    assert harness.reaching.deadline() is None


def test_whom_no_dial_reaches_is_asked_to_dial_back_once() -> None:
    harness = Harness()
    harness.reaching.connect(TWO, 0.0)
    harness.fail(TWO, 1.0)
    harness.fail(TWO, 1.1)
    assert harness.sent() == [(TWO.id, DIAL_BACK)]
    assert harness.reaching.deadline() == 1.0 + DIAL_BACK_S
    harness.reaching.handle_timeout(1.0 + DIAL_BACK_S - 0.01)
    assert harness.events() == []
    harness.reaching.handle_timeout(1.0 + DIAL_BACK_S)
    assert harness.events() == [ConnectFailed(TWO.id)]
    harness.reaching.handle_timeout(100.0)
    assert harness.events() == []


def test_a_dial_fails_with_the_messages_that_waited_for_it_too() -> None:
    harness = Harness()
    harness.reaching.connect(TWO, 0.0)
    harness.fail(TWO, 0.1, b"waited for too long", is_overflow=True)
    assert harness.sent() == []  # The dial goes on.
    harness.fail(TWO, 0.2, b"waited for the dial")
    assert harness.sent() == [(TWO.id, DIAL_BACK)]


def test_a_link_that_there_is_no_room_to_dial_for_cannot_be_had() -> None:
    harness = Harness()
    harness.reaching.connect(TWO, 0.0)
    harness.fail(TWO, 0.1, is_overflow=True)
    assert harness.events() == [ConnectFailed(TWO.id)]
    assert harness.sent() == []


def test_whom_a_dial_does_not_reach_soon_is_asked_to_dial_back_meanwhile() -> None:
    harness = Harness()
    harness.reaching.connect(TWO, 0.0)
    assert harness.reaching.deadline() == REVERSAL_DELAY_S
    harness.reaching.handle_timeout(REVERSAL_DELAY_S)
    assert harness.sent() == [(TWO.id, DIAL_BACK)]
    harness.fail(TWO, REVERSAL_DELAY_S + 0.1)  # the dial fails first, then nobody has dialled back
    assert harness.events() == []
    assert harness.reaching.deadline() == REVERSAL_DELAY_S + DIAL_BACK_S
    harness.reaching.handle_timeout(REVERSAL_DELAY_S + DIAL_BACK_S)
    assert harness.events() == [ConnectFailed(TWO.id)]
    assert harness.sent() == []


def test_nobody_dials_back_but_the_dial_goes_on() -> None:
    harness = Harness()
    for gives_up in (lambda: harness.reaching.handle_timeout(50.0), lambda: harness.reaching.undeliverable(TWO.id, DIAL_BACK)):
        for is_reached in (True, False):
            harness.reaching.connect(TWO, 0.0)
            harness.reaching.handle_timeout(REVERSAL_DELAY_S)
            gives_up()
            assert harness.events() == []
            assert harness.reaching.deadline() is None
            if is_reached:
                harness.reaching.link_opened(TWO.id)
            harness.fail(TWO, 60.0)
            assert harness.events() == ([] if is_reached else [ConnectFailed(TWO.id)])
            assert len(harness.reaching) == 0


def test_whom_nobody_could_ask_before_the_dial_failed_is_asked_then() -> None:
    harness = Harness(is_active=False)
    harness.reaching.connect(TWO, 0.0)
    harness.reaching.handle_timeout(REVERSAL_DELAY_S)
    assert harness.events() == []
    assert harness.reaching.deadline() is None
    harness.ring.start_alone(1.0)
    harness.ring.receive(ONE.id, encode_ring_message(LeafProbe(ONE, [], True)), 1.0)
    harness.sent()
    harness.fail(TWO, 1.0)
    assert harness.sent() == [(TWO.id, DIAL_BACK)]


def test_a_link_in_time_and_one_that_comes_too_late() -> None:
    harness = Harness()
    for late in (False, True):
        harness.reaching.connect(TWO, 0.0)
        harness.fail(TWO, 1.0)
        if late:
            harness.reaching.handle_timeout(1.0 + DIAL_BACK_S)
            assert harness.events() == [ConnectFailed(TWO.id)]
        harness.reaching.link_opened(TWO.id)
        harness.reaching.handle_timeout(50.0)
        assert harness.events() == []
        assert len(harness.reaching) == 0


def test_nobody_is_asked_when_nobody_could_dial() -> None:
    dead, hidden, joining = Harness(), Harness(NodeInfo(LOCAL.id, ())), Harness(is_active=False)
    for harness in (dead, hidden, joining):
        harness.reaching.connect(TWO, 0.0)
        harness.fail(TWO, 1.0, is_dead=harness is dead)
        assert harness.events() == [ConnectFailed(TWO.id)]
        assert harness.sent() == []
        assert harness.reaching.deadline() is None


def test_failures_that_nobody_waits_for_are_ignored() -> None:
    harness = Harness()
    harness.fail(TWO, 1.0)
    harness.reaching.peer_dead(TWO.id)
    harness.reaching.link_opened(TWO.id)
    assert harness.sent() == []
    assert harness.events() == []


def test_who_wants_too_many_links_gives_the_oldest_up() -> None:
    harness = Harness()
    for number in range(1, WANTED_MAX + 3):
        harness.reaching.connect(node(number), 0.0)
    assert len(harness.reaching) == WANTED_MAX
    assert harness.events() == [ConnectFailed(node(1).id), ConnectFailed(node(2).id)]


def test_packets_are_marked_and_come_out_whole() -> None:
    harness = Harness()
    harness.reaching.send(TWO, b"hello", 0.0)
    ((to, payload),) = harness.sent()
    assert to == TWO.id
    assert harness.reaching.received(TWO, payload, 0.0)
    assert harness.events() == [PacketReceived(TWO, b"hello")]
    assert harness.reaching.received(TWO, PACKET, 0.0)
    assert harness.events() == [PacketReceived(TWO, b"")]


def test_packets_are_bounded() -> None:
    harness = Harness()
    assert PACKET_BYTES_MAX + len(PACKET) <= PAYLOAD_BYTES_MAX
    harness.reaching.send(TWO, bytes(PACKET_BYTES_MAX), 0.0)
    with pytest.raises(InfoError):
        harness.reaching.send(TWO, bytes(PACKET_BYTES_MAX + 1), 0.0)
    assert len(harness.sent()) == 1


def test_who_is_asked_to_dial_back_does() -> None:
    harness = Harness()
    assert harness.reaching.received(TWO, DIAL_BACK, 0.0)
    assert harness.reaching.received(TWO, DIAL_BACK, 0.0)
    assert [request.address for request in harness.contacts.requests_to_dial()] == list(TWO.addresses)
    harness.contacts.events_received()
    assert harness.reaching.received(NodeInfo(node(3).id, ()), DIAL_BACK, 0.0)  # That makes no sense, and no harm.
    assert harness.contacts.requests_to_dial() == []


def test_what_follows_in_a_request_to_dial_back_is_ignored() -> None:
    harness = Harness()
    assert harness.reaching.received(TWO, DIAL_BACK + b"more", 0.0)
    assert [request.address for request in harness.contacts.requests_to_dial()] == list(TWO.addresses)
    assert harness.reaching.undeliverable(TWO.id, DIAL_BACK + b"more")


def test_what_the_ring_gives_up() -> None:
    harness = Harness()
    assert harness.reaching.undeliverable(TWO.id, PACKET + b"lost")
    assert harness.counters.packets_undeliverable == 1
    harness.reaching.connect(TWO, 0.0)
    harness.fail(TWO, 1.0)
    assert harness.reaching.undeliverable(TWO.id, DIAL_BACK)
    assert harness.events() == [ConnectFailed(TWO.id)]
    assert harness.reaching.undeliverable(TWO.id, DIAL_BACK)
    assert harness.events() == []


def test_messages_of_groups_are_for_somebody_else() -> None:
    harness = Harness()
    for payload in (encode_group_message(Told(GroupId(b"g" * 16), 1)), b"", b"\xff"):
        assert not harness.reaching.received(TWO, payload, 0.0)
        assert not harness.reaching.undeliverable(TWO.id, payload)
    assert harness.events() == []
    assert harness.counters.packets_undeliverable == 0
