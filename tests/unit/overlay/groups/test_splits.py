"""Splits of tables: when, in which way, who is told, and what outlives a root."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.errors import MessageError
from iris_overlay.events import SplitTold, TableChanged, TableFull
from iris_overlay.groups import entries
from iris_overlay.groups.copies import Copies, HeldCopy
from iris_overlay.groups.followers import ATTEMPTS_WAITED_MAX, FollowerKind
from iris_overlay.groups.handover import merge, revive
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import (
    Claim,
    Full,
    GroupRegistration,
    MemberRecord,
    Split,
    TableCopy,
    TablePart,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.own_entries import OwnEntries
from iris_overlay.groups.splits import (
    BY_STEM,
    BY_TAG,
    SPLIT_SHAPES_MAX,
    UNSPLIT,
    SplitChoice,
    SplitLog,
    TableSplit,
    is_split,
    unpack_split,
)
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.groups.table_root import ASKED_CLAIMS, TableRoot
from iris_overlay.groups.table_view import TableView
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.groups import GroupSimulation

if TYPE_CHECKING:
    from iris_overlay.groups.directory import Outcome

T = GroupId(b"t" * 16)
FEW = 3


def info(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.1:1",))


def packed(*fields: tuple[int, int, int]) -> bytes:
    return entries.pack(fields)


def stems(*numbers: int) -> bytes:
    return packed(*((number, 1, number) for number in numbers))


def tags(*numbers: int, shape: int = 1) -> bytes:
    return packed(*((7, shape, number) for number in numbers))


LOCAL, WATCHER, KEEPER = info(10_001), info(10_002), info(10_003)


class Table:
    """A root, its watcher, and the keeper of its copy."""

    def __init__(self, directory: TableDirectory | None = None) -> None:
        self.outbox = Outbox()
        self.directory = directory or TableDirectory(T, 1)
        self.root = TableRoot(self.directory, LOCAL, random.Random(1), self.outbox, entries_max=FEW)
        self.view = TableView()
        self.copies = Copies(100.0)
        self.stamp = 0
        self.root.watch(WATCHER, 1, 0, 100.0, None)
        self.root.set_copies([KEEPER])
        self.flush()

    @property
    def split(self) -> TableSplit:
        return self.directory.splits.known()

    def claim(self, number: int, after: bytes, split: TableSplit = UNSPLIT) -> Outcome:
        self.stamp += 1
        head = (info(number), T, b"", self.stamp, b"", 0, entries.count(after), entries.checksum(after))
        return self.root.claim(Claim(*head, after, b"", b"", split.pack()), MemberRecord(info(number), b"", self.stamp), 100.0)

    def flush(self, *, is_told: bool = True) -> TableSplit | None:
        """Send everything until the followers know it; return the split that the watcher reports, None for no report.

        Args:
            is_told: Whether the watcher acknowledges.
        """
        reported: TableSplit | None = None
        while True:
            self.root.flush()
            posts, self.outbox.posts = self.outbox.posts, []
            parts: list[TablePart] = []
            for _, message in posts:
                assert decode_group_message(encode_group_message(message)) == message
                if isinstance(message, TablePart):
                    parts.append(message)
                elif isinstance(message, TableCopy):
                    version, _ = self.copies.receive(LOCAL.id, message, 0.0)
                    if version is not None:
                        self.root.acknowledge(FollowerKind.COPY, KEEPER.id, version)
            if parts and is_told:
                assert (self.view.change if parts[0].base else self.view.replace)(parts)
                self.root.acknowledge(FollowerKind.WATCHER, WATCHER.id, parts[0].version)
                event = self.view.event(T, (), is_watched=True)
                reported = reported if event is None else event.split
            if not posts or not is_told:
                return reported


@pytest.mark.parametrize(
    ("after", "split"),
    [
        (stems(1, 2, 3), UNSPLIT),
        (stems(1, 2, 3, 4), TableSplit(BY_STEM)),
        (tags(1, 2, 3, 4), TableSplit(BY_TAG, frozenset([1]))),
        (tags(1, 2) + tags(3, 4, shape=9), TableSplit(BY_TAG, frozenset([1, 9]))),
        (packed((0, 2, 5)) + tags(1, 2, 3), TableSplit(BY_TAG, frozenset([1]))),
        (packed((0, 2, 5), (0, 2, 6), (0, 2, 7), (3, 1, 1)), UNSPLIT),
    ],
    ids=["few", "stems", "tags", "shapes", "stem_and_wildcards", "wildcards"],
)
def test_a_table_with_too_many_entries_is_split_by_stem_or_if_it_has_one_by_tag(after: bytes, split: TableSplit) -> None:
    table = Table()
    table.claim(1, after)
    assert table.split == split
    assert (table.flush() or UNSPLIT) == table.view.split == split


def test_entries_of_all_members_count_and_one_entry_of_many_members_cannot_be_split() -> None:
    table = Table()
    for number in range(2 * FEW):
        table.claim(number, tags(1))
    assert table.split == UNSPLIT
    for number in range(2 * FEW, 3 * FEW):
        table.claim(number, tags(2))
    assert table.split.ways == BY_TAG


def test_a_split_is_for_ever_and_names_the_shapes_that_come_later() -> None:
    table = Table()
    table.claim(1, tags(1, 2, 3, 4))
    table.flush()
    table.claim(1, tags(1))
    table.claim(2, packed((7, 5, 9), (0, 6, 1)))
    assert table.flush() == TableSplit(BY_TAG, frozenset([1, 5]))
    table.claim(2, tags(1))
    table.flush()
    assert table.split == table.view.split == TableSplit(BY_TAG, frozenset([1, 5]))


def test_members_are_told_of_a_split_as_far_as_all_watchers_know_it() -> None:
    table = Table()
    table.claim(1, tags(1, 2, 3, 4))
    table.flush(is_told=False)
    assert table.root.known_split() == UNSPLIT
    table.root.link_lost(WATCHER.id)
    table.flush()
    assert table.root.known_split() == TableSplit(BY_TAG, frozenset([1]))
    table.claim(1, packed((7, 5, 9)))
    table.flush(is_told=False)
    assert table.root.known_split() == TableSplit(BY_TAG, frozenset([1])), "the watcher may not look under the new shape"
    for _ in range(ATTEMPTS_WAITED_MAX):
        table.root.note_silence(FollowerKind.WATCHER, WATCHER.id)
        table.flush(is_told=False)
    assert table.root.known_split() == TableSplit(BY_TAG, frozenset([1, 5])), "a silent one is not waited for"


def test_a_copy_that_becomes_the_table_is_split() -> None:
    table = Table()
    table.claim(1, tags(1, 2, 3, 4))
    table.flush()
    heir = revive(table.copies.held[T], 200.0)
    assert isinstance(heir, TableDirectory)
    assert heir.splits.known() == table.split
    again = Table(heir)
    assert again.root.known_split() == again.view.split == table.split


def test_a_copy_that_is_passed_on_or_merged_is_split() -> None:
    table = Table()
    table.claim(1, stems(1, 2, 3, 4))
    table.flush()
    held = table.copies.held[T]
    passed = Copies(100.0)
    for part in held.parts():
        passed.receive(LOCAL.id, part, 0.0)
    other = HeldCopy(TableDirectory(T, 5), {}, KEEPER.id, 100.0)
    other.merge(passed.held[T])
    assert isinstance(other.directory, TableDirectory)
    assert other.directory.splits.known() == TableSplit(BY_STEM)


def test_two_separate_splits_are_united_and_all_are_told() -> None:
    table, other = Table(), Table()
    table.claim(1, stems(1, 2, 3, 4))
    table.flush()
    other.claim(2, tags(1, 2, 3, 4))
    other.flush()
    assert merge(table.root, other.copies.held[T], 200.0, table.outbox, 1.0)
    both = TableSplit(BY_STEM | BY_TAG, frozenset([1]))
    assert table.flush() == both
    assert table.root.known_split() == both


def test_a_member_that_claims_everything_restores_the_split() -> None:
    table, split = Table(), TableSplit(BY_TAG, frozenset([1, 2]))
    table.claim(1, b"", split)
    assert table.flush() == split
    table.claim(1, b"")
    assert table.flush() is None


def test_a_node_repeats_the_split_in_a_claim_of_everything_alone() -> None:
    own, head = OwnEntries(), GroupRegistration(T, b"", 1)
    assert own.learn_split(TableSplit(BY_STEM))
    assert not own.learn_split(TableSplit(BY_STEM)), "it is known"
    own.want(stems(1), b"", 1)
    assert own.send(LOCAL, head).split == TableSplit(BY_STEM).pack()
    own.acknowledge(1)
    assert own.send(LOCAL, head).split == b""
    own.forget_root()
    assert own.send(LOCAL, head).split == TableSplit(BY_STEM).pack()


def test_a_watcher_keeps_a_split_that_the_next_root_does_not_know() -> None:
    table = Table()
    table.claim(1, stems(1, 2, 3, 4))
    table.flush()
    part = TablePart(KEEPER, T, 0, 1 << 40, 0, True, 0, 1, [], [], [])
    assert table.view.replace([part])
    event = table.view.event(T, (), is_watched=True)
    assert isinstance(event, TableChanged)
    assert event.split == TableSplit(BY_STEM)


def test_a_split_has_a_bounded_size() -> None:
    many = TableSplit(BY_TAG, frozenset(range(3 * SPLIT_SHAPES_MAX)))
    log = SplitLog()
    assert log.add(many, 1)
    assert len(log.known().shapes) == SPLIT_SHAPES_MAX
    assert not log.add(many, 2), "there is no room"
    assert log.known(0) == UNSPLIT
    united = UNSPLIT.united(many)
    assert united.shapes == log.known().shapes
    assert united.united(TableSplit(BY_TAG, frozenset([10**6]))) == united
    assert is_split(united.pack())
    assert unpack_split(united.pack()) == united
    choice = SplitChoice(0).choose(200, [packed((1, shape, shape)) for shape in range(200)])
    assert len(choice.shapes) == SPLIT_SHAPES_MAX


@pytest.mark.parametrize(
    "data",
    [b"\0", b"\4", b"\1\0\0\0\1", b"\2\0\0\0", b"\2\0\0\0\2\0\0\0\1", b"\2\0\0\0\1\0\0\0\1"],
    ids=["none", "unknown_way", "shapes_by_stem", "half", "unsorted", "twice"],
)
def test_a_malformed_split_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode_group_message(encode_group_message(Split(T, data)))


def test_the_report_of_a_split_has_all_that_is_known() -> None:
    assert SplitTold(T, TableSplit(BY_STEM)).split.pack() == b"\1"


def full_to(table: Table) -> list[tuple[int, int]]:
    """Return whom the root has asked for fewer entries, and how many."""
    asked = []
    for target, message in table.outbox.posts:
        if isinstance(message, Full):
            assert isinstance(target, NodeInfo)
            asked.append((int.from_bytes(target.id, "big"), message.count))
    table.flush()
    return asked


def wild(*numbers: int) -> bytes:
    return packed(*((0, 4, number) for number in numbers))


def test_a_table_that_stays_full_asks_the_member_with_most_entries_and_never_the_newest_for_fewer() -> None:
    table = Table()
    table.claim(1, wild(*range(FEW)))
    table.claim(2, wild(*range(100, 100 + 2 * FEW)))
    table.claim(3, wild(*range(200, 200 + FEW)))
    assert full_to(table) == [], "four times the bound is not passed"
    table.claim(4, wild(*range(300, 300 + 2 * FEW)))
    assert full_to(table) == [(2, FEW)], "another one has as many, and is newer"
    for number in range(5, 5 + ASKED_CLAIMS):
        table.claim(number, wild(number))
    assert full_to(table) == [], "it has been asked"
    table.claim(1000, wild(1))
    assert full_to(table) == [(2, FEW)]
    table.claim(2, wild(100))
    assert full_to(table) == [(4, FEW)]


def test_a_member_reports_that_its_table_is_full_if_the_root_says_so() -> None:
    simulation = GroupSimulation(1)
    nodes = [simulation.start_node() for _ in range(5)]
    simulation.run_for(2.0)
    simulation.claim(nodes[0], T, stems(1, 2, 3))
    simulation.run_for(2.0)
    (root,) = simulation.directories(T)
    liar = next(node for node in nodes if node not in (root, nodes[0]))
    nodes[0].layer.received(liar.info, encode_group_message(Full(T, 1)), simulation.now)
    nodes[0].layer.received(root.info, encode_group_message(Full(T, 3)), simulation.now)
    assert nodes[0].layer.events_received() == []
    nodes[0].layer.received(root.info, encode_group_message(Full(T, 1)), simulation.now)
    assert nodes[0].layer.events_received() == [TableFull(T, 1)]
