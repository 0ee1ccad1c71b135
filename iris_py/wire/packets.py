"""Packets: the bodies that nodes seal, each with many messages in it (docs/design.md 4.4).

A message is ``MESSAGE`` (20 bytes), then its headers, then its payload. The format is fixed-width so that one
``unpack_from`` reads it; the meaning of ``id`` and ``argument`` depends on the kind.
"""

from __future__ import annotations

import enum
import functools
import struct

import msgspec

from iris_overlay.peers.dial_back import PACKET_BYTES_MAX
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import MessageTooLarge

#: kind, flags, bytes of headers, bytes of payload, id, argument
MESSAGE = struct.Struct(">BBHIQI")
MESSAGE_BYTES = MESSAGE.size

#: The largest message that a node can be told to send, and so what every node takes from others. A quarter of what a link
#: queues at most: one that is sent, one that waits to be sealed, and room.
MESSAGE_BYTES_LIMIT = 64 * 1024 * 1024
#: The largest sealed packet: the largest message, and room for headers.
BODY_BYTES_LIMIT = MESSAGE_BYTES_LIMIT + 128 * 1024

#: The largest body of several messages; a larger one holds one message, or one run, and nothing else. So one packet is at most
#: some three thousand messages, and nobody can stop a node with one. Senders end it at 62 KiB (``BODY_BYTES``), and a message
#: that is begun just below that has a head.
SHARED_BODY_BYTES_MAX = 64 * 1024
#: The largest body that is a run. A publisher with a backlog fills it, in one record. Too small: what each body and each record
#: costs is paid more often, for messages of 16 KiB a third of all; too large: what comes behind waits for longer.
RUN_BODY_BYTES_MAX = 240 * 1024
#: The most messages of a run in a body over ``SHARED_BODY_BYTES_MAX``: as many as a subscription holds (10,000 by default).
RUN_MESSAGES_MAX = 10_000

#: A failure carries at most this many characters of the exception's text: enough to read, too little to be a covert reply.
FAILURE_TEXT_MAX = 4096

#: Time left is a 32-bit number of milliseconds; longer time-outs (49 days) travel as this.
TIME_LEFT_MS_MAX = 0xFFFF_FFFF
_TIME_LEFT_S_MAX = float(TIME_LEFT_MS_MAX // 1000)

#: Largest packet that goes through the ring instead of over a link.
ROUTED_BYTES_MAX = PACKET_BYTES_MAX
#: kind, group, nonce, when it was sent (ms of the clock of its source): what is before the sealed body of a packet that goes
#: through the ring
ROUTED = struct.Struct(">B16s12sQ")
#: What goes through the ring besides packets of groups and tunnels, whose kinds are those of frames.
CLOCK_QUESTION, CLOCK_ANSWER = 32, 33
STATUS = 34  # a question about a node, or the answer (iris_py.node.questions)
#: What a body of one message has around its payload there: the header, the message's own, and the seal.
ROUTED_OVERHEAD_BYTES = ROUTED.size + MESSAGE_BYTES + 16

REQUEST, REPLY, FAILURE, REJECTION, CANCEL, BROADCAST = 1, 2, 3, 4, 5, 6
SURVEY, DECLINE = 7, 8
PUBLICATION, PAUSE, RESUME = 9, 10, 11
TUNNEL_OPEN, TUNNEL_ACCEPT = 12, 13
REQUEST_ONCE = 14  # as REQUEST; the payload begins with the identity
IMPORTED = 15  # as PUBLICATION; the head says where it comes from (iris_py.wire.imported)
LOSSES = 16  # members that requests with keys have lost (iris_py.patterns.request.losses)
RESERVE = 17  # asks for the place of a request that is to be executed exclusively; the payload is its identity
KINDS = 18  # one more than the largest: the length of a dispatch table
#: Those for one member, whichever it is.
REQUESTS = frozenset((REQUEST, REQUEST_ONCE))
#: Those that end with an answer: what becomes of them is to be known.
AWAITED = REQUESTS | {SURVEY, TUNNEL_OPEN, RESERVE}
#: Those whose head has the headers that the application gave. What others have there is not looked at.
WITH_HEADERS = AWAITED | {BROADCAST}

#: Those that may be runs.
PUBLICATIONS = frozenset((PUBLICATION, IMPORTED))

#: What tells an idempotent request from others, whoever sends it and however often.
IDENTITY_BYTES = 16
#: Flags of a PUBLICATION or IMPORTED. Its headers begin with ``NUMBER``, for it may arrive by the trees of several groups:
NUMBERED = 1
#: It is several, see :func:`encode_run`:
RUN = 2
#: Before the topic there are headers of the application, and before those their size, as ``HEAD_SIZE``:
HEADED = 4
#: Not on the wire, where flags have 8 bits: it is an IMPORTED.
CROSSED = 256
HEAD_SIZE = struct.Struct(">H")
#: how many messages are in a run; so a body cannot claim more than a receiver holds at once
RUN_COUNT = struct.Struct(">H")
#: What each of them has in a run besides its payload: the size of that.
RUN_MESSAGE_BYTES = 4
#: What each message of a run counts beside its payload when room is reckoned: more than on the wire, so that a run of empty
#: messages never is more than a subscription holds (10,000 by default).
RUN_MESSAGE_COST = 8
#: Payloads of one length that are cut from a run by one call. Too small: the call is paid more often; too large: most runs of
#: 1 KiB have not as many to each call, and the rest is cut one by one.
CUT_AT_ONCE = 16
#: number of a publication among all of its node
NUMBER = struct.Struct(">Q")
#: The argument of a PUBLICATION stops here: further ones of a group are counted as this.
ORDINAL_MAX = 0xFFFF_FFFF

#: Surveys have ids from here on, requests below: so it is seen whose an answer is.
SURVEY_IDS = 1 << 63
#: Registrations of one node that a survey can ask: what is left of the argument of an answer. Further ones are not asked.
SURVEYED_REGISTRATIONS_MAX = (1 << 24) - 1


class Rejection(enum.IntEnum):
    """Why a member surely did not execute a request (the argument of a REJECTION); but for ``LOST``, when nobody knows."""

    OVERLOADED = 1
    NOT_A_MEMBER = 2
    EXPIRED = 3
    NO_TUNNELS = 4
    #: It stands in for others, and what it handed the request on to went away with it.
    LOST = 5
    #: The request has lost members, of which the caller may not know; the payload is their ids.
    LOST_BEFORE = 6
    #: Too many exclusive requests wait for the member, which executes one of them at a time.
    BUSY = 7
    #: No refusal: an exclusive request has its place, and is to be sent now.
    RESERVED = 8


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    type: str
    text: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Failure)


def encode_failure(error: BaseException) -> bytes:
    """Encode what a handler raised: the class's name and the text, shortened to ``FAILURE_TEXT_MAX``. Never raises."""
    try:
        text = str(error)
    except Exception:  # it is the user's class
        text = "the text of this error could not be made"
    return encode_failure_of(type(error).__qualname__, text)


def encode_failure_of(type: str, text: str) -> bytes:  # noqa: A002 - the name of what it encodes
    """Encode a failure by the name of its class and its text."""
    return _encoder.encode(_Failure(_encodable(type), _encodable(text)))


def decode_failure(payload: bytes) -> tuple[str, str]:
    """Decode a failure to (type, text); a malformed one is still a failure, and says that it was malformed."""
    try:
        failure = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder lets through bad UTF-8 and deep nesting
        return "UnknownError", "the member's description of the failure was malformed"
    return failure.type, failure.text


def check_size(payload: bytes, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Refuse a payload that is larger than this node sends.

    Raises:
        MessageTooLarge: It is.
    """
    if len(payload) > limit:
        raise MessageTooLarge(len(payload), limit)


def as_bytes(payload: object) -> bytes:
    """Return a payload as bytes.

    Raises:
        TypeError: It is not bytes-like.
    """
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes, not {type(payload).__qualname__}; encode it first")


def is_body_sane(data: bytes, start: int, stop: int) -> bool:
    """Tell whether a body has not more messages than one may have; see ``SHARED_BODY_BYTES_MAX`` and ``RUN_BODY_BYTES_MAX``.

    Args:
        data: What the body is in.
        start: Where it begins there.
        stop: Where it ends.
    """
    if stop - start <= SHARED_BODY_BYTES_MAX:
        return True
    kind, flags, head_bytes, length, _id, _argument = MESSAGE.unpack_from(data, start)
    payload = start + MESSAGE_BYTES + head_bytes
    if payload + length != stop:
        return False
    if kind not in PUBLICATIONS or not flags & RUN:
        return True
    is_counted = length >= RUN_COUNT.size and RUN_COUNT.unpack_from(data, payload)[0] <= RUN_MESSAGES_MAX
    return is_counted and stop - start <= RUN_BODY_BYTES_MAX


def encode_routed(kind: int, group: bytes, nonce: bytes, sealed: bytes, sent_at: int) -> bytes:
    """Encode a packet for the way through the ring.

    Args:
        kind: The frame type UNICAST or MULTICAST.
        group: The group.
        nonce: That of the body.
        sealed: The body.
        sent_at: The clock of this node (milliseconds).
    """
    return ROUTED.pack(kind, group, nonce, sent_at) + sealed


def decode_routed(payload: bytes) -> tuple[int, bytes, bytes, bytes, int] | None:
    """Decode a packet that came through the ring; returns what it was encoded from, or None if it is too short to be one."""
    if len(payload) < ROUTED.size:
        return None
    kind, group, nonce, sent_at = ROUTED.unpack_from(payload)
    return kind, group, nonce, payload[ROUTED.size :], sent_at


def encode_time_left(time_left_s: float) -> int:
    """Turn the time that is left (seconds) into the argument of a REQUEST or SURVEY: milliseconds, rounded up, at least 1."""
    if time_left_s <= 0.0:
        return 1
    return int(time_left_s * 1000) + 1 if time_left_s < _TIME_LEFT_S_MAX else TIME_LEFT_MS_MAX


def encode_run(head: bytes, payloads: list[bytes], sequence: int, ordinal: int, kind: int = PUBLICATION) -> list[bytes]:
    """Encode publications to one topic that follow one another: one header for all of them, then how many there are, the size
    of each, and the payloads. One alone is its payload.

    Args:
        head: The topic, and what is before it.
        payloads: What was published; at least one, at most 65,535.
        sequence: The number of the first of them.
        ordinal: Its number since the publisher uses the group.
        kind: One of ``PUBLICATIONS``.

    Returns:
        The parts, to be joined.
    """
    count = len(payloads)
    if count == 1:
        start = MESSAGE.pack(kind, 0, len(head), len(payloads[0]), sequence, ordinal)
        return [start, head, *payloads]
    lengths = [len(payload) for payload in payloads]
    size = RUN_COUNT.size + count * RUN_MESSAGE_BYTES + sum(lengths)
    start = MESSAGE.pack(kind, RUN, len(head), size, sequence, ordinal)
    return [start, head, struct.pack(f">H{count}I", count, *lengths), *payloads]


def decode_run(body: bytes, start: int, stop: int) -> list[bytes] | None:
    """Decode what a publication with the flag ``RUN`` has instead of a payload: the payloads; None if it is malformed.

    Args:
        body: The body that it is in.
        start: Where it begins there.
        stop: Where it ends.
    """
    at = start + RUN_COUNT.size
    if at > stop:
        return None
    (count,) = RUN_COUNT.unpack_from(body, start)
    lengths_at, at = at, at + count * RUN_MESSAGE_BYTES
    if not count or at > stop:
        return None
    lengths = body[lengths_at:at]
    if lengths == lengths[:RUN_MESSAGE_BYTES] * count:  # the usual case: all are as long
        (length,) = struct.unpack(">I", lengths[:RUN_MESSAGE_BYTES])
        return _cut_alike(body, at, length, count) if at + count * length == stop else None
    sizes = struct.unpack(f">{count}I", lengths)
    if at + sum(sizes) != stop:
        return None
    return [body[at : (at := at + size)] for size in sizes]


def _cut_alike(body: bytes, at: int, length: int, count: int) -> list[bytes]:
    """Return payloads of one length that follow one another. To cut many with one call takes less than half as long."""
    payloads: list[bytes] = []
    if count >= CUT_AT_ONCE:
        block = _block(length)
        for _ in range(count // CUT_AT_ONCE):
            payloads += block.unpack_from(body, at)
            at += block.size
    return payloads + [body[at : (at := at + length)] for _ in range(count % CUT_AT_ONCE)]


@functools.lru_cache(maxsize=256)
def _block(length: int) -> struct.Struct:
    return struct.Struct(f"{length}s" * CUT_AT_ONCE)


def encode_answer(registrations: int, reason: int = 0) -> int:
    """Make the argument of an answer to a survey: how many registrations of the node answer, and why one does not."""
    return registrations << 8 | reason


def decode_answer(argument: int) -> tuple[int, int]:
    """Return (registrations, reason) of the argument of an answer; a node answers at least once."""
    return max(1, argument >> 8), argument & 0xFF


def _encodable(text: str) -> str:
    """Shorten a text, and escape what UTF-8 cannot hold: the half characters by which Python names files."""
    return text[:FAILURE_TEXT_MAX].encode("utf-8", "backslashreplace").decode()[:FAILURE_TEXT_MAX]
