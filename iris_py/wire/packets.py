"""Packets: the bodies encrypted by nodes, each with one or many messages (docs/design.md 4.4).

A message is ``MESSAGE`` (20 bytes), then its headers, then its payload. One ``unpack_from`` reads the fixed-width ``MESSAGE``;
the kind determines the meaning of ``id`` and ``argument``.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import TYPE_CHECKING

import msgspec

from iris_overlay.peers.dial_back import PACKET_BYTES_MAX
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

#: kind, flags, bytes of headers, bytes of payload, id, argument
MESSAGE = struct.Struct(">BBHIQI")
MESSAGE_BYTES = MESSAGE.size

#: Upper limit of the configurable message size, and so the size that every node accepts. A quarter of a link's largest queue:
#: room for a message in transit, a message yet to be encrypted, and a margin.
MESSAGE_BYTES_LIMIT = 64 * 1024 * 1024
#: The largest encrypted packet: the largest message, and room for headers.
BODY_BYTES_LIMIT = MESSAGE_BYTES_LIMIT + 128 * 1024

#: The largest body of several messages; a larger body holds a single message or batch. So a packet has at most some three
#: thousand messages, and one packet cannot block a node. Senders stop filling a body at 62 KiB (``BODY_BYTES``); the rest is
#: room for the last message's head.
SHARED_BODY_BYTES_MAX = 64 * 1024
#: The largest body of a batch. A publisher with a backlog fills it, in one record. Too small: the overhead of bodies and
#: records is paid more often, a third of the total for messages of 16 KiB; too large: later messages wait longer.
RUN_BODY_BYTES_MAX = 240 * 1024
#: The most messages of a batch in a body over ``SHARED_BODY_BYTES_MAX``: the default capacity of a subscription.
RUN_MESSAGES_MAX = 10_000

#: A failure carries at most this many characters of the exception's text: enough to read, too little for a covert reply.
FAILURE_TEXT_MAX = 4096

#: Time left is a 32-bit number of milliseconds; longer time-outs (49 days) are capped.
TIME_LEFT_MS_MAX = 0xFFFF_FFFF
_TIME_LEFT_S_MAX = float(TIME_LEFT_MS_MAX // 1000)

#: Largest packet routed through the ring instead of a link.
ROUTED_BYTES_MAX = PACKET_BYTES_MAX
#: kind, group, nonce, send time (ms of the source's clock): the fields before the encrypted body in a packet routed through the
#: ring
ROUTED = struct.Struct(">B16s12sQ")
#: Kinds of further packets routed through the ring; packets of groups and tunnels use their frame types.
CLOCK_QUESTION, CLOCK_ANSWER = 32, 33
STATUS = 34  # a question about a node, or its answer (iris_py.node.questions)
#: Overhead of a routed body with one message, without its payload: ``ROUTED``, ``MESSAGE`` and the authentication tag.
ROUTED_OVERHEAD_BYTES = ROUTED.size + MESSAGE_BYTES + 16
#: Bytes of the payload of a COUNT.
COUNT_BYTES = 24
#: Counted patterns of one node, and so the COUNTs of a body. Too small: a node cannot serve a few Spark queries. Too large: a
#: single node takes a large part of the counts that publishers keep, and each body grows by 44 bytes for each.
NODE_COUNTED_MAX = 16

REQUEST, REPLY, FAILURE, REJECTION, CANCEL, BROADCAST = 1, 2, 3, 4, 5, 6
SURVEY, DECLINE = 7, 8
PUBLICATION, PAUSE, RESUME = 9, 10, 11
TUNNEL_OPEN, TUNNEL_ACCEPT = 12, 13
REQUEST_ONCE = 14  # like REQUEST; the payload begins with the identity
IMPORTED = 15  # like PUBLICATION; the head names the origin (iris_py.wire.imported)
SHARED = 16  # like PUBLICATION, for members of groups (iris_py.wire.shares)
TAKEN = 17
CAST = 18  # begins each body to the group of a promoted entry (iris_py.wire.flows)
FLOW = 19  # begins each body with publications (iris_py.wire.flows)
COUNT = 20  # the matches of a counted pattern before the publications of a body (iris_py.wire.flows)
FETCH, FETCHED = 21, 22
LOSSES = 24  # members lost by requests with keys (iris_py.patterns.request.losses)
RESERVE = 25  # reserves a place for an exclusive request; the payload is its identity
MOVED = 26  # from now on, messages for an entry come by CAST
RECALL = 27  # asks for requests that have not begun (iris_py.patterns.request.recalls)
KINDS = 28  # one more than the largest kind: the length of a dispatch table, in which 23 is unassigned
#: Kinds of messages with a payload of the application, which are handled one by one.
LARGE = frozenset((REQUEST, REQUEST_ONCE, REPLY, BROADCAST, SURVEY))
#: Kinds of messages for any single member.
REQUESTS = frozenset((REQUEST, REQUEST_ONCE))
#: Kinds of messages whose sender awaits an answer.
AWAITED = REQUESTS | {SURVEY, TUNNEL_OPEN, RESERVE}
#: Kinds of messages with application headers in the head. Heads of other kinds are ignored.
WITH_HEADERS = AWAITED | {BROADCAST}

#: Kinds of messages that may be batches.
PUBLICATIONS = frozenset((PUBLICATION, IMPORTED))

#: Length of the identity of an idempotent request, equal for all its copies from any sender.
IDENTITY_BYTES = 16
#: Flag of a message that is a batch, see :func:`encode_run`.
RUN = 2
#: Flag of a message with application headers before the topic (:func:`iris_py.wire.headers.put_headers`).
HEADED = 4
#: Flag of publications whose payloads each begin with headers of their own.
EACH_HEADED = 8
#: Internal flag of an IMPORTED that has crossed from another cloud, above the 8 bits of flags on the wire.
CROSSED = 256
#: number of messages in a batch; a body cannot claim more than a receiver holds at once
RUN_COUNT = struct.Struct(">H")
#: Bytes of each message in a batch beside its payload, for the payload's size.
RUN_MESSAGE_BYTES = 4
#: Bytes that each message of a batch counts beside its payload against the size limit. More than on the wire, so that a batch
#: of empty messages never exceeds a subscription's default capacity (10,000).
RUN_MESSAGE_COST = 8
#: Number of equally long payloads cut from a batch by one call. Too small: more calls; too large: most batches of 1 KiB
#: messages are shorter than a call and are cut one by one.
CUT_AT_ONCE = 16
#: First id of surveys; requests have lower ids. So the id tells which of the two an answer belongs to.
SURVEY_IDS = 1 << 63
#: Registrations of one node that a survey can ask, limited by the bits left in an answer's argument. Further registrations are
#: not asked.
SURVEYED_REGISTRATIONS_MAX = (1 << 24) - 1


class Rejection(enum.IntEnum):
    """The reason why a member did not execute a request (a REJECTION's argument). ``LOST`` alone leaves execution unknown."""

    OVERLOADED = 1
    NOT_A_MEMBER = 2
    EXPIRED = 3
    NO_TUNNELS = 4
    #: The member relays requests to other members, and the node to which it relayed the request is lost.
    LOST = 5
    #: Members were lost while executing the request, and the caller may not know all of them; the payload has their ids.
    LOST_BEFORE = 6
    #: Too many exclusive requests wait for the member, which executes one of them at a time.
    BUSY = 7
    #: Not a rejection: an exclusive request has its place; send it now.
    RESERVED = 8
    #: The caller has asked for the request back (RECALL), and it had not begun.
    RECALLED = 9


#: The most requests that a RECALL names. Too small: a burst needs many messages; too large: a RECALL fills a body.
RECALLED_MAX = 1024
_ID_BYTES = 8


class _FailureRecord(msgspec.Struct, frozen=True, array_like=True):
    type: str
    text: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_FailureRecord)


def encode_failure(error: BaseException) -> bytes:
    """Encode a handler's exception: class name and text, shortened to ``FAILURE_TEXT_MAX``. Never raises."""
    try:
        text = str(error)
    except Exception:  # the class is the user's
        text = "the text of this error could not be created"
    return encode_failure_of(type(error).__qualname__, text)


def encode_failure_of(type: str, text: str) -> bytes:  # noqa: A002 - the name of what it encodes
    """Encode a failure from the name of its class and its text."""
    return _encoder.encode(_FailureRecord(_encodable(type), _encodable(text)))


def decode_failure(payload: bytes) -> tuple[str, str]:
    """Decode a failure to the type and the text of its exception. For a malformed failure, the text says so."""
    try:
        failure = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder raises these for bad UTF-8 and deep nesting
        return "UnknownError", "the member's description of the failure was malformed"
    return failure.type, failure.text


def encode_ids(ids: Sequence[int]) -> bytes:
    """Encode the payload of a RECALL: the ids of at most ``RECALLED_MAX`` requests."""
    return struct.pack(f">{len(ids)}Q", *ids)


def decode_ids(payload: bytes) -> tuple[int, ...] | None:
    """Decode the payload of a RECALL; return None if it is malformed."""
    count, rest = divmod(len(payload), _ID_BYTES)
    return None if rest or count > RECALLED_MAX else struct.unpack(f">{count}Q", payload)


def check_size(payload: bytes, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Raise an error if a payload is larger than the node's limit.

    Raises:
        MessageTooLarge: The payload exceeds ``limit``.
    """
    if len(payload) > limit:
        raise MessageTooLarge(len(payload), limit)


def as_bytes(payload: object) -> bytes:
    """Return a payload as bytes.

    Raises:
        TypeError: The payload is not bytes-like.
    """
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes, not {type(payload).__qualname__}; encode it first")


def is_body_sane(data: bytes, start: int, stop: int) -> bool:
    """Tell whether a body respects ``SHARED_BODY_BYTES_MAX``, ``RUN_BODY_BYTES_MAX`` and ``RUN_MESSAGES_MAX``.

    A FLOW or CAST before the messages does not count, nor do the COUNTs behind a FLOW. Behind a CAST there may be several
    messages.
    """
    if stop - start <= SHARED_BODY_BYTES_MAX:
        return True
    kind, flags, head_bytes, length, _id, _argument = MESSAGE.unpack_from(data, start)
    if kind in (FLOW, CAST) and not (head_bytes or length):
        start += MESSAGE_BYTES
        if stop - start <= (RUN_BODY_BYTES_MAX if kind == CAST else SHARED_BODY_BYTES_MAX):
            return True
        kind, flags, head_bytes, length, _id, _argument = MESSAGE.unpack_from(data, start)
    for _ in range(NODE_COUNTED_MAX):
        if kind != COUNT or head_bytes or length != COUNT_BYTES:
            break
        start += MESSAGE_BYTES + COUNT_BYTES
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


def last_message(head: bytes, start: int, payload_bytes: int) -> int | None:
    """Return the place of the message whose payload follows a head, or None if the head ends elsewhere.

    Args:
        head: The beginning of a body with one large message: a FLOW and COUNTs may come before it.
        start: The start of the body in ``head``.
        payload_bytes: The size of the bytes behind the head.
    """
    for _ in range(NODE_COUNTED_MAX + 2):
        if len(head) - start < MESSAGE_BYTES:
            return None
        kind, _flags, head_bytes, length, _id, _argument = MESSAGE.unpack_from(head, start)
        if start + MESSAGE_BYTES + head_bytes == len(head):
            return start if length == payload_bytes else None
        if kind not in (FLOW, COUNT):
            return None
        start += MESSAGE_BYTES + head_bytes + length
    return None


def encode_routed(kind: int, group: bytes, nonce: bytes, sealed: bytes, sent_at: int) -> bytes:
    """Encode a packet for routing through the ring.

    Args:
        kind: The frame type UNICAST or MULTICAST.
        nonce: The nonce of the body.
        sealed: The encrypted body.
        sent_at: The clock of this node (milliseconds).
    """
    return ROUTED.pack(kind, group, nonce, sent_at) + sealed


def decode_routed(payload: bytes) -> tuple[int, bytes, bytes, bytes, int] | None:
    """Decode a packet routed through the ring to the arguments of `encode_routed`; return None if it is too short."""
    if len(payload) < ROUTED.size:
        return None
    kind, group, nonce, sent_at = ROUTED.unpack_from(payload)
    return kind, group, nonce, payload[ROUTED.size :], sent_at


def encode_time_left(time_left_s: float) -> int:
    """Convert the time left (seconds) to the argument of a REQUEST or SURVEY: milliseconds, rounded up, at least 1."""
    if time_left_s <= 0.0:
        return 1
    return int(time_left_s * 1000) + 1 if time_left_s < _TIME_LEFT_S_MAX else TIME_LEFT_MS_MAX


def encode_run(head: bytes, payloads: list[bytes], sequence: int, kind: int = PUBLICATION, flags: int = 0) -> list[bytes]:
    """Encode a batch: consecutive publications to one topic with a shared head, their number, their sizes, and their payloads.

    A single publication is encoded without number and size.

    Args:
        head: The topic, and the headers before it.
        payloads: 1 to 65,535 published payloads.
        sequence: The number of the first publication.
        kind: A member of ``PUBLICATIONS``.
        flags: Further flags of the message.

    Returns:
        The parts, to be joined.
    """
    count = len(payloads)
    if count == 1:
        start = MESSAGE.pack(kind, flags, len(head), len(payloads[0]), sequence, 0)
        return [start, head, *payloads]
    lengths = list(map(len, payloads))
    size = RUN_COUNT.size + count * RUN_MESSAGE_BYTES + sum(lengths)
    start = MESSAGE.pack(kind, RUN | flags, len(head), size, sequence, 0)
    return [start, head, struct.pack(f">H{count}I", count, *lengths), *payloads]


def run_bytes(flags: int, payloads: Sequence[bytes]) -> int:
    """Return how many bytes the number and the sizes of the payloads take in front of a batch; none without ``RUN``."""
    return RUN_COUNT.size + len(payloads) * RUN_MESSAGE_BYTES if flags & RUN else 0


def decode_run(body: bytes, start: int, stop: int) -> list[bytes] | None:
    """Decode the payloads of a batch (a message with the flag ``RUN``); return None if it is malformed."""
    at = start + RUN_COUNT.size
    if at > stop:
        return None
    (count,) = RUN_COUNT.unpack_from(body, start)
    lengths_at, at = at, at + count * RUN_MESSAGE_BYTES
    if not count or at > stop:
        return None
    lengths = body[lengths_at:at]
    if lengths == lengths[:RUN_MESSAGE_BYTES] * count:  # the usual case: equal lengths
        (length,) = struct.unpack(">I", lengths[:RUN_MESSAGE_BYTES])
        return _cut_alike(body, at, length, count) if at + count * length == stop else None
    sizes = struct.unpack(f">{count}I", lengths)
    if at + sum(sizes) != stop:
        return None
    return [body[at : (at := at + size)] for size in sizes]


def _cut_alike(body: bytes, at: int, length: int, count: int) -> list[bytes]:
    """Return consecutive payloads of equal length. Cutting many with one call takes less than half the time of single cuts."""
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
    """Encode the argument of a survey's answer: the number of the node's registrations, and the reason of a refusal."""
    return registrations << 8 | reason


def decode_answer(argument: int) -> tuple[int, int]:
    """Decode the argument of a survey's answer: the number of registrations, at least 1, and the reason of a refusal."""
    return max(1, argument >> 8), argument & 0xFF


def _encodable(text: str) -> str:
    """Shorten a text for the wire, and escape surrogates, which Python uses in file names and UTF-8 cannot encode."""
    return text[:FAILURE_TEXT_MAX].encode("utf-8", "backslashreplace").decode()[:FAILURE_TEXT_MAX]
