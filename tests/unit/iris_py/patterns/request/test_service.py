"""Tests of iris_py/patterns/request/service.py."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request.deduplication import CALLERS_MAX
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.registration import (
    BroadcastReceived,
    Execution,
    Registration,
    RegistrationDrained,
    RequestCancelled,
    RequestsStarted,
    ServiceEvent,
)
from iris_py.patterns.request.service import EARLY_CANCELS_MAX, RequestService
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.packets import DECLINE, FAILURE, REJECTION, REPLY, SURVEY_IDS, Rejection, encode_answer
from iris_security import Keyring, Secret

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
LOCAL = NodeId(bytes(16))


class Member:
    """A service with one cluster, and a caller of it."""

    def __init__(self, *limits: tuple[int, int] | tuple[int, int, int]) -> None:
        self.service = RequestService(Losses(bytes(16)))
        self.group = Group("cluster", KEYRING.cluster("cluster"), LOCAL, 1)
        self.peer = Peer(NodeInfo(NodeId(b"p" * 16), ()), None)
        self.registrations = [Registration(self.group, *limit) for limit in limits]
        for registration in self.registrations:
            self.service.register(registration)
        self.last_id = 0

    @property
    def registration(self) -> Registration:
        return self.registrations[0]

    def request(self, now: float = 0.0, *, time_left_ms: int = 1000, peer: Peer | None = None) -> int:
        self.last_id += 1
        self.service.receive_request(self.group, peer or self.peer, self.last_id, time_left_ms, b"payload", now)
        return self.last_id

    def request_once(
        self, now: float = 0.0, *, identity: bytes = b"i" * 16, time_left_ms: int = 1000, peer: Peer | None = None
    ) -> int:
        self.last_id += 1
        peer = peer or self.peer
        self.service.receive_request_once(self.group, peer, self.last_id, time_left_ms, identity, b"payload", now)
        return self.last_id

    def survey(self, now: float = 0.0, *, time_left_ms: int = 1000) -> int:
        self.last_id += 1
        self.service.receive_survey(self.group, self.peer, SURVEY_IDS + self.last_id, time_left_ms, b"payload", now)
        return SURVEY_IDS + self.last_id

    def started(self) -> list[Execution]:
        """Take the executions that were started; nothing else may have happened."""
        events = self.service.events_received()
        assert all(isinstance(event, RequestsStarted) for event in events), events
        return [execution for event in events if isinstance(event, RequestsStarted) for execution in event.executions]

    def sent(self) -> list[tuple[int, int, int]]:
        """Take (kind, id, argument) of what is to be sent."""
        return [(message.kind, message.id, message.argument) for message in self.service.messages_to_send()]

    def check_idle(self) -> None:
        assert not self.service._executions
        assert not self.service._surveys
        assert not self.service._draining
        assert not self.service.repetitions._underway
        assert not self.service.repetitions._waiting
        assert all(registration.is_idle for registration in self.registrations)


def only(events: list[ServiceEvent]) -> ServiceEvent:
    (event,) = events
    return event


def test_a_request_and_its_reply() -> None:
    member = Member((1, 0))
    request_id = member.request(1.0, time_left_ms=500)
    (execution,) = member.started()
    assert (execution.id, execution.payload, execution.peer) == (request_id, b"payload", member.peer)
    assert execution.deadline == 1.5
    assert member.registration.running == 1
    member.service.reply(execution, b"reply", 1.1)
    assert member.service.messages_to_send() == [PeerMessage(member.group, member.peer, REPLY, request_id, 0, b"reply")]
    assert member.service.executed == 1
    member.check_idle()


def test_a_failure() -> None:
    member = Member((1, 0))
    request_id = member.request()
    (execution,) = member.started()
    member.service.fail(execution, ValueError("bad \udc80"), 0.0)
    (message,) = member.service.messages_to_send()
    kind, id_, payload = message.kind, message.id, message.payload
    assert (kind, id_) == (FAILURE, request_id)
    assert packets.decode_failure(payload) == ("ValueError", "bad \\udc80")
    member.check_idle()


def test_nothing_begins_in_a_generation_that_is_not_accepted_any_more() -> None:
    member = Member((10, 0))
    member.request()
    (execution,) = member.started()
    member.group.is_left = True
    ids = [member.request(), member.request_once()]
    member.service.receive_requests(member.group, member.peer, [(77, 1000, b"", b"payload", NO_HEADERS)], 0.0)
    survey = member.survey()
    assert not member.started()
    answers = member.sent()
    assert [(kind, id_) for kind, id_, _ in answers] == [(REJECTION, each) for each in (*ids, 77, survey)]
    member.service.reply(execution, b"reply", 0.1)  # what was begun before is answered
    assert [kind for kind, _, _ in member.sent()] == [REPLY]


def test_each_caller_is_answered_in_the_group_in_which_it_asked() -> None:
    member = Member((1, 10))
    old = member.group
    new = Group("cluster", Keyring(Secret(bytes(32)), network="test").cluster("cluster"), LOCAL, 2)
    first, second = member.request_once(), member.request()
    (execution,) = member.started()
    member.service.rekey(lambda name: new if name == "cluster" else None)
    assert member.registration.group is new
    third = member.request_once()  # the same as the first, again in the old group
    member.group = new
    fourth, fifth = member.request_once(), member.request()
    member.service.reply(execution, b"reply", 0.1)
    messages = member.service.messages_to_send()
    assert {message.id: message.group for message in messages} == {first: old, third: old, fourth: new}
    for request_id, group in ((second, old), (fifth, new)):
        (execution,) = member.started()
        member.service.reply(execution, b"reply", 0.2)
        (message,) = member.service.messages_to_send()
        assert (message.id, message.group) == (request_id, group)
    assert not member.service._asked_in
    member.check_idle()


def test_a_caller_that_goes_or_gives_up_leaves_nothing_behind() -> None:
    member = Member((1, 10))
    member.request()
    new = Group("cluster", Keyring(Secret(bytes(32)), network="test").cluster("cluster"), LOCAL, 2)
    member.service.rekey(lambda _name: new)
    gives_up = member.request_once(identity=b"a" * 16)
    goes = Peer(NodeInfo(NodeId(b"q" * 16), ()), None)
    member.request_once(identity=b"b" * 16, peer=goes)
    assert len(member.service._asked_in) == 2
    member.service.receive_cancel(member.peer, gives_up, 0.0)
    member.service.peer_lost(goes, 0.0)
    assert not member.service._asked_in


def test_not_a_member() -> None:
    member = Member()
    request_id = member.request()
    assert member.sent() == [(REJECTION, request_id, Rejection.NOT_A_MEMBER)]
    assert member.service.rejected == {"not_a_member": 1}
    assert not member.service.events_received()


def test_concurrency_and_queue_are_bounded() -> None:
    member = Member((2, 3))
    ids = [member.request() for _ in range(8)]
    running = member.started()
    assert [execution.id for execution in running] == ids[:2]
    assert member.sent() == [(REJECTION, id_, Rejection.OVERLOADED) for id_ in ids[5:]]
    assert member.service.rejected == {"overloaded": 3}
    assert not member.registration.has_room(0)
    served = []
    while running:
        execution = running.pop(0)
        served.append(execution.id)
        member.service.reply(execution, b"", 0.5)
        running += member.started()
        assert 0 <= member.registration.running <= 2
    assert served == ids[:5]
    assert [id_ for _kind, id_, _argument in member.sent()] == ids[:5]
    assert member.service.executed == 5
    member.check_idle()


def test_no_queue() -> None:
    member = Member((1, 0))
    member.request()
    assert len(member.started()) == 1
    second = member.request()
    assert member.sent() == [(REJECTION, second, Rejection.OVERLOADED)]


def test_the_bytes_that_wait_are_bounded() -> None:
    member = Member((1, 10, 20))
    ids = [member.request() for _ in range(4)]  # of 7 bytes: what runs does not wait, so it does not count
    (running,) = member.started()
    assert member.sent() == [(REJECTION, ids[3], Rejection.OVERLOADED)]
    assert member.registration.queued_bytes == 14
    assert not member.registration.has_room(7)
    assert member.registration.has_room(6)
    member.service.receive_cancel(member.peer, ids[1], 0.0)
    assert member.registration.queued_bytes == 7
    ids.append(member.request())
    member.service.reply(running, b"", 0.0)
    (running,) = member.started()
    assert (running.id, member.registration.queued_bytes) == (ids[2], 7)
    member.service.peer_lost(member.peer, 0.0)
    assert member.registration.queued_bytes == 0
    member.service.events_received()
    member.service.reply(running, b"", 0.0)
    member.check_idle()


def test_what_can_run_at_once_is_not_bounded_by_what_may_wait() -> None:
    member = Member((1, 10, 0))
    first, second = member.request(), member.request()
    assert [execution.id for execution in member.started()] == [first]
    assert member.sent() == [(REJECTION, second, Rejection.OVERLOADED)]


def test_a_registration_with_room_for_the_bytes_is_chosen() -> None:
    member = Member((1, 10, 7), (1, 10, 100))
    for _ in range(6):
        member.request()
    assert not member.sent()
    assert [registration.queued_bytes for registration in member.registrations] == [7, 21]


def test_expired_work_is_not_started() -> None:
    member = Member((1, 10))
    member.request(0.0, time_left_ms=10_000)
    (running,) = member.started()
    short = [member.request(0.0, time_left_ms=100) for _ in range(3)]
    long = member.request(0.0, time_left_ms=5000)
    member.service.reply(running, b"", 0.1)
    assert member.sent() == [(REPLY, running.id, 0), *((REJECTION, id_, Rejection.EXPIRED) for id_ in short)]
    (execution,) = member.started()
    assert execution.id == long
    assert member.service.rejected == {"expired": 3}
    member.service.reply(execution, b"", 0.2)
    member.check_idle()


def test_cancel_what_runs() -> None:
    member = Member((1, 1))
    first, second = member.request(), member.request()
    (execution,) = member.started()
    member.service.receive_cancel(member.peer, first, 0.0)
    assert only(member.service.events_received()) == RequestCancelled(execution)
    assert member.registration.running == 1  # until its handler has ended
    member.service.receive_cancel(member.peer, first, 0.0)
    assert not member.service.events_received()
    member.service.fail(execution, ValueError(), 0.0)
    assert not member.sent()
    (execution,) = member.started()
    assert execution.id == second
    member.service.reply(execution, b"", 0.0)
    member.check_idle()


def test_cancel_what_is_queued() -> None:
    member = Member((1, 3))
    ids = [member.request() for _ in range(4)]
    (execution,) = member.started()
    member.service.receive_cancel(member.peer, ids[2], 0.0)
    assert not member.service.events_received()
    member.service.reply(execution, b"", 0.0)
    member.service.reply(member.started()[0], b"", 0.0)
    (execution,) = member.started()
    assert execution.id == ids[3]
    member.service.reply(execution, b"", 0.0)
    assert [id_ for _kind, id_, _argument in member.sent()] == [ids[0], ids[1], ids[3]]
    member.check_idle()


def test_another_peer_cannot_cancel() -> None:
    member = Member((1, 1))
    ids = [member.request() for _ in range(2)]
    member.started()
    other = Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    for id_ in ids:
        member.service.receive_cancel(other, id_, 0.0)
    assert not member.service.events_received()
    assert len(member.registration.queue) == 1


def test_a_cancel_that_passed_its_request() -> None:
    """A small CANCEL overtakes a large REQUEST: the request is then not executed at all."""
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, 1, 0.0)
    assert member.request() == 1
    assert not member.started()
    assert not member.sent()
    assert member.request() == 2
    assert [execution.id for execution in member.started()] == [2]


def test_early_cancels_are_bounded_and_go_with_their_peer() -> None:
    member = Member((1, 1))
    for id_ in range(1, EARLY_CANCELS_MAX + 100):
        member.service.receive_cancel(member.peer, id_, 0.0)
    assert len(member.service._early_cancels) == EARLY_CANCELS_MAX
    assert member.request() == 1  # forgotten
    assert len(member.started()) == 1
    member.service.peer_lost(member.peer, 0.0)
    assert not member.service._early_cancels


def test_a_lost_caller() -> None:
    member = Member((1, 5))
    other = Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    member.request()
    (execution,) = member.started()
    member.request()
    theirs = member.request(peer=other)
    member.request()
    member.service.peer_lost(member.peer, 0.0)
    assert only(member.service.events_received()) == RequestCancelled(execution)
    assert len(member.registration.queue) == 1
    member.service.reply(execution, b"nobody waits", 0.0)
    assert not member.sent()
    (execution,) = member.started()
    assert execution.id == theirs
    member.service.reply(execution, b"", 0.0)
    assert member.sent() == [(REPLY, theirs, 0)]
    member.check_idle()


# -- close


def test_close_answers_what_runs_and_waits() -> None:
    member = Member((1, 5))
    for _ in range(3):
        member.request()
    executions = member.started()
    member.service.close(member.registration)
    late = member.request()
    assert member.sent() == [(REJECTION, late, Rejection.NOT_A_MEMBER)]
    answered = 0
    while executions:
        member.service.reply(executions.pop(), b"", 0.0)
        answered += 1
        events = member.service.events_received()
        executions = [execution for event in events if isinstance(event, RequestsStarted) for execution in event.executions]
        assert RegistrationDrained(member.registration) in events if answered == 3 else executions
    assert answered == 3
    member.check_idle()


def test_close_what_is_idle() -> None:
    member = Member((1, 0))
    member.service.close(member.registration)
    member.service.close(member.registration)
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.check_idle()
    assert not member.service.serves(member.group)


def test_close_twice_drains_once() -> None:
    member = Member((1, 0))
    member.request()
    (execution,) = member.started()
    member.service.close(member.registration)
    member.service.close(member.registration)
    assert not member.service.events_received()
    member.service.reply(execution, b"", 0.0)
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.service.close(member.registration)
    assert not member.service.events_received()
    member.check_idle()


@pytest.mark.parametrize("by", ["cancel", "loss", "expiry"])
def test_close_drains_when_the_last_queued_goes_without_an_answer(by: str) -> None:
    member = Member((1, 1))
    member.request(time_left_ms=10_000)
    (execution,) = member.started()
    other = Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    queued = member.request(time_left_ms=10, peer=other)
    member.service.close(member.registration)
    if by == "cancel":
        member.service.receive_cancel(other, queued, 0.0)
    elif by == "loss":
        member.service.peer_lost(other, 0.0)
    assert not member.service.events_received()
    member.service.reply(execution, b"", 5.0)
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.check_idle()


# -- several registrations


def test_the_first_begins_and_the_last_ends_the_membership() -> None:
    member = Member()
    first, second = (Registration(member.group, 1, 0) for _ in range(2))
    assert member.service.register(first)
    assert not member.service.register(second)
    assert not member.service.leave(first)
    member.service.close(first)
    assert member.service.serves(member.group)
    assert member.service.leave(second)
    assert member.service.serves(member.group)  # until everybody has been told
    assert not member.service.is_member(member.group)
    member.service.close(second)
    assert not member.service.serves(member.group)


def test_who_joins_while_the_last_leaves_begins_a_membership() -> None:
    member = Member()
    first, second = (Registration(member.group, 1, 0) for _ in range(2))
    member.service.register(first)
    assert member.service.leave(first)
    assert member.service.register(second)
    member.service.close(first)
    assert member.service.is_member(member.group)
    assert member.service.leave(second)


def test_a_membership_is_that_of_who_stays() -> None:
    member = Member()
    assert member.service.membership_of(member.group) is None
    first, second = (Registration(member.group, 1, 0, weight=weight) for weight in (2.0, 3.0))
    member.service.register(first)
    member.service.register(second)
    assert member.service.membership_of(member.group) is first
    member.service.leave(first)
    assert member.service.membership_of(member.group) is second
    member.service.leave(second)
    assert member.service.membership_of(member.group) is None


def test_the_less_loaded_registration_is_chosen() -> None:
    member = Member((1, 5), (3, 5))
    for _ in range(8):
        member.request()
    started = [member.registrations.index(execution.registration) for execution in member.started()]
    assert sorted(started) == [0, 1, 1, 1]
    assert [len(registration.queue) for registration in member.registrations] == [1, 3]


def test_one_that_is_full_does_not_reject_what_another_could_take() -> None:
    """In proportion to its concurrency the wide one is less loaded, but it has no queue."""
    member = Member((2, 0), (1, 10))
    ids = [member.request() for _ in range(13)]
    assert len(member.started()) == 3
    assert not member.sent()
    assert len(member.registrations[1].queue) == 10
    full = member.request()
    assert member.sent() == [(REJECTION, full, Rejection.OVERLOADED)]
    assert len(ids) == 13


def test_a_broadcast_reaches_every_registration() -> None:
    member = Member((1, 0), (1, 0))
    member.service.receive_broadcast(member.group, member.peer, 7, b"message")
    member.service.close(member.registrations[0])
    member.service.receive_broadcast(member.group, member.peer, 8, b"message")
    first, second, drained, third = member.service.events_received()
    assert first == BroadcastReceived(member.registrations[0], member.peer, 7, b"message")
    assert second == BroadcastReceived(member.registrations[1], member.peer, 7, b"message")
    assert drained == RegistrationDrained(member.registrations[0])
    assert third == BroadcastReceived(member.registrations[1], member.peer, 8, b"message")


def test_a_broadcast_to_nobody() -> None:
    member = Member()
    member.service.receive_broadcast(member.group, member.peer, 1, b"message")
    assert not member.service.events_received()


def test_an_unregistered_registration_can_be_closed() -> None:
    member = Member()
    registration = Registration(member.group, 1, 0)
    member.service.close(registration)
    assert only(member.service.events_received()) == RegistrationDrained(registration)


# -- surveys


def test_a_survey_is_answered_by_every_registration() -> None:
    member = Member((1, 0), (1, 0), (1, 0))
    survey_id = member.survey()
    first, second, third = member.started()
    assert [each.registration for each in (first, second, third)] == member.registrations
    assert member.service.owes(member.peer)
    member.service.reply(first, b"", 0.5)
    member.service.decline(second, 0.5)
    member.service.fail(third, ValueError(), 0.5)
    assert member.sent() == [(kind, survey_id, encode_answer(3)) for kind in (REPLY, DECLINE, FAILURE)]
    member.check_idle()
    assert not member.service.owes(member.peer)


def test_the_bounds_of_each_registration_hold_for_surveys() -> None:
    member = Member((1, 0), (1, 1))
    member.survey()
    running = member.started()
    late_id = member.survey()
    assert member.sent() == [(REJECTION, late_id, encode_answer(2, Rejection.OVERLOADED))]
    assert member.service.owes(member.peer)
    for execution in running:
        member.service.reply(execution, b"", 2.0)
    assert member.sent()[-1] == (REJECTION, late_id, encode_answer(2, Rejection.EXPIRED))
    member.check_idle()


def test_a_survey_of_nobody() -> None:
    member = Member()
    survey_id = member.survey()
    assert member.sent() == [(REJECTION, survey_id, encode_answer(1, Rejection.NOT_A_MEMBER))]


def test_a_stand_in_declines_a_survey_and_takes_no_broadcast() -> None:
    member = Member((1, 0), (1, 0))
    for registration in member.registrations:
        registration.rank = 1
    survey_id = member.survey()
    assert member.started() == []
    assert member.sent() == [(DECLINE, survey_id, encode_answer(1))]
    member.service.receive_broadcast(member.group, member.peer, 1, b"told")
    assert member.service.events_received() == []
    member.check_idle()


def test_cancel_what_runs_and_waits_of_a_survey() -> None:
    member = Member((1, 1), (1, 1))
    occupied, _other = member.request(), member.request()
    occupying = member.started()
    survey_id = member.survey()
    member.service.reply(occupying[0], b"", 0.1)
    (started,) = member.started()
    member.service.receive_cancel(member.peer, survey_id, 0.0)
    assert member.service.events_received() == [RequestCancelled(started)]
    member.service.fail(started, ValueError(), 0.2)  # the handler has ended
    member.service.reply(occupying[1], b"", 0.2)
    assert [(kind, id_) for kind, id_, _argument in member.sent()] == [(REPLY, occupied), (REPLY, occupied + 1)]
    member.check_idle()


def test_a_cancel_that_passed_its_survey() -> None:
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, SURVEY_IDS + 1, 0.0)
    assert member.survey() == SURVEY_IDS + 1
    assert not member.started()
    assert not member.sent()


def test_a_lost_surveyor() -> None:
    member = Member((1, 1), (1, 1))
    member.survey()
    member.survey()
    running = member.started()
    member.service.peer_lost(member.peer, 0.0)
    assert member.service.events_received() == list(map(RequestCancelled, running))
    for execution in running:
        member.service.reply(execution, b"", 0.0)
    assert member.sent() == []
    member.check_idle()


# -- idempotent requests


def other_peer() -> Peer:
    return Peer(NodeInfo(NodeId(b"o" * 16), ()), None)


def test_what_was_executed_is_answered_again() -> None:
    member = Member((1, 0))
    first = member.request_once()
    (execution,) = member.started()
    assert (execution.payload, execution.id) == (b"payload", first)
    member.service.reply(execution, b"reply", 1.0)
    again = member.request_once(300.9, peer=other_peer())
    assert [(message.id, message.payload) for message in member.service.messages_to_send()] == [
        (first, b"reply"),
        (again, b"reply"),
    ]
    assert not member.started()
    assert (member.service.executed, member.service.repetitions.repeated) == (1, 1)
    member.request_once(301.0)  # after the window
    assert len(member.started()) == 1


def test_clusters_do_not_share_identities() -> None:
    member = Member((2, 0))
    other = Group("other", KEYRING.cluster("other"), LOCAL, 1)
    member.service.register(Registration(other, 1, 0))
    member.request_once()
    member.service.receive_request_once(other, member.peer, 77, 1000, b"i" * 16, b"", 0.0)
    assert len(member.started()) == 2


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_repetition_waits_for_what_runs_or_waits(is_queued: bool) -> None:
    member = Member((1, 1))
    blocking = []
    if is_queued:
        member.request()
        blocking = member.started()
    ids = [member.request_once(time_left_ms=1000), member.request_once(time_left_ms=9000, peer=other_peer())]
    ids.append(member.request_once(time_left_ms=10))
    for execution in blocking:
        assert not member.started()
        member.service.reply(execution, b"", 5.0)  # later than the first caller waits, but not the second
        assert member.sent() == [(REPLY, execution.id, 0)]
    (execution,) = member.started()
    assert execution.deadline == 9.0
    member.service.reply(execution, b"", 5.0)
    assert member.sent() == [(REPLY, id_, 0) for id_ in ids]
    member.check_idle()


def test_the_same_caller_by_another_way_gets_one_reply() -> None:
    member = Member((1, 1))
    id_ = member.request_once()
    member.last_id = id_ - 1
    assert member.request_once() == id_
    (execution,) = member.started()
    member.service.reply(execution, b"", 0.0)
    assert member.sent() == [(REPLY, id_, 0)]


def test_a_failure_reaches_who_waits_and_is_done_again_for_who_comes_later() -> None:
    member = Member((1, 1))
    ids = [member.request_once(), member.request_once()]
    (execution,) = member.started()
    member.service.fail(execution, ValueError("no"), 0.0)
    assert member.sent() == [(FAILURE, id_, 0) for id_ in ids]
    third = member.request_once()
    (execution,) = member.started()
    member.service.reply(execution, b"", 0.0)
    assert member.sent() == [(REPLY, third, 0)]


def test_it_is_cancelled_when_its_last_caller_is_gone() -> None:
    member = Member((1, 1))
    other = other_peer()
    first, second = member.request_once(), member.request_once(peer=other)
    (execution,) = member.started()
    member.service.receive_cancel(member.peer, first, 0.0)
    member.service.receive_cancel(member.peer, second, 0.0)  # not that peer's
    assert not member.service.events_received()
    member.service.peer_lost(other, 0.0)
    assert only(member.service.events_received()) == RequestCancelled(execution)
    member.service.fail(execution, ValueError(), 0.0)
    assert not member.sent()
    member.check_idle()


def test_who_comes_while_it_is_being_cancelled_has_it_done_anew() -> None:
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, member.request_once(), 0.0)
    ids = [member.request_once(peer=other_peer()), member.request_once()]
    started, cancelled = member.service.events_received()
    assert isinstance(started, RequestsStarted)
    assert cancelled == RequestCancelled(started.executions[0])
    member.service.fail(started.executions[0], ValueError(), 0.0)
    (execution,) = member.started()
    assert execution.payload == b"payload"
    member.service.reply(execution, b"", 0.0)
    assert member.sent() == [(REPLY, id_, 0) for id_ in ids]
    member.check_idle()


def test_what_could_not_be_cancelled_is_remembered() -> None:
    """As a function in a thread: it goes on, and its reply is as good as any."""
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, member.request_once(), 0.0)
    waiting = member.request_once()
    started = member.service.events_received()[0]
    assert isinstance(started, RequestsStarted)
    member.service.reply(started.executions[0], b"late", 0.0)
    late = member.request_once()
    assert member.sent() == [(REPLY, waiting, 0), (REPLY, late, 0)]
    assert not member.started()
    member.check_idle()


def test_who_comes_while_it_is_cancelled_and_the_member_leaves() -> None:
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, member.request_once(), 0.0)
    ids = [member.request_once(), member.request_once(peer=other_peer())]
    started = member.service.events_received()[0]
    assert isinstance(started, RequestsStarted)
    member.service.close(member.registration)
    member.service.fail(started.executions[0], ValueError(), 0.0)
    assert member.sent() == [(REJECTION, id_, Rejection.NOT_A_MEMBER) for id_ in ids]
    member.service.events_received()
    member.check_idle()


def test_waiting_ones_that_are_given_up_leave_the_queue() -> None:
    member = Member((1, 1))
    member.request()
    other = other_peer()
    ids = [member.request_once(), member.request_once(peer=other)]
    member.service.peer_lost(other, 0.0)
    assert len(member.registration.queue) == 1
    member.service.receive_cancel(member.peer, ids[0], 0.0)
    assert not member.registration.queue
    assert member.registration.queued_bytes == 0
    (running,) = member.started()
    member.service.reply(running, b"", 0.0)
    member.check_idle()


def test_every_caller_of_what_is_turned_away_hears_it() -> None:
    member = Member((1, 1))
    member.request()
    ids = [member.request_once(0.0, time_left_ms=100), member.request_once(0.0, time_left_ms=50)]
    full = member.request_once(identity=b"j" * 16)
    assert member.sent() == [(REJECTION, full, Rejection.OVERLOADED)]
    (running,) = member.started()
    member.service.reply(running, b"", 1.0)
    assert member.sent()[1:] == [(REJECTION, id_, Rejection.EXPIRED) for id_ in ids]
    member.check_idle()


def test_too_many_callers_of_one_request() -> None:
    member = Member((1, 1))
    for _ in range(CALLERS_MAX):
        member.request_once()
    assert not member.sent()
    one_more = member.request_once()
    assert member.sent() == [(REJECTION, one_more, Rejection.OVERLOADED)]


def test_a_link_to_who_waits_for_a_repetition_is_owed() -> None:
    member = Member((1, 1))
    other = other_peer()
    member.request_once()
    member.request_once(peer=other)
    assert member.service.owes(other)
    assert not member.service.owes(other_peer())


# -- leaving


def test_what_waits_is_handed_back_and_what_runs_is_finished() -> None:
    member = Member((1, 10))
    running_id = member.request()
    plain, survey, other = member.request(), member.survey(), other_peer()
    ids = [member.request_once(), member.request_once(peer=other)]
    (running,) = member.started()
    member.service.close(member.registration, 0.0, hands_back=True)
    assert member.sent() == [(REJECTION, id_, Rejection.NOT_A_MEMBER) for id_ in (plain, *ids)]
    assert not member.service.events_received()
    member.service.reply(running, b"", 0.0)
    (surveyed,) = member.started()  # nobody else can answer for this member
    member.service.reply(surveyed, b"", 0.0)
    assert [message[:2] for message in member.sent()] == [(REPLY, running_id), (REPLY, survey)]
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.check_idle()


def test_what_waits_goes_to_another_registration_first() -> None:
    member = Member((1, 10), (2, 1))
    ids = [member.request() for _ in range(8)]
    running = member.started()
    queued = [execution.id for execution in member.registration.queue]
    assert len(running) == 3
    assert len(queued) == 4
    member.service.reply(running[1], b"", 0.0)
    member.service.reply(running[2], b"", 0.0)
    taken = member.started()
    member.sent()
    member.service.close(member.registration, 0.0, hands_back=True)
    taken += member.started()
    assert [execution.id for execution in taken][1:] == queued[:1]
    assert [execution.id for execution in member.registrations[1].queue] == queued[1:2]
    assert member.sent() == [(REJECTION, id_, Rejection.OVERLOADED) for id_ in queued[2:]]
    assert len(ids) == 8


def test_what_waited_for_too_long_begins_at_no_other_registration() -> None:
    member = Member((1, 10), (1, 0))
    member.request()
    member.request()
    plain, once = member.request(time_left_ms=100), member.request_once(time_left_ms=100)
    running = member.started()
    member.service.reply(running[1], b"", 0.0)
    member.sent()
    member.service.close(member.registration, 0.1, hands_back=True)
    assert member.sent() == [(REJECTION, id_, Rejection.EXPIRED) for id_ in (plain, once)]
    assert not member.started()


def test_what_is_to_be_done_anew_after_its_deadline_is_not() -> None:
    member = Member((1, 1))
    member.service.receive_cancel(member.peer, member.request_once(), 0.0)
    ids = [member.request_once(time_left_ms=50), member.request_once(time_left_ms=100)]
    started = member.service.events_received()[0]
    assert isinstance(started, RequestsStarted)
    member.service.fail(started.executions[0], ValueError(), 1.0)
    assert member.sent() == [(REJECTION, id_, Rejection.EXPIRED) for id_ in ids]
    assert not member.started()
    member.check_idle()


def test_what_took_too_long_is_abandoned() -> None:
    member = Member((1, 10))
    member.request()
    plain, survey, once = member.request(), member.survey(), member.request_once()
    (running,) = member.started()
    member.service.close(member.registration, 0.0)
    assert not member.sent()  # nobody else is there: it is finished here, if there is time
    member.service.abandon(member.registration, 30.0)
    assert member.sent() == [
        (REJECTION, plain, Rejection.NOT_A_MEMBER),
        (REJECTION, survey, encode_answer(1, Rejection.NOT_A_MEMBER)),
        (REJECTION, once, Rejection.NOT_A_MEMBER),
    ]
    member.service.fail(running, ValueError(), 31.0)
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.check_idle()


def test_of_those_that_come_together_each_has_its_own_fate() -> None:
    """One was cancelled before it came, one has no time left, one is there twice, one finds no place."""
    member = Member((3, 1))
    member.service.receive_cancel(member.peer, 2, 0.0)
    together = [
        (1, 1000, b"1" * 16, b"first", NO_HEADERS),
        (2, 1000, b"2" * 16, b"cancelled", NO_HEADERS),
        (3, 0, b"3" * 16, b"expired", NO_HEADERS),
        (4, 1000, b"4" * 16, b"second", NO_HEADERS),
        (5, 1000, b"1" * 16, b"first again", NO_HEADERS),
        (6, 1000, b"6" * 16, b"third", NO_HEADERS),
        (7, 1000, b"7" * 16, b"waits", NO_HEADERS),
        (8, 1000, b"8" * 16, b"too many", NO_HEADERS),
    ]
    member.service.receive_requests(member.group, member.peer, together, 0.0)
    running = member.started()
    assert [execution.payload for execution in running] == [b"first", b"second", b"third"]
    assert not any(execution.surveyed for execution in running)
    assert member.sent() == [(REJECTION, 3, Rejection.EXPIRED), (REJECTION, 8, Rejection.OVERLOADED)]
    for execution in running:
        member.service.reply(execution, b"", 0.0)
    (waited,) = member.started()
    assert waited.payload == b"waits"
    member.service.reply(waited, b"", 0.0)
    assert member.sent() == [(REPLY, 1, 0), (REPLY, 5, 0), (REPLY, 4, 0), (REPLY, 6, 0), (REPLY, 7, 0)]
    assert (member.service.executed, member.service.repetitions.repeated) == (4, 1)
    member.check_idle()


def test_plain_requests_come_together_in_the_same_way() -> None:
    """One was cancelled before it came, one has no time left, two find no place; one is given up while it runs."""
    member = Member((3, 1))
    member.service.receive_cancel(member.peer, 2, 0.0)
    times = {1: 1000, 2: 1000, 3: 0, 4: 1000, 5: 1000, 6: 1000, 7: 1000}
    together = [(number, time_left_ms, b"", b"%d" % number, NO_HEADERS) for number, time_left_ms in times.items()]
    together[3:3] = [(8, 1000, b"8" * 16, b"once", NO_HEADERS)]
    member.service.receive_requests(member.group, member.peer, together, 0.0)
    running = member.started()
    assert [(execution.id, execution.payload) for execution in running] == [(1, b"1"), (8, b"once"), (4, b"4")]
    rejected = [(REJECTION, 3, Rejection.EXPIRED), (REJECTION, 6, Rejection.OVERLOADED), (REJECTION, 7, Rejection.OVERLOADED)]
    assert member.sent() == rejected
    member.service.receive_cancel(member.peer, 4, 0.0)
    assert member.service.events_received() == [RequestCancelled(running[2])]
    for execution in running:
        member.service.reply(execution, b"", 0.0)
    (waited,) = member.started()
    member.service.reply(waited, b"", 0.0)
    assert member.sent() == [(REPLY, 1, 0), (REPLY, 8, 0), (REPLY, 5, 0)]
    member.check_idle()


def test_those_that_come_together_are_shared_among_the_registrations() -> None:
    member = Member((1, 0), (1, 0))
    together = [(number, 1000, bytes((number,)) * 16, b"", NO_HEADERS) for number in range(1, 4)]
    member.service.receive_requests(member.group, member.peer, together, 0.0)
    assert [execution.registration for execution in member.started()] == member.registrations
    assert member.sent() == [(REJECTION, 3, Rejection.OVERLOADED)]


def test_those_that_are_answered_together_get_a_reply_each() -> None:
    member = Member((3, 1))
    once, plain = member.request_once(), member.request()
    again = member.request_once(peer=other_peer())
    survey, waiting = member.survey(), member.request()
    running = member.started()
    member.service.reply_many(member.registration, [(execution, b"") for execution in running], 0.0)
    assert sorted(member.sent()) == sorted(
        [(REPLY, once, 0), (REPLY, plain, 0), (REPLY, again, 0), (REPLY, survey, encode_answer(1))]
    )
    (execution,) = member.started()
    assert execution.id == waiting
    member.service.reply_many(member.registration, [(execution, b"")], 0.0)
    assert member.sent() == [(REPLY, waiting, 0)]
    member.check_idle()


@pytest.mark.parametrize("last_first", [True, False])
def test_a_caller_that_gives_two_requests_one_id_harms_nobody(last_first: bool) -> None:
    member = Member((2, 1))
    for identity in (b"1" * 16, b"2" * 16):
        member.service.receive_request_once(member.group, member.peer, 7, 1000, identity, b"", 0.0)
    running = member.started()
    other = member.request_once(peer=other_peer())
    for execution in reversed(running) if last_first else running:
        member.service.reply(execution, b"", 0.0)
    (waited,) = member.started()
    member.service.reply(waited, b"", 0.0)
    assert member.sent() == [(REPLY, 7, 0), (REPLY, 7, 0), (REPLY, other, 0)]
    member.check_idle()


def test_executions_know_until_when_their_caller_waits() -> None:
    member = Member((4, 4))
    member.request(now=10.0, time_left_ms=2500)
    member.request_once(now=10.0, time_left_ms=1500)
    member.survey(now=10.0, time_left_ms=500)
    member.service.receive_requests(member.group, member.peer, [(9, 3500, b"9" * 16, b"", NO_HEADERS)], 10.0)
    assert [execution.deadline for execution in member.started()] == [12.5, 11.5, 10.5, 13.5]


# -- tunnels


def test_as_many_tunnels_as_there_are_places() -> None:
    member = Member((1, 0), (1, 0), (1, 0))
    assert member.service.admit_tunnel(member.group) is Rejection.NO_TUNNELS
    _none, narrow, wide = member.registrations
    narrow.tunnels, wide.tunnels = 1, 3
    admitted = []
    for _ in range(4):
        registration = member.service.admit_tunnel(member.group)
        assert isinstance(registration, Registration)
        member.service.tunnel_begun(registration)
        admitted.append(registration)
    assert admitted == [narrow, wide, wide, wide]
    assert member.service.admit_tunnel(member.group) is Rejection.OVERLOADED
    member.service.tunnel_over(wide)
    assert member.service.admit_tunnel(member.group) is wide
    assert member.service.rejected == {"no_tunnels": 1, "overloaded": 1}


def test_a_closed_registration_is_drained_when_its_last_tunnel_is_over() -> None:
    member = Member((1, 0))
    member.registration.tunnels = 2
    for _ in range(2):
        member.service.tunnel_begun(member.registration)
    member.service.close(member.registration)
    assert member.service.admit_tunnel(member.group) is Rejection.NOT_A_MEMBER
    member.service.tunnel_over(member.registration)
    assert not member.service.events_received()
    member.service.tunnel_over(member.registration)
    assert only(member.service.events_received()) == RegistrationDrained(member.registration)
    member.check_idle()


@pytest.mark.parametrize("is_together", [False, True])
def test_who_does_not_remember_executes_again_and_lets_repetitions_of_what_runs_wait(is_together: bool) -> None:
    member = Member((2, 0))
    member.registration.remembers = False
    for turn in (1, 2):
        first, second = member.request_once(), member.request_once()
        (execution,) = member.started()
        if is_together:
            member.service.reply_many(member.registration, [(execution, b"")], 0.0)
        else:
            member.service.reply(execution, b"", 0.0)
        assert member.sent() == [(REPLY, first, 0), (REPLY, second, 0)]
        assert member.service.executed == turn
    assert len(member.service.repetitions) == 0
    member.check_idle()


# -- what is handed on, and answered later


@pytest.mark.parametrize("identity", [b"", b"i" * 16])
@pytest.mark.parametrize("reason", [Rejection.NOT_A_MEMBER, Rejection.OVERLOADED, Rejection.LOST])
def test_a_started_request_can_be_rejected(reason: Rejection, identity: bytes) -> None:
    member = Member((1, 1))
    ids = [member.request_once() if identity else member.request() for _ in range(2)]
    started = member.started()
    member.service.reject(started[0], reason, 0.0)
    told = ids if identity else ids[:1]  # all who wait for it, or the one
    assert member.sent() == [(REJECTION, id_, reason) for id_ in told]
    assert member.service.rejected == {reason.name.lower(): 1}
    for execution in member.started():
        member.service.reply(execution, b"done", 0.0)
    member.check_idle()
    assert member.registration.running == 0


@pytest.mark.parametrize("identity", [b"", b"i" * 16])
def test_a_started_request_can_be_dropped(identity: bytes) -> None:
    member = Member((1, 1))
    ids = [member.request_once() if identity else member.request() for _ in range(2)]
    member.service.drop(member.started()[0], 0.0)
    assert not member.sent()
    left = member.started()
    assert len(left) == (0 if identity else 1), "who waited has its place"
    for execution in left:
        member.service.reply(execution, b"done", 0.0)
        assert member.sent() == [(REPLY, ids[1], 0)]
    member.check_idle()


def test_the_failure_of_a_handler_elsewhere_is_told_as_it_was_there() -> None:
    member = Member((2, 0))
    member.request()
    member.request_once()
    for execution in member.started():
        member.service.fail_as(execution, "LookupError", "no such row", 0.0)
    messages = member.service.messages_to_send()
    assert [packets.decode_failure(message.payload) for message in messages] == [("LookupError", "no such row")] * 2
    assert {message.kind for message in messages} == {FAILURE}
    member.check_idle()


def test_what_is_rejected_after_all_its_callers_went_is_begun_anew_for_those_who_came() -> None:
    member = Member((1, 1))
    first = member.request_once()
    (execution,) = member.started()
    member.service.receive_cancel(member.peer, first, 0.0)
    second = member.request_once()
    assert isinstance(member.service.events_received()[0], RequestCancelled)
    member.service.reject(execution, Rejection.LOST, 0.0)
    assert not member.sent()
    (again,) = member.started()
    member.service.reply(again, b"done", 0.0)
    assert member.sent() == [(REPLY, second, 0)]
    member.check_idle()


# -- requests that the caller takes back


def test_requests_that_have_not_begun_are_given_back() -> None:
    member = Member((1, 10))
    running, first, second, third = (member.request() for _ in range(4))
    (execution,) = member.started()
    member.service.receive_recall(member.peer, [third, running, first, 999], 0.1)
    assert member.sent() == [(REJECTION, first, Rejection.RECALLED), (REJECTION, third, Rejection.RECALLED)]
    assert not member.service.rejected, "nothing was refused"
    assert not member.started(), "what runs goes on"
    member.service.reply(execution, b"reply", 0.2)
    assert [started.id for started in member.started()] == [second]
    assert member.sent() == [(REPLY, running, 0)]


def test_a_request_of_another_caller_is_not_given_back() -> None:
    member = Member((1, 10))
    other = Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    member.request()
    id_ = member.request(peer=other)
    member.service.receive_recall(member.peer, [id_], 0.1)
    assert not member.sent()
    member.service.receive_recall(other, [id_], 0.1)
    assert member.sent() == [(REJECTION, id_, Rejection.RECALLED)]


def test_an_idempotent_request_is_given_back_unless_others_wait_for_it() -> None:
    member = Member((1, 10))
    other = Peer(NodeInfo(NodeId(b"o" * 16), ()), None)
    member.request()
    (execution,) = member.started()
    alone, shared = member.request_once(identity=b"a" * 16), member.request_once(identity=b"s" * 16)
    joined = member.request_once(identity=b"s" * 16, peer=other)
    member.service.receive_recall(member.peer, [alone, shared], 0.1)
    assert member.sent() == [(REJECTION, alone, Rejection.RECALLED)]
    member.service.receive_recall(other, [joined], 0.1)
    assert not member.sent()
    again = member.request_once(identity=b"a" * 16)
    for _ in range(3):
        member.service.reply(execution, b"reply", 0.2)
        (execution,) = member.started() or (execution,)
    assert {id_ for kind, id_, _reason in member.sent() if kind == REPLY} >= {shared, joined, again}
    member.check_idle()


def test_a_survey_is_never_given_back() -> None:
    member = Member((1, 10))
    member.request()
    member.started()
    id_ = member.survey()
    member.service.receive_recall(member.peer, [id_], 0.1)
    assert not member.sent()


def test_a_registration_that_drains_ends_when_its_last_request_is_given_back() -> None:
    member = Member((1, 10))
    running, waiting = member.request(), member.request()
    (execution,) = member.started()
    member.service.close(member.registration)
    member.service.reply(execution, b"reply", 0.1)
    (started,) = member.started()
    assert (running, started.id) == (execution.id, waiting)
    last = Member((0, 10))
    id_ = last.request()
    last.service.close(last.registration)
    last.service.receive_recall(last.peer, [id_], 0.1)
    assert isinstance(only(last.service.events_received()), RegistrationDrained)
