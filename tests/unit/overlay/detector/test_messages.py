"""Tests of iris_overlay/detector/messages.py, and of what a detector makes of damaged ones."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.detector.messages import (
    DETECTOR_BYTES_MAX,
    INCARNATION_MAX,
    SEQUENCE_MAX,
    Ack,
    DetectorMessage,
    Ping,
    PingRequest,
    decode_detector_message,
    encode_detector_message,
    is_detector_message,
    pack_address,
    unpack_address,
)
from iris_overlay.errors import MessageError
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo, encode_beacon
from tests.profiles import examples
from tests.unit.overlay.detector.harness import LOCAL, STRANGER, STRANGER_ID, Harness, contact

IDS = st.binary(min_size=16, max_size=16).map(NodeId)


SEQUENCES = st.integers(0, SEQUENCE_MAX)


ACCUSED = st.none() | st.integers(0, INCARNATION_MAX)


MESSAGES: st.SearchStrategy[DetectorMessage] = st.one_of(
    st.builds(Ping, SEQUENCES, IDS, IDS, ACCUSED),
    st.builds(Ack, SEQUENCES, IDS, st.integers(0, INCARNATION_MAX)),
    st.builds(PingRequest, SEQUENCES, IDS, IDS, st.binary(max_size=16), st.integers(0, 65535), ACCUSED),
)


@given(MESSAGES)
def test_messages_survive_and_are_small(message: DetectorMessage) -> None:
    data = encode_detector_message(message)
    assert len(data) <= DETECTOR_BYTES_MAX < 70
    assert is_detector_message(data)
    assert decode_detector_message(data) == message


def test_the_wire_format_is_pinned() -> None:
    one, two = NodeId(b"1" * 16), NodeId(b"2" * 16)
    assert encode_detector_message(Ping(7, one, two)).hex() == "9541" + "07" + "c410" + "31" * 16 + "c410" + "32" * 16 + "c0"
    assert encode_detector_message(Ack(7, one, 3)).hex() == "9442" + "07" + "c410" + "31" * 16 + "03"
    request = encode_detector_message(PingRequest(7, one, two, b"\x7f\0\0\1", 80, 3))
    assert request.hex() == "9743" + "07" + "c410" + "31" * 16 + "c410" + "32" * 16 + "c4047f000001" + "50" + "03"
    largest = (SEQUENCE_MAX, one, two)
    assert len(encode_detector_message(Ping(*largest, INCARNATION_MAX))) == 48
    assert len(encode_detector_message(Ack(SEQUENCE_MAX, one, INCARNATION_MAX))) == 30
    assert len(encode_detector_message(PingRequest(*largest, b"h" * 16, 65535, INCARNATION_MAX))) == 69


def test_beacons_are_told_from_detector_messages() -> None:
    beacon = encode_beacon(NodeInfo(LOCAL, ("192.0.2.1:1",)), wants_answer=True, peers=0)
    assert beacon is not None
    assert not is_detector_message(beacon)
    assert not is_detector_message(b"")
    assert not is_detector_message(b"\x95")


@given(
    st.binary(max_size=100) | st.tuples(st.sampled_from([b"\x95A", b"\x94B", b"\x97C"]), st.binary(max_size=80)).map(b"".join)
)
def test_only_message_errors_leave_the_decoder(data: bytes) -> None:
    try:
        message = decode_detector_message(data)
    except MessageError:
        return
    assert len(encode_detector_message(message)) <= DETECTOR_BYTES_MAX


@given(MESSAGES, st.integers(0, 68), st.integers(0, 255))
@settings(max_examples=examples(200))
def test_a_detector_survives_damaged_datagrams(message: DetectorMessage, at: int, byte: int) -> None:
    harness = Harness()
    data = bytearray(encode_detector_message(message))
    data[at % len(data)] = byte
    harness.detector.receive_datagram(STRANGER_ID, bytes(data), STRANGER, harness.now)
    harness.run_for(5.0)


def long_number(number: int) -> bytes:
    return b"\xcf" + number.to_bytes(8, "big")


LONG_REQUEST = (
    b"\xdd\0\0\0\x07"
    + long_number(67)
    + long_number(1)
    + (b"\xc6\0\0\0\x10" + b"i" * 16) * 2
    + b"\xc4\0"
    + long_number(1)
    + b"\xc0"
)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x90",
        b"\x95\x41" + b"\xdd\xff\xff\xff\xff",
        b"\x91" * 69,
        msgspec.msgpack.encode([65, 1, b"1" * 15, b"2" * 16]),
        msgspec.msgpack.encode([65, -1, b"1" * 16, b"2" * 16]),
        msgspec.msgpack.encode([66, SEQUENCE_MAX + 1, b"1" * 16, 0]),
        msgspec.msgpack.encode([66, 1, b"1" * 16, INCARNATION_MAX + 1]),
        msgspec.msgpack.encode([67, 1, b"1" * 16, b"2" * 16, b"h" * 17, 1]),
        msgspec.msgpack.encode([67, 1, b"1" * 16, b"2" * 16, b"host", 65536]),
        # Valid, but for its size: every number and length is written longer than needed.
        LONG_REQUEST,
        encode_detector_message(Ack(1, LOCAL, 0)) + b"\0",
        encode_detector_message(Ack(1, LOCAL, 0)) + bytes(70),
    ],
)
def test_malformed_datagrams_are_counted(data: bytes) -> None:
    harness = Harness()
    harness.detector.receive_datagram(STRANGER_ID, data, STRANGER, harness.now)
    assert harness.detector.counters.datagrams_invalid == 1
    assert harness.take() == []


@pytest.mark.parametrize("address", [("10.1.2.3", 1), ("2001:db8::1", 65535)])
def test_addresses_survive(address: tuple[str, int]) -> None:
    assert unpack_address(*pack_address(address)) == address


@pytest.mark.parametrize("address", [None, ("db.example", 1), ("fe80::1%eth0", 1), ("", 1)])
def test_addresses_that_mean_nothing_elsewhere_are_not_sent(address: tuple[str, int] | None) -> None:
    assert pack_address(address) == (b"", 0)


@pytest.mark.parametrize("host", ["224.0.0.1", "0.0.0.0", "255.255.255.255", "ff02::1", "::", "::ffff:224.0.0.1"])
def test_a_helper_sends_to_no_group(host: str) -> None:
    packed, port = pack_address((host, 7000))
    assert unpack_address(packed, port) is None
    assert unpack_address(b"12345", port) is None
    assert unpack_address(b"1234", 0) is None


@pytest.mark.parametrize(
    "message", [Ping(1, contact(1).id, LOCAL, 0), PingRequest(1, contact(1).id, contact(2).id, bytes((192, 0, 2, 1)), 7000, 0)]
)
def test_nobody_asks_in_the_name_of_another_node(message: Ping | PingRequest) -> None:
    harness = Harness()
    harness.detector.receive_datagram(STRANGER_ID, encode_detector_message(message), STRANGER, harness.now)
    assert harness.detector.counters.datagrams_invalid == 1
    assert harness.take() == []
