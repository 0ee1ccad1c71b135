"""Tests of iris_py/node/datagrams.py: which datagrams are signed, and which are encrypted under the keys of a link."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.detector.messages import Ack, Ping, encode_detector_message
from iris_overlay.ids import NodeId
from iris_py.node import datagrams as datagrams_module
from iris_py.node.datagrams import Datagrams
from iris_security import Identity, Keyring, LinkDatagrams, Secret
from iris_security.link_datagrams import UNANSWERED_MAX, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.link.link import Link

KEYRING = Keyring(Secret(bytes(range(32))), network="lab")
ONE, OTHER = ("192.0.2.1", 7000), ("192.0.2.2", 7000)


class OpenLink:
    """An end of an open link."""

    def __init__(self, secret: bytes, *, initiator: bool) -> None:
        self.is_open = True
        self.datagrams = LinkDatagrams(secret, initiator=initiator)


class Node:
    """The datagrams of a node, and its links."""

    def __init__(self, number: int, address: tuple[str, int]) -> None:
        identity = Identity(bytes([number]) * 32)
        self.id, self.address = NodeId(identity.node_id), address
        self.links: dict[NodeId, OpenLink] = {}
        self.drops: Counter[str] = Counter()
        self.datagrams = Datagrams(identity, KEYRING, lambda id_: cast("Link | None", self.links.get(id_)), self._count)

    def _count(self, reason: str) -> None:
        self.drops[reason] += 1

    def send(self, other: Node, payload: bytes) -> bytes:
        """Return a datagram to another node, or to the group of all nodes for the node itself."""
        ((_, datagram),) = self.datagrams.seal([(None if other is self else other.address, payload)])
        return datagram

    def receive(self, other: Node, datagram: bytes) -> bytes | None:
        opened = self.datagrams.open(datagram, other.address, 0.0)
        assert opened is None or opened[0] == other.id
        return None if opened is None else opened[1]


def link(initiator: Node, responder: Node, secret: bytes = bytes(32)) -> None:
    initiator.links[responder.id] = OpenLink(secret, initiator=True)
    responder.links[initiator.id] = OpenLink(secret, initiator=False)


def is_signed(datagram: bytes) -> bool:
    return datagram[0] != VERSION


@pytest.fixture
def pair() -> Iterator[tuple[Node, Node]]:
    """Two nodes with a link, which have probed each other."""
    one, other = Node(1, ONE), Node(2, OTHER)
    link(one, other)
    for _ in range(2):
        probe(one, other)
        probe(other, one)
    yield one, other
    assert not one.drops
    assert not other.drops


def ping(sender: Node, target: Node) -> bytes:
    return encode_detector_message(Ping(1, sender.id, target.id, None))


def ack(responder: Node) -> bytes:
    return encode_detector_message(Ack(1, responder.id, 0))


def probe(sender: Node, target: Node) -> list[bool]:
    """Let a node ping another one; return which of ping and answer were signed."""
    there = sender.send(target, ping(sender, target))
    assert target.receive(sender, there) == ping(sender, target)
    back = target.send(sender, ack(target))
    assert sender.receive(target, back) == ack(target)
    return [is_signed(there), is_signed(back)]


def test_without_a_link_all_are_signed() -> None:
    one, other = Node(1, ONE), Node(2, OTHER)
    for _ in range(3):
        assert probe(one, other) == [True, True]


def test_probes_between_linked_nodes_are_not_signed(pair: tuple[Node, Node]) -> None:
    one, other = pair
    for _ in range(100):
        assert probe(one, other) == [False, False]
        assert probe(other, one) == [False, False]


def test_a_responder_that_probes_first_signs_its_first_ping_alone() -> None:
    initiator, responder = Node(1, ONE), Node(2, OTHER)
    link(initiator, responder)
    assert probe(responder, initiator) == [True, False]
    assert probe(responder, initiator) == [False, False]


def test_other_datagrams_are_signed(pair: tuple[Node, Node]) -> None:
    one, other = pair
    for payload in (b"", b"\x91", b"\x95\x40", b"\x94\x44"):  # such as a beacon and an echo
        datagram = one.send(other, payload)
        assert is_signed(datagram)
        assert other.receive(one, datagram) == payload
    assert is_signed(one.send(one, ping(one, other))), "a datagram to the group is for all"


def test_an_address_is_of_the_node_that_was_heard_last_there(pair: tuple[Node, Node]) -> None:
    one, other = pair
    stranger = Node(3, other.address)
    assert one.receive(stranger, stranger.send(one, ping(stranger, one))) == ping(stranger, one)
    answer = one.send(stranger, ack(one))
    assert is_signed(answer)
    assert stranger.receive(one, answer) == ack(one)
    assert one.receive(other, other.send(one, ping(other, one))) == ping(other, one)
    assert not is_signed(one.send(other, ack(one)))


def test_the_end_of_a_link_is_the_end_of_its_datagrams(pair: tuple[Node, Node]) -> None:
    one, other = pair
    late = other.send(one, ping(other, one))
    del one.links[other.id]
    assert one.receive(other, late) is None
    assert one.drops == {"datagram": 1}
    one.drops.clear()
    assert is_signed(one.send(other, ping(one, other)))


def test_a_closing_link_is_read_and_not_used(pair: tuple[Node, Node]) -> None:
    one, other = pair
    one.links[other.id].is_open = False
    assert is_signed(one.send(other, ping(one, other)))
    assert one.receive(other, other.send(one, ping(other, one))) == ping(other, one)


def test_a_node_that_has_lost_the_link_alone_is_reached_by_the_third_ping(pair: tuple[Node, Node]) -> None:
    one, other = pair
    del other.links[one.id]
    answered = [other.receive(one, one.send(other, ping(one, other))) is not None for _ in range(UNANSWERED_MAX + 1)]
    assert (answered[0], answered[-1]) == (False, True)
    assert other.drops["datagram"] == answered.count(False)
    other.drops.clear()
    assert probe(one, other) == [True, True]
    assert probe(other, one) == [True, True], "it can read the answers, too"


def test_another_link_has_other_keys(pair: tuple[Node, Node]) -> None:
    one, other = pair
    old = one.send(other, ping(one, other))
    link(one, other, bytes(range(32)))
    assert probe(one, other) == [False, False]
    assert other.receive(one, old) is None
    assert other.drops == {"datagram": 1}
    other.drops.clear()


def test_a_repeated_probe_is_dropped(pair: tuple[Node, Node]) -> None:
    one, other = pair
    datagram = one.send(other, ping(one, other))
    assert other.receive(one, datagram) == ping(one, other)
    assert other.receive(one, datagram) is None
    assert other.drops == {"datagram": 1}
    other.drops.clear()


def test_an_insider_cannot_probe_in_the_name_of_a_linked_node(pair: tuple[Node, Node]) -> None:
    one, other = pair
    insider = Node(3, other.address)
    link(insider, one, bytes(range(32)))  # a link of its own, which `one` has under the id of the insider
    forged = insider.links[one.id].datagrams.seal(other.id, ack(other))
    assert one.receive(other, forged) is None
    assert one.drops == {"datagram": 1}
    one.drops.clear()


def test_remembered_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams_module, "ADDRESSES_MAX", 3)
    one = Node(1, ONE)
    others = [Node(number, ("192.0.2.9", number)) for number in range(2, 8)]
    for other in others:
        link(one, other)
        probe(other, one)
    answers = [is_signed(one.send(other, ack(one))) for other in others]
    assert answers == [True] * 3 + [False] * 3
