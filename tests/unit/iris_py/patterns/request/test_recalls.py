"""Tests of iris_py/patterns/request/recalls.py, and of recalls in the requester (docs/design.md 6.16)."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from iris_overlay.node_info import NodeInfo
from iris_py.errors import NoMembers, RequestTimeout
from iris_py.patterns.request.pending import RequestSpec, new_opening, new_request
from iris_py.patterns.request.recalls import (
    GAIN_S,
    MEASURED_S,
    REVIEW_S_MAX,
    REVIEW_S_MIN,
    REVIEWED_IN_FLIGHT,
    REVIEWS_MAX,
    MemberRate,
    Redistribution,
    Review,
)
from iris_py.patterns.request.retry import Retry, retry_of
from iris_py.patterns.tunnel.end import TunnelOffer
from iris_py.peers.group import Group
from iris_py.peers.hedging import LATE_S
from iris_py.peers.member import OWN_ONLY, KnownMember, Placement
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import RECALL, Rejection
from tests.unit.iris_py.patterns.request.test_requester import KEYRING, LOCAL, Caller

if TYPE_CHECKING:
    from collections.abc import Sequence


def member(in_flight: int, *, distance: int = 0, cost: float = 1.0, failed: float = 0.0) -> KnownMember:
    found = KnownMember(Peer(NodeInfo(LOCAL, ()), None), distance)
    found.in_flight, found.cost, found.failed = in_flight, cost, failed
    return found


def plan(*members: tuple[KnownMember, float], ahead_s: float = 0.1) -> list[int]:
    """Return the surplus of each member."""
    surplus = Redistribution(dict(members), ahead_s).surplus
    return [surplus.get(each, 0) for each, _rate in members]


class Crowd(Caller):
    """A requester and the members of a cluster, which answer when the test says so."""

    def __init__(self, members: int = 2) -> None:
        super().__init__(members)
        self.at: dict[int, KnownMember] = {}
        self.asked: list[tuple[KnownMember, Sequence[int]]] = []

    def ask(self, count: int = 1, now: float = 0.0, *, key: bytes = b"", waits: bool = True, **options: object) -> list[int]:
        spec = RequestSpec(b"", 60.0, retry_of(idempotent=bool(key)), key, is_anchored=bool(key), waits=waits, **options)  # type: ignore[arg-type]
        ids = [self.requester.begin(new_request(self.group, spec, "token", now), now) for _ in range(count)]
        self.take()
        return ids

    def take(self) -> None:
        """Note where the requests are, and which are asked for."""
        for message in self.raw():
            if message.kind == RECALL:
                ids = packets.decode_ids(message.payload)
                assert ids is not None
                self.asked.append((self.member_of(message.peer), ids))
            elif message.kind != packets.CANCEL:
                self.at[message.id] = self.member_of(message.peer)

    def answer(self, which: KnownMember, count: int, now: float) -> None:
        """Let a member answer the requests that it has had for the longest."""
        for id_ in sorted(id_ for id_, at in self.at.items() if at is which)[:count]:
            del self.at[id_]
            self.requester.receive_reply(which.peer, id_, b"", now)
        self.take()

    def review(self, now: float) -> None:
        self.requester.handle_timeout(now)
        self.take()

    def give_back(self, which: KnownMember, ids: Sequence[int], now: float) -> None:
        for id_ in ids:
            self.requester.receive_rejection(which.peer, id_, Rejection.RECALLED, now)
        self.take()

    def with_each(self) -> list[int]:
        counts = Counter(self.at.values())
        return [counts[each] for each in self.members()]


# -- rates


def test_a_member_without_an_answer_answers_at_most_one_request_in_that_time() -> None:
    rate = MemberRate(7)
    assert rate.per_second == 0.0, "not measured"
    rate.measure(7, 100, 0.02)
    assert rate.per_second == pytest.approx(50.0)
    rate.measure(7, 100, 0.18)
    assert rate.per_second == pytest.approx(5.0)
    rate.measure(16, 91, 0.8)
    assert rate.per_second == pytest.approx(10.0)


def test_time_without_requests_does_not_count() -> None:
    rate = MemberRate(0)
    rate.measure(99, 0, 0.5)
    rate.measure(99, 0, 100.0)
    assert rate.per_second == pytest.approx(200.0)


def test_a_rate_follows_a_member_that_becomes_slow() -> None:
    rate, answered = MemberRate(0), 0
    for _ in range(100):
        rate.measure(answered := answered + 100, 10, 0.1)
    assert rate.per_second == pytest.approx(1000.0, rel=0.01)
    for _ in range(round(6 * MEASURED_S / 0.1)):
        rate.measure(answered := answered + 1, 10, 0.1)
    assert rate.per_second < 25.0


# -- plans


def test_all_waits_become_equal() -> None:
    assert plan((member(0), 400.0), (member(220), 40.0)) == [0, 200]
    assert plan((member(20), 400.0), (member(30), 200.0), (member(650), 100.0)) == [0, 0, 550]


def test_no_request_moves_before_a_member_is_about_to_be_idle() -> None:
    assert plan((member(100), 400.0), (member(200), 40.0), ahead_s=0.2) == [0, 0]
    assert plan((member(80), 400.0), (member(200), 40.0), ahead_s=0.2) != [0, 0]


def test_no_request_moves_for_a_small_gain() -> None:
    assert plan((member(0), 1000.0), (member(90), 1000.0)) == [0, 0], f"{GAIN_S} s"
    assert plan((member(0), 1000.0), (member(110), 1000.0)) == [0, 55]
    assert plan((member(80), 100.0), (member(120), 100.0), ahead_s=1.0) == [0, 0], "a fifth"
    assert plan((member(70), 100.0), (member(130), 100.0), ahead_s=1.0) == [0, 30]


def test_a_farther_member_gets_half() -> None:
    assert plan((member(300), 100.0), (member(0, distance=1), 100.0)) == [100, 0]
    assert plan((member(0), 100.0), (member(300, distance=1), 100.0)) == [0, 200]


def test_a_weight_counts() -> None:
    assert plan((member(310, cost=1.01), 100.0), (member(0, cost=101.0), 100.0)) == [0, 0]
    assert plan((member(0, cost=2 / 3), 100.0), (member(400, cost=2.0), 100.0)) == [0, 300]


def test_a_failing_member_gets_hardly_anything_and_gives_all() -> None:
    assert plan((member(310), 100.0), (member(0, failed=0.9), 100.0)) == [0, 0]
    assert plan((member(0), 100.0), (member(310, failed=0.9), 100.0)) == [0, 306]


def test_a_full_member_gets_nothing() -> None:
    full = member(1)
    full.limit = 1
    assert plan((full, 100.0), (member(300), 100.0)) == [0, 0]
    assert plan((full, 100.0), (member(300), 100.0), (member(0), 100.0)) == [0, 199, 0]


def test_the_member_with_the_shortest_wait_is_next() -> None:
    fast, slow, donor = member(0), member(0), member(100)
    receivers = Redistribution({fast: 300.0, slow: 100.0, donor: 10.0}, 0.1).receivers(40)
    assert Counter(receivers) == {fast: 30, slow: 10}
    assert Counter(receivers[:8]) == {fast: 6, slow: 2}


def test_an_unmeasured_member_counts_as_the_fastest() -> None:
    known, idle = member(10), member(0)
    review = Review([known, idle], 0.0)
    known.answered = 9
    assert review.measure([known, idle], 0.1) == pytest.approx({known: 100.0, idle: 100.0})
    assert review.measure([known, idle, new := member(0)], 0.2)[new] == pytest.approx(50.0)
    assert Review([idle], 0.0).measure([idle], 0.1) == {}


# -- in the requester


def test_the_newest_surplus_requests_are_asked_for_and_go_to_the_idle_member() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    caller.ask(200)
    assert caller.with_each() == [100, 100]
    caller.answer(fast, 92, REVIEW_S_MIN / 2)
    caller.review(REVIEW_S_MIN)
    ((asked, ids),) = caller.asked
    newest = sorted(id_ for id_, at in caller.at.items() if at is slow)[-len(ids) :]
    assert asked is slow
    assert sorted(ids) == newest
    assert len(ids) > 90, "one answer in 20 ms at most"
    caller.give_back(slow, ids, 0.03)
    assert all(caller.at[id_] is fast for id_ in ids)
    assert (fast.in_flight, slow.in_flight) == (8 + len(ids), 100 - len(ids))
    assert caller.requester.counts.recalled == len(ids)
    assert caller.requester.counts.retries == 0, "not executed, and not tried again"


def test_a_request_is_asked_for_once_in_each_stay() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    caller.ask(200)
    caller.answer(fast, 100, 0.01)
    for number in range(1, 40):
        caller.review(number * REVIEW_S_MAX)
    ids = [id_ for _member, asked in caller.asked for id_ in asked]
    assert len(ids) == len(set(ids)) >= 99
    caller.give_back(slow, ids, 10.0)
    caller.answer(slow, 1000, 10.0)
    caller.asked.clear()
    caller.review(10.0 + REVIEW_S_MAX)
    caller.review(10.0 + 2 * REVIEW_S_MAX)
    assert {id_ for _member, asked in caller.asked for id_ in asked} < set(ids), "from the other one now"


def test_requests_that_have_not_come_back_yet_are_not_asked_for_twice_over() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    caller.ask(200)
    caller.answer(fast, 92, 0.01)
    caller.review(REVIEW_S_MIN)
    ((_slow, ids),) = caller.asked
    caller.answer(slow, 1, 0.03)
    caller.review(2 * REVIEW_S_MIN)
    assert len(caller.asked) == 1
    caller.give_back(slow, ids, 0.05)
    assert 0 < slow.in_flight < 5, "it keeps its share"


@pytest.mark.parametrize("kind", ["usual", "own", "key", "exclusive", "raise", "prefer", "require", "hedged", "tunnel"])
def test_requests_that_stay(kind: str) -> None:
    caller = Crowd()
    fast, slow = caller.members()
    for each in caller.members():
        each.peer.info = NodeInfo(each.peer.id, (), "eu")
    for number in range(40):
        key = b"%16d" % number if kind in ("key", "exclusive") else b""
        if kind == "tunnel":
            offer = TunnelOffer(caller.group, 1 << 16, NodeInfo(LOCAL, ()), bytes)
            caller.requester.begin(new_opening(caller.group, offer, 60.0, "token", 0.0, waits=True), 0.0)
            continue
        zones = {"own": OWN_ONLY, "prefer": Placement("eu", ""), "require": Placement("", "eu")}
        caller.ask(1, key=key, waits=kind != "raise", placement=zones.get(kind), is_exclusive=kind == "exclusive")
    caller.take()
    at_slow = slow.in_flight
    assert at_slow >= 10
    if kind == "hedged":
        for id_ in [id_ for id_, at in caller.at.items() if at is slow]:
            pending = caller.requester.find(id_)
            assert pending is not None
            pending.also = [(slow, 0.0)]
    if kind in ("exclusive", "tunnel"):
        for id_ in [id_ for id_, at in caller.at.items() if at is fast]:
            caller.requester.cancel(id_)
    else:
        caller.answer(fast, 100, 0.01)
    for number in range(1, 9):
        caller.review(number * REVIEW_S_MIN)
    assert (slow.in_flight, fast.in_flight) == (at_slow, 0)
    assert bool(caller.asked) is (kind in ("usual", "own"))


def test_a_rejection_that_was_not_asked_for_is_an_ordinary_one() -> None:
    caller = Crowd()
    (id_,) = caller.ask()
    first = caller.at[id_]
    caller.give_back(first, [id_], 0.1)
    second = caller.at[id_]
    assert second is not first
    caller.give_back(second, [id_], 0.2)
    (outcome,) = caller.requester.outcomes_received()
    assert isinstance(outcome[1], NoMembers)


def test_a_returned_request_keeps_its_attempts_and_its_deadline() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    spec = RequestSpec(b"", 1.0, Retry(attempts=1), b"i" * 16, waits=True)
    for _ in range(200):
        caller.requester.begin(new_request(caller.group, spec, "token", 0.0), 0.0)
    caller.take()
    caller.answer(fast, 100, 0.01)
    caller.review(REVIEW_S_MIN)
    ((_slow, ids),) = caller.asked
    caller.give_back(slow, ids[:1], 0.5)
    assert caller.at[ids[0]] is fast
    pending = caller.requester.find(ids[0])
    assert pending is not None
    assert pending.attempts == 1
    caller.requester.outcomes_received()
    caller.requester.handle_timeout(1.0)
    outcomes = [outcome for _token, outcome in caller.requester.outcomes_received()]
    assert len(outcomes) == 100
    assert all(isinstance(outcome, RequestTimeout) for outcome in outcomes)


def test_the_balancer_chooses_where_the_receiver_is_gone() -> None:
    caller = Crowd(3)
    fast, other, slow = caller.members()
    caller.ask(300)
    caller.answer(fast, 100, 0.01)
    caller.answer(other, 50, 0.01)
    caller.review(REVIEW_S_MIN)
    (ids,) = [ids for member_, ids in caller.asked if member_ is slow]
    caller.leave(fast, 0.03)
    caller.give_back(slow, ids, 0.04)
    assert all(caller.at[id_] in (other, slow) for id_ in ids)


def test_a_lone_request_begins_no_review() -> None:
    caller = Crowd()
    for number in range(100):
        caller.ask(REVIEWED_IN_FLIGHT - 1, number)
        for each in caller.members():
            caller.answer(each, REVIEWED_IN_FLIGHT, number)
    assert caller.requester.deadline() is None


def test_reviews_end_with_the_requests_and_become_rare() -> None:
    caller = Crowd()
    caller.ask(40)
    times, now = 0, 0.0
    while now < 10.0:
        deadline = caller.requester.deadline()
        assert deadline is not None
        assert deadline > now
        now, times = deadline, times + 1
        caller.review(now)
    assert 10.0 / REVIEW_S_MAX < times < 10.0 / REVIEW_S_MAX + 30
    for each in caller.members():
        caller.answer(each, 100, now)
    caller.review(now + REVIEW_S_MAX)
    assert caller.requester.deadline() is None


def test_a_late_review_moves_nothing() -> None:
    caller = Crowd()
    fast, _slow = caller.members()
    caller.ask(200)
    caller.answer(fast, 100, 0.01)
    caller.review(REVIEW_S_MIN + 1.1 * LATE_S)
    assert not caller.asked, "unread answers may be waiting"
    deadline = caller.requester.deadline()
    assert deadline is not None
    caller.review(deadline)
    assert caller.asked


def test_a_new_member_gets_a_link_and_its_share() -> None:
    caller = Crowd(1)
    (slow,) = caller.members()
    caller.ask(100)
    caller.answer(slow, 1, 0.01)
    new = caller.join(0.01)
    link, new.peer.link = new.peer.link, None
    caller.review(REVIEW_S_MIN)
    assert caller.requester.peers_wanted() == [new.peer]
    new.peer.link = link
    caller.review(2 * REVIEW_S_MIN)
    ((asked, ids),) = caller.asked
    assert asked is slow
    assert 45 < len(ids) < 55


def test_nothing_is_recalled_while_requests_wait_for_a_place() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    caller.ask(200)
    caller.answer(fast, 98, 0.0)
    newest = max(caller.at)
    for each in (caller.at[newest], *(other for other in caller.members() if other is not caller.at[newest])):
        caller.requester.receive_rejection(each.peer, newest, Rejection.OVERLOADED, 0.0)
        caller.take()
    assert caller.requester._rooms.requests == 1
    fast.peer.is_full = slow.peer.is_full = True  # or the next try ends the wait
    caller.review(REVIEW_S_MIN)
    assert not caller.asked
    fast.peer.is_full = slow.peer.is_full = False
    assert (fast.limit, slow.limit) != (math.inf, math.inf), "limits stay while requests wait"
    caller.answer(fast, 1, REVIEW_S_MIN)
    assert not caller.requester._rooms.requests, "the one that waits comes first"
    caller.review(2 * REVIEW_S_MIN)
    assert caller.asked


def test_the_number_of_clusters_under_review_is_bounded() -> None:
    caller = Crowd()
    for number in range(REVIEWS_MAX + 10):
        group = Group(f"c{number}", KEYRING.cluster(f"c{number}"), LOCAL, 1)
        group.members = [KnownMember(each.peer) for each in caller.members()]
        spec = RequestSpec(b"", 60.0, None, waits=True)
        for _ in range(4 * REVIEWED_IN_FLIGHT):
            caller.requester.begin(new_request(group, spec, "token", 0.0), 0.0)
    assert len(caller.requester._recalls.reviews) == REVIEWS_MAX


def test_each_member_is_asked_for_its_own_surplus() -> None:
    caller = Crowd(3)
    fast, slow, slower = caller.members()
    caller.ask(300)
    caller.answer(fast, 100, 0.01)
    caller.answer(slow, 40, 0.02)
    caller.review(REVIEW_S_MIN)
    asked = {member_: len(ids) for member_, ids in caller.asked}
    assert asked.keys() == {slower}, "the other one has its share"
    caller.asked.clear()
    caller.answer(fast, 1000, 0.03)
    caller.answer(slow, 10, 0.03)
    for number in range(2, 30):
        caller.review(number * REVIEW_S_MAX)
    later = {member_: sum(len(ids) for other, ids in caller.asked if other is member_) for member_ in (slow, slower)}
    assert 0 < later[slow] < slow.in_flight


def test_a_member_that_was_full_gets_requests_again() -> None:
    caller = Crowd()
    fast, slow = caller.members()
    caller.ask(200)
    caller.answer(fast, 100, 0.01)
    (newest,) = caller.ask(1, 0.01)
    assert caller.at[newest] is fast
    caller.requester.receive_rejection(fast.peer, newest, Rejection.OVERLOADED, 0.01)
    caller.take()
    assert caller.at[newest] is slow
    caller.review(REVIEW_S_MIN)
    assert not caller.asked, "it was full a moment ago"
    caller.review(2 * REVIEW_S_MIN)
    ((_slow, ids),) = caller.asked
    assert newest in ids
    caller.requester._recalls.reviews[caller.group].receivers.clear()
    caller.give_back(slow, ids, 0.05)
    assert caller.at[newest] is fast, "the balancer tries it, too"
