"""The question to publishers for everything published so far, on both sides."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.patterns.topic.outgoing_flows import ANSWERS_MAX, ANSWERS_S
from iris_py.patterns.topic.publication_flush import FLUSH_IDS
from iris_py.patterns.topic.queue import PublicationsFlushed, SubscriptionReady
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.flows import FLUSH
from tests.unit.iris_py.patterns.topic.test_deliveries import Receiver
from tests.unit.iris_py.patterns.topic.test_publisher import Pair


def ask(receiver: Receiver, *publishers: Peer) -> int:
    """Ask, and return the id of the questions."""
    receiver.deliveries.flush.ask(receiver.group, publishers, 0.0)
    asked, receiver.outbound.fetches = receiver.outbound.fetches, []
    assert [(message.peer, message.argument) for message in asked] == [(peer, FLUSH) for peer in publishers]
    return asked[0].id


def answer(receiver: Receiver, number: int, publisher: Peer | None = None) -> bool:
    message = PeerMessage(receiver.group, publisher or receiver.peer, packets.FETCHED, number, 0, b"")
    return receiver.deliveries.receive_fetched(message, 0.0)


def is_over(receiver: Receiver) -> bool:
    return PublicationsFlushed() in receiver.events


def flushes(pair: Pair) -> int:
    pair.net.settle()
    return len(pair.net.take(pair.subscriber, PublicationsFlushed))


@pytest.mark.parametrize("payload", [b"1", bytes(1 << 20)], ids=["batch", "bulk"])
def test_the_answer_comes_behind_all_publications(payload: bytes) -> None:
    pair = Pair()
    pair.arrived()
    pair.net.take(pair.subscriber, SubscriptionReady)
    receive = pair.publisher.receive_fetch

    def publish_before(message: PeerMessage, now: float) -> bool:
        assert pair.publish(payload) == 1
        return receive(message, now)

    pair.publisher.receive_fetch = publish_before  # type: ignore[method-assign]
    pair.subscriber.flush_publications(pair.net.now)
    pair.net.settle()
    events = pair.net.take(pair.subscriber, SubscriptionReady, PublicationsFlushed)
    assert events == [SubscriptionReady(pair.queue), PublicationsFlushed()]
    assert pair.publish(b"2") == 1
    assert pair.arrived() == [(payload, 0), (b"2", 0)], "the flow goes on"
    assert flushes(pair) == 0


def test_without_publishers_all_has_come_at_once() -> None:
    receiver = Receiver()
    receiver.deliveries.flush.ask(receiver.group, (), 0.0)
    assert is_over(receiver)


def test_all_publishers_must_answer() -> None:
    receiver = Receiver()
    other, stranger = (Peer(NodeInfo(NodeId(letter * 16), ()), None) for letter in (b"o", b"s"))
    number = ask(receiver, receiver.peer, other)
    assert not answer(receiver, number, stranger)
    assert not answer(receiver, number + 1)
    assert answer(receiver, number)
    assert not answer(receiver, number), "each answers once"
    assert not is_over(receiver)
    assert answer(receiver, number, other)
    assert is_over(receiver)


def test_a_new_question_replaces_an_open_one() -> None:
    receiver = Receiver()
    first = ask(receiver, receiver.peer)
    second = ask(receiver, receiver.peer)
    assert first >= FLUSH_IDS <= second
    assert not answer(receiver, first)
    assert not is_over(receiver)
    assert answer(receiver, second)
    assert is_over(receiver)


def test_publications_held_behind_a_gap_come_first() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    body = receiver.deliveries.start_body(receiver.group, receiver.peer, 0, 3, 0.0)
    receiver.deliveries.receive(body, 0, 4, b"a", [b"4"], 0.0)
    receiver.outbound.fetches.clear()  # the question about the gap gets no answer
    assert answer(receiver, ask(receiver, receiver.peer))
    assert receiver.taken() == [(1, b"1", 0)]
    assert not is_over(receiver)
    receiver.deliveries.handle_timeout(ANSWER_S)
    assert receiver.taken() == [(4, b"4", 2)]
    assert is_over(receiver)


def test_a_question_that_was_replaced_while_held_is_not_the_new_one() -> None:
    receiver = Receiver()
    receiver.receive(1, [b"1"])
    body = receiver.deliveries.start_body(receiver.group, receiver.peer, 0, 3, 0.0)
    receiver.deliveries.receive(body, 0, 4, b"a", [b"4"], 0.0)
    receiver.outbound.fetches.clear()
    assert answer(receiver, ask(receiver, receiver.peer))
    number = ask(receiver, receiver.peer)
    receiver.deliveries.handle_timeout(ANSWER_S)
    assert not is_over(receiver)
    assert answer(receiver, number)
    assert is_over(receiver)


def test_a_node_that_asks_too_often_gets_no_answer() -> None:
    pair = Pair()
    pair.arrived()
    got = 0
    for _ in range(ANSWERS_MAX + 1):
        pair.subscriber.flush_publications(pair.net.now)
        got += flushes(pair)
    assert got == ANSWERS_MAX
    pair.net.cores.drive_until(pair.net.now + ANSWERS_S)
    pair.subscriber.flush_publications(pair.net.now)
    assert flushes(pair) == 1


def test_a_node_that_the_publisher_does_not_know_gets_no_answer() -> None:
    pair = Pair()
    (group,) = pair.core.groups.realms()
    stranger = Peer(NodeInfo(NodeId(b"s" * 16), ()), None)
    question = PeerMessage(group, stranger, packets.FETCH, FLUSH_IDS, FLUSH, b"")
    assert pair.publisher.receive_fetch(question, pair.net.now), "it is no malformed question"
    assert b"".join(pair.bodies()).count(b"begin") == 1
