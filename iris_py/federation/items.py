"""The messages of subscriptions and of publishing between clouds: on tunnels of nodes to gateways, and on channels of gateways.

Each is one message of a tunnel or channel, and begins with its type. Who subscribes says ADD and REMOVE; the other side answers
each ADD by ADDED, says LOST where it cannot go on, and sends ITEM messages with several publications each. Who publishes or
broadcasts sends SAY messages of the same form, some of which are answered by SAID. GOING asks to go on elsewhere.

Nothing that comes in is believed before its size was looked at; all that is wrong raises :exc:`ItemError`, and the stream ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_py.wire.imported import ORIGIN_BYTES, STREAM_BYTES
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The types. Unknown ones are skipped.
ADD, ADDED, REMOVE, LOST, ITEM, SAY, SAID, GOING = range(1, 9)

#: Patterns in one message. Too small: a node that comes back takes many round trips; too large: so many are matched at once.
PATTERNS_MAX: Final = 1024
#: Bytes of a name or pattern: a byte says how many.
NAME_BYTES_MAX: Final = 255
#: Publications in one message. Too small: small ones cost a message each; too large: one is looked at for long.
ITEMS_MAX: Final = 1024
#: What who sends puts into one message, but for a publication that is larger by itself. Too small: frames cost more than
#: payloads; too large: who waits behind it waits for all of it.
ITEM_MESSAGE_BYTES: Final = 64 * 1024
#: The largest outcome.
OUTCOME_BYTES_MAX: Final = 16 * 1024
#: flags, bytes of the topic, of the headers, of the payload, origin, stream, number, gap
RECORD: Final = struct.Struct(f">BBHI{ORIGIN_BYTES}s{STREAM_BYTES}sQI")
#: The largest message: one publication of the largest size, and many small ones.
ITEMS_BYTES_MAX: Final = MESSAGE_BYTES_LIMIT + HEADERS_BYTES_MAX + ITEM_MESSAGE_BYTES + RECORD.size + NAME_BYTES_MAX + 1
#: The largest gap that can be said; more is as bad.
GAP_MAX: Final = 0xFFFF_FFFF

#: Flags of what is said: it is a broadcast to a cluster; an answer is wanted; nothing is sent, it is only asked whether it may.
BROADCAST, ANSWERED, ASKED = 1, 2, 4
_FLAGS: Final = BROADCAST | ANSWERED | ASKED

_REQUEST: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_SAID: Final = struct.Struct(f">{ORIGIN_BYTES}s{STREAM_BYTES}sQ")


class ItemError(Exception):
    """The other side of a stream has sent what is no message of it."""


class Item(msgspec.Struct, gc=False):
    """One publication or broadcast on its way between clouds.

    Attributes:
        topic: The topic as the exporting cloud calls it outside; of a broadcast the cluster.
        payload: What was published.
        number: Its number among those of its origin and stream.
        origin: The node that published it: a pseudonym of 16 bytes; zeros between that node and its own gateway.
        stream: The numbers of one origin that belong together, 4 bytes.
        gap: How many of these were lost right before it, as far as is known.
        headers: What stands beside the payload, encoded.
        flags: Of what is said, ``BROADCAST``, ``ANSWERED`` and ``ASKED``.
    """

    topic: str
    payload: bytes
    number: int
    origin: bytes = bytes(ORIGIN_BYTES)
    stream: bytes = bytes(STREAM_BYTES)
    gap: int = 0
    headers: bytes = b""
    flags: int = 0

    @property
    def size(self) -> int:
        """The bytes that it takes in a message at most: with the longest topic."""
        return RECORD.size + NAME_BYTES_MAX + len(self.headers) + len(self.payload)


# -- publications


def encode_items(kind: int, items: Iterable[Item]) -> bytes:
    """Return an ITEM or a SAY message.

    Args:
        kind: Which of them.
        items: At most ``ITEMS_MAX``.
    """
    parts, pack = [bytes((kind,))], RECORD.pack
    for item in items:
        topic, headers, payload, gap = item.topic.encode(), item.headers, item.payload, min(item.gap, GAP_MAX)
        parts += (
            pack(item.flags, len(topic), len(headers), len(payload), item.origin, item.stream, item.number, gap),
            topic,
            headers,
            payload,
        )
    return b"".join(parts)


def decode_items(message: bytes) -> list[Item]:
    """Read the publications of an ITEM or a SAY message; at least one.

    Raises:
        ItemError: It is malformed.
    """
    items: list[Item] = []
    at, end, unpack, head = 1, len(message), RECORD.unpack_from, RECORD.size
    if end > ITEMS_BYTES_MAX:
        raise ItemError("a message that is too large")
    while at < end or not items:
        if at + head > end or len(items) >= ITEMS_MAX:
            raise ItemError("publications that are cut off, or too many")
        flags, topic_bytes, headers_bytes, size, origin, stream, number, gap = unpack(message, at)
        headers_at = at + head + topic_bytes
        payload_at = headers_at + headers_bytes
        stop = payload_at + size
        if stop > end or not topic_bytes or headers_bytes > HEADERS_BYTES_MAX or size > MESSAGE_BYTES_LIMIT:
            raise ItemError("a publication of a wrong size")
        topic = _decode_name(message[at + head : headers_at])
        headers = message[headers_at:payload_at]
        items.append(Item(topic, message[payload_at:stop], number, origin, stream, gap, headers, flags & _FLAGS))
        at = stop
    return items


def take_batch(items: list[Item], begin: int = 0) -> int:
    """Return where the publications end that go into one message together.

    Args:
        items: What is to be sent.
        begin: Where they begin.
    """
    size, end = 0, begin
    most = min(len(items), begin + ITEMS_MAX)
    while end < most and (end == begin or size + items[end].size <= ITEM_MESSAGE_BYTES):
        size += items[end].size
        end += 1
    return end


# -- what is wanted


def encode_add(request: int, patterns: Iterable[str]) -> bytes:
    """Return an ADD message: send what matches these patterns from now on, and say so.

    Args:
        request: A number for the answer.
        patterns: At most ``PATTERNS_MAX``, as the exporting cloud has them outside.
    """
    return bytes((ADD,)) + _REQUEST.pack(request) + _encode_names(patterns)


def decode_add(message: bytes) -> tuple[int, list[str]]:
    """Read an ADD message: the number, and at least one pattern.

    Raises:
        ItemError: It is malformed.
    """
    if len(message) < 1 + _REQUEST.size:
        raise ItemError("a message that is cut off")
    return _REQUEST.unpack_from(message, 1)[0], _decode_names(message, 1 + _REQUEST.size)


def encode_added(request: int, outcome: bytes) -> bytes:
    """Return an ADDED message.

    Args:
        request: The number of what it answers.
        outcome: As :mod:`iris_py.federation.calling` has it: an empty reply, or the error why they are not added.
    """
    return bytes((ADDED,)) + _REQUEST.pack(request) + outcome


def decode_added(message: bytes) -> tuple[int, bytes]:
    """Read an ADDED message: the number and the outcome.

    Raises:
        ItemError: It is malformed.
    """
    at = 1 + _REQUEST.size
    if not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("an answer of a wrong size")
    return _REQUEST.unpack_from(message, 1)[0], message[at:]


def encode_remove(patterns: Iterable[str]) -> bytes:
    """Return a REMOVE message: nobody wants these patterns any more. At most ``PATTERNS_MAX``."""
    return bytes((REMOVE,)) + _encode_names(patterns)


def decode_remove(message: bytes) -> list[str]:
    """Read a REMOVE message: at least one pattern.

    Raises:
        ItemError: It is malformed.
    """
    return _decode_names(message, 1)


def encode_lost(pattern: str, outcome: bytes) -> bytes:
    """Return a LOST message: nothing more comes for a pattern that was added.

    Args:
        pattern: As it was added.
        outcome: Why.
    """
    return bytes((LOST,)) + _encode_name(pattern) + outcome


def decode_lost(message: bytes) -> tuple[str, bytes]:
    """Read a LOST message: the pattern and the outcome.

    Raises:
        ItemError: It is malformed.
    """
    at = 2 + (message[1] if len(message) > 1 else 0)
    if at == 2 or not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("a message of a wrong size")
    return _decode_name(message[2:at]), message[at:]


# -- what became of it


def encode_said(item: Item, outcome: bytes) -> bytes:
    """Return a SAID message: what became of something that was said.

    Args:
        item: That.
        outcome: The count of those that it went to, or an error, as :mod:`iris_py.federation.calling` has it.
    """
    return bytes((SAID,)) + _SAID.pack(item.origin, item.stream, item.number) + outcome


def decode_said(message: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Read a SAID message: origin, stream, number and outcome.

    Raises:
        ItemError: It is malformed.
    """
    at = 1 + _SAID.size
    if not at < len(message) <= at + OUTCOME_BYTES_MAX:
        raise ItemError("an answer of a wrong size")
    return *_SAID.unpack_from(message, 1), message[at:]


def encode_count(count: int) -> bytes:
    """Return how many something went to, for the reply in an outcome."""
    return count.to_bytes(4, "big")


def decode_count(reply: bytes) -> int:
    """Read how many something went to; 0 if that is not said."""
    return int.from_bytes(reply, "big") if len(reply) == 4 else 0


# --


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded


def _decode_name(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as exc:
        raise ItemError("a name that is no text") from exc


def _encode_names(names: Iterable[str]) -> bytes:
    encoded = [_encode_name(name) for name in names]
    return _COUNT.pack(len(encoded)) + b"".join(encoded)


def _decode_names(message: bytes, at: int) -> list[str]:
    if len(message) < at + _COUNT.size:
        raise ItemError("a message that is cut off")
    (count,) = _COUNT.unpack_from(message, at)
    if not 0 < count <= PATTERNS_MAX:
        raise ItemError("no patterns, or too many")
    at += _COUNT.size
    names = []
    for _ in range(count):
        stop = at + 1 + (message[at] if at < len(message) else 0)
        if stop > len(message) or stop == at + 1:
            raise ItemError("a pattern that is cut off or empty")
        names.append(_decode_name(message[at + 1 : stop]))
        at = stop
    if at != len(message):
        raise ItemError("more than the patterns")
    return names
