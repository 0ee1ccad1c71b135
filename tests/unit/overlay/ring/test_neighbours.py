"""Leaves: who is probed, what a probe that is not answered leads to, and to whom keys are handed over."""

from __future__ import annotations

import itertools

import pytest

from iris_overlay.ids import clockwise, position
from iris_overlay.ring.events import HandoverWanted
from iris_overlay.ring.messages import LeafAck, LeafProbe, Routed, RoutedKind, decode_ring_message, encode_ring_message
from iris_overlay.ring.neighbours import PROBES_MAX
from iris_py.testing.cores.signer import signed
from tests.unit.overlay.rings import CONFIG, Wires, make_info, make_ring


def test_keys_are_handed_over_to_a_new_neighbour_once_before_its_probe_is_acknowledged() -> None:
    wires = make_ring(10, 100)
    pastry, newcomer = wires.nodes[wires.infos[10].id], make_info(50)
    probe = encode_ring_message(LeafProbe(newcomer, [], is_active=False))
    pastry.receive(newcomer.id, probe, wires.now)
    assert [type(event) for event in pastry.events_received() if isinstance(event, HandoverWanted)] == [HandoverWanted]
    assert not [to for to, _data in pastry.messages_to_send() if to == newcomer]
    pastry.receive(newcomer.id, probe, wires.now)
    assert not [to for to, _data in pastry.messages_to_send() if to == newcomer], "it waits for the handover"
    pastry.handover_done(newcomer, wires.now)
    acknowledged = [decode_ring_message(data) for to, data in pastry.messages_to_send() if to == newcomer]
    assert [type(message) for message in acknowledged] == [LeafAck]
    pastry.events_received()
    pastry.receive(newcomer.id, probe, wires.now)
    assert not [event for event in pastry.events_received() if isinstance(event, HandoverWanted)], "it has them"
    assert [to for to, _data in pastry.messages_to_send() if to == newcomer], "and is answered at once"


def test_a_handover_is_waited_for_as_long_as_it_may_take() -> None:
    wires = make_ring(10, 100)
    pastry, newcomer = wires.nodes[wires.infos[10].id], make_info(50)
    pastry.receive(newcomer.id, encode_ring_message(LeafProbe(newcomer, [], is_active=False)), wires.now)
    pastry.handle_timeout(wires.now + CONFIG.handover_timeout_s - 0.1)
    assert not [to for to, _data in pastry.messages_to_send() if to == newcomer]
    pastry.handle_timeout(wires.now + CONFIG.handover_timeout_s)
    assert [to for to, _data in pastry.messages_to_send() if to == newcomer]


@pytest.mark.parametrize("has_link", [True, False])
def test_a_probe_through_the_ring_is_answered_that_way_too_unless_there_is_a_link(has_link: bool) -> None:
    wires = make_ring(10, 100, 200)
    pastry, local, other, prober = (wires.nodes[wires.infos[10].id], *(wires.infos[first] for first in (10, 100, 200)))
    pastry.link_closed(prober.id, wires.now)
    if has_link:
        pastry.link_opened(prober, wires.now)
    probe = encode_ring_message(LeafProbe(prober, [], is_active=True))
    relayed = signed(Routed(1, RoutedKind.RELAY, local.id, prober, 1000, (prober.id, other.id), False, probe))
    pastry.receive(other.id, encode_ring_message(relayed), wires.now)
    messages = [decode_ring_message(data) for _to, data in pastry.messages_to_send()]
    answers = [message for message in messages if isinstance(message, Routed) and message.key == prober.id]
    assert bool(answers) is not has_link
    assert any(isinstance(message, LeafAck) for message in messages)


def test_a_node_that_is_no_neighbour_is_acknowledged_without_a_handover() -> None:
    firsts = range(5, 250, 5)
    wires = make_ring(*firsts)
    pastry, far = wires.nodes[wires.infos[5].id], make_info(127)
    pastry.receive(far.id, encode_ring_message(LeafProbe(far, [], is_active=False)), wires.now)
    assert not [event for event in pastry.events_received() if isinstance(event, HandoverWanted)]
    assert [to for to, _data in pastry.messages_to_send() if to == far]


def test_who_is_no_leaf_is_told_of_nodes_that_are_near_to_it() -> None:
    wires = make_ring(*range(5, 250, 5))
    wires.advance(2 * CONFIG.exchange_interval_s)
    pastry = wires.nodes[wires.infos[5].id]
    for prober, is_leaf in ((wires.infos[10], True), (make_info(127), False)):
        pastry.receive(prober.id, encode_ring_message(LeafProbe(prober, [], is_active=True)), wires.now)
        answers = [decode_ring_message(data) for to, data in pastry.messages_to_send() if to == prober]
        (ack,) = [answer for answer in answers if isinstance(answer, LeafAck)]
        others = [info for info in ack.leaves if info not in pastry.leaves()]
        assert bool(others) is not is_leaf
        assert prober not in others


def test_a_silent_node_with_a_link_is_not_looked_for_through_the_ring() -> None:
    wires = make_ring(10, 100)
    pastry, silent = wires.nodes[wires.infos[10].id], make_info(50)
    pastry.link_opened(silent, wires.now)
    neighbours = pastry._core.neighbours
    neighbours.probe(silent, wires.now)
    assert not neighbours.is_relaying(silent.id)
    assert neighbours.probe_timed_out(silent.id, wires.now + CONFIG.probe_timeout_s) is None


def test_a_silent_node_without_a_link_is_asked_through_the_ring_before_it_is_given_up() -> None:
    wires = make_ring(10, 100)
    pastry, silent = wires.nodes[wires.infos[10].id], make_info(50)
    neighbours = pastry._core.neighbours
    neighbours.probe(silent, wires.now)
    assert neighbours.probe_timed_out(silent.id, wires.now) is not None
    assert neighbours.is_relaying(silent.id)
    pastry.messages_to_send()
    pastry.link_opened(silent, wires.now)
    assert [to for to, _data in pastry.messages_to_send() if to == silent], "what went through the ring may be lost"
    assert not neighbours.is_relaying(silent.id)
    neighbours.link_opened(silent.id, wires.now)
    assert pastry.messages_to_send() == [], "once"


def test_probes_under_way_are_bounded() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    for number in range(PROBES_MAX + 5):
        pastry._core.neighbours.probe(make_info(101 + number), wires.now)
    assert len({to.id for to, _data in pastry.messages_to_send()}) == PROBES_MAX
    pastry._core.neighbours.give_up(make_info(101).id, wires.now)
    pastry._core.neighbours.probe(make_info(101 + PROBES_MAX), wires.now)
    assert [to for to, _data in pastry.messages_to_send() if to == make_info(101 + PROBES_MAX)]


def probed(wires: Wires, first: int) -> list[int]:
    """Return whom a node probed, by the numbers of the nodes."""
    node = wires.infos[first].id
    return [to[0] for source, to, message in wires.sent if source == node and isinstance(message, LeafProbe)]


@pytest.mark.parametrize(("dead", "is_told_to_all"), [(130, True), (110, False)])
def test_who_loses_its_right_hand_neighbour_shows_all_leaves_who_is_left(dead: int, is_told_to_all: bool) -> None:
    """Their detectors ask the dead one once in a while only."""
    wires = make_ring(*range(10, 250, 10))
    wires.advance(60.0)
    wires.sent.clear()
    wires.down.add(wires.infos[dead].id)
    pastry = wires.nodes[wires.infos[120].id]
    pastry.peer_dead(wires.infos[dead].id, wires.now)
    wires.advance(CONFIG.news_delay_s)
    assert ({info.id[0] for info in pastry.leaves()} <= set(probed(wires, 120))) is is_told_to_all


def test_a_node_that_became_active_compares_leaf_sets_within_the_interval() -> None:
    wires = make_ring(10, 100)
    wires.sent.clear()
    wires.advance(CONFIG.exchange_interval_s)
    assert probed(wires, 10)
    assert probed(wires, 100)


def test_leaf_sets_are_compared_with_the_right_and_the_left_side_in_turn() -> None:
    wires = make_ring(*range(10, 250, 10))
    wires.advance(60.0)
    wires.sent.clear()
    wires.advance(6 * CONFIG.exchange_interval_s)
    asked = [clockwise(position(make_info(120).id), position(make_info(first).id)) for first in probed(wires, 120)]
    is_right = [distance < 1 << 127 for distance in asked]
    assert len(is_right) >= 5
    assert all(before is not after for before, after in itertools.pairwise(is_right))


def test_a_probe_that_was_on_a_link_that_ended_is_sent_again() -> None:
    wires = make_ring(10, 100)
    pastry, other = wires.nodes[wires.infos[10].id], make_info(50)
    pastry.link_opened(other, wires.now)
    pastry.meet(other, wires.now)
    assert [to for to, _ in pastry.messages_to_send()] == [other]
    pastry.link_closed(other.id, wires.now)
    ((to, data),) = pastry.messages_to_send()
    assert to == other
    assert isinstance(decode_ring_message(data), LeafProbe)
