"""Drops by reason, and events by number."""

from __future__ import annotations

from iris_py.observe.journal import BURST_S, BURSTS_MAX, EVENTS_MAX, KINDS, EventRecord, Journal
from iris_py.observe.node_name import NodeName


def test_events_are_numbered_and_those_since_a_number_are_returned() -> None:
    journal = Journal()
    journal.started_at = 5.0
    for second, kind in enumerate(("died", "suspected", "stalled")):
        journal.note_at(6.0 + second, kind, node=NodeName("ab"))
    events = journal.since(0)
    assert [(event.number, event.kind, event.at_s) for event in events] == [
        (1, "died", 1.0),
        (2, "suspected", 2.0),
        (3, "stalled", 3.0),
    ]
    assert journal.since(1) == events[1:]
    assert journal.since(3) == journal.since(100) == ()
    assert journal.since(-1) == events


def test_an_event_has_what_its_node_has_said_of_itself() -> None:
    journal = Journal()
    journal.note("died", "ab", node=NodeName("ab", "10.0.0.1:1", "eu/a", "web-1/orders.py"))
    (event,) = journal.since(0)
    assert (event.node, event.node_name, event.node_address, event.node_zone) == ("ab", "web-1/orders.py", "10.0.0.1:1", "eu/a")
    journal.note("stalled")
    assert journal.since(1)[0].node == ""


def test_only_the_last_events_are_kept_and_the_numbers_show_what_is_missing() -> None:
    journal = Journal()
    for number in range(EVENTS_MAX + 10):
        journal.note("died", str(number))
    assert len(journal.since(0)) == EVENTS_MAX
    assert journal.since(3)[0].number == 11
    assert journal.since(EVENTS_MAX)[0].number == EVENTS_MAX + 1


def test_what_goes_on_is_noted_now_and_then_with_how_often_it_happened() -> None:
    journal = Journal()
    for tenth in range(250):  # 25 seconds
        journal.now = 100.0 + tenth / 10
        assert journal.count_drop("malformed", 2) == 2 * (tenth + 1)
    events = journal.since(0)
    assert [event.times for event in events] == [2, 200, 200]
    assert [event.detail for event in events] == ["malformed"] * 3
    journal.note("dropped", "other", detail="other")
    assert len(journal.since(0)) == 4, "another reason is another burst"
    assert journal.drops == {"malformed": 500}


def test_a_peer_with_ever_new_ids_fills_neither_the_memory_nor_the_events_of_others_for_long() -> None:
    journal = Journal()
    for number in range(3 * BURSTS_MAX):
        journal.note("link_lost", str(number))
    assert len(journal._bursts) == BURSTS_MAX
    journal.note_at(BURST_S, "died", "ab")
    assert journal.since(journal.last - 1)[0].kind == "died"


def test_others_are_told_no_name_that_they_may_not_know() -> None:
    journal = Journal()
    journal.note("joined", "ab", node=NodeName("ab"), name="plans", told_name="#12")
    journal.note("joined", "ab", node=NodeName("ab"), name="echo")
    assert [event.name for event in journal.since(0)] == ["plans", "echo"]
    assert [event.name for event in journal.told_since(0)] == ["#12", "echo"]
    assert journal.told_since(1) == journal.since(1)


def test_somebody_who_waits_is_told_of_what_is_noted_alone() -> None:
    told = []
    journal = Journal()
    journal.on_noted = lambda: told.append(journal.last)
    journal.note("stalled")
    journal.note("stalled")
    assert told == [1]


def test_every_kind_is_described() -> None:
    assert EventRecord.__doc__
    assert all(text.endswith(".") for text in KINDS.values())
