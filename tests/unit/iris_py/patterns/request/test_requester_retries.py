"""Tests of iris_py/patterns/request/requester.py: requests that are repeated, how often, and after which pause."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from iris_py.errors import IrisError, MemberLost, NoMembers, RemoteError, RequestTimeout, TooManyMembersLost
from iris_py.patterns.request.candidates import NEWS_S
from iris_py.patterns.request.retry import (
    BACKOFF_S,
    FAILED_ATTEMPTS,
    IDEMPOTENT,
    MEMBERS_LOST_MAX,
    Retry,
    retry_of,
)
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, REQUEST, Rejection
from tests.unit.iris_py.patterns.request.test_requester import Caller

if TYPE_CHECKING:
    from iris_py.peers.member import KnownMember

#: What fails is tried again after exactly 0.1, 0.2, 0.4 s, and so on.
FAILED = Retry(on=("lost", "failed", "no_members"), backoff_jitter=0.0)


class Repeater(Caller):
    """A caller that remembers every member that ever was."""

    def __init__(self, members: int | None = 0) -> None:
        self.every: list[KnownMember] = []
        super().__init__(members)

    def join(self, now: float) -> KnownMember:
        self.every.append(super().join(now))
        return self.every[-1]

    def all_members(self) -> list[KnownMember]:
        return self.every

    def fail(self, member: KnownMember, request_id: int, now: float, text: str = "no") -> None:
        self.requester.receive_failure(member.peer, request_id, packets.encode_failure(ValueError(text)), now)

    def reply(self, member: KnownMember, request_id: int, now: float) -> None:
        self.requester.receive_reply(member.peer, request_id, b"reply", now)

    def due(self) -> float:
        deadline = self.requester.deadline()
        assert deadline is not None
        return deadline

    def lose(self, member: KnownMember, now: float) -> None:
        self.leave(member, now, lost=True)

    def holder(self) -> KnownMember:
        """Take who is asked next; whoever is told to stop is passed over."""
        ((member),) = [member for kind, member, _id in self.sent() if kind != CANCEL]
        return member


def remote_error(outcome: bytes | IrisError) -> RemoteError:
    assert isinstance(outcome, RemoteError)
    return outcome


# -- handlers that fail


def test_a_single_member_is_asked_again_after_pauses_that_grow() -> None:
    caller = Repeater(1)
    (member,) = caller.all_members()
    now = 0.0
    request_id = caller.request(retry=FAILED)
    pauses = []
    for attempt in range(FAILED_ATTEMPTS):
        assert caller.one_sent() is member
        caller.fail(member, request_id, now, f"attempt {attempt}")
        if attempt < FAILED_ATTEMPTS - 1:
            assert not caller.sent()
            assert member.in_flight == 0
            caller.requester.handle_timeout(caller.due() - 1e-6)
            assert not caller.sent()
            pauses.append(round(caller.due() - now, 6))
            now = caller.due()
            caller.requester.handle_timeout(now)
    assert pauses == [0.1, 0.2, 0.4, 0.8]
    assert remote_error(caller.outcome()).text == f"attempt {FAILED_ATTEMPTS - 1}"
    assert (caller.requester.counts.failed, caller.requester.counts.retries) == (1, FAILED_ATTEMPTS - 1)


def test_what_failed_goes_to_a_member_that_has_not_failed_it_and_then_to_all_again() -> None:
    caller = Repeater(3)
    request_id = caller.request(timeout_s=60.0, retry=Retry(on=("failed",), attempts=6, backoff_jitter=0.0))
    asked = []
    for _ in range(6):
        asked.append(caller.one_sent())
        caller.fail(asked[-1], request_id, 0.0)
        if len(asked) < 6:
            caller.requester.handle_timeout(caller.due())
    assert {id(member) for member in asked[:3]} == {id(member) for member in asked[3:]} == set(map(id, caller.every))
    remote_error(caller.outcome())


def test_a_reply_after_failures_is_the_outcome() -> None:
    caller = Repeater(1)
    (member,) = caller.all_members()
    request_id = caller.request(retry=FAILED)
    for _ in range(2):
        caller.fail(caller.one_sent(), request_id, 0.0)
        caller.requester.handle_timeout(caller.due())
    caller.reply(caller.one_sent(), request_id, 1.0)
    assert caller.outcome() == b"reply"
    assert member.in_flight == 0
    assert caller.requester.counts.failed == 0


def test_the_random_share_of_a_pause_is_drawn_from_the_source_that_was_given() -> None:
    pauses = []
    for jitter in (0.0, 0.5, 1.0):
        caller = Repeater(1)
        caller.requester._rng.random = lambda: 0.5  # type: ignore[method-assign]
        request_id = caller.request(retry=Retry(on=("failed",), backoff_initial=1.0, backoff_jitter=jitter))
        caller.fail(caller.one_sent(), request_id, 0.0)
        pauses.append(caller.due())
    assert pauses == [1.0, 0.75, 0.5]


def test_without_a_pause_it_is_asked_again_at_the_next_turn() -> None:
    caller = Repeater(1)
    request_id = caller.request(retry=Retry(on=("failed",), attempts=3, backoff_initial=0.0))
    for _ in range(2):
        caller.fail(caller.one_sent(), request_id, 0.0)
        assert caller.due() == 0.0
        caller.requester.handle_timeout(0.0)
    caller.fail(caller.one_sent(), request_id, 0.0)
    remote_error(caller.outcome())


def test_a_failure_is_told_at_once_where_the_pause_would_outlast_the_request() -> None:
    caller = Repeater(1)
    request_id = caller.request(timeout_s=0.25, retry=FAILED)
    caller.fail(caller.one_sent(), request_id, 0.0)
    caller.requester.handle_timeout(0.1)
    caller.fail(caller.one_sent(), request_id, 0.1)
    remote_error(caller.outcome())


def test_no_member_is_asked_again_when_the_time_is_up() -> None:
    caller = Repeater(2)
    request_id = caller.request(timeout_s=2.0, retry=FAILED)
    caller.fail(caller.one_sent(), request_id, 2.0)
    assert isinstance(caller.outcome(), RequestTimeout)
    assert not caller.sent()


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_failure_is_told_at_the_end_unless_a_member_works(is_asked: bool) -> None:
    caller = Repeater(2)
    request_id = caller.request(retry=FAILED)
    first = caller.one_sent()
    (second,) = (member for member in caller.members() if member is not first)
    caller.congest(second, congested=not is_asked)
    caller.fail(first, request_id, 0.5)
    caller.requester.handle_timeout(0.6)
    assert [member for _kind, member, _id in caller.sent()] == [second] * is_asked
    caller.requester.handle_timeout(5.0)
    assert isinstance(caller.outcome(), RequestTimeout if is_asked else RemoteError)


def test_a_failure_of_who_has_it_no_more_is_late() -> None:
    caller = Repeater(2)
    request_id = caller.request(retry=FAILED)
    first = caller.one_sent()
    caller.fail(first, request_id, 0.0)
    caller.fail(first, request_id, 0.0)
    assert caller.requester.counts.late == 1
    assert not caller.requester.outcomes_received()


def test_members_that_are_full_do_not_end_what_another_one_has_failed() -> None:
    """The member that failed it may still do it; the full one is asked again after the usual pause."""
    caller = Repeater(2)
    request_id = caller.request(timeout_s=60.0, retry=FAILED)
    first = caller.one_sent()
    caller.fail(first, request_id, 0.0)
    caller.requester.handle_timeout(0.1)
    second = caller.one_sent()
    assert second is not first
    caller.requester.receive_rejection(second.peer, request_id, Rejection.OVERLOADED, 0.1)
    now = 0.1
    while True:  # it draws one of both, the full one some times in a row
        assert not caller.sent()
        assert caller.due() > now, "it does not ask without end"
        now = caller.due()
        caller.requester.handle_timeout(now)
        if (member := caller.one_sent()) is second:
            caller.requester.receive_rejection(second.peer, request_id, Rejection.OVERLOADED, now)
            member = caller.one_sent()
        if member is first:
            break
    caller.reply(first, request_id, now)
    assert caller.outcome() == b"reply"


def test_what_failed_waits_for_a_member_where_the_only_one_has_left() -> None:
    caller = Repeater(1)
    request_id = caller.request(retry=FAILED)
    member = caller.one_sent()
    caller.fail(member, request_id, 0.0)
    caller.leave(member, 0.05)
    caller.requester.handle_timeout(0.1)
    assert not caller.sent()
    caller.reply(caller.join(1.0), request_id, 1.0)
    assert caller.outcome() == b"reply"


def test_what_failed_and_waits_for_no_member_ends_with_the_failure() -> None:
    caller = Repeater(1)
    request_id = caller.request(retry=Retry(on=("failed",), backoff_jitter=0.0))
    member = caller.one_sent()
    caller.fail(member, request_id, 0.0)
    caller.leave(member, 0.05)
    caller.requester.handle_timeout(0.1)
    remote_error(caller.outcome())


@pytest.mark.parametrize("end", ["cancel", "close", "timeout"])
def test_a_pause_ends_with_its_request(end: str) -> None:
    caller = Repeater(1)
    request_id = caller.request(timeout_s=0.3, retry=FAILED)
    caller.fail(caller.one_sent(), request_id, 0.0)
    if end == "cancel":
        caller.requester.cancel(request_id)
    elif end == "close":
        caller.requester.close(IrisError())
    else:
        caller.requester.handle_timeout(0.31)
        caller.requester.cancel(request_id)
    caller.check_idle()


def test_a_key_is_asked_again_at_its_own_member_when_all_have_failed_it() -> None:
    caller = Repeater(3)
    request_id = caller.request(timeout_s=60.0, retry=Retry(on=("failed",), attempts=9, backoff_jitter=0.0), key=b"k" * 16)
    order = []
    for _ in range(6):
        order.append(caller.holder())
        caller.fail(order[-1], request_id, 0.0)
        caller.requester.handle_timeout(caller.due())
    assert order[:3] == order[3:], "in the order of the key"
    assert len({id(member) for member in order}) == 3
    caller.reply(caller.holder(), request_id, 9.0)
    assert caller.outcome() == b"reply"


def test_the_flags_are_policies() -> None:
    assert retry_of(idempotent=False) is None
    assert retry_of(idempotent=True) == Retry() == IDEMPOTENT
    assert retry_of(idempotent=True, retry_failed=True) == Retry(on=("lost", "failed", "no_members"))


# -- pauses


@pytest.mark.parametrize(
    ("values", "pauses"),
    [
        ({}, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]),
        ({"backoff_initial": 1.0, "backoff_factor": 1.0}, [1.0] * 9),
        ({"backoff_initial": 2.0, "backoff_max": 1.0}, [1.0] * 9),
        ({"backoff_initial": 0.0, "backoff_factor": 1e300}, [0.0] * 9),
        ({"backoff_factor": 1e300}, [0.1] + [10.0] * 8),
        ({"backoff_max": 0.0}, [0.0] * 9),
    ],
)
def test_pauses_grow_by_a_factor_up_to_a_bound(values: dict[str, float], pauses: list[float]) -> None:
    retry = Retry(**values, backoff_jitter=0.0)  # type: ignore[arg-type]

    class Fixed:
        def random(self) -> float:
            return 0.7

        uniform = randrange = None

    assert [retry.backoff_s(number, Fixed()) for number in range(1, 10)] == pytest.approx(pauses)  # type: ignore[arg-type]
    assert retry.backoff_s(10**9, Fixed()) == pytest.approx(pauses[-1])  # type: ignore[arg-type]
    assert BACKOFF_S > 0


def test_a_policy_shows_what_differs_from_the_default() -> None:
    assert repr(Retry()) == "Retry()"
    shown = repr(Retry(attempts=3, on=("failed",), backoff_max=2.0))
    assert shown == "Retry(attempts=3, on=('failed',), backoff_max=2.0)"
    assert eval(shown) == Retry(attempts=3, on=("failed",), backoff_max=2.0)


# -- members that are lost


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("key", [b"", b"k" * 16])
def test_no_more_members_are_lost_than_may_be(limit: int, key: bytes) -> None:
    caller = Repeater(12)
    caller.request(retry=Retry(members_lost_max=limit), key=key)
    lost = []
    for _ in range(limit):
        lost.append(caller.holder())
        caller.lose(lost[-1], 0.1)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == tuple(member.peer.id.hex() for member in lost)
    assert (error.cluster, error.member, error.gateway) == ("cluster", error.members[-1], "")
    assert all(member[:8] in str(error) for member in error.members)
    assert not caller.sent()
    assert len(caller.members()) == 12 - limit


def test_idempotent_requests_lose_two_members_unless_told_otherwise() -> None:
    assert Retry().members_lost_max == MEMBERS_LOST_MAX == 2
    caller = Repeater(12)
    caller.request(idempotent=True)
    for _ in range(2):
        caller.lose(caller.one_sent(), 0.1)
    assert isinstance(caller.outcome(), TooManyMembersLost)
    caller = Repeater(12)
    caller.request(retry=Retry(members_lost_max=None))
    for _ in range(11):
        caller.lose(caller.one_sent(), 0.1)
    assert len(caller.sent()) == 1


def test_a_request_that_is_executed_at_most_once_loses_one_member_as_ever() -> None:
    caller = Repeater(3)
    caller.request()
    caller.lose(caller.one_sent(), 0.1)
    error = caller.outcome()
    assert type(error) is MemberLost


def test_what_was_not_sent_loses_nobody() -> None:
    caller = Repeater(4)
    request_id = caller.request(idempotent=True)
    for _ in range(3):
        member = caller.one_sent()
        caller.leave(member, 0.1)
        caller.requester.give_back(request_id, member.peer, 0.1, is_tried=True)
    caller.reply(caller.one_sent(), request_id, 0.2)
    assert caller.outcome() == b"reply"


def test_a_member_whose_link_broke_counts_when_it_does_not_come_back() -> None:
    """A key waits for the same member over a new link; that there is none for it is what tells that the member is lost."""
    caller = Repeater(4)
    request_id = caller.request(retry=Retry(members_lost_max=1), key=b"k" * 16)
    member = caller.holder()
    caller.requester.peer_lost(member.peer, 0.1, is_broken=True)
    assert caller.holder() is member, "it is given to the same member again"
    caller.requester.give_back(request_id, member.peer, 0.2, is_tried=True)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (member.peer.id.hex(),)


@pytest.mark.parametrize("is_exclusive", [False, True])
@pytest.mark.parametrize("has_stalled", [False, True])
def test_a_member_that_the_view_has_lost_before_its_link_breaks_counts(is_exclusive: bool, has_stalled: bool) -> None:
    """The root may see the death first: then nobody waits for the member to come back, and it counts at once."""
    caller = Repeater(4)
    request_id = caller.request(retry=Retry(members_lost_max=1), key=b"k" * 16, is_exclusive=is_exclusive)
    member = caller.holder()
    if is_exclusive:
        caller.requester.receive_rejection(member.peer, request_id, packets.Rejection.RESERVED, 0.1)
        assert caller.holder() is member
    caller.leave(member, 0.1)
    caller.requester.peer_lost(member.peer, 0.1, is_broken=True, is_silent=has_stalled)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (member.peer.id.hex(),)
    assert [message.kind for message in caller.raw()].count(packets.LOSSES) == 3


@pytest.mark.parametrize(
    ("retry", "is_exclusive", "waits"),
    [
        (Retry(members_lost_max=1), False, True),
        (Retry(), True, True),
        (Retry(), False, False),
        (Retry(members_lost_max=None), False, False),
    ],
)
@pytest.mark.parametrize("are_many", [False, True])
def test_a_request_that_may_lose_one_member_alone_waits_for_news_of_the_last_death(
    retry: Retry, is_exclusive: bool, waits: bool, are_many: bool
) -> None:
    caller = Repeater(4)
    caller.requester.request_many(caller.group, [("first", "k", b"")], 5.0, 0.0)  # the member of the key is known from now on
    caller.requester.cancel_all(lambda _token: True)
    caller.raw()
    caller.group.lost_at = 1.0
    if are_many and not is_exclusive:
        caller.requester.request_many(caller.group, [("token", "k", b"")], 5.0, 1.2, retry)
    else:
        caller.request(1.2, retry=retry, key=b"k" * 16, is_exclusive=is_exclusive)
    assert bool(caller.raw()) is not waits
    if waits:
        assert caller.due() == 1.0 + NEWS_S
        caller.requester.handle_timeout(1.0 + NEWS_S)
        assert len(caller.raw()) == 1


@pytest.mark.parametrize("key", [b"", b"k" * 16])
def test_members_that_fall_silent_do_not_count(key: bytes) -> None:
    """A process that the request ends closes its connections: silence is a cut network, or a process that was stopped."""
    caller = Repeater(5)
    request_id = caller.request(retry=Retry(members_lost_max=1), key=key)
    for _ in range(4):
        member = caller.holder()
        caller.leave(member, 0.1)
        caller.requester.peer_lost(member.peer, 0.1, is_silent=True)
    caller.reply(caller.holder(), request_id, 0.2)
    assert caller.outcome() == b"reply"


def test_a_link_that_breaks_often_loses_nobody() -> None:
    caller = Repeater(4)
    request_id = caller.request(retry=Retry(members_lost_max=1), key=b"k" * 16)
    member = caller.holder()
    for _ in range(5):
        caller.requester.peer_lost(member.peer, 0.1, is_broken=True)
        assert caller.holder() is member
    caller.reply(member, request_id, 0.2)
    assert caller.outcome() == b"reply"


def test_what_the_ring_has_lost_loses_nobody() -> None:
    caller = Repeater(4)
    request_id = caller.request(timeout_s=60.0, idempotent=True)
    for _ in range(3):
        caller.one_sent()
        caller.requester.routed(request_id, 0.0)
        caller.requester.handle_timeout(caller.due())
    caller.reply(caller.one_sent(), request_id, 9.0)
    assert caller.outcome() == b"reply"


@pytest.mark.parametrize("limit", [1, 2, 3, None])
def test_no_more_members_have_a_request_at_once_than_it_may_lose(limit: int | None) -> None:
    """A request that ends its members slowly is at all of its holders when the first one dies."""
    caller = Repeater(6)
    caller.request(timeout_s=60.0, retry=Retry(members_lost_max=limit, hedge_after=1.0), key=b"")
    pending = caller.requester._pending[1]
    pending.kind = packets.REQUEST_ONCE
    caller.sent()
    caller.requester._hedges.schedule(1.0, 1, 2)
    for now in range(1, 50):
        caller.requester.handle_timeout(float(now))
    holders = 1 + len(pending.also or ())
    assert holders == (6 if limit is None else limit)


def test_all_that_had_it_at_once_count() -> None:
    caller = Repeater(6)
    caller.request(timeout_s=60.0, retry=Retry(hedge_after=1.0))
    pending = caller.requester._pending[1]
    pending.kind = packets.REQUEST_ONCE
    first = caller.holder()
    caller.requester._hedges.schedule(1.0, 1, 2)
    caller.requester.handle_timeout(1.0)
    second = caller.holder()
    caller.lose(first, 1.1)
    assert not caller.requester.outcomes_received(), "the other one may answer"
    caller.lose(second, 1.2)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert set(error.members) == {first.peer.id.hex(), second.peer.id.hex()}


def test_members_that_die_after_they_were_told_to_stop_count() -> None:
    caller = Repeater(6)
    caller.request(timeout_s=60.0, retry=Retry(attempt_timeout=1.0))
    first = caller.holder()
    caller.requester.handle_timeout(1.0)
    second = caller.holder()
    caller.lose(first, 1.5)
    caller.requester.handle_timeout(2.0)
    third = caller.holder()
    caller.lose(second, 2.5)
    assert not caller.requester.outcomes_received(), "the third one may answer"
    caller.requester.handle_timeout(3.0)
    caller.sent()
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (first.peer.id.hex(), second.peer.id.hex())
    assert third.in_flight == 0


# -- nobody there


@pytest.mark.parametrize("idempotent", [False, True])
def test_where_nobody_is_to_be_waited_for_that_is_known_at_once(idempotent: bool) -> None:
    caller = Repeater(0)
    caller.request(idempotent=idempotent, members_wait_s=0.0)
    assert isinstance(caller.outcome(), NoMembers)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_member_is_waited_for_as_long_as_the_caller_says(idempotent: bool) -> None:
    caller = Repeater(0)
    caller.request(10.0, idempotent=idempotent, members_wait_s=2.0)
    caller.requester.view_changed(11.0)
    caller.requester.handle_timeout(11.999)
    assert caller.due() == 12.0
    caller.requester.handle_timeout(12.0)
    assert isinstance(caller.outcome(), NoMembers)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_member_that_comes_in_that_time_is_asked(idempotent: bool) -> None:
    caller = Repeater(0)
    request_id = caller.request(idempotent=idempotent, members_wait_s=2.0)
    member = caller.join(1.0)
    assert caller.one_sent() is member
    caller.reply(member, request_id, 1.5)
    assert caller.outcome() == b"reply"


def test_the_time_begins_anew_when_the_last_member_has_gone() -> None:
    caller = Repeater(0)
    caller.request(timeout_s=60.0, idempotent=True, members_wait_s=2.0)
    member = caller.join(1.0)
    caller.one_sent()
    caller.lose(member, 30.0)
    assert caller.due() == 32.0
    caller.requester.handle_timeout(32.0)
    error = caller.outcome()
    assert isinstance(error, MemberLost)


def test_it_waits_no_longer_than_the_request_has_time() -> None:
    caller = Repeater(0)
    caller.request(timeout_s=1.0, idempotent=True, members_wait_s=30.0)
    assert caller.due() == 1.0
    caller.requester.handle_timeout(1.0)
    assert isinstance(caller.outcome(), NoMembers)


def test_a_view_that_is_not_known_yet_is_nobody_that_is_missing() -> None:
    caller = Repeater(None)
    request_id = caller.request(members_wait_s=0.0)
    assert not caller.requester.outcomes_received()
    member = caller.join(0.5)
    caller.reply(member, request_id, 0.6)
    assert caller.outcome() == b"reply"
    assert caller.sent() == [(REQUEST, member, request_id)]


def test_a_policy_that_waits_for_nobody_waits_if_the_caller_says_so() -> None:
    caller = Repeater(0)
    caller.request(retry=Retry(on=("lost",)), members_wait_s=math.inf)
    assert caller.due() == 5.0
    caller.request(retry=Retry(on=("lost",)), token="at once")
    assert [token for token, _error in caller.requester.outcomes_received()] == ["at once"]
