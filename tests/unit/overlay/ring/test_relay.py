"""Link messages through the ring: what may go that way, and which way it goes."""

from __future__ import annotations

import msgspec
import pytest

from iris_overlay.ids import NodeId
from iris_overlay.ring.events import Delivered, PeerLeft, Received, Undeliverable
from iris_overlay.ring.messages import (
    PATH_LENGTH_MAX,
    Direct,
    Got,
    JoinAnswer,
    LeafProbe,
    Leaving,
    Returned,
    RingMessage,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
    signed_part,
)
from iris_py.testing.cores.signer import NamedSigner, signed
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
    relayed = signed(Routed(1, RoutedKind.RELAY, wires.infos[10].id, other, 1000, (other.id,), (), data))
    pastry.receive(other.id, encode_ring_message(relayed), wires.now)
    assert pastry.counters.messages_invalid == 1
    pastry.receive(other.id, encode_ring_message(signed(Returned((), other, data, wires.infos[10].id, 1001))), wires.now)
    assert pastry.counters.messages_invalid == 2
    assert pastry.events_received() == []


@pytest.mark.parametrize("kind", [RoutedKind.RELAY, RoutedKind.PAYLOAD])
@pytest.mark.parametrize(
    "payload", [b"", b"junk", encode_ring_message(Direct(make_info(10), b"x"))], ids=["empty", "junk", "ok"]
)
def test_what_names_this_node_as_its_source_and_is_not_of_it_is_dropped_without_a_word(
    kind: RoutedKind, payload: bytes
) -> None:
    wires = make_ring(10, 100)
    local, other = wires.infos[10], wires.infos[100]
    pastry = wires.nodes[local.id]
    for key in (make_info(50).id, make_info(11).id):
        path = (local.id, *(bytes((number,)) * 16 for number in range(1, PATH_LENGTH_MAX - 1)))
        for way in ((local.id,), path):
            forged = Routed(1, kind, key, local, 1000, tuple(map(NodeId, way)), (local.id,), payload, [], bytes(20))
            pastry.receive(other.id, encode_ring_message(forged), wires.now)
    for _ in range(20):
        wires.now += 1.0
        pastry.handle_timeout(wires.now)
    assert not [event for event in pastry.events_received() if isinstance(event, Undeliverable)]


def test_a_node_that_leaves_may_say_so_along_a_path_and_nobody_else_for_it() -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, liar = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    leaving = Returned((), other, encode_ring_message(Leaving()), local.id, 1000)
    forged = msgspec.structs.replace(leaving, signature=NamedSigner(liar.id).sign(signed_part(leaving)))
    for message, is_believed in ((leaving, False), (forged, False), (signed(leaving), True)):
        pastry.receive(liar.id, encode_ring_message(message), wires.now)
        assert bool([event for event in pastry.events_received() if isinstance(event, PeerLeft)]) is is_believed
    assert pastry.counters.signatures_invalid == 2
    assert other not in pastry.leaves()


def test_what_comes_back_is_for_one_node_once() -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, hop = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    answer = encode_ring_message(Direct(other, b"answer"))
    for to, times in ((hop.id, 0), (local.id, 1), (local.id, 1)):
        pastry.receive(hop.id, encode_ring_message(signed(Returned((), other, answer, to, 1000))), wires.now)
        assert len(wires.of(10, Received)) + sum(isinstance(e, Received) for e in pastry.events_received()) <= times
    assert pastry.counters.repetitions_dropped == 1


@pytest.mark.parametrize("kind", list(RoutedKind))
def test_nobody_sends_through_the_ring_in_the_name_of_another_node(kind: RoutedKind) -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, liar = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    payload = encode_ring_message(Direct(other, b"x")) if kind is RoutedKind.RELAY else b"x"
    message = Routed(1, kind, local.id, other, 1000, (other.id, liar.id), (), payload)
    forged = msgspec.structs.replace(message, signature=NamedSigner(liar.id).sign(signed_part(message)))
    changed = msgspec.structs.replace(signed(message), payload=payload + b"y")
    for wrong in (message, forged, changed, msgspec.structs.replace(signed(message), number=1001)):
        pastry.receive(liar.id, encode_ring_message(wrong), wires.now)
    assert pastry.counters.signatures_invalid == 4
    assert not [event for event in pastry.events_received() if isinstance(event, Delivered | Received)]
    assert pastry.counters.repetitions_dropped == 0, "the number of the honest source is not used up"


@pytest.mark.parametrize("is_back", [False, True])
def test_what_is_wrapped_is_of_the_node_that_wrapped_it(is_back: bool) -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, liar = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    inners: list[RingMessage] = [Direct(other, b"x"), LeafProbe(other, [], True), JoinAnswer(other, [], [])]
    for number, inner in enumerate(inners, 1000):
        data = encode_ring_message(inner)
        returned = signed(Returned((), liar, data, local.id, number))
        relayed = signed(Routed(1, RoutedKind.RELAY, local.id, liar, number, (liar.id,), (), data))
        wrapped = encode_ring_message(returned) if is_back else encode_ring_message(relayed)
        pastry.receive(liar.id, wrapped, wires.now)
    assert pastry.counters.messages_invalid == 3
    assert not [event for event in pastry.events_received() if isinstance(event, Received)]


def test_what_cannot_go_back_along_its_path_goes_to_the_first_node_of_it() -> None:
    wires = make_ring(10, 100, 200)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[100]
    first, second = make_info(60).id, make_info(90).id
    answer = encode_ring_message(Direct(other, b"answer"))
    returned = signed(Returned((first, second), other, answer, first, 1))
    pastry.contact_failed(make_info(95).id, [encode_ring_message(returned)], wires.now)
    (message,) = [decode_ring_message(data) for _, data in pastry.messages_to_send()]
    assert isinstance(message, Routed)
    assert (message.kind, NodeId(message.key)) == (RoutedKind.RELAY, first)
    assert decode_ring_message(message.payload) == msgspec.structs.replace(returned, path=()), "as its source has signed it"


def test_what_came_another_way_back_is_of_the_node_that_answered() -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, hop = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    genuine = signed(Returned((), other, encode_ring_message(Direct(other, b"answer")), local.id, 1000))
    changed = msgspec.structs.replace(genuine, payload=encode_ring_message(Direct(other, b"changed")), number=1001)
    for number, returned in enumerate((changed, genuine)):
        data = encode_ring_message(returned)
        relayed = signed(Routed(1, RoutedKind.RELAY, local.id, hop, 1000 + number, (hop.id,), (), data))
        pastry.receive(hop.id, encode_ring_message(relayed), wires.now)
    received = [event for event in pastry.events_received() if isinstance(event, Received)]
    assert [(event.source, event.payload) for event in received] == [(other, b"answer")]


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
