"""Decoders of what nodes say about the ring, groups and each other: only their errors, and what is read can be said again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from iris_overlay.detector.messages import (
    Ack,
    DetectorMessage,
    Ping,
    PingRequest,
    decode_detector_message,
    encode_detector_message,
    is_detector_message,
    unpack_address,
)
from iris_overlay.errors import AddressError, MessageError
from iris_overlay.groups.messages import GroupMessage, decode_group_message, encode_group_message
from iris_overlay.node_info import (
    DATAGRAM_BYTES_MAX,
    NodeInfo,
    check_info,
    check_membership,
    decode_beacon,
    encode_beacon,
)
from iris_overlay.peers.addresses import is_dialable, parse_address
from iris_overlay.peers.reachability import (
    ECHO_BYTES_MAX,
    NUMBER_MAX,
    EchoMessage,
    EchoReply,
    EchoRequest,
    decode_echo,
    encode_echo,
)
from iris_overlay.ring.messages import RingMessage, decode_ring_message, encode_ring_message
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.fuzz.values import Values
from tests.unit.overlay.overlays import GROUP, LOCAL, ONE

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = Values([LOCAL, ONE], [GROUP])


def reads(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    """Return a target: what is no message is refused, and what is one is the same when it is written and read again."""

    def run(data: bytes) -> None:
        try:
            message = decode(data)
        except MessageError:
            return
        assert decode(encode(message)) == message

    return run


def run_detector(data: bytes) -> None:
    """Read a message of the detector, and what is in it."""
    try:
        message = decode_detector_message(data)
    except MessageError:
        return
    said = encode_detector_message(message)  # in its shortest form, which `data` may not be
    assert is_detector_message(said)
    assert decode_detector_message(said) == message
    if isinstance(message, PingRequest):
        address = unpack_address(message.host, message.port)
        assert address is None or 0 < address[1] < 65536


def run_beacon(data: bytes) -> None:
    """Read a beacon, and say one of the same node."""
    try:
        beacon = decode_beacon(data)
    except MessageError:
        return
    check_info(beacon.info)
    again = encode_beacon(beacon.info, wants_answer=beacon.wants_answer, peers=beacon.peers)
    if again is not None:
        assert len(again) <= DATAGRAM_BYTES_MAX
        shown = decode_beacon(again).info
        assert shown.addresses == beacon.info.addresses[: len(shown.addresses)]


def run_address(data: bytes) -> None:
    """Read an address, as a peer says where it listens."""
    text = data.decode("latin-1")
    try:
        host, port = parse_address(text)
    except AddressError:
        assert not is_dialable(text)
        return
    assert host
    assert 0 < port < 65536
    is_dialable(text)


def valid(kinds: Any, encode: Callable[[Any], bytes]) -> tuple[bytes, ...]:
    """Return a few messages of each kind."""
    inputs = (b"", bytes(range(1, 200)), b"\x05" * 100, b"\x13" * 50)
    return tuple(encode(VALUES.message(kind, Source(data))) for kind in get_args(kinds) for data in inputs)


def run_group(data: bytes) -> None:
    """Read a message about groups; what a peer may say of a member, a node may pass on."""
    try:
        message = decode_group_message(data)
    except MessageError:
        return
    assert decode_group_message(encode_group_message(message)) == message
    for member in getattr(message, "members", ()):
        check_info(member.info)
        check_membership(getattr(message, "group", GROUP), member.attributes)


BEACONS = tuple(
    beacon
    for info in (ONE, NodeInfo(ONE.id, ("[::1]:1", "name.example:65535"), "zone"))
    for wants in (False, True)
    if (beacon := encode_beacon(info, wants_answer=wants, peers=7)) is not None
)
DETECTOR: tuple[DetectorMessage, ...] = (
    Ping(1, ONE.id, LOCAL.id, None),
    Ping(1, ONE.id, LOCAL.id, 7),
    Ack(1, ONE.id, 2),
    PingRequest(1, ONE.id, LOCAL.id, bytes(16), 0, None),
    PingRequest(1, ONE.id, LOCAL.id, bytes(10) + b"\xff\xff\x0a\x00\x00\x01", 7000, 3),
)
assert {type(message) for message in DETECTOR} == set(get_args(DetectorMessage))

ECHOES: tuple[EchoMessage, ...] = (
    EchoRequest(1, ONE.id, LOCAL.id, b""),
    EchoRequest(NUMBER_MAX, ONE.id, LOCAL.id, bytes(600)),
    EchoReply(1, ONE.id, bytes(9)),
)

TARGETS = (
    Target(
        "ring-message",
        reads(decode_ring_message, encode_ring_message),
        Kind.DECODER,
        valid(RingMessage, encode_ring_message),
    ),
    Target("group-message", run_group, Kind.DECODER, valid(GroupMessage, encode_group_message)),
    Target(
        "detector-message", run_detector, Kind.DECODER, tuple(encode_detector_message(message) for message in DETECTOR), 200
    ),
    Target("echo", reads(decode_echo, encode_echo), Kind.DECODER, tuple(map(encode_echo, ECHOES)), ECHO_BYTES_MAX + 50),
    Target("beacon", run_beacon, Kind.DECODER, BEACONS, DATAGRAM_BYTES_MAX + 50),
    Target("overlay-address", run_address, Kind.DECODER, (b"198.51.100.1:7000", b"[::1]:1", b"a.example:00535"), 80),
)
