"""The messages of subscriptions and of publishing between clouds: on tunnels of nodes to gateways, and on channels of gateways.

Each is one message of a tunnel or channel, and begins with its type. Who subscribes says ADD and REMOVE; the other side answers
each ADD by ADDED, says LOST where it cannot go on, and sends ITEM messages with several publications each. Who publishes or
broadcasts sends SAY messages of the same form, some of which are answered by SAID. GOING asks to go on elsewhere.

An :class:`Item` is a run: publications of one node to one topic that follow one another. Gateways look at each run once, as
nodes do (docs/design.md 8.2), and touch the single publications in it as little as can be.

Nothing that comes in is believed before its size was looked at; all that is wrong raises :exc:`ItemError`, and the stream ends.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_py.wire.imported import NUMBER_MAX, ORIGIN_BYTES, STREAM_BYTES
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The types. Unknown ones are skipped.
ADD, ADDED, REMOVE, LOST, ITEM, SAY, SAID, GOING = range(1, 9)

#: Patterns in one message. Too small: a node that comes back takes many round trips; too large: so many are matched at once.
PATTERNS_MAX: Final = 1024
#: Bytes of a name or pattern: a byte says how many.
NAME_BYTES_MAX: Final = 255
#: Publications in one message. Too small: small ones cost a message each; too large: one is looked at for long.
PUBLICATIONS_MAX: Final = 1024
#: What who sends puts into one message, but for a publication that is larger by itself. Too small: frames cost more than
#: payloads; too large: who waits behind it waits for all of it.
ITEM_MESSAGE_BYTES: Final = 64 * 1024
#: The largest outcome.
OUTCOME_BYTES_MAX: Final = 16 * 1024
#: flags, bytes of the topic, of the headers, publications, origin, stream, number of the first, gap before it
RECORD: Final = struct.Struct(f">BBHH{ORIGIN_BYTES}s{STREAM_BYTES}sQI")
#: The bytes of each payload, behind the record.
SIZE_BYTES: Final = 4
#: The largest message: one publication of the largest size, and many small ones.
ITEMS_BYTES_MAX: Final = (
    MESSAGE_BYTES_LIMIT + HEADERS_BYTES_MAX + ITEM_MESSAGE_BYTES + RECORD.size + SIZE_BYTES + NAME_BYTES_MAX + 1
)
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
    """Publications on their way between clouds: a run of them, or a broadcast, or a question.

    Attributes:
        topic: The topic as the exporting cloud calls it outside; of a broadcast the cluster.
        payloads: What was published, in order: at least one, and one of what is broadcast or answered.
        number: The number of the first among those of its origin and stream; the others follow it.
        origin: The node that published them: a pseudonym of 16 bytes; zeros between that node and its own gateway.
        stream: The numbers of one origin that belong together, 4 bytes.
        gap: How many of these were lost right before the first, as far as is known. Between them none was.
        headers: What stands beside each payload, encoded.
        flags: Of what is said, ``BROADCAST``, ``ANSWERED`` and ``ASKED``.
    """

    topic: str
    payloads: list[bytes]
    number: int
    origin: bytes = bytes(ORIGIN_BYTES)
    stream: bytes = bytes(STREAM_BYTES)
    gap: int = 0
    headers: bytes = b""
    flags: int = 0

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads, each with its headers: what rules limit and count."""
        return sum(map(len, self.payloads)) + len(self.payloads) * len(self.headers)

    @property
    def size(self) -> int:
        """The bytes that it takes in a message at most: with the longest topic."""
        count = len(self.payloads)
        return RECORD.size + NAME_BYTES_MAX + len(self.headers) + sum(map(len, self.payloads)) + count * SIZE_BYTES

    def split(self, count: int) -> tuple[Item, Item]:
        """Return the first so many publications, and the others; there are some of both."""
        behind = msgspec.structs.replace(self, payloads=self.payloads[count:], number=self.number + count, gap=0)
        return msgspec.structs.replace(self, payloads=self.payloads[:count]), behind


# -- publications


def encode_items(kind: int, items: Iterable[Item]) -> bytes:
    """Return an ITEM or a SAY message.

    Args:
        kind: Which of them.
        items: Of at most ``PUBLICATIONS_MAX`` publications together.
    """
    parts = [bytes((kind,))]
    for item in items:
        topic, payloads, headers = item.topic.encode(), item.payloads, item.headers
        count, gap = len(payloads), min(item.gap, GAP_MAX)
        parts += (
            RECORD.pack(item.flags, len(topic), len(headers), count, item.origin, item.stream, item.number, gap),
            struct.pack(f">{count}I", *map(len, payloads)),
            topic,
            headers,
            *payloads,
        )
    return b"".join(parts)


def decode_items(message: bytes) -> list[Item]:
    """Read the publications of an ITEM or a SAY message; at least one.

    Raises:
        ItemError: It is malformed.
    """
    items: list[Item] = []
    at, end, room = 1, len(message), PUBLICATIONS_MAX
    if end > ITEMS_BYTES_MAX:
        raise ItemError("a message that is too large")
    while at < end or not items:
        sizes_at = at + RECORD.size
        if sizes_at > end:
            raise ItemError("publications that are cut off")
        flags, topic_bytes, headers_bytes, count, origin, stream, number, gap = RECORD.unpack_from(message, at)
        room -= count
        topic_at = sizes_at + count * SIZE_BYTES
        headers_at = topic_at + topic_bytes
        payloads_at = headers_at + headers_bytes
        if not count or room < 0 or not topic_bytes or payloads_at > end or headers_bytes > HEADERS_BYTES_MAX:
            raise ItemError("publications that are none, too many, or cut off")
        if number + count - 1 > NUMBER_MAX or (count > 1 and flags & _FLAGS):
            raise ItemError("publications that cannot be a run")
        sizes = struct.unpack_from(f">{count}I", message, sizes_at)
        stops = list(accumulate(sizes, initial=payloads_at))
        at = stops[-1]
        if at > end or max(sizes) > MESSAGE_BYTES_LIMIT:
            raise ItemError("a publication of a wrong size")
        topic = _decode_name(message[topic_at:headers_at])
        payloads = [message[start:stop] for start, stop in pairwise(stops)]
        items.append(Item(topic, payloads, number, origin, stream, gap, message[headers_at:payloads_at], flags & _FLAGS))
    return items


def count_fitting(
    payloads: Sequence[bytes], headers: bytes, room: int = PUBLICATIONS_MAX, room_bytes: int = ITEM_MESSAGE_BYTES
) -> int:
    """Return how many of the payloads of a run, the first ones, go into a message.

    Args:
        payloads: Those of the run.
        headers: What stands beside each of them.
        room: For how many publications the message has room.
        room_bytes: For how many bytes.
    """
    room_bytes -= RECORD.size + NAME_BYTES_MAX + len(headers)
    ends = list(accumulate(map(len, payloads[:room])))
    if ends and ends[-1] + SIZE_BYTES * len(ends) <= room_bytes:
        return len(ends)
    return bisect_right(range(len(ends)), room_bytes, key=lambda at: ends[at] + SIZE_BYTES * (at + 1))


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
        outcome: As :mod:`iris_py.federation.calls` has it: an empty reply, or the error why they are not added.
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


def encode_said(number: int, outcome: bytes, origin: bytes = bytes(ORIGIN_BYTES), stream: bytes = bytes(STREAM_BYTES)) -> bytes:
    """Return a SAID message: what became of something that was said.

    Args:
        number: The number of that, within its origin and stream.
        outcome: The count of those that it went to, or an error, as :mod:`iris_py.federation.calls` has it.
        origin: That; zeros for a node of the own cloud.
        stream: That, likewise.
    """
    return bytes((SAID,)) + _SAID.pack(origin, stream, number) + outcome


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
