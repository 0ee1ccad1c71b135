"""The member side of tables: one claim in transit, changes rather than everything, and answers to roots that ask for all."""

from __future__ import annotations

import random

import pytest

from iris_overlay.environment import WallClock
from iris_overlay.events import ClaimConfirmed, Claimed, Counters, GroupLeft
from iris_overlay.groups import entries
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.memberships import COMMANDS_MAX, RECLAIM_S, OwnMemberships
from iris_overlay.groups.messages import (
    STAMP_SHIFT,
    Applied,
    Claim,
    GroupMessage,
    GroupRegistration,
    Later,
    MemberRecord,
    Reclaim,
    Unregister,
    decode_group_message,
    encode_group_message,
    member_part,
)
from iris_overlay.groups.own_entries import OwnEntries
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import NamedSigner

LOCAL = NodeInfo(NodeId(b"local".ljust(16)), ("192.0.2.1:1",))
ROOT = NodeInfo(NodeId(b"root".ljust(16)), ("192.0.2.2:1",))
OTHER = NodeInfo(NodeId(b"other".ljust(16)), ("192.0.2.3:1",))
T = GroupId(b"t" * 16)
CONFIG = GroupConfig()


def packed(*numbers: int) -> bytes:
    return entries.pack((number, 0, 0) for number in numbers)


class Fixture:
    """A member side and what it sends."""

    def __init__(self, *, is_active: bool = True) -> None:
        self.outbox = Outbox()
        self.counters = Counters()
        self.signer = NamedSigner(LOCAL.id)
        self.members = OwnMemberships(LOCAL, CONFIG, random.Random(1), self.outbox, self.counters, self.signer, WallClock())
        if is_active:
            self.members.activate(0.0)

    def claim(self, added: bytes, removed: bytes = b"", now: float = 1.0, attributes: bytes = b"x") -> int:
        return self.members.claim(T, attributes, added, removed, now)

    def sent(self) -> list[tuple[object, GroupMessage]]:
        posts, self.outbox.posts = self.outbox.posts, []
        assert all(decode_group_message(encode_group_message(message)) == message for _, message in posts)
        return list(posts)

    def claims(self, now: float | None = None) -> list[tuple[object, int, int, bytes, bytes]]:
        """Let the turn end; return where claims go, and what they say."""
        if now is not None:
            self.members.handle_timeout(now)
        found = []
        for target, message in self.sent():
            assert isinstance(message, Claim)
            record = MemberRecord(message.info, message.attributes, message.stamp)
            assert self.signer.is_permitted(T, member_part(record, LOCAL.id), message.permit)
            own = self.members.entries_of(T)
            assert (message.count, message.checksum) == (entries.count(own), entries.checksum(own))
            found.append((target, message.stamp, message.base, message.added, message.removed))
        return found

    def apply(self, stamp: int, now: float = 1.0, *, is_member: bool = True) -> None:
        self.members.applied(Applied(ROOT, [(T, stamp, 5, is_member)]), now)

    def completed(self) -> list[object]:
        done: list[object] = list(self.members.completions)
        self.members.completions.clear()
        return done


def joined(*numbers: int) -> Fixture:
    """Return a member whose root has its entries."""
    fixture = Fixture()
    fixture.claim(packed(*numbers))
    fixture.claims(1.0)
    fixture.apply(1)
    fixture.completed()
    return fixture


def test_claims_of_one_turn_are_routed_and_completed_together() -> None:
    fixture = Fixture()
    number = fixture.claim(packed(1))
    assert fixture.claim(packed(2), packed(1)) == fixture.claim(packed(3)) == number
    assert fixture.sent() == [], "the turn has not ended"
    assert fixture.members.deadline() == 1.0
    assert fixture.claims(1.0) == [(T, 3, 0, packed(2, 3), b"")]
    assert fixture.completed() == []
    fixture.apply(3)
    assert fixture.completed() == [Claimed(T, number)]
    assert fixture.members.root_of(T) == ROOT


def test_changes_after_the_end_of_a_claim_without_room_have_a_claim_of_their_own() -> None:
    fixture = joined(1)
    first = fixture.claim(packed(2), now=2.0)
    for number in range(COMMANDS_MAX):
        fixture.members.claim(GroupId(number.to_bytes(16)), b"", packed(number), b"", 2.0)
    assert fixture.completed() == [Claimed(T, first, is_confirmed=False)], "the oldest one makes room"
    second = fixture.claim(packed(3), now=2.0)
    assert second > first
    fixture.members.handle_timeout(2.1)
    fixture.apply(second, 2.2)
    assert ClaimConfirmed(T, first) in (completed := fixture.completed())
    assert Claimed(T, second) in completed


def test_changes_after_a_repeated_claim_complete_with_a_later_one() -> None:
    fixture = joined(1)
    first = fixture.claim(packed(2), now=2.0)
    fixture.members.register_all(2.1)  # a renewal, with the changes so far
    second = fixture.claim(packed(3), now=2.2)
    assert second > first
    fixture.apply(first, 2.3)
    assert fixture.completed() == [Claimed(T, first)], "the root does not know the last change"
    fixture.members.handle_timeout(2.4)
    fixture.apply(second, 2.5)
    assert fixture.completed() == [Claimed(T, second)]


def test_claims_wait_while_one_is_in_transit_and_say_the_changes_since() -> None:
    fixture = joined(*range(10))
    first = fixture.claim(packed(11))
    assert fixture.claims(1.0) == [(ROOT, 2, 1, packed(11), b"")]
    second = fixture.claim(packed(12), now=1.1)
    assert fixture.claim(packed(13), packed(0, 12), now=1.2) == second
    assert fixture.claims(1.2) == []
    fixture.apply(2, 1.3)
    assert fixture.completed() == [Claimed(T, first)]
    assert fixture.claims() == [(ROOT, 4, 2, packed(13), packed(0))]
    fixture.apply(4, 1.4)
    assert fixture.completed() == [Claimed(T, second)]
    assert fixture.claims() == []


def test_everything_is_sent_if_it_is_less_than_the_changes() -> None:
    fixture = joined(1, 2, 3)
    fixture.claim(packed(4), packed(1, 2, 3))
    assert fixture.claims(1.0) == [(ROOT, 2, 0, packed(4), b"")]


def test_the_time_limit_of_a_claim_begins_when_it_is_sent() -> None:
    fixture = joined(1)
    first = fixture.claim(packed(2), now=2.0)
    fixture.claims(2.0)
    second = fixture.claim(packed(3), now=2.5)
    assert fixture.claims(3.0) == []
    assert fixture.completed() == [Claimed(T, first, is_confirmed=False)]
    assert fixture.counters.changes_unconfirmed == 1
    assert len(fixture.claims(3.5)) == 1, "the first one is repeated, with the second"
    fixture.members.handle_timeout(4.4)
    assert fixture.completed() == []
    fixture.apply(3, 4.4)
    assert fixture.completed() == [ClaimConfirmed(T, first), Claimed(T, second)]
    assert fixture.counters.changes_unconfirmed == 1


def test_renewals_carry_no_entries() -> None:
    fixture = joined(1, 2)
    fixture.members.register_all(61.0)
    assert fixture.claims() == [(ROOT, 1, 1, b"", b"")]


def test_a_lost_root_gets_no_entries_before_it_asks() -> None:
    fixture = joined(1, 2)
    fixture.members.lose_root(ROOT.id, 2.0)
    assert fixture.claims(2.5) == [(T, 1, 1, b"", b"")]
    fixture.members.reclaim(OTHER, Reclaim(T, 1), 2.6)
    assert fixture.claims() == [(OTHER, 2, 0, packed(1, 2), b"")]
    fixture.members.applied(Applied(OTHER, [(T, 2, 5, True)]), 2.7)
    fixture.members.register_all(61.0)
    assert fixture.claims() == [(OTHER, 2, 2, b"", b"")]


@pytest.mark.parametrize(
    ("source", "stamp", "now"),
    [(OTHER, 2, 3.0), (ROOT, 1, 3.0), (ROOT, 2, 2.0 + RECLAIM_S / 2)],
)
def test_all_entries_go_to_the_root_alone_and_not_too_often(source: NodeInfo, stamp: int, now: float) -> None:
    fixture = joined(1, 2)
    fixture.members.reclaim(ROOT, Reclaim(T, 1), 2.0)
    assert fixture.claims() == [(ROOT, 2, 0, packed(1, 2), b"")]
    fixture.members.reclaim(source, Reclaim(T, stamp), now)
    assert fixture.claims() == []


def test_a_member_declared_dead_claims_in_a_new_incarnation() -> None:
    fixture = joined(*range(10))
    number = fixture.claim(packed(77), now=1.0)
    assert fixture.members.accused((1 << STAMP_SHIFT) - 1, 2.0)
    stamp = (1 << STAMP_SHIFT) + 1
    assert fixture.claims() == [(ROOT, stamp, 1, packed(77), b"")]
    fixture.members.reclaim(ROOT, Reclaim(T, stamp), 2.1)
    assert fixture.claims() == [(ROOT, stamp + 1, 0, packed(*range(10), 77), b"")]
    fixture.apply(stamp + 1, 2.2)
    assert fixture.completed() == [Claimed(T, number)]


def test_whoever_leaves_a_table_and_comes_back_claims_everything_anew() -> None:
    fixture = joined(1, 2)
    waiting = fixture.claim(packed(3), now=2.0)
    fixture.members.leave(T, 2.0)
    assert fixture.sent() == [(ROOT, Unregister(LOCAL, [(T, 3)]))]
    back = fixture.claim(packed(9), now=2.1)
    assert fixture.claims(2.1) == [(ROOT, 4, 0, packed(9), b"")]
    fixture.apply(4)
    assert fixture.completed() == [Claimed(T, waiting), GroupLeft(T), Claimed(T, back)]


def test_a_claim_that_was_not_sent_before_the_node_left_completes_all_the_same() -> None:
    fixture = joined(1, 2)
    numbers = [fixture.claim(packed(3), now=2.0)]
    fixture.claims(2.0)
    numbers.append(fixture.claim(packed(4), now=2.5))
    fixture.members.leave(T, 2.5)
    fixture.members.handle_timeout(3.6)
    assert fixture.completed() == [*(Claimed(T, number, is_confirmed=False) for number in numbers), GroupLeft(T)]
    assert not fixture.members.is_busy


def test_claims_before_there_is_a_ring_wait_for_it() -> None:
    fixture = Fixture(is_active=False)
    number = fixture.claim(packed(1), now=0.0)
    assert fixture.claims(10.0) == []
    fixture.members.activate(20.0)
    assert fixture.claims() == [(T, 1, 0, packed(1), b"")]
    assert fixture.claims(21.0) == []
    assert fixture.completed() == [Claimed(T, number, is_confirmed=False)]


def test_a_claim_that_a_root_lost_is_repeated_through_the_ring() -> None:
    fixture = joined(*range(5))
    fixture.claim(packed(8), now=2.0)
    assert fixture.claims(2.0) == [(ROOT, 2, 1, packed(8), b"")]
    fixture.claim(packed(9), now=2.2)
    assert fixture.claims(2.0 + CONFIG.resend_s) == [(T, 3, 1, packed(8, 9), b"")]


def test_tables_have_no_time_of_joining() -> None:
    fixture = Fixture()
    fixture.claim(packed(1))
    fixture.claims(1.0)
    fixture.members.later(Later(T, MemberRecord(OTHER, b"", 1, since=5)), 1.0)
    assert fixture.claims() == []


@pytest.mark.parametrize("seed", range(20))
def test_claims_lead_a_root_to_the_wanted_entries_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    fixture, held, stamp = joined(*range(20)), packed(*range(20)), 1
    for now in range(2, 200):
        for _ in range(rng.randrange(3)):
            some = rng.sample(range(40), rng.randrange(4))
            fixture.claim(packed(*some[:2]), packed(*some[2:]), now=float(now))
        for _target, sent, base, added, removed in fixture.claims(float(now))[-1:]:
            if rng.random() < 0.3:
                continue  # lost
            assert base in (0, stamp), "the root can apply it"
            held, stamp = entries.apply(held if base else b"", added, removed), sent
            assert held == fixture.members.entries_of(T)
            fixture.apply(sent, float(now))


def test_claims_are_gathered_until_a_time() -> None:
    fixture = joined(*range(5))
    fixture.members.gather_claims(2.5)
    fixture.claim(packed(8), now=2.0)
    assert fixture.members.deadline() == 2.5
    assert fixture.claims(2.0) == []
    fixture.members.gather_claims(3.5)
    fixture.claim(packed(9), now=2.2)
    assert fixture.claims(2.5) == [(ROOT, 3, 1, packed(8, 9), b"")], "gathering again does not move the time"
    fixture.claim(packed(10), now=2.6)
    fixture.apply(3, 2.7)
    assert fixture.claims(2.7) == [], "the answer of the root does not shorten it either"
    assert fixture.claims(3.5) == [(ROOT, 4, 3, packed(10), b"")]
    fixture.apply(4, 3.5)
    fixture.claim(packed(11), now=3.6)
    assert fixture.claims(3.6) == [(ROOT, 5, 4, packed(11), b"")]


def test_the_claims_of_many_tables_are_sent_in_turns() -> None:
    fixture = joined(1)
    others = [GroupId(bytes([number]) * 16) for number in range(5)]
    fixture.members.gather_claims(2.0)
    for group in others:
        fixture.members.claim(group, b"x", packed(2), b"", 1.5)
    for left in reversed(range(len(others))):
        fixture.members.handle_timeout(2.0)
        claims = [message for _target, message in fixture.sent()]
        assert [message.group for message in claims if isinstance(message, Claim)] == [others[-1 - left]]
        deadline = fixture.members.deadline()
        assert (deadline == 2.0) if left else (deadline is None or deadline > 2.0)


def test_changes_are_noted_and_applied_together_with_the_effect_of_each() -> None:
    rng = random.Random(5)
    eager, lazy = OwnEntries(), OwnEntries()
    for stamp in range(1, 400):
        added, removed = (packed(*rng.sample(range(12), rng.randint(0, 2))) for _ in range(2))
        for own in (eager, lazy):
            own.want(added, removed, stamp)
        assert len(eager.wanted) <= lazy.wanted_bytes_max
        if rng.random() < 0.2:
            said = GroupRegistration(T, b"", stamp)
            assert eager.send(LOCAL, said) == lazy.send(LOCAL, said)
            if rng.random() < 0.5:
                assert eager.acknowledge(stamp) == lazy.acknowledge(stamp)
    assert eager.wanted == lazy.wanted


def test_claims_that_join_waiting_ones_are_noted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture()
    applied: list[int] = []

    def apply(wanted: bytes, added: bytes, removed: bytes) -> tuple[bytes, bytes, bytes]:
        applied.append(entries.count(added))
        return entries.apply_exactly(wanted, added, removed)

    monkeypatch.setattr("iris_overlay.groups.own_entries.apply_exactly", apply)
    assert not fixture.members.is_gathering(T)
    fixture.members.gather_claims(2.0)
    for number in range(100):
        fixture.claim(packed(number))
        assert fixture.members.is_gathering(T)
    assert applied == []
    fixture.members.handle_timeout(2.0)
    assert not fixture.members.is_gathering(T)
    assert applied == [100]
    fixture.claim(packed(100), now=2.0)
    for number in range(COMMANDS_MAX):
        fixture.members.claim(GroupId(number.to_bytes(16)), b"", packed(number), b"", 2.0)
    assert not fixture.members.is_gathering(T), "the next one completes the oldest"
