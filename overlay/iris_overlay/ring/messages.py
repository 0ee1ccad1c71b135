"""The messages of the ring: msgpack arrays with the message's tag first.

They travel in CONTROL frames of an authenticated, ordered link. Decoding never allocates by a received number: it checks counts
against the bounds below.

This module omits `from __future__ import annotations`, which would make msgspec evaluate each annotation for the decoder.
"""

import enum
from typing import Annotated, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta

from iris_overlay.environment import SIGNATURE_BYTES_MAX
from iris_overlay.errors import MessageError, UnknownMessageError
from iris_overlay.ids import ID_BYTES, NodeId
from iris_overlay.node_info import MESSAGE_BYTES_MAX, SEQUENCE_MAX, NodeInfo, is_of_unknown_kind

#: The largest number of leaves in a message: a leaf set and some nodes near the receiver. This is twice the leaf set for
#: `leaf_half` 16.
LEAVES_TOLD_MAX: Final = 64

#: The largest number of table entries collected by a join on its way: more than a table has.
ROWS_TOLD_MAX: Final = 160

#: The hop limit. With correct tables a route has log16(N) hops, 5 for a million nodes; more than 32 means a loop.
PATH_LENGTH_MAX: Final = 32

#: The largest number of nodes that do not count as root of a message: its source, and a root in doubt.
EXCLUDED_MAX: Final = 2

#: The largest number of hops acknowledged in one message; a full message is sent at once.
ACKNOWLEDGEMENTS_MAX: Final = 64

#: The rows of tables that a hint about another ring travels: 2 rows reach about 240 nodes, which merge in parallel.
HINT_DEPTH_MAX: Final = 2

#: The largest payload of the layer above: a whole membership view with the longest addresses (655 KiB) fits. Wrapped twice, it
#: still fits into MESSAGE_BYTES_MAX.
PAYLOAD_BYTES_MAX: Final = 704 * 1024

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
    """The purpose of a routed message."""

    PAYLOAD = 0
    """For the layer above, at the root of the key."""
    JOIN = 1
    """The source asks for its leaf set. The key is its id; the root is the nearest other node."""
    SEEK = 2
    """The source seeks its own place in the ring of the first hop. The key is its id."""
    RELAY = 3
    """The payload is a link message for the node with the key as its id, or a returned one (`Returned`)."""


class LeafProbe(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Ask for the leaf set, and announce that the sender lives and belongs in the receiver's leaf set."""

    info: NodeInfo
    """The sender."""
    leaves: _Leaves
    """The leaf set of the sender; empty if the receiver knows it."""
    is_active: bool
    """Whether the sender is already part of a ring."""


class LeafAck(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Answer a probe: the prober is now in the sender's leaf set, if it belongs there."""

    info: NodeInfo
    """The sender."""
    leaves: _Leaves
    """The leaf set of the sender, and known nodes near the prober."""
    is_active: bool
    """Whether the sender is already part of a ring."""
    is_whole: bool
    """Whether no side of the sender's leaf set is short (lost leaves without a replacement)."""


class Routed(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Carry a payload towards the root of a key. Each hop acknowledges it with `Got`."""

    sequence: _Number
    """The number of the message at the sender of this hop."""
    kind: RoutedKind
    """The purpose."""
    key: _Key
    """The destination."""
    source: NodeInfo
    """The original sender."""
    number: _Number
    """The number of the message at its source; the root drops repetitions."""
    path: _Path
    """The nodes on its path, the source first."""
    excludes: _Excluded
    """The nodes that do not count as root: a joining source, or a root in doubt."""
    payload: bytes
    """The message of the layer above."""
    nodes: _Rows = []
    """For a join: the rows added by the hops."""
    signature: _Signature = b""
    """The source's signature of its own fields, see `signed_part`; it does not cover the additions of hops."""
    held: _Times = ()
    """The time in each node of the path (microseconds), if requested by the source; empty otherwise, and after a hop without
    this feature.
    """


class Got(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Acknowledge hops: the sender takes care of these messages from now on."""

    sequences: Annotated[list[_Number], Meta(max_length=ACKNOWLEDGEMENTS_MAX)]
    """The sequences assigned by the receiver."""


class Direct(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Carry a payload of the layer above to the receiver."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The message."""


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Carry a link message back along the path of a routed one."""

    path: _WayBack
    """The remaining path in its original order: the last node is next, the first is the destination."""
    source: NodeInfo
    """The answering node."""
    payload: bytes
    """The answering node's link message."""
    to: _NodeId
    """The destination."""
    number: _Number
    """The number of the message at its source, as in `Routed`; the destination drops repetitions."""
    signature: _Signature = b""
    """The source's signature, see `signed_part`; it does not cover the path."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Tell a joiner its place: the leaf set of the root of its id, and routing table entries."""

    info: NodeInfo
    """The sender: the root of the joiner's id."""
    leaves: _Leaves
    """The leaf set of the sender."""
    nodes: _Rows
    """Entries of the routing tables of the nodes on the way."""


class JoinWaiting(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Tell a joiner that the sender is joining too, and keeps the request until it is done."""

    info: NodeInfo
    """The sender."""


class RowAsk(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Ask for a row of the receiver's routing table."""

    info: NodeInfo
    """The sender."""
    row: Annotated[int, Meta(ge=0, lt=32)]
    """The number of the row."""


class RowAnswer(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Answer `RowAsk` with the entries of the row."""

    nodes: Annotated[list[NodeInfo], Meta(max_length=16)]
    """The entries, which may be dead."""


class MergeHint(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Tell a node about another ring of the same network."""

    contact: NodeInfo
    """A node of the other ring."""
    row: Annotated[int, Meta(ge=1, le=HINT_DEPTH_MAX)]
    """The first row of the receiver's table for passing the hint on."""


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Tell a node that the sender has left the ring."""


RingMessage: TypeAlias = (
    LeafProbe | LeafAck | Routed | Got | Direct | Returned | JoinAnswer | JoinWaiting | RowAsk | RowAnswer | MergeHint | Leaving
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[RingMessage] = msgspec.msgpack.Decoder(RingMessage)
_TAGS: Final = frozenset(each.__struct_config__.tag for each in get_args(RingMessage))

# Besides its own errors, the decoder passes on Python's errors for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def signed_part(message: Routed | Returned) -> bytes:
    """Return the signed bytes of a message: all fields of the source that no hop changes."""
    if isinstance(message, Routed):
        said = (18, message.kind, message.key, message.source, message.number, message.excludes, message.payload)
        return _ENCODER.encode(said)
    return _ENCODER.encode((21, message.source, message.payload, message.to, message.number))


def encode_ring_message(message: RingMessage) -> bytes:
    """Encode a message of the ring."""
    return _ENCODER.encode(message)


def decode_ring_message(data: bytes) -> RingMessage:
    """Decode a message of the ring.

    Raises:
        UnknownMessageError: The message is of a kind unknown to this version.
        MessageError: The bytes are no message of the ring, or exceed a bound.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a message of {len(data)} bytes exceeds {MESSAGE_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        if is_of_unknown_kind(data, _TAGS):
            raise UnknownMessageError(f"a message of an unknown kind: {exc}") from exc
        raise MessageError(f"not a valid message of the ring: {exc}") from exc
