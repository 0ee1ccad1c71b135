"""The messages of the ring: msgpack arrays whose first element names the message.

They travel in CONTROL frames of an authenticated, ordered link. Nothing is allocated by a number that a stranger sent:
counts are checked against the bounds below while decoding.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta

from iris_overlay.environment import SIGNATURE_BYTES_MAX
from iris_overlay.errors import MessageError, UnknownMessageError
from iris_overlay.ids import ID_BYTES, NodeId
from iris_overlay.messages import MESSAGE_BYTES_MAX, SEQUENCE_MAX, NodeInfo, is_of_unknown_kind

#: A leaf set, and some nodes near whoever asked. Twice what a node with `leaf_half` 16 would tell.
LEAVES_TOLD_MAX: Final = 64

#: Entries of tables that a join collects on its way: more than a table has.
ROWS_TOLD_MAX: Final = 160

#: The hop limit. With correct tables a route has log16(N) hops, 5 for a million nodes; more than 32 is a loop.
PATH_LENGTH_MAX: Final = 32

#: Nodes that do not count as root of a message: its source, and one that it does not believe.
EXCLUDED_MAX: Final = 2

#: Hops acknowledged in one message; it is sent at once when there are as many.
ACKNOWLEDGEMENTS_MAX: Final = 64

#: Rows of tables that news of another ring travels: 2 rows reach about 240 nodes, from where rings zip in parallel.
HINT_DEPTH_MAX: Final = 2

#: What the layer above may route or send. Twice wrapped, it still fits into MESSAGE_BYTES_MAX.
PAYLOAD_BYTES_MAX: Final = 512 * 1024

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Key: TypeAlias = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
_Path: TypeAlias = Annotated[tuple[_NodeId, ...], Meta(min_length=1, max_length=PATH_LENGTH_MAX)]
_Excluded: TypeAlias = Annotated[tuple[_NodeId, ...], Meta(max_length=EXCLUDED_MAX)]
_Times: TypeAlias = Annotated[tuple[_Number, ...], Meta(max_length=PATH_LENGTH_MAX)]
_WayBack: TypeAlias = Annotated[tuple[_NodeId, ...], Meta(max_length=PATH_LENGTH_MAX)]
_Leaves: TypeAlias = Annotated[list[NodeInfo], Meta(max_length=LEAVES_TOLD_MAX)]
_Rows: TypeAlias = Annotated[list[NodeInfo], Meta(max_length=ROWS_TOLD_MAX)]
_Signature: TypeAlias = Annotated[bytes, Meta(max_length=SIGNATURE_BYTES_MAX)]


class RoutedKind(enum.IntEnum):
    """Say what a routed message is for."""

    PAYLOAD = 0
    """For the layer above, at the root of the key."""
    JOIN = 1
    """The source wants to know its leaf set. The key is its id, the root is the nearest other node."""
    SEEK = 2
    """The source looks for its own place in the ring of whoever it sends this to. The key is its id."""
    RELAY = 3
    """The payload is a link message of the source for the node whose id is the key, or one that comes back (`Returned`)."""


class LeafProbe(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Ask for the leaf set, and tell that the sender lives and wants to be in the receiver's."""

    info: NodeInfo
    """The sender."""
    leaves: _Leaves
    """Its leaf set, or nothing if that is no news."""
    is_active: bool
    """Whether it is part of a ring already."""


class LeafAck(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Answer a probe: the sender has the prober in its leaf set now, if it belongs there."""

    info: NodeInfo
    """The sender."""
    leaves: _Leaves
    """Its leaf set, and nodes that it knows to be near the prober."""
    is_active: bool
    """Whether it is part of a ring already."""
    is_whole: bool
    """Whether no side of its leaf set is short."""


class Routed(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Carry something towards the root of a key. Each hop acknowledges it with `Got`."""

    sequence: _Number
    """Numbers what the sender of this hop forwards."""
    kind: RoutedKind
    """The purpose."""
    key: _Key
    """Where to."""
    source: NodeInfo
    """The node that sent it first."""
    number: _Number
    """Numbers what the source sent: the root drops repetitions."""
    path: _Path
    """The nodes it passed, the source first."""
    excludes: _Excluded
    """The nodes that do not count as root: the source that joins, or one that the source wants another opinion than that of."""
    payload: bytes
    """The message of the layer above."""
    nodes: _Rows = []
    """For a join: the rows that the hops added."""
    signature: _Signature = b""
    """Of the source, for all that it said: see `signed_part`. What the hops add is theirs."""
    held: _Times = ()
    """How long each node of the path kept it (microseconds), if the source wants to know; else, and behind a hop that does not
    say so, nothing."""


class Got(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Acknowledge hops: the sender takes care of these messages from here on."""

    sequences: Annotated[list[_Number], Meta(max_length=ACKNOWLEDGEMENTS_MAX)]
    """The numbers that the receiver gave them."""


class Direct(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Carry something of the layer above to the receiver."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The message."""


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Carry a link message back along the path of a routed one."""

    path: _WayBack
    """The nodes after the receiver, in the order of the way there: the last one is next, the first is the destination."""
    source: NodeInfo
    """The node that answers."""
    payload: bytes
    """A link message of it."""
    to: _NodeId
    """The destination."""
    number: _Number
    """Numbers what the source sent, as in `Routed`: the destination drops repetitions."""
    signature: _Signature = b""
    """Of the source: see `signed_part`. What brings the message on its way is not signed."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Tell a joiner where it belongs."""

    info: NodeInfo
    """The sender: the root of the joiner's id."""
    leaves: _Leaves
    """Its leaf set."""
    nodes: _Rows
    """Rows of the tables on the way."""


class JoinWaiting(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Tell a joiner that the sender is joining as well, and keeps the request until it is done."""

    info: NodeInfo
    """The sender."""


class RowAsk(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Ask for a row of the table."""

    info: NodeInfo
    """The sender."""
    row: Annotated[int, Meta(ge=0, lt=32)]
    """Which."""


class RowAnswer(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Tell entries of the table."""

    nodes: Annotated[list[NodeInfo], Meta(max_length=16)]
    """They need not be alive."""


class MergeHint(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Tell that there is another ring of the same network."""

    contact: NodeInfo
    """A node of it."""
    row: Annotated[int, Meta(ge=1, le=HINT_DEPTH_MAX)]
    """From which row on the receiver should pass the hint on."""


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Tell that the sender is no longer part of the ring."""


RingMessage: TypeAlias = (
    LeafProbe | LeafAck | Routed | Got | Direct | Returned | JoinAnswer | JoinWaiting | RowAsk | RowAnswer | MergeHint | Leaving
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[RingMessage] = msgspec.msgpack.Decoder(RingMessage)
_TAGS: Final = frozenset(each.__struct_config__.tag for each in get_args(RingMessage))

# Besides its own errors, the decoder lets through what Python raises for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def signed_part(message: Routed | Returned) -> bytes:
    """Return what the source of a message signs: everything that it says and no hop changes."""
    if isinstance(message, Routed):
        said = (18, message.kind, message.key, message.source, message.number, message.excludes, message.payload)
        return _ENCODER.encode(said)
    return _ENCODER.encode((21, message.source, message.payload, message.to, message.number))


def encode_ring_message(message: RingMessage) -> bytes:
    """Write a message."""
    return _ENCODER.encode(message)


def decode_ring_message(data: bytes) -> RingMessage:
    """Read a message.

    Raises:
        UnknownMessageError: It is a message of a kind that this version does not know.
        MessageError: The bytes are no message of the ring, or break a bound.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a message of {len(data)} bytes exceeds {MESSAGE_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        if is_of_unknown_kind(data, _TAGS):
            raise UnknownMessageError(f"a message of an unknown kind: {exc}") from exc
        raise MessageError(f"no valid message of the ring: {exc}") from exc
