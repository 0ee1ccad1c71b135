"""The knowledge that a node of a ring has of others."""

from __future__ import annotations

from iris_overlay.ring.messages import Leaving, encode_ring_message
from iris_overlay.ring.state import NEWCOMERS_MAX
from tests.unit.overlay.rings import make_info, make_ring


def test_leaves_are_known_without_a_link_and_without_a_place_in_the_table() -> None:
    wires = make_ring(200, 100, 101)
    pastry = wires.nodes[wires.infos[200].id]
    for first in (100, 101):  # They have the same place in the table.
        pastry.link_closed(wires.infos[first].id, wires.now)
        assert pastry.find(wires.infos[first].id) == wires.infos[first]


def test_who_can_be_reached() -> None:
    wires = make_ring(10, 100)
    pastry, dialable, hidden = wires.nodes[wires.infos[10].id], make_info(50), make_info(60, is_dialable=False)
    ring = pastry._ring
    assert ring.is_reachable(dialable, wires.now)
    assert not ring.is_reachable(hidden, wires.now)
    pastry.contact_failed(dialable.id, [], wires.now)
    assert not ring.is_reachable(dialable, wires.now)
    for info in (dialable, hidden):
        pastry.link_opened(info, wires.now)
        assert ring.is_reachable(info, wires.now)


def test_so_many_newcomers_are_remembered() -> None:
    ring = make_ring(10).nodes[make_info(10).id]._ring
    for _ in range(NEWCOMERS_MAX + 1):
        ring.note_newcomer(make_info(50), 0.0)
    assert len(ring.newcomers) == NEWCOMERS_MAX


def test_neither_the_dead_nor_who_cannot_be_reached_get_into_the_table() -> None:
    pastry = make_ring(10).nodes[make_info(10).id]
    living, dead, hidden = make_info(50), make_info(100), make_info(150, is_dialable=False)
    pastry.peer_dead(dead.id, 0.0)
    pastry._ring.learn([living, dead, hidden], 0.0)
    assert [info for info in (living, dead, hidden) if info.id in pastry._ring.table] == [living]


def test_the_link_to_who_leaves_is_used_until_it_is_closed_and_that_to_the_dead_is_not() -> None:
    wires = make_ring(10, 100)
    pastry, dead, leaving = wires.nodes[wires.infos[10].id], make_info(50), make_info(60)
    for info in (dead, leaving):
        pastry.link_opened(info, wires.now)
    pastry.peer_dead(dead.id, wires.now)
    pastry.receive(leaving.id, encode_ring_message(Leaving()), wires.now)
    assert pastry.find(dead.id) is None
    assert pastry.find(leaving.id) == leaving
    pastry.link_closed(leaving.id, wires.now)
    assert pastry.find(leaving.id) is None
