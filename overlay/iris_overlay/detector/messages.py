"""The three datagrams of failure detectors, encoded as msgpack arrays with the message's tag first::

    Ping         [65, sequence, sender, target, accused or nil]              at most 48 bytes
    Ack          [66, sequence, responder, incarnation]                      at most 30 bytes
    PingRequest  [67, sequence, sender, target, host, port, accused or nil]  at most 69 bytes

`Beacon` (messages.py) has tag 64. All datagrams have fewer than 16 elements, so the second byte is the tag and selects the
receiver (`is_detector_message`). The owner encrypts datagrams and rejects repeated ones.

An **Ack** goes to the source address of the Ping and repeats its sequence. A helper that received a **PingRequest** pings the
target with its own sequence, and passes on the answer with the sequence of the request. So `responder` names the live node, not
the sender of the datagram.

**accused** is the incarnation in which the target is suspected. The target answers with a higher incarnation, which only the
target itself raises (SWIM section 4.2).

This module omits `from __future__ import annotations`, which would make msgspec evaluate each annotation for the decoder.
"""

import ipaddress
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import MessageError
from iris_overlay.ids import ID_BYTES, NodeId

#: The size of the largest datagram of a detector. Each causes one or two datagrams hardly larger, so an attacker gains no
#: amplification.
DETECTOR_BYTES_MAX: Final = 69

#: Sequences wrap around. A probe takes seconds and a node uses three sequences a second, so none repeats within 45 years.
SEQUENCE_MAX: Final = (1 << 32) - 1

#: An incarnation grows once per wrong suspicion, and stays at this maximum.
INCARNATION_MAX: Final = (1 << 32) - 1

_IPV4_BYTES: Final = 4
_IPV6_BYTES: Final = 16

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
_Incarnation: TypeAlias = Annotated[int, Meta(ge=0, le=INCARNATION_MAX)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=65, gc=False):
    """Ask a node for a sign of life (`Ack`)."""

    sequence: _Sequence
    """The sequence for the Ack."""
    sender: _NodeId
    """The pinging node, which is alive too."""
    target: _NodeId
    """The pinged node. Another process may have its address by now, and must not answer for it."""
    accused: _Incarnation | None = None
    """The suspected incarnation, so that a suspect learns of the suspicion first and can refute (Lifeguard, section 4.3)."""


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=66, gc=False):
    """Show that a node lives, directly or as a helper."""

    sequence: _Sequence
    """The sequence of the Ping or PingRequest."""
    responder: _NodeId
    """The live node."""
    incarnation: _Incarnation
    """The incarnation of the live node, higher than any incarnation known to be suspected."""


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=67, gc=False):
    """Ask a helper to ping a target, in case only the path from the sender is broken."""

    sequence: _Sequence
    """The sequence for the helper's Ack."""
    sender: _NodeId
    """The requesting node."""
    target: _NodeId
    """The node to ping."""
    host: Annotated[bytes, Meta(max_length=_IPV6_BYTES)]
    """The address of the target, 4 or 16 bytes; empty if unknown to the sender: the helper may know it."""
    port: Annotated[int, Meta(ge=0, le=65535)]
    """The port of the target; 0 without a host."""
    accused: _Incarnation | None = None
    """The incarnation in which the sender suspects the target, which confirms other suspicions; None before a suspicion."""


DetectorMessage: TypeAlias = Ping | Ack | PingRequest

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[DetectorMessage] = msgspec.msgpack.Decoder(DetectorMessage)
_TAGS: Final = frozenset((65, 66, 67))

# Besides its own errors, the decoder passes on Python's errors for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def is_detector_message(data: bytes) -> bool:
    """Return whether an authentic datagram is for the detector; it may be malformed."""
    return len(data) > 1 and data[1] in _TAGS


def encode_detector_message(message: DetectorMessage) -> bytes:
    """Encode a datagram of a failure detector."""
    return _ENCODER.encode(message)


def decode_detector_message(data: bytes) -> DetectorMessage:
    """Decode a datagram of a failure detector.

    Raises:
        MessageError: The bytes are no datagram of a detector, or exceed a bound.
    """
    if len(data) > DETECTOR_BYTES_MAX:
        raise MessageError(f"a detector's datagram of {len(data)} bytes exceeds {DETECTOR_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"not a valid datagram of a detector: {exc}") from exc


def pack_address(address: tuple[str, int] | None) -> tuple[bytes, int]:
    """Encode an address for a PingRequest.

    Returns:
        Host and port; an empty host and 0 for an address that a helper cannot use: a name or an address with a scope.
    """
    if address is None:
        return b"", 0
    host, port = address
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return b"", 0
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id is not None:
        return b"", 0
    return parsed.packed, port


def unpack_address(host: bytes, port: int) -> tuple[str, int] | None:
    """Decode the address of a PingRequest.

    Returns:
        None for an address that is no single node or must not be pinged: multicast, unspecified, broadcast or port 0.
    """
    if port == 0 or len(host) not in (_IPV4_BYTES, _IPV6_BYTES):
        return None
    parsed = ipaddress.ip_address(host)
    inner = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    if any(form.is_multicast or form.is_unspecified or str(form) == "255.255.255.255" for form in (parsed, inner or parsed)):
        return None
    return str(parsed), port
