"""Node infos and beacons, written as msgpack arrays.

A `Beacon` is a datagram. Its sealing is the owner's business; here it is plain. Link messages are in
`routing_messages.py`, and what they carry for groups in `group_messages.py`; they travel in CONTROL frames of
an authenticated, ordered link (docs/design.md 3.4).

Nothing is allocated by a number that a stranger sent: counts are checked against the bounds below while decoding, and the
decoder never reserves more than the bytes at hand can hold.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import InfoError, MessageError
from iris_overlay.ids import ID_BYTES, GroupId, NodeId

#: A DNS name has at most 253 characters (RFC 1035 section 2.3.4), then ``:65535``; two for the brackets of IPv6.
ADDRESS_LENGTH_MAX: Final = 261

#: A node listens on a handful of interfaces. More would multiply the dials that one dead node costs everybody.
ADDRESSES_MAX: Final = 8

#: ``continent/region/site/rack`` fits; a beacon must fit into one unfragmented datagram.
ZONE_LENGTH_MAX: Final = 64

#: A membership proof (docs/design.md 2.4) and a few numbers. A root and the watchers store those of every member.
ATTRIBUTES_BYTES_MAX: Final = 256

#: Memberships of one node. Registered anew in batches, 1024 of full size are 280 KiB.
GROUPS_PER_NODE_MAX: Final = 1024

#: No link message is larger: half of it is what the layer above may send, the rest is for routes and descriptions of nodes.
MESSAGE_BYTES_MAX: Final = 1 << 20

#: A beacon, before sealing. With the seal and the headers it stays below 1280 bytes, the smallest IPv6 path (RFC 8200 section
#: 5).
DATAGRAM_BYTES_MAX: Final = 1000

#: Questions are padded to this size, and an answer is never larger than its question, so that a replayed question with a forged
#: source gains an attacker nothing. The same remedy as RFC 9000 section 8.1. 400 bytes hold an answer with many addresses.
QUESTION_BYTES_MIN: Final = 400

SEQUENCE_MAX: Final = (1 << 63) - 1

#: How msgpack begins arrays of up to 15 elements, and longer ones, and the largest number of one byte.
_ARRAY: Final = 0x90
_ARRAY_16: Final = b"\xdc"
_POSITIVE_MAX: Final = 0x7F

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
    """The node id."""
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


class Beacon(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Tell unknown nodes that the sender exists."""

    info: NodeInfo
    """The sender, and where it listens."""
    wants_answer: bool
    """Whether some of those who hear it should answer. An answer never wants an answer."""
    peers: _Sequence
    """How many peers it has: the smaller of two networks that meet does the dialling."""
    padding: bytes = b""
    """See QUESTION_BYTES_MIN. Ignored when received."""


_ENCODER = msgspec.msgpack.Encoder()
_BEACON_DECODER: msgspec.msgpack.Decoder[Beacon] = msgspec.msgpack.Decoder(Beacon)
_INFO_DECODER: msgspec.msgpack.Decoder[NodeInfo] = msgspec.msgpack.Decoder(NodeInfo)
_MEMBERSHIP_DECODER: msgspec.msgpack.Decoder[Membership] = msgspec.msgpack.Decoder(Membership)

# Besides its own errors, the decoder lets through what Python raises for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def is_of_unknown_kind(data: bytes, tags: frozenset[int]) -> bool:
    """Return whether bytes are an array that begins with a tag, and with none of those that this version knows.

    Newer versions may send such messages; whether what follows the tag is well-formed is not looked at, for that could cost
    more than the message. One of a known tag that does not decode is malformed in every version: fields are added at the end of
    an array, and there they are ignored.

    Args:
        data: A message, as it came.
        tags: The tags that are known.
    """
    if data[:1] == _ARRAY_16:
        tag = data[3:4]
    elif data and data[0] & 0xF0 == _ARRAY and data[0] != _ARRAY:
        tag = data[1:2]
    else:
        return False
    return bool(tag) and tag[0] <= _POSITIVE_MAX and tag[0] not in tags


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
