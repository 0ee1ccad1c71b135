"""Tests of iris_py/patterns/request/losses.py: members that requests with keys have lost, as nodes remember them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.errors import TooManyMembersLost
from iris_py.patterns.request.deduplication import identity_of_key
from iris_py.patterns.request.losses import (
    KNOWING_MAX,
    LOSSES_MAX,
    LOSSES_S,
    MEMBERS_MAX,
    TOLD_MAX,
    Losses,
    decode_losses,
    decode_members,
    encode_losses,
)
from iris_py.patterns.request.retry import Retry
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.packets import Rejection
from tests.unit.iris_py.patterns.request.test_requester_retries import Repeater

if TYPE_CHECKING:
    from iris_py.peers.member import KnownMember

ONE, TWO, THREE = bytes(16), b"2" * 16, b"3" * 16
KEY = b"k" * 16
LOCAL = b"me" * 8


def losses_of(caller: Repeater) -> Losses:
    return caller.requester._losses


# -- the table


def test_who_does_not_know_is_told_once() -> None:
    losses = Losses(LOCAL)
    assert losses.refuse(KEY, ONE, 0.0) == ()
    losses.note(KEY, [TWO], ONE, 0.0)
    assert losses.refuse(KEY, ONE, 0.0) == (), "it has told that itself"
    assert losses.refuse(KEY, THREE, 0.0) == (TWO,)
    assert losses.refuse(KEY, THREE, 0.0) == ()
    losses.note(KEY, [TWO], THREE, 0.0)
    assert losses.refuse(KEY, ONE, 0.0) == (), "that is no news"
    losses.note(KEY, [THREE], ONE, 0.0)
    assert losses.refuse(KEY, THREE, 0.0) == (TWO, THREE), "that is"
    assert losses.of(KEY, 0.0) == (TWO, THREE)
    assert losses.of(b"other", 0.0) == ()


def test_losses_are_remembered_as_long_as_replies_and_from_the_last_one_on() -> None:
    losses = Losses(LOCAL)
    losses.note(KEY, [ONE], LOCAL, 0.0)
    losses.note(b"other", [ONE], LOCAL, 1.0)
    losses.note(KEY, [TWO], LOCAL, 100.0)
    assert losses.of(b"other", LOSSES_S) == (ONE,)
    assert losses.of(b"other", LOSSES_S + 1.0) == ()
    assert losses.of(KEY, LOSSES_S + 99.0) == (ONE, TWO)
    assert losses.of(KEY, LOSSES_S + 100.0) == ()
    assert not losses.entries


def test_what_is_remembered_is_bounded() -> None:
    losses = Losses(LOCAL)
    for number in range(LOSSES_MAX + 10):
        losses.note(number.to_bytes(16, "big"), [ONE], LOCAL, 0.0)
    assert len(losses.entries) == LOSSES_MAX
    assert losses.of((9).to_bytes(16, "big"), 0.0) == ()
    assert losses.of((10).to_bytes(16, "big"), 0.0) == (ONE,)
    losses.note(KEY, (number.to_bytes(16, "big") for number in range(100)), LOCAL, 0.0)
    assert len(losses.of(KEY, 0.0)) == MEMBERS_MAX
    for number in range(KNOWING_MAX + 10):
        losses.refuse(KEY, number.to_bytes(16, "big"), 0.0)
    assert len(losses.entries[KEY].knowing) == KNOWING_MAX


# -- what travels


def test_losses_arrive_as_they_were_told() -> None:
    told = [(KEY, (ONE,)), (ONE, (TWO, THREE))]
    assert decode_losses(encode_losses(told)) == told
    assert decode_losses(b"") == []


@given(st.binary(max_size=200))
def test_any_bytes_are_losses_or_none(data: bytes) -> None:
    losses = decode_losses(data)
    assert losses is None or encode_losses(losses) == data
    members = decode_members(data)
    assert len(members) <= MEMBERS_MAX
    assert all(len(member) == 16 for member in members)


@pytest.mark.parametrize(
    "data",
    [
        KEY,
        KEY + b"\0",
        KEY + b"\1" + ONE[:15],
        KEY + bytes((MEMBERS_MAX + 1,)) + ONE * (MEMBERS_MAX + 1),
        encode_losses([(KEY, (ONE,))] * (TOLD_MAX + 1)),
    ],
)
def test_what_is_malformed_changes_nothing(data: bytes) -> None:
    losses = Losses(LOCAL)
    caller = Repeater(1)
    message = PeerMessage(caller.group, caller.every[0].peer, packets.LOSSES, 0, 0, data)
    assert not losses.receive(message, 0.0)
    assert not losses.entries


# -- the caller


def told(caller: Repeater) -> list[tuple[KnownMember, bytes]]:
    return [(caller.member_of(message.peer), message.payload) for message in caller.raw() if message.kind == packets.LOSSES]


def test_all_members_that_live_are_told_of_a_loss() -> None:
    caller = Repeater(4)
    caller.request(retry=Retry(members_lost_max=1), key=KEY)
    lost = caller.holder()
    caller.lose(lost, 0.1)
    assert isinstance(caller.outcome(), TooManyMembersLost)
    said = told(caller)
    assert {id(member) for member, _payload in said} == {id(member) for member in caller.members()}
    assert {payload for _member, payload in said} == {encode_losses([(KEY, (lost.peer.id,))])}
    assert losses_of(caller).of(caller.group.subject + KEY, 0.1) == (lost.peer.id,)


def test_of_requests_without_a_key_nobody_is_told() -> None:
    caller = Repeater(4)
    caller.request(idempotent=True)
    caller.lose(caller.holder(), 0.1)
    assert told(caller) == []
    assert not losses_of(caller).entries


def test_a_burst_of_losses_is_one_message_for_each_member_and_bounded() -> None:
    caller = Repeater(2)
    for number in range(3 * TOLD_MAX):
        caller.request(key=number.to_bytes(2, "big") + bytes(14), idempotent=True, timeout_s=60.0)
    caller.raw()
    first, second = caller.members()
    caller.lose(first, 0.1)
    said = told(caller)
    assert [member for member, _payload in said] == [second]
    assert len(losses_of(caller).entries) > TOLD_MAX
    assert len(decode_losses(said[0][1]) or ()) == TOLD_MAX


def test_whoever_asks_again_from_this_node_does_not_risk_what_it_may_not() -> None:
    caller = Repeater(6)
    losses_of(caller).note(caller.group.subject + KEY, [ONE, TWO], THREE, 0.0)
    caller.request(idempotent=True, key=KEY)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (ONE.hex(), TWO.hex())
    request_id = caller.request(retry=Retry(members_lost_max=3), key=KEY)
    caller.reply(caller.holder(), request_id, 0.1)
    assert caller.outcome() == b"reply"


def test_many_requests_at_once_know_of_losses_too() -> None:
    caller = Repeater(6)
    losses_of(caller).note(caller.group.subject + identity_of_key("cluster", "bad"), [ONE, TWO], THREE, 0.0)
    caller.requester.request_many(caller.group, [("bad", "bad", b""), ("good", "good", b"")], 5.0, 0.0)
    ((token, outcome),) = caller.requester.outcomes_received()
    assert token == "bad"
    assert isinstance(outcome, TooManyMembersLost)
    assert len(caller.raw()) == 1


def test_a_member_that_names_losses_is_asked_again_if_it_may_be_risked() -> None:
    caller = Repeater(6)
    request_id = caller.request(idempotent=True, key=KEY)
    member = caller.holder()
    caller.requester.receive_rejection(member.peer, request_id, Rejection.LOST_BEFORE, 0.1, ONE)
    assert caller.holder() is member, "now that the caller knows of the loss"
    caller.lose(member, 0.2)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (ONE.hex(), member.peer.id.hex())


def test_a_member_that_names_as_many_losses_as_may_be_is_not_risked() -> None:
    caller = Repeater(6)
    request_id = caller.request(idempotent=True, key=KEY)
    member = caller.holder()
    caller.requester.receive_rejection(member.peer, request_id, Rejection.LOST_BEFORE, 0.1, ONE + TWO)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (ONE.hex(), TWO.hex())
    assert member.in_flight == 0


@pytest.mark.parametrize("payload", [b"", b"cut off", ONE])
def test_a_member_that_says_nothing_new_is_passed_over_as_one_that_is_full(payload: bytes) -> None:
    """A liar keeps nobody busy: each refusal without news leads to another member, and then to a pause."""
    caller = Repeater(2)
    request_id = caller.request(retry=Retry(members_lost_max=9), key=KEY, timeout_s=60.0)
    asked = []
    for _ in range(3 if payload == ONE else 2):
        asked.append(caller.holder())
        caller.requester.receive_rejection(asked[-1].peer, request_id, Rejection.LOST_BEFORE, 0.1, payload)
    assert len({id(member) for member in asked}) == 2
    assert not caller.sent()
    assert caller.due() > 0.1


def test_newcomers_are_told_what_others_died_of() -> None:
    caller = Repeater(2)
    losses = losses_of(caller)
    assert losses.messages_for(caller.group, [caller.every[0].peer]) == []
    losses.note(caller.group.subject + KEY, [ONE], LOCAL, 0.0)
    losses.note(b"x" * len(caller.group.subject) + KEY, [ONE], LOCAL, 0.0)
    (message,) = losses.messages_for(caller.group, [caller.every[0].peer])
    assert decode_losses(message.payload) == [(KEY, (ONE,))]


# -- exclusive requests, at the caller


def exclusive(caller: Repeater, retry: Retry, now: float = 0.0, timeout_s: float = 60.0) -> int:
    return caller.request(now, retry=retry, key=KEY, timeout_s=timeout_s, is_exclusive=True)


def kinds(caller: Repeater) -> list[tuple[int, KnownMember]]:
    return [(message.kind, caller.member_of(message.peer)) for message in caller.raw() if message.kind != packets.LOSSES]


def test_an_exclusive_request_asks_for_its_place_is_sent_and_gives_the_place_back() -> None:
    caller = Repeater(3)
    request_id = exclusive(caller, Retry())
    (message,) = caller.raw()
    assert (message.kind, message.payload) == (packets.RESERVE, KEY)
    member = caller.member_of(message.peer)
    caller.requester.receive_rejection(member.peer, request_id, Rejection.RESERVED, 0.1)
    (message,) = caller.raw()
    assert (message.kind, message.peer, message.payload) == (packets.REQUEST_ONCE, member.peer, KEY + b"payload")
    caller.reply(member, request_id, 0.2)
    assert kinds(caller) == [(packets.CANCEL, member)]
    assert caller.outcome() == b"reply"


def test_a_reply_that_comes_with_others_gives_the_place_back() -> None:
    caller = Repeater(3)
    request_id = exclusive(caller, Retry())
    ((_kind, member),) = kinds(caller)
    caller.requester.receive_rejection(member.peer, request_id, Rejection.RESERVED, 0.1)
    caller.raw()
    caller.requester.receive_replies(member.peer, [(request_id, b"reply")], 0.2)
    assert kinds(caller) == [(packets.CANCEL, member)]
    assert caller.outcome() == b"reply"


@pytest.mark.parametrize("reason", [Rejection.BUSY, Rejection.LOST_BEFORE])
def test_a_member_that_grants_no_place_gets_no_cancel(reason: Rejection) -> None:
    """It would remember the CANCEL, and ignore the next RESERVE of that request."""
    caller = Repeater(2)
    request_id = exclusive(caller, Retry())
    ((_kind, member),) = kinds(caller)
    caller.requester.receive_rejection(member.peer, request_id, reason, 0.0, b"x" * 16)
    assert [kind for kind, _member in kinds(caller)] == [packets.RESERVE]


def test_a_reply_from_memory_needs_no_place() -> None:
    caller = Repeater(3)
    request_id = exclusive(caller, Retry())
    ((_kind, member),) = kinds(caller)
    caller.reply(member, request_id, 0.1)
    assert caller.outcome() == b"reply"


def test_a_member_that_dies_before_the_request_was_sent_is_not_lost_by_it() -> None:
    """It died of something else: whoever has its place."""
    caller = Repeater(6)
    request_id = exclusive(caller, Retry(members_lost_max=1))
    for _ in range(3):
        ((kind, member),) = [each for each in kinds(caller) if each[0] != packets.CANCEL]
        assert kind == packets.RESERVE
        caller.lose(member, 0.1)
    ((_kind, member),) = [each for each in kinds(caller) if each[0] != packets.CANCEL]
    caller.requester.receive_rejection(member.peer, request_id, Rejection.RESERVED, 0.1)
    caller.raw()
    caller.lose(member, 0.2)
    error = caller.outcome()
    assert isinstance(error, TooManyMembersLost)
    assert error.members == (member.peer.id.hex(),)


def test_where_another_one_has_the_place_another_member_is_asked_and_then_after_a_pause_again() -> None:
    caller = Repeater(2)
    request_id = exclusive(caller, Retry())
    asked = []
    for _ in range(2):
        ((_kind, member),) = [each for each in kinds(caller) if each[0] != packets.CANCEL]
        asked.append(member)
        caller.requester.receive_rejection(member.peer, request_id, Rejection.BUSY, 0.0)
    assert [each for each in kinds(caller) if each[0] != packets.CANCEL] == []
    caller.requester.handle_timeout(caller.due())
    ((kind, member),) = kinds(caller)
    assert (kind, member) == (packets.RESERVE, asked[0]), "that of the key first"
    caller.requester.cancel(request_id)
    caller.check_idle()


def test_a_place_that_is_granted_twice_or_to_nobody_changes_nothing() -> None:
    caller = Repeater(3)
    request_id = exclusive(caller, Retry())
    ((_kind, member),) = kinds(caller)
    caller.requester.receive_rejection(member.peer, request_id + 7, Rejection.RESERVED, 0.1)
    caller.requester.receive_rejection(member.peer, request_id, Rejection.RESERVED, 0.1)
    caller.raw()
    caller.requester.receive_rejection(member.peer, request_id, Rejection.RESERVED, 0.1)
    assert all(kind != packets.REQUEST_ONCE for kind, _member in kinds(caller)), "not executed twice by one member"
    caller.requester.cancel(request_id)
    caller.check_idle()


def test_an_exclusive_request_is_no_tunnel_that_a_member_may_accept() -> None:
    caller = Repeater(3)
    request_id = exclusive(caller, Retry())
    ((_kind, member),) = kinds(caller)
    assert caller.requester.offer_of(member.peer, request_id) is None
    assert caller.requester.counts.late == 1
