"""Hedging: when a second member is asked, which one, and what becomes of those that were asked before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.errors import NoMembers, RequestTimeout
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import RequestSpec, new_request
from iris_py.patterns.request.request_queues import RETRY_DELAY_S, RETRY_DELAY_S_MAX
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.retry import IDEMPOTENT, Retry
from iris_py.peers.hedging import HEDGES_AT_FIRST, LATE_S, SIGN_S, UNMEASURED_S_MAX, UNMEASURED_SHARE
from iris_py.peers.member import Placement
from iris_py.wire.packets import CANCEL, REQUEST_ONCE, Rejection
from tests.unit.iris_py.patterns.request.test_requester import Caller

if TYPE_CHECKING:
    from types import SimpleNamespace

    from iris_py.peers.member import KnownMember

TIMEOUT_S = 10.0
#: How long a member is waited for alone while nothing is known of the cluster.
DELAY_S = min(UNMEASURED_S_MAX, TIMEOUT_S * UNMEASURED_SHARE)


#: Members are asked as well as long as there are others.
RISKY = Retry(members_lost_max=None)


class Hedger(Caller):
    """A caller whose requests may be hedged."""

    def ask(self, now: float = 0.0, *, key: bool = False, token: object = "token", retry: Retry = RISKY) -> int:
        spec = RequestSpec(b"payload", TIMEOUT_S, retry, b"k" * 16, is_anchored=key, waits=True)
        return self.requester.begin(new_request(self.group, spec, token, now), now)

    def pass_time(self, until: float) -> list[tuple[int, KnownMember, int]]:
        """Do what is due until a time, each when it is; return what is sent."""
        sent: list[tuple[int, KnownMember, int]] = []
        for _ in range(100):
            due = self.requester.deadline()
            if due is None or due > until:
                return sent
            self.requester.handle_timeout(due)
            sent += self.sent()
        raise AssertionError("it comes due for ever")

    def hear(self, member: KnownMember, now: float) -> None:
        cast("SimpleNamespace", member.peer.link).heard_at = now


def make(members: int = 2) -> Hedger:
    caller = Hedger(members)
    for member in caller.members():
        caller.hear(member, 0.0)
    return caller


def test_a_second_member_is_asked_when_the_first_takes_long_and_the_first_answer_counts() -> None:
    caller = make()
    request_id = caller.ask()
    ((kind, first, _id),) = caller.sent()
    assert kind == REQUEST_ONCE
    assert caller.requester.deadline() == DELAY_S
    assert caller.pass_time(DELAY_S - 0.001) == []
    ((kind, second, id_),) = caller.pass_time(DELAY_S)
    assert (kind, id_) == (REQUEST_ONCE, request_id)
    assert second is not first
    assert (caller.requester.counts.hedged, first.in_flight, second.in_flight) == (1, 1, 1)
    assert first.service_time_s == pytest.approx(DELAY_S), "what it has taken already counts"
    caller.requester.receive_reply(first.peer, request_id, b"reply", 1.0)
    assert caller.sent() == [(CANCEL, second, request_id)]
    assert caller.outcome() == b"reply"


def test_only_what_may_be_hedged_tells_how_long_members_take() -> None:
    caller = make()
    for ask in (caller.request, caller.ask):
        request_id = ask()
        ((_kind, member, _id),) = caller.sent()
        assert caller.group.hedging.late_s == 0.0
        caller.requester.receive_reply(member.peer, request_id, b"", 0.01)
        caller.outcome()
    assert caller.group.hedging.late_s > 0.0


def test_a_third_member_is_asked_and_none_twice() -> None:
    caller = make(3)
    caller.ask()
    asked = [member for _kind, member, _id in caller.sent()]
    asked += [member for _kind, member, _id in caller.pass_time(TIMEOUT_S - 0.1)]
    assert len(asked) == 3
    assert set(asked) == set(caller.members())


def test_no_more_members_have_it_at_once_than_it_may_lose() -> None:
    """It may be what ends their processes, and then ends all that have it."""
    caller = make(3)
    caller.ask(retry=IDEMPOTENT)
    asked = caller.sent() + caller.pass_time(TIMEOUT_S - 0.1)
    assert len(asked) == 2
    caller = make(3)
    caller.ask(retry=Retry(members_lost_max=1))
    asked = caller.sent() + caller.pass_time(TIMEOUT_S - 0.1)
    assert len(asked) == 1


def test_nobody_else_is_asked_where_there_is_nobody_else() -> None:
    caller = make(1)
    caller.ask()
    caller.sent()
    assert caller.requester.deadline() == TIMEOUT_S, "there is no timer for it either"
    caller = make(2)
    caller.ask()
    ((_kind, first, _id),) = caller.sent()
    (other,) = [member for member in caller.members() if member is not first]
    other.peer.link = None
    assert caller.pass_time(2.0) == [], "it could not be sent at once"
    assert caller.requester.counts.hedged == 0
    assert first.in_flight == 1


def test_a_member_without_room_is_not_asked_in_addition() -> None:
    caller = make(2)
    caller.ask()
    ((_kind, first, _id),) = caller.sent()
    (other,) = [member for member in caller.members() if member is not first]
    caller.congest(other)
    assert caller.pass_time(2.0) == []


def test_a_node_that_stood_still_itself_reads_first() -> None:
    caller = make()
    caller.ask()
    caller.sent()
    late = DELAY_S + LATE_S + 0.01
    caller.requester.handle_timeout(late)
    assert caller.sent() == []
    again = caller.requester.deadline()
    assert again is not None
    assert again == pytest.approx(late + DELAY_S)
    assert len(caller.pass_time(again)) == 1


def test_where_nobody_else_can_be_asked_that_is_looked_at_ever_more_rarely() -> None:
    caller = make()
    caller.ask(100.0)
    ((_kind, first, _id),) = caller.sent()
    (other,) = [member for member in caller.members() if member is not first]
    other.peer.link = None
    waited = []
    for _ in range(4):
        due = caller.requester.deadline()
        assert due is not None
        waited.append(due - 100.0)
        caller.requester.handle_timeout(due)
    assert waited == pytest.approx([DELAY_S, 2 * DELAY_S, 4 * DELAY_S, 8 * DELAY_S])


def test_of_many_that_were_begun_together_those_that_have_ended_hide_no_other() -> None:
    caller = make()
    requester = caller.requester = Requester(random.Random(1), lambda: 7, Losses(bytes(16)))
    first, _second = requester.request_many(caller.group, [(token, "key", b"") for token in (1, 2)], TIMEOUT_S, 0.0)
    member = caller.sent()[0][1]
    requester.receive_reply(member.peer, first, b"", 0.0)
    assert requester.deadline() is not None
    requester.handle_timeout(requester.deadline() or 0.0)
    assert list(requester.silent) == [member.peer]


def test_the_budget_bounds_how_many_are_asked_in_addition() -> None:
    caller = make()
    requests = int(HEDGES_AT_FIRST) + 5
    for number in range(requests):
        caller.ask(token=number)
    caller.sent()
    assert len(caller.pass_time(DELAY_S)) == HEDGES_AT_FIRST
    assert caller.pass_time(2 * DELAY_S - 0.001) == [], "the others are looked at again after twice the time"


def test_a_rejection_or_the_death_of_one_leaves_the_request_to_the_other() -> None:
    for is_second in (False, True):
        caller = make()
        request_id = caller.ask()
        ((_kind, first, _id),) = caller.sent()
        ((_kind, second, _id),) = caller.pass_time(DELAY_S)
        gone, left = (second, first) if is_second else (first, second)
        caller.requester.receive_rejection(gone.peer, request_id, Rejection.OVERLOADED, 1.0)
        assert (gone.in_flight, left.in_flight) == (0, 1)
        assert caller.outcomes == {}
        caller.requester.receive_reply(left.peer, request_id, b"reply", 1.1)
        assert caller.outcome() == b"reply"


def test_when_both_have_died_the_request_waits_for_another_member_until_its_time_is_up() -> None:
    caller = make()
    caller.ask()
    ((_kind, first, _id),) = caller.sent()
    ((_kind, second, _id),) = caller.pass_time(DELAY_S)
    caller.leave(first, 1.0, lost=True)
    caller.leave(second, 1.1, lost=True)
    assert caller.requester.outcomes_received() == []
    caller.requester.handle_timeout(TIMEOUT_S)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert error.member in (first.peer.name, second.peer.name), "one of them may have executed it"


def test_a_member_that_a_key_chooses_is_asked_for_a_sign_of_life_first() -> None:
    caller = make()
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    assert caller.pass_time(DELAY_S) == []
    assert list(caller.requester.silent) == [first.peer]
    sign_s = max(DELAY_S, min(SIGN_S, TIMEOUT_S * UNMEASURED_SHARE))
    ((_kind, second, _id),) = caller.pass_time(DELAY_S + sign_s)
    assert second is not first


def test_a_member_that_gives_a_sign_of_life_keeps_its_keys_however_long_it_takes() -> None:
    caller = make()
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    now = 0.0
    while now < TIMEOUT_S - 0.5:
        now += 0.1
        assert caller.pass_time(now) == []
        caller.requester.silent.clear()
        caller.hear(first, now)
    assert caller.requester.counts.hedged == 0


def test_a_member_has_the_time_for_a_sign_however_often_its_request_is_looked_at() -> None:
    """The first of a batch with a key is looked at for itself, and for all that were begun with it."""
    caller = make()
    ids = caller.requester.request_many(caller.group, [(token, "key", b"") for token in (1, 2)], TIMEOUT_S, 0.0)
    first = caller.sent()[0][1]
    sign_s = max(DELAY_S, min(SIGN_S, TIMEOUT_S * UNMEASURED_SHARE))
    assert caller.pass_time(DELAY_S + sign_s - 0.001) == [], "it was given to the second member in the moment of the question"
    assert list(caller.requester.silent) == [first.peer]
    assert [id_ for _kind, _member, id_ in caller.pass_time(DELAY_S + sign_s)] == [*ids]


def test_a_key_is_given_again_to_a_member_whose_link_broke_and_to_another_when_no_new_one_comes() -> None:
    caller = make()
    request_id = caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    link, first.peer.link = first.peer.link, None
    caller.requester.peer_lost(first.peer, 1.0, is_broken=True)
    assert caller.sent() == [(REQUEST_ONCE, first, request_id)]
    assert (first.in_flight, caller.requester.counts.retries) == (1, 1)
    given_up_at = 1.0 + DELAY_S + caller.group.hedging.sign_s(TIMEOUT_S)
    assert caller.pass_time(given_up_at - 0.001) == []
    ((_kind, second, _id),) = caller.pass_time(given_up_at)
    assert second is not first
    first.peer.link = link
    caller.requester.receive_reply(first.peer, request_id, b"reply", 3.0)
    assert caller.sent() == [(CANCEL, second, request_id)]
    assert caller.outcome() == b"reply"


def test_what_has_no_key_leaves_a_member_whose_link_broke_at_once() -> None:
    caller = make()
    for number in range(10):
        caller.ask(token=number)
    first = caller.members()[0]
    held = {id_ for _kind, member, id_ in caller.sent() if member is first}
    caller.requester.peer_lost(first.peer, 1.0, is_broken=True)
    assert {id_: member is first for _kind, member, id_ in caller.sent()} == dict.fromkeys(held, False)


def test_a_key_stays_with_a_member_that_has_a_new_link() -> None:
    caller = make()
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    link, first.peer.link = first.peer.link, None
    caller.requester.peer_lost(first.peer, 1.0, is_broken=True)
    caller.sent()
    caller.pass_time(caller.requester.deadline() or 0.0)
    first.peer.link = link
    now = 1.0
    while now < TIMEOUT_S - 0.5:
        now += 0.1
        caller.hear(first, now)
        assert caller.pass_time(now) == []
    assert caller.requester.counts.hedged == 0


def test_the_next_member_has_all_the_time_for_a_sign_though_the_one_before_was_asked_for_one() -> None:
    caller = make(3)
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    caller.pass_time(DELAY_S)
    caller.requester.silent.clear()
    caller.requester.peer_lost(first.peer, DELAY_S + 0.1)
    ((_kind, second, _id),) = caller.sent()
    asked_at = 2 * DELAY_S + 0.1
    given_up_at = asked_at + caller.group.hedging.sign_s(TIMEOUT_S)
    assert caller.pass_time(asked_at) == []
    assert list(caller.requester.silent) == [second.peer]
    assert caller.pass_time(given_up_at - 0.001) == []
    assert len(caller.pass_time(given_up_at)) == 1


@pytest.mark.parametrize("end", ["silent", "dead", "gone"])
def test_a_key_leaves_a_member_that_broke_its_link_and_does_not_live(end: str) -> None:
    caller = make()
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    first.peer.link = None
    first.peer.is_dead = end == "dead"
    if end == "gone":
        caller.leave(first, 3.0)
    caller.requester.peer_lost(first.peer, 3.0, is_broken=end != "silent")
    ((kind, second, _id),) = caller.sent()
    assert kind == REQUEST_ONCE
    assert second is not first


def test_this_node_itself_is_never_passed_over_for_a_key() -> None:
    caller = make()
    caller.ask(key=True)
    ((_kind, first, _id),) = caller.sent()
    first.peer.link, first.peer.is_local = None, True
    assert caller.pass_time(TIMEOUT_S - 0.1) == []
    assert not caller.requester.silent


def test_a_request_that_was_not_sent_yet_is_not_hedged() -> None:
    caller = make()
    caller.ask()
    ((_kind, first, _id),) = caller.sent()
    cast("SimpleNamespace", first.peer.link).is_open = False
    assert caller.pass_time(2.0) == []
    cast("SimpleNamespace", first.peer.link).is_open = True
    assert len(caller.pass_time(TIMEOUT_S - 0.1)) == 1


def test_requests_that_have_ended_cost_no_timer() -> None:
    caller = make()
    ids = [caller.ask(token=number) for number in range(5)]
    sent = caller.sent()
    for request_id, (_kind, member, _id) in zip(ids, sent, strict=True):
        caller.requester.receive_reply(member.peer, request_id, b"", 0.01)
    caller.requester.outcomes_received()
    assert caller.requester.deadline() is None


@pytest.mark.parametrize("reason", [Rejection.NOT_A_MEMBER, Rejection.OVERLOADED])
def test_members_that_took_nothing_are_tried_again_ever_more_rarely(reason: Rejection) -> None:
    caller = make(1)
    request_id = caller.ask()
    now, pauses = 0.0, []
    for _ in range(8):
        ((_kind, member, _id),) = caller.sent()
        caller.requester.receive_rejection(member.peer, request_id, reason, now)
        due = caller.requester.deadline()
        assert due is not None
        pauses.append(due - now)
        now = due
        caller.requester.handle_timeout(now)
    assert pauses == [pytest.approx(min(RETRY_DELAY_S_MAX, RETRY_DELAY_S * 2**number)) for number in range(8)]


def test_members_elsewhere_are_counted_where_a_zone_is_required() -> None:
    caller = make(3)
    caller.requester.begin(
        new_request(caller.group, RequestSpec(b"", TIMEOUT_S, placement=Placement("", "eu")), "token", 0.0), 0.0
    )
    error = caller.outcome()
    assert isinstance(error, NoMembers)
    assert "3 members" in str(error)
