"""Promoted entries: who is told of them, and what outlives a root."""

from __future__ import annotations

import random

import pytest

from iris_overlay.errors import MessageError
from iris_overlay.groups import entries, promotions
from iris_overlay.groups.copies import Copies, HeldCopy
from iris_overlay.groups.directory import Outcome
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.handover import merge, revive
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import (
    Claim,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Promoted,
    TableCopy,
    TablePart,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.own_entries import OwnEntries
from iris_overlay.groups.promotions import PROMOTED_MAX, EntryCounts, Promotions
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.groups.table_root import TableRoot
from iris_overlay.groups.table_view import TableView
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

T = GroupId(b"t" * 16)
MANY = 4


@pytest.fixture(autouse=True)
def few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", MANY)


def info(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.1:1",))


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


LOCAL, WATCHER, KEEPER = info(10_001), info(10_002), info(10_003)


class Table:
    """A root, its watcher, and the keeper of its copy."""

    def __init__(self, directory: TableDirectory | None = None) -> None:
        self.outbox = Outbox()
        self.directory = directory or TableDirectory(T, 1)
        self.root = TableRoot(self.directory, LOCAL, random.Random(1), self.outbox)
        self.view = TableView()
        self.copies = Copies(100.0)
        self.root.watch(WATCHER, 1, 0, 100.0, None)
        self.root.set_copies([KEEPER])

    def claim(self, number: int, after: bytes, stamp: int = 1, promoted: bytes = b"") -> Outcome:
        head = (info(number), T, b"", stamp, b"", 0, entries.count(after), entries.checksum(after))
        return self.root.claim(Claim(*head, after, b"", promoted), MemberRecord(info(number), b"", stamp), 100.0)

    def flush(self) -> tuple[dict[NodeId, bytes], bytes]:
        """Send everything until the followers know it; return what members are told, and what the watcher reports."""
        told: dict[NodeId, bytes] = {}
        reported = b""
        while True:
            self.root.flush()
            posts, self.outbox.posts = self.outbox.posts, []
            if not posts:
                return told, reported
            parts: list[TablePart] = []
            for target, message in posts:
                assert decode_group_message(encode_group_message(message)) == message
                if isinstance(message, Promoted):
                    assert isinstance(target, NodeInfo)
                    told[target.id] = message.entries
                elif isinstance(message, TablePart):
                    parts.append(message)
                elif isinstance(message, TableCopy):
                    version, _ = self.copies.receive(LOCAL.id, message, 0.0)
                    if version is not None:
                        self.root.acknowledge(FollowerKind.COPY, KEEPER.id, version)
            if parts:
                assert (self.view.change if parts[0].base else self.view.replace)(parts)
                self.root.acknowledge(FollowerKind.WATCHER, WATCHER.id, parts[0].version)
                event = self.view.event(T, (), is_watched=True)
                reported += b"" if event is None else event.promoted


def test_an_entry_of_too_many_nodes_is_promoted_and_its_nodes_and_the_watchers_are_told_once() -> None:
    table = Table()
    for number in range(MANY):
        table.claim(number, packed(1, 100 + number))
    assert table.flush() == ({}, b"")
    table.claim(MANY, packed(1, 2))
    assert table.flush() == ({info(number).id: packed(1) for number in range(MANY + 1)}, packed(1))
    assert table.view.promoted == {packed(1)}
    table.claim(MANY + 1, packed(2))
    assert table.flush() == ({}, b"")


def test_a_later_member_with_a_promoted_entry_is_told_at_its_claim_and_at_each_renewal() -> None:
    table = Table()
    for number in range(MANY + 1):
        table.claim(number, packed(1))
    table.flush()
    table.claim(50, packed(1, 2))
    assert table.flush()[0] == {info(50).id: packed(1)}
    assert table.claim(50, packed(1, 2)) is Outcome.RENEWED
    assert table.flush()[0] == {info(50).id: packed(1)}
    table.claim(50, packed(2), stamp=2)
    assert table.claim(50, packed(2), stamp=2) is Outcome.RENEWED
    assert table.flush()[0] == {}


def test_a_promotion_is_for_ever_although_all_nodes_withdraw_the_entry() -> None:
    table = Table()
    for number in range(MANY + 1):
        table.claim(number, packed(1))
    table.flush()
    for number in range(MANY + 1):
        table.claim(number, b"", stamp=2)
    table.flush()
    table.claim(60, packed(1))
    assert table.flush()[0] == {info(60).id: packed(1)}


def test_a_fixed_entry_is_never_promoted() -> None:
    table = Table()
    fixed = entries.pack([(0, entries.FIXED | 5, 7)])
    for number in range(2 * MANY):
        table.claim(number, entries.apply(packed(1), fixed) if number <= MANY else fixed)
    told, _ = table.flush()
    assert set(told.values()) == {packed(1)}
    assert table.view.promoted == {packed(1)}


def test_nodes_that_withdraw_an_entry_are_not_counted() -> None:
    table = Table()
    for stamp in range(1, 4):
        for number in range(MANY):
            table.claim(10 * stamp + number, packed(1))
        for number in range(MANY):
            table.root.remove(info(10 * stamp + number).id, 1, 100.0)
    assert table.flush() == ({}, b"")


def test_a_promotion_outlives_the_root_by_its_copy() -> None:
    table = Table()
    for number in range(MANY + 1):
        table.claim(number, packed(1))
    table.flush()
    held = table.copies.held[T]
    after = revive(held, 100.0)
    assert isinstance(after, TableDirectory)
    next_root = Table(after)
    assert next_root.flush()[1] == packed(1)


def test_two_diverged_tables_are_merged_with_the_promotions_of_both() -> None:
    one, other = Table(), Table()
    for number in range(MANY + 1):
        one.claim(number, packed(1))
        other.claim(20 + number, packed(2))
    one.flush()
    other.flush()
    assert merge(one.root, HeldCopy(other.directory, {}, LOCAL.id, 100.0), 100.0, one.outbox, 1.0)
    assert one.flush()[1] == packed(2)
    assert one.directory.promotions.since(0) == packed(1, 2)


def test_a_copy_is_sent_a_promotion_as_a_change() -> None:
    table = Table()
    for number in range(MANY):
        table.claim(number, packed(1))
    table.flush()
    table.claim(MANY, packed(1))
    table.root.flush()
    copies = [message for _, message in table.outbox.posts if isinstance(message, TableCopy)]
    assert [(copy.base > 0, copy.promoted) for copy in copies] == [(True, packed(1))]


def test_members_that_moved_tell_a_root_that_knows_nothing() -> None:
    own = OwnEntries()
    own.want(packed(1, 2), b"", 1)
    assert own.promote(packed(1, 3)) == packed(1), "it has no entry 3"
    own.want(b"", packed(1), 2)
    claim = own.send(info(5), GroupRegistration(T, b"", 2))
    assert (claim.base, claim.added, claim.promoted) == (0, packed(2), packed(1))
    table = Table()
    assert table.root.claim(claim, MemberRecord(info(5), b"", 2), 100.0) is Outcome.CHANGED
    assert table.flush()[1] == packed(1)
    own.acknowledge(2)
    assert own.send(info(5), GroupRegistration(T, b"", 2)).promoted == b"", "a renewal does not repeat it"


def test_the_promotions_of_a_table_are_bounded() -> None:
    promoted = Promotions()
    assert len(promoted.add([packed(number) for number in range(PROMOTED_MAX + 5)], 3)) == PROMOTED_MAX
    assert len(promoted) == PROMOTED_MAX
    assert promoted.since(3) == b""
    assert entries.is_packed(promoted.since(0))
    view = TableView()
    for root in range(5):
        part = TablePart(info(root), T, 0, 1, 0, True, 0, 1, [], [], [], packed(*range(1000 * root, 1000 * root + 1000)))
        view.replace([part])
    assert len(view.promoted) <= 2 * PROMOTED_MAX


def test_counts_follow_random_changes() -> None:
    rng = random.Random(5)
    counts, sets = EntryCounts(), [set[int]() for _ in range(8)]
    for _ in range(500):
        own = rng.choice(sets)
        added = {number for number in range(6) if rng.random() < 0.3} - own
        removed = {number for number in own if rng.random() < 0.4}
        many = counts.change(packed(*added), packed(*removed))
        own |= added
        own -= removed
        assert many == [packed(number) for number in sorted(added) if sum(number in each for each in sets) > MANY]


def messages_with(promoted: bytes) -> list[GroupMessage]:
    return [Promoted(T, promoted), TablePart(LOCAL, T, 0, 1, 0, True, 0, 1, [], [], [], promoted)]


@pytest.mark.parametrize(
    "promoted", [b"x", packed(2) + packed(1), packed(*range(PROMOTED_MAX + 1))], ids=["cut", "unsorted", "long"]
)
def test_promotions_that_are_not_packed_are_refused(promoted: bytes) -> None:
    for message in messages_with(promoted):
        with pytest.raises(MessageError):
            decode_group_message(encode_group_message(message))
