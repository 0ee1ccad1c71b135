"""Header blocks of NATS as Iris headers, and back."""

from __future__ import annotations

import pytest

from iris_py.doors.nats.headers import (
    CarriedMessage,
    ReceivedBlock,
    carry,
    carry_request,
    read_carried,
    reply_header,
    responders_block,
    take_key,
    write_block,
)
from iris_py.wire.headers import encode_headers, put_headers

BLOCK = b"NATS/1.0\r\ntraceparent: 00-1\r\nName: \xc3\xa9 x\r\n\r\n"


def test_a_plain_block_becomes_headers() -> None:
    assert carry(BLOCK + b"hi", len(BLOCK), b"_INBOX.a.1") == CarriedMessage(
        {"traceparent": "00-1", "Name": "é x", "nats-reply": "_INBOX.a.1"}, b"hi"
    )
    assert carry(b"hi", -1, b"") == CarriedMessage({}, b"hi")


def test_a_request_is_carried_as_any_message_with_a_subject_for_replies() -> None:
    carried = carry(b"hi", -1, b"_INBOX.a.1")
    encoded = encode_headers(carried.headers).encoded
    assert carry_request(b"_INBOX.a.1", b"hi") == put_headers(encoded, carried.payload)
    assert reply_header(b"_INBOX.a.1") == encoded


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\na: b\r\n\r\n",
        b"NATS/1.0\r\na: 1\r\na: 2\r\n\r\n",
        b"NATS/1.0\r\na:1\r\n\r\n",
        b"NATS/1.0\r\na b: 1\r\n\r\n",
        b"NATS/1.0\r\na: 1\n2\r\n\r\n",
        b"NATS/1.0\r\na: \xff\r\n\r\n",
        b"NATS/1.0\r\na: \x00\r\n\r\n",
        b"NATS/1.0\r\n" + b"a" * 65 + b": 1\r\n\r\n",
        b"NATS/1.0\r\na: " + b"x" * 4000 + b"\r\n\r\n",
        b"NATS/1.0\r\niris-cloud: eu\r\n\r\n",
        b"NATS/1.0\r\nnats-reply: bank\r\n\r\n",
        b"NATS/1.0\r\n: 1\r\n\r\n",
        b"hello",
    ],
)
def test_another_block_stands_in_front_of_the_payload(block: bytes) -> None:
    assert carry(block + b"hi", len(block), b"") == CarriedMessage({"nats-head": len(block)}, block + b"hi")


def test_headers_of_native_programs_forge_no_protocol() -> None:
    block, omitted = write_block(
        {"a": "x\r\nb: y\0", "c:d": "1", "n": 5, "t": True, "b": b"\xc3\xa9", "f": b"\xff", "iris-cloud": "eu", "nats-x": "y"}
    )
    assert block == b"NATS/1.0\r\na: x  b: y \r\nn: 5\r\nt: true\r\nb: \xc3\xa9\r\n\r\n"
    assert omitted == 2
    assert write_block({"iris-cloud": "eu"}) == (b"", 0)


@pytest.mark.parametrize("reply", ["a b", "a\r\nPING", "", "x" * 600, 5])
def test_a_reply_of_a_native_program_that_is_no_subject_is_left_out(reply: str | int) -> None:
    assert read_carried({"nats-reply": reply}, b"hi") == ReceivedBlock(b"", 0, b"hi", 0)


@pytest.mark.parametrize("size", [0, -1, 3, True, "2", 2.0])
def test_a_size_of_a_native_program_that_is_none_is_left_out(size: str | int) -> None:
    assert read_carried({"nats-head": size, "a": "b"}, b"hi").content == b"NATS/1.0\r\na: b\r\n\r\nhi"


@pytest.mark.parametrize(
    ("block", "key", "rest"),
    [
        (b"NATS/1.0\r\nIris-Key: a b\r\nc: d\r\n\r\n", b"a b", b"NATS/1.0\r\nc: d\r\n\r\n"),
        (b"NATS/1.0\r\nc: d\r\niris-key:1\r\nIRIS-KEY: 2\r\n\r\n", b"1", b"NATS/1.0\r\nc: d\r\n\r\n"),
        (b"NATS/1.0\r\nIris-Key:\r\n\r\n", b"", b""),
        (b"NATS/1.0\r\nc: Iris-Key: 1\r\n\r\n", None, b"NATS/1.0\r\nc: Iris-Key: 1\r\n\r\n"),
        (b"", None, b""),
    ],
)
def test_the_key_is_taken_out_of_the_block_of_a_request(block: bytes, key: bytes | None, rest: bytes) -> None:
    payload = b"Iris-Key: 3\r\n"
    assert take_key(block + payload, len(block)) == (key, len(rest), rest + payload)


def test_a_client_is_told_the_subject_that_nobody_serves() -> None:
    assert responders_block(b"nobody") == b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n"
