"""A few nodes by hand: what whole rings (tests/sim/test_pastry.py) show rarely."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.errors import InfoError, MessageError, UnknownMessageError
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.events import (
    Activated,
    Delivered,
    HandoverWanted,
    LeavesChanged,
    LeavesDoubted,
    PeerAnswered,
    PeerLeft,
    PeerSilent,
    PeerViolated,
    Received,
    Undeliverable,
)
from iris_overlay.ring.messages import (
    PAYLOAD_BYTES_MAX,
    Direct,
    Got,
    JoinAnswer,
    JoinWaiting,
    LeafAck,
    LeafProbe,
    Leaving,
    MergeHint,
    Returned,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
)
from iris_overlay.ring.neighbours import GIVEN_UP_S, RELAYS_MAX
from iris_overlay.ring.pastry import SIZE_MAX, Pastry
from iris_overlay.ring.routing import DETOURS_MAX, HELD_S_MAX
from iris_overlay.ring.state import LINKS_MAX, NEWCOMER_S, Timer
from iris_py.testing.cores.signer import NamedSigner, signed
from tests.unit.overlay.rings import CONFIG, Wires, make_info, make_key, make_ring


def test_a_lone_node_is_the_root_of_everything() -> None:
    wires = Wires()
    pastry = wires.add(1)
    assert pastry.is_active
    assert pastry.is_root(make_key(200))
    pastry.route(make_key(200), b"x", 0.0)
    pastry.send(wires.infos[1], b"y", 0.0)
    pastry.answer((), b"z", 0.0)
    wires.settle()
    assert [event.payload for event in wires.of(1, Delivered)] == [b"x"]
    assert wires.of(1, Delivered)[0].path == ()
    assert [event.payload for event in wires.of(1, Received)] == [b"y", b"z"]
    assert pastry.leaves() == pastry.known() == []


def test_a_lone_node_cannot_exclude_itself() -> None:
    wires = Wires()
    pastry = wires.add(1)
    pastry.route(make_key(200), b"x", 0.0, exclude_self=True)
    wires.settle()
    assert [event.payload for event in wires.of(1, Undeliverable)] == [b"x"]


def test_all_others_are_known_in_a_small_ring_alone() -> None:
    lone = Wires()
    assert lone.add(1).others() == []
    wires = make_ring(*range(10, 10 + 10 * CONFIG.leaf_half, 10))
    for place, info in wires.infos.items():
        others = wires.nodes[info.id].others()
        assert others is not None
        assert {other.id for other in others} == {other.id for at, other in wires.infos.items() if at != place}
    wires.nodes[wires.infos[10].id].leave(wires.now)
    assert wires.nodes[wires.infos[10].id].others() is None
    large = make_ring(*range(10, 10 + 10 * (2 * CONFIG.leaf_half + 2), 10))
    assert [node.others() for node in large.nodes.values()] == [None] * len(large.nodes)


def test_three_nodes_know_each_other_and_divide_the_keys() -> None:
    wires = make_ring(10, 100, 200)
    for first in (10, 100, 200):
        pastry = wires.nodes[wires.infos[first].id]
        assert len(wires.of(first, Activated)) == 1
        assert {info.id for info in pastry.leaves()} == {wires.infos[other].id for other in (10, 100, 200) if other != first}
        assert [pastry.is_root(make_key(key)) for key in (20, 90, 180)] == [first == 10, first == 100, first == 200]
        pastry.route(make_key(90), b"%d" % first, wires.now)
    wires.settle()
    assert {event.payload for event in wires.of(100, Delivered)} == {b"10", b"100", b"200"}
    assert [info.id[0] for info in wires.nodes[wires.infos[10].id].replicas(make_key(90))] == [100, 200]


def test_excluding_itself_means_the_nearest_other() -> None:
    wires = make_ring(10, 100, 200)
    wires.nodes[wires.infos[100].id].route(make_key(90), b"x", wires.now, exclude_self=True)
    wires.settle()
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]


def test_an_answer_goes_back_along_the_path() -> None:
    wires = make_ring(10, 100, 200)
    pastry = wires.nodes[wires.infos[200].id]
    pastry.route(make_key(90), b"question", wires.now)
    wires.settle()
    (delivered,) = wires.of(100, Delivered)
    root = wires.nodes[wires.infos[100].id]
    root.answer(delivered.path, b"answer", wires.now)
    # The same by way of a third node,
    root.answer((wires.infos[200].id, wires.infos[10].id), b"detour", wires.now)
    # and over one that is not there.
    wires.refusing.add(make_info(77).id)
    root.answer((wires.infos[200].id, make_info(77).id), b"broken", wires.now)
    wires.settle()
    assert sorted(event.payload for event in wires.of(200, Received)) == [b"answer", b"broken", b"detour"]
    assert wires.of(200, Received)[0].source == wires.infos[100]
    assert wires.count(Returned) == 3  # Twice the detour, and once in vain.


def test_a_joiner_is_acknowledged_after_the_handover() -> None:
    wires = make_ring(10)
    wires.hands_over = False
    joiner = wires.add(100, 10)
    old = wires.nodes[wires.infos[10].id]
    assert [event.to.id for event in wires.of(10, HandoverWanted)] == [wires.infos[100].id]
    assert not joiner.is_active
    # From now on the joiner is the root of its keys, and holds what is sent to it.
    assert not old.is_root(make_key(100))
    old.route(make_key(100), b"early", wires.now)
    wires.settle()
    assert not wires.of(100, Delivered)
    old.send(wires.infos[100], b"directory", wires.now)
    old.handover_done(wires.infos[100], wires.now)
    wires.settle()
    kinds = [type(event) for event in wires.events[wires.infos[100].id]]
    assert kinds.index(Received) < kinds.index(Activated) < kinds.index(Delivered)


def test_a_handover_that_takes_too_long_is_not_waited_for() -> None:
    wires = make_ring(10)
    wires.hands_over = False
    joiner = wires.add(100, 10)
    wires.advance(CONFIG.handover_timeout_s + 0.01)
    assert joiner.is_active


def test_the_leaf_set_is_told_before_what_was_decided_with_it() -> None:
    wires = make_ring(10, 100)
    kinds = [type(event) for event in wires.events[wires.infos[10].id]]
    assert kinds == [Activated, LeavesChanged, HandoverWanted]
    kinds = [type(event) for event in wires.events[wires.infos[100].id]]
    assert kinds == [LeavesChanged, Activated]


def test_a_dead_root_is_replaced_only_when_it_is_dead() -> None:
    wires = make_ring(10, 100, 200)
    dead = wires.infos[100].id
    wires.down.add(dead)
    pastry = wires.nodes[wires.infos[10].id]
    pastry.route(make_key(95), b"x", wires.now)
    pastry.peer_doubtful(dead, True, wires.now)
    wires.advance(2.0)
    assert not wires.of(10, Delivered)  # Silent and doubted, but not dead.
    assert not wires.of(200, Delivered)
    for first in (10, 200):
        wires.nodes[wires.infos[first].id].peer_dead(dead, wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]
    assert pastry.counters.retransmissions > 0


def test_what_can_be_given_to_nobody_waits_until_somebody_is_declared_dead() -> None:
    wires = make_ring(10, 100, 200)
    lost = [wires.infos[100].id, wires.infos[200].id]
    wires.refusing.update(lost)  # as beyond a partition: each dial fails at once, and nobody is dead yet
    sender = wires.nodes[wires.infos[10].id]
    sender.route(make_key(100), b"x", wires.now)
    wires.advance(5.0)
    assert not wires.of(10, Undeliverable)
    for node in lost:
        sender.peer_dead(node, wires.now)
    wires.advance(1.0)
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]


def test_what_can_be_given_to_nobody_is_given_up_in_the_end() -> None:
    wires = make_ring(10, 100)
    wires.refusing.add(wires.infos[100].id)
    sender = wires.nodes[wires.infos[10].id]
    sender.route(make_key(100), b"x", wires.now)
    wires.advance(HELD_S_MAX + 1.0)
    assert [event.payload for event in wires.of(10, Undeliverable)] == [b"x"]
    assert sender.counters.held_dropped == 1


def test_a_message_does_not_wander_among_leaves_that_cannot_reach_its_root_either() -> None:
    wires = make_ring(*range(10, 130, 10))
    root = wires.infos[60].id
    wires.refusing.add(root)
    wires.sent.clear()
    wires.nodes[wires.infos[10].id].route(make_key(60), b"x", wires.now)
    wires.settle()
    given = [
        to for _, to, message in wires.sent if isinstance(message, Routed) and message.kind is RoutedKind.PAYLOAD and to != root
    ]
    assert len(given) <= DETOURS_MAX
    for pastry in wires.nodes.values():
        pastry.peer_dead(root, wires.now)
    wires.advance(2.0)
    delivered = [event.payload for first in wires.infos for event in wires.of(first, Delivered)]
    assert delivered == [b"x"]


def test_a_message_without_hope_is_given_up() -> None:
    wires = make_ring(10, 100)
    wires.down.add(wires.infos[100].id)
    wires.nodes[wires.infos[10].id].route(make_key(100), b"x", wires.now)
    wires.advance(60.0)
    assert [event.payload for event in wires.of(10, Undeliverable)] == [b"x"]
    assert wires.nodes[wires.infos[10].id].counters.given_up == 1


def test_repetitions_are_dropped() -> None:
    wires = make_ring(10, 100)
    source = wires.infos[100]
    data = [
        encode_ring_message(
            signed(Routed(sequence, RoutedKind.PAYLOAD, make_key(10), source, 77, (source.id,), excludes=(), payload=b"x"))
        )
        for sequence in (500, 501)
    ]
    for message in data:
        wires.nodes[wires.infos[10].id].receive(source.id, message, wires.now)
    wires.advance(0.1)
    assert len(wires.of(10, Delivered)) == 1
    assert wires.nodes[wires.infos[10].id].counters.repetitions_dropped == 1


def test_a_message_to_one_that_left_goes_to_its_successor() -> None:
    wires = make_ring(10, 100, 200)
    wires.nodes[wires.infos[100].id].leave(wires.now)
    wires.nodes[wires.infos[10].id].route(make_key(95), b"x", wires.now)
    wires.settle()
    assert wires.count(Leaving) == 2
    assert not wires.nodes[wires.infos[100].id].is_active
    assert [event.payload for event in wires.of(10, Delivered)] == [b"x"]
    # It does not come back by hearsay, nor by a late message.
    late = encode_ring_message(LeafProbe(wires.infos[100], [], is_active=True))
    wires.nodes[wires.infos[10].id].receive(wires.infos[100].id, late, wires.now)
    assert wires.infos[100] not in wires.nodes[wires.infos[10].id].leaves()


def test_a_node_declared_dead_by_mistake_comes_back() -> None:
    wires = make_ring(10, 100, 200)
    pastry, wronged = wires.nodes[wires.infos[10].id], wires.infos[100]
    pastry.peer_dead(wronged.id, wires.now)
    assert wronged not in pastry.leaves()
    wires.link(10, 100)
    wires.settle()
    assert wronged in pastry.leaves()


def test_what_cannot_be_given_to_a_node_is_relayed() -> None:
    wires = make_ring(10, 100)
    wires.add(200, 100, is_dialable=False)
    hidden = wires.infos[200]
    sender = wires.nodes[wires.infos[10].id]
    sender.link_closed(hidden.id, wires.now)
    sender.send(hidden, b"x", wires.now)
    sender.contact_failed(hidden.id, [encode_ring_message(Direct(wires.infos[10], b"y"))], wires.now)
    sender.route(make_key(200), b"z", wires.now)
    wires.settle()
    assert sorted(event.payload for event in wires.of(200, Received)) == [b"x", b"y"]
    assert [event.payload for event in wires.of(200, Delivered)] == [b"z"]
    direct = [message for source, to, message in wires.sent if source == wires.infos[10].id and to == hidden.id]
    assert not any(isinstance(message, Direct) for message in direct)


def test_what_waits_too_long_for_a_dial_to_the_root_goes_through_its_neighbour() -> None:
    wires = make_ring(10, 100, 200)
    sender, root, other = wires.nodes[wires.infos[10].id], wires.infos[200], wires.infos[100]
    sender.route(make_key(200), b"x", wires.now)
    ((to, data),) = sender.messages_to_send()
    assert to == root
    sender.give_back(root.id, [data], wires.now)
    sender.give_back(root.id, [data], wires.now)  # once is enough
    ((to, data),) = sender.messages_to_send()
    assert to == other, "without any time that passed"
    wires.nodes[other.id].receive(wires.infos[10].id, data, wires.now)
    wires.advance(10.0)
    assert [event.payload for event in wires.of(200, Delivered)] == [b"x"]
    assert root in sender.leaves(), "it says nothing about the root"


def test_two_hidden_nodes_are_neighbours_by_relay() -> None:
    wires = make_ring(10)
    first = wires.add(100, 10, is_dialable=False)
    second = wires.add(200, 10, is_dialable=False)
    assert {info.id[0] for info in first.leaves()} == {10, 200}
    assert {info.id[0] for info in second.leaves()} == {10, 100}
    first.route(make_key(200), b"x", wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(200, Delivered)] == [b"x"]


def test_who_answers_through_the_ring_is_said_to_live() -> None:
    wires = make_ring(10)
    first = wires.add(100, 10, is_dialable=False)
    wires.add(200, 10, is_dialable=False)
    wires.events[wires.infos[100].id].clear()
    first.ask(wires.infos[10], wires.now)  # there is a link: what comes over it says so itself
    wires.settle()
    assert not wires.of(100, PeerAnswered)
    first.ask(wires.infos[200], wires.now)
    wires.settle()
    assert {event.peer for event in wires.of(100, PeerAnswered)} == {wires.infos[200].id}


def test_a_hidden_leaf_that_dies_is_missed_by_another_hidden_one() -> None:
    wires = make_ring(10)
    for first in (100, 200):
        wires.add(first, 10, is_dialable=False)
    wires.advance(30.0)
    assert not wires.of(100, PeerSilent)
    wires.down.add(wires.infos[200].id)
    wires.advance(10.0)
    assert [event.info for event in wires.of(100, PeerSilent)] == [wires.infos[200]]
    assert not wires.of(10, PeerSilent)  # It has a link.


def test_a_hidden_leaf_that_leaves_says_so_to_another_hidden_one() -> None:
    wires = make_ring(10)
    for first in (100, 200):
        wires.add(first, 10, is_dialable=False)
    wires.nodes[wires.infos[200].id].leave(wires.now)
    wires.settle()
    assert [event.peer for event in wires.of(100, PeerLeft)] == [wires.infos[200].id]
    assert wires.nodes[wires.infos[100].id].leaves() == [wires.infos[10]]


def test_who_is_being_dialled_is_asked_through_the_ring_meanwhile() -> None:
    wires = make_ring(10, 100)
    walled = make_info(150)
    wires.down.add(walled.id)
    mention = encode_ring_message(LeafProbe(wires.infos[100], [walled], is_active=True))
    wires.nodes[wires.infos[10].id].receive(wires.infos[100].id, mention, wires.now)

    def relayed() -> int:
        return sum(isinstance(message, Routed) and message.key == walled.id for _, _, message in wires.sent)

    wires.settle()
    assert not relayed()
    wires.advance(CONFIG.probe_timeout_s / 2)
    assert relayed()


@pytest.mark.parametrize("has_died", [False, True])
def test_who_answered_no_probe_is_asked_once_more(has_died: bool) -> None:
    wires = make_ring(10, 100)
    node, late = wires.nodes[wires.infos[10].id], make_info(150)
    mention = encode_ring_message(LeafProbe(wires.infos[100], [late], is_active=True))

    def probes() -> int:
        return sum(isinstance(message, LeafProbe) and to == late.id for _, to, message in wires.sent)

    wires.down.add(late.id)
    node.receive(wires.infos[100].id, mention, wires.now)
    wires.advance(2 * CONFIG.probe_timeout_s)
    asked = probes()
    assert asked
    if has_died:
        node.peer_dead(late.id, wires.now)
    else:
        wires.down.discard(late.id)
        wires.add(150)
        node.receive(wires.infos[100].id, mention, wires.now)
        wires.settle()
        assert late not in node.leaves()  # Hearsay is not believed.
    wires.advance(GIVEN_UP_S)
    assert (probes() > asked) == (late in node.leaves()) == (not has_died)


def test_who_answered_no_probe_is_asked_twice_more_and_holds_up_no_repair() -> None:
    wires = make_ring(*range(10, 180, 10))  # as many as leaf sets hold
    node, late = wires.nodes[wires.infos[100].id], make_info(105)
    wires.down.add(late.id)

    def wait_for_probe() -> float:
        before = len(wires.sent)
        while not any(to == late.id and isinstance(message, LeafProbe) for _, to, message in wires.sent[before:]):
            wires.advance(0.1)
            assert wires.now < 60.0
        return wires.now

    node.receive(wires.infos[110].id, encode_ring_message(LeafProbe(wires.infos[110], [late], True)), wires.now)
    wires.advance(GIVEN_UP_S / 2)
    first = wait_for_probe()
    for pastry in wires.nodes.values():
        pastry.peer_dead(wires.infos[60].id, wires.now)
    wires.down.add(wires.infos[60].id)
    wires.advance(0.8 * CONFIG.probe_timeout_s)  # that probe is still under way
    node.receive(wires.infos[110].id, encode_ring_message(LeafProbe(wires.infos[110], [], True)), wires.now)
    wires.settle()
    acks = [message for source, _, message in wires.sent if source == wires.infos[100].id and isinstance(message, LeafAck)]
    assert acks[-1].is_whole, "it knows that nobody is missing"
    wires.advance(GIVEN_UP_S / 2)
    assert wait_for_probe() - first < 3 * GIVEN_UP_S


def test_who_lost_almost_all_leaves_finds_those_that_it_has_links_to() -> None:
    wires = make_ring(*range(10, 250, 10))
    infos = [wires.infos[first] for first in (10, 130)]
    left = [wires.nodes[info.id] for info in infos]
    for pastry, other in zip(left, reversed(infos), strict=True):
        pastry.contact_failed(other.id, [], wires.now)  # so they are in no table
        assert pastry.find(other.id) is None
    wires.link(10, 130)
    lost = [info for first, info in wires.infos.items() if first not in (10, 20, 130, 140)]
    wires.down.update(info.id for info in (*lost, wires.infos[20], wires.infos[140]))
    for pastry in left:
        for info in lost:
            pastry.peer_dead(info.id, wires.now)
    wires.advance(2 * CONFIG.probe_timeout_s)
    assert all(other in pastry.leaves() for pastry, other in zip(left, reversed(infos), strict=True))


def test_a_leaf_that_another_leaf_lacks_is_doubted() -> None:
    wires = make_ring(10, 100, 150, 200)
    assert not wires.of(10, LeavesDoubted)
    wires.nodes[wires.infos[100].id].peer_dead(wires.infos[200].id, wires.now)
    wires.nodes[wires.infos[10].id].ask(wires.infos[100], wires.now)
    wires.settle()
    assert wires.of(10, LeavesDoubted) == [LeavesDoubted([wires.infos[200].id], wires.infos[100].id)]
    assert (Timer.HIDDEN, wires.infos[200].id) not in wires.nodes[wires.infos[10].id]._ring.timers  # the detector asks it


def test_a_leaf_without_an_address_that_another_leaf_lacks_is_asked_through_the_ring() -> None:
    wires = make_ring(10, 100, 150)
    wires.linked_with[make_info(200).id] = {make_info(10).id, make_info(100).id}
    wires.add(200, 10, is_dialable=False)
    pastry = wires.nodes[wires.infos[10].id]
    wires.nodes[wires.infos[100].id].peer_dead(wires.infos[200].id, wires.now)
    pastry.ask(wires.infos[100], wires.now)
    wires.settle()
    assert wires.of(10, LeavesDoubted) == [LeavesDoubted([wires.infos[200].id], wires.infos[100].id)]
    assert pastry.deadline() == wires.now  # At once, and not when its next sign of life is due.


def test_sending_to_nobody_is_counted() -> None:
    wires = make_ring(10, 100)
    wires.nodes[wires.infos[10].id].send(make_info(50, is_dialable=False), b"x", wires.now)
    wires.advance(1.0)
    assert [(event.key, event.payload) for event in wires.of(10, Undeliverable)] == []  # It was on its way already,
    assert (
        wires.nodes[wires.infos[100].id].counters.relays_dropped + wires.nodes[wires.infos[10].id].counters.relays_dropped == 1
    )


def test_two_that_join_through_each_other_start_a_ring() -> None:
    wires = Wires()
    for first in (10, 100):
        info = make_info(first)
        wires.nodes[info.id], wires.infos[first], wires.events[info.id] = (
            Pastry(info, CONFIG, random.Random(first), NamedSigner(info.id)),
            info,
            [],
        )
    wires.link(10, 100)
    for first, other in ((10, 100), (100, 10)):
        wires.nodes[wires.infos[first].id].join_via(wires.infos[other], wires.now)
    wires.settle()
    assert wires.count(JoinWaiting) == 2
    wires.advance(2.0)
    assert wires.of(10, Activated)
    assert wires.of(100, Activated)
    assert wires.nodes[wires.infos[10].id].leaves() == [wires.infos[100]]


class Joiner:
    """A node whose requests to join nobody answers, and one that it has a link to and speaks for."""

    def __init__(self) -> None:
        self.info, self.other = make_info(100), make_info(10)
        self.pastry = Pastry(self.info, CONFIG, random.Random(1), NamedSigner(self.info.id))
        self.pastry.link_opened(self.other, 0.0)
        self.pastry.join_via(self.other, 0.0)

    def hear(self, message: LeafProbe | LeafAck | JoinAnswer | JoinWaiting) -> None:
        self.pastry.receive(self.other.id, encode_ring_message(message), 0.0)

    def is_leaf_of(self, *, is_active: bool, leaves: list[NodeInfo], is_whole: bool = True) -> bool:
        """Say that the other node has these leaves; return whether the joiner is active then."""
        self.hear(LeafProbe(self.other, [], is_active))
        self.hear(LeafAck(self.other, leaves, is_active, is_whole))
        return self.pastry.is_active


def test_who_is_in_the_leaf_set_of_an_active_node_needs_no_answer() -> None:
    """The root of its id may be joining too, and wait for the answer of this one."""
    assert Joiner().is_leaf_of(is_active=True, leaves=[make_info(100)])
    assert not Joiner().is_leaf_of(is_active=False, leaves=[make_info(100)])
    assert not Joiner().is_leaf_of(is_active=True, leaves=[])
    assert not Joiner().is_leaf_of(is_active=True, leaves=[make_info(100)], is_whole=False)


def test_a_joiner_asks_another_contact_at_once_when_the_one_that_took_its_request_dies() -> None:
    joiner = Joiner()
    (request,) = [decode_ring_message(data) for _, data in joiner.pastry.messages_to_send()]
    assert isinstance(request, Routed)
    known = make_info(20)
    joiner.pastry.link_opened(known, 0.0)
    joiner.pastry.join_via(known, 0.0)
    joiner.pastry.receive(joiner.other.id, encode_ring_message(Got([request.sequence])), 0.05)
    joiner.pastry.messages_to_send()
    joiner.pastry.link_closed(joiner.other.id, 0.1)
    joiner.pastry.handle_timeout(0.1)
    assert [to for to, data in joiner.pastry.messages_to_send() if isinstance(decode_ring_message(data), Routed)] == [known]


def test_who_meets_joiners_only_asks_the_others_at_once() -> None:
    """The first one says that it is joining; of two more one was known before, and one comes later."""
    joiner = Joiner()
    known, later = make_info(20), make_info(30)

    def asked() -> list[NodeInfo]:
        return [to for to, data in joiner.pastry.messages_to_send() if isinstance(decode_ring_message(data), Routed)]

    assert asked() == [joiner.other]
    joiner.pastry.link_opened(known, 0.0)
    joiner.pastry.join_via(known, 0.0)
    assert asked() == []
    joiner.hear(JoinWaiting(joiner.other))
    assert asked() == [known]
    joiner.pastry.link_opened(later, 0.1)
    joiner.pastry.join_via(later, 0.1)
    assert asked() == []
    joiner.pastry.receive(known.id, encode_ring_message(JoinWaiting(known)), 0.1)
    assert asked() == [later]
    joiner.pastry.receive(later.id, encode_ring_message(JoinWaiting(later)), 0.1)
    another = make_info(40)
    joiner.pastry.link_opened(another, 0.1)
    joiner.pastry.join_via(another, 0.1)
    assert asked() == [another]
    joiner.pastry.receive(another.id, encode_ring_message(JoinWaiting(another)), 0.1)
    joiner.pastry.handle_timeout(CONFIG.join_alone_delay_s)
    assert asked(), "it did not start alone: others are smaller"
    assert not joiner.pastry.is_active


@pytest.mark.parametrize(("others", "is_alone"), [((110, 120), True), ((120, 90), False), ((90, 120), False)])
def test_the_smallest_of_those_who_wait_for_each_other_starts_a_ring(others: tuple[int, int], is_alone: bool) -> None:
    info = make_info(100)
    pastry = Pastry(info, CONFIG, random.Random(1), NamedSigner(info.id))
    for other in map(make_info, others):
        pastry.link_opened(other, 0.0)
        pastry.join_via(other, 0.0)
    requester = make_info(130)
    pastry.link_opened(requester, 0.0)
    request = signed(
        Routed(1, RoutedKind.JOIN, requester.id, requester, 1, (requester.id,), excludes=(requester.id,), payload=b"")
    )
    pastry.receive(requester.id, encode_ring_message(request), 0.0)
    for other in map(make_info, others):
        pastry.receive(other.id, encode_ring_message(JoinWaiting(other)), 0.0)
    pastry.handle_timeout(CONFIG.join_alone_delay_s)
    assert pastry.is_active is is_alone


def test_an_answer_that_comes_after_the_acknowledgements_counts() -> None:
    joiner = Joiner()
    assert not joiner.is_leaf_of(is_active=False, leaves=[joiner.info])
    joiner.hear(JoinAnswer(joiner.other, [joiner.info], []))
    assert joiner.pastry.is_active


def test_an_answer_of_one_that_died_meanwhile_is_no_sign_of_its_life() -> None:
    joiner = Joiner()
    root, leaf = make_info(90), make_info(95)
    joiner.pastry.peer_dead(root.id, 0.0)
    answer = encode_ring_message(JoinAnswer(root, [joiner.other, leaf], []))
    joiner.pastry.receive(joiner.other.id, encode_ring_message(signed(Returned((), root, answer, joiner.info.id, 1))), 0.0)
    probed = [to for to, data in joiner.pastry.messages_to_send() if isinstance(decode_ring_message(data), LeafProbe)]
    assert {info.id for info in probed} == {joiner.other.id, leaf.id}


def test_a_joiner_asks_again_who_was_displaced_by_one_that_died() -> None:
    joiner = Joiner()
    displaced, dying, *others = [make_info(first) for first in (40, 50, 60, 65, 70, 75, 80, 85, 90, *range(110, 190, 10))]
    for info in (displaced, dying, *others):
        joiner.pastry.link_opened(info, 0.0)
        joiner.pastry.receive(info.id, encode_ring_message(LeafProbe(info, [], True)), 0.0)
        joiner.pastry.receive(info.id, encode_ring_message(LeafAck(info, [], True, True)), 0.0)
    assert not joiner.pastry.is_active
    assert displaced not in joiner.pastry.leaves()
    joiner.pastry.peer_dead(dying.id, 0.1)
    joiner.pastry.messages_to_send()
    joiner.pastry.receive(others[0].id, encode_ring_message(LeafProbe(others[0], [displaced], True)), 0.1)
    asked = [to for to, data in joiner.pastry.messages_to_send() if isinstance(decode_ring_message(data), LeafProbe)]
    assert asked == [displaced]


def test_a_joiner_is_answered_by_the_way_that_it_asked() -> None:
    """A dial takes longer, and the root may be about to leave."""
    wires = make_ring(10, 200)
    assert wires.add(201, 10).is_active
    way = [(sender[0], receiver[0]) for sender, receiver, message in wires.sent if isinstance(message, Returned)]
    assert way == [(200, 10), (10, 201)]
    assert wires.count(JoinAnswer) == 1  # the one for 200


def test_two_rings_become_one() -> None:
    wires = Wires()
    wires.add(10)
    wires.add(20, 10)
    wires.add(100)
    wires.add(200, 100)
    wires.link(10, 200)
    wires.nodes[wires.infos[10].id].merge_with(wires.infos[200], wires.now)
    wires.advance(3.0)
    for first in (10, 20, 100, 200):
        leaves = wires.nodes[wires.infos[first].id].leaves()
        assert {info.id[0] for info in leaves} == {10, 20, 100, 200} - {first}


def test_a_lone_node_that_nobody_can_dial_is_merged_with_through_its_contact() -> None:
    wires = make_ring(10, 100, 200)
    hidden = wires.add(150, is_dialable=False)
    wires.link(150, 10)
    wires.linked_with[wires.infos[150].id] = {wires.infos[10].id}
    hidden.merge_with(wires.infos[10], wires.now)
    wires.settle()
    assert {info.id[0] for info in hidden.leaves()} == {10, 100, 200}
    for first in (10, 100, 200):
        assert wires.infos[150] in wires.nodes[wires.infos[first].id].leaves()


@pytest.mark.parametrize("is_up", [True, False])
def test_a_message_to_a_node_goes_there_if_there_is_a_link(is_up: bool) -> None:
    """Rings that become one: somebody routes to a node through one that is nearest as far as its leaf set tells."""
    wires = make_ring(10, 200)
    other = wires.add(100)
    wires.link(10, 100)
    key = wires.infos[100].id
    if not is_up:
        wires.down.add(key)
    wires.nodes[wires.infos[10].id].route(key, b"alive?", wires.now)
    wires.settle()
    assert not wires.of(10, Delivered)
    wires.advance(10.0)
    assert [event.payload for event in wires.of(100 if is_up else 10, Delivered)] == [b"alive?"]
    assert other.is_active


def test_looking_for_oneself_in_the_own_ring_changes_nothing() -> None:
    wires = make_ring(10, 100, 200)
    wires.sent.clear()
    wires.nodes[wires.infos[10].id].merge_with(wires.infos[200], wires.now)
    wires.advance(3.0)
    assert wires.count(LeafProbe) == 0
    assert wires.count(Routed) == 2  # To the contact, and back.


def test_a_contact_that_fails_is_followed_by_another() -> None:
    wires = make_ring(10)
    info = make_info(100)
    pastry = wires.nodes[info.id] = Pastry(info, CONFIG, random.Random(1), NamedSigner(info.id))
    wires.infos[100], wires.events[info.id] = info, []
    wires.refusing.add(make_info(50).id)
    pastry.join_via(make_info(50), wires.now)
    wires.settle()
    assert not pastry.is_active
    pastry.join_via(wires.infos[10], wires.now)
    wires.settle()
    assert pastry.is_active


@given(st.binary(max_size=64))
def test_noise_becomes_an_event(data: bytes) -> None:
    pastry = Pastry(make_info(10), CONFIG, random.Random(1), NamedSigner(make_info(10).id))
    pastry.start_alone(0.0)
    pastry.events_received()
    pastry.receive(make_info(100).id, data, 0.0)
    try:
        decode_ring_message(data)
    except UnknownMessageError:
        assert pastry.counters.messages_unknown == 1
        assert not pastry.events_received()
    except MessageError:
        assert [type(event) for event in pastry.events_received()] == [PeerViolated]


def test_a_probe_in_the_name_of_another_is_a_violation() -> None:
    wires = make_ring(10, 100)
    for message in (LeafProbe(make_info(50), [], is_active=True), LeafAck(make_info(50), [], is_active=True, is_whole=True)):
        wires.nodes[wires.infos[10].id].receive(wires.infos[100].id, encode_ring_message(message), wires.now)
    wires.settle()
    assert len(wires.of(10, PeerViolated)) == 2
    assert wires.nodes[wires.infos[10].id].leaves() == [wires.infos[100]]


def test_a_message_in_the_name_of_another_is_a_violation() -> None:
    wires = make_ring(10, 100)
    message = encode_ring_message(Direct(make_info(50), b"x"))
    wires.nodes[wires.infos[10].id].receive(wires.infos[100].id, message, wires.now)
    wires.settle()
    assert len(wires.of(10, PeerViolated)) == 1
    assert not wires.of(10, Received)


def test_a_full_path_ends_a_loop() -> None:
    wires = make_ring(10, 100)
    source = wires.infos[100]
    path = (source.id,) * 32
    message = signed(Routed(1, RoutedKind.PAYLOAD, make_key(10), source, 7, path, excludes=(), payload=b"x"))
    wires.nodes[wires.infos[10].id].receive(source.id, encode_ring_message(message), wires.now)
    assert wires.nodes[wires.infos[10].id].counters.hop_limit_reached == 1


def test_the_owner_is_told_what_it_did_wrong() -> None:
    pastry = Pastry(make_info(10), CONFIG, random.Random(1), NamedSigner(make_info(10).id))
    with pytest.raises(InfoError):
        pastry.route(b"short", b"", 0.0)
    with pytest.raises(InfoError):
        pastry.send(make_info(10), bytes(PAYLOAD_BYTES_MAX + 1), 0.0)
    with pytest.raises(InfoError):
        Pastry(NodeInfo(NodeId(b"short"), ()), CONFIG, random.Random(1), NamedSigner(NodeId(b"short")))


def test_the_largest_payload_arrives() -> None:
    wires = make_ring(10, 100)
    wires.nodes[wires.infos[10].id].send(wires.infos[100], bytes(PAYLOAD_BYTES_MAX), wires.now)
    wires.settle()
    assert [event.payload for event in wires.of(100, Received)] == [bytes(PAYLOAD_BYTES_MAX)]


def test_what_a_node_knows_of_others() -> None:
    wires = make_ring(10, 100, 200)
    pastry = wires.nodes[wires.infos[10].id]
    assert pastry.find(wires.infos[100].id) == wires.infos[100]
    assert pastry.find(make_info(50).id) is None
    assert pastry.find(wires.infos[10].id) is None  # Not itself.
    pastry.link_opened(make_info(50), wires.now)
    assert pastry.find(make_info(50).id) == make_info(50)  # A link is enough.
    assert pastry.is_leaf(wires.infos[100].id)
    assert not pastry.is_leaf(make_info(50).id)
    assert pastry.admits(make_info(50).id)
    right = [wires.nodes[wires.infos[first].id].right_neighbour() for first in (10, 100, 200)]
    assert right == [wires.infos[100], wires.infos[200], wires.infos[10]]


def test_a_full_leaf_set_admits_only_the_near() -> None:
    wires = make_ring(*range(10, 250, 10))
    pastry = wires.nodes[wires.infos[120].id]
    assert pastry.admits(make_info(121).id)
    assert not pastry.admits(make_info(241).id)
    lone = Wires().add(1)
    assert lone.right_neighbour() is None
    assert lone.size_estimate() == 1


def test_the_size_is_exact_while_leaf_sets_overlap_and_estimated_beyond() -> None:
    for count in (2, 9, 16):
        wires = make_ring(*range(1, count + 1))
        assert {pastry.size_estimate() for pastry in wires.nodes.values()} == {count}
    wires = make_ring(*range(0, 250, 5))
    assert all(40 <= pastry.size_estimate() <= 65 for pastry in wires.nodes.values())


@pytest.mark.parametrize(
    ("dead", "least", "most"),
    [((*range(20, 80, 10), *range(170, 250, 10)), 20, 30), ((*range(10, 120, 10), *range(210, 250, 10)), 9, 9)],
    ids=["half of the leaves are left", "one side is left"],
)
def test_the_size_is_estimated_from_what_is_left_of_a_damaged_leaf_set(dead: tuple[int, ...], least: int, most: int) -> None:
    wires = make_ring(*range(10, 250, 10))
    pastry = wires.nodes[wires.infos[120].id]
    for first in dead:
        pastry.peer_dead(wires.infos[first].id, wires.now)
    assert len(pastry.leaves()) == 8
    assert least <= pastry.size_estimate() <= most


def test_neither_a_damaged_leaf_set_nor_a_crowd_makes_a_network_seem_endless() -> None:
    wires = make_ring(*range(10, 250, 10))
    pastry = wires.nodes[wires.infos[120].id]
    for first in (*range(10, 110, 10), *range(140, 250, 10)):
        pastry.peer_dead(wires.infos[first].id, wires.now)
    assert len(pastry.leaves()) == 2, "one on either side, while repairs are under way"
    assert pastry.size_estimate() == 3
    crowd = Wires()
    for number in range(40):
        info = NodeInfo(NodeId(bytes(14) + number.to_bytes(2, "big")), (f"192.0.2.{number}:9000",))
        pastry = Pastry(info, CONFIG, random.Random(number), NamedSigner(info.id))
        crowd.infos[number], crowd.events[info.id], crowd.nodes[info.id] = info, [], pastry
        if number:
            crowd.link(number, 0)
            pastry.join_via(crowd.infos[0], 0.0)
        else:
            pastry.start_alone(0.0)
        crowd.settle()
    assert crowd.nodes[crowd.infos[20].id].size_estimate() == SIZE_MAX


def test_who_left_is_remembered_and_who_died_may_come_back() -> None:
    wires = make_ring(10, 100, 200)
    pastry = wires.nodes[wires.infos[10].id]
    wires.nodes[wires.infos[100].id].leave(wires.now)
    wires.settle()
    assert pastry.has_left(wires.infos[100].id)
    assert wires.of(10, PeerLeft) == [PeerLeft(wires.infos[100].id)]
    pastry.peer_dead(wires.infos[100].id, wires.now)  # That is no news.
    assert pastry.has_left(wires.infos[100].id)
    pastry.peer_dead(wires.infos[200].id, wires.now)
    assert not pastry.has_left(wires.infos[200].id)
    assert pastry.leaves() == []


def test_asking_is_answered_with_a_leaf_set() -> None:
    wires = make_ring(10, 100, 200)
    pastry = wires.nodes[wires.infos[10].id]
    wires.sent.clear()
    pastry.ask(wires.infos[100], wires.now)
    wires.settle()
    assert [(to, type(message)) for _, to, message in wires.sent] == [
        (wires.infos[100].id, LeafProbe),
        (wires.infos[10].id, LeafAck),
    ]
    pastry.leave(wires.now)
    wires.settle()
    wires.sent.clear()
    pastry.ask(wires.infos[100], wires.now)
    wires.settle()
    assert wires.sent == []


def test_who_is_known_by_hearsay_is_asked_through_the_ring() -> None:
    wires = make_ring(*range(10, 250, 10))
    pastry, far = wires.nodes[wires.infos[10].id], wires.infos[130]
    pastry.link_closed(far.id, wires.now)
    wires.refusing.add(far.id)
    pastry.contact_failed(far.id, [], wires.now)  # it is behind a firewall, and no leaf
    wires.refusing.clear()
    assert pastry.find(far.id) is None
    pastry.ask(far, wires.now)
    wires.settle()
    assert PeerAnswered(far.id) in wires.of(10, PeerAnswered)


def test_who_left_or_is_met_by_a_joiner_is_not_probed() -> None:
    wires = make_ring(10, 100)
    pastry, gone = wires.nodes[wires.infos[10].id], wires.infos[100]
    pastry.receive(gone.id, encode_ring_message(Leaving()), wires.now)
    pastry.meet(gone, wires.now)
    assert pastry.messages_to_send() == []
    pastry.meet(make_info(50), wires.now)
    assert [to for to, _ in pastry.messages_to_send()] == [make_info(50)]
    joining = Pastry(make_info(7), CONFIG, random.Random(1), NamedSigner(make_info(7).id))
    joining.meet(make_info(50), 0.0)
    assert joining.messages_to_send() == []


def test_who_stood_still_finds_out_that_it_was_buried() -> None:
    wires = make_ring(10, 100, 200)
    sleeper = wires.infos[100]
    wires.down.add(sleeper.id)
    for first in (10, 200):
        wires.nodes[wires.infos[first].id].peer_dead(sleeper.id, wires.now)
    wires.advance(5.0)
    wires.down.clear()
    wires.nodes[sleeper.id].resume(wires.now)
    wires.advance(1.0)
    for first in (10, 200):
        assert wires.nodes[wires.infos[first].id].is_leaf(sleeper.id)
    waiting = Pastry(make_info(7), CONFIG, random.Random(1), NamedSigner(make_info(7).id))
    waiting.resume(0.0)  # In no ring there is nobody to ask.
    assert waiting.messages_to_send() == []


def test_an_idle_pair_wakes_up_about_once_a_minute() -> None:
    wires = make_ring(10, 100)
    wires.advance(1.0)
    wires.sent.clear()
    wires.advance(600.0)
    # Each exchanges leaf sets, and rows of the table, with one of the others in every interval.
    assert 30 <= len(wires.sent) <= 2 * 4 * 13


def test_a_joining_node_is_the_root_of_nothing() -> None:
    joiner = Joiner()
    assert not any(joiner.pastry.is_root(make_key(key)) for key in (0, 99, 100, 101, 255))
    assert joiner.is_leaf_of(is_active=True, leaves=[joiner.info])
    assert joiner.pastry.is_root(make_key(100))
    joiner.pastry.leave(1.0)
    assert not joiner.pastry.is_root(make_key(100))


def test_the_root_of_a_key_in_a_gap_is_not_known() -> None:
    """All nodes on one side have died at once: somebody beyond may be nearer than the local node."""
    firsts = range(10, 210, 10)
    wires = make_ring(*firsts)
    pastry = wires.nodes[wires.infos[10].id]
    assert not pastry.is_root(make_key(120))  # It is not covered: there are more nodes than the leaf set holds.
    assert pastry.is_root(make_key(12))
    for first in (
        *range(20, 20 + 10 * CONFIG.leaf_half, 10),
        130,
    ):  # the leaves on the right, and the one that takes their place
        pastry.peer_dead(wires.infos[first].id, wires.now)
    assert not pastry.is_root(make_key(12))
    assert not pastry.is_root(make_key(14))
    assert pastry.is_root(make_key(8))


def test_a_node_becomes_active_once_and_not_after_it_has_left() -> None:
    pastry = Pastry(make_info(100), CONFIG, random.Random(1), NamedSigner(make_info(100).id))
    for now in (0.0, 1.0):
        pastry.start_alone(now)
    assert [type(event) for event in pastry.events_received()] == [Activated]
    deadline = pastry.deadline()
    pastry.start_alone(2.0)
    assert pastry.deadline() == deadline
    pastry.leave(3.0)
    pastry.events_received()
    pastry.start_alone(4.0)
    assert pastry.events_received() == []
    assert not pastry.is_active


def test_who_waits_for_ever_for_joiners_starts_alone() -> None:
    """Even if others are smaller: they may wait for somebody who is dead. It takes several attempts."""
    joiner = Joiner()  # of id 100, and its only contact, 10, is joining too
    attempts = 0
    now = 0.0
    while not joiner.pastry.is_active:
        attempts += sum(isinstance(decode_ring_message(data), Routed) for _, data in joiner.pastry.messages_to_send())
        joiner.pastry.receive(joiner.other.id, encode_ring_message(JoinWaiting(joiner.other)), now)
        deadline = joiner.pastry.deadline()
        assert deadline is not None
        assert attempts <= CONFIG.join_alone_attempts
        now = deadline
        joiner.pastry.handle_timeout(now)
    assert attempts == CONFIG.join_alone_attempts


def test_malformed_messages_are_counted() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    for number in (1, 2):
        pastry.receive(wires.infos[100].id, b"\\xff", wires.now)
        assert pastry.counters.messages_invalid == number
    wires.settle()
    assert len(wires.of(10, PeerViolated)) == 2


def test_so_many_links_are_remembered() -> None:
    pastry = Pastry(make_info(10), CONFIG, random.Random(1), NamedSigner(make_info(10).id))
    infos = [NodeInfo(NodeId(number.to_bytes(16, "little")), ()) for number in range(LINKS_MAX + 1)]
    for info in infos[:-1]:
        pastry.link_opened(info, 0.0)
    assert pastry.find(infos[0].id) == infos[0]
    pastry.link_opened(infos[-1], 0.0)
    assert pastry.find(infos[0].id) is None
    assert [pastry.find(info.id) for info in infos[1:]] == infos[1:]


def merged_rings() -> Wires:
    """Return two rings that just became one."""
    wires = Wires()
    rings = (range(5, 250, 20), range(15, 250, 20))
    for ring in rings:
        for first in ring:
            wires.add(first, ring[0] if first != ring[0] else None)
    wires.advance(2.0)
    wires.link(5, 15)
    wires.nodes[wires.infos[5].id].merge_with(wires.infos[15], wires.now)
    order = sorted(wires.infos)
    while [wires.nodes[wires.infos[first].id].right_neighbour() for first in order] != [
        wires.infos[first] for first in (*order[1:], order[0])
    ]:
        wires.advance(0.01)
    return wires


def test_news_is_spread_once_and_then_once_more() -> None:
    """All who got somebody from another ring into the middle of their leaf set show it to the edges, not for ever."""
    wires = merged_rings()
    merged = wires.count(LeafProbe)
    wires.advance(20.0)
    spread = wires.count(LeafProbe)
    wires.advance(10.0)
    assert spread - merged > 4 * len(wires.nodes)
    assert wires.count(LeafProbe) - spread < len(wires.nodes)


def test_newcomers_are_admitted_to_the_table_one_by_one() -> None:
    """Messages go to them when their join is done, and not before."""
    wires = make_ring(10, 100)
    ring = wires.nodes[wires.infos[10].id]._ring
    first, second = make_info(40), make_info(70)
    ring.note_newcomer(first, 0.0)
    ring.note_newcomer(second, 1.0)
    ring.admit_newcomers(NEWCOMER_S)
    assert (first.id in ring.table, second.id in ring.table) == (True, False)
    ring.admit_newcomers(1.0 + NEWCOMER_S)
    assert second.id in ring.table


def test_who_is_in_a_ring_or_has_left_it_asks_nobody_to_join() -> None:
    wires = make_ring(10, 100)
    pastry = wires.nodes[wires.infos[10].id]
    wires.advance(20.0)
    pastry.join_via(wires.infos[100], wires.now)
    assert pastry.messages_to_send() == []
    alone = Pastry(make_info(10), CONFIG, random.Random(1), NamedSigner(make_info(10).id))
    alone.join_via(make_info(10), 0.0)  # Itself.
    assert alone.messages_to_send() == []
    assert alone.deadline() is None


@pytest.mark.parametrize(("contact", "is_sought"), [(50, True), (100, False)])
def test_a_node_that_hears_of_another_ring_looks_for_its_place_there(contact: int, is_sought: bool) -> None:
    wires = make_ring(10, 100, 200)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[200]
    wires.refusing.add(make_info(50).id)  # nobody is there
    pastry.receive(other.id, encode_ring_message(MergeHint(make_info(contact), 1)), wires.now)
    assert pastry.deadline() is not None
    wires.advance(CONFIG.hint_jitter_s)
    sought = [to for source, to, message in wires.sent if isinstance(message, Routed) and message.kind is RoutedKind.SEEK]
    assert bool(sought) is is_sought
    assert all(to == make_info(50).id for to in sought)


@pytest.mark.parametrize("is_dialable", [True, False])
def test_a_node_that_can_be_asked_directly_is_asked_through_the_ring_once_less(is_dialable: bool) -> None:
    wires = make_ring(10, 100)
    neighbours = wires.nodes[wires.infos[10].id]._core.neighbours
    info = make_info(50, is_dialable=is_dialable)
    neighbours.probe(info, wires.now)
    asked = [neighbours.relayed_probe(info.id, wires.now) for _ in range(RELAYS_MAX + 1)]
    assert sum(probe is not None for probe in asked) == RELAYS_MAX - is_dialable


def test_many_links_do_not_make_a_node_forget_those_to_its_leaves() -> None:
    wires = make_ring(10, 100, 200)
    pastry, leaf = wires.nodes[wires.infos[10].id], wires.infos[100]
    strangers = [NodeInfo(NodeId(number.to_bytes(16, "big")), ()) for number in range(LINKS_MAX)]
    for stranger in strangers:
        pastry.link_opened(stranger, wires.now)
    assert pastry.state_sizes()["links"] == LINKS_MAX
    pastry.messages_to_send()
    pastry.leave(wires.now)
    told = {to.id for to, data in pastry.messages_to_send() if isinstance(decode_ring_message(data), Leaving)}
    assert leaf.id in told
    assert strangers[0].id not in told
    assert strangers[-1].id in told
