"""The directory of a table: claims, the net changes since a version, and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups import entries, table_directory
from iris_overlay.groups.directory import Outcome, accusation_of
from iris_overlay.groups.messages import STAMP_SHIFT, Claim, MemberRecord
from iris_overlay.groups.table_directory import TABLE_LOG_MAX, TableDirectory
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

T = GroupId(b"t" * 16)


def info(number: int, zone: str = "") -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.1:1",), zone)


A, B = info(1), info(2)


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


def claim(stamp: int, base: int, after: bytes, added: bytes = b"", removed: bytes = b"", node: NodeInfo = A) -> Claim:
    return Claim(node, T, b"", stamp, b"", base, entries.count(after), entries.checksum(after), added, removed)


def take(table: TableDirectory, message: Claim) -> Outcome:
    return table.claim(message, MemberRecord(message.info, message.attributes, message.stamp), 100.0)


def test_claims_change_the_entries_of_a_member() -> None:
    table = TableDirectory(T, 1)
    assert take(table, claim(1, 0, packed(1, 2), packed(1, 2))) is Outcome.CHANGED
    assert take(table, claim(2, 1, packed(2, 3), packed(3), packed(1))) is Outcome.CHANGED
    assert table.members[A.id].entries == packed(2, 3)
    assert table.members[A.id].record.stamp == 2
    assert take(table, claim(2, 2, packed(2, 3))) is Outcome.RENEWED
    assert take(table, claim(2, 1, packed(2, 3), packed(3), packed(1))) is Outcome.RENEWED, "it came twice"
    assert take(table, claim(1, 0, packed(1, 2), packed(1, 2))) is Outcome.OUTDATED
    assert take(table, claim(3, 0, packed(9), packed(9))) is Outcome.CHANGED
    assert table.members[A.id].entries == packed(9)


@pytest.mark.parametrize(
    "message",
    [
        claim(3, 3, packed(1)),  # a renewal of entries that are not here
        claim(3, 2, packed(1, 2), packed(2)),  # a change of entries that are not here
        claim(3, 1, packed(1, 5), packed(2)),  # a change that leads to others
        claim(1, 1, packed(2)),  # a renewal of others
        claim(3, 0, packed(2), packed(1)),
        claim(1, 1, packed(1), node=B),  # an unknown member
    ],
)
def test_a_claim_that_does_not_apply_changes_nothing(message: Claim) -> None:
    table = TableDirectory(T, 1)
    take(table, claim(1, 0, packed(1), packed(1)))
    version = table.version
    assert take(table, message) is Outcome.INCOMPLETE
    assert (table.version, list(table.members), table.members[A.id].entries) == (version, [A.id], packed(1))


def test_a_dead_member_is_told_so_and_not_asked_for_its_entries() -> None:
    table = TableDirectory(T, 1)
    take(table, claim(1, 0, packed(1), packed(1)))
    table.remove(A.id, accusation_of(1), 100.0)
    assert take(table, claim(1, 1, packed(1))) is Outcome.ACCUSED
    assert take(table, claim(2, 1, packed(1, 2), packed(2))) is Outcome.ACCUSED
    later = (1 << STAMP_SHIFT) + 1
    assert take(table, claim(later, 2, packed(1, 2), packed(2))) is Outcome.INCOMPLETE
    assert take(table, claim(later, 0, packed(7), packed(7))) is Outcome.CHANGED


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3), st.sets(st.integers(0, 5))),
        st.tuples(st.just("zone"), st.integers(1, 3), st.sets(st.integers(0, 5))),
        st.tuples(st.just("remove"), st.integers(1, 3), st.just(set())),
        st.tuples(st.just("expire"), st.just(0), st.just(set())),
    ),
    max_size=12,
)


def snapshot(table: TableDirectory) -> dict[NodeId, tuple[NodeInfo, int, bytes]]:
    return {node: (each.record.info, each.record.stamp, each.entries) for node, each in table.members.items()}


@given(STEPS)
def test_net_changes_lead_from_any_version_to_the_last(steps: list[tuple[str, int, set[int]]]) -> None:
    table = TableDirectory(T, 1)
    states = {table.version: snapshot(table)}
    for stamp, (what, number, values) in enumerate(steps, start=1):
        one = info(number, "z" * stamp if what == "zone" else "")
        if what == "remove":
            table.remove(one.id, stamp, 100.0)
        elif what == "expire":
            table.expire(1.0)
        else:
            table.register(MemberRecord(one, b"", stamp), 0.5 if number == 3 else 100.0, packed(*values))
        states[table.version] = snapshot(table)
    now = snapshot(table)
    for version, state in states.items():
        changes = table.changes_since(version)
        assert changes is not None
        found = dict(state)
        for node, change in changes.items():
            before, stamp_before, entries_before = found.pop(node, (None, 0, b""))
            if node not in table.members:
                continue
            after, stamp_after, entries_after = now[node]
            assert change.base == stamp_before
            assert entries.diff(entries_before, entries_after) == (change.added, change.removed), "the net change, exactly"
            assert change.is_new or before == after
            found[node] = (after, stamp_after, entries.apply(entries_before, change.added, change.removed))
        assert found == now


def test_the_log_does_not_reach_back_over_an_epoch_or_its_bounds() -> None:
    table = TableDirectory(T, 1)
    first = table.version
    take(table, claim(1, 0, packed(1), packed(1)))
    second = table.version
    assert list(table.changes_since(first) or ()) == [A.id]
    assert table.changes_since(second) == {}
    assert table.changes_since(second + 1) is None
    for stamp in range(2, TABLE_LOG_MAX + 2):
        table.register(MemberRecord(A, b"", stamp), 100.0, packed(stamp))
    assert table.changes_since(first) is None
    assert table.changes_since(second) is not None
    table.begin_epoch()
    assert table.changes_since(second) is None
    assert table.changes_since(table.version) == {}


def test_the_log_is_bounded_by_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_directory, "TABLE_LOG_BYTES_MAX", len(packed(*range(10))))
    table = TableDirectory(T, 1)
    table.register(MemberRecord(A, b"", 1), 100.0, packed(*range(6)))
    version = table.version
    table.register(MemberRecord(B, b"", 1), 100.0, packed(*range(6)))
    assert table.changes_since(1) is None
    assert list(table.changes_since(version) or ()) == [B.id]


def test_a_full_table_takes_no_more_until_a_member_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableDirectory(T, 1)
    take(table, claim(1, 0, packed(*range(50)), packed(*range(50))))
    monkeypatch.setattr(table_directory, "TABLE_BYTES_MAX", table.size_bytes)
    assert take(table, claim(1, 0, packed(1), packed(1), node=B)) is Outcome.FULL
    assert take(table, claim(2, 1, packed(*range(51)), packed(50))) is Outcome.FULL
    assert take(table, claim(2, 1, packed(*range(40)), b"", packed(*range(40, 50)))) is Outcome.CHANGED
    assert take(table, claim(3, 2, packed(*range(41)), packed(40))) is Outcome.CHANGED
    table.discard(A.id)
    assert table.size_bytes == 0
    assert take(table, claim(1, 0, packed(1), packed(1), node=B)) is Outcome.CHANGED
    table.remove(B.id, 1, 100.0)
    assert table.size_bytes == 0
