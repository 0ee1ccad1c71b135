"""Tests of iris_py/patterns/request/candidates.py and of stand-ins in the requester (docs/design.md 6.13)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from iris_overlay.node_info import NodeInfo
from iris_py.errors import MemberLost, NoMembers, Overloaded, RemoteError, RequestTimeout
from iris_py.patterns.request import candidates
from iris_py.patterns.request.candidates import FULL_S
from iris_py.patterns.request.pending import RequestSpec, new_request
from iris_py.patterns.request.request_queues import RETRY_DELAY_S_MAX, QueueKind
from iris_py.patterns.request.retry import Retry, retry_of
from iris_py.peers.member import OWN_ONLY, Placement
from iris_py.wire import packets
from iris_py.wire.packets import Rejection
from tests.unit.iris_py.patterns.request.test_requester import Caller

if TYPE_CHECKING:
    from iris_py.errors import IrisError
    from iris_py.peers.member import KnownMember

FULL, GONE, LATE, NO_TUNNELS = Rejection.OVERLOADED, Rejection.NOT_A_MEMBER, Rejection.EXPIRED, Rejection.NO_TUNNELS
KEY = b"\x00\x07" + bytes(14)


class Ranked(Caller):
    """A requester, and a cluster of members with ranks; a letter behind a rank says that this one takes overflow."""

    def __init__(self, *ranks: str) -> None:
        super().__init__(len(ranks))
        for member, rank in zip(self.members(), ranks, strict=True):
            member.rank, member.takes_overflow = int(rank[0]), rank.endswith("f")
        self.group.members = self.members()  # the view is taken again
        self.everybody = self.members()

    def all_members(self) -> list[KnownMember]:
        return self.everybody

    def ask(self, *, placement: Placement | None = None, key: bytes = b"", waits: bool = False, now: float = 0.0) -> int:
        retry = retry_of(idempotent=bool(key))
        spec = RequestSpec(b"", 5.0, retry, key, is_anchored=bool(key), placement=placement, waits=waits)
        return self.requester.begin(new_request(self.group, spec, "token", now), now)

    def asked(self) -> int:
        """Take the place of the only member that was sent something."""
        ((_kind, member, _id),) = self.sent()
        return self.everybody.index(member)

    def reject(self, request_id: int, index: int, reason: int, now: float = 0.0) -> None:
        self.requester.receive_rejection(self.everybody[index].peer, request_id, reason, now)


@pytest.mark.parametrize("ranks", [("0", "1"), ("0", "1f"), ("1", "2"), ("2f", "7f")])
def test_the_lowest_rank_is_asked_however_far_and_busy_it_is(ranks: tuple[str, str]) -> None:
    caller = Ranked(*ranks)
    near, _far = caller.everybody
    near.distance, near.in_flight = 3, 100
    caller.group.members = caller.everybody
    for _ in range(20):
        caller.ask()
        assert caller.asked() == 0


@pytest.mark.parametrize(
    ("ranks", "reason", "expected"),
    [
        (("0", "1"), FULL, Overloaded),
        (("0", "1"), LATE, RequestTimeout),
        (("0", "1"), NO_TUNNELS, NoMembers),
        (("0", "1"), GONE, 1),  # it says itself that it is none: the view is late
        (("0", "1f"), FULL, 1),
        (("0", "1f"), LATE, RequestTimeout),
        (("0", "1f"), NO_TUNNELS, 1),
        (("0", "1f"), GONE, 1),
        (("0", "2", "1f"), FULL, 2),
        (("0", "1", "2f"), FULL, 2),
        (("0", "1", "2f"), GONE, 1),
    ],
)
def test_a_rejection_goes_over_where_that_is_what_the_stand_in_is_for(
    ranks: tuple[str, ...], reason: int, expected: int | type[IrisError]
) -> None:
    caller = Ranked(*ranks)
    request_id = caller.ask()
    assert caller.asked() == 0
    caller.reject(request_id, 0, reason)
    if isinstance(expected, int):
        assert caller.asked() == expected
    else:
        assert isinstance(caller.outcome(), expected)


def test_every_member_is_asked_before_a_stand_in_and_these_in_order() -> None:
    caller = Ranked("2f", "0", "1f", "0", "0")
    request_id = caller.ask()
    seen = []
    for _ in caller.everybody:
        seen.append(caller.asked())
        caller.reject(request_id, seen[-1], FULL)
    assert sorted(seen[:3]) == [1, 3, 4]
    assert seen[3:] == [2, 0]
    error = caller.outcome()
    assert isinstance(error, Overloaded)
    assert error.tried == 5


def test_where_one_is_full_and_one_is_gone_only_overflow_goes_over() -> None:
    for ranks, goes_over in ((("0", "0", "1"), False), (("0", "0", "1f"), True)):
        caller = Ranked(*ranks)
        request_id = caller.ask()
        caller.reject(request_id, caller.asked(), GONE)
        caller.reject(request_id, caller.asked(), FULL)
        if goes_over:
            assert caller.asked() == 2
        else:
            assert isinstance(caller.outcome(), Overloaded)


@pytest.mark.parametrize("stand_in", ["1", "1f"])
def test_a_failure_stays_where_it_is(stand_in: str) -> None:
    caller = Ranked("0", stand_in)
    request_id = caller.request(retry=Retry(on=("failed",), attempts=2, backoff_initial=0.0))
    for _ in range(2):
        assert caller.asked() == 0, "no stand-in"
        caller.requester.receive_failure(caller.everybody[0].peer, request_id, packets.encode_failure(ValueError("no")), 0.1)
        caller.requester.handle_timeout(0.1)
    assert isinstance(caller.outcome(), RemoteError)


@pytest.mark.parametrize("stand_in", ["1", "1f"])
def test_what_a_lost_link_held_does_not_go_over_while_its_member_is_in_the_view(stand_in: str) -> None:
    caller = Ranked("0", stand_in)
    caller.request(idempotent=True)
    caller.asked()
    member = caller.everybody[0]
    caller.requester.peer_lost(member.peer, 0.1)
    assert not caller.sent(), "it may live, and remember what it has done"
    caller.requester.handle_timeout(0.2)
    assert caller.asked() == 0
    caller.group.members = caller.everybody[1:]
    caller.requester.peer_lost(member.peer, 0.3)
    assert caller.asked() == 1
    caller.requester.close(MemberLost("cluster", ""))


@pytest.mark.parametrize("stand_in", ["1", "1f"])
def test_what_no_member_can_be_reached_for_goes_over(stand_in: str) -> None:
    caller = Ranked("0", stand_in)
    request_id = caller.ask()
    assert caller.asked() == 0
    caller.requester.give_back(request_id, caller.everybody[0].peer, 0.1, is_tried=True)
    assert caller.asked() == 1


@pytest.mark.parametrize("stand_in", ["1", "1f"])
def test_a_link_that_is_full_for_a_moment_sends_nobody_over(stand_in: str) -> None:
    caller = Ranked("0", stand_in)
    member = caller.everybody[0]
    caller.congest(member)
    caller.ask()
    assert not caller.sent()
    caller.congest(member, congested=False)
    caller.requester.view_changed(0.1)
    assert caller.asked() == 0


@pytest.mark.parametrize("waits", [False, True])
def test_a_member_that_is_known_to_be_full_is_passed_over_until_it_answers_or_some_time_has_passed(waits: bool) -> None:
    caller = Ranked("0", "1f")
    member = caller.everybody[0]
    first = caller.ask(waits=waits)
    assert caller.asked() == 0
    second = caller.ask(waits=waits)
    assert caller.asked() == 0
    caller.reject(second, 0, FULL, 1.0)
    assert caller.asked() == 1
    caller.ask(waits=waits, now=1.01)
    assert caller.asked() == 1, "it is not asked"
    caller.requester.receive_reply(member.peer, first, b"", 1.02)
    third = caller.ask(waits=waits, now=1.02)
    assert caller.asked() == 0, "the place that was freed"
    caller.ask(waits=waits, now=1.02)
    assert caller.asked() == 1
    caller.ask(waits=waits, now=1.0 + FULL_S)
    assert caller.asked() == 0, "others may have freed one"
    caller.reject(third, 0, FULL, 1.0 + FULL_S)
    assert caller.asked() == 1


def test_the_full_are_not_the_absent() -> None:
    caller = Ranked("0", "1", "2f")
    caller.reject(caller.ask(), 0, FULL)
    assert [caller.everybody.index(member) for _kind, member, _id in caller.sent()] == [0, 2]
    caller.ask()
    assert caller.asked() == 2


def test_a_stand_in_that_is_known_to_be_full_is_asked_when_nobody_else_is_left() -> None:
    caller = Ranked("0", "1f")
    first = caller.ask()
    for index in (0, 1):
        assert caller.asked() == index
        caller.reject(first, index, FULL)
    caller.requester.outcomes_received()
    second = caller.ask()
    for index in (0, 1):
        assert caller.asked() == index
        caller.reject(second, index, FULL)
    error = caller.outcome()
    assert isinstance(error, Overloaded)
    assert error.tried == 2


def test_where_nobody_takes_the_overflow_nothing_is_remembered_of_the_full() -> None:
    for ranks in (("0", "0"), ("0", "0", "1")):
        caller = Ranked(*ranks)
        request_id = caller.ask()
        for _ in range(2):
            caller.reject(request_id, caller.asked(), FULL, 1.0)
        assert [member.full_until for member in caller.everybody] == [0.0] * len(ranks)


def test_all_that_are_known_to_be_full_are_asked_nevertheless_and_then_the_request_waits() -> None:
    caller = Ranked("0", "1f")
    begun = [caller.ask(waits=True) for _ in range(2)]
    caller.raw()
    caller.reject(begun[1], 0, FULL)
    assert caller.asked() == 1
    caller.reject(begun[1], 1, FULL)
    assert not caller.sent()
    assert (caller.group, None, QueueKind.USUAL) in caller.requester._rooms
    caller.requester.receive_reply(caller.everybody[0].peer, begun[0], b"", 0.1)
    assert caller.asked() == 0


def test_a_line_goes_over_as_soon_as_there_is_a_place_in_order() -> None:
    caller = Ranked("0", "1f", "2f")
    ids = [caller.ask(waits=True) for _ in range(6)]
    counts = Counter[int]()
    while messages := caller.sent():  # each member has one place, for the first that comes
        for _kind, member, request_id in messages:
            index = caller.everybody.index(member)
            counts[index] += 1
            if counts[index] > 1:
                caller.reject(request_id, index, FULL)
    assert [member.in_flight for member in caller.everybody] == [1, 1, 1]
    held = {caller.requester._pending[id_].member: id_ for id_ in ids if caller.requester._pending[id_].member}
    second = caller.everybody[2]
    caller.requester.receive_reply(second.peer, held[second], b"", 0.2)
    assert caller.asked() == 2, "nobody before it has a place"
    for member in caller.everybody:
        member.limit = 9.0
    caller.requester.view_changed(0.3)
    assert {caller.everybody.index(member) for _kind, member, _id in caller.sent()} == {0}


def test_who_is_rejected_while_others_wait_goes_over_at_once_if_there_is_a_place() -> None:
    caller = Ranked("0", "1f")
    first, second = (caller.ask(waits=True) for _ in range(2))
    caller.raw()
    stand_in = caller.everybody[1]
    caller.congest(stand_in)
    caller.reject(first, 0, FULL)
    assert not caller.sent(), "its link has no room"
    caller.congest(stand_in, congested=False)
    pending = caller.requester._pending[first]
    caller.requester._backlog.leave(first, pending)
    caller.requester._backlog.enter(first, pending, 0.1)
    caller.reject(second, 0, FULL, 0.1)
    assert [caller.everybody.index(member) for _kind, member, _id in caller.sent()] == [1, 1]


def test_a_key_stays_with_the_lowest_rank_until_that_is_gone() -> None:
    caller = Ranked("0", "1f", "2")
    request_id = caller.ask(key=KEY, waits=True)
    assert caller.asked() == 0
    caller.reject(request_id, 0, FULL)
    assert not caller.sent()
    assert (caller.group, None, QueueKind.KEYED) in caller.requester._rooms
    caller.requester.view_changed(0.001)
    assert not caller.sent(), "the stand-in has a place, and not for it"
    caller.requester.handle_timeout(RETRY_DELAY_S_MAX)
    assert caller.asked() == 0, "it is tried again"
    caller.reject(request_id, 0, FULL)
    caller.group.members = caller.everybody[1:]
    caller.requester.view_changed(1.0)
    assert caller.asked() == 1


def test_a_key_goes_on_when_those_of_its_rank_say_that_they_are_no_members() -> None:
    caller = Ranked("0", "1", "2")
    request_id = caller.ask(key=KEY)
    for index in (0, 1):
        assert caller.asked() == index
        caller.reject(request_id, index, GONE)
    assert caller.asked() == 2


def test_many_with_keys_wait_in_the_line_of_those_with_keys() -> None:
    caller = Ranked("0", "1f")
    request_id = caller.ask(key=KEY, waits=True)
    caller.raw()
    caller.reject(request_id, 0, FULL)
    caller.requester.request_many(caller.group, [("many", "key", b"")], 5.0, 0.1)
    assert not caller.sent(), "behind the one that came before"


@pytest.mark.parametrize("stand_in", ["1", "1f"])
@pytest.mark.parametrize("placement", [OWN_ONLY, Placement("eu", "", is_own=True), Placement("", "eu")])
def test_some_requests_are_for_ordinary_members_alone(placement: Placement, stand_in: str) -> None:
    caller = Ranked("0", stand_in)
    for member in caller.everybody:
        member.peer.info = NodeInfo(member.peer.id, (), "eu")
    request_id = caller.ask(placement=placement)
    assert caller.asked() == 0
    caller.reject(request_id, 0, FULL)
    error = caller.outcome()
    assert isinstance(error, Overloaded)
    assert error.tried == 1
    for reason in (GONE, FULL):
        waiting = caller.ask(placement=placement, key=KEY)
        assert caller.asked() == 0
        caller.reject(waiting, 0, reason)
        assert not caller.sent()
        caller.requester.cancel(waiting)
        caller.requester.outcomes_received()
    caller.group.members = caller.everybody[1:]
    caller.ask(placement=placement)
    error = caller.outcome()
    assert isinstance(error, NoMembers)
    assert error.elsewhere == 0


def test_a_silent_member_is_no_reason_to_go_over() -> None:
    caller = Ranked("0", "0", "1f", "1f", "2f")
    request_id = caller.request(idempotent=True)
    first = caller.all_members()[caller.asked()]
    pending = caller.requester._pending[request_id]
    (second,) = candidates.seconds(pending, first)
    assert second.rank == 0
    pending.tried = [second]
    assert candidates.seconds(pending, first) == []
    one, other, last = caller.everybody[2:]
    pending.tried = [member for member in caller.everybody if not member.rank]
    assert candidates.seconds(pending, one) == [other], "two gateways to the same cloud"
    pending.tried = []
    assert {member.rank for member in candidates.seconds(pending, last)} == {0}, "it comes back"
    assert all(member.rank == 0 for member in candidates.linked(pending, last))


def test_what_a_tunnel_finds_full_says_nothing_of_places_for_requests() -> None:
    caller = Ranked("0", "1f")
    member = caller.everybody[0]
    request_id = caller.ask()
    assert caller.asked() == 0
    pending = caller.requester._pending[request_id]
    pending.offer = object()  # type: ignore[assignment]
    candidates.note_rejection(pending, member, FULL, 1.0)
    assert not member.is_known_full(1.0)
    pending.offer = None
    candidates.note_rejection(pending, member, GONE, 1.0)
    assert not member.is_known_full(1.0)
    candidates.note_rejection(pending, member, FULL, 1.0)
    assert member.is_known_full(1.0)
