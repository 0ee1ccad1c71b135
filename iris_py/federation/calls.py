"""The messages between a node and its gateway for requests and surveys in other clouds.

A node sends a request to a gateway as a request in its own cloud (docs/design.md 15.22). The payload is ``CALL``, the identity
if present, the name in the other cloud, the zones, and the payload for the member. The reply is a status, then the member's
reply for ``DONE``, or facts in msgpack.

The messages of a survey travel through a tunnel and a channel, unread by the gateway in between (docs/design.md 15.83). The
caller sends QUESTION. The other gateway sends ASKED with the members asked, ANSWER with a member's reply or failure, and ENDED.
Members appear with pseudonyms and zones, without addresses.

The decoders never raise for bytes sent by another process.
"""

from __future__ import annotations

import enum
import math
import struct
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from iris_overlay.node_info import ZONE_LENGTH_MAX
from iris_py.errors import (
    CloudUnavailable,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NodeClosed,
    NoMembers,
    NotConnected,
    NotExported,
    Overloaded,
    RemoteError,
    RequestTimeout,
    TooManyMembersLost,
)
from iris_py.peers.group import DIRECT_MEMBERS_MAX
from iris_py.wire import packets
from iris_py.wire.packets import FAILURE_TEXT_MAX, IDENTITY_BYTES

QUESTION, ASKED, ANSWER, ENDED = range(1, 5)
#: The kind of an answer dropped by the gateway for lack of memory; links never carry this kind.
DROPPED: Final = 0
#: The pseudonym of a member.
PSEUDONYM_BYTES: Final = 16

_TYPE: Final = struct.Struct(">B")
#: Type, number of members asked, number of members listed behind.
_ASKED: Final = struct.Struct(">BIH")
#: A member: pseudonym and length of the zone, which follows.
_MEMBER: Final = struct.Struct(f">{PSEUDONYM_BYTES}sB")
#: Type, kind of the member's message, whether it is the member's last; a member and a payload follow.
_ANSWER: Final = struct.Struct(">BBB")
#: The largest overhead of a message beside the payload.
OVERHEAD_BYTES: Final = _ANSWER.size + _MEMBER.size + 0xFF
#: The options of a survey's channel: the number of replies that completes the survey; 0: all.
_STOP_AFTER: Final = struct.Struct(">I")
_KINDS: Final = frozenset((packets.REPLY, packets.FAILURE, packets.DECLINE, packets.REJECTION, DROPPED))


class MemberPlace(NamedTuple):
    """A member of a cluster, as another cloud sees it: a pseudonym and a zone."""

    pseudonym: bytes
    """The same at all gateways of the member's cloud, for one neighbour."""
    zone: str
    """The zone announced by the member."""


class AskedMembers(NamedTuple):
    """The first message about a survey: the question goes to these members."""

    expected: int
    """The number of members asked."""
    members: tuple[MemberPlace, ...] = ()
    """The members; empty if too many to list."""


class Answer(NamedTuple):
    """A member has replied to a survey's question, or failed."""

    member: MemberPlace
    """The member."""
    kind: int
    """REPLY, FAILURE, DECLINE or REJECTION of :mod:`iris_py.wire.packets`, or DROPPED."""
    is_last: bool
    """Whether the answer is the member's last."""
    payload: bytes = b""
    """The reply, or the encoded failure."""


class Ended(NamedTuple):
    """The survey has ended."""

    outcome: bytes
    """The error if nobody was asked, as an outcome; otherwise an empty reply."""


Said: TypeAlias = AskedMembers | Answer | Ended


def encode_question(payload: bytes) -> bytes:
    """Encode the question of a survey's caller."""
    return _TYPE.pack(QUESTION) + payload


def decode_question(data: bytes) -> bytes | None:
    """Decode the question of a survey's caller; None if malformed."""
    return data[_TYPE.size :] if data[:1] == b"\x01" else None


def encode_said(message: Said) -> bytes:
    """Encode a gateway's message about a survey; an ASKED with too many members lists none."""
    if isinstance(message, AskedMembers):
        members = message.members if len(message.members) <= DIRECT_MEMBERS_MAX else ()
        head = _ASKED.pack(ASKED, min(message.expected, 0xFFFF_FFFF), len(members))
        return head + b"".join(map(_encode_place, members))
    if isinstance(message, Answer):
        head = _ANSWER.pack(ANSWER, message.kind, message.is_last)
        return head + _encode_place(message.member) + message.payload
    return _TYPE.pack(ENDED) + message.outcome


def decode_said(data: bytes) -> Said | None:
    """Decode a gateway's message about a survey; None if malformed. Never raises."""
    kind = data[0] if data else 0
    if kind == ENDED:
        return Ended(data[_TYPE.size :]) if len(data) > _TYPE.size else None
    if kind == ASKED and len(data) >= _ASKED.size:
        return _decode_asked(data)
    if kind == ANSWER and len(data) >= _ANSWER.size:
        _type, said, is_last = _ANSWER.unpack_from(data)
        member = _decode_place(data, _ANSWER.size)
        if member is None or said not in _KINDS or is_last > 1:
            return None
        return Answer(member[0], said, bool(is_last), data[member[1] :])
    return None


def encode_stop_after(stop_after: int | None) -> bytes:
    """Encode the number of replies that completes a survey; None for all."""
    return _STOP_AFTER.pack(min(stop_after or 0, 0xFFFF_FFFF))


def decode_stop_after(options: bytes) -> int | None:
    """Decode the number of replies that completes a survey; None for all, or if malformed."""
    return _STOP_AFTER.unpack(options)[0] or None if len(options) == _STOP_AFTER.size else None


# --


def _decode_asked(data: bytes) -> AskedMembers | None:
    _type, count, told = _ASKED.unpack_from(data)
    if told > min(count, DIRECT_MEMBERS_MAX):
        return None
    members, at = [], _ASKED.size
    for _ in range(told):
        member = _decode_place(data, at)
        if member is None:
            return None
        members.append(member[0])
        at = member[1]
    return AskedMembers(count, tuple(members)) if at == len(data) else None


def _encode_place(place: MemberPlace) -> bytes:
    zone = place.zone.encode()
    return _MEMBER.pack(place.pseudonym, len(zone)) + zone


def _decode_place(data: bytes, at: int) -> tuple[MemberPlace, int] | None:
    """Return a member and the end of its encoding."""
    if len(data) - at < _MEMBER.size:
        return None
    pseudonym, zone_bytes = _MEMBER.unpack_from(data, at)
    start = at + _MEMBER.size
    end = start + zone_bytes
    if end > len(data):
        return None
    try:
        zone = data[start:end].decode()
    except UnicodeDecodeError:
        return None
    return (MemberPlace(pseudonym, zone), end) if len(zone) <= ZONE_LENGTH_MAX else None


VERSION: Final = 1
#: version, op, flags, bytes of the name, of the preferred zone, and of the required zone
CALL: Final = struct.Struct(">BBBBBB")
#: The largest overhead of a call before its payload.
CALL_OVERHEAD_BYTES: Final = CALL.size + IDENTITY_BYTES + 3 * 0xFF

#: Lost members named in an outcome; beyond, only the last ones. Too small: some are not named; too large: large outcomes.
LOST_MAX: Final = 32

IDENTIFIED, ANCHORED, RETRIES_FAILED, WAITS, SEALED = 1, 2, 4, 8, 16
_FLAGS: Final = IDENTIFIED | ANCHORED | RETRIES_FAILED | WAITS | SEALED


class Op(enum.IntEnum):
    """The operations that a node can ask of its gateway."""

    REQUEST = 1
    STATUS = 2
    EXPLAIN = 3
    PROBE = 4
    """Send an echo over the links, and answer at once like ``EXPLAIN``, or like ``STATUS`` without a name."""


class Status(enum.IntEnum):
    """The outcomes of a request to another cloud: the first byte of a gateway's reply."""

    DONE = 0
    NO_MEMBERS = 1
    OVERLOADED = 2
    MEMBER_LOST = 3
    REMOTE_ERROR = 4
    TIMEOUT = 5
    NOT_EXPORTED = 6
    UNAVAILABLE = 7
    LIMITED = 8
    TOO_LARGE = 9


#: Outcomes of requests that were certainly not executed.
UNEXECUTED: Final = frozenset(
    (
        Status.NO_MEMBERS,
        Status.OVERLOADED,
        Status.NOT_EXPORTED,
        Status.UNAVAILABLE,
        Status.LIMITED,
        Status.TOO_LARGE,
    )
)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A node's request to its gateway for a use of another cloud.

    Attributes:
        op: An :class:`Op`.
        name: The name of the cluster in the other cloud, without the alias.
        payload: The payload for the member.
        identity: The idempotency key by which a member recognises a repeated request, 16 bytes; empty: executed at most once.
        is_anchored: Whether the identity also chooses the member.
        retries_failed: Whether a failed handler is retried at another member; only with an identity.
        waits: Whether to wait for a place while every member is full.
        is_sealed: Whether caller and member have sealed payload and reply end to end.
        prefer: The preferred zone in the other cloud; empty for none.
        require: The zone in the other cloud outside of which no member is asked; empty for none.
    """

    op: int = Op.REQUEST
    name: str = ""
    payload: bytes = b""
    identity: bytes = b""
    is_anchored: bool = False
    retries_failed: bool = False
    waits: bool = False
    is_sealed: bool = False
    prefer: str = ""
    require: str = ""


def encode_call(call: Call) -> bytes:
    """Encode a call.

    Raises:
        ValueError: The name or a zone has more than 255 bytes in UTF-8 or cannot be encoded, or the identity has a wrong
            length.
    """
    return call_head(call) + call.payload


def call_head(call: Call) -> bytes:
    """Encode a call without its payload, as :func:`encode_call` does: many calls differ in their payload alone."""
    if call.identity and len(call.identity) != IDENTITY_BYTES:
        raise ValueError(f"an identity has {IDENTITY_BYTES} bytes, not {len(call.identity)}")
    name, prefer, require = call.name.encode(), call.prefer.encode(), call.require.encode()
    if max(len(name), len(prefer), len(require)) > 0xFF:
        raise ValueError("a name or zone has more than 255 bytes in UTF-8: choose a shorter one")
    flags = (
        (IDENTIFIED if call.identity else 0)
        | (ANCHORED if call.is_anchored else 0)
        | (RETRIES_FAILED if call.retries_failed else 0)
        | (WAITS if call.waits else 0)
        | (SEALED if call.is_sealed else 0)
    )
    head = CALL.pack(VERSION, call.op, flags, len(name), len(prefer), len(require))
    return b"".join((head, call.identity, name, prefer, require))


def decode_call(data: bytes) -> Call | None:
    """Decode a call; None if malformed, or of another version. Never raises."""
    if len(data) < CALL.size:
        return None
    version, op, flags, name_bytes, prefer_bytes, require_bytes = CALL.unpack_from(data)
    start = CALL.size + (IDENTITY_BYTES if flags & IDENTIFIED else 0)
    name_end = start + name_bytes
    prefer_end = name_end + prefer_bytes
    end = prefer_end + require_bytes
    if version != VERSION or op not in _OPS or flags & ~_FLAGS or end > len(data):
        return None
    if flags & (ANCHORED | RETRIES_FAILED) and not flags & IDENTIFIED:
        return None
    prefer = require = ""
    try:
        name = data[start:name_end].decode()
        if end > name_end:
            prefer, require = data[name_end:prefer_end].decode(), data[prefer_end:end].decode()
    except UnicodeDecodeError:
        return None
    return Call(
        op=op,
        name=name,
        payload=data[end:],
        identity=data[CALL.size : start],
        is_anchored=bool(flags & ANCHORED),
        retries_failed=bool(flags & RETRIES_FAILED),
        waits=bool(flags & WAITS),
        is_sealed=bool(flags & SEALED),
        prefer=prefer,
        require=require,
    )


_OPS: Final = frozenset(Op)

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
_Member: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{0,64}\Z")]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=FAILURE_TEXT_MAX)]
_Zone: TypeAlias = Annotated[str, msgspec.Meta(max_length=0xFF)]


class _Facts(msgspec.Struct, omit_defaults=True, frozen=True):
    """The details of an error that may cross to another cloud: pseudonyms of members, nothing about nodes."""

    member: _Member = ""
    type: _Text = ""
    text: _Text = ""
    zone: _Zone = ""
    elsewhere: _Count = 0
    without_tunnels: _Count = 0
    tried: _Count = 0
    retry_after_ms: _Count = 0
    size: _Count = 0
    limit: _Count = 0
    lost: Annotated[tuple[_Member, ...], msgspec.Meta(max_length=LOST_MAX)] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Facts)


def encode_outcome(outcome: bytes | IrisError) -> bytes:
    """Encode the outcome of a request: a gateway's reply to a node. Never raises.

    Args:
        outcome: The member's reply or the error of the request, with pseudonyms in place of member ids.
    """
    if isinstance(outcome, bytes):
        return b"\0" + outcome
    status, facts = _describe(outcome)
    return bytes((status,)) + _encoder.encode(facts)


def _describe(error: IrisError) -> tuple[Status, _Facts]:
    if isinstance(error, NotExported):
        return Status.NOT_EXPORTED, _Facts()
    if isinstance(error, CloudUnavailable | NotConnected):
        return Status.UNAVAILABLE, _Facts()
    if isinstance(error, NoMembers):
        return Status.NO_MEMBERS, _Facts(
            zone=_sayable(error.zone, 0xFF), elsewhere=error.elsewhere, without_tunnels=error.without_tunnels
        )
    if isinstance(error, Overloaded):
        if error.retry_after_s is None:
            return Status.OVERLOADED, _Facts(tried=error.tried)
        return Status.LIMITED, _Facts(retry_after_ms=_milliseconds(error.retry_after_s))
    if isinstance(error, TooManyMembersLost):
        return Status.MEMBER_LOST, _Facts(member=error.member, lost=error.members[-LOST_MAX:])
    if isinstance(error, MemberLost):
        return Status.MEMBER_LOST, _Facts(member=error.member)
    if isinstance(error, NodeClosed):  # the gateway's own node: the request may have been sent
        return Status.MEMBER_LOST, _Facts()
    if isinstance(error, RequestTimeout):
        return Status.TIMEOUT, _Facts(member=error.member or "")
    if isinstance(error, MessageTooLarge):
        return Status.TOO_LARGE, _Facts(size=error.size_bytes, limit=error.limit_bytes)
    if isinstance(error, RemoteError):
        member, type_, text = error.member, error.type, error.text
    else:  # errors of the node there, such as a missing cluster secret
        member, type_, text = "", type(error).__qualname__, str(error)
    return Status.REMOTE_ERROR, _Facts(member, _sayable(type_, FAILURE_TEXT_MAX), _sayable(text, FAILURE_TEXT_MAX))


def decode_outcome(reply: bytes, cluster: str, timeout_s: float, gateway: str = "") -> bytes | IrisError:
    """Decode the outcome of a request from a gateway's reply. Never raises.

    Args:
        reply: The gateway's reply.
        cluster: The name of the cluster with its alias, for errors.
        timeout_s: The caller's timeout.
        gateway: The id (hex) of the gateway.

    Returns:
        The member's reply, or the error. A malformed reply becomes a :exc:`~iris_py.errors.RemoteError` of the type
        ``MalformedReply``: the request may have been executed.
    """
    if reply[:1] == b"\0":
        return reply[1:]
    try:
        status, facts = Status(reply[0]), _decoder.decode(memoryview(reply)[1:])
    except (
        IndexError,
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ):  # the decoder lets through bad UTF-8 and deep nesting
        return RemoteError(cluster, "", "MalformedReply", f"the gateway {gateway[:8]} has sent an invalid reply")
    return _error_of(status, facts, cluster, timeout_s, gateway)


def is_given_up(outcome: bytes) -> bool:
    """Tell whether an outcome is :exc:`~iris_py.errors.TooManyMembersLost`, which forbids further retries."""
    return outcome[0] == Status.MEMBER_LOST and isinstance(decode_outcome(outcome, "", 0.0), TooManyMembersLost)


def _error_of(status: Status, facts: _Facts, cluster: str, timeout_s: float, gateway: str) -> IrisError:
    if status == Status.NO_MEMBERS:
        return NoMembers(cluster, 0, facts.zone, facts.elsewhere, without_tunnels=facts.without_tunnels)
    if status == Status.OVERLOADED:
        return Overloaded(cluster, facts.tried)
    if status == Status.MEMBER_LOST:
        return TooManyMembersLost(cluster, facts.lost) if facts.lost else MemberLost(cluster, facts.member)
    if status == Status.TIMEOUT:
        return RequestTimeout(cluster, timeout_s, facts.member or None, gateway=gateway)
    if status == Status.NOT_EXPORTED:
        return NotExported(cluster)
    if status == Status.UNAVAILABLE:
        return CloudUnavailable(cluster)
    if status == Status.LIMITED:
        return Overloaded(cluster, retry_after_s=facts.retry_after_ms / 1000)
    if status == Status.TOO_LARGE:
        return MessageTooLarge(facts.size, facts.limit, cluster=cluster)
    return RemoteError(cluster, facts.member, facts.type, facts.text)


def _milliseconds(seconds: float) -> int:
    """Return a time in milliseconds, rounded up after removing floating-point noise."""
    return math.ceil(round(min(seconds * 1000, 0xFFFF_FFFF), 3))


def _sayable(text: str, limit: int) -> str:
    """Shorten a text, and escape characters that UTF-8 cannot encode."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()[:limit]
