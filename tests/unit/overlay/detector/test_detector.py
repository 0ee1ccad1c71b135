"""Tests of iris_overlay/detector/detector.py: being asked, and contacts that come and go."""

from __future__ import annotations

from iris_overlay.detector.config import RELAYS_MAX
from iris_overlay.detector.events import Alive, Contact, Dead, Suspected
from iris_overlay.detector.messages import (
    INCARNATION_MAX,
    Ack,
    Ping,
    PingRequest,
    pack_address,
)
from iris_overlay.ids import NodeId
from tests.unit.overlay.detector.harness import LOCAL, STRANGER, Harness, contact


def test_pings_are_answered_to_where_they_came_from() -> None:
    harness = Harness()
    harness.give(Ping(9, NodeId(b"?" * 16), LOCAL), ("203.0.113.1", 40_000))
    assert harness.take() == [(("203.0.113.1", 40_000), Ack(9, LOCAL, 0))]


def test_pings_for_who_had_the_address_before_are_not_answered() -> None:
    harness = Harness()
    harness.give(Ping(9, harness.neighbour.id, NodeId(b"?" * 16)))
    assert harness.take() == []
    assert harness.detector.counters.pings_misdirected == 1


def test_an_accused_node_refutes_once_per_incarnation_and_doubts_itself() -> None:
    harness = Harness()
    for accused, incarnation, health in [(None, 0, 0), (0, 1, 1), (0, 1, 1), (1, 2, 2), (0, 2, 2), (2, 3, 3)]:
        harness.give(Ping(9, harness.neighbour.id, LOCAL, accused))
        assert harness.take() == [(STRANGER, Ack(9, LOCAL, incarnation))]
        assert harness.detector.local_health == health


def test_an_accusation_of_an_incarnation_that_never_was_changes_nothing() -> None:
    harness = Harness()
    for accused in (1, 7, INCARNATION_MAX):
        harness.give(Ping(9, harness.neighbour.id, LOCAL, accused))
        assert harness.take() == [(STRANGER, Ack(9, LOCAL, 0))]
    assert harness.detector.local_health == 0
    assert harness.detector.counters.accusations_impossible == 3
    harness.give(Ping(9, harness.neighbour.id, LOCAL, 0))  # the true one is refuted all the same
    assert harness.take() == [(STRANGER, Ack(9, LOCAL, 1))]


def test_a_helper_pings_and_hands_the_answer_on() -> None:
    harness = Harness()
    asker, target = NodeId(b"a" * 16), contact(77)
    assert target.address is not None
    harness.give(PingRequest(55, asker, target.id, *pack_address(target.address)))
    ((address, ping),) = harness.take()
    assert type(ping) is Ping
    assert (address, ping.sender, ping.target, ping.accused) == (target.address, LOCAL, target.id, None)
    harness.give(Ack(ping.sequence, NodeId(b"?" * 16), 0))
    assert harness.take() == []
    harness.give(Ack(ping.sequence, target.id, 4), target.address)
    assert harness.take() == [(STRANGER, Ack(55, target.id, 4))]
    harness.give(Ack(ping.sequence, target.id, 4), target.address)
    assert harness.take() == []


def test_a_helper_is_bounded_and_forgets() -> None:
    harness = Harness()
    request = PingRequest(55, NodeId(b"a" * 16), contact(77).id, *pack_address(contact(77).address))
    for _ in range(RELAYS_MAX + 5):
        harness.give(request)
    assert len(harness.take()) == RELAYS_MAX
    assert harness.detector.counters.relays_refused == 5
    harness.now += 1.1
    harness.give(request)
    assert harness.take()[-1][0] == contact(77).address


def test_a_helper_without_an_address_uses_what_it_knows() -> None:
    harness = Harness()
    harness.give(PingRequest(55, NodeId(b"a" * 16), harness.others[0].id, b"", 0))
    assert [address for address, _ in harness.take()] == [harness.others[0].address]
    harness.give(PingRequest(55, NodeId(b"a" * 16), NodeId(b"?" * 16), b"", 0))
    assert harness.take() == []
    harness.give(PingRequest(55, NodeId(b"a" * 16), LOCAL, b"", 0))
    assert harness.take() == []
    assert harness.detector.counters.relays_refused == 1


def test_who_is_no_contact_any_more_is_forgotten_but_checked_to_the_end() -> None:
    harness = Harness()
    harness.silent = {contact(1).id, contact(2).id}
    harness.run_for(1.0)
    harness.detector.check(contact(2), harness.now)
    harness.detector.set_contacts(None, [contact(3), contact(4)], harness.now)
    harness.run_for(3.0)
    assert harness.verdicts() == [Suspected(contact(2).id), Dead(contact(2).id)]
    assert set(harness.detector._probing.watches) <= {contact(3).id, contact(4).id}
    harness.detector.set_contacts(None, [], harness.now)
    assert harness.detector.deadline() is None
    assert harness.run_for(10.0) == []


def test_who_stays_keeps_its_state_and_gets_its_new_address() -> None:
    harness = Harness()
    harness.silent = {contact(1).id}
    while Suspected(contact(1).id) not in harness.events:
        harness.run_for(0.01)
    moved = Contact(contact(1).id, ("203.0.113.7", 1))
    harness.detector.set_contacts(contact(2), [moved, *harness.others], harness.now)
    sent = harness.run_for(1.0)
    assert harness.verdicts() == [Suspected(contact(1).id), Dead(contact(1).id)]
    assert moved.address in {address for _, address, m in sent if type(m) is Ping and m.target == moved.id}


def test_an_idle_detector_remembers_nobody_but_its_neighbour() -> None:
    harness = Harness(others=100)
    harness.run_for(300.0)
    assert list(harness.detector._probing.watches) == [harness.neighbour.id]
    assert len(harness.detector._probing.timers._heap) <= 2


def test_who_has_no_address_is_not_probed_until_it_pings() -> None:
    hidden = contact(1, dialled=False)
    harness = Harness(neighbour=hidden)
    assert not [m for _, _, m in harness.run_for(10.0) if type(m) is Ping and m.target == hidden.id]
    assert harness.verdicts() == []
    source = ("203.0.113.1", 40_000)
    harness.give(Ping(3, hidden.id, LOCAL), source)
    sent = harness.run_for(10.0)
    assert {address for _, address, m in sent if type(m) is Ping and m.target == hidden.id} == {source}
    harness.silent = {hidden.id}
    harness.run_for(2.0)
    assert Suspected(hidden.id) in harness.events
    # The link says that it lives, so the mapping of its NAT is gone: it is not probed until it pings again.
    harness.detector.heard_from(hidden.id, harness.now)
    assert not [m for _, _, m in harness.run_for(10.0) if type(m) is Ping and m.target == hidden.id]
    assert harness.verdicts()[-1] == Alive(hidden.id, None)


def test_a_suspect_without_an_address_that_is_heard_over_a_link_is_not_probed_until_it_pings() -> None:
    hidden = contact(1, dialled=False)
    harness = Harness(neighbour=hidden)
    harness.give(Ping(3, hidden.id, LOCAL), ("203.0.113.1", 40_000))
    harness.silent = {hidden.id}
    while Suspected(hidden.id) not in harness.events:
        harness.run_for(0.01)
    harness.detector.heard_from(hidden.id, harness.now)
    assert not [m for _, _, m in harness.run_for(10.0) if type(m) is Ping and m.target == hidden.id]
    assert harness.verdicts() == [Suspected(hidden.id), Alive(hidden.id, None)]


def test_a_check_of_who_has_no_address_asks_others() -> None:
    hidden = contact(1, dialled=False)
    harness = Harness(neighbour=hidden)
    harness.detector.check(hidden, harness.now)
    sent = harness.run_for(0.3)
    requests = [m for _, _, m in sent if type(m) is PingRequest]
    assert [(m.host, m.port) for m in requests] == [(b"", 0)] * 3
    harness.give(Ack(requests[0].sequence, hidden.id, 0))
    harness.take()
    assert harness.verdicts() == [Alive(hidden.id, None)]
    harness.detector.check(hidden, harness.now)
    harness.run_for(1.1)
    assert harness.verdicts()[1:] == [Suspected(hidden.id), Dead(hidden.id)]
