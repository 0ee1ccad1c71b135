"""The messages between two gateways: control messages and the heads of requests (docs/design.md 15.95).

A control message is ``type:u8`` and a msgpack array, in its own CONTROL frame. The receiver counts and skips unknown types, but
ends the bundle at an unknown type with the bit ``REQUIRED``: its sender depends on the message.

Requests and replies are messages of :mod:`iris_py.wire.packets`, many to a body, under ``LINE_GROUP``. The decoders check sizes
before contents, and raise :exc:`LineError` for any fault, which ends the bundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from iris_py.federation.calls import Call, Op, decode_call
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The group id of requests between gateways: no cluster has this id.
LINE_GROUP = bytes(16)

#: Unknown control messages of types from here on end the bundle.
REQUIRED = 128
#: The largest number of rules in a catalogue: as many as a file of rules may have.
RULES_MAX = 1024
#: The largest control message. Too small: a catalogue of ``RULES_MAX`` rules with the longest names does not fit; too large:
#: reading a neighbour's message takes long.
CONTROL_BYTES_MAX = 256 * 1024
#: The longest name of a cluster or topic.
NAME_BYTES_MAX = 255
#: The longest options of a channel: the application's headers (4 KiB) and the pattern's details.
OPTIONS_BYTES_MAX = 16 * 1024
#: Channel numbers are below this bound; both gateways count their own channels.
CHANNEL_NUMBERS = 1 << 63

# The kinds of rules: for a cluster or for topics.
CLUSTER, TOPIC = 0, 1

# The uses that an export can allow.
ALLOW_REQUEST, ALLOW_SURVEY, ALLOW_BROADCAST, ALLOW_TUNNEL, ALLOW_SUBSCRIBE, ALLOW_PUBLISH, ALLOW_BLOCK = (
    1 << n for n in range(7)
)

# The kinds of channels.
SUBSCRIBE, PUBLISH, SURVEY, TUNNEL = range(4)
#: The uses that allow a channel of a kind; a PUBLISH channel may also carry broadcasts.
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


class CatalogueEntry(msgspec.Struct, frozen=True, array_like=True):
    """A rule in a catalogue: the names that the neighbour may use, and how."""

    rule: U16
    """The number of the rule, by which channels and watches refer to the rule."""
    kind: U16
    """CLUSTER or TOPIC."""
    pattern: Name
    """The exported name or pattern."""
    allow: U16
    """The bits ``ALLOW_...``."""
    requests_per_s: float
    """0 for no limit."""
    in_flight: U32


class Catalogue(msgspec.Struct, frozen=True, array_like=True):
    """The names that the receiving cloud may use. The first message of each gateway, sent again after each change."""

    version: U32
    """Grows with each catalogue of the sending process."""
    entries: Annotated[tuple[CatalogueEntry, ...], msgspec.Meta(max_length=RULES_MAX)]


class Open(msgspec.Struct, frozen=True, array_like=True):
    """Request a channel (a duplex for a tunnel, subscription, publisher or survey)."""

    channel: int
    connection: U16
    """The index, in the bundle, of the connection that carries the channel."""
    kind: U16
    """SUBSCRIBE, PUBLISH, SURVEY or TUNNEL."""
    rule: U16
    name: Name
    """The exported name; empty for a channel to all names of the rule."""
    time_left_ms: U32
    window: U32
    """The initial credit in bytes for the receiver of the message."""
    options: Options
    """The pattern's details for the two ends; gateways in between pass them on unread."""
    headers: Options
    """The application's headers, encoded."""


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """Accept a requested channel."""

    channel: int
    window: U32


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Refuse a requested channel."""

    channel: int
    outcome: Options
    """The error, as an outcome of :mod:`iris_py.federation.calls`."""


class Withdrawn(msgspec.Struct, frozen=True, array_like=True):
    """Withdraw the request for a channel: the caller has stopped waiting."""

    channel: int


class WatchCount(msgspec.Struct, frozen=True, array_like=True):
    """Start or stop reporting the member count of a cluster."""

    rule: U16
    name: Name
    is_on: bool


class Count(msgspec.Struct, frozen=True, array_like=True):
    """The member count of a cluster."""

    name: Name
    members: U32


class Going(msgspec.Struct, frozen=True, array_like=True):
    """The sending gateway drains: start nothing new with this gateway."""


class Quiet(msgspec.Struct, frozen=True, array_like=True):
    """The receiver, a draining gateway, may end the bundle: the sender has no request under way and will send no new one.

    Sent once, in answer to :class:`Going`. An echo would not prove this, because requests may be on their way when the
    gateway announces its departure, and large requests travel on other connections.
    """


class Probe(msgspec.Struct, frozen=True, array_like=True):
    """Ask for an echo, at once."""

    number: U32


class Echo(msgspec.Struct, frozen=True, array_like=True):
    """Answer a probe."""

    number: U32


Control: TypeAlias = Catalogue | Open | Opened | Refused | WatchCount | Count | Going | Quiet | Probe | Echo | Withdrawn

#: The wire types of control messages.
_TYPES: dict[type[Control], int] = {
    Catalogue: 1,
    Open: 2,
    Opened: 3,
    Refused: 4,
    WatchCount: 5,
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
    """Return the bytes of a control message."""
    return bytes((_TYPES[type(message)],)) + _encoder.encode(message)


def decode_control(data: bytes) -> Control | None:
    """Read a control message; return None for an unknown type that may be skipped.

    Raises:
        LineError: The message is malformed, too large, or of an unknown type with ``REQUIRED``.
    """
    if not data or len(data) > CONTROL_BYTES_MAX:
        raise LineError("a control message of a wrong size")
    decoder = _decoders.get(data[0])
    if decoder is None:
        if data[0] & REQUIRED:
            raise LineError(f"a required control message of the type {data[0]}, which this version does not know")
        return None
    try:
        message: Control = decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:  # the decoder lets through bad UTF-8 and deep nesting
        raise LineError("a malformed control message") from exc
    if not 0 <= getattr(message, "channel", 0) < CHANNEL_NUMBERS:
        raise LineError("an invalid channel number")
    return message


# -- requests


def decode_request(payload: bytes) -> Call:
    """Read a neighbour's request: a call in the format between node and gateway, with the exported cluster name.

    The request names no rule: the exporter applies its most specific rule for the name at arrival.

    Raises:
        LineError: The request is malformed.
    """
    call = decode_call(payload)
    if call is None or not call.name or call.op != Op.REQUEST:
        raise LineError("a malformed request")
    return call


def encode_message(kind: int, number: int, argument: int, head: bytes, payload: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a REQUEST, a REPLY or a CANCEL between gateways.

    Args:
        kind: REQUEST, REPLY or CANCEL.
        argument: The time left in milliseconds, for a REQUEST.
        head: The application's headers, encoded, for a REQUEST.
    """
    size = sum(map(len, payload))
    return [packets.MESSAGE.pack(kind, 0, len(head), size, number, argument), head, *payload]


def decode_messages(record: bytes, start: int, stop: int) -> list[tuple[int, int, int, bytes, bytes]]:
    """Return kind, number, argument, head and payload of each message in a body.

    Raises:
        LineError: A message is cut off, or the body has too many messages.
    """
    messages = []
    unpack, size = packets.MESSAGE.unpack_from, packets.MESSAGE_BYTES
    if stop - start < size or not packets.is_body_sane(record, start, stop):
        raise LineError("a malformed body")
    while start < stop:
        if stop - start < size:
            raise LineError("a truncated message")
        kind, _flags, head_bytes, length, number, argument = unpack(record, start)
        head = start + size
        payload = head + head_bytes
        start = payload + length
        if start > stop:
            raise LineError("a truncated message")
        messages.append((kind, number, argument, record[head:payload], record[payload:start]))
    return messages
