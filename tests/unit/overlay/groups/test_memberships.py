"""The member side: registering, renewing, leaving."""

from __future__ import annotations

import random

import pytest

from iris_overlay.environment import WallClock
from iris_overlay.events import Counters, GroupJoined, GroupLeft
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.directory import INCARNATIONS_BELIEVED
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.memberships import (
    COMMANDS_MAX,
    HIDDEN_ASKED_S,
    INCARNATION_LAST,
    ROUTED_MAX,
    OwnMemberships,
)
from iris_overlay.groups.messages import (
    PROBED_MEMBERS_MAX,
    STAMP_SHIFT,
    Applied,
    GroupMessage,
    GroupRegistration,
    Later,
    MemberRecord,
    Register,
    Unregister,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import SEQUENCE_MAX, NodeInfo
from iris_py.testing.cores.signer import TrustingSigner

LOCAL = NodeInfo(NodeId(b"local".ljust(16)), ("192.0.2.1:1",))
ROOT = NodeInfo(NodeId(b"root".ljust(16)), ("192.0.2.2:1",))
PEERS = [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, 100)]
A, B = GroupId(b"a" * 16), GroupId(b"b" * 16)
CONFIG = GroupConfig()


class Fixture:
    """A member side and what it sends."""

    def __init__(self, *, is_active: bool = True, seed: int = 1, local: NodeInfo = LOCAL) -> None:
        self.outbox = Outbox()
        self.counters = Counters()
        self.members = OwnMemberships(
            local, CONFIG, random.Random(seed), self.outbox, self.counters, TrustingSigner(local.id), WallClock()
        )
        if is_active:
            self.members.activate(0.0)

    def sent(self) -> list[tuple[object, GroupMessage]]:
        posts, self.outbox.posts = self.outbox.posts, []
        return list(posts)

    def completed(self) -> list[object]:
        done: list[object] = list(self.members.completions)
        self.members.completions.clear()
        return done


def register(group: GroupId, stamp: int, attributes: bytes = b"", since: int = 0) -> Register:
    return Register(LOCAL, [GroupRegistration(group, attributes, stamp, since=since)])


def test_a_join_is_routed_and_completes_when_it_is_applied() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"x", 1.0)
    assert fixture.sent() == [(A, register(A, 1, b"x", 1000))]
    assert fixture.completed() == []
    fixture.members.applied(Applied(ROOT, [(A, 1, 5, True)]), 1.0)
    assert fixture.completed() == [GroupJoined(A)]
    assert fixture.members.root_of(A) == ROOT
    assert fixture.members.needs(ROOT.id)
    assert not fixture.members.is_busy


def member(since: int) -> MemberRecord:
    return MemberRecord(ROOT, b"", 1, since=since)


def test_a_newcomer_says_to_have_joined_after_all_others() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"x", 1.0)
    fixture.sent()
    fixture.members.later(Later(A, member(5000)), 1.1)
    assert fixture.sent() == [(A, register(A, 2, b"x", 5001))]
    fixture.members.applied(Applied(ROOT, [(A, 1, 5, True)]), 1.2)
    assert fixture.completed() == [], "that was the earlier registration"
    fixture.members.applied(Applied(ROOT, [(A, 2, 5, True)]), 1.2)
    assert fixture.completed() == [GroupJoined(A)]


def test_a_newcomer_does_not_join_later_because_of_itself() -> None:
    """A cast of its own was older than its membership, which the root tells it: it would join later without end."""
    fixture = Fixture()
    fixture.members.join(A, b"x", 1.0)
    fixture.sent()
    fixture.members.later(Later(A, MemberRecord(LOCAL, b"x", 1, since=1000)), 1.1)
    assert fixture.sent() == []


def test_who_is_a_member_stays_one_since_it_joined() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"x", 1.0)
    fixture.members.later(Later(A, member(999)), 1.0)
    fixture.members.later(Later(A, member(SEQUENCE_MAX)), 1.0)
    fixture.members.later(Later(B, member(5000)), 1.0)
    assert fixture.sent() == [(A, register(A, 1, b"x", 1000))]
    fixture.members.applied(Applied(ROOT, [(A, 1, 5, True)]), 1.0)
    fixture.members.later(Later(A, member(5000)), 2.0)
    assert fixture.sent() == [], "or it would drop what is on its way"
    fixture.members.join(A, b"y", 3.0)
    assert fixture.sent() == [(ROOT, register(A, 2, b"y", 1000))]


def test_nothing_is_sent_before_there_is_a_ring() -> None:
    fixture = Fixture(is_active=False)
    fixture.members.join(A, b"", 0.0)
    fixture.members.handle_timeout(10.0)
    assert fixture.sent() == []
    assert fixture.completed() == []
    fixture.members.activate(20.0)
    assert fixture.sent() == [(A, register(A, 1))]
    fixture.members.handle_timeout(21.0)
    assert fixture.completed() == [GroupJoined(A)]


def test_an_unanswered_join_completes_after_its_bound_and_is_tried_again() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.sent()
    assert fixture.members.deadline() == 1.0
    fixture.members.handle_timeout(1.0)
    assert fixture.completed() == [GroupJoined(A)]
    assert fixture.counters.changes_unconfirmed == 1
    times = []
    for tenth in range(10, 600):
        fixture.members.handle_timeout(tenth / 10)
        times += [tenth / 10] * len(fixture.sent())
    assert times[:4] == [1.5, 3.0, 6.0, 12.0]


def test_a_leave_completes_when_it_is_applied() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 1.0)
    fixture.sent()
    fixture.completed()
    fixture.members.leave(A, 1.0)
    assert fixture.sent() == [(ROOT, Unregister(LOCAL, [(A, 2)]))]
    fixture.members.applied(Applied(ROOT, [(A, 2, 0, False)]), 1.0)
    assert fixture.completed() == [GroupLeft(A)]
    assert fixture.members.deadline() is None
    fixture.members.leave(A, 2.0)
    assert fixture.completed() == [GroupLeft(A)]
    assert fixture.sent() == []


def test_a_leave_that_nobody_applies_ends() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.leave(A, 0.0)
    for second in range(1, 400):
        fixture.members.handle_timeout(float(second))
    assert fixture.members.deadline() is None


def test_renewals_go_out_in_one_message_per_root() -> None:
    fixture = Fixture()
    for group in (A, B):
        fixture.members.join(group, b"", 0.0)
        fixture.members.applied(Applied(ROOT, [(group, fixture.members.stamp, 1, True)]), 1.0)
    fixture.sent()
    deadline = fixture.members.deadline()
    assert deadline is not None
    assert 54.0 <= deadline <= 66.0
    fixture.members.handle_timeout(deadline)
    assert fixture.sent() == [(ROOT, Register(LOCAL, [GroupRegistration(A, b"", 1), GroupRegistration(B, b"", 2)]))]
    fixture.members.handle_timeout(deadline + CONFIG.resend_s)
    assert fixture.sent() == [(A, register(A, 1)), (B, register(B, 2))]


def test_members_of_a_dead_root_register_at_once() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 1.0)
    fixture.sent()
    fixture.members.lose_root(ROOT.id, 5.0)
    fixture.members.handle_timeout(5.0)
    assert fixture.sent() == [(A, register(A, 1))]


def test_who_handed_the_directory_over_misses_the_new_root() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.join(B, b"", 0.0)
    fixture.members.applied(Applied(LOCAL, [(A, 1, 1, True)]), 1.0)
    fixture.members.applied(Applied(PEERS[0], [(B, 2, 1, True)]), 1.0)
    fixture.members.root_moved(A, ROOT)
    fixture.members.root_moved(B, ROOT)  # which had told that it has the directory before that was known here
    fixture.sent()
    fixture.members.lose_root(ROOT.id, 5.0)
    fixture.members.handle_timeout(5.0)
    assert fixture.sent() == [(A, register(A, 1))]


def test_many_deaths_do_not_make_a_registration_wait_for_long() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    for number, peer in enumerate(PEERS[:20]):  # half a network is gone, and any of them may have had it
        fixture.members.lose_root(peer.id, 0.1 * number)
        fixture.members.handle_timeout(0.1 * number)
    fixture.sent()
    fixture.members.handle_timeout(2.0 + CONFIG.resend_s)
    assert fixture.sent() == [(A, register(A, 1))]


def test_many_members_of_a_dead_root_do_not_all_register_at_the_same_moment() -> None:
    first_s = []
    for seed in range(5):
        fixture = Fixture(seed=seed)
        fixture.members.join(A, b"", 0.0)
        fixture.members.applied(Applied(ROOT, [(A, 1, PROBED_MEMBERS_MAX + 1, True)]), 1.0)
        fixture.members.lose_root(ROOT.id, 5.0)
        first_s.append(fixture.members.deadline())
    assert len(set(first_s)) == 5
    assert all(second is not None and 5.0 < second <= 5.0 + CONFIG.repair_jitter_s for second in first_s)


def test_what_nobody_acknowledged_is_sent_again_when_somebody_dies() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.sent()
    fixture.members.lose_root(ROOT.id, 0.1)
    fixture.members.handle_timeout(0.1)
    assert fixture.sent() == [(A, register(A, 1))]


def test_a_declared_death_is_refuted_with_a_new_incarnation() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.sent()
    assert fixture.members.accused((1 << 32) - 1, 1.0)
    assert fixture.sent() == [(A, register(A, (1 << 32) + 1))]
    assert not fixture.members.accused((1 << 32) - 1, 1.0)
    fixture.members.applied(Applied(ROOT, [(A, (1 << 32) + 1, 1, True)]), 1.0)
    assert fixture.completed() == [GroupJoined(A)]


def test_a_membership_that_is_none_is_ended() -> None:
    fixture = Fixture()
    fixture.members.stamp = 7
    fixture.members.applied(Applied(ROOT, [(A, 3, 1, True), (B, 3, 1, False)]), 1.0)
    assert fixture.sent() == [(ROOT, Unregister(LOCAL, [(A, 7)]))]


def test_who_was_accused_while_it_joined_registers_again_through_the_ring() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.sent()
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, False)]), 1.0)
    assert fixture.completed() == [GroupJoined(A)]
    assert fixture.sent() == [(A, register(A, 1))]
    assert fixture.members.roots() == []


def test_a_hidden_member_of_a_hidden_root_registers_again_and_again() -> None:
    """No link between them ends, and no datagram stays unanswered: nothing else tells that the root is gone."""
    hidden, root = PEERS[:2]
    for local, at, is_again in ((hidden, root, True), (hidden, ROOT, False), (LOCAL, root, False), (hidden, hidden, False)):
        fixture = Fixture(local=local)
        fixture.members.join(A, b"", 0.0)
        fixture.members.applied(Applied(at, [(A, 1, 1, True)]), 1.0)
        fixture.sent()
        fixture.members.handle_timeout(1.0 + HIDDEN_ASKED_S / 2)
        assert fixture.sent() == []
        fixture.members.handle_timeout(1.0 + HIDDEN_ASKED_S)
        expected = [(A, Register(local, [GroupRegistration(A, b"", 1)]))]
        assert fixture.sent() == (expected if is_again else [])


def test_waiting_commands_are_bounded() -> None:
    fixture = Fixture()
    for _ in range(COMMANDS_MAX + 5):
        fixture.members.join(A, b"", 0.0)
    assert len(fixture.completed()) == 5
    fixture.members.applied(Applied(ROOT, [(A, fixture.members.stamp, 1, True)]), 1.0)
    assert len(fixture.completed()) == COMMANDS_MAX


def test_a_leave_is_told_again_until_it_would_have_expired() -> None:
    fixture = Fixture()
    for group in (A, B):
        fixture.members.join(group, b"", 0.0)
        fixture.members.applied(Applied(ROOT, [(group, fixture.members.stamp, 1, True)]), 0.0)
    fixture.members.leave(A, 0.0)
    fixture.members.leave(B, 1.0)
    fixture.sent()
    fixture.members.handle_timeout(CONFIG.expiry_s - 5.0)
    assert {target for target, _ in fixture.sent()} == {A, B}, "still"
    fixture.members.handle_timeout(CONFIG.expiry_s + 0.5)
    assert {target for target, _ in fixture.sent()} == {B}
    fixture.members.handle_timeout(CONFIG.expiry_s + 100.0)
    assert fixture.sent() == []
    assert fixture.members.deadline() is None


@pytest.mark.parametrize(("size", "is_needed"), [(PROBED_MEMBERS_MAX, True), (PROBED_MEMBERS_MAX + 1, False)])
def test_a_link_is_kept_to_the_root_of_a_small_group(size: int, is_needed: bool) -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, size, True)]), 0.1)
    assert fixture.members.needs(ROOT.id) is is_needed


def test_nobody_is_needed_for_a_group_whose_root_is_unknown() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    assert not fixture.members.needs(ROOT.id)


def test_each_command_waits_for_its_own_group() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.join(B, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(B, 2, 1, True)]), 0.1)
    assert fixture.completed() == [GroupJoined(B)]
    assert fixture.members.is_busy
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 0.2)
    assert fixture.completed() == [GroupJoined(A)]
    assert not fixture.members.is_busy


@pytest.mark.parametrize("how", ["renewed", "missed in a view", "stood still", "left"])
def test_what_was_answered_once_is_repeated_as_often_as_at_first_if_it_is_not_answered_again(how: str) -> None:
    fixture = Fixture()
    members = fixture.members
    members.join(A, b"", 0.0)
    members.handle_timeout(1.5)
    members.handle_timeout(3.0)  # has become patient
    members.applied(Applied(ROOT, [(A, 1, 1, True)]), 4.0)
    members.register_all(5.0)
    if how != "renewed":
        members.handle_timeout(6.5)  # twice without an answer
        members.handle_timeout(8.0)
    now = 5.0 if how == "renewed" else 9.0
    if how == "missed in a view":
        members.missed(A, now)
    elif how == "stood still":
        members.forget_roots()
        members.register_all(now)
    elif how == "left":
        members.leave(A, now)
    fixture.sent()
    times: list[float] = []
    while len(times) < 3:
        deadline = members.deadline()
        assert deadline is not None
        members.handle_timeout(deadline)
        times += [deadline - now] * len(fixture.sent())
    assert times == [1.5, 3.0, 6.0]


@pytest.mark.parametrize(("count", "is_forgotten"), [(ROUTED_MAX, True), (ROUTED_MAX + 1, False)])
def test_the_roots_of_few_groups_are_forgotten_by_a_node_that_stood_still(count: int, is_forgotten: bool) -> None:
    fixture = Fixture()
    groups = [GroupId(number.to_bytes(16, "big")) for number in range(count)]
    for group in groups:
        fixture.members.join(group, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(group, stamp, 1, True) for stamp, group in enumerate(groups, 1)]), 0.1)
    fixture.members.forget_roots()
    assert bool(fixture.members.roots()) is not is_forgotten


def test_only_the_end_of_the_link_to_the_root_makes_it_register_again() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 0.1)
    fixture.members.register_all(1.0)
    fixture.sent()
    fixture.members.link_lost(PEERS[0].id, 1.1)
    fixture.members.handle_timeout(1.1)
    assert fixture.sent() == []
    fixture.members.link_lost(ROOT.id, 1.2)
    fixture.members.handle_timeout(1.2)
    assert fixture.sent() == [(A, register(A, 1))]
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 1.3)
    fixture.members.link_lost(ROOT.id, 1.4)
    assert fixture.members.root_of(A) == ROOT, "nothing was under way"


def test_members_of_a_small_group_are_to_register_at_the_moment_that_its_root_dies() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, PROBED_MEMBERS_MAX, True)]), 0.1)
    fixture.members.lose_root(ROOT.id, 5.0)
    assert fixture.members.deadline() == 5.0


@pytest.mark.parametrize("lie", [INCARNATIONS_BELIEVED, INCARNATION_LAST])
def test_one_lie_does_not_bring_a_member_to_the_end_of_its_stamps(lie: int) -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.sent()
    assert not fixture.members.accused(lie << STAMP_SHIFT, 1.0)
    assert fixture.sent() == []
    assert fixture.members.accused(0, 1.0)  # the true one is denied
    assert fixture.sent() == [(A, register(A, (1 << STAMP_SHIFT) + 1))]


def test_a_lie_that_a_directory_may_believe_is_overtaken_and_what_follows_counts_by_one() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    for accused in (INCARNATIONS_BELIEVED - 1, INCARNATIONS_BELIEVED, INCARNATIONS_BELIEVED + 1):
        fixture.sent()
        assert fixture.members.accused(accused << STAMP_SHIFT, 1.0)
        assert fixture.sent() == [(A, register(A, ((accused + 1) << STAMP_SHIFT) + 1))]
    assert not fixture.members.accused((INCARNATIONS_BELIEVED + 5) << STAMP_SHIFT, 1.0)


def test_nothing_is_said_that_others_would_refuse() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.stamp = (INCARNATION_LAST << STAMP_SHIFT) + 1
    fixture.sent()
    assert not fixture.members.accused(INCARNATION_LAST << STAMP_SHIFT, 1.0)
    assert fixture.sent() == []
    fixture.members.register_all(2.0)
    for _, message in fixture.sent():
        assert decode_group_message(encode_group_message(message)) == message


def test_the_root_that_was_asked_is_none_any_more() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 0.1)
    fixture.members.register_all(1.0)
    fixture.sent()
    fixture.members.moved(A, PEERS[0].id, 1.1)
    fixture.members.moved(B, ROOT.id, 1.1)
    assert fixture.sent() == [], "another node was asked, and for another group"
    fixture.members.moved(A, ROOT.id, 1.1)
    assert fixture.sent() == [(A, Register(LOCAL, [GroupRegistration(A, b"", 1)]))]
    assert fixture.members.root_of(A) is None
    fixture.members.moved(A, ROOT.id, 1.1)
    assert fixture.sent() == [], "it asks through the ring already"


def test_a_group_that_was_left_is_left_at_the_root_that_is_one() -> None:
    fixture = Fixture()
    fixture.members.join(A, b"", 0.0)
    fixture.members.applied(Applied(ROOT, [(A, 1, 1, True)]), 0.1)
    fixture.members.leave(A, 1.0)
    fixture.sent()
    fixture.members.moved(A, ROOT.id, 1.1)
    assert fixture.sent() == [(A, Unregister(LOCAL, [(A, 2)]))]
