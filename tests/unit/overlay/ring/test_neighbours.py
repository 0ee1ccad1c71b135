"""Leaves: who is probed, what a probe that is not answered leads to, and to whom keys are handed over."""

from __future__ import annotations

import itertools
import random

import pytest

from iris_overlay.ids import NodeId, clockwise, position
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.events import HandoverWanted
from iris_overlay.ring.messages import LeafAck, LeafProbe, Routed, RoutedKind, decode_ring_message, encode_ring_message
from iris_overlay.ring.neighbours import HEARD_MAX, HIDDEN_MAX, PROBES_MAX
from iris_overlay.ring.pastry import Pastry
from iris_overlay.ring.state import DOUBTFUL_MAX, Timer
from iris_py.testing.cores.signer import NamedSigner, signed
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
    relayed = signed(Routed(1, RoutedKind.RELAY, local.id, prober, 1000, (prober.id, other.id), (), probe))
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


def nearer_and_nearer(local: NodeInfo, count: int, *, is_dialable: bool = True) -> list[NodeInfo]:
    """Return nodes of which each is nearer to a node than those before, as somebody finds who tries keys for long enough."""
    addresses = ("192.0.2.9:9000",) if is_dialable else ()
    return [NodeInfo(NodeId((position(local.id) + step).to_bytes(16, "big")), addresses) for step in range(count, 0, -1)]


def make_joiner() -> tuple[Pastry, NodeInfo]:
    local, contact = make_info(10), make_info(100)
    pastry = Pastry(local, CONFIG, random.Random(1), NamedSigner(local.id))
    pastry.link_opened(contact, 0.0)
    pastry.join_via(contact, 0.0)
    return pastry, local


def test_who_probes_a_joiner_is_remembered_within_bounds() -> None:
    pastry, local = make_joiner()
    neighbours = pastry._core.neighbours
    for info in nearer_and_nearer(local, 3 * HEARD_MAX):
        pastry.receive(info.id, encode_ring_message(LeafProbe(info, [], is_active=True)), 0.1)
    assert 0 < len(neighbours._heard) <= HEARD_MAX


def test_who_acknowledges_a_joiner_is_remembered_within_bounds_and_leaves_always() -> None:
    pastry, local = make_joiner()
    neighbours, leaves = pastry._core.neighbours, pastry._ring.leaves
    for info in nearer_and_nearer(local, 3 * HEARD_MAX):
        neighbours._probes[info.id] = (info, 0)
        pastry.receive(info.id, encode_ring_message(LeafAck(info, [], is_active=True, is_whole=True)), 0.1)
    assert len(neighbours._acknowledged) <= HEARD_MAX
    assert neighbours._acknowledged.keys() >= {info.id for info in leaves.members()}


@pytest.mark.parametrize("leaves", [True, False])
def test_leaves_that_nobody_can_dial_are_asked_in_turn_within_bounds(leaves: bool) -> None:
    """Each of ever new ones displaces another one, or leaves: it is asked no more, at the latest when the table is full."""
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    neighbours, ring = pastry._core.neighbours, pastry._ring
    for info in nearer_and_nearer(wires.infos[10], 3 * HIDDEN_MAX, is_dialable=False):
        pastry.receive(info.id, encode_ring_message(LeafProbe(info, [], is_active=True)), wires.now)
        if leaves:
            pastry.peer_dead(info.id, wires.now)
    timers = [key for key in ring.timers._live if key[0] is Timer.HIDDEN]
    assert len(timers) == len(neighbours._hidden) <= (0 if leaves else HIDDEN_MAX)
    assert neighbours._hidden.keys() >= {info.id for info in ring.leaves.members() if not info.addresses}


def test_who_is_asked_again_later_is_bounded() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    neighbours = pastry._core.neighbours
    for info in nearer_and_nearer(wires.infos[10], 2 * HEARD_MAX):
        neighbours._note_given_up(info, wires.now)
    timers = {node for timer, node in pastry._ring.timers._live if timer is Timer.GIVEN_UP}
    assert timers == neighbours._given_up.keys()
    assert len(timers) == HEARD_MAX
    pastry.peer_dead(info.id, wires.now)
    assert (Timer.GIVEN_UP, info.id) not in pastry._ring.timers


def test_the_doubtful_are_bounded_and_the_first_is_trusted_again() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    infos = nearer_and_nearer(wires.infos[10], DOUBTFUL_MAX + 1)
    for info in infos:
        pastry.link_opened(info, wires.now)
        pastry.peer_doubtful(info.id, True, wires.now)
    assert list(pastry._ring.doubtful) == [info.id for info in infos[1:]]
