"""Tests of iris_py/wire/flows.py."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.wire.flows import (
    FETCHED_ENTRIES_MAX,
    FETCHED_MESSAGES_MAX,
    FLUSH,
    MISSED_ENTRIES,
    NO_ANSWER,
    MatchesBefore,
    MissedEntries,
    MissedRange,
    decode_count,
    decode_entries,
    decode_range,
    encode_cast,
    encode_flow,
    encode_moved,
    messages_between,
)
from iris_py.wire.packets import COUNT_BYTES, FETCH, FETCHED, FLOW, MESSAGE, MESSAGE_BYTES, SHARED_BODY_BYTES_MAX

U64 = st.integers(0, (1 << 64) - 1)


def test_the_bytes_of_each_message() -> None:
    assert (FLOW, FETCH, FETCHED, MISSED_ENTRIES, FLUSH, NO_ANSWER) == (19, 21, 22, 3, 4, 0xFFFF_FFFF)
    assert encode_flow(7, 3).hex() == "13000000" + "00000000" + "0000000000000007" + "00000003"
    assert len(encode_flow(7, 3)) == MESSAGE_BYTES
    assert MissedRange(7, 8, 12).encode().hex() == "0000000000000007" + "0000000000000008" + "000000000000000c"
    entries = MissedEntries(3, {0x0B: 1, 0x0A: 3})
    assert entries.encode().hex() == "000000000000000a" + "00000003" + "000000000000000b" + "00000001"


def test_the_bytes_of_a_count() -> None:
    message = MatchesBefore(0x0A, 7, 0x0B, 3).encode()
    assert message.hex() == "14000000" + "00000018" + "0000000000000003" + "00000000" + "".join(
        f"{value:016x}" for value in (0x0A, 7, 0x0B)
    )


@given(st.builds(MatchesBefore, U64, U64, U64, U64))
def test_a_count_comes_back(said: MatchesBefore) -> None:
    message = said.encode()
    _kind, _flags, _head, size, count, _argument = MESSAGE.unpack_from(message)
    assert size == COUNT_BYTES == len(message) - MESSAGE_BYTES
    assert decode_count(count, message[MESSAGE_BYTES:]) == said


@pytest.mark.parametrize("size", [0, COUNT_BYTES - 1, COUNT_BYTES + 1])
def test_a_malformed_count_is_none(size: int) -> None:
    assert decode_count(1, bytes(size)) is None


def test_the_bytes_of_casts_and_of_the_change_to_them() -> None:
    assert encode_cast(7, (1 << 32) + 3).hex() == "12000000" + "00000000" + "0000000000000007" + "00000003"
    assert encode_moved(7, (1 << 32) + 3).hex() == "1a000000" + "00000000" + "0000000000000007" + "00000003"


def test_a_count_beyond_32_bits_begins_anew() -> None:
    assert encode_flow(7, (1 << 32) + 5) == encode_flow(7, 5)
    assert messages_between((1 << 32) - 2, 3) == 5
    assert messages_between(4, 4) == 0


@given(U64, U64, U64)
def test_a_range_is_read_if_it_lies_in_its_flow(flow: int, after: int, before: int) -> None:
    asked = MissedRange(flow, after, before)
    assert decode_range(asked.encode()) == (asked if flow <= after < before else None)


@pytest.mark.parametrize("payload", [b"", bytes(23), bytes(25)])
def test_a_range_of_another_length_is_refused(payload: bytes) -> None:
    assert decode_range(payload) is None


@given(st.dictionaries(U64, st.integers(1, 5), min_size=1, max_size=9))
def test_entries_are_read_as_they_were_sent(counts: dict[int, int]) -> None:
    entries = MissedEntries(max(counts.values()), counts)
    assert decode_entries(entries.messages, entries.encode()) == entries


def test_no_message_needs_no_entry() -> None:
    assert decode_entries(0, b"") == MissedEntries(0, {})


@pytest.mark.parametrize(
    ("messages", "pairs"),
    [
        (NO_ANSWER, []),
        (1, []),  # each message matched some entry
        (3, [(1, 2)]),
        (1, [(1, 0), (2, 1)]),
        (1, [(1, 2)]),
        (2, [(1, 1), (1, 1)]),
        (FETCHED_MESSAGES_MAX + 1, [(1, FETCHED_MESSAGES_MAX + 1)]),
        (1, [(tag, 1) for tag in range(FETCHED_ENTRIES_MAX + 1)]),
    ],
)
def test_other_answers_are_refused(messages: int, pairs: list[tuple[int, int]]) -> None:
    payload = b"".join(struct.pack(">QI", *pair) for pair in pairs)
    assert decode_entries(messages, payload) is None


def test_a_cut_answer_is_refused() -> None:
    assert decode_entries(1, MissedEntries(1, {1: 1}).encode()[:-1]) is None


def test_the_largest_answer_fits_a_shared_body() -> None:
    entries = MissedEntries(FETCHED_MESSAGES_MAX, dict.fromkeys(range(FETCHED_ENTRIES_MAX), 1))
    assert decode_entries(entries.messages, entries.encode()) == entries
    assert MESSAGE_BYTES + len(entries.encode()) <= SHARED_BODY_BYTES_MAX
