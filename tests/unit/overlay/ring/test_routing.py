"""Routing: other ways round what is silent or refused, and where that ends."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from iris_overlay.ids import NodeId, position, ring_distance
from iris_overlay.ring.events import Delivered, Undeliverable
from iris_overlay.ring.messages import PATH_LENGTH_MAX, Routed, RoutedKind, decode_ring_message, encode_ring_message
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner, signed
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
    message = signed(Routed(1, kind, bytes(make_key(6)), source, 1, (source.id,), (), payload))
    pastry.receive(wires.infos[128].id, encode_ring_message(message), wires.now)
    assert (source in pastry.known()) is is_known


def test_a_message_that_has_gone_round_for_too_long_is_dropped() -> None:
    wires = make_ring(10, 100)
    pastry, source = wires.nodes[wires.infos[10].id], make_info(77)
    for length, delivered in ((PATH_LENGTH_MAX - 1, 1), (PATH_LENGTH_MAX, 1)):
        path = tuple(NodeId(bytes([number]) * 16) for number in range(length))
        message = signed(Routed(length, RoutedKind.PAYLOAD, bytes(make_key(9)), source, length, path, (), b"x"))
        pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
        wires.settle()
        assert len(wires.of(10, Delivered)) == delivered


def test_a_message_that_comes_twice_is_delivered_once() -> None:
    wires = make_ring(10, 100)
    pastry, source = wires.nodes[wires.infos[10].id], make_info(77)
    for sequence in (1, 2):
        message = signed(Routed(sequence, RoutedKind.PAYLOAD, bytes(make_key(9)), source, 1, (source.id,), (), b"x"))
        pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]


def test_a_request_to_join_collects_the_rows_of_its_hops() -> None:
    wires = make_ring(*range(3, 256, 6))
    joiner, hop, collected = make_info(130), wires.infos[3], make_info(77)
    message = signed(Routed(1, RoutedKind.JOIN, bytes(joiner.id), joiner, 1, (joiner.id,), (joiner.id,), b"", [collected]))
    wires.nodes[hop.id].receive(joiner.id, encode_ring_message(message), wires.now)
    messages = [decode_ring_message(data) for _to, data in wires.nodes[hop.id].messages_to_send()]
    (sent,) = [message for message in messages if isinstance(message, Routed)]
    assert sent.path == (joiner.id, hop.id)
    assert {collected, hop} <= set(sent.nodes)
    assert {info for info in wires.nodes[hop.id].known() if info.id[0] >> 4 == joiner.id[0] >> 4} <= set(sent.nodes)


def second_to(wires: Wires, key: bytes, *excluded: int) -> int:
    """Return the node that is the nearest to a key without some."""
    others = [first for first in wires.infos if first not in excluded]
    places = {first: position(wires.infos[first].id) for first in others}
    return min(others, key=lambda first: (ring_distance(position(key), places[first]), places[first]))


@pytest.mark.parametrize("sender", [5, 90, 110, 140, 250])
def test_a_message_around_a_node_reaches_the_nearest_other_one_and_does_not_pass_that_node(sender: int) -> None:
    firsts = [5, 20, 40, 60, 80, 90, 100, 110, 120, 140, 160, 180, 200, 210, 220, 230, 240, 250]
    wires, key = make_ring(*firsts), make_key(100)
    root, pastry = wires.infos[100].id, wires.nodes[wires.infos[sender].id]
    wires.sent.clear()
    pastry.route(key, b"x", wires.now, exclude_self=True, around=root)
    wires.settle()
    heir = second_to(wires, key, 100, sender)
    assert {first for first in firsts if wires.of(first, Delivered)} == {heir}
    passed = [(source, to) for source, to, message in wires.sent if isinstance(message, Routed) and message.payload == b"x"]
    assert passed
    assert all(root not in way for way in passed)


def test_the_first_hop_of_a_message_around_a_node_is_not_the_usual_one() -> None:
    wires = make_ring(*range(5, 250, 6))
    for first in range(5, 250, 6):
        pastry = wires.nodes[wires.infos[first].id]
        usual = pastry._core.router.usual_hop(make_key(100))
        wires.sent.clear()
        pastry.route(make_key(100), b"x", wires.now, exclude_self=True, around=wires.infos[101].id)
        wires.settle()
        hops = [to for source, to, message in wires.sent if isinstance(message, Routed) and source == wires.infos[first].id]
        assert not set(hops[:1]) & {*usual, wires.infos[101].id}
        (event,) = wires.of(second_to(wires, make_key(100), 101, first), Delivered)
        wires.events = {node: [] for node in wires.events}
        assert event.payload == b"x"


def test_where_there_is_no_other_node_a_message_around_one_comes_back() -> None:
    wires = make_ring(10, 100)
    wires.nodes[wires.infos[10].id].route(make_key(100), b"x", wires.now, exclude_self=True, around=wires.infos[100].id)
    wires.advance(60.0)
    assert not wires.of(100, Delivered)
    assert not wires.of(10, Delivered)
    assert [event.payload for event in wires.of(10, Undeliverable)] == [b"x"]


def timed(length: int, held: tuple[int, ...]) -> bytes:
    """Return a message from elsewhere that passed so many nodes, and says how long those kept it."""
    source = make_info(77)
    path = tuple(NodeId(bytes([200 + number]) * 16) for number in range(length))
    message = signed(Routed(length, RoutedKind.PAYLOAD, bytes(make_key(100)), source, length, path, (), b"x"))
    return encode_ring_message(msgspec.structs.replace(message, held=held))


def test_each_hop_adds_how_long_it_kept_a_message_whose_source_wants_to_know() -> None:
    firsts = [5, 20, 40, 60, 80, 90, 100, 110, 120, 140, 160, 180, 200, 210, 220, 230, 240, 250, *range(6, 20), *range(21, 40)]
    wires = make_ring(*firsts)
    sender = wires.nodes[wires.infos[250].id]
    wires.sent.clear()
    sender.route(make_key(100), b"x", wires.now, is_timed=True)
    wires.settle()
    (event,) = wires.of(100, Delivered)
    ways = [(source, to) for source, to, message in wires.sent if isinstance(message, Routed) and message.payload == b"x"]
    assert event.path == tuple(source for source, _to in ways), "the way that it took"
    assert ways[-1][1] == wires.infos[100].id
    assert event.held == (0,) * len(event.path), "no time passes within a turn"


def test_a_clock_shows_how_long_a_turn_takes() -> None:
    wires = make_ring(10, 100)
    info = make_info(30)
    sender = Pastry(info, CONFIG, random.Random(1), NamedSigner(info.id))
    ticks = itertools.count()
    sender.use_clock(lambda: 7.0 + next(ticks) * 0.000_25)
    wires.nodes[info.id], wires.infos[30], wires.events[info.id] = sender, info, []
    wires.link(30, 10)
    sender.join_via(wires.infos[10], wires.now)
    wires.settle()
    sender.route(make_key(100), b"x", 5.0, is_timed=True)
    wires.settle()
    assert [event.held for event in wires.of(100, Delivered)] == [(250,)]


@pytest.mark.parametrize(("length", "held"), [(3, (1, 2)), (2, (1, 2, 3)), (1, ()), (PATH_LENGTH_MAX - 1, tuple(range(32)))])
def test_times_that_do_not_belong_to_the_path_are_left_out(length: int, held: tuple[int, ...]) -> None:
    wires = make_ring(10, 100)
    hop = wires.nodes[wires.infos[10].id]
    hop.receive(make_info(200).id, timed(length, held), wires.now)
    sent = [decode_ring_message(data) for _to, data in hop.messages_to_send()]
    (passed,) = [message for message in sent if isinstance(message, Routed)]
    assert passed.held == ()


def test_times_of_all_nodes_before_are_passed_on() -> None:
    wires = make_ring(10, 100)
    hop = wires.nodes[wires.infos[10].id]
    hop.receive(make_info(200).id, timed(2, (7, 9)), wires.now)
    sent = [decode_ring_message(data) for _to, data in hop.messages_to_send()]
    (passed,) = [message for message in sent if isinstance(message, Routed)]
    assert passed.held == (7, 9, 0)
