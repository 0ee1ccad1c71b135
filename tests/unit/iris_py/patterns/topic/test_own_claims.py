"""The claims of a node: which tables get its entries, and how they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.errors import StateError, TooManyGroupsError
from iris_overlay.events import SplitTold
from iris_overlay.groups.entries import pack, unpack
from iris_overlay.groups.splits import BY_STEM, BY_TAG, TableSplit
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic.own_claims import LEAVE_S, MOVED_LINGER_S, OwnClaims
from iris_py.patterns.topic.shapes import Entry
from iris_py.peers.group import Groups
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret
from tests.unit.iris_py.identities import node_id

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId

STEMS = TableSplit(BY_STEM)
NO_STEM = Entry(0, 4, 0x1111 << 48)


def entry(number: int, shape: int = 5, tag: int = 0x2345 << 48) -> Entry:
    """Return an entry in the child by stem with a number."""
    return Entry(number << 60 | 7, shape, tag)


class Tables:
    """An overlay, with the claims of a node."""

    def __init__(self) -> None:
        self.entries: dict[GroupId, set[Entry]] = {}
        self.left: list[GroupId] = []
        self.number = 0
        self.room = 100
        self.is_leaving = False

    def claim(self, group: GroupId, attributes: bytes, added: bytes, removed: bytes, now: float) -> int:
        if self.is_leaving:
            raise StateError("leaving")
        if group not in self.entries and len(self.entries) >= self.room:
            raise TooManyGroupsError(self.room, "joins")
        its = self.entries.setdefault(group, set())
        its -= {Entry(*fields) for fields in unpack(removed)}
        its |= {Entry(*fields) for fields in unpack(added)}
        assert pack(its) or not its
        self.number += 1
        return self.number

    def leave_group(self, group: GroupId, now: float) -> None:
        del self.entries[group]
        self.left.append(group)


class Fixture:
    def __init__(self) -> None:
        self.overlay = Tables()
        local = Peer(NodeInfo(node_id(1), ()), None, is_local=True)
        self.groups = Groups(local.id, Keyring(Secret(bytes(32)), network="test"))
        (self.realm,) = self.groups.realms()
        self.claims = OwnClaims(self.groups, self.overlay, local)  # type: ignore[arg-type]

    def id(self, path: bytes) -> GroupId:
        return self.realm.id if not path else type(self.realm.id)(self.realm.keys.table_group(path).group_id)

    def at(self, path: bytes = b"") -> set[Entry]:
        return self.overlay.entries.get(self.id(path), set())

    def add(self, *added: Entry, now: float = 0.0) -> list[tuple[GroupId, int]]:
        return self.claims.change(self.realm, list(added), [], now)

    def remove(self, *removed: Entry, now: float = 0.0) -> list[tuple[GroupId, int]]:
        return self.claims.change(self.realm, [], list(removed), now)

    def split(self, path: bytes = b"", split: TableSplit = STEMS, now: float = 0.0) -> None:
        self.claims.split(SplitTold(self.id(path), split), now)

    def confirm(self, path: bytes, now: float = 0.0, *, is_confirmed: bool = True) -> None:
        self.claims.claimed(self.id(path), self.overlay.number, now, is_confirmed=is_confirmed)


ONE, TWO = b"\x11", b"\x12"


def test_an_entry_moves_to_the_child_table_and_is_withdrawn_a_while_after_its_root_confirms() -> None:
    fixture = Fixture()
    fixture.add(entry(1), entry(2), NO_STEM)
    fixture.split()
    assert (fixture.at(ONE), fixture.at(TWO)) == ({entry(1)}, {entry(2)})
    assert len(fixture.at()) == 3
    fixture.claims.handle_timeout(100.0)
    assert len(fixture.at()) == 3, "no root has confirmed"
    fixture.confirm(ONE, 100.0)
    assert fixture.claims.deadline() == 100.0 + MOVED_LINGER_S
    fixture.claims.handle_timeout(99.9 + MOVED_LINGER_S)
    assert len(fixture.at()) == 3
    fixture.claims.handle_timeout(100.0 + MOVED_LINGER_S)
    assert fixture.at() == {entry(2), NO_STEM}
    assert fixture.at(ONE) == {entry(1)}


def test_a_new_entry_is_claimed_in_the_last_known_table_alone() -> None:
    fixture = Fixture()
    fixture.add(entry(1))
    fixture.split()
    ((group, number),) = fixture.add(entry(1, tag=9))
    assert (group, number) == (fixture.id(ONE), fixture.overlay.number)
    assert fixture.at() == {entry(1)}
    assert fixture.at(ONE) == {entry(1), entry(1, tag=9)}


def test_an_entry_with_a_new_shape_goes_by_the_parent() -> None:
    fixture = Fixture()
    fixture.add(entry(1))
    fixture.split(split=TableSplit(BY_TAG, frozenset([5])))
    assert fixture.at(b"\x22") == {entry(1)}
    fixture.add(entry(1, 6))
    assert fixture.at() == {entry(1), entry(1, 6)}
    assert fixture.at(b"\x22") == {entry(1)}
    fixture.split(split=TableSplit(BY_TAG, frozenset([5, 6])))
    assert fixture.at(b"\x22") == {entry(1), entry(1, 6)}


def test_a_child_that_is_split_before_it_confirms_is_passed_through() -> None:
    fixture = Fixture()
    fixture.add(entry(1))
    fixture.split()
    fixture.split(ONE)
    deep = ONE + b"\x10"
    assert fixture.at() == fixture.at(ONE) == fixture.at(deep) == {entry(1)}
    fixture.confirm(deep)
    fixture.claims.handle_timeout(MOVED_LINGER_S)
    assert fixture.at() == fixture.at(ONE) == set()
    assert fixture.at(deep) == {entry(1)}


def test_an_entry_that_ends_while_it_moves_is_withdrawn_everywhere() -> None:
    fixture = Fixture()
    fixture.add(entry(1))
    fixture.split()
    claims = fixture.remove(entry(1))
    assert {group for group, _ in claims} == {fixture.realm.id, fixture.id(ONE)}
    fixture.confirm(ONE)
    fixture.add(entry(1))
    fixture.claims.handle_timeout(MOVED_LINGER_S)
    assert fixture.at() == set()
    assert fixture.at(ONE) == {entry(1)}


def test_a_child_that_does_not_answer_does_not_keep_a_new_entry_out_of_the_parent() -> None:
    fixture = Fixture()
    fixture.add(NO_STEM)
    fixture.split()
    fixture.add(entry(1))
    fixture.confirm(ONE, is_confirmed=False)
    assert fixture.at() == {NO_STEM, entry(1)}
    fixture.add(entry(1, tag=9))
    fixture.confirm(ONE, is_confirmed=False)
    fixture.remove(entry(1, tag=9))
    fixture.confirm(ONE)
    fixture.claims.handle_timeout(MOVED_LINGER_S)
    assert fixture.at() == {NO_STEM}
    assert fixture.at(ONE) == {entry(1)}


def test_a_promoted_entry_stays_until_it_is_withdrawn_from_all_tables() -> None:
    fixture = Fixture()
    fixture.add(entry(1), entry(2))
    fixture.claims.promote(fixture.realm, entry(1))
    fixture.split()
    assert fixture.at(ONE) == set()
    fixture.claims.promote(fixture.realm, entry(2))
    fixture.confirm(TWO)
    fixture.claims.handle_timeout(MOVED_LINGER_S)
    assert fixture.at() == {entry(1), entry(2)}
    fixture.claims.withdraw(fixture.realm, entry(1), 1.0)
    fixture.claims.withdraw(fixture.realm, entry(2), 1.0)
    assert fixture.at() == fixture.at(TWO) == set()
    assert len(fixture.remove(entry(1))) == 1, "there is always something to confirm"


def test_a_child_table_without_entries_is_left_after_a_while_unless_it_is_split() -> None:
    fixture = Fixture()
    fixture.add(NO_STEM)
    fixture.split()
    fixture.add(entry(1), entry(2), entry(2, tag=9))
    fixture.split(TWO)
    fixture.remove(entry(1), entry(2), entry(2, tag=9), now=10.0)
    fixture.add(entry(1), now=20.0)
    fixture.remove(entry(1), now=30.0)
    fixture.claims.handle_timeout(29.0 + LEAVE_S)
    assert fixture.overlay.left == [fixture.id(TWO + b"\x10")]
    fixture.claims.handle_timeout(30.0 + LEAVE_S)
    assert fixture.overlay.left[1:] == [fixture.id(ONE)]
    assert fixture.id(ONE) not in fixture.groups.by_id
    fixture.add(entry(1), now=200.0)
    assert fixture.at(ONE) == {entry(1)}


def test_without_room_for_a_further_table_entries_stay_in_the_parent() -> None:
    fixture = Fixture()
    fixture.overlay.room = 2
    fixture.add(entry(1), entry(2))
    fixture.split()
    assert fixture.at(ONE) == {entry(1)}
    fixture.add(entry(3))
    assert fixture.at() == {entry(1), entry(2), entry(3)}
    fixture.remove(entry(2), entry(3))
    assert fixture.at() == {entry(1)}


def test_a_change_that_the_overlay_refuses_changes_nothing() -> None:
    fixture = Fixture()
    fixture.add(entry(1))
    fixture.overlay.is_leaving = True
    with pytest.raises(StateError):
        fixture.add(entry(2))
    fixture.split()
    fixture.overlay.is_leaving = False
    fixture.remove(entry(2))
    assert fixture.at() == {entry(1)}


def test_a_generation_that_is_left_leaves_all_tables() -> None:
    fixture = Fixture()
    fixture.add(entry(1), entry(2))
    fixture.split()
    fixture.confirm(ONE)
    tables = fixture.claims.leave(fixture.realm, 1.0)
    assert set(tables) == {fixture.realm.id, fixture.id(ONE), fixture.id(TWO)}
    assert fixture.overlay.entries == {}
    fixture.split()
    fixture.claims.handle_timeout(100.0)
    assert fixture.claims.leave(fixture.realm, 1.0) == []
    assert fixture.claims.deadline() is None


def test_entries_of_several_tables_are_withdrawn_a_while_after_those_that_replace_them_are_confirmed() -> None:
    fixture = Fixture()
    fixture.add(entry(1), NO_STEM)
    fixture.claims.change(fixture.realm, [entry(2)], [NO_STEM], 0.0)
    assert fixture.at() == {entry(1), entry(2)}, "one table changes in one step"
    fixture.split()
    fixture.confirm(ONE)
    fixture.confirm(TWO)
    fixture.claims.handle_timeout(MOVED_LINGER_S)
    claims = fixture.claims.change(fixture.realm, [entry(3), entry(1, tag=9)], [entry(1), entry(2)], 10.0)
    assert {group for group, _ in claims} == {fixture.id(b"\x13"), fixture.id(ONE)}
    assert (fixture.at(ONE), fixture.at(TWO)) == ({entry(1), entry(1, tag=9)}, {entry(2)})
    assert fixture.claims.entries_in(fixture.id(ONE)) == {entry(1, tag=9)}
    fixture.confirm(ONE, 10.0)
    fixture.confirm(b"\x13", 10.0, is_confirmed=False)
    fixture.claims.handle_timeout(20.0 + MOVED_LINGER_S)
    assert fixture.at(TWO) == {entry(2)}
    fixture.confirm(b"\x13", 30.0)
    assert len(fixture.add(entry(2), now=31.0)) == 1, "it is wanted again"
    fixture.claims.handle_timeout(30.0 + MOVED_LINGER_S)
    assert (fixture.at(ONE), fixture.at(TWO)) == ({entry(1, tag=9)}, {entry(2)})
    fixture.remove(entry(2))
    assert fixture.at(TWO) == set()
