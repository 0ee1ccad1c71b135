"""The messages between the replicas of a partition, and their encoding.

A message is a msgpack array that begins with its kind. A decoder ignores fields behind the known ones. Its only error is
`MalformedMessage`, for kinds of newer versions as well: the receiver drops such a message.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from iris_py.streams.blocks import CHAIN_BYTES, ID_BYTES
from iris_py.streams.raft.limits import MESSAGE_BLOCKS_MAX, REPAIR_BLOCKS_MAX, TERMS_LISTED_MAX

__all__ = [
    "Acked",
    "Behind",
    "Lacks",
    "Lead",
    "MalformedMessage",
    "Message",
    "Repair",
    "RepairBlock",
    "Replicate",
    "StatePiece",
    "TermEnd",
    "Vote",
    "Voted",
    "decode_message",
    "encode_message",
]

#: The largest term, index, offset and time.
NUMBER_MAX: Final = (1 << 63) - 1
#: The errors of a msgpack decoder, which accepts bad UTF-8 and deep nesting.
DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Chain = Annotated[bytes, msgspec.Meta(min_length=CHAIN_BYTES, max_length=CHAIN_BYTES)]
StoreId = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


class MalformedMessage(ValueError):
    """The bytes are no message of a known kind."""


class Replicate(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Blocks from the leader; without blocks a heartbeat."""

    term: Number
    previous: Number
    """The index before the first block."""
    previous_chain: Chain
    commit: Number
    epoch: Number
    """The damage known to the leader, or 0."""
    level: Number
    """The end of the leader's log at the first news of the damage. A follower with all blocks up to this end is sound."""
    round: Number
    """The number of the round of heartbeats, for readers."""
    blocks: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MESSAGE_BLOCKS_MAX)] = ()


class Acked(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The follower has synced the leader's log up to an index."""

    term: Number
    index: Number
    epoch: Number
    """The damage of the follower, or 0. Acknowledgements of damaged followers do not count."""
    round: Number


class TermEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last block of a term in a log."""

    term: Number
    index: Number
    chain: Chain


class Behind(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The follower has no block, or another block, before the received blocks."""

    term: Number
    previous: Number = 0
    """The index before the blocks that came."""
    ends: Annotated[tuple[TermEnd, ...], msgspec.Meta(max_length=TERMS_LISTED_MAX)] = ()
    """The newest terms of its log, oldest first."""
    begin: Number = 0
    """The index before the oldest listed term."""
    epoch: Number = 0


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A candidate asks for a vote."""

    term: Number
    is_pre: bool
    """Whether the candidate asks for an opinion, before a new term."""
    last_term: Number
    last_index: Number


class Voted(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """The answer to `Vote`."""

    term: Number
    """The asked term; a higher one with a refusal."""
    is_pre: bool
    is_granted: bool
    is_damaged: bool


class Lead(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """The receiver is to stand at once, for the leader stops."""

    term: Number


class Repair(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """A damaged replica asks for blocks of the log with a certain chain at a certain index."""

    epoch: Number
    first: Number
    last: Number
    anchor: Number
    """An index with a known chain, behind or before the blocks."""
    anchor_chain: Chain


class RepairBlock(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """A block in answer to `Repair`."""

    epoch: Number
    anchor: Number
    """The index whose chain was asked for."""
    data: bytes


class Lacks(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """The sender never acknowledged a block at the index: log and mark end before."""

    epoch: Number
    index: Number


class StatePiece(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """A piece of an encoded snapshot."""

    term: Number
    """The term of the leader; 0 in an answer to `Repair`."""
    index: Number
    """The index of the snapshot."""
    place: Number
    total: Number
    data: bytes


Message = Replicate | Acked | Behind | Vote | Voted | Lead | Repair | RepairBlock | Lacks | StatePiece

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)

assert REPAIR_BLOCKS_MAX <= MESSAGE_BLOCKS_MAX


def encode_message(message: Message) -> bytes:
    """Return the bytes of a message."""
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> Message:
    """Return the message.

    Raises:
        MalformedMessage: The kind is unknown, or a field is missing or breaks its bound.
    """
    try:
        return _DECODER.decode(data)
    except DECODE_ERRORS as exc:
        raise MalformedMessage(f"a message of replicas cannot be read: {exc}") from exc
