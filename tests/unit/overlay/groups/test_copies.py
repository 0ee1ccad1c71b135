"""Directories in pieces: what a message of the ring can carry, whatever nodes say of themselves."""

from __future__ import annotations

import pytest

from iris_overlay.groups.copies import Copies, HeldCopy, copy_parts
from iris_overlay.groups.directory import Directory, next_epoch
from iris_overlay.groups.messages import (
    COPY_MEMBERS_MAX,
    COPY_REMOVED_MAX,
    WATCHERS_MAX,
    Copy,
    MemberRecord,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import (
    ADDRESS_LENGTH_MAX,
    ADDRESSES_MAX,
    ATTRIBUTES_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SEQUENCE_MAX,
    ZONE_LENGTH_MAX,
    NodeInfo,
    check_info,
)
from iris_overlay.ring.messages import PAYLOAD_BYTES_MAX, Direct, encode_ring_message

GROUP = GroupId(b"g" * 16)
OWNER = NodeId(b"o" * 16)


def longest(number: int) -> NodeInfo:
    """Return a node that says as much of itself as it may."""
    addresses = tuple(f"{number}.{index}".ljust(ADDRESS_LENGTH_MAX, "a") for index in range(ADDRESSES_MAX))
    return NodeInfo(NodeId(number.to_bytes(16, "big")), addresses, "z" * ZONE_LENGTH_MAX)


def record(info: NodeInfo, stamp: int = 1) -> MemberRecord:
    return MemberRecord(info, b"a" * ATTRIBUTES_BYTES_MAX, stamp)


def directory_of(members: int, removed: int = 0) -> Directory:
    directory = Directory(GROUP, 5)
    for number in range(members):
        directory.register(record(longest(number)), 100.0)
    for number in range(removed):
        directory.remove(NodeId((1 << 64 | number).to_bytes(16, "big")), SEQUENCE_MAX - 1, 100.0)
    return directory


def test_no_part_is_more_than_the_ring_carries() -> None:
    """With the longest infos, and as many members, removals and watchers in one part as there may be."""
    check_info(longest(1))
    directory = directory_of(COPY_MEMBERS_MAX + 1, COPY_REMOVED_MAX)
    parts = copy_parts(directory, [longest(1000 + number) for number in range(COPY_MEMBERS_MAX + 1)])
    first = parts[0]
    assert (len(first.members), len(first.removed), len(first.watchers)) == (64, 1024, 64)
    for part in parts:
        data = encode_group_message(part)
        assert len(data) <= PAYLOAD_BYTES_MAX
        assert decode_group_message(data) == part
        # Sent through the ring, it is wrapped twice.
        assert len(encode_ring_message(Direct(longest(1), data))) <= MESSAGE_BYTES_MAX
    assert len(encode_group_message(first)) >= PAYLOAD_BYTES_MAX // 3  # So the bound means something.


@pytest.mark.parametrize(
    ("members", "removed", "watchers", "expected"),
    [(0, 0, 0, 1), (1, 1, 1, 1), (64, 1024, 64, 1), (65, 0, 0, 2), (0, 1025, 0, 2), (0, 0, 256, 4), (200, 3000, 130, 4)],
)
def test_parts_carry_everything_once(members: int, removed: int, watchers: int, expected: int) -> None:
    directory = directory_of(members, removed)
    watching = [longest(1000 + number) for number in range(watchers)]
    parts = copy_parts(directory, watching)
    assert len(parts) == expected
    assert [record for part in parts for record in part.members] == [m.record for m in directory.members.values()]
    assert [node for part in parts for node, _ in part.removed] == list(directory.tombstones)
    assert [info for part in parts for info in part.watchers] == watching
    assert [part.is_first for part in parts] == [True] + [False] * (expected - 1)
    assert [part.is_last for part in parts] == [False] * (expected - 1) + [True]


def test_a_copy_counts_when_its_last_part_has_come() -> None:
    directory = directory_of(150, 10)
    watching = [longest(1000 + number) for number in range(70)]
    copies = Copies(100.0)
    answers = [copies.receive(OWNER, part, 1.0) for part in copy_parts(directory, watching)]
    assert [version for version, _ in answers] == [None, None, directory.version]
    held = copies.held[GROUP]
    assert held.directory.members.keys() == directory.members.keys()
    assert held.directory.tombstones.keys() == directory.tombstones.keys()
    assert list(held.watchers) == [info.id for info in watching]


def test_parts_without_a_beginning_ask_for_all_of_it_and_unfinished_ones_expire() -> None:
    directory = directory_of(150)
    first, second, last = copy_parts(directory, ())
    copies = Copies(100.0)
    assert copies.receive(OWNER, second, 1.0) == (None, False)
    assert copies.receive(OWNER, last, 1.0) == (0, False)
    assert len(copies) == 0
    copies.receive(OWNER, first, 1.0)
    assert len(copies) == 1
    copies.expire(102.0)
    assert len(copies) == 0
    assert copies.receive(OWNER, last, 102.0) == (0, False)


def test_parts_of_two_senders_may_alternate() -> None:
    other = NodeId(b"p" * 16)
    directory = directory_of(100)
    copies = Copies(100.0)
    versions: list[tuple[NodeId, int | None]] = []
    for part in copy_parts(directory, ()):
        versions += [(sender, copies.receive(sender, part, 1.0)[0]) for sender in (OWNER, other)]
    assert versions == [(OWNER, None), (other, None), (OWNER, directory.version), (other, directory.version)]
    assert copies.held[GROUP].directory.members.keys() == directory.members.keys()


@pytest.mark.parametrize("version", [2, 3, 4, next_epoch(3)])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_neighbour_passes_on_is_added_to_what_it_has_itself(version: int, is_first: bool) -> None:
    """A node gives its own directory to a neighbour, and the copy that it holds of another root: in any order."""
    copies = Copies(100.0)
    own, other = Directory(GROUP, 3), Directory(GROUP, 1)
    own.register(record(longest(1)), 100.0)
    own.version = 3
    other.register(record(longest(2)), 100.0)
    messages = [*copy_parts(other, [], version), *copy_parts(own, [])]
    for message in messages if is_first else reversed(messages):
        copies.receive(OWNER, message, 0.0)
    held = copies.held[GROUP]
    assert set(held.directory.members) == {longest(1).id, longest(2).id}
    assert held.directory.version == 3
    assert max(held.floor, held.directory.version) == max(3, version)
    assert held.is_mixed
    (passed_on,) = held.parts()
    assert passed_on.is_passed_on
    assert passed_on.version == max(3, version)


def test_no_change_of_its_sender_applies_to_what_was_passed_on() -> None:
    copies = Copies(100.0)
    other = directory_of(1)
    (whole,) = copy_parts(other, [], other.version)
    copies.receive(OWNER, whole, 0.0)
    change = Copy(GROUP, other.version, other.version + 1, True, True, [record(longest(7))], [], [], [])
    assert copies.receive(OWNER, change, 0.0) == (0, False)
    assert longest(7).id not in copies.held[GROUP].directory.members


def test_what_says_no_more_than_the_copy_does_not_mix_it() -> None:
    copies = Copies(100.0)
    directory = directory_of(2)
    (whole,) = copy_parts(directory, [])
    copies.receive(OWNER, whole, 0.0)
    (again,) = copy_parts(directory, [], directory.version)
    assert copies.receive(NodeId(b"p" * 16), again, 0.0) == (directory.version, False)
    assert not copies.held[GROUP].is_mixed
    assert copies.held[GROUP].owner == OWNER


@pytest.mark.parametrize("is_known", [False, True])
def test_copies_of_which_parts_have_arrived_are_bounded(monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    """Also those of groups of which there is a copy already: the bound is on what never becomes whole."""
    monkeypatch.setattr("iris_overlay.groups.copies.PARTS_MAX", 2)
    directory = directory_of(100)
    first, last = copy_parts(directory, ())
    copies = Copies(100.0)
    if is_known:
        for part in (first, last):
            copies.receive(OWNER, part, 1.0)
    held = len(copies)
    senders = [NodeId(bytes([number]) * 16) for number in (1, 2, 3)]
    for sender in senders:
        copies.receive(sender, first, 1.0)
    assert len(copies) == held + 2
    assert [copies.receive(sender, last, 1.0)[0] for sender in senders] == [directory.version, directory.version, 0]


def test_copies_of_more_groups_than_there_is_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.copies.GROUPS_MAX", 1)
    copies = Copies(100.0)
    (first,), (other,) = copy_parts(directory_of(1), ()), copy_parts(Directory(GroupId(b"h" * 16), 5), ())
    assert copies.receive(OWNER, first, 1.0)[0] == 5 + 1
    assert copies.receive(OWNER, other, 1.0) == (0, False)
    assert list(copies.held) == [GROUP]


def test_watchers_that_went_are_taken_out_of_a_copy() -> None:
    copies = Copies(100.0)
    watching = [longest(number) for number in (1, 2)]
    (whole,) = copy_parts(Directory(GROUP, 5), watching)
    copies.receive(OWNER, whole, 0.0)
    assert copies.receive(OWNER, Copy(GROUP, 5, 6, True, True, [], [], [], [longest(1).id]), 1.0) == (6, False)
    assert list(copies.held[GROUP].watchers) == [longest(2).id]


@pytest.mark.parametrize("is_merged", [True, False])
def test_a_copy_has_no_more_watchers_than_a_root_has(is_merged: bool) -> None:
    """An owner that lies may name ever new ones, in changes, and as one of several that pass theirs on."""
    copies = Copies(100.0)
    directory = Directory(GROUP, 5)
    for start in range(0, 2 * WATCHERS_MAX, COPY_MEMBERS_MAX):
        watching = [longest(start + number) for number in range(COPY_MEMBERS_MAX)]
        if is_merged or not start:
            (message,) = copy_parts(directory, watching, 5 if is_merged else None)
        else:
            message = Copy(GROUP, 5 + start - COPY_MEMBERS_MAX, 5 + start, True, True, [], [], watching, [])
        assert copies.receive(OWNER, message, 0.0)[0] == message.version
    held = copies.held[GROUP]
    assert list(held.watchers) == [longest(number).id for number in range(WATCHERS_MAX)]
    if not is_merged:
        assert copies.refused == WATCHERS_MAX
    held.apply(Copy(GROUP, 5, 9, True, True, [], [], [longest(9999)], [longest(0).id]), 100.0)
    assert longest(9999).id in held.watchers, "whoever goes makes room"


def test_what_is_left_of_a_directory_that_was_handed_over_is_kept_if_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.copies.GROUPS_MAX", 1)
    copies = Copies(100.0)
    for name in (b"g", b"h"):
        copies.keep(HeldCopy(Directory(GroupId(name * 16), 5), {}, OWNER, 100.0))
    assert list(copies.held) == [GROUP]
    assert copies.refused == 1


@pytest.mark.parametrize("is_same", [True, False])
def test_an_owner_goes_on_from_its_own_latest_version(is_same: bool) -> None:
    """One that comes late does not put a copy back; the versions of another owner do not count for it."""
    copies = Copies(100.0)
    (late,), (newer,) = copy_parts(Directory(GROUP, 5), ()), copy_parts(Directory(GROUP, 9), ())
    sender = OWNER if is_same else NodeId(b"p" * 16)
    copies.receive(OWNER, newer, 0.0)
    assert copies.receive(sender, late, 1.0) == (5, False)
    version = 9 if is_same else 5
    change = Copy(GROUP, version, 10, True, True, [], [], [], [])
    assert copies.receive(sender, change, 2.0) == (10, False)
