"""Tests of iris_py/patterns/request/requester.py."""

from __future__ import annotations

import math
import random
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import IrisError, MemberLost, NodeClosed, NoMembers, Overloaded, RemoteError, RequestTimeout
from iris_py.patterns.request.attempts import ROUTED_RETRY_S
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import RequestSpec, new_opening, new_request
from iris_py.patterns.request.request_queues import RETRY_DELAY_S, RETRY_DELAY_S_MAX
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.retry import IDEMPOTENT, Retry, retry_of
from iris_py.patterns.tunnel.end import TunnelOffer
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import PLACEMENTS_MAX, Group
from iris_py.peers.member import KnownMember, Placement
from iris_py.peers.peer import SMALL_BYTES_MAX, Peer
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, REQUEST, TUNNEL_OPEN, Rejection
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.link.link import Link

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
LOCAL = NodeId(bytes(16))


class Caller:
    """A requester, and the one cluster that it asks."""

    def __init__(self, members: int | None = 0) -> None:
        self.requester = Requester(random.Random(1), lambda: 7, Losses(LOCAL))
        self.group = Group("cluster", KEYRING.cluster("cluster"), LOCAL, 1)
        self.count = 0
        self.outcomes: dict[object, bytes | IrisError] = {}
        if members is not None:
            self.group.members = []
            for _ in range(members):
                self.join(0.0)

    def join(self, now: float) -> KnownMember:
        self.count += 1
        link = cast("Link", SimpleNamespace(congested=False, is_busy=False, is_open=True))
        member = KnownMember(Peer(NodeInfo(NodeId(self.count.to_bytes(16, "big")), ()), link))
        self.group.members = [*(self.group.members or ()), member]
        self.requester.view_changed(now)
        return member

    def leave(self, member: KnownMember, now: float, *, lost: bool = False) -> None:
        self.group.members = [other for other in self.group.members or () if other is not member]
        self.requester.view_changed(now)
        if lost:
            member.peer.link = None
            self.requester.peer_lost(member.peer, now)

    def members(self) -> list[KnownMember]:
        assert self.group.members is not None
        return self.group.members

    def congest(self, member: KnownMember, *, congested: bool = True) -> None:
        assert member.peer.link is not None
        member.peer.link.congested = member.peer.link.is_busy = congested

    def request(
        self,
        now: float = 0.0,
        *,
        timeout_s: float = 5.0,
        idempotent: bool = False,
        token: object = "token",
        waits: bool | None = None,
        retry: Retry | None = None,
        members_wait_s: float | None = None,
        key: bytes = b"",
        is_exclusive: bool = False,
    ) -> int:
        waits = idempotent if waits is None else waits
        how = retry or retry_of(idempotent=idempotent)
        spec = RequestSpec(
            payload=b"payload",
            timeout_s=timeout_s,
            retry=how,
            identity=key,
            is_anchored=bool(key),
            waits=waits,
            members_wait_s=members_wait_s,
            is_exclusive=is_exclusive,
        )
        return self.requester.begin(new_request(self.group, spec, token, now), now)

    def sent(self) -> list[tuple[int, KnownMember, int]]:
        """Take (kind, member, id) of what is to be sent, but for losses; every member that ever was is known by its peer."""
        return [
            (message.kind, self.member_of(message.peer), message.id) for message in self.raw() if message.kind != packets.LOSSES
        ]

    def raw(self) -> list[PeerMessage]:
        return self.requester.messages_to_send()

    def member_of(self, peer: Peer) -> KnownMember:
        members = [member for member in self.all_members() if member.peer is peer]
        return members[0]

    def all_members(self) -> list[KnownMember]:
        return self.group.members or []

    def one_sent(self) -> KnownMember:
        ((kind, member, _id),) = self.sent()
        assert kind == REQUEST
        return member

    def outcome(self) -> bytes | IrisError:
        """Take the only outcome."""
        ((token, outcome),) = self.requester.outcomes_received()
        assert token == "token"
        self.check_idle()
        return outcome

    def check_idle(self) -> None:
        requester = self.requester
        assert not requester._pending
        assert not requester._backlog._waiting
        assert not len(requester._deadlines)
        assert not len(requester._backlog._times)
        assert not requester._rooms
        assert requester._rooms.deadline() is None
        assert (requester._rooms.requests, requester._rooms.bytes) == (0, 0)
        requester._recalls.handle_timeout(math.inf)  # the review of no requests ends them
        assert requester.deadline() is None
        assert all(member.in_flight == 0 for member in self.all_members())


# -- replies and failures


def test_a_reply() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    request_id = caller.request(1.0, timeout_s=2.0)
    assert caller.raw() == [PeerMessage(caller.group, member.peer, REQUEST, request_id, 2001, b"payload")]
    assert member.in_flight == 1
    assert caller.requester.deadline() == 3.0
    caller.requester.receive_reply(member.peer, request_id, b"reply", 1.5)
    assert caller.outcome() == b"reply"
    assert member.service_time_s == 0.5
    assert caller.group.counts.sent == caller.group.counts.round_trip.show().count == 1
    assert caller.requester.counts.retries == caller.requester.counts.late == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_failure_of_the_handler_is_not_retried(idempotent: bool) -> None:
    caller = Caller(3)
    request_id = caller.request(idempotent=idempotent)
    member = caller.one_sent()
    caller.requester.receive_failure(member.peer, request_id, packets.encode_failure(KeyError("key")), 0.5)
    error = caller.outcome()
    assert isinstance(error, RemoteError)
    assert (error.cluster, error.member, error.type, error.text) == ("cluster", member.peer.id.hex(), "KeyError", "'key'")
    assert caller.requester.counts.failed == 1
    assert not caller.sent()


def test_a_malformed_failure_is_a_failure() -> None:
    caller = Caller(1)
    request_id = caller.request()
    caller.requester.receive_failure(caller.one_sent().peer, request_id, b"\x92\xa1a\xa1\xff", 0.0)
    assert isinstance(caller.outcome(), RemoteError)


def test_a_handler_that_sees_the_time_run_out_fails_no_request() -> None:
    caller = Caller(1)
    request_id = caller.request(1.0, timeout_s=2.0)
    member = caller.one_sent()
    caller.requester.receive_failure(member.peer, request_id, packets.encode_failure(TimeoutError()), 3.0)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert (error.cluster, error.timeout_s, error.member) == ("cluster", 2.0, member.peer.id.hex())


def test_strays_change_nothing() -> None:
    caller = Caller(2)
    request_id = caller.request()
    member = caller.one_sent()
    (other,) = (each for each in caller.all_members() if each is not member)
    requester = caller.requester
    requester.receive_reply(other.peer, request_id, b"not yours", 0.0)
    requester.receive_failure(other.peer, request_id, b"", 0.0)
    requester.receive_rejection(other.peer, request_id, Rejection.OVERLOADED, 0.0)
    requester.receive_reply(member.peer, request_id + 1, b"never asked", 0.0)
    requester.receive_rejection(member.peer, 0, Rejection.OVERLOADED, 0.0)
    assert requester.counts.late == 5
    assert not requester.outcomes_received()
    assert member.in_flight == 1
    assert other.in_flight == 0
    requester.receive_reply(member.peer, request_id, b"reply", 0.0)
    assert caller.outcome() == b"reply"
    requester.receive_reply(member.peer, request_id, b"again", 0.0)
    requester.receive_rejection(member.peer, request_id, Rejection.OVERLOADED, 0.0)
    assert requester.counts.late == 7
    caller.check_idle()


def test_a_former_member_cannot_answer_what_was_given_to_another() -> None:
    caller = Caller(2)
    request_id = caller.request()
    first = caller.one_sent()
    caller.requester.receive_rejection(first.peer, request_id, Rejection.OVERLOADED, 0.0)
    second = caller.one_sent()
    assert second is not first
    caller.requester.receive_reply(first.peer, request_id, b"late", 0.0)
    assert caller.requester.counts.late == 1
    caller.requester.receive_reply(second.peer, request_id, b"reply", 0.0)
    assert caller.outcome() == b"reply"


def test_a_request_is_alone_while_no_other_is_pending() -> None:
    caller = Caller(1)
    seen = [caller.requester.is_alone]
    ids = []
    for _ in range(2):
        ids.append(caller.request())
        seen.append(caller.requester.is_alone)
    for request_id in ids:
        caller.requester.cancel(request_id)
        seen.append(caller.requester.is_alone)
    assert seen == [False, True, False, True, False]


# -- nobody there


def test_no_members_at_once() -> None:
    caller = Caller(0)
    caller.request()
    error = caller.outcome()
    assert isinstance(error, NoMembers)
    assert (error.cluster, error.nodes) == ("cluster", 7)


@pytest.mark.parametrize("idempotent", [False, True])
def test_an_unknown_view_is_waited_for(idempotent: bool) -> None:
    caller = Caller(None)
    request_id = caller.request(idempotent=idempotent)
    assert not caller.requester.outcomes_received()
    member = caller.join(1.0)
    assert caller.one_sent() is member
    caller.requester.receive_reply(member.peer, request_id, b"reply", 0.0)
    assert caller.outcome() == b"reply"


def test_a_view_that_turns_out_empty() -> None:
    caller = Caller(None)
    caller.request()
    caller.group.members = []
    caller.requester.view_changed(0.5)
    assert isinstance(caller.outcome(), NoMembers)


def test_an_unknown_view_to_the_end() -> None:
    caller = Caller(None)
    caller.request(timeout_s=2.0)
    caller.requester.handle_timeout(2.0)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert error.member is None


def test_idempotent_waits_for_a_member_within_the_timeout() -> None:
    caller = Caller(0)
    request_id = caller.request(timeout_s=2.0, idempotent=True)
    caller.requester.handle_timeout(1.999)
    assert not caller.requester.outcomes_received()
    member = caller.join(1.999)
    (message,) = caller.raw()
    peer, kind, sent_id, time_left_ms = message.peer, message.kind, message.id, message.argument
    assert (peer, kind, sent_id) == (member.peer, REQUEST, request_id)
    assert 1 <= time_left_ms <= 2
    caller.requester.receive_reply(member.peer, request_id, b"reply", 1.9995)
    assert caller.outcome() == b"reply"


def test_idempotent_without_a_member_to_the_end() -> None:
    caller = Caller(0)
    caller.request(timeout_s=2.0, idempotent=True)
    caller.requester.handle_timeout(2.0)
    assert isinstance(caller.outcome(), NoMembers)


# -- rejections


@pytest.mark.parametrize(
    ("reasons", "error_type"),
    [
        ((Rejection.OVERLOADED,), Overloaded),
        ((Rejection.OVERLOADED, Rejection.OVERLOADED), Overloaded),
        ((Rejection.NOT_A_MEMBER,), NoMembers),
        ((Rejection.NOT_A_MEMBER, Rejection.NOT_A_MEMBER), NoMembers),
        ((Rejection.OVERLOADED, Rejection.NOT_A_MEMBER), Overloaded),
        ((Rejection.NOT_A_MEMBER, Rejection.OVERLOADED), Overloaded),
        ((Rejection.EXPIRED,), RequestTimeout),
        ((Rejection.OVERLOADED, Rejection.EXPIRED), RequestTimeout),
        ((99,), NoMembers),
    ],
)
def test_every_member_is_tried_once(reasons: tuple[int, ...], error_type: type[IrisError]) -> None:
    caller = Caller(len(reasons))
    request_id = caller.request()
    tried = []
    for reason in reasons:
        tried.append(caller.one_sent())
        assert tried[-1].in_flight == 1
        caller.requester.receive_rejection(tried[-1].peer, request_id, reason, 0.0)
    error = caller.outcome()
    assert type(error) is error_type
    assert len({id(member) for member in tried}) == len(reasons)
    assert caller.requester.counts.retries == len(reasons) - 1
    if isinstance(error, Overloaded):
        assert error.tried == len(reasons)
    assert not caller.sent()


def test_idempotent_tries_again_after_a_pause_that_grows() -> None:
    caller = Caller(2)
    now = 0.0
    request_id = caller.request(timeout_s=100.0, idempotent=True)
    pauses = []
    for _ in range(10):
        for _ in range(2):
            caller.requester.receive_rejection(caller.one_sent().peer, request_id, Rejection.OVERLOADED, now)
        assert not caller.sent()
        deadline = caller.requester.deadline()
        assert deadline is not None
        caller.requester.handle_timeout(deadline - 1e-6)
        assert not caller.sent()
        pauses.append(deadline - now)
        now = deadline
        caller.requester.handle_timeout(now)
    assert pauses[0] == pytest.approx(RETRY_DELAY_S)
    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[-1] == pytest.approx(RETRY_DELAY_S_MAX)
    member = caller.one_sent()
    caller.requester.receive_reply(member.peer, request_id, b"reply", now)
    assert caller.outcome() == b"reply"


def test_idempotent_overloaded_to_the_end_counts_members_and_not_attempts() -> None:
    caller = Caller(2)
    request_id = caller.request(timeout_s=1.0, idempotent=True)
    for now in (0.0, 0.1, 0.5):
        caller.requester.handle_timeout(now)
        for _ in range(2):
            caller.requester.receive_rejection(caller.one_sent().peer, request_id, Rejection.OVERLOADED, now)
    caller.requester.handle_timeout(1.0)
    error = caller.outcome()
    assert isinstance(error, Overloaded)
    assert error.tried == 2


def test_a_pause_does_not_outlive_its_request() -> None:
    """Rejected once, then cancelled: the time for the next try must go too."""
    for end in ("cancel", "close", "timeout"):
        caller = Caller(1)
        request_id = caller.request(timeout_s=RETRY_DELAY_S / 2, idempotent=True)
        caller.requester.receive_rejection(caller.one_sent().peer, request_id, Rejection.OVERLOADED, 0.0)
        if end == "cancel":
            caller.requester.cancel(request_id)
        elif end == "close":
            caller.requester.close(NodeClosed())
        else:
            caller.requester.handle_timeout(RETRY_DELAY_S / 2)
        caller.check_idle()
        caller.requester.handle_timeout(10.0)
        caller.join(10.0)
        assert not caller.sent()


def test_what_waits_for_room_and_is_then_only_paused_is_tried_once() -> None:
    """A request is in one place: what waited for room must not be tried by the view and by the clock."""
    caller = Caller(2)
    request_id = caller.request(idempotent=True)
    first = caller.one_sent()
    (second,) = (member for member in caller.all_members() if member is not first)
    caller.congest(second)
    caller.requester.receive_rejection(first.peer, request_id, Rejection.OVERLOADED, 0.0)
    assert not caller.sent()  # waits for room at the second
    caller.leave(second, 0.0)  # now it has tried all there are: a pause
    third = caller.join(0.001)
    sent = [member for _kind, member, _id in caller.sent()]
    caller.requester.handle_timeout(1.0)
    sent += [member for _kind, member, _id in caller.sent()]
    assert len(sent) == 1
    assert sum(member.in_flight for member in (first, third)) == 1
    caller.requester.receive_reply(sent[0].peer, request_id, b"reply", 1.0)
    assert caller.outcome() == b"reply"


def test_a_rejected_request_that_waits_for_room_and_ends_is_gone() -> None:
    caller = Caller(2)
    request_id = caller.request(timeout_s=1.0)
    first = caller.one_sent()
    (second,) = (member for member in caller.all_members() if member is not first)
    caller.congest(second)
    caller.requester.receive_rejection(first.peer, request_id, Rejection.OVERLOADED, 0.0)
    caller.requester.handle_timeout(1.0)
    assert isinstance(caller.outcome(), Overloaded)
    caller.congest(second, congested=False)
    caller.requester.view_changed(1.5)
    assert not caller.sent()


# -- waiting for a place


def test_who_finds_every_member_full_waits_for_a_place_and_the_first_come_is_the_first_to_get_one() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    ids = [caller.request(token=number, waits=True) for number in range(6)]
    assert len(caller.sent()) == 6
    for id_ in ids[2:]:  # it takes two at once
        caller.requester.receive_rejection(member.peer, id_, Rejection.OVERLOADED, 0.0)
    late = caller.request(token="late", waits=True)
    assert not caller.sent(), "whoever comes later does not go before those that wait"
    order, held = [], ids[:2]
    for step in range(1, 8):
        caller.requester.receive_reply(member.peer, held.pop(0), b"reply", step / 100)
        held += [id_ for _kind, _member, id_ in caller.sent()]
        assert len(held) <= 2, "each answer lets one more go"
        order += [id_ for id_ in held if id_ not in order]
    assert order == [*ids[1:], late]
    assert [token for token, reply in caller.requester.outcomes_received() if reply == b"reply"] == [0, 1, 2, 3, 4, 5, "late"]
    caller.check_idle()


def test_who_is_rejected_again_keeps_its_turn() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    first, second, third = (caller.request(token=number, waits=True) for number in range(3))
    caller.raw()
    for id_ in (third, second):
        caller.requester.receive_rejection(member.peer, id_, Rejection.OVERLOADED, 0.0)
    caller.requester.receive_reply(member.peer, first, b"", 0.1)
    for _ in range(3):
        assert [id_ for _kind, _member, id_ in caller.sent()] == [second]
        caller.requester.receive_rejection(member.peer, second, Rejection.OVERLOADED, 0.2)
        caller.requester.handle_timeout(caller.requester.deadline() or 0.0)
    caller.requester.close(NodeClosed())


def test_places_that_others_have_freed_are_found_by_trying_ever_more_rarely() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    id_, now, tries = caller.request(timeout_s=5.0, waits=True), 0.0, 0
    while not (outcomes := caller.requester.outcomes_received()):
        tries += len(caller.sent())
        if member.in_flight:
            caller.requester.receive_rejection(member.peer, id_, Rejection.OVERLOADED, now)
        deadline = caller.requester.deadline()
        assert deadline is not None
        now = deadline
        caller.requester.handle_timeout(now)
    ((_token, error),) = outcomes
    assert isinstance(error, Overloaded), "it was surely not executed, and the time is out"
    assert now == 5.0
    assert 5 < tries < 5.0 / RETRY_DELAY_S_MAX + 10
    caller.check_idle()


def test_who_does_not_want_to_wait_is_not_kept_by_those_that_do() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    waiting = caller.request(token="waits", waits=True)
    caller.raw()
    caller.requester.receive_rejection(member.peer, waiting, Rejection.OVERLOADED, 0.0)
    for idempotent in (False, True):
        other = caller.request(token="raises", idempotent=idempotent, waits=False)
        assert [id_ for _kind, _member, id_ in caller.sent()] == [other]
        caller.requester.receive_rejection(member.peer, other, Rejection.OVERLOADED, 0.0)
        ((token, error),) = caller.requester.outcomes_received()
        assert token == "raises"
        assert isinstance(error, Overloaded)
    caller.requester.cancel(waiting)
    caller.check_idle()


def test_a_new_member_takes_what_waits_and_the_last_that_leaves_ends_it() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    ids = [caller.request(token=number, waits=True) for number in range(4)]
    caller.raw()
    for id_ in ids:
        caller.requester.receive_rejection(member.peer, id_, Rejection.OVERLOADED, 0.0)
    second = caller.join(0.001)
    assert [(to, id_) for _kind, to, id_ in caller.sent()] == [(second, id_) for id_ in ids]
    for id_ in ids:
        caller.requester.receive_rejection(second.peer, id_, Rejection.OVERLOADED, 0.002)
    sent = caller.sent()  # each was tried at the second only, now at the first
    for _kind, to, id_ in sent:
        caller.requester.receive_rejection(to.peer, id_, Rejection.OVERLOADED, 0.003)
    assert not caller.requester.outcomes_received()
    caller.leave(member, 0.004)
    caller.leave(second, 0.004)
    assert [(token, type(error)) for token, error in caller.requester.outcomes_received()] == [(n, NoMembers) for n in range(4)]
    caller.check_idle()


@pytest.mark.parametrize("bound", ["ROOM_REQUESTS_MAX", "ROOM_BYTES_MAX"])
def test_what_waits_for_a_place_is_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        f"iris_py.patterns.request.request_queues.{bound}", 2 if bound == "ROOM_REQUESTS_MAX" else 2 * len(b"payload")
    )
    caller = Caller(1)
    (member,) = caller.all_members()
    ids = [caller.request(token=number, waits=True) for number in range(3)]
    caller.raw()
    for id_ in ids:
        caller.requester.receive_rejection(member.peer, id_, Rejection.OVERLOADED, 0.0)
    ((token, error),) = caller.requester.outcomes_received()
    assert token == 2
    assert isinstance(error, Overloaded)


def test_a_tunnel_that_was_accepted_lets_the_next_one_be_asked_for() -> None:
    """The member may have room for that one, too."""
    caller = Caller(1)
    (member,) = caller.all_members()
    offer = TunnelOffer(caller.group, 1 << 16, NodeInfo(LOCAL, ()), bytes)
    first, second = (
        caller.requester.begin(new_opening(caller.group, offer, 5.0, token, 0.0, waits=True), 0.0)
        for token in ("first", "second")
    )
    assert [id_ for _kind, _member, id_ in caller.sent()] == [first, second]
    caller.requester.receive_rejection(member.peer, second, Rejection.OVERLOADED, 0.0)
    assert not caller.sent()
    assert caller.requester.offer_of(member.peer, first) is offer
    assert caller.requester.take_offer(member.peer, first, 0.001) == "first"
    assert caller.sent() == [(TUNNEL_OPEN, member, second)]
    assert caller.requester.offer_of(member.peer, first) is None, "it was taken"
    assert caller.requester.counts.late == 1
    caller.requester.cancel(second)
    caller.check_idle()


# -- lost members


def test_member_lost() -> None:
    caller = Caller(2)
    caller.request()
    member = caller.one_sent()
    caller.leave(member, 0.0, lost=True)
    error = caller.outcome()
    assert isinstance(error, MemberLost)
    assert (error.cluster, error.member) == ("cluster", member.peer.id.hex())
    assert not caller.sent()
    assert member.in_flight == 0


def test_idempotent_goes_to_another_member() -> None:
    caller = Caller(2)
    request_id = caller.request(idempotent=True)
    member = caller.one_sent()
    caller.leave(member, 0.0, lost=True)
    (other,) = caller.all_members()
    assert caller.one_sent() is other
    caller.requester.receive_reply(other.peer, request_id, b"reply", 0.0)
    assert caller.outcome() == b"reply"


def test_idempotent_waits_for_the_lost_member_to_come_back() -> None:
    caller = Caller(1)
    request_id = caller.request(idempotent=True)
    caller.leave(caller.one_sent(), 0.0, lost=True)
    assert not caller.requester.outcomes_received()
    member = caller.join(1.0)
    assert caller.one_sent() is member
    caller.requester.receive_reply(member.peer, request_id, b"reply", 0.0)
    assert caller.outcome() == b"reply"


@pytest.mark.parametrize("rejects", [True, False])
def test_what_a_lost_member_may_have_executed_is_not_called_not_executed(rejects: bool) -> None:
    caller = Caller(1 + rejects)
    request_id = caller.request(timeout_s=1.0, idempotent=True)
    lost = caller.one_sent()
    caller.leave(lost, 0.0, lost=True)
    if rejects:
        caller.requester.receive_rejection(caller.one_sent().peer, request_id, Rejection.OVERLOADED, 0.0)
    caller.requester.handle_timeout(1.0)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert error.member == lost.peer.id.hex()


@pytest.mark.parametrize("rank", [0, 1])
def test_who_says_that_a_request_was_lost_ends_it_as_a_lost_member_does(rank: int) -> None:
    caller = Caller(2)
    for each in caller.members():
        each.rank = rank
    caller.group.members = caller.members()
    request_id = caller.request()
    member = caller.one_sent()
    caller.requester.receive_rejection(member.peer, request_id, Rejection.LOST, 0.0)
    error = caller.outcome()
    assert isinstance(error, MemberLost)
    id_ = member.peer.id.hex()
    assert (error.cluster, error.member, error.gateway) == ("cluster", "" if rank else id_, id_ if rank else "")
    assert not caller.sent(), "nobody else is asked"


def test_an_idempotent_request_that_was_lost_goes_to_another_member_and_is_not_called_not_executed() -> None:
    caller = Caller(2)
    request_id = caller.request(idempotent=True, timeout_s=1.0)
    lost = caller.one_sent()
    caller.requester.receive_rejection(lost.peer, request_id, Rejection.LOST, 0.0)
    other = caller.one_sent()
    assert other is not lost
    caller.requester.receive_rejection(other.peer, request_id, Rejection.OVERLOADED, 0.0)
    caller.requester.handle_timeout(1.0)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert error.member == lost.peer.id.hex()


def test_only_the_requests_of_the_lost_peer_are_concerned() -> None:
    caller = Caller(2)
    ids = {caller.request(token=number): number for number in range(20)}
    held: dict[int, KnownMember] = {id_: member for _kind, member, id_ in caller.sent()}
    gone, stays = caller.all_members()
    caller.leave(gone, 0.0, lost=True)
    lost = {token for token, outcome in caller.requester.outcomes_received() if isinstance(outcome, MemberLost)}
    assert lost == {ids[id_] for id_, member in held.items() if member is gone}
    assert stays.in_flight == 20 - len(lost)
    assert gone.in_flight == 0


# -- the end


def test_timeout_at_a_member() -> None:
    caller = Caller(1)
    request_id = caller.request(1.0, timeout_s=0.5)
    member = caller.one_sent()
    caller.requester.handle_timeout(1.499)
    assert not caller.requester.outcomes_received()
    caller.requester.handle_timeout(1.5)
    assert caller.sent() == [(CANCEL, member, request_id)]
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert isinstance(error, TimeoutError)
    assert (error.cluster, error.timeout_s, error.member) == ("cluster", 0.5, member.peer.id.hex())


def test_timeouts_in_the_order_of_their_deadlines() -> None:
    caller = Caller(1)
    for number in (3, 1, 2):
        caller.request(timeout_s=number, token=number)
    assert caller.requester.deadline() == 1
    caller.requester.handle_timeout(2)
    assert [token for token, _error in caller.requester.outcomes_received()] == [1, 2]
    assert caller.requester.deadline() == 3


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, 1e10])
def test_endless_patience(timeout_s: float) -> None:
    caller = Caller(1)
    request_id = caller.request(timeout_s=timeout_s)
    (message,) = caller.raw()
    peer, time_left_ms = message.peer, message.argument
    assert time_left_ms == packets.TIME_LEFT_MS_MAX
    deadline = caller.requester.deadline()
    assert deadline is not None
    assert deadline < 1e9  # what an event loop can wait for
    caller.requester.receive_reply(peer, request_id, b"reply", 1.0)
    assert caller.outcome() == b"reply"


@pytest.mark.parametrize("opens_tunnel", [False, True])
def test_who_waits_for_the_deadline_is_told_when_there_is_an_earlier_one(opens_tunnel: bool) -> None:
    caller = Caller(None)
    requester = caller.requester

    def ask(timeout_s: float) -> bool:
        """Ask with this timeout; returns whether the deadline has to be asked for again, and ask for it."""
        if opens_tunnel:
            offer = TunnelOffer(caller.group, 1 << 16, NodeInfo(LOCAL, ()), bytes)
            requester.begin(new_opening(caller.group, offer, timeout_s, f"token {timeout_s}", 0.0), 0.0)
        else:
            caller.request(timeout_s=timeout_s, token=f"token {timeout_s}")
        is_new = requester.has_new_deadline
        requester.deadline()
        assert not requester.has_new_deadline
        return is_new

    assert [(timeout_s, ask(timeout_s)) for timeout_s in (5.0, 9.0, 2.0)] == [(5.0, True), (9.0, False), (2.0, True)]
    assert requester.deadline() == 2.0


def test_cancel() -> None:
    caller = Caller(1)
    request_id = caller.request()
    member = caller.one_sent()
    caller.requester.cancel(request_id)
    caller.requester.cancel(request_id)
    caller.requester.cancel(999)
    assert caller.sent() == [(CANCEL, member, request_id)]
    assert not caller.requester.outcomes_received()
    caller.check_idle()
    caller.requester.receive_reply(member.peer, request_id, b"late", 1.0)
    assert caller.requester.counts.late == 1
    caller.requester.handle_timeout(100.0)
    assert not caller.requester.outcomes_received()


@pytest.mark.parametrize("members", [None, 0])
def test_cancel_what_waits(members: int | None) -> None:
    caller = Caller(members)
    request_id = caller.request(idempotent=True)
    caller.requester.cancel(request_id)
    caller.check_idle()
    caller.join(1.0)
    assert not caller.sent()


def test_close_ends_everything() -> None:
    caller = Caller(1)
    for token in range(3):
        caller.request(token=token)
    assert len(caller.sent()) == 3
    other = Group("empty", KEYRING.cluster("empty"), LOCAL, 2)
    caller.requester.begin(new_request(other, RequestSpec(b"", 5.0, IDEMPOTENT), 3, 0.0), 0.0)
    assert caller.requester.groups_pending() == {caller.group, other}
    error = NodeClosed()
    caller.requester.close(error)
    assert caller.requester.outcomes_received() == [(token, error) for token in range(4)]
    assert [kind for kind, _member, _id in caller.sent()] == [CANCEL] * 3
    caller.check_idle()
    assert not caller.requester.groups_pending()


# -- choice


def test_congested_members_are_avoided() -> None:
    caller = Caller(3)
    for member in caller.all_members()[:2]:
        caller.congest(member)
    for _ in range(50):
        caller.request()
        assert caller.one_sent() is caller.all_members()[2]


def test_small_requests_do_not_wait_behind_large_ones() -> None:
    caller = Caller(1)
    (member,) = caller.all_members()
    assert member.peer.link is not None
    member.peer.link.congested = True  # by what is large, for it is not busy
    caller.requester.begin(new_request(caller.group, RequestSpec(bytes(SMALL_BYTES_MAX), 5.0), "large", 0.0), 0.0)
    assert caller.sent() == []
    caller.requester.begin(new_request(caller.group, RequestSpec(bytes(SMALL_BYTES_MAX - 1), 5.0), "small", 0.0), 0.0)
    assert caller.one_sent() is member


def test_all_congested_waits_for_room() -> None:
    caller = Caller(2)
    for member in caller.all_members():
        caller.congest(member)
    request_id = caller.request()
    assert not caller.sent()
    caller.requester.view_changed(0.5)
    assert not caller.sent()
    caller.congest(caller.all_members()[1], congested=False)
    caller.requester.view_changed(1.0)
    assert caller.one_sent() is caller.all_members()[1]
    caller.requester.receive_reply(caller.all_members()[1].peer, request_id, b"", 1.0)
    assert caller.outcome() == b""


def test_all_congested_to_the_end() -> None:
    caller = Caller(1)
    caller.congest(caller.all_members()[0])
    caller.request(timeout_s=1.0)
    caller.requester.handle_timeout(1.0)
    error = caller.outcome()
    assert isinstance(error, RequestTimeout)
    assert error.member is None


def test_requests_in_flight_are_spread() -> None:
    caller = Caller(10)
    for _ in range(1000):
        caller.request()
    counts = Counter(id(member) for _kind, member, _id in caller.sent())
    assert len(counts) == 10
    assert max(counts.values()) - min(counts.values()) <= 8
    assert all(member.in_flight == counts[id(member)] for member in caller.all_members())


def test_a_slow_member_gets_less() -> None:
    caller = Caller(4)
    slow = caller.all_members()[0]
    now = 0.0
    counts: Counter[bool] = Counter()
    replies: list[tuple[float, int, KnownMember]] = []
    for _ in range(2000):
        request_id = caller.request(now, timeout_s=1000.0)
        member = caller.one_sent()
        counts[member is slow] += 1
        replies.append((now + (0.2 if member is slow else 0.01), request_id, member))
        now += 0.001
        for reply in [reply for reply in replies if reply[0] <= now]:
            replies.remove(reply)
            caller.requester.receive_reply(reply[2].peer, reply[1], b"", now)
    assert 0 < counts[True] < 0.08 * 2000


# -- members without a link


def test_who_has_a_link_is_preferred_and_the_other_gets_one() -> None:
    caller = Caller(members=2)
    one, other = caller.members()
    one.peer.link = None
    for _ in range(10):
        caller.request()
    assert {message.peer for message in caller.requester.messages_to_send()} == {other.peer}
    assert set(caller.requester.peers_wanted()) == {one.peer}
    assert not caller.requester.wanted
    assert other.peer.awaited == other.in_flight == 10
    assert one.peer.awaited == 0


def test_what_was_not_sent_goes_to_another_and_none_is_left_at_last() -> None:
    caller = Caller(members=2)
    request_id = caller.request()
    tried = set()
    for _ in range(2):
        (message,) = caller.requester.messages_to_send()
        peer = message.peer
        tried.add(peer)
        caller.requester.give_back(request_id, peer, 1.0, is_tried=True)
    assert len(tried) == 2
    ((_token, outcome),) = caller.requester.outcomes_received()
    assert isinstance(outcome, NoMembers)
    assert all(member.in_flight == member.peer.awaited == 0 for member in caller.group.members or ())
    caller.requester.give_back(request_id, tried.pop(), 1.0, is_tried=True)  # harmless when it has ended


def test_what_a_peer_released_is_sent_again_and_counts_as_one_attempt() -> None:
    caller = Caller(members=1)
    (member,) = caller.members()
    sent, unsent, routed = caller.request(token=1), caller.request(token=2), caller.request(token=3)
    caller.requester.messages_to_send()
    caller.requester.routed(routed, 0.0)
    leaving = caller.request(token=4)
    caller.requester.peer_released(member.peer, 1.0, [unsent])
    messages = caller.requester.messages_to_send()
    assert [message.id for message in messages] == [leaving, sent]
    assert caller.requester.counts.retries == 0
    assert member.in_flight == 4
    assert not caller.requester.outcomes_received()


def test_a_lost_peer_keeps_what_was_not_sent() -> None:
    caller = Caller(members=1)
    (member,) = caller.members()
    caller.request(token="sent")
    unsent = caller.request(token="unsent")
    caller.requester.messages_to_send()
    caller.request(token="leaving")
    caller.requester.peer_lost(member.peer, 1.0, [unsent])
    ((token, outcome),) = caller.requester.outcomes_received()
    assert token == "sent"
    assert isinstance(outcome, MemberLost)
    assert member.in_flight == member.peer.awaited == 2


def test_a_waiting_request_goes_to_a_member_with_a_link_only() -> None:
    caller = Caller(members=3)
    one, two, three = caller.members()
    links = [member.peer.link for member in (one, two, three)]
    for member in (one, two, three):
        member.peer.link = None
    request_id = caller.request()
    (message,) = caller.requester.messages_to_send()
    first = message.peer
    assert not caller.requester.give_to_linked(request_id, 1.0)
    chosen = next(member for member in (one, two, three) if member.peer is first)
    for member, link in zip((one, two, three), links, strict=True):
        if member is not chosen:
            member.peer.link = link
            break
    assert caller.requester.give_to_linked(request_id, 1.0)
    (message,) = caller.requester.messages_to_send()
    second = message.peer
    assert second is member.peer
    assert caller.requester.counts.retries == 0
    assert chosen.in_flight == chosen.peer.awaited == 0
    assert member.in_flight == member.peer.awaited == 1


def test_an_idempotent_request_that_is_lost_in_the_ring_is_given_again() -> None:
    caller = Caller(members=2)
    lost, once = caller.request(timeout_s=60.0, idempotent=True), caller.request(timeout_s=60.0)
    first = {request_id: member for _kind, member, request_id in caller.sent()}
    for request_id in first:
        caller.requester.routed(request_id, 0.0)
    caller.requester.handle_timeout(ROUTED_RETRY_S)
    ((_kind, other, request_id),) = caller.sent()
    assert (request_id, other) != (lost, first[lost])
    assert request_id == lost != once
    assert caller.requester.deadline() == 60.0, "it came by a link this time, which will tell"
    assert first[lost].in_flight + other.in_flight == 2


def test_a_reply_through_the_ring_ends_the_wait_for_it() -> None:
    caller = Caller(members=1)
    request_id = caller.request(timeout_s=60.0, idempotent=True)
    ((_kind, member, _id),) = caller.sent()
    caller.requester.routed(request_id, 0.0)
    caller.requester.receive_reply(member.peer, request_id, b"reply", 1.0)
    assert caller.requester.deadline() is None
    assert member.in_flight == 0


# -- zones


def test_a_required_zone_holds_over_rejections_and_waiting() -> None:
    caller = Caller()
    here, there, there_too = (caller.join(0.0) for _ in range(3))
    for member, zone in ((here, "us"), (there, "eu/a"), (there_too, "eu/b")):
        member.peer.info = NodeInfo(member.peer.id, (), zone)
    id_ = caller.requester.begin(
        new_request(caller.group, RequestSpec(b"", 5.0, placement=Placement("eu/a", "eu")), "token", 0.0), 0.0
    )
    assert [message.peer for message in caller.requester.messages_to_send()] == [there.peer]
    caller.requester.receive_rejection(there.peer, id_, Rejection.OVERLOADED, 0.0)
    assert [message.peer for message in caller.requester.messages_to_send()] == [there_too.peer]
    assert caller.requester.give_to_linked(id_, 0.0) is False
    caller.requester.receive_rejection(there_too.peer, id_, Rejection.NOT_A_MEMBER, 0.0)
    ((_token, error),) = caller.requester.outcomes_received()
    assert isinstance(error, Overloaded)
    caller.requester.begin(new_request(caller.group, RequestSpec(b"", 5.0, placement=Placement("", "asia")), "token", 0.0), 0.0)
    ((_token, error),) = caller.requester.outcomes_received()
    assert isinstance(error, NoMembers)
    assert (error.zone, error.elsewhere) == ("asia", 3)


def test_placements_follow_the_view_and_are_bounded() -> None:
    caller = Caller()
    placements = [Placement("", f"zone {number}") for number in range(PLACEMENTS_MAX + 3)]
    for placement in placements:
        assert caller.group.placed_levels(placement) == []
    assert len(caller.group._placed) <= PLACEMENTS_MAX
    member = caller.join(0.0)
    member.peer.info = NodeInfo(member.peer.id, (), "zone 1")
    assert caller.group.placed_levels(placements[1]) == [[member]]
    caller.leave(member, 0.0)
    assert caller.group.placed_levels(placements[1]) == []


# -- requests with a key


def anchored(caller: Caller, now: float = 0.0, key: int = 9, timeout_s: float = 5.0) -> int:
    identity = bytes((0, key)) + bytes(14)
    spec = RequestSpec(b"payload", timeout_s, IDEMPOTENT, identity, is_anchored=True, waits=True)
    return caller.requester.begin(new_request(caller.group, spec, "token", now), now)


def only(caller: Caller) -> KnownMember:
    ((kind, member, _id),) = caller.sent()
    assert kind == packets.REQUEST_ONCE
    return member


def test_a_key_has_one_member_however_busy_it_is() -> None:
    caller = Caller(members=3)
    for _ in range(100):
        anchored(caller)
    assert len({member.peer.id for _kind, member, _id in caller.sent()}) == 1


def test_a_key_waits_for_its_member_while_the_link_is_congested() -> None:
    caller = Caller(members=3)
    anchored(caller)
    owner = only(caller)
    caller.congest(owner)
    anchored(caller)
    assert caller.sent() == []
    caller.congest(owner, congested=False)
    caller.requester.view_changed(1.0)
    assert only(caller) is owner


def test_a_key_stays_with_a_member_whose_link_is_not_open_yet() -> None:
    caller = Caller(members=3)
    request_id = anchored(caller)
    owner = only(caller)
    assert not caller.requester.give_to_linked(request_id, 1.0)
    assert owner.in_flight == 1


def test_a_key_of_a_member_that_is_full_goes_to_the_next_one_always_the_same() -> None:
    caller = Caller(members=3)
    chosen = set()
    for _ in range(20):
        request_id = anchored(caller)
        owner = only(caller)
        caller.requester.receive_rejection(owner.peer, request_id, Rejection.OVERLOADED, 0.0)
        ((_kind, second, _id),) = caller.sent()
        chosen.add((owner.peer.id, second.peer.id))
    assert len(chosen) == 1
    ((first_id, second_id),) = chosen
    assert first_id != second_id


def test_a_key_that_every_member_rejects_begins_anew_with_its_own() -> None:
    caller = Caller(members=2)
    request_id = anchored(caller)
    owner = only(caller)
    caller.requester.receive_rejection(owner.peer, request_id, Rejection.OVERLOADED, 0.0)
    other = only(caller)
    caller.requester.receive_rejection(other.peer, request_id, Rejection.OVERLOADED, 0.0)
    assert caller.sent() == []
    caller.requester.handle_timeout(RETRY_DELAY_S_MAX)
    assert only(caller) is owner
