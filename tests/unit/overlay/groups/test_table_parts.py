"""Parts of tables: none is too large, all together are everything, and they may come in any order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups import entries
from iris_overlay.groups.messages import EntryRow, MemberRecord, TablePart, encode_group_message
from iris_overlay.groups.table_parts import PartCollection, cut, record_bytes
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import ADDRESS_LENGTH_MAX, ADDRESSES_MAX, ATTRIBUTES_BYTES_MAX, SEQUENCE_MAX, NodeInfo

T = GroupId(b"t" * 16)


def info(number: int, addresses: int = 1) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("a" * ADDRESS_LENGTH_MAX,) * addresses, "z" * 64)


ROOT = info(1)
LARGEST = MemberRecord(info(2, ADDRESSES_MAX), bytes(ATTRIBUTES_BYTES_MAX), SEQUENCE_MAX, bytes(128), SEQUENCE_MAX)


def packed(count: int, first: int = 0) -> bytes:
    return entries.pack((number, 0, 0) for number in range(first, first + count))


def part(number: int, parts: int, version: int = 5, root: NodeInfo = ROOT) -> TablePart:
    return TablePart(root, T, 0, version, 0, True, number, parts, [], [], [])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 400)), max_size=8), st.integers(3_000, 9_000))
def test_chunks_are_small_enough_and_say_everything(changes: list[tuple[bool, int, int]], bytes_max: int) -> None:
    items: list[tuple[MemberRecord | None, EntryRow]] = []
    for number, (is_new, added, removed) in enumerate(changes):
        record = MemberRecord(info(number), bytes(number), 7)
        items.append((record if is_new else None, EntryRow(record.info.id, 3, 7, packed(added), packed(removed, 10_000))))
    chunks = cut(items, bytes_max)
    heading = len(encode_group_message(part(0, 1)))
    told: dict[NodeId, list[EntryRow]] = {}
    for chunk in chunks:
        message = TablePart(ROOT, T, 0, 5, 0, True, 0, 1, chunk.members, chunk.rows, [])
        assert len(encode_group_message(message)) <= bytes_max + heading + 8
        for row in chunk.rows:
            told.setdefault(row.node, []).append(row)
        assert {record.info.id for record in chunk.members} <= {row.node for row in chunk.rows}, "a record has a row beside it"
    assert [record for chunk in chunks for record in chunk.members] == [record for record, _ in items if record is not None]
    for _, row in items:
        rows = told.pop(row.node)
        assert [each.base for each in rows] == [row.base] + [row.stamp] * (len(rows) - 1)
        assert b"".join(each.added for each in rows) == row.added
        assert b"".join(each.removed for each in rows) == row.removed
        assert all(entries.is_packed(each.added) and entries.is_packed(each.removed) for each in rows)
    assert not told


def test_no_record_is_larger_than_thought() -> None:
    assert len(encode_group_message(TablePart(ROOT, T, 0, 5, 0, True, 0, 1, [LARGEST], [], []))) <= record_bytes(LARGEST) + len(
        encode_group_message(part(0, 1))
    )


def test_parts_come_in_any_order_and_more_than_once() -> None:
    collection = PartCollection()
    numbers = list(range(5)) * 2
    random.Random(1).shuffle(numbers)
    found = [collection.add(part(number, 5)) for number in numbers]
    first = next(each for each in found if each is not None)
    assert [each.number for each in first] == list(range(5))


def test_parts_of_another_view_begin_anew() -> None:
    collection = PartCollection()
    assert collection.add(part(0, 2)) is None
    assert collection.add(part(1, 2, version=6)) is None
    assert collection.add(part(0, 2, root=info(3), version=6)) is None
    assert collection.add(part(0, 2, version=6)) is None
    assert len(collection) == 1
    assert collection.add(part(1, 2, version=6)) is not None
    assert len(collection) == 0
