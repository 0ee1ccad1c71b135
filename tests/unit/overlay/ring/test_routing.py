"""Routing: other ways round what is silent or refused, and where that ends."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.ring.events import Delivered, Undeliverable
from iris_overlay.ring.messages import PATH_LENGTH_MAX, Routed, RoutedKind, decode_ring_message, encode_ring_message
from iris_py.testing.cores.signer import signed
from tests.unit.overlay.rings import CONFIG, Wires, make_info, make_key, make_ring


def routed(wires: Wires) -> int:
    return wires.count(Routed)


def test_a_message_to_a_silent_root_is_sent_so_often_and_then_given_back() -> None:
    wires = make_ring(10, 100)
    wires.down.add(wires.infos[100].id)
    sender = wires.nodes[wires.infos[10].id]
    before = routed(wires)
    sender.route(make_key(100), b"x", wires.now)
    wires.advance(120.0)
    assert routed(wires) - before == CONFIG.route_attempts
    ((reason, payload),) = [(event.reason, event.payload) for event in wires.of(10, Undeliverable)]
    assert (reason, payload) == ("no hop accepted it", b"x")


def test_what_a_dead_hop_did_not_acknowledge_goes_another_way() -> None:
    wires = make_ring(10, 100, 200)
    dead = wires.infos[200].id
    wires.down.add(dead)
    sender = wires.nodes[wires.infos[10].id]
    sender.route(make_key(160), b"x", wires.now)
    wires.settle()
    for first in (10, 100):
        wires.nodes[wires.infos[first].id].peer_dead(dead, wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(100, Delivered)] == [b"x"], "without any time that passed"


def test_what_was_on_a_link_that_ended_is_sent_again() -> None:
    wires = make_ring(10, 100)
    root = wires.infos[100].id
    wires.down.add(root)
    sender = wires.nodes[wires.infos[10].id]
    sender.route(make_key(100), b"x", wires.now)
    wires.settle()
    wires.down.clear()
    sender.link_closed(root, wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(100, Delivered)] == [b"x"]


@pytest.mark.parametrize(("kind", "is_known"), [(RoutedKind.PAYLOAD, True), (RoutedKind.JOIN, False)])
def test_the_source_of_a_message_is_learned_unless_it_is_only_joining(kind: RoutedKind, is_known: bool) -> None:
    firsts = [5, *range(128, 250, 6)]
    wires = make_ring(*firsts)
    pastry, source = wires.nodes[wires.infos[5].id], make_info(77)
    payload = b"x" if kind is RoutedKind.PAYLOAD else b""
    message = signed(Routed(1, kind, bytes(make_key(6)), source, 1, (source.id,), False, payload))
    pastry.receive(wires.infos[128].id, encode_ring_message(message), wires.now)
    assert (source in pastry.known()) is is_known


def test_a_message_that_has_gone_round_for_too_long_is_dropped() -> None:
    wires = make_ring(10, 100)
    pastry, source = wires.nodes[wires.infos[10].id], make_info(77)
    for length, delivered in ((PATH_LENGTH_MAX - 1, 1), (PATH_LENGTH_MAX, 1)):
        path = tuple(NodeId(bytes([number]) * 16) for number in range(length))
        message = signed(Routed(length, RoutedKind.PAYLOAD, bytes(make_key(9)), source, length, path, False, b"x"))
        pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
        wires.settle()
        assert len(wires.of(10, Delivered)) == delivered


def test_a_message_that_comes_twice_is_delivered_once() -> None:
    wires = make_ring(10, 100)
    pastry, source = wires.nodes[wires.infos[10].id], make_info(77)
    for sequence in (1, 2):
        message = signed(Routed(sequence, RoutedKind.PAYLOAD, bytes(make_key(9)), source, 1, (source.id,), False, b"x"))
        pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]


def test_a_request_to_join_collects_the_rows_of_its_hops() -> None:
    wires = make_ring(*range(3, 256, 6))
    joiner, hop, collected = make_info(130), wires.infos[3], make_info(77)
    message = signed(Routed(1, RoutedKind.JOIN, bytes(joiner.id), joiner, 1, (joiner.id,), True, b"", [collected]))
    wires.nodes[hop.id].receive(joiner.id, encode_ring_message(message), wires.now)
    messages = [decode_ring_message(data) for _to, data in wires.nodes[hop.id].messages_to_send()]
    (sent,) = [message for message in messages if isinstance(message, Routed)]
    assert sent.path == (joiner.id, hop.id)
    assert {collected, hop} <= set(sent.nodes)
    assert {info for info in wires.nodes[hop.id].known() if info.id[0] >> 4 == joiner.id[0] >> 4} <= set(sent.nodes)
