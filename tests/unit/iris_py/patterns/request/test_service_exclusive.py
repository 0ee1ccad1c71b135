"""Tests of iris_py/patterns/request/service.py: losses that callers are told of, and the place of exclusive requests."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request import place
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.packets import REJECTION, REPLY, Rejection
from tests.unit.iris_py.patterns.request.test_service import Member

IDENTITY = b"i" * 16
LOST = b"lost" * 4


def peer(letter: bytes) -> Peer:
    return Peer(NodeInfo(NodeId(letter * 16), ()), None)


def reserve(member: Member, caller: Peer, identity: bytes = IDENTITY, *, now: float = 0.0, time_left_ms: int = 1000) -> int:
    member.last_id += 1
    how = (packets.RESERVE, member.last_id, time_left_ms, identity)
    member.service.receive_reservation(PeerMessage(member.group, caller, *how), now)
    return member.last_id


def answers(member: Member) -> list[tuple[int, int, int, bytes]]:
    """Take (kind, id, reason, payload) of what is said."""
    return [(each.kind, each.id, each.argument & 0xFF, each.payload) for each in member.service.messages_to_send()]


# -- losses


def test_who_does_not_know_of_a_loss_is_told_instead_of_risking_this_member() -> None:
    member = Member((4, 0))
    member.service._losses.note(member.group.subject + IDENTITY, [LOST], b"t" * 16, 0.0)
    refused = member.request_once(identity=IDENTITY)
    assert answers(member) == [(REJECTION, refused, Rejection.LOST_BEFORE, LOST)]
    assert not member.started()
    again = member.request_once(identity=IDENTITY)
    (execution,) = member.started()
    assert execution.id == again
    member.request_once(identity=b"o" * 16)
    assert len(member.started()) == 1, "another request"
    assert member.service.rejected == {"lost_before": 1}


def test_of_requests_that_came_together_each_is_told_its_own() -> None:
    member = Member((4, 0))
    member.service._losses.note(member.group.subject + IDENTITY, [LOST], b"t" * 16, 0.0)
    requests = [(number, 1000, identity, b"", NO_HEADERS) for number, identity in enumerate((b"", IDENTITY, b"o" * 16))]
    member.service.receive_requests(member.group, member.peer, requests, 0.0)
    assert {execution.id for execution in member.started()} == {0, 2}
    assert answers(member) == [(REJECTION, 1, Rejection.LOST_BEFORE, LOST)]


def test_a_reply_that_is_remembered_needs_no_refusal() -> None:
    member = Member((4, 0))
    member.request_once(identity=IDENTITY)
    (execution,) = member.started()
    member.service.reply(execution, b"reply", 0.0)
    answers(member)
    member.service._losses.note(member.group.subject + IDENTITY, [LOST], b"t" * 16, 0.0)
    asked = [member.request_once(identity=IDENTITY), reserve(member, member.peer)]
    assert answers(member) == [(REPLY, id_, 0, b"reply") for id_ in asked]
    assert not member.started()


# -- the place of an exclusive request


def test_one_exclusive_request_at_a_time_has_the_place() -> None:
    member = Member((4, 0))
    first, second, third = peer(b"1"), peer(b"2"), peer(b"3")
    one, two, three = reserve(member, first), reserve(member, second, b"o" * 16), reserve(member, third, b"o" * 16)
    assert answers(member) == [(REJECTION, one, Rejection.RESERVED, b"")]
    member.service.receive_cancel(second, one, 0.0)
    assert answers(member) == [], "only who has the place gives it back"
    member.service.receive_cancel(first, one, 0.0)
    assert answers(member) == [(REJECTION, each, Rejection.RESERVED, b"") for each in (two, three)]


def test_callers_of_the_same_exclusive_request_have_the_place_together_and_it_is_executed_once() -> None:
    member = Member((4, 0))
    asked = [reserve(member, member.peer) for _ in range(2)]
    assert answers(member) == [(REJECTION, each, Rejection.RESERVED, b"") for each in asked]
    for request_id in asked:
        member.service.receive_request_once(member.group, member.peer, request_id, 1000, IDENTITY, b"", 0.0)
    (execution,) = member.started()
    member.service.reply(execution, b"reply", 0.0)
    assert answers(member) == [(REPLY, each, 0, b"reply") for each in asked]


def test_who_waits_for_the_place_of_a_member_that_leaves_asks_another_one() -> None:
    member = Member((4, 0))
    first, second = peer(b"1"), peer(b"2")
    reserve(member, first)
    asked = reserve(member, second, b"o" * 16)
    assert (member.service.owes(first), member.service.owes(second)) == (True, True)
    answers(member)
    assert (member.service.owes(first), member.service.owes(second)) == (False, True)
    (registration,) = member.service.registrations_of(member.group)
    member.service.close(registration)
    assert answers(member) == [(REJECTION, asked, Rejection.NOT_A_MEMBER, b"")]
    assert not member.service.owes(second)


def test_too_many_that_wait_for_the_place_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "CALLERS_MAX", 0)
    member = Member((4, 0))
    asked = reserve(member, peer(b"1"))
    assert answers(member) == [(REJECTION, asked, Rejection.BUSY, b"")]


@pytest.mark.parametrize("end", ["lost", "late"])
def test_the_place_of_a_caller_that_is_gone_is_free(end: str) -> None:
    member = Member((4, 0))
    first, second = peer(b"1"), peer(b"2")
    reserve(member, first, time_left_ms=1000)
    if end == "lost":
        member.service.peer_lost(first, 0.0)
    answers(member)
    now = 0.5 if end == "lost" else 1.001
    asked = reserve(member, second, b"o" * 16, now=now)
    assert answers(member) == [(REJECTION, asked, Rejection.RESERVED, b"")]


def test_the_place_is_granted_by_the_clock_when_the_time_of_its_caller_ends() -> None:
    member = Member((4, 0))
    reserve(member, peer(b"1"), time_left_ms=1000)
    assert member.service.has_new_deadline
    asked = reserve(member, peer(b"2"), b"o" * 16, time_left_ms=5000)
    answers(member)
    assert (member.service.deadline(), member.service.has_new_deadline) == (1.0, False)
    member.service.handle_timeout(0.999)
    assert answers(member) == []
    member.service.handle_timeout(1.0)
    assert answers(member) == [(REJECTION, asked, Rejection.RESERVED, b"")]
    assert member.service.deadline() == 5.0


def test_a_caller_makes_room_for_those_of_other_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "CALLERS_MAX", 3)
    member = Member((4, 0))
    greedy, honest = peer(b"1"), peer(b"2")
    asked = [reserve(member, greedy, b"%016d" % number) for number in range(4)]
    assert answers(member) == [(REJECTION, asked[0], Rejection.RESERVED, b""), (REJECTION, asked[3], Rejection.BUSY, b"")]
    waits = reserve(member, honest, b"o" * 16)
    assert answers(member) == [(REJECTION, asked[2], Rejection.BUSY, b"")]
    member.service.receive_cancel(greedy, asked[0], 0.0)
    member.service.receive_cancel(greedy, asked[1], 0.0)
    assert answers(member)[-1] == (REJECTION, waits, Rejection.RESERVED, b"")


def test_ordinary_requests_do_not_wait_for_the_place() -> None:
    member = Member((4, 0))
    reserve(member, peer(b"1"))
    member.request_once(identity=b"o" * 16)
    member.request()
    assert len(member.started()) == 2


def test_a_place_is_refused_where_the_request_would_be() -> None:
    member = Member((4, 0))
    member.service._losses.note(member.group.subject + IDENTITY, [LOST], b"t" * 16, 0.0)
    caller = peer(b"1")
    asked = reserve(member, caller)
    assert answers(member) == [(REJECTION, asked, Rejection.LOST_BEFORE, LOST)]
    asked = reserve(member, caller)
    assert answers(member) == [(REJECTION, asked, Rejection.RESERVED, b"")]
    nobody = Member()
    asked = reserve(nobody, caller)
    assert answers(nobody) == [(REJECTION, asked, Rejection.NOT_A_MEMBER, b"")]


def test_giving_the_place_back_is_no_early_cancellation() -> None:
    member = Member((4, 0))
    caller = peer(b"1")
    asked = reserve(member, caller)
    member.service.receive_cancel(caller, asked, 0.0)
    assert not member.service._early_cancels
