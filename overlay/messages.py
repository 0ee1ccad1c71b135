"""What nodes say to each other, and how it is written: msgpack arrays whose first element names the message.

Link messages travel in CONTROL frames of an authenticated, ordered link (docs/design.md 3.4). Each node counts the changes
of its own memberships in one **sequence**; `Welcome` is a snapshot of all of them at a sequence, `Joined` and `Left` are the
next change, `Told` acknowledges everything up to a sequence. A receiver that misses a change leaves it unacknowledged, and
is sent a snapshot again: nothing depends on each single message.

A `Beacon` is a datagram. Its sealing is the owner's business; here it is plain.

Nothing is allocated by a number that a stranger sent: counts are checked against the bounds below while decoding, and the
decoder never reserves more than the bytes at hand can hold.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from overlay.errors import InfoError, MessageError
from overlay.ids import ID_BYTES, GroupId, NodeId

ADDRESS_LENGTH_MAX: Final = 261
"""A DNS name has at most 253 characters (RFC 1035 section 2.3.4), then ``:65535``; two for the brackets of IPv6."""

ADDRESSES_MAX: Final = 8
"""A node listens on a handful of interfaces. More would multiply the dials that one dead node costs everybody."""

ZONE_LENGTH_MAX: Final = 64
"""``continent/region/site/rack`` fits; a beacon must fit into one unfragmented datagram."""

ATTRIBUTES_BYTES_MAX: Final = 256
"""A membership proof (docs/design.md 2.4) and a few numbers. Every peer stores the attributes of every member."""

GROUPS_PER_NODE_MAX: Final = 1024
"""Memberships of one node. Every peer stores them, and a Welcome carries them all: 1024 of full size are 280 KiB."""

WELCOME_PEERS_MAX: Final = 1024
"""Peers that one Welcome may name; the same as the links that a node keeps. A peer that names more is lying."""

MESSAGE_BYTES_MAX: Final = 1 << 20
"""No link message is larger: a Welcome of 1024 full memberships and 1024 usual peers has about 400 KiB."""

DATAGRAM_BYTES_MAX: Final = 1000
"""A beacon, before sealing. With the seal and the headers it stays below 1280 bytes, the smallest IPv6 path (RFC 8200
section 5)."""

QUESTION_BYTES_MIN: Final = 400
"""Questions are padded to this size, and an answer is never larger than its question, so that a replayed question with a forged
source gains an attacker nothing. The same remedy as RFC 9000 section 8.1. 400 bytes hold an answer with many addresses."""

SEQUENCE_MAX: Final = (1 << 63) - 1

# Printable ASCII only: what peers send ends up in logs and on terminals. Names beyond ASCII come in their IDNA form.
_Address: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ADDRESS_LENGTH_MAX, pattern=r"\A[!-~]+\Z")]
_Zone: TypeAlias = Annotated[str, Meta(max_length=ZONE_LENGTH_MAX, pattern=r"\A[ -~]*\Z")]
_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_GroupId: TypeAlias = Annotated[GroupId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Attributes: TypeAlias = Annotated[bytes, Meta(max_length=ATTRIBUTES_BYTES_MAX)]
_Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]


class NodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """Describe a node to others."""

    id: _NodeId
    """Who it is."""
    addresses: Annotated[tuple[_Address, ...], Meta(max_length=ADDRESSES_MAX)]
    """Where it listens: ``host:port`` or ``[host]:port``, the most reachable first. May be empty: it can only dial."""
    zone: _Zone = ""
    """Where it is, for instance ``eu-west/a``."""


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """Describe that the sender is a member of a group."""

    group: _GroupId
    """The group."""
    attributes: _Attributes = b""
    """Whatever the layer above wants the users of the group to know about this member; opaque here."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Introduce the sender: the first message on a link, and again whenever a change may have been missed."""

    peers: Annotated[list[NodeInfo], Meta(max_length=WELCOME_PEERS_MAX)]
    """The peers that the sender has links to."""
    memberships: Annotated[list[Membership], Meta(max_length=GROUPS_PER_NODE_MAX)]
    """All memberships of the sender."""
    sequence: _Sequence
    """The sender's sequence that the memberships correspond to."""


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Tell that the sender became a member of a group, or has new attributes there."""

    sequence: _Sequence
    """One more than the sender's previous change."""
    group: _GroupId
    """The group."""
    attributes: _Attributes
    """See `Membership`."""


class Left(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Tell that the sender is no longer a member of a group."""

    sequence: _Sequence
    """One more than the sender's previous change."""
    group: _GroupId
    """The group."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Acknowledge every change of the receiver up to and including a sequence."""

    sequence: _Sequence
    """The last change that was applied."""


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Tell that the sender leaves the network: it is a member of nothing any more, and must not be dialled again."""

    sequence: _Sequence
    """One more than the sender's previous change. It is the last one."""


class Beacon(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Tell strangers that the sender exists."""

    info: NodeInfo
    """Who it is and where it listens."""
    wants_answer: bool
    """Whether some of those who hear it should answer. An answer never wants an answer."""
    peers: _Sequence
    """How many peers it has: the smaller of two networks that meet does the dialling."""
    padding: bytes = b""
    """See QUESTION_BYTES_MIN. Ignored when received."""


LinkMessage: TypeAlias = Welcome | Joined | Left | Told | Leaving

_ENCODER = msgspec.msgpack.Encoder()
_LINK_DECODER: msgspec.msgpack.Decoder[LinkMessage] = msgspec.msgpack.Decoder(LinkMessage)
_BEACON_DECODER: msgspec.msgpack.Decoder[Beacon] = msgspec.msgpack.Decoder(Beacon)
_INFO_DECODER: msgspec.msgpack.Decoder[NodeInfo] = msgspec.msgpack.Decoder(NodeInfo)
_MEMBERSHIP_DECODER: msgspec.msgpack.Decoder[Membership] = msgspec.msgpack.Decoder(Membership)

# Besides its own errors, the decoder lets through what Python raises for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_message(message: LinkMessage) -> bytes:
    """Write a link message."""
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> LinkMessage:
    """Read a link message.

    Raises:
        MessageError: The bytes are no link message, or break a bound.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a message of {len(data)} bytes exceeds {MESSAGE_BYTES_MAX}")
    try:
        return _LINK_DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"no valid message: {exc}") from exc


def encode_beacon(info: NodeInfo, *, wants_answer: bool, peers: int, bytes_max: int = DATAGRAM_BYTES_MAX) -> bytes | None:
    """Write a beacon that fits into a datagram; the last addresses are left out if they do not fit.

    Args:
        info: The sender.
        wants_answer: See `Beacon`. Such a beacon is padded to QUESTION_BYTES_MIN.
        peers: See `Beacon`.
        bytes_max: For an answer, the size of the question.

    Returns:
        The bytes, or None when the beacon does not fit with even one address (or has none to tell).
    """
    for count in range(len(info.addresses), 0, -1):
        shown = NodeInfo(info.id, info.addresses[:count], info.zone)
        data = _ENCODER.encode(Beacon(shown, wants_answer, peers))
        if wants_answer and len(data) < QUESTION_BYTES_MIN:
            # The header of the padding may grow by two bytes; a question a little larger than the minimum is fine.
            data = _ENCODER.encode(Beacon(shown, wants_answer, peers, bytes(QUESTION_BYTES_MIN - len(data))))
        if len(data) <= bytes_max:
            return data
    return None


def decode_beacon(data: bytes) -> Beacon:
    """Read a beacon.

    Raises:
        MessageError: The bytes are no beacon, or break a bound.
    """
    if len(data) > DATAGRAM_BYTES_MAX:
        raise MessageError(f"a beacon of {len(data)} bytes exceeds {DATAGRAM_BYTES_MAX}")
    try:
        return _BEACON_DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"no valid beacon: {exc}") from exc


def check_info(info: NodeInfo) -> None:
    """Verify that every peer will accept this node info.

    Structs do not check their fields when they are built in Python; writing and reading it applies the same rules as at the
    peer.

    Raises:
        InfoError: They would not.
    """
    try:
        _INFO_DECODER.decode(_ENCODER.encode(info))
    except (*_DECODE_ERRORS, TypeError) as exc:
        raise InfoError(f"{info!r} is no valid node info: {exc}") from exc


def check_membership(group: GroupId, attributes: bytes = b"") -> None:
    """Verify that every peer will accept this membership.

    Raises:
        InfoError: They would not.
    """
    try:
        _MEMBERSHIP_DECODER.decode(_ENCODER.encode(Membership(group, attributes)))
    except (*_DECODE_ERRORS, TypeError) as exc:
        raise InfoError(f"{group!r} with {len(attributes)} bytes of attributes is no valid membership: {exc}") from exc
