"""Tables at one node: errors of the owner, the kind of a group, and lies of peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.errors import InfoError, StateError
from iris_overlay.events import Claimed, GroupMember, MemberChange, ProtocolViolated, TableChanged
from iris_overlay.groups import entries
from iris_overlay.groups.entries import ENTRIES_MAX
from iris_overlay.groups.io import SendTo
from iris_overlay.groups.messages import (
    TABLE_PART_BYTES_MAX,
    Accused,
    Applied,
    Claim,
    Copied,
    Copy,
    EntryRow,
    GroupMessage,
    MemberRecord,
    Moved,
    Reclaim,
    Register,
    TableCopy,
    TablePart,
    Told,
    Unregister,
    View,
    Watch,
    WatchTable,
    member_part,
    user_part,
)
from iris_overlay.groups.table_parts import checksum_of
from iris_overlay.groups.watches import TWO_ROOTS_S
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.groups.test_layer import LOCAL, OTHER, PEER, THIRD, Fixture, G, register

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId
    from iris_overlay.node_info import NodeInfo


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


def claim(info: NodeInfo, *numbers: int, stamp: int = 1, permit: bytes = b"", group: GroupId = G) -> Claim:
    after = packed(*numbers)
    return Claim(info, group, b"", stamp, permit, 0, len(numbers), entries.checksum(after), after)


def watch(info: NodeInfo, version: int = 0, permit: bytes = b"") -> WatchTable:
    return WatchTable(info, 0, G, version, permit)


def part(version: int, rows: list[EntryRow], members: list[MemberRecord], base: int = 0, root: NodeInfo = PEER) -> TablePart:
    return TablePart(root, G, base, version, len(members), True, 0, 1, members, rows, [])


def row(info: NodeInfo, *numbers: int, base: int = 0, stamp: int = 1) -> EntryRow:
    return EntryRow(info.id, base, stamp, packed(*numbers))


def test_a_root_that_is_member_and_watcher_sends_nothing() -> None:
    fixture = Fixture()
    layer = fixture.layer
    layer.watch_table(G, 0.0)
    assert layer.events_received() == [TableChanged(G, {}, (), 0)]
    number = layer.claim(G, b"x", packed(1), b"", 0.0)
    layer.handle_timeout(0.0)
    member = GroupMember(LOCAL, b"x")
    assert layer.events_received() == [
        TableChanged(G, {LOCAL.id: MemberChange(member, packed(1), b"")}, (), 1),
        Claimed(G, number),
    ]
    layer.claim(G, b"x", packed(2), packed(1), 0.0)
    layer.handle_timeout(0.0)
    (event, _) = layer.events_received()
    assert event == TableChanged(G, {LOCAL.id: MemberChange(None, packed(2), packed(1))}, (), 1)
    layer.leave_group(G, 0.0)
    (event, _) = layer.events_received()
    assert event == TableChanged(G, {}, (LOCAL.id,), 0)
    assert fixture.sent() == []


def test_errors_of_the_owner_change_nothing() -> None:
    fixture = Fixture()
    layer = fixture.layer
    for added, removed in ((b"x", b""), (b"", bytes(40)), (packed(2) + packed(1), b"")):
        with pytest.raises(InfoError, match="packed"):
            layer.claim(G, b"", added, removed, 0.0)
    layer.claim(G, b"", entries.pack((number, 0, 0) for number in range(ENTRIES_MAX)), b"", 0.0)
    with pytest.raises(InfoError, match="at most"):
        layer.claim(G, b"", packed(ENTRIES_MAX), b"", 0.0)
    layer.claim(G, b"", packed(ENTRIES_MAX), packed(0), 0.0)
    with pytest.raises(StateError, match="with entries"):
        layer.join_group(G, b"", 0.0)
    layer.leave_group(G, 0.0)
    layer.join_group(G, b"", 0.0)
    with pytest.raises(StateError, match="without entries"):
        layer.claim(G, b"", packed(1), b"", 0.0)
    layer.watch_group(G, 0.0)
    with pytest.raises(StateError, match="without entries"):
        layer.watch_table(G, 0.0)
    layer.unwatch_group(G, 0.0)
    layer.watch_table(G, 0.0)
    with pytest.raises(StateError, match="table"):
        layer.watch_group(G, 0.0)
    layer.leave(0.0)
    with pytest.raises(StateError, match="leaving"):
        layer.claim(G, b"", packed(1), b"", 0.0)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (claim(OTHER, 1), [register(THIRD), Watch(THIRD, 0, [(G, 0, b"")])]),
        (watch(OTHER), [register(THIRD), Watch(THIRD, 0, [(G, 0, b"")])]),
        (register(OTHER), [claim(THIRD, 1), watch(THIRD)]),
        (Watch(OTHER, 0, [(G, 0, b"")]), [claim(THIRD, 1), watch(THIRD)]),
    ],
)
def test_the_first_message_fixes_the_kind_of_a_group(first: GroupMessage, others: list[GroupMessage]) -> None:
    fixture = Fixture()
    fixture.receive(first, OTHER)
    fixture.sent()
    for message in others:
        fixture.receive(message, THIRD)
    assert fixture.counters.kinds_invalid == len(others)
    assert not any(target == THIRD for target, _ in fixture.sent())
    assert THIRD.id not in (fixture.layer.directory_of(G) or {})


@pytest.mark.parametrize("is_mine", [False, True])
def test_a_copy_without_a_permit_fixes_nothing(is_mine: bool) -> None:
    """An insider without the keys of the group could keep all others out."""
    fixture = Fixture(signer=NamedSigner(LOCAL.id))
    fixture.ring.is_mine = is_mine
    fixture.receive(Copy(G, 0, 9, True, True, [], [], [THIRD], []), PEER)
    fixture.ring.is_mine = True
    record = MemberRecord(OTHER, b"", 1)
    permit = NamedSigner(OTHER.id).permit(G, member_part(record, OTHER.id))
    fixture.receive(claim(OTHER, 1, permit=permit), OTHER)
    assert fixture.layer.entries_of(G) == {OTHER.id: packed(1)}
    fixture.receive(Copy(G, 0, 9, True, True, [], [], [THIRD], []), PEER)
    assert fixture.counters.kinds_invalid == 1
    assert fixture.layer.entries_of(G) == {OTHER.id: packed(1)}


def test_a_copy_of_the_other_kind_is_kept_by_no_one_who_has_members() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.receive(TableCopy(G, 0, 9, True, True, [MemberRecord(OTHER, b"", 1)], [], [], [], False, [row(OTHER, 1)]), PEER)
    fixture.sent()
    fixture.receive(Copy(G, 0, 10, True, True, [MemberRecord(THIRD, b"", 1)], [], [], []), PEER)
    assert fixture.counters.kinds_invalid == 1
    assert fixture.sent() == []
    fixture.ring.is_mine = True
    fixture.layer.leaves_changed([], [PEER.id], 2.0)
    assert fixture.layer.entries_of(G) == {OTHER.id: packed(1)}


def test_permits_are_needed_and_each_node_speaks_for_itself() -> None:
    fixture = Fixture(signer=NamedSigner(LOCAL.id))
    fixture.receive(claim(OTHER, 1), OTHER)
    fixture.receive(watch(OTHER), OTHER)
    assert fixture.counters.permits_invalid == 2
    assert fixture.layer.entries_of(G) is None
    fixture.receive(watch(OTHER, permit=NamedSigner(OTHER.id).permit(G, user_part(OTHER.id))), OTHER)
    assert [type(message) for _, message in fixture.sent()] == [TablePart]
    for message in (claim(OTHER, 1), watch(OTHER), part(9, [], [], root=OTHER)):
        fixture.receive(message, PEER)
        (violation,) = fixture.layer.events_received()
        assert isinstance(violation, ProtocolViolated)


def test_a_claim_that_does_not_apply_is_asked_for_again_as_a_whole() -> None:
    fixture = Fixture()
    renewal = Claim(OTHER, G, b"", 3, b"", 3, 1, entries.checksum(packed(1)))
    fixture.receive(renewal, OTHER)
    assert fixture.sent() == [(OTHER, Reclaim(G, 3))]
    fixture.receive(claim(OTHER, 1, stamp=4), OTHER)
    assert fixture.sent() == [(OTHER, Applied(LOCAL, [(G, 4, 1, True)]))]
    fixture.receive(Unregister(OTHER, [(G, 5)]), OTHER)
    assert fixture.sent() == [(OTHER, Applied(LOCAL, [(G, 5, 0, False)]))]
    assert fixture.layer.entries_of(G) == {}


def test_another_node_s_tables_are_not_kept() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.receive(claim(OTHER, 1), OTHER)
    fixture.receive(watch(THIRD), THIRD)
    assert fixture.sent() == [(OTHER, Moved([G])), (THIRD, Moved([G]))]


@pytest.mark.parametrize(
    "message",
    [
        Claim(PEER, G, b"", 1, b"", 0, 2, bytes(8), packed(2) + packed(1)),
        Claim(PEER, G, b"", 1, b"", 0, 2, bytes(8), b"", packed(1) + packed(1)),
        part(9, [EntryRow(OTHER.id, 0, 1, packed(1) + b"x")], [MemberRecord(OTHER, b"", 1)]),
        TableCopy(G, 0, 9, True, True, [], [], [], [], False, [EntryRow(OTHER.id, 0, 1, b"", packed(2) + packed(1))]),
        TablePart(PEER, G, 0, 9, 0, True, 1, 1, [], [], []),
        TablePart(PEER, G, 8, 9, 0, True, 0, 1, [], [], [], b"", bytes(16)),
        TablePart(PEER, G, 0, 9, 0, True, 0, 2, [], [], [], b"", bytes(16)),
        TablePart(PEER, G, 0, 9, 1, True, 0, 1, [], [EntryRow(OTHER.id, 0, 1, b"")], [], b"", bytes(16)),
        part(9, [EntryRow(OTHER.id, 0, 1, entries.pack((n, 0, 0) for n in range(TABLE_PART_BYTES_MAX // 20)))], []),
    ],
)
def test_what_breaks_a_bound_is_a_violation(message: GroupMessage) -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.watch_table(G, 0.0)
    fixture.receive(message, PEER)
    (violation,) = fixture.layer.events_received()
    assert isinstance(violation, ProtocolViolated)
    assert fixture.counters.messages_invalid == 1


def watching() -> Fixture:
    """Return a node that watches a table of another root."""
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.watch_table(G, 0.0)
    fixture.receive(part(9, [row(OTHER, 1, 2)], [MemberRecord(OTHER, b"", 1)]))
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(GroupMember(OTHER, b""), packed(1, 2), b"")}, (), 1)
    assert (PEER, Told(G, 9)) in fixture.sent()
    return fixture


@pytest.mark.parametrize(
    "message",
    [
        part(10, [row(OTHER, 3, base=7, stamp=8)], [], base=9),  # a change of entries that are not here
        part(10, [row(THIRD, 3)], [], base=9),  # entries of an unknown member
        part(10, [], [MemberRecord(THIRD, b"", 1)], base=9),  # a member without entries
        part(20, [row(THIRD, 3, base=7)], [MemberRecord(THIRD, b"", 7)]),
    ],
)
def test_a_root_that_says_what_cannot_be_is_not_believed(message: TablePart) -> None:
    fixture = watching()
    fixture.receive(message)
    assert fixture.counters.messages_unexpected == 1
    assert fixture.layer.events_received() == []
    assert (PEER, Told(G, message.version)) not in fixture.sent()
    fixture.receive(part(30, [row(OTHER, 5)], [MemberRecord(OTHER, b"", 2)]))
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(None, packed(5), packed(1, 2))}, (), 1)


def test_changes_that_do_not_apply_are_asked_for_again_as_a_whole() -> None:
    fixture = watching()
    fixture.receive(part(12, [row(OTHER, 3, base=1, stamp=2)], [], base=11))
    assert fixture.sent() == [(PEER, Told(G, 0))]
    fixture.receive(part(8, [row(OTHER, 3, base=1, stamp=2)], [], base=7))
    assert fixture.sent() == [(PEER, Told(G, 9))], "a late change is known already"
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=2)], [], base=9, root=THIRD), THIRD)
    assert fixture.layer.events_received() == []


def checksum_part(version: int, rows: list[tuple[NodeInfo, bytes]], root: NodeInfo = THIRD, promoted: bytes = b"") -> TablePart:
    checksum = checksum_of((info.id, 1, packed_entries) for info, packed_entries in rows)
    return TablePart(root, G, 0, version, len(rows), True, 0, 1, [], [], [], promoted, checksum)


def test_a_table_that_another_root_has_as_well_is_kept() -> None:
    fixture = watching()
    fixture.receive(checksum_part(20, [(OTHER, packed(1, 2))], promoted=packed(7)), THIRD)
    assert fixture.layer.events_received() == [TableChanged(G, {}, (), 1, promoted=packed(7))]
    assert fixture.sent() == [(THIRD, Told(G, 20))]
    fixture.receive(part(21, [row(OTHER, 3, base=1, stamp=2)], [], base=20, root=THIRD), THIRD)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(None, packed(3), b"")}, (), 1)


def test_a_table_that_another_root_has_not_is_asked_for() -> None:
    fixture = watching()
    fixture.receive(checksum_part(20, [(OTHER, packed(1))]), THIRD)
    assert fixture.layer.events_received() == []
    assert fixture.sent() == [(THIRD, Told(G, 0))]
    fixture.receive(part(21, [row(OTHER, 3)], [MemberRecord(OTHER, b"", 1)], root=THIRD), THIRD)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(None, packed(3), packed(1, 2))}, (), 1)


def test_a_root_that_has_not_heard_of_later_entries_does_not_take_them_away() -> None:
    fixture = watching()
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=5)], [], base=9))
    fixture.layer.events_received()
    stale = part(20, [row(OTHER, 1, 2), row(THIRD, 7)], [MemberRecord(OTHER, b"", 1), MemberRecord(THIRD, b"", 1)], root=THIRD)
    fixture.receive(stale, THIRD, 2.0)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {THIRD.id: MemberChange(GroupMember(THIRD, b""), packed(7), b"")}, (), 2)
    assert fixture.layer.deadline() == 2.0 + TWO_ROOTS_S
    fixture.layer.handle_timeout(2.0 + TWO_ROOTS_S)
    fixture.sent()
    fixture.receive(stale, THIRD, 2.1 + TWO_ROOTS_S)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(None, b"", packed(3))}, (), 2), "it insists"


def test_an_older_checksum_is_not_believed() -> None:
    fixture = watching()
    fixture.receive(checksum_part(8, [(OTHER, packed(1, 2))]), THIRD)
    assert fixture.sent() == []
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=2)], [], base=9))
    assert len(fixture.layer.events_received()) == 1, "the root is the one of before"


def test_a_watcher_says_whether_it_has_the_table_of_an_earlier_root() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.watch_table(G, 0.0)
    assert [message for _, message in fixture.sent()] == [WatchTable(LOCAL, 0, G, 0, b"", False)]
    fixture = watching()
    fixture.layer.peer_dead(PEER.id, 2.0)
    fixture.layer.handle_timeout(3.0)
    assert [message for _, message in fixture.sent() if isinstance(message, WatchTable)] == [
        WatchTable(LOCAL, 0, G, 0, b"", True)
    ]


def test_views_of_the_other_kind_are_not_taken() -> None:
    fixture = watching()
    fixture.receive(View(PEER, G, 30, 0, True, []))
    assert fixture.layer.events_received() == []
    fixture.layer.unwatch_group(G, 1.0)
    fixture.layer.watch_group(G, 1.0)
    fixture.receive(part(40, [row(OTHER, 1)], [MemberRecord(OTHER, b"", 1)]))
    assert fixture.layer.events_received() == []


def test_a_dead_member_is_left_out_until_a_root_insists() -> None:
    fixture = watching()
    fixture.layer.peer_dead(OTHER.id, 2.0)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {}, (OTHER.id,), 0)
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=1)], [], base=9), now=2.1)
    assert fixture.layer.events_received() == []
    fixture.layer.handle_timeout(10.0)
    (event,) = fixture.layer.events_received()
    assert event == TableChanged(G, {OTHER.id: MemberChange(GroupMember(OTHER, b""), packed(1, 2, 3), b"")}, (), 1)


def test_a_table_that_lacks_the_node_is_no_reason_to_claim_again_while_a_claim_is_in_transit() -> None:
    fixture = watching()
    fixture.layer.claim(G, b"", packed(1), b"", 1.0)
    fixture.layer.handle_timeout(1.0)
    fixture.sent()
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=2)], [], base=9), now=2.0)
    assert not any(isinstance(message, Claim) for _, message in fixture.sent())
    fixture.receive(Applied(PEER, [(G, 1, 2, True)]), now=2.0)
    fixture.receive(part(11, [row(OTHER, 4, base=2, stamp=3)], [], base=10), now=3.0)
    assert any(isinstance(message, Claim) for _, message in fixture.sent()), "an old copy may have become the table"


def test_a_message_to_many_is_encoded_once() -> None:
    fixture = Fixture()
    for watcher in (OTHER, THIRD):
        fixture.receive(watch(watcher), watcher)
        fixture.layer.outputs_to_send()
    for watcher in (OTHER, THIRD):
        fixture.receive(Told(G, 3), watcher)
        fixture.receive(Told(G, 3), watcher)
        fixture.layer.outputs_to_send()
    fixture.receive(claim(PEER, 1), PEER)
    outputs = [output for output in fixture.layer.outputs_to_send() if isinstance(output, SendTo)]
    payloads = {output.info.id: output.payload for output in outputs}
    assert payloads[OTHER.id] is payloads[THIRD.id]


def test_an_owner_that_stops_watching_hears_no_more() -> None:
    fixture = watching()
    fixture.receive(part(10, [row(OTHER, 3, base=1, stamp=2)], [], base=9))
    fixture.layer.unwatch_group(G, 1.0)
    assert fixture.layer.events_received() == []
    assert not any(isinstance(message, Copied | Accused | Register) for _, message in fixture.sent())
