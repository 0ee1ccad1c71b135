"""Tests of iris_overlay/detector/probes.py, through the detector that runs them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from iris_overlay.detector.config import CHECKS_MAX, NEAREST_ASKED, DetectorConfig
from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Alive, Contact, Dead, Pinged, Suspected
from iris_overlay.detector.messages import (
    SEQUENCE_MAX,
    Ack,
    Ping,
    PingRequest,
    pack_address,
)
from iris_overlay.detector.suspicion import Stage
from iris_overlay.ids import NodeId
from tests.unit.overlay.detector.harness import CONFIG, LOCAL, QUIET_S, STRANGER, Harness, contact


def test_answers_tell_the_round_trip() -> None:
    harness = Harness(others=0)
    due = harness.detector.deadline()
    assert due is not None
    harness.now = due
    harness.detector.handle_timeout(due)
    ((address, ping),) = harness.take()
    assert address == harness.neighbour.address
    assert type(ping) is Ping
    harness.now += 0.04
    harness.give(Ack(ping.sequence, harness.neighbour.id, 0))
    harness.take()
    (event,) = harness.events
    assert type(event) is Alive
    assert event.peer == harness.neighbour.id
    assert event.rtt_s == pytest.approx(0.04)


def test_a_silent_neighbour_is_asked_for_suspected_told_and_buried() -> None:
    harness = Harness()
    harness.run_for(QUIET_S)
    harness.events.clear()
    harness.silent = {harness.neighbour.id}
    start = harness.detector.deadline()
    assert start is not None
    sent = [(when - start, message) for when, _, message in harness.run_for(4.0)]
    about = [(when, m) for when, m in sent if isinstance(m, (Ping, PingRequest)) and m.target == harness.neighbour.id]
    requests = [(when, m.accused) for when, m in about if type(m) is PingRequest]
    # Round trips are known to be short, so the first time-out is the minimum.
    rounds = [0.2, 0.6, 0.9, 1.2]
    # Three helpers, three that hear of the suspicion, and one more for each further round.
    assert [when for when, _ in requests] == pytest.approx([0.2] * 3 + [0.6] * 3 + [0.9, 1.2])
    assert [accused for _, accused in requests] == [None] * 3 + [0] * 5
    pings = [(when, m.accused) for when, m in about if type(m) is Ping][:5]
    assert [when for when, _ in pings] == pytest.approx([0.0, *rounds])
    assert [accused for _, accused in pings] == [None, None, 0, 0, 0]
    assert harness.verdicts() == [Suspected(harness.neighbour.id), Dead(harness.neighbour.id)]
    # Dead, it is still asked, once per period, and nobody else is.
    assert [type(m) for when, m in about if when > 1.5] == [Ping] * 2
    assert harness.detector.local_health == 0


def test_who_others_suspect_too_and_who_is_far_costs_fewer_requests() -> None:
    for others, witnesses, wanted in ((20, 0, [3, 3, 1, 1]), (20, 1, [2, 3]), (20, 3, [1, 3])):
        harness = Harness(others=others)
        harness.run_for(QUIET_S)
        peer = harness.others[0]
        harness.silent = {peer.id}
        for witness in harness.others[5 : 5 + witnesses]:
            harness.give(PingRequest(1, witness.id, peer.id, *pack_address(peer.address), 0))
        if not witnesses:
            harness.detector.check(peer, harness.now)
        sent = [(when, m) for when, _, m in harness.run_for(2.0) if type(m) is PingRequest and m.target == peer.id]
        assert list(Counter(when for when, _ in sent).values()) == wanted
    harness = Harness(others=40)
    harness.run_for(QUIET_S)
    far = harness.others[-1]
    harness.silent = {far.id}
    harness.detector.check(far, harness.now)
    sent = [(when, m) for when, _, m in harness.run_for(2.0) if type(m) is PingRequest and m.target == far.id]
    assert list(Counter(when for when, _ in sent).values()) == [1, 1]
    assert [m.accused for _, m in sent] == [None, 0]  # Before the suspicion, and with its first round.


def test_where_much_is_lost_nothing_is_saved() -> None:
    harness = Harness(others=40)
    harness.run_for(QUIET_S)
    for _ in range(8):  # It answers the third ping at the earliest.
        harness.silent = {harness.neighbour.id}
        harness.run_for(1.0)
        harness.silent = set()
        harness.run_for(1.0)
    far = harness.others[-1]
    harness.silent = {far.id}
    harness.detector.check(far, harness.now)
    sent = [(when, m) for when, _, m in harness.run_for(20.0) if type(m) is PingRequest and m.target == far.id]
    assert set(Counter(when for when, _ in sent).values()) == {3}


def test_a_newcomer_saves_nothing_until_it_knows_how_much_is_lost() -> None:
    harness = Harness(others=40)
    far = harness.others[-1]
    harness.silent = {far.id}
    harness.detector.check(far, harness.now)
    sent = [when for when, _, m in harness.run_for(1.0) if type(m) is PingRequest and m.target == far.id]
    assert set(Counter(sent).values()) == {CONFIG.helpers}


def test_each_answer_takes_back_one_doubt_of_oneself() -> None:
    harness = Harness(others=0)
    for incarnation in range(3):
        harness.give(Ping(9, contact(9).id, LOCAL, incarnation))
    health = [harness.detector.local_health]
    for _ in range(4):
        harness.run_for(CONFIG.period_s)
        health.append(harness.detector.local_health)
    assert health == [3, 2, 1, 0, 0]


def test_neither_the_dead_nor_the_silent_one_itself_are_asked_for_help() -> None:
    harness = Harness(others=4)
    harness.silent = {contact(number).id for number in (1, 2, 3)}
    harness.detector.refused(contact(2).id, harness.now)
    harness.detector.refused(contact(3).id, harness.now)
    sent = harness.run_for(2.0)
    helpers = [address for _, address, m in sent if type(m) is PingRequest and m.target == contact(1).id]
    assert len(helpers) >= 4
    assert set(helpers) == {contact(4).address, contact(5).address}


def test_others_are_pinged_twice_before_helpers_are_bothered() -> None:
    harness = Harness(others=3)
    peer = harness.others[1]
    harness.silent = {peer.id}
    about = [m for _, _, m in harness.run_for(4.9) if isinstance(m, (Ping, PingRequest)) and m.target == peer.id]
    assert [type(m) for m in about[:6]] == [Ping] * 3 + [PingRequest] * 3


def test_a_link_that_delivers_while_the_ping_is_under_way_spares_the_helpers() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    sent = []
    for _ in range(100):
        sent.extend(harness.run_for(0.1))
        harness.detector.heard_from(harness.neighbour.id, harness.now)
    assert not [m for _, _, m in sent if type(m) is PingRequest]
    # Its answer still tells the round trip.
    watch = harness.detector._probing.watches[harness.neighbour.id]
    while watch.stage is not Stage.DIRECT:
        harness.run_for(0.05)
    harness.events.clear()
    harness.detector.heard_from(harness.neighbour.id, harness.now)
    harness.give(Ack(watch.sequence, harness.neighbour.id, 0))
    harness.take()
    assert [type(event) for event in harness.events] == [Alive]


def test_an_answer_through_a_helper_is_life() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    while not (requests := [m for _, _, m in harness.run_for(0.05) if type(m) is PingRequest]):
        pass
    harness.give(Ack(requests[0].sequence, harness.neighbour.id, 0))
    harness.silent = set()
    harness.run_for(3.0)
    assert harness.verdicts() == []


def test_a_suspect_refutes_with_a_higher_incarnation() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    while not harness.verdicts():
        harness.run_for(0.05)
    harness.silent = set()
    harness.run_for(2.0)
    assert harness.verdicts() == [Suspected(harness.neighbour.id), Alive(harness.neighbour.id, None)]
    assert harness.incarnations == {harness.neighbour.id: 1}
    # Accused again, it is told of the incarnation that it refuted with.
    harness.silent = {harness.neighbour.id}
    sent = harness.run_for(1.95)
    assert {m.accused for _, _, m in sent if type(m) is PingRequest} == {None, 1}
    assert harness.detector.counters.refutations == 1


def test_anything_over_a_link_is_an_answer() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    for _ in range(100):
        harness.run_for(0.1)
        harness.detector.heard_from(harness.neighbour.id, harness.now)
    assert harness.verdicts() == []


def test_a_link_keeps_a_peer_alive_whose_datagrams_are_dropped_at_few_datagrams() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    harness.run_for(10.0)
    harness.events.clear()
    harness.detector.heard_from(harness.neighbour.id, harness.now)
    sent = []
    for _ in range(600):
        sent.extend(harness.run_for(0.1))
        # The owner asks over the link whenever it is suspected.
        if any(type(event) is Suspected for event in harness.events[-3:]):
            harness.detector.heard_from(harness.neighbour.id, harness.now)
    assert Dead(harness.neighbour.id) not in harness.events
    # Helpers are asked once, until it is known that only the link speaks for it.
    assert sum(type(m) is PingRequest for _, _, m in sent) <= 6
    # An answer to a ping ends that.
    harness.silent = set()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    assert any(type(m) is PingRequest for _, _, m in harness.run_for(1.9))
    harness.run_for(5.0)
    assert harness.verdicts()[-1] == Dead(harness.neighbour.id)


def test_helpers_are_not_bothered_any_more_for_one_that_only_a_link_speaks_for() -> None:
    harness = Harness()
    peer = harness.others[0]
    harness.silent = {peer.id}
    while Suspected(peer.id) not in harness.events:
        harness.run_for(0.01)
    harness.detector.heard_from(peer.id, harness.now)
    sent = [m for _, _, m in harness.run_for(30.0) if isinstance(m, (Ping, PingRequest)) and m.target == peer.id]
    assert {type(m) for m in sent} == {Ping}


def test_a_sign_of_life_before_the_ping_is_none() -> None:
    harness = Harness()
    harness.run_for(3.0)
    due = harness.detector.deadline()
    assert due is not None
    harness.detector.heard_from(harness.neighbour.id, due - 0.001)
    harness.silent = {harness.neighbour.id}
    harness.run_for(3.0)
    assert Dead(harness.neighbour.id) in harness.events


def test_a_dead_contact_that_answers_is_alive_again() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id, harness.others[3].id}
    harness.run_for(15.0)
    assert {event.peer for event in harness.events if type(event) is Dead} == harness.silent
    harness.events.clear()
    harness.silent = set()
    harness.run_for(15.0)
    assert sum(event.peer == harness.others[3].id for event in harness.events) >= 1
    assert not [event for event in harness.events if type(event) is not Alive]


def test_a_suspect_that_pings_is_alive_and_one_that_was_just_asked_is_measured_all_the_same() -> None:
    harness = Harness()
    peer = harness.neighbour
    due = harness.detector.deadline()
    assert due is not None
    harness.now = due
    harness.detector.handle_timeout(due)
    (ping,) = [m for _, m in harness.take() if type(m) is Ping and m.target == peer.id]
    harness.give(Ping(5, peer.id, LOCAL), STRANGER)
    harness.now += 0.04
    harness.give(Ack(ping.sequence, peer.id, 0))
    harness.take()
    assert [event.rtt_s for event in harness.events if type(event) is Alive] == [pytest.approx(0.04)]
    harness.silent = {peer.id}
    while Suspected(peer.id) not in harness.events:
        harness.run_for(0.01)
    harness.give(Ping(6, peer.id, LOCAL), STRANGER)
    harness.take()
    assert harness.verdicts() == [Suspected(peer.id), Alive(peer.id, None)]


def test_a_dead_contact_that_pings_has_to_answer_first() -> None:
    harness = Harness()
    peer = harness.others[0]
    harness.detector.refused(peer.id, harness.now)
    harness.take()
    assert harness.events == [Dead(peer.id)]
    harness.give(Ping(5, peer.id, LOCAL), STRANGER)
    (to_stranger, ack), (to_peer, ping) = harness.take()
    assert (to_stranger, ack) == (STRANGER, Ack(5, LOCAL, 0))
    assert to_peer == peer.address
    assert harness.events == [Dead(peer.id)]
    harness.answer([(to_peer, ping)])
    harness.take()
    assert harness.events == [Dead(peer.id), Alive(peer.id, 0.0)]


def test_a_dead_contact_that_is_heard_over_a_link_is_alive() -> None:
    harness = Harness()
    peer = harness.others[0]
    harness.detector.refused(peer.id, harness.now)
    harness.detector.heard_from(peer.id, harness.now)
    harness.take()
    assert harness.events == [Dead(peer.id), Alive(peer.id, None)]


def test_a_dead_contact_that_something_came_from_is_asked_and_a_living_one_is_not() -> None:
    harness = Harness()
    peer, other = harness.others[:2]
    harness.detector.refused(peer.id, harness.now)
    harness.detector.returned(peer.id, harness.now)
    harness.detector.returned(other.id, harness.now)
    harness.detector.returned(harness.neighbour.id, harness.now)
    ((address, ping),) = harness.take()
    assert address == peer.address
    harness.answer([(address, ping)])
    harness.take()
    assert harness.events == [Dead(peer.id), Alive(peer.id, 0.0)]


def test_a_dead_contact_without_an_address_that_something_came_from_is_taken_for_alive() -> None:
    hidden = contact(1, dialled=False)
    harness = Harness(neighbour=hidden)
    harness.detector.refused(hidden.id, harness.now)
    harness.detector.returned(hidden.id, harness.now)
    harness.detector.refused(hidden.id, harness.now)
    assert harness.take() == []
    assert harness.events == [Dead(hidden.id), Dead(hidden.id)]  # It died twice.
    assert harness.detector.counters.deaths == 2


def test_those_beside_one_that_fell_silent_are_asked_at_once() -> None:
    harness = Harness()
    witness, *beside = harness.others[:4]
    harness.detector.look_at([other.id for other in (witness, *beside)] + [contact(500).id], witness.id, harness.now)
    assert [(address, type(m)) for address, m in harness.take()] == [(other.address, Ping) for other in beside]


def test_acks_of_others_late_and_repeated_ones_do_nothing() -> None:
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    ping = next(m for _, _, m in harness.run_for(1.0) if type(m) is Ping and m.target == harness.neighbour.id)
    before = harness.detector.counters.acks_unmatched
    harness.give(Ack(ping.sequence, harness.others[0].id, 0))
    harness.give(Ack((ping.sequence + 1000) & SEQUENCE_MAX, harness.neighbour.id, 0))
    harness.give(Ack(ping.sequence, NodeId(b"?" * 16), 0))
    assert harness.detector.counters.acks_unmatched == before + 3
    harness.run_for(3.0)
    assert Dead(harness.neighbour.id) in harness.events
    harness.give(Ack(ping.sequence, harness.neighbour.id, 0))
    assert harness.detector.counters.acks_unmatched == before + 4


def test_a_helper_hands_accusations_on_to_the_accused() -> None:
    harness = Harness()
    harness.give(PingRequest(55, NodeId(b"a" * 16), contact(77).id, *pack_address(contact(77).address), accused=3))
    ((_, ping),) = harness.take()
    assert type(ping) is Ping
    assert ping.accused == 3


def test_an_accusation_makes_who_shares_the_contact_look_for_itself() -> None:
    harness = Harness()
    peer = harness.others[2]
    harness.silent = {peer.id}
    harness.give(PingRequest(55, NodeId(b"a" * 16), peer.id, *pack_address(peer.address), accused=0))
    pings = [m for _, m in harness.take() if type(m) is Ping and m.target == peer.id]
    assert sorted(str(ping.accused) for ping in pings) == ["0", "None"]
    assert harness.events == []
    harness.run_for(3.0)
    assert harness.verdicts() == [Suspected(peer.id), Dead(peer.id)]


def time_of_death(harness: Harness, confirmations: list[tuple[bytes, int]], *, incarnation: int = 0) -> float:
    """Return how long the neighbour's suspicion lasts when others confirm it."""
    harness.run_for(3.0)
    if incarnation:
        harness.detector._probing.watches[harness.neighbour.id].incarnation = incarnation
    harness.silent = {harness.neighbour.id}
    while Suspected(harness.neighbour.id) not in harness.events:
        harness.run_for(0.01)
    suspected_at = harness.now
    for accuser, accused in confirmations:
        harness.give(PingRequest(5, NodeId(accuser * 16), harness.neighbour.id, b"", 0, accused))
    while Dead(harness.neighbour.id) not in harness.events:
        harness.run_for(0.01)
    return harness.now - suspected_at


def test_independent_confirmations_shorten_a_suspicion() -> None:
    alone = time_of_death(Harness(), [])
    assert alone == pytest.approx(0.9, abs=0.02)
    assert time_of_death(Harness(), [(b"a", 0)]) == pytest.approx(0.675, abs=0.02)
    assert time_of_death(Harness(), [(b"a", 0)] * 5) == pytest.approx(0.675, abs=0.02)
    assert time_of_death(Harness(), [(b"a", 0), (b"b", 0), (b"c", 0), (b"d", 0)]) == pytest.approx(0.45, abs=0.02)


def test_confirmations_belong_to_one_probe_and_are_bounded() -> None:
    harness = Harness()
    harness.run_for(3.0)
    peer = harness.neighbour
    harness.silent = {peer.id}
    while Suspected(peer.id) not in harness.events:
        harness.run_for(0.01)
    for number in range(50):
        harness.give(PingRequest(5, contact(100 + number).id, peer.id, b"", 0, 0))
    watch = harness.detector._probing.watches[peer.id]
    assert len(watch.confirmations) == CONFIG.confirmations
    harness.silent = set()
    harness.run_for(1.0)
    assert harness.verdicts()[-1] == Alive(peer.id, None)
    harness.events.clear()
    # The next suspicion lasts for its whole time.
    assert time_of_death(harness, []) == pytest.approx(0.9, abs=0.02)


def test_accusations_that_were_refuted_confirm_nothing() -> None:
    assert time_of_death(Harness(), [(b"a", 0), (b"b", 1)], incarnation=2) == pytest.approx(0.9, abs=0.02)
    assert time_of_death(Harness(), [(b"a", 2), (b"b", 3)], incarnation=2) < 0.7


def test_an_accusation_that_a_contact_refuted_before_is_not_looked_into() -> None:
    harness = Harness()
    peer, witness = harness.others[:2]
    harness.detector.check(peer, harness.now)
    ((_, ping),) = harness.take()
    assert type(ping) is Ping
    harness.give(Ack(ping.sequence, peer.id, 1))
    for accused, is_asked in ((0, False), (1, True)):
        harness.take()
        harness.give(PingRequest(1, witness.id, peer.id, *pack_address(peer.address), accused))
        asked = [m for _, m in harness.take() if type(m) is Ping and m.accused is None]
        assert bool(asked) is is_asked


def test_accusations_of_the_dead_change_nothing() -> None:
    harness = Harness()
    harness.detector.refused(harness.others[0].id, harness.now)
    harness.take()
    harness.give(PingRequest(5, NodeId(b"a" * 16), harness.others[0].id, b"", 0, 0))
    assert len(harness.take()) == 1
    assert harness.verdicts() == [Dead(harness.others[0].id)]


def test_a_check_takes_about_a_second() -> None:
    for peer in (contact(1), contact(5), contact(500)):
        harness = Harness()
        harness.run_for(3.0)
        harness.events.clear()
        harness.silent = {peer.id}
        start = harness.now
        # The owner asks again and again: that changes nothing.
        for step in range(10):
            harness.detector.check(peer, harness.now)
            harness.run_until(start + step / 10)
        harness.run_until(start + CONFIG.check_s_max - 0.01)
        assert harness.verdicts() == [Suspected(peer.id)]
        harness.run_until(start + CONFIG.check_s_max + 0.001)
        assert harness.verdicts() == [Suspected(peer.id), Dead(peer.id)]


def test_a_check_of_the_living_ends_at_once() -> None:
    harness = Harness()
    for peer in (contact(1), contact(5), contact(500)):
        harness.detector.check(peer, harness.now)
        harness.answer(harness.take())
        harness.take()
        assert harness.events.pop() == Alive(peer.id, 0.0)
    assert contact(500).id not in harness.detector._probing.watches


def test_a_check_of_the_dead_ends_too() -> None:
    harness = Harness()
    harness.silent = {contact(5).id}
    harness.detector.refused(contact(5).id, harness.now)
    harness.detector.check(contact(5), harness.now)
    harness.run_for(2.0)
    assert harness.verdicts() == [Dead(contact(5).id)] * 2


def test_a_check_hurries_a_suspicion() -> None:
    harness = Harness()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    while Suspected(harness.neighbour.id) not in harness.events:
        harness.run_for(0.01)
    harness.detector.check(harness.neighbour, harness.now)
    harness.run_for(0.46)
    assert harness.verdicts() == [Suspected(harness.neighbour.id), Dead(harness.neighbour.id)]


def test_its_own_pings_do_not_end_a_check_but_end_a_probe() -> None:
    harness = Harness()
    harness.silent = {contact(5).id}
    harness.detector.check(contact(5), harness.now)
    for _ in range(15):
        harness.run_for(0.1)
        harness.give(Ping(1, contact(5).id, LOCAL))
    assert Dead(contact(5).id) in harness.events
    harness = Harness()
    harness.silent = {harness.neighbour.id}
    for _ in range(100):
        harness.run_for(0.1)
        harness.give(Ping(1, harness.neighbour.id, LOCAL))
    assert harness.verdicts() == []


def test_a_refused_dial_is_death_at_once() -> None:
    harness = Harness()
    harness.detector.check(contact(500), harness.now)
    harness.detector.refused(contact(500).id, harness.now)
    harness.detector.refused(contact(3).id, harness.now)
    harness.detector.refused(contact(3).id, harness.now)
    harness.detector.refused(contact(999).id, harness.now)
    harness.take()
    assert harness.events == [Dead(contact(500).id), Dead(contact(3).id)]
    harness.silent = {contact(500).id, contact(3).id}
    harness.run_for(20.0)
    assert harness.verdicts() == [Dead(contact(500).id), Dead(contact(3).id)]


def test_checks_are_bounded() -> None:
    harness = Harness()
    for number in range(1000, 1000 + CHECKS_MAX + 50):
        harness.detector.check(contact(number), harness.now)
    assert harness.detector.counters.checks_refused > 0
    assert len(harness.detector._probing.watches) <= CHECKS_MAX + 9
    harness.silent = {contact(number).id for number in range(1000, 2000)}
    harness.run_for(3.0)
    assert sum(type(event) is Dead for event in harness.events) == CHECKS_MAX + 50 - harness.detector.counters.checks_refused
    assert len(harness.detector._probing.watches) < 9


@pytest.mark.parametrize("are_contacts", [True, False])
def test_checks_of_those_that_are_contacts_no_more_are_bounded(are_contacts: bool) -> None:
    """However many contacts there are: their number is no room for checks of others."""
    harness = Harness(others=500)
    for number in range(2, 502) if are_contacts else range(1000, 1500):
        harness.detector.check(contact(number), harness.now)
    harness.detector.set_contacts(contact(1), [contact(number) for number in range(2000, 2010)] if are_contacts else [], 100.0)
    watches = harness.detector._probing.watches
    assert len(watches) == len(harness.detector._probing.timers) + 1 == CHECKS_MAX + 1, "and the neighbour"
    assert harness.detector.counters.checks_refused == 500 - CHECKS_MAX


def test_nobody_checks_itself() -> None:
    harness = Harness()
    harness.detector.check(Contact(LOCAL, STRANGER), harness.now)
    harness.detector.set_contacts(Contact(LOCAL, STRANGER), [Contact(LOCAL, STRANGER)], harness.now)
    assert harness.take() == []
    assert harness.detector.deadline() is None


def test_nobody_is_suspected_in_the_period_after_a_stall() -> None:
    harness = Harness()
    harness.run_for(3.0)
    due = harness.detector.deadline()
    assert due is not None
    harness.silent = {harness.neighbour.id, *(other.id for other in harness.others)}
    harness.now = due + 0.6
    harness.detector.handle_timeout(harness.now)
    # Well again at once, so nothing but the period protects the others.
    harness.detector._probing.change_health(-1)
    harness.detector.check(contact(500), harness.now)
    harness.silent.add(contact(500).id)
    harness.run_for(0.99)
    assert harness.verdicts() == []
    harness.run_for(0.5)
    assert {Suspected(harness.neighbour.id), Suspected(contact(500).id)} <= set(harness.events)


def test_a_stall_is_no_round_trip() -> None:
    harness = Harness()
    harness.run_for(3.0)
    due = harness.detector.deadline()
    assert due is not None
    harness.now = due
    harness.detector.handle_timeout(due)
    pings = harness.take()
    harness.events.clear()
    # The answers wait in the socket while the process stands still.
    harness.now = due + 5.0
    harness.answer(pings)
    later = harness.take()
    assert {m.target for _, m in later if type(m) is Ping} == {m.target for _, m in pings if type(m) is Ping}
    harness.now += 0.01
    harness.answer(later)
    harness.take()
    assert len(harness.events) == 2
    assert all(type(event) is Alive and event.rtt_s == pytest.approx(0.01) for event in harness.events)


def test_a_silent_peer_among_others_is_not_our_failure_and_a_wrong_suspicion_is() -> None:
    harness = Harness()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    while Suspected(harness.neighbour.id) not in harness.events:
        harness.run_for(0.01)
        assert harness.detector.local_health == 0
    request = next(m for _, _, m in harness.run_for(0.35) if type(m) is PingRequest)
    harness.give(Ack(request.sequence, harness.neighbour.id, 1))
    assert harness.detector.local_health == 1


def test_who_has_one_contact_cannot_tell_whose_failure_it_is() -> None:
    harness = Harness(others=0)
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    harness.run_for(20.0)
    assert harness.detector.local_health == 0


def test_a_stall_keeps_suspicions_from_maturing_and_accuses_nobody_for_a_period() -> None:
    harness = Harness()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    while Suspected(harness.neighbour.id) not in harness.events:
        harness.run_for(0.01)
    harness.events.clear()
    due = harness.detector.deadline()
    assert due is not None
    stalled_until = harness.now = due + 0.6
    harness.detector.handle_timeout(harness.now)
    assert harness.detector.local_health >= 1
    harness.run_for(0.999)
    assert harness.verdicts() == []
    assert harness.detector.counters.stalls == 1
    harness.run_until(stalled_until + 1.0 + 0.89)
    assert Dead(harness.neighbour.id) not in harness.events
    harness.run_until(stalled_until + 1.0 + 0.91)
    assert Dead(harness.neighbour.id) in harness.events


def test_a_stall_is_noticed_by_whatever_comes_first() -> None:
    for call in ("datagram", "contacts", "check", "timeout"):
        harness = Harness()
        harness.run_for(3.0)
        harness.silent = {harness.neighbour.id}
        while Suspected(harness.neighbour.id) not in harness.events:
            harness.run_for(0.01)
        harness.now += 5.0
        if call == "datagram":
            harness.give(Ping(3, contact(9).id, LOCAL))
        elif call == "contacts":
            harness.detector.set_contacts(harness.neighbour, harness.others, harness.now)
        elif call == "check":
            harness.detector.check(contact(7), harness.now)
        harness.detector.handle_timeout(harness.now)
        harness.run_for(1.0)
        assert Dead(harness.neighbour.id) not in harness.events, call
        assert harness.detector.counters.stalls == 1


def test_a_late_timer_lets_the_owner_read_once_before_a_death() -> None:
    harness = Harness()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    while harness.detector._probing.watches[harness.neighbour.id].round < 3:
        harness.run_for(0.01)
    due = harness.detector.deadline()
    while due is not None and harness.neighbour.id in harness.detector._probing.timers:
        due = harness.detector._probing.timers.deadline()
        assert due is not None
        harness.now = due + 0.2
        before = len(harness.events)
        harness.detector.handle_timeout(harness.now)
        harness.take()
        if len(harness.events) == before:
            assert harness.detector.local_health >= 1
            break
    assert Dead(harness.neighbour.id) not in harness.events
    assert (harness.detector.deadline() or 0.0) > harness.now
    harness.now += 0.3
    harness.detector.handle_timeout(harness.now)
    harness.take()
    assert Dead(harness.neighbour.id) in harness.events


def test_health_scales_the_times_and_recovers() -> None:
    harness = Harness()
    for incarnation in range(3):
        harness.give(Ping(9, contact(9).id, LOCAL, incarnation))
    assert harness.detector.local_health == 3
    harness.silent = {harness.neighbour.id, *(other.id for other in harness.others)}
    due = harness.detector.deadline()
    assert due is not None
    harness.run_until(due + 4 * (0.5 + 0.4 + 2 * 0.9) - 0.01)
    assert Dead(harness.neighbour.id) not in harness.events
    harness.run_until(due + 4 * (0.5 + 0.4 + 2 * 0.9) + 0.01)
    assert Dead(harness.neighbour.id) in harness.events
    harness.silent = set()
    harness.run_for(20.0)
    assert harness.detector.local_health == 0


def test_who_doubts_itself_waits_longer_before_it_asks_helpers() -> None:
    harness = Harness(neighbour=contact(1, dialled=False))
    for incarnation in range(3):
        harness.give(Ping(9, contact(99).id, LOCAL, incarnation))
    harness.silent = {other.id for other in harness.others}
    sent = [(when, m) for when, _, m in harness.run_for(6.0) if isinstance(m, (Ping, PingRequest))]
    started_at, first = next((when, m) for when, m in sent if m.target in harness.silent)
    requested_at = next(when for when, m in sent if type(m) is PingRequest and m.target == first.target)
    assert requested_at - started_at == pytest.approx(4 * 2 * CONFIG.probe_timeout_s_max)


def test_silence_of_everybody_is_first_of_all_our_own_failure() -> None:
    harness = Harness()
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id, *(other.id for other in harness.others)}
    harness.run_for(30.0)
    assert 5 <= harness.detector.local_health <= CONFIG.health_max


def test_a_host_that_was_cut_off_for_two_seconds_takes_nobody_for_dead() -> None:
    """Whatever the moment: what it asked last before others reach it again was not answered, either."""
    for phase in range(20):
        harness = Harness()
        harness.run_for(QUIET_S + phase / 20)
        everybody = {harness.neighbour.id, *(other.id for other in harness.others)}
        for _ in range(3):
            harness.silent = everybody
            harness.run_for(2.0)
            harness.silent = set()
            harness.run_for(2.0)
        assert not [event for event in harness.events if type(event) is Dead]


def test_who_stays_cut_off_finds_out() -> None:
    harness = Harness()
    harness.run_for(QUIET_S)
    harness.silent = {harness.neighbour.id, *(other.id for other in harness.others)}
    harness.run_for(1.0 + 0.2 + 0.4 + 2 * 0.9 + 0.01)
    assert Dead(harness.neighbour.id) in harness.events


def test_one_answer_of_anybody_shows_that_it_is_not_this_host() -> None:
    """All but one of the nearest stopped: the one that lives is asked, so that nobody has to be asked twice."""
    harness = Harness()
    harness.run_for(QUIET_S)
    harness.silent = {harness.neighbour.id, *(other.id for other in harness.others)} - {contact(4).id}
    harness.run_for(CONFIG.detection_s_max + 0.01)
    assert Dead(harness.neighbour.id) in harness.events
    assert harness.detector.local_health == 0


def test_those_beside_a_neighbour_that_leaves_its_first_ping_unanswered_are_asked_at_once() -> None:
    harness = Harness()
    harness.run_for(QUIET_S)
    near = [other.id for other in harness.others[: NEAREST_ASKED - 1]]
    harness.silent = {harness.neighbour.id, *near}
    asked = harness.detector.deadline()
    assert asked is not None
    while True:
        sent = harness.run_until(harness.detector.deadline() or 0.0)
        if any(type(message) is Ping and message.target == harness.neighbour.id for _, _, message in sent):
            break
    begun = harness.now
    sent = harness.run_until(begun + CONFIG.probe_timeout_s_min + 0.001)
    assert {message.target for _, _, message in sent if type(message) is Ping} == {harness.neighbour.id, *near}
    harness.run_until(begun + 2 * CONFIG.probe_timeout_s_min + CONFIG.indirect_timeout_s + CONFIG.suspicion_s + 0.01)
    assert {event.peer for event in harness.events if type(event) is Dead} == {harness.neighbour.id, *near}


def test_where_much_is_lost_a_lost_ping_says_nothing_about_those_beside() -> None:
    harness = Harness()
    harness.detector._probing.lost_part = 0.3
    harness.run_for(3.0)
    harness.silent = {harness.neighbour.id}
    while harness.detector._probing.watches[harness.neighbour.id].stage is not Stage.INDIRECT:
        harness.run_for(0.01)
    assert len(harness.detector._probing.watches) <= 2  # The neighbour, and whose turn it is.


def test_a_check_and_an_accusation_go_on_with_the_probe_that_is_under_way() -> None:
    for how in ("check", "accusation"):
        for stage in (Stage.REPEATED, Stage.INDIRECT):
            harness = Harness()
            harness.run_for(QUIET_S)
            far = contact(9)
            harness.silent = {far.id}
            while (watch := harness.detector._probing.watches.get(far.id)) is None or watch.stage is not stage:
                harness.run_for(0.01)
            sequence = watch.sequence
            if how == "check":
                harness.detector.check(far, harness.now)
            else:
                harness.give(PingRequest(1, contact(3).id, far.id, *pack_address(far.address), 0))
            assert watch.stage is Stage.INDIRECT
            assert watch.sequence == sequence
            harness.run_for(CONFIG.indirect_timeout_s + CONFIG.suspicion_s)
            assert Dead(far.id) in harness.events


def test_periods_that_were_missed_are_not_made_up_for() -> None:
    harness = Harness(config=DetectorConfig(stall_s=10.0))
    due = harness.detector.deadline()
    assert due is not None
    harness.detector.handle_timeout(due + 3.5)
    assert harness.detector.deadline() is not None
    harness.now = due + 3.5
    harness.answer(harness.take())
    assert harness.detector.deadline() == harness.now + CONFIG.period_s


def test_an_early_call_is_harmless() -> None:
    harness = Harness()
    harness.run_for(2.5)
    sent = harness.detector.counters.probes
    for _ in range(5):
        harness.detector.handle_timeout(harness.now)
    assert harness.detector.counters.probes == sent
    assert harness.take() == []
    assert Detector(LOCAL, None, random.Random(1)).deadline() is None


def test_three_times_as_long_is_no_stall_when_nothing_was_due() -> None:
    detector = Detector(LOCAL, None, random.Random(1))
    detector.heard_from(contact(1).id, 50.0)
    detector.set_contacts(contact(1), [], 1000.0)
    assert detector.counters.stalls == 0


def test_a_ping_of_who_is_no_contact_is_reported() -> None:
    harness = Harness()
    stranger, known = NodeId(b"s" * 16), harness.others[0]
    harness.give(Ping(1, stranger, LOCAL, None))
    harness.give(Ping(2, known.id, LOCAL, None))
    assert [event for event in harness.detector.events_received() if isinstance(event, Pinged)] == [Pinged(stranger, STRANGER)]


def test_a_check_of_a_peer_that_is_a_contact_no_more_ends_all_the_same() -> None:
    """Its end is what tells whether it lives, and it is waited for; also if something came from the peer meanwhile."""
    harness = Harness()
    far = contact(50, dialled=False)
    harness.detector.set_contacts(harness.neighbour, [*harness.others, far], harness.now)
    harness.detector.check(far, harness.now)
    harness.run_for(2 * CONFIG.check_s_max)
    assert harness.verdicts()[-1] == Dead(far.id)
    harness.detector.check(far, harness.now)
    harness.detector.set_contacts(harness.neighbour, harness.others, harness.now)
    harness.detector.returned(far.id, harness.now)
    harness.run_for(2 * CONFIG.check_s_max)
    assert harness.verdicts().count(Dead(far.id)) == 2
