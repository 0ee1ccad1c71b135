"""The messages between two gateways: round trips, bounds, and whatever else a neighbour says."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation import messages
from iris_py.federation.calls import Call, call_head
from iris_py.federation.messages import (
    ALLOW_BLOCK,
    CHANNEL_NUMBERS,
    CONTROL_BYTES_MAX,
    NAME_BYTES_MAX,
    OPTIONS_BYTES_MAX,
    REQUIRED,
    RULES_MAX,
    Catalogue,
    CatalogueEntry,
    Control,
    Count,
    Echo,
    Going,
    LineError,
    Open,
    Opened,
    Probe,
    Quiet,
    Refused,
    WatchCount,
    Withdrawn,
    decode_control,
    decode_messages,
    decode_request,
    encode_control,
    encode_message,
)
from iris_py.federation.rules import USES
from iris_py.wire import packets

ENTRY = CatalogueEntry(0xFFFF, 1, "clicks.>", 127, 2.5, 0xFFFF_FFFF)
MESSAGES: list[Control] = [
    Catalogue(1, ()),
    Catalogue(0xFFFF_FFFF, (ENTRY, CatalogueEntry(0, 0, "db", 1, 0.0, 0))),
    Open(0, 0, 0, 0, "", 0, 0, b"", b""),
    Open(CHANNEL_NUMBERS - 1, 7, 3, 1023, "n" * NAME_BYTES_MAX, 0xFFFF_FFFF, 0xFFFF_FFFF, b"o" * OPTIONS_BYTES_MAX, b"h"),
    Opened(1, 1 << 20),
    Refused(1, b"\6\x80"),
    WatchCount(3, "db", is_on=True),
    Count("db", 12),
    Going(),
    Quiet(),
    Probe(0xFFFF_FFFF),
    Echo(0),
    Withdrawn(5),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_control_messages_come_as_they_were_sent(message: Control) -> None:
    data = encode_control(message)
    assert decode_control(data) == message
    assert data[0] == messages._TYPES[type(message)] < REQUIRED


def test_every_control_message_is_here_and_has_a_type_of_its_own() -> None:
    assert {type(message) for message in MESSAGES} == set(messages._TYPES)
    assert len(set(messages._TYPES.values())) == len(messages._TYPES)


def test_fields_that_newer_versions_add_are_ignored() -> None:
    data = bytes((8,)) + msgspec.msgpack.encode([5, "new", None])
    assert decode_control(data) == Probe(5)


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        (1, [0, [[0x10000, 0, "a", 1, 0.0, 1]]]),
        (1, [0, [[0, 0, "a" * (NAME_BYTES_MAX + 1), 1, 0.0, 1]]]),
        (1, [0, [[n, 0, "a", 1, 0.0, 1] for n in range(RULES_MAX + 1)]]),
        (1, [-1, []]),
        (1, [0]),
        (2, [CHANNEL_NUMBERS, 0, 0, 0, "", 0, 0, b"", b""]),
        (2, [-1, 0, 0, 0, "", 0, 0, b"", b""]),
        (2, [1 << 64 - 1, 0, 0, 0, "", 0, 0, b"", b""]),
        (2, [0, 0, 0, 0, "", 0, 0, b"o" * (OPTIONS_BYTES_MAX + 1), b""]),
        (2, [0, 0, 0, 0, "", 0, 0, b"", b"h" * (OPTIONS_BYTES_MAX + 1)]),
        (2, [0, 0, 0, 0, b"name", 0, 0, b"", b""]),
        (3, [CHANNEL_NUMBERS, 0]),
        (4, [0, "text"]),
        (5, [0, "db", 1]),
        (6, ["db", -1]),
        (8, [1 << 32]),
        (8, {}),
        (8, "x"),
    ],
)
def test_what_is_out_of_bounds_is_an_error(type_: int, fields: object) -> None:
    with pytest.raises(LineError):
        decode_control(bytes((type_,)) + msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\1\xc1", b"\2\x99" + b"\0" * 3, b"\6\x92\xa2\xff\xff\0", b"\1" + b"\x91" * 5000]
)
def test_what_is_no_msgpack_is_an_error(data: bytes) -> None:
    with pytest.raises(LineError):
        decode_control(data)


def test_types_that_are_not_known_are_skipped_or_end_the_bundle() -> None:
    assert decode_control(b"\x63anything") is None
    assert decode_control(bytes((REQUIRED - 1,))) is None
    with pytest.raises(LineError, match="128"):
        decode_control(bytes((REQUIRED,)))


def test_a_control_message_has_a_size() -> None:
    assert decode_control(b"\x63" + bytes(CONTROL_BYTES_MAX - 1)) is None
    with pytest.raises(LineError, match="size"):
        decode_control(b"\x63" + bytes(CONTROL_BYTES_MAX))


def test_the_largest_catalogue_fits() -> None:
    largest = Catalogue(1, tuple(CatalogueEntry(n, 1, "n" * 240, 127, 1e9, 0xFFFF_FFFF) for n in range(RULES_MAX)))
    assert len(encode_control(largest)) > CONTROL_BYTES_MAX or decode_control(encode_control(largest)) == largest


def test_bits_of_uses_are_those_of_rules() -> None:
    assert 1 << len(USES) == ALLOW_BLOCK
    assert 1 << USES.index("request") == messages.ALLOW_REQUEST
    assert 1 << USES.index("publish") == messages.ALLOW_PUBLISH


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    with suppress(LineError):
        message = decode_control(data)
        assert message is None or decode_control(encode_control(message)) == message


# -- bodies


def body(*messages: list[bytes]) -> bytes:
    return b"".join(part for message in messages for part in message)


def test_messages_of_a_body_come_as_they_were_sent() -> None:
    data = body(
        encode_message(packets.REQUEST, 1, 5000, b"headers", (b"call", b"payload")),
        encode_message(packets.CANCEL, 2, 0, b"", ()),
        encode_message(packets.REPLY, 3, 0, b"", (b"\0reply",)),
    )
    padded = b"before" + data + b"after"
    assert decode_messages(padded, 6, 6 + len(data)) == [
        (packets.REQUEST, 1, 5000, b"headers", b"callpayload"),
        (packets.CANCEL, 2, 0, b"", b""),
        (packets.REPLY, 3, 0, b"", b"\0reply"),
    ]


def test_a_body_that_is_cut_off_anywhere_is_an_error_or_shorter() -> None:
    data = body(encode_message(packets.REQUEST, 1, 5000, b"h", (b"call",)), encode_message(packets.REPLY, 3, 0, b"", (b"r",)))
    ends = {len(body(encode_message(packets.REQUEST, 1, 5000, b"h", (b"call",)))), len(data)}
    for stop in range(len(data) + 1):
        if stop in ends:
            assert decode_messages(data, 0, stop)
        else:
            with pytest.raises(LineError):
                decode_messages(data, 0, stop)


def test_a_large_body_has_one_message() -> None:
    one = encode_message(packets.REPLY, 1, 0, b"", (bytes(40_000),))
    assert len(decode_messages(body(one), 0, len(body(one)))) == 1
    two = body(one, one)
    with pytest.raises(LineError):
        decode_messages(two, 0, len(two))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_an_error(data: bytes) -> None:
    with suppress(LineError):
        found = decode_messages(data, 0, len(data))
        assert body(*(encode_message(k, n, a, h, (p,)) for k, n, a, h, p in found))[::1].__len__() == len(data)


@pytest.mark.parametrize(
    "payload", [b"", b"\1", call_head(Call(name="")), call_head(Call(op=2, name="db")), call_head(Call(name="db"))[:-1]]
)
def test_a_request_that_is_none(payload: bytes) -> None:
    with pytest.raises(LineError):
        decode_request(payload)


def test_a_request_comes_as_it_was_sent() -> None:
    call = Call(name="db", payload=b"x", identity=b"i" * 16, is_anchored=True, is_sealed=True, prefer="a", require="b")
    assert decode_request(call_head(call) + call.payload) == call
