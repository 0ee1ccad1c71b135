"""The messages of subscribers and publishers between clouds: in a node's tunnel to a gateway, and in gateways' channels.

A message begins with its type. A subscriber sends ADD and REMOVE. The other end answers ADD with ADDED, sends LOST when a
pattern cannot continue, and sends ITEM messages with several publications. A publisher or broadcaster sends SAY messages of the
same form, and receives SAID for some. GOING asks the receiver to move to another gateway. FLUSH asks for FLUSHED
behind all publications received by the other end so far: a receiver moves behind FLUSHED. PUBLISHED tells the next gateway of
an import the last published numbers.

An :class:`Item` is a batch: consecutive publications of one node to one topic. Gateways, like nodes (docs/design.md 8.8),
handle a batch as a whole and rarely touch its single publications.

The decoders check sizes before contents, and raise :exc:`ItemError` for any fault, which ends the tunnel or channel.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_py.wire.imported import NUMBER_MAX, ORIGIN_BYTES, SEQUENCE_BYTES, UNKNOWN_GAP
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The types of messages; a receiver skips unknown types.
ADD, ADDED, REMOVE, LOST, ITEM, SAY, SAID, GOING, FLUSH, FLUSHED, PUBLISHED = range(1, 12)

#: Patterns in one message. Too small: a reconnecting node takes many round trips; too large: matching all of them takes long.
PATTERNS_MAX: Final = 1024
#: Bytes of a name or pattern, whose length is one byte.
NAME_BYTES_MAX: Final = 255
#: Publications in one message. Too small: small publications cost a message each; too large: one message takes long to handle.
PUBLICATIONS_MAX: Final = 1024
#: Sequences in one message. Too small: a hand-over sends more messages; too large: one message takes long to handle.
SEQUENCES_MAX: Final = 1024
#: The target size of a message; a single larger publication exceeds the target. Too small: frames cost more than payloads; too
#: large: the next message waits for the whole one.
ITEM_MESSAGE_BYTES: Final = 64 * 1024
#: The largest outcome (reply or error) in a message, in bytes.
OUTCOME_BYTES_MAX: Final = 16 * 1024
#: flags, bytes of the topic, bytes of the headers, publications, origin, sequence, number of the first publication, the gap
#: before it
RECORD: Final = struct.Struct(f">BBHH{ORIGIN_BYTES}s{SEQUENCE_BYTES}sQI")
#: The length of a payload, behind the record.
SIZE_BYTES: Final = 4
#: The largest message: one publication of the largest size, and many small ones.
ITEMS_BYTES_MAX: Final = (
    MESSAGE_BYTES_LIMIT + HEADERS_BYTES_MAX + ITEM_MESSAGE_BYTES + RECORD.size + SIZE_BYTES + NAME_BYTES_MAX + 1
)
#: Flags of a SAY: a broadcast to a cluster; an answer is wanted; a mere question whether publishing is allowed.
BROADCAST, ANSWERED, ASKED = 1, 2, 4
_FLAGS: Final = BROADCAST | ANSWERED | ASKED

_REQUEST: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_SAID: Final = struct.Struct(f">{ORIGIN_BYTES}s{SEQUENCE_BYTES}sQ")
_PUBLISHED: Final = struct.Struct(f">{ORIGIN_BYTES + SEQUENCE_BYTES}sQ")


class ItemError(Exception):
    """The other end of a tunnel or channel has sent an invalid message."""


class Item(msgspec.Struct, gc=False):
    """Publications on their way between clouds: a batch, a broadcast or a question.

    Attributes:
        topic: The exported name of the topic, or of a broadcast's cluster.
        payloads: The payloads in order: at least one, and only one for a broadcast, question or answered publication.
        number: The number of the first publication in its origin and sequence; the others have the following numbers.
        origin: The publishing node: a pseudonym of 16 bytes; zeros between the node and its own gateway.
        sequence: The id of a number sequence of the origin, 4 bytes.
        gap: The number of publications lost right before the first, or ``UNKNOWN_GAP``. Within the batch, none was lost.
        headers: The encoded headers of every payload.
        flags: ``BROADCAST``, ``ANSWERED`` and ``ASKED``, for a SAY.
    """

    topic: str
    payloads: list[bytes]
    number: int
    origin: bytes = bytes(ORIGIN_BYTES)
    sequence: bytes = bytes(SEQUENCE_BYTES)
    gap: int = 0
    headers: bytes = b""
    flags: int = 0

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads with their headers, as limited and counted by rules."""
        return sum(map(len, self.payloads)) + len(self.payloads) * len(self.headers)

    @property
    def size(self) -> int:
        """The bytes that the item takes in a message, assuming the longest topic."""
        count = len(self.payloads)
        return RECORD.size + NAME_BYTES_MAX + len(self.headers) + sum(map(len, self.payloads)) + count * SIZE_BYTES

    def split(self, count: int) -> tuple[Item, Item]:
        """Split the batch into the first ``count`` publications and the rest; each part must have at least one."""
        behind = msgspec.structs.replace(self, payloads=self.payloads[count:], number=self.number + count, gap=0)
        return msgspec.structs.replace(self, payloads=self.payloads[:count]), behind


# -- publications


def encode_items(kind: int, items: Iterable[Item]) -> bytes:
    """Return an ITEM or a SAY message.

    Args:
        kind: ITEM or SAY.
        items: Items with at most ``PUBLICATIONS_MAX`` publications together.
    """
    parts = [bytes((kind,))]
    for item in items:
        topic, payloads, headers = item.topic.encode(), item.payloads, item.headers
        count, gap = len(payloads), min(item.gap, UNKNOWN_GAP)
        parts += (
            RECORD.pack(item.flags, len(topic), len(headers), count, item.origin, item.sequence, item.number, gap),
            struct.pack(f">{count}I", *map(len, payloads)),
            topic,
            headers,
            *payloads,
        )
    return b"".join(parts)


def decode_items(message: bytes) -> list[Item]:
    """Read the publications of an ITEM or a SAY message; at least one.

    Raises:
        ItemError: The message is malformed.
    """
    items: list[Item] = []
    at, end, room = 1, len(message), PUBLICATIONS_MAX
    if end > ITEMS_BYTES_MAX:
        raise ItemError("a message that is too large")
    while at < end or not items:
        sizes_at = at + RECORD.size
        if sizes_at > end:
            raise ItemError("truncated publications")
        flags, topic_bytes, headers_bytes, count, origin, sequence, number, gap = RECORD.unpack_from(message, at)
        room -= count
        topic_at = sizes_at + count * SIZE_BYTES
        headers_at = topic_at + topic_bytes
        payloads_at = headers_at + headers_bytes
        if not count or room < 0 or not topic_bytes or payloads_at > end or headers_bytes > HEADERS_BYTES_MAX:
            raise ItemError("missing, truncated or too many publications")
        if number + count - 1 > NUMBER_MAX or (count > 1 and flags & _FLAGS):
            raise ItemError("publications that cannot be a batch")
        sizes = struct.unpack_from(f">{count}I", message, sizes_at)
        stops = list(accumulate(sizes, initial=payloads_at))
        at = stops[-1]
        if at > end or max(sizes) > MESSAGE_BYTES_LIMIT:
            raise ItemError("a publication of a wrong size")
        topic = _decode_name(message[topic_at:headers_at])
        payloads = [message[start:stop] for start, stop in pairwise(stops)]
        items.append(Item(topic, payloads, number, origin, sequence, gap, message[headers_at:payloads_at], flags & _FLAGS))
    return items


def count_fitting(
    payloads: Sequence[bytes], headers: bytes, room: int = PUBLICATIONS_MAX, room_bytes: int = ITEM_MESSAGE_BYTES
) -> int:
    """Return the number of a batch's first payloads that fit into a message.

    Args:
        headers: The headers of every payload.
        room: The message's room for publications.
        room_bytes: The message's room in bytes.
    """
    room_bytes -= RECORD.size + NAME_BYTES_MAX + len(headers)
    ends = list(accumulate(map(len, payloads[:room])))
    if ends and ends[-1] + SIZE_BYTES * len(ends) <= room_bytes:
        return len(ends)
    return bisect_right(range(len(ends)), room_bytes, key=lambda at: ends[at] + SIZE_BYTES * (at + 1))


# -- what is wanted


def encode_add(request: int, patterns: Iterable[str]) -> bytes:
    """Return an ADD message: send the publications that match these patterns from now on, and confirm.

    Args:
        request: A number for the answer.
        patterns: At most ``PATTERNS_MAX`` exported patterns.
    """
    return bytes((ADD,)) + _REQUEST.pack(request) + _encode_names(patterns)


def decode_add(message: bytes) -> tuple[int, list[str]]:
    """Read an ADD message: the number, and at least one pattern.

    Raises:
        ItemError: The message is malformed.
    """
    if len(message) < 1 + _REQUEST.size:
        raise ItemError("a truncated message")
    return _REQUEST.unpack_from(message, 1)[0], _decode_names(message, 1 + _REQUEST.size)


def encode_added(request: int, outcome: bytes) -> bytes:
    """Return an ADDED message.

    Args:
        request: The number of the ADD.
        outcome: An outcome of :mod:`iris_py.federation.calls`: an empty reply, or the error.
    """
    return bytes((ADDED,)) + _REQUEST.pack(request) + outcome


def decode_added(message: bytes) -> tuple[int, bytes]:
    """Read an ADDED message: the number and the outcome.

    Raises:
        ItemError: The message is malformed.
    """
    at = 1 + _REQUEST.size
    if not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("an answer of a wrong size")
    return _REQUEST.unpack_from(message, 1)[0], message[at:]


def encode_remove(patterns: Iterable[str]) -> bytes:
    """Return a REMOVE message: stop sending for these patterns. At most ``PATTERNS_MAX``."""
    return bytes((REMOVE,)) + _encode_names(patterns)


def decode_remove(message: bytes) -> list[str]:
    """Read a REMOVE message: at least one pattern.

    Raises:
        ItemError: The message is malformed.
    """
    return _decode_names(message, 1)


def encode_lost(pattern: str, outcome: bytes) -> bytes:
    """Return a LOST message: nothing more comes for an added pattern.

    Args:
        outcome: The error, as an outcome of :mod:`iris_py.federation.calls`.
    """
    return bytes((LOST,)) + _encode_name(pattern) + outcome


def decode_lost(message: bytes) -> tuple[str, bytes]:
    """Read a LOST message: the pattern and the outcome.

    Raises:
        ItemError: The message is malformed.
    """
    at = 2 + (message[1] if len(message) > 1 else 0)
    if at == 2 or not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("a message of a wrong size")
    return _decode_name(message[2:at]), message[at:]


# -- the move to another gateway


def encode_flush(kind: int, request: int) -> bytes:
    """Return a FLUSH or a FLUSHED message.

    Args:
        kind: FLUSH or FLUSHED.
        request: A number for the answer.
    """
    return bytes((kind,)) + _REQUEST.pack(request)


def decode_flush(message: bytes) -> int:
    """Read a FLUSH or a FLUSHED message: the number.

    Raises:
        ItemError: The message is malformed.
    """
    if len(message) != 1 + _REQUEST.size:
        raise ItemError("a question or an answer of a wrong size")
    request: int = _REQUEST.unpack_from(message, 1)[0]
    return request


def encode_published(lasts: Sequence[tuple[bytes, int]]) -> bytes:
    """Return a PUBLISHED message.

    Args:
        lasts: Origin and sequence, 20 bytes, with the last published number; at most ``SEQUENCES_MAX``.
    """
    return bytes((PUBLISHED,)) + b"".join([_PUBLISHED.pack(key, number) for key, number in lasts])


def decode_published(message: bytes) -> dict[bytes, int]:
    """Read a PUBLISHED message: the last published number by origin and sequence.

    Raises:
        ItemError: The message is malformed.
    """
    size = len(message) - 1
    if not 0 <= size <= SEQUENCES_MAX * _PUBLISHED.size or size % _PUBLISHED.size:
        raise ItemError("numbers of a wrong size")
    return dict(_PUBLISHED.iter_unpack(message[1:]))


# -- what became of it


def encode_said(
    number: int, outcome: bytes, origin: bytes = bytes(ORIGIN_BYTES), sequence: bytes = bytes(SEQUENCE_BYTES)
) -> bytes:
    """Return a SAID message: the result of a SAY.

    Args:
        number: The number of the publication within its origin and sequence.
        outcome: The count of receivers, or an error, as an outcome of :mod:`iris_py.federation.calls`.
        origin: The origin of the publication; zeros for a node of the local cloud.
        sequence: The sequence of the publication; zeros for a node of the local cloud.
    """
    return bytes((SAID,)) + _SAID.pack(origin, sequence, number) + outcome


def decode_said(message: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Read a SAID message: origin, sequence, number and outcome.

    Raises:
        ItemError: The message is malformed.
    """
    at = 1 + _SAID.size
    if not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("an answer of a wrong size")
    return *_SAID.unpack_from(message, 1), message[at:]


def encode_count(count: int) -> bytes:
    """Encode a count of receivers as the reply of an outcome."""
    return count.to_bytes(4, "big")


def decode_count(reply: bytes) -> int:
    """Decode a count of receivers; 0 if the reply has none."""
    return int.from_bytes(reply, "big") if len(reply) == 4 else 0


# --


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded


def _decode_name(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as exc:
        raise ItemError("a name that is not UTF-8") from exc


def _encode_names(names: Iterable[str]) -> bytes:
    encoded = [_encode_name(name) for name in names]
    return _COUNT.pack(len(encoded)) + b"".join(encoded)


def _decode_names(message: bytes, at: int) -> list[str]:
    if len(message) < at + _COUNT.size:
        raise ItemError("a truncated message")
    (count,) = _COUNT.unpack_from(message, at)
    if not 0 < count <= PATTERNS_MAX:
        raise ItemError("no patterns, or too many")
    at += _COUNT.size
    names = []
    for _ in range(count):
        stop = at + 1 + (message[at] if at < len(message) else 0)
        if stop > len(message) or stop == at + 1:
            raise ItemError("a truncated or empty pattern")
        names.append(_decode_name(message[at + 1 : stop]))
        at = stop
    if at != len(message):
        raise ItemError("data after the patterns")
    return names
