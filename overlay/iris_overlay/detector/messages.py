"""The three datagrams of failure detectors, written as msgpack arrays whose first element names the message.

::

    Ping         [65, sequence, sender, target, accused or nil]              at most 48 bytes
    Ack          [66, sequence, responder, incarnation]                      at most 30 bytes
    PingRequest  [67, sequence, sender, target, host, port, accused or nil]  at most 69 bytes

`Beacon` (messages.py) is tag 64, and all datagrams have fewer than 16 elements, so their second byte is the tag and
tells who should read them (`is_detector_message`). Sealing, 49 bytes each, is the owner's business, and so is that a datagram
is read once.

An **Ack** goes to where the Ping came from, whatever address that was, and repeats its sequence. A helper that was sent a
**PingRequest** pings the target under a sequence of its own, and sends the answer on under the sequence of the request: so
`responder` is who lives, not who sent the datagram.

**accused** is the incarnation in which the target is suspected. The target answers with a higher one; nobody else ever raises
it (SWIM section 4.2).
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import MessageError
from iris_overlay.ids import ID_BYTES, NodeId

#: The largest of these datagrams. One of them makes us send one or two, hardly larger: nobody gains by making us talk.
DETECTOR_BYTES_MAX: Final = 69

#: Sequences wrap around. A probe lasts for seconds, and a node counts three a second: none is used twice within 45 years.
SEQUENCE_MAX: Final = (1 << 32) - 1

#: An incarnation grows once per wrong suspicion. It stays here when it gets here, after that many wrong suspicions.
INCARNATION_MAX: Final = (1 << 32) - 1

_IPV4_BYTES: Final = 4
_IPV6_BYTES: Final = 16

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
_Incarnation: TypeAlias = Annotated[int, Meta(ge=0, le=INCARNATION_MAX)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=65, gc=False):
    """Ask for a sign of life."""

    sequence: _Sequence
    """Repeated in the Ack."""
    sender: _NodeId
    """The node that asks: it lives, too."""
    target: _NodeId
    """The node that is asked. Another process may have its address by now, and must not answer for it."""
    accused: _Incarnation | None = None
    """The buddy system of Lifeguard (section 4.3): who is suspected is told first, and can refute."""


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=66, gc=False):
    """Give a sign of life, or hand one on."""

    sequence: _Sequence
    """That of the Ping or of the PingRequest."""
    responder: _NodeId
    """The node that lives."""
    incarnation: _Incarnation
    """Its own, higher than any that it knows to be suspected."""


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=67, gc=False):
    """Ask a third node to ping a target, in case only the way from here to there is broken."""

    sequence: _Sequence
    """Repeated in the Ack that the helper hands on."""
    sender: _NodeId
    """The node that asks."""
    target: _NodeId
    """The node to ping."""
    host: Annotated[bytes, Meta(max_length=_IPV6_BYTES)]
    """Its address, 4 or 16 bytes; empty when the sender knows none: perhaps the helper does."""
    port: Annotated[int, Meta(ge=0, le=65535)]
    """Its port; 0 without a host."""
    accused: _Incarnation | None = None
    """The incarnation in which the sender suspects the target; None while it only asks. It counts as confirmation."""


DetectorMessage: TypeAlias = Ping | Ack | PingRequest

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[DetectorMessage] = msgspec.msgpack.Decoder(DetectorMessage)
_TAGS: Final = frozenset((65, 66, 67))

# Besides its own errors, the decoder lets through what Python raises for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def is_detector_message(data: bytes) -> bool:
    """Return whether an authentic datagram is for the detector; it may be malformed nevertheless."""
    return len(data) > 1 and data[1] in _TAGS


def encode_detector_message(message: DetectorMessage) -> bytes:
    """Write a datagram."""
    return _ENCODER.encode(message)


def decode_detector_message(data: bytes) -> DetectorMessage:
    """Read a datagram.

    Raises:
        MessageError: The bytes are no such datagram, or break a bound.
    """
    if len(data) > DETECTOR_BYTES_MAX:
        raise MessageError(f"a detector's datagram of {len(data)} bytes exceeds {DETECTOR_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"no valid datagram of a detector: {exc}") from exc


def pack_address(address: tuple[str, int] | None) -> tuple[bytes, int]:
    """Write an address for a PingRequest.

    Returns:
        Host and port; nothing and 0 for what means something else, or nothing, to a helper: a name, an address with a scope.
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
    """Read the address of a PingRequest.

    Returns:
        None where a single node cannot be, or one must not be asked to send: a group, the unspecified address, port 0.
    """
    if port == 0 or len(host) not in (_IPV4_BYTES, _IPV6_BYTES):
        return None
    parsed = ipaddress.ip_address(host)
    inner = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    if any(form.is_multicast or form.is_unspecified or str(form) == "255.255.255.255" for form in (parsed, inner or parsed)):
        return None
    return str(parsed), port
