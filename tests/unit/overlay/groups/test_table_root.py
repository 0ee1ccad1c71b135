"""The root of one table: what it tells watchers and copies, and how much."""

from __future__ import annotations

import random

import pytest

from iris_overlay.groups import entries, table_root
from iris_overlay.groups.copies import Copies, HeldCopy
from iris_overlay.groups.directory import Directory, Outcome, accusation_of
from iris_overlay.groups.entries import ENTRIES_MAX
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.handover import merge, revive
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import (
    TABLE_PART_BYTES_MAX,
    TABLE_PARTS_MAX,
    TABLE_REMOVED_MAX,
    VIEW_MAX,
    Claim,
    GroupMessage,
    MemberRecord,
    TableCopy,
    TablePart,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.groups.table_root import WHOLE_TABLES_MAX, TableRoot
from iris_overlay.groups.table_view import TableView
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

T = GroupId(b"t" * 16)
WATCHER, COPY = FollowerKind.WATCHER, FollowerKind.COPY


def info(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.1:1",))


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


LOCAL, OTHER, THIRD = info(10_001), info(10_002), info(10_003)


class Table:
    """A root, what it sends, and what a watcher and a copy make of it."""

    def __init__(self, members: int = 0) -> None:
        self.outbox = Outbox()
        self.directory = TableDirectory(T, 1)
        self.root = TableRoot(self.directory, LOCAL, random.Random(1), self.outbox)
        self.view = TableView()
        self.copies = Copies(100.0)
        for number in range(members):
            self.put(number, packed(number))

    def put(self, number: int, after: bytes, stamp: int = 1) -> None:
        claim = Claim(info(number), T, b"", stamp, b"", 0, entries.count(after), entries.checksum(after), after)
        assert self.root.claim(claim, MemberRecord(claim.info, b"", stamp), 100.0) is Outcome.CHANGED

    def sent(self) -> list[tuple[object, GroupMessage]]:
        """Tell the followers, and take what was sent; each message is what a receiver accepts."""
        self.root.flush()
        posts, self.outbox.posts = self.outbox.posts, []
        assert all(decode_group_message(encode_group_message(message)) == message for _, message in posts)
        return list(posts)

    def follow(self) -> list[TablePart]:
        """Let the watcher take what it is told, and acknowledge it."""
        parts = [message for _, message in self.sent() if isinstance(message, TablePart)]
        if parts:
            assert (self.view.change if parts[0].base else self.view.replace)(parts)
            self.root.acknowledge(WATCHER, OTHER.id, parts[0].version)
            event = self.view.event(T, (), is_watched=True)
            assert event is None or event.size == len(self.directory.members)
        return parts

    def check(self) -> None:
        """Compare the watcher's table with that of the root."""
        assert self.view.members.keys() == self.directory.members.keys()
        assert {node: self.view.entries_of(node) for node in self.view.members} == {
            node: member.entries for node, member in self.directory.members.items()
        }


def watched(members: int = 0) -> Table:
    table = Table(members)
    table.root.watch(OTHER, 1, 0, 100.0, None)
    table.follow()
    table.check()
    return table


def test_a_watcher_gets_everything_and_then_the_changes() -> None:
    table = watched(members=2 * VIEW_MAX)
    table.put(0, packed(0, 7), stamp=2)
    table.put(1000, packed(9))
    table.root.remove(info(1).id, 1, 100.0)
    (part,) = table.follow()
    assert [record.info for record in part.members] == [info(1000)], "the record of a known member is not repeated"
    rows = {row.node: (row.base, row.stamp, row.added, row.removed) for row in part.rows}
    assert rows == {info(0).id: (1, 2, packed(7), b""), info(1000).id: (0, 1, packed(9), b"")}
    assert part.removed == [info(1).id]
    assert part.size == 2 * VIEW_MAX
    table.check()


def test_changes_wait_until_the_ones_before_are_acknowledged_and_are_told_together() -> None:
    table = watched(members=3)
    table.put(0, packed(1, 2, *range(50, 70)), stamp=2)
    parts = [message for _, message in table.sent()]
    table.put(0, packed(2, 3, *range(50, 70)), stamp=3)
    table.put(1, packed(5), stamp=2)
    table.put(0, packed(3, 4, *range(50, 70)), stamp=4)
    assert table.sent() == []
    assert table.view.change([part for part in parts if isinstance(part, TablePart)])
    table.root.acknowledge(WATCHER, OTHER.id, table.root.followers.members[WATCHER][OTHER.id].sent)
    (part,) = table.follow()
    (row,) = [row for row in part.rows if row.node == info(0).id]
    assert (row.base, row.stamp, row.added, row.removed) == (2, 4, packed(3, 4), packed(1, 2))
    table.check()


def test_a_member_that_went_and_came_back_is_one_change() -> None:
    table = watched(members=2)
    table.root.accuse(info(0).id, 1, 100.0)
    table.put(0, packed(0, 1), stamp=accusation_of(1) + 2)
    (part,) = table.follow()
    assert part.removed == []
    assert [record.info for record in part.members] == [info(0)]
    table.check()


def test_a_table_of_many_bytes_goes_in_parts() -> None:
    table = Table(members=100)
    table.put(500, packed(*range(ENTRIES_MAX)))
    table.root.watch(OTHER, 1, 0, 100.0, (OTHER.id,))
    posts = table.sent()
    parts = [message for _, message in posts if isinstance(message, TablePart)]
    assert len(parts) >= 6
    assert all(target == OTHER for target, _ in posts), "they go over a link, not along the way of the question"
    sizes = [len(encode_group_message(part)) for part in parts]
    assert max(sizes) <= TABLE_PART_BYTES_MAX
    assert min(sizes[:-1]) > TABLE_PART_BYTES_MAX * 0.9
    assert table.view.replace(parts)
    table.check()


def test_a_small_table_goes_along_the_way_of_the_question() -> None:
    table = Table(members=3)
    table.root.watch(OTHER, 1, 0, 100.0, (OTHER.id,))
    assert [target for target, _ in table.sent()] == [(OTHER.id,)]


def test_many_removals_take_several_parts() -> None:
    table = watched(members=TABLE_REMOVED_MAX + 10)
    for number in range(TABLE_REMOVED_MAX + 5):
        table.root.remove(info(number).id, 1, 100.0)
    parts = table.follow()
    assert [len(part.removed) for part in parts] == [TABLE_REMOVED_MAX, 5]
    table.check()


def test_changes_of_too_many_parts_are_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = watched(members=1)
    monkeypatch.setattr(table_root, "TABLE_PARTS_MAX", 1)
    for number in range(5):
        table.put(number, packed(*range(2000)), stamp=2)
    parts = table.follow()
    assert 1 < len(parts) < TABLE_PARTS_MAX
    assert parts[0].base == 0
    table.check()


def test_watchers_share_the_messages() -> None:
    table = Table(members=3)
    for watcher in (OTHER, THIRD):
        table.root.watch(watcher, 1, 0, 100.0, None)
    (_, one), (_, other) = table.sent()
    assert one is other


def test_a_node_without_a_place_gets_the_changes_since_its_version_or_everything() -> None:
    table = Table(members=3)
    (whole,) = table.root.parts_unwatched(0)
    assert (whole.is_watched, whole.base, len(whole.rows)) == (False, 0, 3)
    table.put(1, packed(1, 2), stamp=2)
    (change,) = table.root.parts_unwatched(whole.version)
    assert (change.is_watched, change.base, len(change.rows)) == (False, whole.version, 1)
    (again,) = table.root.parts_unwatched(change.version + 1)
    assert again.base == 0
    assert table.view.replace([whole])
    assert table.view.change([change])
    table.check()


def test_a_whole_large_table_goes_to_few_watchers_at_once() -> None:
    table = Table()
    table.put(500, packed(*range(ENTRIES_MAX)))
    watchers = [info(2000 + number) for number in range(3 * WHOLE_TABLES_MAX)]
    for watcher in watchers:
        table.root.watch(watcher, 1, 0, 100.0, None)
    told: list[NodeInfo] = []
    while batch := list(dict.fromkeys(target for target, _ in table.sent() if isinstance(target, NodeInfo))):
        assert len(batch) <= WHOLE_TABLES_MAX
        told += batch
        for watcher in batch[1:]:
            table.root.acknowledge(WATCHER, watcher.id, table.directory.version)
        assert table.root.note_silence(WATCHER, batch[0].id)  # the others do not wait for it
        if len(told) > 2 * len(watchers):
            break
    assert set(told) == set(watchers)


def taken_over(members: int) -> Table:
    """Return the table of a root that has its watcher from a former one, with the same table."""
    table = watched(members)
    table.root.remove_watcher(OTHER.id)
    table.root.begin_epoch()
    table.root.watch(OTHER, 0, 0, 100.0, None, has_view=True)
    return table


def test_a_large_table_is_not_sent_to_a_watcher_that_has_it() -> None:
    table = taken_over(members=2000)
    ((_, part),) = table.sent()
    assert isinstance(part, TablePart)
    assert (part.rows, part.members, part.size) == ([], [], 2000)
    assert table.view.confirm(part)
    assert table.root.acknowledge(WATCHER, OTHER.id, part.version)
    assert table.sent() == []
    table.put(0, packed(0, 7), stamp=2)
    (change,) = table.follow()
    assert len(change.rows) == 1
    table.check()


@pytest.mark.parametrize("difference", ["entries", "member", "stamp"])
def test_a_watcher_with_another_table_gets_the_rows(difference: str) -> None:
    table = taken_over(members=2000)
    if difference == "entries":
        table.put(3, packed(9), stamp=2)
    elif difference == "member":
        table.root.remove(info(3).id, 1, 100.0)
    else:
        table.put(3, packed(3), stamp=2)
    ((_, part),) = table.sent()
    assert isinstance(part, TablePart)
    assert part.checksum
    assert not table.view.confirm(part)
    table.root.acknowledge(WATCHER, OTHER.id, 0)
    parts = table.follow()
    assert len(parts) > 1
    assert not any(each.checksum for each in parts)
    table.check()


def test_a_new_epoch_sends_the_checksum_of_a_large_table_and_a_small_table_at_once() -> None:
    for members, count in ((2000, 0), (20, 20)):
        table = watched(members)
        table.root.begin_epoch()
        ((_, part),) = table.sent()
        assert isinstance(part, TablePart)
        assert len(part.rows) == count
        assert bool(part.checksum) == (not count)


def test_a_checksum_that_is_not_answered_is_followed_by_the_rows() -> None:
    table = taken_over(members=2000)
    assert len(table.sent()) == 1
    assert table.root.note_silence(WATCHER, OTHER.id)
    assert len(table.follow()) > 1
    table.check()


def copied(table: Table) -> list[TableCopy]:
    """Let the copy take what it is told, and acknowledge it."""
    copies = [message for _, message in table.sent() if isinstance(message, TableCopy)]
    for message in copies:
        version, _ = table.copies.receive(LOCAL.id, message, 1.0)
        if version is not None:
            table.root.acknowledge(COPY, THIRD.id, version)
    held = table.copies.held[T].directory
    assert isinstance(held, TableDirectory)
    if not table.root.followers.unsettled:
        assert {node: (each.record, each.entries) for node, each in held.members.items()} == {
            node: (each.record, each.entries) for node, each in table.directory.members.items()
        }
        assert held.size_bytes == table.directory.size_bytes
    return copies


def test_a_copy_gets_everything_and_then_the_changes() -> None:
    table = Table(members=100)
    table.put(500, packed(*range(ENTRIES_MAX)))
    table.root.set_copies([THIRD])
    assert len(copied(table)) > 5
    table.put(500, packed(*range(1, ENTRIES_MAX)), stamp=2)
    table.put(0, packed(1), stamp=2)
    table.root.remove(info(7).id, 1, 100.0)
    table.root.watch(OTHER, 1, 0, 100.0, None)
    (change,) = copied(table)
    assert sum(len(row.added) + len(row.removed) for row in change.rows) <= len(packed(0, 1, 2))
    assert list(table.copies.held[T].watchers) == [OTHER.id]
    assert not table.root.followers.unsettled.keys() - {(WATCHER, OTHER.id)}


def test_a_copy_with_other_entries_than_the_root_thinks_asks_for_everything() -> None:
    table = Table(members=2)
    table.root.set_copies([THIRD])
    copied(table)
    held = table.copies.held[T].directory
    held.discard(info(0).id)
    table.put(0, packed(1, 2, 3), stamp=2)  # a smaller message than the change
    table.put(1, packed(*range(20)), stamp=2)
    copied(table)
    held.discard(info(1).id)
    table.put(1, packed(*range(21)), stamp=3)
    (change,) = copied(table)
    assert change.base
    assert COPY in {kind for kind, _ in table.root.followers.unsettled}
    (whole,) = copied(table)
    assert not whole.base
    assert not table.root.followers.unsettled


def test_changes_of_a_copy_that_are_too_large_are_the_whole_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(members=2)
    table.root.set_copies([THIRD])
    copied(table)
    monkeypatch.setattr(table_root, "TABLE_CHANGE_BYTES_MAX", 1000)
    table.put(0, packed(*range(100)), stamp=2)
    (whole,) = copied(table)
    assert not whole.base


def held(*members: tuple[int, int, bytes], owner: NodeInfo = THIRD) -> HeldCopy:
    """Return a copy with some members: number, stamp and entries."""
    directory = TableDirectory(T, 9)
    for number, stamp, after in members:
        directory.register(MemberRecord(info(number), b"", stamp), 100.0, after)
    return HeldCopy(directory, {}, owner.id, 100.0)


def entries_in(directory: Directory) -> dict[NodeId, bytes]:
    return {node: member.entries for node, member in directory.members.items()}


@pytest.mark.parametrize("is_root", [False, True])
def test_of_two_records_of_a_node_the_later_is_right_with_its_entries(is_root: bool) -> None:
    here = ((1, 1, packed(1)), (2, 5, packed(2)), (3, 1, packed(3)))
    there = held((1, 4, packed(11, 12)), (2, 4, packed(21)), (4, 1, packed(4)))
    if is_root:
        table = Table()
        for number, stamp, after in here:
            table.put(number, after, stamp)
        assert merge(table.root, there, 100.0, table.outbox, 1.0)
        found = table.root.directory
    else:
        copy = held(*here)
        copy.merge(there)
        found = copy.directory
    assert entries_in(found) == {
        info(1).id: packed(11, 12),
        info(2).id: packed(2),
        info(3).id: packed(3),
        info(4).id: packed(4),
    }


def test_a_copy_that_becomes_the_table_has_its_entries_in_a_new_epoch() -> None:
    copy = held((1, 1, packed(1, 2)))
    table = revive(copy, 200.0)
    assert entries_in(table) == {info(1).id: packed(1, 2)}
    assert isinstance(table, TableDirectory)
    assert table.changes_since(9) is None
    assert table.members[info(1).id].expires == 200.0
