"""Tests of iris_py/overview/deaths.py: a death is one line, however many nodes note it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from iris_py import NodeName
from iris_py.overview import deaths
from iris_py.overview.deaths import HOLD_S, LATE_S, DeathFolder
from iris_py.overview.event_stream import DeathLine, EventLine, GapLine

if TYPE_CHECKING:
    import pytest

NOW = 1_700_000_000.0
DEAD = "d" * 32


def event(by: str, kind: str, at: float, node: str = DEAD, **facts: Any) -> EventLine:
    """Return what a node has noted so many seconds after the beginning."""
    texts = dict.fromkeys(("address", "zone", "id_name", "node_name", "node_address", "node_zone", "name", "detail"), "")
    time = datetime.fromtimestamp(NOW + at, UTC)
    return EventLine(time=time, id=by * 32, number=1, event=kind, node=node, times=1, **(texts | facts))


def make() -> DeathFolder:
    return DeathFolder(lambda: 12, lambda node: NodeName(node, "10.0.0.1:1", "eu", "web-1/orders.py"))


def witnesses(count: int, at: float = 0.0) -> list[EventLine]:
    """Return what so many nodes note of a death: a lost link, a suspicion, a death, and a member that is gone."""
    found = []
    for number in range(count):
        by = "abcefghijklm"[number]
        found += [
            event(by, "link_lost", at, detail="the connection broke"),
            event(by, "suspected", at + 1.0),
            event(by, "died", at + 3.0, detail="it does not answer"),
            event(by, "left", at + 3.1, name="orders"),
        ]
    return sorted(found, key=lambda line: line.time)


def test_a_death_that_many_nodes_note_is_one_line() -> None:
    folding = make()
    lines = witnesses(11)
    assert folding.take(lines[:30], NOW + 2.0) == []
    assert folding.take(lines[30:], NOW + 2.0 + HOLD_S - 0.1) == []
    (told,) = folding.take([], NOW + 2.0 + HOLD_S)
    assert told == DeathLine(
        time=datetime.fromtimestamp(NOW, UTC),
        node=DEAD,
        node_name="web-1/orders.py",
        node_address="10.0.0.1:1",
        node_zone="eu",
        said_by=11,
        watched=12,
        links_lost=11,
        clusters=["orders"],
        detail="it does not answer",
    )
    assert folding.end() == []


def test_what_the_witnesses_know_of_the_node_counts_before_what_was_known_here() -> None:
    folding = make()
    folding.take([event("a", "died", 0.0, node_name="db-1/b.py", node_address="10.0.0.9:9", node_zone="us")], NOW)
    (told,) = folding.end()
    assert isinstance(told, DeathLine)
    assert (told.node_name, told.node_address, told.node_zone, told.said_by) == ("db-1/b.py", "10.0.0.9:9", "us", 1)


def test_late_witnesses_of_a_death_add_no_line_and_a_later_death_does() -> None:
    folding = make()
    folding.take(witnesses(2), NOW)
    assert len(folding.take([], NOW + HOLD_S)) == 1
    assert folding.take([event("c", "died", 3.0 + LATE_S - 1.0), event("c", "link_lost", 4.0)], NOW + 60.0) == []
    assert folding.end() == []
    folding.take([event("c", "died", 3.0 + LATE_S + 1.0)], NOW + 60.0)
    assert len(folding.end()) == 1


def test_a_node_that_comes_back_may_die_again() -> None:
    folding = make()
    folding.take(witnesses(2), NOW)
    assert len(folding.take([], NOW + HOLD_S)) == 1
    back = event("a", "link_opened", 6.0)
    assert folding.take([back], NOW + 7.0) == [back]
    folding.take([event("a", "died", 8.0)], NOW + 8.0)
    assert [type(line) for line in folding.end()] == [DeathLine]


def test_without_a_death_every_event_is_told_in_its_order() -> None:
    folding = make()
    lines = [event("a", "suspected", 0.0), event("b", "link_lost", 1.0), event("a", "left", 1.5, name="orders")]
    assert folding.take(lines, NOW + 2.0) == []
    assert folding.take([], NOW + 2.0 + HOLD_S) == lines
    assert folding.take(lines, NOW + 10.0) == []
    opened = event("a", "link_opened", 2.0)
    assert folding.take([opened], NOW + 10.5) == [*lines, opened], "it is here, so nothing has to be waited for"


def test_other_events_and_gaps_pass_at_once() -> None:
    folding = make()
    passing: list[EventLine | GapLine] = [
        event("a", "dropped", 0.0, node=""),
        event("a", "joined", 0.0, node="e" * 32),
        GapLine(time=datetime.fromtimestamp(NOW, UTC), id="a" * 32, address="", missed=3),
    ]
    assert folding.take(passing, NOW) == passing
    folding.take(witnesses(1), NOW)
    assert folding.take(passing, NOW) == passing


def test_of_too_many_nodes_the_one_that_was_held_first_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "NODES_MAX", 3)
    folding = make()
    nodes = [f"{number:032}" for number in range(5)]
    told = folding.take([event("a", "died", 0.0, node=node) for node in nodes], NOW)
    assert [line.node for line in told if isinstance(line, DeathLine)] == nodes[:2]
    assert len(folding._told) <= 3
    assert len(folding.end()) == 3
    assert len(folding._told) == 3
