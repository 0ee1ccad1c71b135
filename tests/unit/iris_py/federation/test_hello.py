"""Tests of iris_py/federation/handshake.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.handshake import (
    CONNECTIONS_MAX,
    HELLO_BYTES_MAX,
    NAME_LENGTH_MAX,
    HelloError,
    LineHello,
    decode_hello,
    encode_hello,
)
from iris_py.link.handshake import HANDSHAKE_BYTES_MAX

HELLO = LineHello(gateway=b"g" * 16, max_message_bytes=1 << 20)
FULL = LineHello(
    gateway=b"g" * 16,
    bundle=b"b" * 8,
    index=3,
    count=4,
    name="us",
    zone="us-east/a",
    max_message_bytes=1 << 26,
    time_ms=1_700_000_000_000,
)


@pytest.mark.parametrize("hello", [HELLO, FULL])
def test_it_is_read_as_it_was_written(hello: LineHello) -> None:
    assert decode_hello(encode_hello(hello)) == hello


def test_the_largest_one_has_room() -> None:
    largest = msgspec.structs.replace(FULL, name="\u00fc" * NAME_LENGTH_MAX, zone="\U00020000" * NAME_LENGTH_MAX)
    assert len(encode_hello(largest)) < HELLO_BYTES_MAX < HANDSHAKE_BYTES_MAX - 1024


def test_what_a_newer_version_adds_is_ignored() -> None:
    fields = msgspec.to_builtins(FULL, builtin_types=(bytes,)) | {"hops": [1, 2]}
    assert decode_hello(msgspec.msgpack.encode(fields)) == FULL


@pytest.mark.parametrize(
    "wrong",
    [
        {"gateway": b"g" * 15},
        {"gateway": b"g" * 17},
        {"gateway": None},
        {"bundle": b"b" * 7},
        {"bundle": b"b" * 9},
        {"index": -1},
        {"index": 4},
        {"count": 0},
        {"count": CONNECTIONS_MAX + 1},
        {"name": "x" * (NAME_LENGTH_MAX + 1)},
        {"name": "a\nb"},
        {"zone": "x" * (NAME_LENGTH_MAX + 1)},
        {"zone": "\x1b[31m"},
        {"max_message_bytes": 0},
        {"max_message_bytes": 1 << 63},
        {"time_ms": -1},
        {"more": "x" * HELLO_BYTES_MAX},
    ],
    ids=str,
)
def test_one_that_no_gateway_says(wrong: dict[str, Any]) -> None:
    fields = msgspec.to_builtins(FULL, builtin_types=(bytes,)) | wrong
    with pytest.raises(HelloError):
        decode_hello(msgspec.msgpack.encode(fields))


def test_one_that_nobody_would_take_is_not_said() -> None:
    with pytest.raises(HelloError):
        encode_hello(msgspec.structs.replace(FULL, name="a\nb"))


def test_what_has_to_be_there() -> None:
    for field in ("gateway", "max_message_bytes"):
        fields = msgspec.to_builtins(FULL, builtin_types=(bytes,))
        del fields[field]
        with pytest.raises(HelloError):
            decode_hello(msgspec.msgpack.encode(fields))


@given(st.binary(max_size=300) | st.just(b"\x81" * 2000) | st.just(b"\x91" * 2000))
def test_garbage_raises_one_error_alone(data: bytes) -> None:
    with pytest.raises(HelloError):
        decode_hello(data)
