"""Link messages through the ring: what may go that way, and which way it goes."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.ring.events import PeerLeft
from iris_overlay.ring.messages import (
    Direct,
    Got,
    LeafProbe,
    Leaving,
    Returned,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
)
from tests.unit.overlay.rings import make_info, make_ring


def test_a_node_with_an_address_is_sent_to_directly_and_any_other_through_the_ring() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    for is_dialable in (True, False):
        peer = make_info(50, is_dialable=is_dialable)
        pastry.send(peer, b"x", wires.now)
        ((to, data),) = pastry.messages_to_send()
        assert to == (peer if is_dialable else wires.infos[100])
        assert isinstance(decode_ring_message(data), Direct if is_dialable else Routed)


@pytest.mark.parametrize("data", [b"junk", encode_ring_message(Got([1]))], ids=["junk", "what speaks for a link"])
def test_what_must_not_go_through_the_ring_is_counted_and_does_nothing(data: bytes) -> None:
    wires = make_ring(10, 100)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[100]
    relayed = Routed(1, RoutedKind.RELAY, wires.infos[10].id, other, 1000, (other.id,), False, data)
    pastry.receive(other.id, encode_ring_message(relayed), wires.now)
    assert pastry.counters.messages_invalid == 1
    pastry.receive(other.id, encode_ring_message(Returned((), other, data)), wires.now)
    assert pastry.counters.messages_invalid == 2
    assert pastry.events_received() == []


def test_nobody_leaves_by_what_comes_back_along_a_path() -> None:
    wires = make_ring(10, 100)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[100]
    pastry.receive(other.id, encode_ring_message(Returned((), other, encode_ring_message(Leaving()))), wires.now)
    assert pastry.counters.messages_invalid == 1
    assert not [event for event in pastry.events_received() if isinstance(event, PeerLeft)]
    assert pastry.leaves() == [other]


def test_what_cannot_go_back_along_its_path_goes_to_the_first_node_of_it() -> None:
    wires = make_ring(10, 100, 200)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[100]
    first, second = make_info(60).id, make_info(90).id
    answer = encode_ring_message(Direct(other, b"answer"))
    returned = encode_ring_message(Returned((first, second), other, answer))
    pastry.contact_failed(make_info(95).id, [returned], wires.now)
    (message,) = [decode_ring_message(data) for _, data in pastry.messages_to_send()]
    assert isinstance(message, Routed)
    assert (message.kind, NodeId(message.key), message.payload) == (RoutedKind.RELAY, first, answer)


def test_a_probe_that_waits_for_a_dial_goes_through_the_ring_meanwhile() -> None:
    wires = make_ring(10, 100)
    pastry, other = wires.nodes[wires.infos[10].id], make_info(50)
    pastry.meet(other, wires.now)
    ((to, probe),) = pastry.messages_to_send()
    assert to == other
    pastry.give_back(other.id, [probe], wires.now)
    ((to, data),) = pastry.messages_to_send()
    message = decode_ring_message(data)
    assert isinstance(message, Routed)
    assert isinstance(decode_ring_message(message.payload), LeafProbe)
    assert (to, NodeId(message.key)) == (wires.infos[100], other.id)
