"""The followers of a directory: what each has, and who waits for them."""

from __future__ import annotations

import pytest

from iris_overlay.groups.followers import ATTEMPTS_WAITED_MAX, PENDINGS_MAX, Follower, FollowerKind, Followers, PendingChange
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo

INFO = NodeInfo(NodeId(b"f" * 16), ())
KEY = (FollowerKind.WATCHER, INFO.id)


def following(wants: int, sent: int) -> tuple[Followers, Follower]:
    """Return a watcher that wants a version, and was sent one."""
    followers, follower = Followers(), Follower(INFO, 0.0)
    followers.members[FollowerKind.WATCHER][INFO.id] = follower
    followers.touch(FollowerKind.WATCHER, follower, wants)
    follower.sent, follower.is_stale = sent, False
    followers.due.clear()
    return followers, follower


@pytest.mark.parametrize("version", [1, 5])
def test_who_has_what_it_was_sent_waits_for_no_more(version: int) -> None:
    followers, follower = following(wants=version, sent=version)
    assert followers.unsettled == {KEY: follower}
    assert followers.acknowledge(FollowerKind.WATCHER, INFO.id, version) is follower
    assert (follower.told, follower.sent, follower.is_stale) == (version, version, False)
    assert followers.unsettled == {}
    assert not followers.is_awaited
    assert followers.due == {}


@pytest.mark.parametrize("version", [0, 6])
def test_who_has_another_version_than_it_was_sent_is_told_everything(version: int) -> None:
    """It had nothing, or follows another root that is ahead."""
    followers, follower = following(wants=5, sent=5)
    followers.acknowledge(FollowerKind.WATCHER, INFO.id, version)
    assert (follower.told, follower.sent, follower.is_stale) == (-1, -1, True)
    assert followers.due == {KEY: follower}
    assert followers.is_awaited


def test_a_registration_waits_until_its_version_is_known() -> None:
    followers, _ = following(wants=7, sent=7)
    early, late = PendingChange(INFO, 1, {KEY: 6}, 9.0), PendingChange(INFO, 2, {KEY: 7}, 9.0)
    other = PendingChange(INFO, 3, {(FollowerKind.COPY, INFO.id): 6}, 9.0)
    followers.pendings = {NodeId(bytes([index]) * 16): each for index, each in enumerate((early, late, other))}
    followers.acknowledge(FollowerKind.WATCHER, INFO.id, 6)
    assert (early.waiting, late.waiting, len(other.waiting)) == ({}, {KEY: 7}, 1)
    assert followers.due == {}, "the rest of it is in transit"
    followers.acknowledge(FollowerKind.WATCHER, INFO.id, 7)
    assert late.waiting == {}


@pytest.mark.parametrize("told", [-1, 7])
def test_an_acknowledgement_of_an_earlier_message_causes_no_further_one(told: int) -> None:
    """The message in transit contains the later changes, and a repetition of it would be one more message at a time."""
    followers, follower = following(wants=8, sent=7)
    follower.told = told
    assert followers.acknowledge(FollowerKind.WATCHER, INFO.id, 6) is follower
    assert (follower.told, follower.sent, follower.is_stale) == (max(told, 6), 7, False)
    assert (followers.due != {}) == (told == 7), "a message is in transit, or the next one is due"


def test_who_does_not_follow_is_told_nothing() -> None:
    followers, _ = following(wants=1, sent=1)
    assert followers.acknowledge(FollowerKind.WATCHER, NodeId(b"x" * 16), 1) is None
    assert followers.acknowledge(FollowerKind.COPY, INFO.id, 1) is None


def test_nobody_waits_for_who_has_the_version_or_is_silent() -> None:
    followers, follower = following(wants=7, sent=7)
    followers.acknowledge(FollowerKind.WATCHER, INFO.id, 6)
    for stamp, version in enumerate((6, 7)):
        followers.wait(NodeInfo(NodeId(bytes([stamp]) * 16), ()), stamp, version, 9.0)
    done, late = followers.completed(1.0)
    assert ([pending.stamp for pending in done], late) == ([0], 0)
    follower.attempts = ATTEMPTS_WAITED_MAX
    followers.wait(INFO, 2, 7, 9.0)
    done, late = followers.completed(1.0)
    assert ([pending.stamp for pending in done], late) == ([2], 0)


def waiting_for(followers: Followers) -> list[tuple[NodeId, int]]:
    return [(node, pending.stamp) for node, pending in followers.pendings.items()]


def test_what_a_node_repeats_waits_once_and_what_it_said_before_no_more() -> None:
    followers, _ = following(wants=7, sent=7)
    for stamp in (5, 5, 6, 4):
        assert followers.wait(INFO, stamp, 7, 9.0) is None
    assert waiting_for(followers) == [(INFO.id, 6)]


def test_who_waits_is_bounded_and_who_has_waited_for_longest_is_acknowledged() -> None:
    followers, _ = following(wants=7, sent=7)
    infos = [NodeInfo(NodeId(number.to_bytes(16, "big")), ()) for number in range(PENDINGS_MAX + 2)]
    hurried = [followers.wait(info, 1, 7, 9.0) for info in infos]
    assert [pending.info for pending in hurried if pending is not None] == infos[:2]
    assert waiting_for(followers) == [(info.id, 1) for info in infos[2:]]


def test_who_is_told_again_what_it_has_is_not_waited_for() -> None:
    followers, follower = following(wants=5, sent=5)
    followers.acknowledge(FollowerKind.WATCHER, INFO.id, 5)
    followers.touch(FollowerKind.WATCHER, follower, 5)
    assert followers.due == {KEY: follower}
    assert not followers.is_awaited
