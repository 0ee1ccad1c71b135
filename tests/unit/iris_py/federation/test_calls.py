"""Requests to other clouds, as a node and its gateway say them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris_py import errors
from iris_py.federation.calls import (
    ANCHORED,
    CALL_OVERHEAD_BYTES,
    IDENTIFIED,
    Call,
    Op,
    Status,
    call_head,
    decode_call,
    decode_outcome,
    encode_call,
    encode_outcome,
)
from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_py.wire.packets import BODY_BYTES_LIMIT, IDENTITY_BYTES, MESSAGE_BYTES, MESSAGE_BYTES_LIMIT

MEMBER, GATEWAY = "0123456789abcdef" * 2, "fedcba9876543210" * 2
CLUSTER, TIMEOUT_S = "databases@eu", 2.5

names = st.text(st.characters(codec="utf-8"), max_size=60)


def decode(reply: bytes) -> bytes | errors.IrisError:
    return decode_outcome(reply, CLUSTER, TIMEOUT_S, GATEWAY)


@given(
    st.sampled_from(Op),
    names,
    names,
    names,
    st.binary(max_size=100),
    st.just(b"") | st.binary(min_size=16, max_size=16),
    st.tuples(*[st.booleans()] * 4),
)
def test_a_call_arrives_as_it_was_made(
    op: Op, name: str, prefer: str, require: str, payload: bytes, identity: bytes, flags: tuple[bool, ...]
) -> None:
    anchored, retries_failed, waits, sealed = flags
    call = Call(
        op=op,
        name=name,
        payload=payload,
        identity=identity,
        is_anchored=anchored and bool(identity),
        retries_failed=retries_failed and bool(identity),
        waits=waits,
        is_sealed=sealed,
        prefer=prefer,
        require=require,
    )
    assert decode_call(encode_call(call)) == call
    assert call_head(call) + payload == encode_call(call)
    assert len(call_head(call)) <= CALL_OVERHEAD_BYTES


@given(st.binary(max_size=300))
@example(bytes((1, 1, 0, 255, 255, 255)) + b"a" * 765)
def test_any_bytes_are_a_call_or_none(data: bytes) -> None:
    call = decode_call(data)
    assert call is None or encode_call(call) == data


@pytest.mark.parametrize(
    "head",
    [
        (2, 1, 0, 0, 0, 0),  # another version
        (1, 0, 0, 0, 0, 0),  # no such op
        (1, 5, 0, 0, 0, 0),
        (1, 1, 32, 0, 0, 0),  # no such flag
        (1, 1, ANCHORED, 0, 0, 0),  # by what?
        (1, 1, IDENTIFIED, 0, 0, 0),  # cut off
        (1, 1, 0, 1, 0, 0),
        (1, 1, 0, 0, 0, 1),
    ],
)
def test_what_is_no_call_is_none(head: tuple[int, ...]) -> None:
    assert decode_call(bytes(head)) is None
    assert decode_call(bytes(head)[:-1]) is None


def test_a_name_that_is_no_utf8_is_none() -> None:
    assert decode_call(bytes((1, 1, 0, 1, 0, 0)) + b"\xff") is None


@pytest.mark.parametrize("call", [Call(name="ä" * 128), Call(require="x" * 256), Call(identity=b"short"), Call(name="\ud800")])
def test_what_cannot_be_said_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"255 bytes|16 bytes|encode"):
        encode_call(call)


def test_the_largest_message_has_room_for_all_that_is_put_around_it() -> None:
    around = CALL_OVERHEAD_BYTES + HEADERS_BYTES_MAX + IDENTITY_BYTES + MESSAGE_BYTES
    assert MESSAGE_BYTES_LIMIT + around <= BODY_BYTES_LIMIT


def test_a_reply_arrives_as_it_is() -> None:
    for reply in (b"", b"\x01", bytes(1000)):
        assert decode(encode_outcome(reply)) == reply
        assert len(encode_outcome(reply)) == len(reply) + 1


@pytest.mark.parametrize(
    ("error", "status", "facts"),
    [
        (errors.NoMembers("inner", 7, "eu/a", 3), Status.NO_MEMBERS, {"nodes": 0, "zone": "eu/a", "elsewhere": 3}),
        (errors.NoMembers("inner", 7), Status.NO_MEMBERS, {"nodes": 0, "zone": "", "elsewhere": 0}),
        (errors.Overloaded("inner", 3), Status.OVERLOADED, {"tried": 3, "retry_after_s": None}),
        (errors.MemberLost("inner", MEMBER), Status.MEMBER_LOST, {"member": MEMBER, "gateway": ""}),
        (errors.NodeClosed(), Status.MEMBER_LOST, {"member": ""}),
        (
            errors.TooManyMembersLost("inner", [GATEWAY, MEMBER]),
            Status.MEMBER_LOST,  # as which an older version understands it
            {"member": MEMBER, "members": (GATEWAY, MEMBER)},
        ),
        (errors.RemoteError("inner", MEMBER, "KeyError", "x"), Status.REMOTE_ERROR, {"type": "KeyError", "member": MEMBER}),
        (errors.ConfigurationError("no \ud800"), Status.REMOTE_ERROR, {"type": "ConfigurationError", "text": "no \\ud800"}),
        (errors.RequestTimeout("inner", 1.0, MEMBER), Status.TIMEOUT, {"timeout_s": TIMEOUT_S, "member": MEMBER}),
        (errors.RequestTimeout("inner", 1.0, None), Status.TIMEOUT, {"member": None, "gateway": GATEWAY}),
        (errors.NotExported("x@y"), Status.NOT_EXPORTED, {"cloud": "eu"}),
        (errors.CloudUnavailable("x@y"), Status.UNAVAILABLE, {"cloud": "eu"}),
        (errors.NotConnected("x", {"a:1": "is silent"}), Status.UNAVAILABLE, {"cloud": "eu"}),
        (errors.Overloaded("x", retry_after_s=0.25), Status.LIMITED, {"retry_after_s": 0.25}),
        (errors.Overloaded("x", retry_after_s=4.035), Status.LIMITED, {"retry_after_s": 4.035}),
        (errors.Overloaded("x", retry_after_s=1e300), Status.LIMITED, {"retry_after_s": 4294967.295}),
        (errors.Overloaded("x", retry_after_s=0.0001), Status.LIMITED, {"retry_after_s": 0.001}),
        (errors.MessageTooLarge(20, 10), Status.TOO_LARGE, {"size_bytes": 20, "limit_bytes": 10}),
    ],
)
def test_an_error_arrives_with_its_facts_and_the_name_that_was_asked_for(
    error: errors.IrisError, status: Status, facts: dict[str, object]
) -> None:
    reply = encode_outcome(error)
    assert reply[0] == status
    arrived = decode(reply)
    assert isinstance(arrived, errors.IrisError)
    assert {name: vars(arrived).get(name, getattr(arrived, name)) for name in facts} == facts
    assert vars(arrived)["cluster"] == CLUSTER
    assert b"inner" not in reply
    expected = {errors.NodeClosed: errors.MemberLost, errors.ConfigurationError: errors.RemoteError}
    expected[errors.NotConnected] = errors.CloudUnavailable
    assert type(arrived) is expected.get(type(error), type(error))


def test_what_a_handler_says_is_shortened() -> None:
    arrived = decode(encode_outcome(errors.RemoteError("inner", MEMBER, "t" * 5000, "ä\ud800" * 5000)))
    assert isinstance(arrived, errors.RemoteError)
    assert (len(arrived.type), len(arrived.text)) == (4096, 4096)


@given(st.binary(max_size=200))
@example(b"\x04\x81\xa4text\xa1\xff")
@example(b"\x03" + b"\x91" * 199)
@example(b"\x02\x81\xa5tried\xff")
@example(b"\x03\x81\xa6member\xa3no!")
def test_any_bytes_are_a_reply_or_an_error(reply: bytes) -> None:
    outcome = decode(reply)
    if reply[:1] == b"\0":
        assert outcome == reply[1:]
    else:
        assert isinstance(outcome, errors.IrisError)
        assert vars(outcome)["cluster"] == CLUSTER


@pytest.mark.parametrize(
    "reply", [b"", b"\x0a\x80", b"\x01", b"\x02\x81\xa5tried\xff", b"\x03\x81\xa6member\xa3no!", b"\x04\xc1"]
)
def test_a_reply_that_is_none_is_one_error(reply: bytes) -> None:
    outcome = decode(reply)
    assert isinstance(outcome, errors.RemoteError)
    assert (outcome.type, outcome.member) == ("MalformedReply", "")
    assert GATEWAY[:8] in outcome.text
