"""Node infos, memberships and beacons, encoded as msgpack arrays.

A `Beacon` is a datagram; the owner encrypts it. Link messages are in `ring/messages.py`, and their payloads for groups in
`groups/messages.py`. They travel in CONTROL frames of an authenticated, ordered link (docs/design.md 3.4).

Decoding never allocates by a received number: it checks counts against the bounds below, and reserves no more than the received
bytes can fill.

This module omits `from __future__ import annotations`, which would make msgspec evaluate each annotation for the decoder.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import InfoError, MessageError
from iris_overlay.ids import ID_BYTES, GroupId, NodeId

#: The largest length of an address. A DNS name has at most 253 characters (RFC 1035 section 2.3.4), plus ``:65535`` and the two
#: brackets of IPv6.
ADDRESS_LENGTH_MAX: Final = 261

#: The largest number of addresses of a node, which listens on a few interfaces. More addresses would multiply the dials that
#: every node wastes on a dead one.
ADDRESSES_MAX: Final = 8

#: The largest length of a zone: ``continent/region/site/rack`` fits; a beacon must fit into one unfragmented datagram.
ZONE_LENGTH_MAX: Final = 64

#: The largest size of a member's attributes: a membership proof (docs/design.md 2.4) and a few numbers. The root and the
#: watchers store the attributes of every member.
ATTRIBUTES_BYTES_MAX: Final = 256

#: The largest number of groups joined by one node. Registered again in batches, 1024 of full size are 280 KiB.
GROUPS_PER_NODE_MAX: Final = 1024

#: The largest link message: half of it is for the layer above, the rest for routes and descriptions of nodes.
MESSAGE_BYTES_MAX: Final = 1 << 20

#: The largest size of a beacon before encryption. With tag, signature and headers it stays below 1280 bytes, the smallest IPv6
#: path (RFC 8200 section 5).
DATAGRAM_BYTES_MAX: Final = 1000

#: Questions are padded to this size, and an answer is never larger than its question. So a replayed question with a forged
#: source gains an attacker nothing, as in RFC 9000 section 8.1. 400 bytes hold an answer with many addresses.
QUESTION_BYTES_MIN: Final = 400

SEQUENCE_MAX: Final = (1 << 63) - 1

#: The msgpack headers of arrays up to 15 elements and of longer arrays, and the largest one-byte number.
_ARRAY: Final = 0x90
_ARRAY_16: Final = b"\xdc"
_POSITIVE_MAX: Final = 0x7F

# Printable ASCII only, because received text ends up in logs and on terminals. Other host names arrive in their IDNA form.
_Address: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ADDRESS_LENGTH_MAX, pattern=r"\A[!-~]+\Z")]
_Zone: TypeAlias = Annotated[str, Meta(max_length=ZONE_LENGTH_MAX, pattern=r"\A[ -~]*\Z")]
_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_GroupId: TypeAlias = Annotated[GroupId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Attributes: TypeAlias = Annotated[bytes, Meta(max_length=ATTRIBUTES_BYTES_MAX)]
_Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]


class NodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """The description of a node, as other nodes know it: id, addresses and zone."""

    id: _NodeId
    """The node id."""
    addresses: Annotated[tuple[_Address, ...], Meta(max_length=ADDRESSES_MAX)]
    """The listening addresses: ``host:port`` or ``[host]:port``, the most reachable first. Empty for a node that can only dial.
    """
    zone: _Zone = ""
    """The location, for example ``eu-west/a``."""


class Beacon(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Announce the sender to unknown nodes, as a question or not."""

    info: NodeInfo
    """The sender and its listening addresses."""
    wants_answer: bool
    """Whether some receivers should answer. An answer never wants an answer."""
    peers: _Sequence
    """The sender's number of peers: of two networks that meet, the smaller dials."""
    padding: bytes = b""
    """See QUESTION_BYTES_MIN. Ignored when received."""


_ENCODER = msgspec.msgpack.Encoder()
_BEACON_DECODER: msgspec.msgpack.Decoder[Beacon] = msgspec.msgpack.Decoder(Beacon)
_INFO_DECODER: msgspec.msgpack.Decoder[NodeInfo] = msgspec.msgpack.Decoder(NodeInfo)
_MEMBERSHIP_DECODER: msgspec.msgpack.Decoder[tuple[_GroupId, _Attributes]] = msgspec.msgpack.Decoder(
    tuple[_GroupId, _Attributes]
)

# Besides its own errors, the decoder passes on Python's errors for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def is_of_unknown_kind(data: bytes, tags: frozenset[int]) -> bool:
    """Return whether bytes are an array that begins with an unknown tag.

    Newer versions may send such messages. The rest of the array is not checked, because the check could cost more than the
    message. A message with a known tag must decode in every version: newer versions add fields at the end of an array, where
    older versions ignore them.

    Args:
        data: A message as received.
        tags: The known tags.
    """
    if data[:1] == _ARRAY_16:
        tag = data[3:4]
    elif data and data[0] & 0xF0 == _ARRAY and data[0] != _ARRAY:
        tag = data[1:2]
    else:
        return False
    return bool(tag) and tag[0] <= _POSITIVE_MAX and tag[0] not in tags


def encode_beacon(info: NodeInfo, *, wants_answer: bool, peers: int, bytes_max: int = DATAGRAM_BYTES_MAX) -> bytes | None:
    """Encode a beacon for one datagram; omit the last addresses that do not fit.

    Args:
        info: The sender.
        wants_answer: See `Beacon`; a question is padded to QUESTION_BYTES_MIN.
        peers: See `Beacon`.
        bytes_max: For an answer, the size of the question.

    Returns:
        The bytes, or None if the sender has no address or the beacon does not fit with a single one.
    """
    for count in range(len(info.addresses), 0, -1):
        shown = NodeInfo(info.id, info.addresses[:count], info.zone)
        data = _ENCODER.encode(Beacon(shown, wants_answer, peers))
        if wants_answer and len(data) < QUESTION_BYTES_MIN:
            # The header of the padding may grow by two bytes; a question may exceed the minimum slightly.
            data = _ENCODER.encode(Beacon(shown, wants_answer, peers, bytes(QUESTION_BYTES_MIN - len(data))))
        if len(data) <= bytes_max:
            return data
    return None


def decode_beacon(data: bytes) -> Beacon:
    """Decode a beacon.

    Raises:
        MessageError: The bytes are no beacon, or exceed a bound.
    """
    if len(data) > DATAGRAM_BYTES_MAX:
        raise MessageError(f"a beacon of {len(data)} bytes exceeds {DATAGRAM_BYTES_MAX}")
    try:
        return _BEACON_DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"not a valid beacon: {exc}") from exc


def check_info(info: NodeInfo) -> None:
    """Check that every peer will accept a node info.

    Structs built in Python do not check their fields, so this encodes and decodes the info with the rules of the peers.

    Raises:
        InfoError: A peer would reject the info.
    """
    try:
        _INFO_DECODER.decode(_ENCODER.encode(info))
    except (*_DECODE_ERRORS, TypeError) as exc:
        raise InfoError(f"{info!r} is not a valid node info: {exc}") from exc


def check_membership(group: GroupId, attributes: bytes = b"") -> None:
    """Check that every peer will accept a membership of a group.

    Args:
        group: The group.
        attributes: Data of the layer above for the users of the group, about this member; opaque here.

    Raises:
        InfoError: A peer would reject the membership.
    """
    try:
        _MEMBERSHIP_DECODER.decode(_ENCODER.encode((group, attributes)))
    except (*_DECODE_ERRORS, TypeError) as exc:
        raise InfoError(f"{group!r} with {len(attributes)} bytes of attributes is not a valid membership: {exc}") from exc
