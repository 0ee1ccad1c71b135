"""Two directories of one group: which says more."""

from __future__ import annotations

import random

import pytest

from iris_overlay.groups.copies import HeldCopy
from iris_overlay.groups.directory import Directory, accusation_of
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.handover import knows_better, merge, revive
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import PROBED_MEMBERS_MAX, Accused, MemberRecord
from iris_overlay.groups.root import GroupRoot
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

NODES = [NodeInfo(NodeId(number.to_bytes(16, "big")), ()) for number in range(PROBED_MEMBERS_MAX + 1)]


def directory(members: dict[int, int], dead: dict[int, int] | None = None) -> Directory:
    """Return a directory of members and of dead ones, with their stamps."""
    made = Directory(GroupId(b"g" * 16), 1)
    for number, stamp in (dead or {}).items():
        made.remove(NODES[number].id, stamp, 100.0)
    for number, stamp in members.items():
        made.register(MemberRecord(NODES[number], b"", stamp), 100.0)
    return made


def test_who_knows_a_member_that_the_other_lacks_knows_better() -> None:
    assert knows_better(directory({1: 1}), directory({}))
    assert knows_better(directory({1: 2}), directory({1: 1}))
    assert not knows_better(directory({1: 1}), directory({1: 1}))
    assert not knows_better(directory({1: 1}), directory({1: 2}))


def test_a_registration_that_the_other_knows_to_be_over_is_no_better() -> None:
    assert not knows_better(directory({1: 3}), directory({}, dead={1: 3}))
    assert not knows_better(directory({1: 3}), directory({}, dead={1: 4}))
    assert knows_better(directory({1: 4}), directory({}, dead={1: 3}))


def test_who_knows_of_a_death_that_the_other_does_not_knows_better() -> None:
    assert knows_better(directory({}, dead={1: 3}), directory({1: 3}))
    assert not knows_better(directory({}, dead={1: 3}), directory({1: 4}))
    assert not knows_better(directory({}, dead={1: 3}), directory({2: 1}))


def test_large_groups_are_not_compared() -> None:
    assert knows_better(directory(dict.fromkeys(range(PROBED_MEMBERS_MAX), 1)), directory({}))
    assert not knows_better(directory(dict.fromkeys(range(PROBED_MEMBERS_MAX + 1), 1)), directory({}))


def test_a_watcher_that_another_root_knew_is_given_its_attempts_anew() -> None:
    root = GroupRoot(directory({1: 1}), NODES[0], random.Random(1), Outbox())
    root.watch(NODES[5], 1, 0, 100.0, None)
    watcher = root.followers.members[FollowerKind.WATCHER][NODES[5].id]
    watcher.attempts = 2
    merge(root, HeldCopy(directory({1: 1}), {NODES[5].id: NODES[5]}, NODES[2].id, 100.0), 100.0, Outbox(), 1.0)
    assert watcher.attempts == 0


def test_members_that_were_taken_over_have_the_time_to_renew() -> None:
    held = HeldCopy(directory({1: 1, 2: 1}), {}, NODES[3].id, 100.0)
    held.floor = 5 << 32
    revived = revive(held, 50.0)
    assert revived.version == 6 << 32, "beyond all that anybody was told"
    assert revived.expire(49.0) == []
    assert set(revived.expire(50.0)) == {NODES[1].id, NODES[2].id}


@pytest.mark.parametrize(
    ("members", "watchers", "is_as_new", "expected"),
    [
        pytest.param({1: 1}, {}, False, False, id="nothing new"),
        pytest.param({1: 1, 2: 1}, {}, False, True, id="a member"),
        pytest.param({1: 1}, {NODES[5].id: NODES[5]}, False, True, id="a watcher"),
        pytest.param({1: 1}, {}, True, True, id="as new as what is here"),
    ],
)
def test_everybody_is_told_everything_if_there_is_anything_new(
    members: dict[int, int], watchers: dict[NodeId, NodeInfo], is_as_new: bool, expected: bool
) -> None:
    root = GroupRoot(directory({1: 1}), NODES[0], random.Random(1), Outbox())
    root.begin_epoch()
    before = root.directory.version
    told = directory(members)
    if is_as_new:
        told.version = before
    assert merge(root, HeldCopy(told, watchers, NODES[3].id, 100.0), 100.0, Outbox(), 1.0) is expected
    assert (root.directory.version >> 32 > before >> 32) is expected


@pytest.mark.parametrize("is_dead_here", [True, False])
def test_who_is_dead_in_one_directory_and_a_member_in_the_other_is_asked(is_dead_here: bool) -> None:
    stamp = accusation_of(1)
    alive, dead = directory({1: 1}), directory({}, dead={1: stamp})
    here, told = (dead, alive) if is_dead_here else (alive, dead)
    root, outbox = GroupRoot(here, NODES[0], random.Random(1), Outbox()), Outbox()
    merge(root, HeldCopy(told, {}, NODES[3].id, 100.0), 100.0, outbox, 1.0)
    assert outbox.posts == [(NODES[1].id, Accused(NODES[1].id, stamp))]
