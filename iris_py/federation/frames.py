"""The messages between two gateways (docs/design.md 15.95): control messages, and the heads of requests.

Control messages are ``type:u8`` and a msgpack array, each in a frame CONTROL. A type that is not known is counted and skipped,
but one with the bit ``REQUIRED`` ends the bundle: whoever sends such a one cannot do without.

Requests and their answers are messages of :mod:`iris_py.wire.packets`, many to a body, under ``LINE_GROUP``. Nothing that comes
in is believed before its size was looked at, and everything that is wrong raises :exc:`LineError`, which ends the bundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from iris_py.federation.calls import Call, Op, decode_call
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The group of requests on a line: no cluster has it.
LINE_GROUP = bytes(16)

#: Types from here on end the bundle where they are not known.
REQUIRED = 128
#: Rules of a catalogue: as many as a file of rules may have.
RULES_MAX = 1024
#: The largest control message. A catalogue of ``RULES_MAX`` rules with the longest names has as much; too large: what a
#: neighbour sends takes long to read.
CONTROL_BYTES_MAX = 256 * 1024
#: Bytes of a name of a cluster or topic.
NAME_BYTES_MAX = 255
#: Bytes of what a channel is opened with: headers of the application (4 KiB), and what the pattern needs.
OPTIONS_BYTES_MAX = 16 * 1024
#: Numbers of channels are below; each side counts those that it opens.
CHANNEL_NUMBERS = 1 << 63

# Of a cluster or of topics: the kinds of rules.
CLUSTER, TOPIC = 0, 1

# What may be done with what is exported.
ALLOW_REQUEST, ALLOW_SURVEY, ALLOW_BROADCAST, ALLOW_TUNNEL, ALLOW_SUBSCRIBE, ALLOW_PUBLISH, ALLOW_BLOCK = (
    1 << n for n in range(7)
)

# What a channel is for.
SUBSCRIBE, PUBLISH, SURVEY, TUNNEL = range(4)
#: What each of them needs to be allowed to; PUBLISH may be a broadcast, too.
NEEDED = {
    SUBSCRIBE: ALLOW_SUBSCRIBE,
    PUBLISH: ALLOW_PUBLISH | ALLOW_BROADCAST,
    SURVEY: ALLOW_SURVEY,
    TUNNEL: ALLOW_TUNNEL,
}

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)]
U16: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
U32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
Options: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=OPTIONS_BYTES_MAX)]


class LineError(Exception):
    """A neighbour broke the protocol. Ends the bundle; never leaves :mod:`iris_py.federation.core`."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A rule as a neighbour is told of it: the names that it may use, and for what."""

    rule: U16
    """Its number, by which uses name it."""
    kind: U16
    """CLUSTER or TOPIC."""
    pattern: Name
    """Its name outside."""
    allow: U16
    """The bits ``ALLOW_...``."""
    requests_per_s: float
    """0 for no limit."""
    in_flight: U32


class Catalogue(msgspec.Struct, frozen=True, array_like=True):
    """The names that a neighbour may use of ours, and no others. The first message of each side, and one after each change."""

    version: U32
    """Grows with each one that this process sends."""
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=RULES_MAX)]


class Open(msgspec.Struct, frozen=True, array_like=True):
    """Open a channel."""

    channel: int
    connection: U16
    """Of the bundle, on which it is."""
    kind: U16
    """SUBSCRIBE, PUBLISH, SURVEY or TUNNEL."""
    rule: U16
    name: Name
    """As it is exported; empty where the channel is for all that the rule covers."""
    time_left_ms: U32
    window: U32
    """Bytes that the other side may send before any of them is taken."""
    options: Options
    """Details that the pattern needs, as its two ends understand them: gateways pass them on."""
    headers: Options
    """The headers of the application, encoded."""


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """A channel is open."""

    channel: int
    window: U32


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """A channel cannot be opened."""

    channel: int
    outcome: Options
    """Why, as :mod:`iris_py.federation.calls` has outcomes."""


class Withdrawn(msgspec.Struct, frozen=True, array_like=True):
    """Nobody waits any more for a channel that is being opened."""

    channel: int


class Watch(msgspec.Struct, frozen=True, array_like=True):
    """Tell, or do not tell any more, how many members a cluster has."""

    rule: U16
    name: Name
    is_on: bool


class Count(msgspec.Struct, frozen=True, array_like=True):
    """The number of the members of a cluster."""

    name: Name
    members: U32


class Going(msgspec.Struct, frozen=True, array_like=True):
    """This gateway drains: nothing new, please."""


class Quiet(msgspec.Struct, frozen=True, array_like=True):
    """Nothing that this side has asked for is under way over the bundle any more, and nothing new will be: you may end it.

    Said once, after :class:`Going`. Requests may still be on their way when their gateway says that it goes, and large ones
    may be behind anything that an echo of that could show.
    """


class Probe(msgspec.Struct, frozen=True, array_like=True):
    """Ask for an echo, at once."""

    number: U32


class Echo(msgspec.Struct, frozen=True, array_like=True):
    """Answer a probe."""

    number: U32


Control: TypeAlias = Catalogue | Open | Opened | Refused | Watch | Count | Going | Quiet | Probe | Echo | Withdrawn

#: Their types.
_TYPES: dict[type[Control], int] = {
    Catalogue: 1,
    Open: 2,
    Opened: 3,
    Refused: 4,
    Watch: 5,
    Count: 6,
    Going: 7,
    Probe: 8,
    Echo: 9,
    Withdrawn: 10,
    Quiet: 11,
}

_encoder = msgspec.msgpack.Encoder()
_decoders = {number: msgspec.msgpack.Decoder(type_) for type_, number in _TYPES.items()}


def encode_control(message: Control) -> bytes:
    """Return a control message as bytes."""
    return bytes((_TYPES[type(message)],)) + _encoder.encode(message)


def decode_control(data: bytes) -> Control | None:
    """Read a control message; None if its type is not known and may be skipped.

    Raises:
        LineError: It is malformed, too large, or of an unknown type that may not be skipped.
    """
    if not data or len(data) > CONTROL_BYTES_MAX:
        raise LineError("a control message of a wrong size")
    decoder = _decoders.get(data[0])
    if decoder is None:
        if data[0] & REQUIRED:
            raise LineError(f"a control message of the type {data[0]}, which this version does not know and must")
        return None
    try:
        message: Control = decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:  # the decoder lets through bad UTF-8 and deep nesting
        raise LineError("a malformed control message") from exc
    if not 0 <= getattr(message, "channel", 0) < CHANNEL_NUMBERS:
        raise LineError("a number of a channel that is none")
    return message


# -- requests


def decode_request(payload: bytes) -> Call:
    """Read a request of the other side: a call as nodes say it to their gateway, whose name is that outside.

    It names no rule: only the most specific one for its name counts, as the exporter has them when it comes.

    Raises:
        LineError: It is malformed.
    """
    call = decode_call(payload)
    if call is None or not call.name or call.op != Op.REQUEST:
        raise LineError("a malformed request")
    return call


def encode_message(kind: int, number: int, argument: int, head: bytes, payload: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a message of a line: a REQUEST, a REPLY or a CANCEL.

    Args:
        kind: Which of them.
        number: That of the request.
        argument: Of a REQUEST, the time that is left.
        head: Of a REQUEST, the headers of the application, encoded.
        payload: In parts.
    """
    size = sum(map(len, payload))
    return [packets.MESSAGE.pack(kind, 0, len(head), size, number, argument), head, *payload]


def decode_messages(record: bytes, start: int, stop: int) -> list[tuple[int, int, int, bytes, bytes]]:
    """Read the messages of a body: kind, number, argument, head and payload of each.

    Raises:
        LineError: One is cut off, or there are more than a body may have.
    """
    messages = []
    unpack, size = packets.MESSAGE.unpack_from, packets.MESSAGE_BYTES
    if stop - start < size or not packets.is_body_sane(record, start, stop):
        raise LineError("a malformed body")
    while start < stop:
        if stop - start < size:
            raise LineError("a message that is cut off")
        kind, _flags, head_bytes, length, number, argument = unpack(record, start)
        head = start + size
        payload = head + head_bytes
        start = payload + length
        if start > stop:
            raise LineError("a message that is cut off")
        messages.append((kind, number, argument, record[head:payload], record[payload:start]))
    return messages
