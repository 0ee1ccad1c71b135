"""The start of a replica tells a torn tail from damage by its mark."""

from __future__ import annotations

from iris_py.streams.raft.context import UNKNOWN_MARK
from iris_py.streams.raft.recovery import LOST_TERMS, recover
from iris_py.streams.replica_state import ReplicaState
from tests.unit.iris_py.streams.raft.logs import GROUP, content, make_log, mark_of

LOG = make_log([1, 1, 1, 2, 2, 2])


def test_a_whole_log_is_sound() -> None:
    found = recover(content(LOG, ReplicaState(2, mark=mark_of(LOG[3]))), GROUP)
    assert (found.entries.last, bool(found.entries.holes), found.is_damaged, found.is_torn) == (6, False, False, False)


def test_a_bad_block_behind_the_mark_is_a_torn_tail() -> None:
    found = recover(content([*LOG[:4], LOG[5]], ReplicaState(2, mark=mark_of(LOG[3]))), GROUP)
    assert (found.entries.last, found.is_damaged, found.is_torn) == (4, False, True)


def test_a_bad_block_before_the_mark_is_a_hole_and_nothing_is_cut() -> None:
    found = recover(content([LOG[0], *LOG[2:]], ReplicaState(2, mark=mark_of(LOG[3]))), GROUP)
    assert (found.entries.last, list(found.entries.holes), found.is_damaged, found.is_torn) == (6, [(2, 2)], True, False)


def test_on_a_damaged_replica_a_bad_block_behind_the_mark_is_a_hole_too() -> None:
    state = ReplicaState(2, mark=mark_of(LOG[3]), is_damaged=True)
    found = recover(content([*LOG[:4], LOG[5]], state), GROUP)
    assert (found.entries.last, list(found.entries.holes), found.is_torn) == (6, [(5, 5)], False)
    found = recover(content(LOG, state, has_bad_tail=True), GROUP)
    assert list(found.entries.holes) == [(7, 7)]


def test_a_log_that_ends_before_the_mark_has_holes_up_to_it() -> None:
    found = recover(content(LOG[:2], ReplicaState(2, mark=mark_of(LOG[4]))), GROUP)
    assert (list(found.entries.holes), found.is_damaged) == ([(3, 5)], True)


def test_another_log_up_to_the_mark_is_damage() -> None:
    other = make_log([1, 2], LOG[:3], b"y")
    found = recover(content(other, ReplicaState(2, mark=mark_of(LOG[4]))), GROUP)
    assert (list(found.entries.holes), found.is_damaged) == ([(5, 5)], True)


def test_a_copy_in_the_wrong_place_hides_no_other_block() -> None:
    found = recover(content([LOG[0], LOG[4], *LOG[2:]], ReplicaState(2, mark=mark_of(LOG[3]))), GROUP)
    assert list(found.entries.holes) == [(2, 2)]


def test_a_lost_state_is_damage_and_votes_in_no_term_of_before() -> None:
    found = recover(content(LOG, ReplicaState(4), is_state_unreadable=True), GROUP)
    assert found.is_damaged
    assert found.state.mark == UNKNOWN_MARK
    assert found.state.term == 4 + LOST_TERMS
    assert not any(found.state.vote)
