"""Tests of iris_py/observe/departures.py, and of what the journal puts there."""

from __future__ import annotations

from iris_py.observe.departures import DEPARTURES_MAX, GATEWAYS_MAX, Departure, Departures
from iris_py.observe.journal import BURST_S, EVENTS_MAX, Journal
from iris_py.observe.node_name import NodeName

ONE = NodeName("ab" * 16, "10.0.0.1:1", "eu/a", "web-1/orders.py")


def test_a_node_that_says_that_it_goes_has_left_even_if_it_was_taken_for_dead_before() -> None:
    departures = Departures()
    departures.note("died", ONE, 1.0, "it does not answer")
    departures.note("died", ONE, 2.0, "nobody listens where it did")
    assert [(each.kind, each.at_s, each.detail) for each in departures.all()] == [("died", 1.0, "it does not answer")]
    departures.note("left", ONE, 3.0, "it leaves")
    departures.note("died", ONE, 4.0, "it does not answer")
    assert departures.all() == (
        Departure(node=ONE.id, at_s=3.0, kind="left", name=ONE.name, address=ONE.address, zone=ONE.zone, detail="it leaves"),
    )
    departures.take_back(ONE.id)
    departures.take_back(ONE.id)
    assert departures.all() == ()


def test_a_departure_says_whether_the_node_was_met_as_a_gateway() -> None:
    departures = Departures()
    for number in range(GATEWAYS_MAX + 1):
        departures.note_gateway(str(number))
    for node in ("0", "1", "x"):
        departures.note("died", NodeName(node), 1.0, "")
    assert [(each.node, each.is_gateway) for each in departures.all()] == [("0", False), ("1", True), ("x", False)]


def test_of_too_many_departures_the_oldest_is_forgotten() -> None:
    departures = Departures()
    for number in range(DEPARTURES_MAX + 3):
        departures.note("died", NodeName(str(number)), float(number), "")
    assert len(departures.all()) == DEPARTURES_MAX
    assert departures.all()[0].node == "3"


def test_departures_stay_when_events_are_overwritten() -> None:
    journal = Journal()
    journal.started_at = 100.0
    journal.note_at(101.0, "died", ONE.id, node=ONE, detail="it does not answer")
    journal.note_leaving(NodeName("left"), "it leaves")
    for number in range(EVENTS_MAX):
        journal.note("refused", str(number))
    assert not [event for event in journal.since(0) if event.kind == "died"]
    assert [(each.node, each.kind, each.at_s) for each in journal.departures.all()] == [
        (ONE.id, "died", 1.0),
        ("left", "left", 1.0),
    ]


def test_a_node_that_has_a_link_again_is_not_gone() -> None:
    journal = Journal()
    journal.note_at(1.0, "died", ONE.id, node=ONE)
    journal.note_at(2.0, "link_opened", ONE.id, node=ONE)
    assert journal.departures.all() == ()
    journal.note_at(2.0 + BURST_S / 2, "died", ONE.id, node=ONE)  # within the burst, which hides the event alone
    assert [each.node for each in journal.departures.all()] == [ONE.id]
