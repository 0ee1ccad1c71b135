"""SHARED and TAKEN as bytes: the same on every version, and hostile ones are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from iris_py.wire.shares import (
    GROUP_BYTES_MAX,
    SERVICE_US_MAX,
    SHARED_GROUPS_MAX,
    WINDOW_MAX,
    SharedNumber,
    TakenCounts,
    decode_numbers,
    decode_taken,
    encode_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TAKEN = TakenCounts(7, 300, 2, 250, 64, 5, 1500, "billing")


def test_the_bytes_are_these() -> None:
    head = encode_numbers([SharedNumber(0x0102030405060708, 9, 10), SharedNumber(11, 12, (1 << 32) + 13)])
    assert head.hex() == "02" + "0102030405060708" + "0000000000000009" + "0000000a" + f"{11:016x}{12:016x}{13:08x}"
    assert TAKEN.encode().hex() == f"{7:016x}{300:08x}{2:08x}{64:08x}{5:08x}{1500:08x}" + b"billing".hex()


def test_what_is_encoded_is_decoded() -> None:
    numbers = [SharedNumber(tag, tag + 1, tag + 2) for tag in range(SHARED_GROUPS_MAX)]
    assert decode_numbers(encode_numbers(numbers) + b"topic") == (numbers, b"topic")
    assert decode_taken(250, TAKEN.encode()) == TAKEN


def test_hostile_heads_are_refused() -> None:
    row = SharedNumber(1, 2, 3)
    assert decode_numbers(b"") is None
    assert decode_numbers(b"\0topic") is None
    assert decode_numbers(encode_numbers([row])[:-1]) is None
    assert decode_numbers(encode_numbers([row, row])) is None, "a group twice"
    assert decode_numbers(encode_numbers([row._replace(group=tag) for tag in range(SHARED_GROUPS_MAX + 1)])) is None


def test_hostile_counts_are_bounded() -> None:
    most = (1 << 32) - 1
    taken = decode_taken(most, TakenCounts(1, most, most, 0, most, most, most, "g").encode())
    assert taken == TakenCounts(1, most, most, most, WINDOW_MAX, WINDOW_MAX, SERVICE_US_MAX, "g")
    assert decode_taken(0, TAKEN.encode()[:28]) is None, "no name"
    assert decode_taken(0, TAKEN.encode() + bytes(GROUP_BYTES_MAX)) is None
    assert decode_taken(0, TAKEN.encode() + b"\xff") is None


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_no_bytes_raise(data: bytes, number: int) -> None:
    decoders: list[Callable[[], object]] = [lambda: decode_numbers(data), lambda: decode_taken(number, data)]
    for decode in decoders:
        decode()
