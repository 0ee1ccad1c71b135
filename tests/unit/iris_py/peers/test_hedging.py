"""Tests of iris_py/peers/hedging.py, and of what a requester does with it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import IrisError, RemoteError, RequestTimeout
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import RequestSpec, new_request
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.retry import Retry
from iris_py.peers.group import Group
from iris_py.peers.hedging import (
    DELAY_FACTOR,
    DELAY_S_MIN,
    HEDGES_AT_FIRST,
    HEDGES_SAVED_MAX,
    HEDGES_SHARE,
    LATE_S,
    UNMEASURED_S_MAX,
    Hedging,
)
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire.packets import CANCEL, REQUEST_ONCE, Rejection, encode_failure
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.link.link import Link

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")


class Caller:
    """A requester, and members of one cluster that never answer by themselves."""

    def __init__(self, members: int, seed: int = 1) -> None:
        self.requester = Requester(random.Random(seed), lambda: 0, Losses(bytes(16)))
        self.group = Group("cluster", KEYS, NodeId(bytes(16)), 1)
        links = [SimpleNamespace(congested=False, is_busy=False, is_open=True, heard_at=0.0) for _ in range(members)]
        self.every = [
            KnownMember(Peer(NodeInfo(NodeId((1 + n).to_bytes(16, "big")), ()), cast("Link", link)))
            for n, link in enumerate(links)
        ]
        self.group.members = self.every

    def ask(self, now: float = 0.0, *, timeout_s: float = 4.0, number: int = 0, anchored: bool = False) -> int:
        identity = number.to_bytes(16, "big")
        spec = RequestSpec(b"", timeout_s, Retry(members_lost_max=None), identity, is_anchored=anchored, waits=True)
        return self.requester.begin(new_request(self.group, spec, number, now), now)

    def sent(self, kind: int = REQUEST_ONCE) -> list[KnownMember]:
        """Take who is sent something."""
        taken = self.requester.messages_to_send()
        assert all(message.kind == kind for message in taken)
        return [member for message in taken for member in self.every if member.peer is message.peer]

    def wait(self) -> float:
        """Go on to the next time at which there is something to do."""
        now = self.requester.deadline()
        assert now is not None
        self.requester.handle_timeout(now)
        return now

    def outcome(self) -> bytes | IrisError:
        ((_token, outcome),) = self.requester.outcomes_received()
        assert all(member.in_flight == member.peer.awaited == 0 for member in self.every)
        assert self.requester.deadline() is None
        return outcome


# -- the delay and the budget


@pytest.mark.parametrize("duration_s", [0.05, 0.5, 1.0, 4.0])
def test_the_first_answer_is_taken_for_half_of_what_is_late(duration_s: float) -> None:
    hedging = Hedging()
    hedging.observe(duration_s)
    assert hedging.late_s == 2 * duration_s
    assert hedging.delay_s(1000.0) == DELAY_FACTOR * 2 * duration_s
    hedging.observe(duration_s)
    assert hedging.late_s < 2 * duration_s
    hedging.observe(3 * duration_s)
    assert hedging.late_s > 2 * duration_s


def test_the_delay_follows_what_nearly_all_answers_took() -> None:
    hedging, rng = Hedging(), random.Random(1)
    assert hedging.delay_s(0.4) == 0.1
    assert hedging.delay_s(60.0) == UNMEASURED_S_MAX
    for median_s in (0.05, 0.5):
        for _ in range(5_000):
            hedging.observe(median_s * (10.0 if rng.random() < 0.01 else rng.uniform(0.8, 1.2)))
        assert median_s < hedging.late_s < 1.6 * median_s, "one slow answer of a hundred does not count"
        assert hedging.delay_s(60.0) == DELAY_FACTOR * hedging.late_s
        assert hedging.delay_s(0.1) == 0.05, "the second member needs some of the time, too"
    for _ in range(20_000):
        hedging.observe(0.0001)
    assert hedging.delay_s(60.0) == DELAY_S_MIN


def test_the_budget_is_a_share_of_what_was_answered() -> None:
    hedging = Hedging()
    taken = 0
    while hedging.take():
        taken += 1
    assert taken == HEDGES_AT_FIRST
    for _ in range(1_000):
        hedging.observe(1.0)
    while hedging.take():
        taken += 1
    assert taken == pytest.approx(HEDGES_AT_FIRST + HEDGES_SHARE * 1_000, abs=1)
    for _ in range(1_000_000):
        hedging.observe(1.0)
    taken = 0
    while hedging.take():
        taken += 1
    assert taken == HEDGES_SAVED_MAX


# -- a requester


def test_a_second_member_is_asked_and_its_answer_counts() -> None:
    caller = Caller(3)
    id_ = caller.ask()
    (first,) = caller.sent()
    assert caller.requester.deadline() == 0.5
    caller.wait()
    (second,) = caller.sent()
    assert second is not first
    assert (first.in_flight, second.in_flight) == (1, 1)
    caller.requester.receive_reply(second.peer, id_, b"reply", 0.6)
    assert caller.outcome() == b"reply"
    assert caller.sent(CANCEL) == [first]
    assert second.service_time_s == pytest.approx(0.1)
    assert first.service_time_s == 0.5, "it took that long at least"
    assert (caller.requester.counts.hedged, caller.requester.counts.late) == (1, 0)
    caller.requester.receive_reply(first.peer, id_, b"late", 0.7)
    assert caller.requester.counts.late == 1


def test_the_first_member_may_still_answer() -> None:
    caller = Caller(3)
    id_ = caller.ask()
    (first,) = caller.sent()
    caller.wait()
    (second,) = caller.sent()
    caller.requester.receive_reply(first.peer, id_, b"reply", 0.6)
    assert caller.outcome() == b"reply"
    assert caller.sent(CANCEL) == [second]
    assert first.service_time_s > 0.5


def test_the_first_failure_counts_as_well() -> None:
    caller = Caller(2)
    id_ = caller.ask()
    (first,) = caller.sent()
    caller.wait()
    (second,) = caller.sent()
    caller.requester.receive_failure(first.peer, id_, encode_failure(ValueError()), 0.6)
    assert isinstance(caller.outcome(), RemoteError)
    assert caller.sent(CANCEL) == [second]


def test_a_rejection_of_one_leaves_it_to_the_other() -> None:
    for rejects_first in (True, False):
        caller = Caller(2)
        id_ = caller.ask()
        (first,) = caller.sent()
        caller.wait()
        (second,) = caller.sent()
        rejecting, other = (first, second) if rejects_first else (second, first)
        caller.requester.receive_rejection(rejecting.peer, id_, Rejection.OVERLOADED, 0.6)
        assert rejecting.in_flight == 0
        assert caller.requester.counts.late == 0
        caller.requester.receive_reply(other.peer, id_, b"reply", 0.7)
        assert caller.outcome() == b"reply"
        assert not caller.sent()


def test_the_loss_of_one_leaves_it_to_the_other_and_of_both_to_a_third() -> None:
    caller = Caller(3)
    id_ = caller.ask()
    (first,) = caller.sent()
    caller.wait()
    (second,) = caller.sent()
    caller.requester.peer_lost(first.peer, 0.6)
    assert not caller.sent()
    assert first.in_flight == 0
    caller.requester.peer_lost(second.peer, 0.7)
    (third,) = set(caller.every) - {first, second}
    assert caller.sent() == [third]
    caller.requester.receive_reply(third.peer, id_, b"reply", 0.8)
    assert caller.outcome() == b"reply"


def test_the_time_out_tells_all_that_were_asked() -> None:
    caller = Caller(3)
    caller.ask()
    asked = caller.sent()
    while caller.wait() < 4.0:
        asked += caller.sent()
    assert len(asked) == 3 == len(set(asked))
    assert isinstance(caller.outcome(), RequestTimeout)
    assert sorted(member.peer.id for member in caller.sent(CANCEL)) == sorted(member.peer.id for member in asked)


def test_a_node_that_stood_still_reads_before_it_asks_anybody_else() -> None:
    caller = Caller(2)
    id_ = caller.ask()
    (first,) = caller.sent()
    caller.requester.handle_timeout(0.5 + 2 * LATE_S)
    assert not caller.sent()
    caller.requester.receive_reply(first.peer, id_, b"reply", 0.7)
    assert caller.outcome() == b"reply"


def test_a_key_leaves_only_a_member_that_gives_no_sign_of_life() -> None:
    caller = Caller(3)
    caller.ask(anchored=True, timeout_s=60.0)
    (owner,) = caller.sent()
    link = cast("SimpleNamespace", owner.peer.link)
    for _ in range(3):
        now = caller.wait()
        assert list(caller.requester.silent) == [owner.peer]
        caller.requester.silent.clear()
        link.heard_at = now
        caller.wait()  # it has given one, so it is busy
        assert not caller.sent()
        assert not caller.requester.silent
    caller.wait()
    assert list(caller.requester.silent) == [owner.peer]
    caller.wait()
    (other,) = caller.sent()
    assert other is not owner


def test_who_is_alone_is_waited_for() -> None:
    caller = Caller(1)
    caller.ask()
    assert len(caller.sent()) == 1
    assert caller.requester.deadline() == 4.0


@pytest.mark.parametrize("seed", range(40))
def test_each_has_one_outcome_and_what_is_in_flight_is_exact_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    caller = Caller(4, seed)
    requester, now, asked, ended = caller.requester, 0.0, 0, 0
    for step in range(600):
        now += rng.choice((0.0, 0.001, 0.05, 0.3))
        requester.handle_timeout(now)
        pending = list(requester._pending.items())
        kind = rng.randrange(8)
        if kind < 3 or not pending:
            caller.ask(now, number=step, timeout_s=rng.choice((0.5, 2.0)), anchored=rng.random() < 0.3)
            asked += 1
        else:
            id_, _one = rng.choice(pending)
            member = rng.choice(caller.every)
            if kind == 3:
                requester.receive_reply(member.peer, id_, b"reply", now)
            elif kind == 4:
                requester.receive_failure(member.peer, id_, encode_failure(ValueError()), now)
            elif kind == 5:
                requester.receive_rejection(member.peer, id_, rng.choice(list(Rejection)[:3]), now)
            elif kind == 6:
                rng.choice((requester.peer_lost, requester.peer_released))(member.peer, now)
            else:
                requester.give_back(id_, member.peer, now, is_tried=rng.random() < 0.5)
        ended += len(requester.outcomes_received())
        requester.messages_to_send()
        holders = [m for p in requester._pending.values() if p.member for m in (p.member, *(each for each, _ in p.also or ()))]
        assert not any(p.also for p in requester._pending.values() if p.member is None)
        for member in caller.every:
            assert member.in_flight == member.peer.awaited == sum(each is member for each in holders)
        for each in requester._pending.values():
            having = [each.member, *(member for member, _since in each.also or ())]
            assert len(having) == len(set(having)), "nobody is asked twice at once"
    requester.handle_timeout(now + 100.0)
    requester.handle_timeout(now + 200.0)
    assert asked == ended + len(requester.outcomes_received())
    assert requester.deadline() is None
