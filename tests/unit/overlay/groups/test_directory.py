"""The directory of a group: stamps, tombstones, changes; copies of it, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.groups.copies import Copies, HeldCopy, copy_parts
from iris_overlay.groups.directory import LOG_MAX, TOMBSTONES_MAX, Directory, Outcome, accusation_of, is_accusation
from iris_overlay.groups.messages import COPY_MEMBERS_MAX, Copy, MemberRecord
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from tests.profiles import examples

if TYPE_CHECKING:
    import random

GROUP = GroupId(b"group".ljust(16))
OWNER, OTHER = NodeId(b"owner".ljust(16)), NodeId(b"other".ljust(16))


def info(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ())


def record(number: int, stamp: int, attributes: bytes = b"") -> MemberRecord:
    return MemberRecord(info(number), attributes, stamp)


def directory_of(*records: MemberRecord) -> Directory:
    directory = Directory(GROUP, 1)
    for one in records:
        directory.register(one, 100.0)
    return directory


def test_the_newest_registration_is_right() -> None:
    directory = directory_of(record(1, 5, b"old"))
    assert directory.register(record(1, 4, b"older"), 200.0) is Outcome.OUTDATED
    assert directory.register(record(1, 5, b"old"), 200.0) is Outcome.RENEWED
    assert directory.members[info(1).id].expires == 200.0
    assert directory.register(record(1, 6, b"new"), 200.0) is Outcome.CHANGED
    assert directory.members[info(1).id].record.attributes == b"new"


def test_who_left_stays_away_until_it_registers_anew() -> None:
    directory = directory_of(record(1, 5))
    assert directory.remove(info(1).id, 6, 100.0)
    assert directory.register(record(1, 5), 100.0) is Outcome.OUTDATED
    assert directory.register(record(1, 6), 100.0) is Outcome.OUTDATED, "that is the stamp of the leave itself"
    assert directory.register(record(1, 7), 100.0) is Outcome.CHANGED
    assert not directory.remove(info(1).id, 6, 100.0)


def test_an_accusation_ends_an_incarnation() -> None:
    directory = directory_of(record(1, 5))
    assert directory.remove(info(1).id, accusation_of(3), 100.0)
    assert directory.register(record(1, 1000), 100.0) is Outcome.ACCUSED
    assert is_accusation(directory.tombstones[info(1).id][0])
    assert directory.register(record(1, 1 << 32), 100.0) is Outcome.CHANGED


def test_a_late_accusation_does_not_reach_the_next_incarnation() -> None:
    directory = directory_of(record(1, 1 << 32))
    assert not directory.remove(info(1).id, accusation_of(0), 100.0)


def test_soft_state_expires() -> None:
    directory = directory_of(record(1, 1), record(2, 1))
    directory.register(record(2, 1), 200.0)
    directory.remove(info(3).id, 1, 100.0)
    assert directory.expire(99.0) == []
    assert directory.expire(100.0) == [info(1).id]
    assert directory.tombstones == {}


def test_tombstones_are_bounded() -> None:
    directory = directory_of()
    for number in range(TOMBSTONES_MAX + 10):
        directory.remove(info(number).id, 1, 100.0)
    assert len(directory.tombstones) == TOMBSTONES_MAX
    assert info(9).id not in directory.tombstones


def test_changes_since_a_version_are_known_for_a_while() -> None:
    directory = directory_of(record(1, 1), record(2, 1))
    version = directory.version
    directory.register(record(3, 1), 100.0)
    directory.remove(info(1).id, 2, 100.0)
    assert set(directory.changed_since(version) or ()) == {info(1).id, info(3).id}
    assert directory.changed_since(directory.version) == []
    assert directory.changed_since(directory.version + 1) is None
    for number in range(LOG_MAX + 5):
        directory.register(record(number + 10, 1), 100.0)
    assert directory.changed_since(version) is None
    directory.begin_epoch()
    assert directory.changed_since(directory.version - 1) is None


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 6)), max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_what_is_said_does_not_matter(statements: list[tuple[bool, int, int]], rng: random.Random) -> None:
    def apply(order: list[tuple[bool, int, int]]) -> dict[NodeId, int]:
        directory = directory_of()
        for is_member, number, stamp in order:
            if is_member:
                directory.register(record(number, 2 * stamp), 100.0)
            else:
                directory.remove(info(number).id, 2 * stamp + 1, 100.0)
        return {node: member.record.stamp for node, member in directory.members.items()}

    shuffled = list(statements)
    rng.shuffle(shuffled)
    assert apply(statements) == apply(shuffled)


def test_a_large_directory_is_copied_in_parts() -> None:
    directory = directory_of(*(record(number, 1) for number in range(3 * COPY_MEMBERS_MAX + 1)))
    directory.remove(info(0).id, 2, 100.0)
    parts = copy_parts(directory, [info(9)])
    assert len(parts) == 3
    copies = Copies(180.0)
    assert [copies.receive(OWNER, part, 0.0)[0] for part in parts] == [None, None, directory.version]
    held = copies.held[GROUP]
    assert held.directory.members.keys() == directory.members.keys()
    assert held.directory.tombstones.keys() == directory.tombstones.keys()
    assert held.watchers == {info(9).id: info(9)}


def test_a_change_applies_to_its_base_alone() -> None:
    directory = directory_of(record(1, 1))
    copies = Copies(180.0)
    (whole,) = copy_parts(directory, [])
    copies.receive(OWNER, whole, 0.0)
    change = Copy(GROUP, directory.version, 50, True, True, [record(2, 1)], [(info(1).id, 0)], [info(3)], [])
    assert copies.receive(OTHER, change, 0.0) == (0, False)
    assert copies.receive(OWNER, change, 0.0) == (50, False)
    assert copies.receive(OWNER, change, 0.0) == (0, False)
    assert list(copies.held[GROUP].directory.members) == [info(2).id]


def test_a_copy_of_another_owner_is_merged_and_said_to_be_more() -> None:
    copies = Copies(180.0)
    (first,) = copy_parts(directory_of(record(1, 1), record(2, 1)), [info(8)])
    later = directory_of(record(3, 1))
    later.remove(info(2).id, 2, 100.0)
    (second,) = copy_parts(later, [])
    copies.receive(OWNER, first, 0.0)
    assert copies.receive(OTHER, second, 0.0) == (later.version, True)
    held = copies.held[GROUP]
    assert set(held.directory.members) == {info(1).id, info(3).id}
    assert held.owner == OTHER
    assert copies.receive(OTHER, second, 0.0) == (later.version, True)  # It has not heard of the first yet.
    assert set(copies.held[GROUP].directory.members) == {info(1).id, info(3).id}
    later.register(record(1, 1), 100.0)
    (all_of_it,) = copy_parts(later, [info(8)])
    assert copies.receive(OTHER, all_of_it, 0.0) == (later.version, False)
    later.remove(info(1).id, 2, 100.0)
    (fewer,) = copy_parts(later, [])
    assert copies.receive(OTHER, fewer, 0.0) == (later.version, False)  # It knows what it says.
    assert set(copies.held[GROUP].directory.members) == {info(3).id}
    assert copies.held[GROUP].watchers == {}


def test_a_part_without_its_beginning_is_refused() -> None:
    directory = directory_of(*(record(number, 1) for number in range(2 * COPY_MEMBERS_MAX)))
    parts = copy_parts(directory, [])
    copies = Copies(180.0)
    assert copies.receive(OWNER, parts[1], 0.0) == (0, False)
    assert len(copies) == 0


def test_copies_expire_and_are_dropped_by_their_owner() -> None:
    copies = Copies(180.0)
    (whole,) = copy_parts(directory_of(record(1, 1)), [])
    copies.receive(OWNER, whole, 0.0)
    copies.drop(GROUP, OTHER)
    copies.expire(179.0)
    assert GROUP in copies.held
    copies.expire(180.0)
    assert len(copies) == 0
    copies.held[GROUP] = HeldCopy(directory_of(), {}, OWNER, 1000.0)
    copies.drop(GROUP, OWNER)
    assert len(copies) == 0


def test_as_many_changes_are_known_as_are_remembered() -> None:
    directory = directory_of()
    version = directory.version
    for number in range(LOG_MAX):
        directory.register(record(number, 1), 100.0)
    assert set(directory.changed_since(version) or ()) == {info(number).id for number in range(LOG_MAX)}
    directory.register(record(LOG_MAX, 1), 100.0)
    assert directory.changed_since(version) is None
    assert len(directory.changed_since(version + 1) or ()) == LOG_MAX


def test_what_is_said_again_of_who_left_is_not_remembered_for_longer() -> None:
    """Else neighbours that tell each other would remember it for ever."""
    directory = directory_of()
    for expires in (100.0, 200.0):
        directory.remove(info(1).id, 1, expires)
    directory.expire(100.0)
    assert directory.tombstones == {}
    directory.remove(info(1).id, 1, 100.0)
    directory.remove(info(1).id, 2, 200.0)
    directory.expire(100.0)
    assert directory.tombstones == {info(1).id: (2, 200.0)}
