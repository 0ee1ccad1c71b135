"""A watched table against a dictionary: the reported changes add up to the table, without the members found dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups import entries, table_view
from iris_overlay.groups.messages import EntryRow, MemberRecord, TablePart
from iris_overlay.groups.table_view import TableView
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.groups import apply_changes

if TYPE_CHECKING:
    import pytest

T = GroupId(b"t" * 16)
ROOT = NodeInfo(NodeId(b"r" * 16), ())


def info(number: int, zone: str = "") -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), (), zone)


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


def part(base: int, members: list[MemberRecord], rows: list[EntryRow], removed: list[NodeId] | None = None) -> TablePart:
    return TablePart(ROOT, T, base, base + 1, 0, True, 0, 1, members, rows, removed or [])


NUMBERS = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NUMBERS, st.sets(st.integers(0, 5))),
        st.tuples(st.just("zone"), NUMBERS, st.sets(st.integers(0, 5))),
        st.tuples(st.just("whole"), NUMBERS, st.sets(st.integers(0, 5))),
        st.tuples(st.just("remove"), NUMBERS, st.just(set())),
        st.tuples(st.just("mask"), NUMBERS, st.just(set())),
        st.tuples(st.just("unmask"), NUMBERS, st.just(set())),
        st.tuples(st.just("tell"), NUMBERS, st.just(set())),
    ),
    max_size=20,
)


@given(STEPS)
def test_what_the_owner_is_told_adds_up(steps: list[tuple[str, int, set[int]]]) -> None:
    view, masked = TableView(), set[NodeId]()
    truth: dict[NodeId, tuple[MemberRecord, bytes]] = {}
    told: dict[NodeId, bytes] = {}
    assert view.replace([part(0, [], [])])
    for stamp, (what, number, values) in enumerate([*steps, ("tell", 1, set())], start=1):
        node, after = info(number).id, packed(*values)
        if what in ("put", "zone"):
            before = truth.get(node)
            record = MemberRecord(info(number, "z" * stamp if what == "zone" else ""), b"", stamp)
            is_known = before is not None and before[0].info == record.info
            base, old = (0, b"") if before is None else (before[0].stamp, before[1])
            row = EntryRow(node, base, stamp, *entries.diff(old, after))
            assert view.change([part(5, [] if is_known else [record], [row])])
            truth[node] = (record, after)
        elif what == "whole":  # of another root, which lacks a member
            truth.pop(node, None)
            rows = [EntryRow(record.info.id, 0, record.stamp, each) for record, each in truth.values()]
            assert view.replace([part(0, [record for record, _ in truth.values()], rows)])
        elif what == "remove":
            truth.pop(node, None)
            assert view.change([part(5, [], [], [node])])
        elif what == "tell":
            event = view.event(T, masked, is_watched=True)
            if event is not None:
                apply_changes(told, event)
            assert told == {node: each for node, (_, each) in truth.items() if node not in masked}
            assert view.event(T, masked, is_watched=True) is None, "there is nothing new"
        else:
            (masked.add if what == "mask" else masked.discard)(node)
            view.note(node)


def test_nothing_is_told_before_a_root_sent_the_table() -> None:
    view = TableView()
    view.note(info(1).id)
    assert view.event(T, (), is_watched=True) is None
    assert view.replace([part(0, [], [])])
    event = view.event(T, (), is_watched=False)
    assert event is not None
    assert (event.size, event.is_watched) == (0, False)
    assert view.event(T, (), is_watched=True) is not None, "its changes are reported from now on"


def test_a_table_beyond_its_bounds_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    view = TableView()
    record = MemberRecord(info(1), b"", 1)
    assert view.replace([part(0, [record], [EntryRow(record.info.id, 0, 1, packed(1, 2))])])
    monkeypatch.setattr(table_view, "TABLE_BYTES_MAX", len(packed(1, 2, 3)))
    monkeypatch.setattr(table_view, "MEMBERS_MAX", 2)
    assert not view.change([part(5, [], [EntryRow(record.info.id, 1, 2, packed(3, 4))])])
    others = [MemberRecord(info(number), b"", 1) for number in (2, 3)]
    assert not view.change([part(5, others, [EntryRow(each.info.id, 0, 1, b"") for each in others])])
    assert view.change([part(5, others[:1], [EntryRow(others[0].info.id, 0, 1, packed(1))])])
    monkeypatch.setattr(table_view, "ENTRIES_BYTES_MAX", len(packed(1)))
    assert not view.change([part(5, [], [EntryRow(others[0].info.id, 1, 2, packed(2), b"")])])
    assert view.change([part(5, [], [EntryRow(others[0].info.id, 1, 2, packed(2), packed(1))])])
    assert view.change([part(5, others[1:], [EntryRow(others[1].info.id, 0, 1, b"")], [record.info.id])])
