"""The state of a replica in two slots: the newest readable one counts."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.streams.replica_state import (
    SLOT_BYTES,
    DamagedState,
    ReplicaState,
    SavedState,
    SyncMark,
    decode_slots,
    encode_slot,
)


def write(file: bytearray, saved: SavedState) -> None:
    file[saved.slot * SLOT_BYTES : (saved.slot + 1) * SLOT_BYTES] = encode_slot(saved)


def states() -> list[SavedState]:
    found = []
    for number in range(1, 4):
        mark = SyncMark(10 * number, number, bytes((number,)) * 8)
        found.append(SavedState(number, ReplicaState(number, bytes((number,)) * 16, mark, is_damaged=number == 2)))
    return found


def test_the_newest_state_counts() -> None:
    file = bytearray(2 * SLOT_BYTES)
    assert decode_slots(bytes(file)) is None, "nothing was written"
    for saved in states():
        write(file, saved)
        assert decode_slots(bytes(file)) == saved


@given(st.integers(0, 8 * 70 - 1))
def test_a_changed_slot_costs_the_last_save_alone(bit: int) -> None:
    file = bytearray(2 * SLOT_BYTES)
    _first, second, third = states()
    write(file, second)
    write(file, third)
    used = len(encode_slot(third).rstrip(b"\0"))
    file[third.slot * SLOT_BYTES + bit // 8 % used] ^= 1 << bit % 8
    assert decode_slots(bytes(file)) == second


def test_two_changed_slots_are_an_error_and_no_new_beginning() -> None:
    file = bytearray(2 * SLOT_BYTES)
    for saved in states():
        write(file, saved)
    for slot in range(2):
        file[slot * SLOT_BYTES + 20] ^= 1
    with pytest.raises(DamagedState, match="both slots"):
        decode_slots(bytes(file))


def test_a_state_of_a_newer_version_is_refused() -> None:
    slot = bytearray(encode_slot(states()[0]).rstrip(b"\0"))[:-4]
    slot[4] = 2
    with pytest.raises(DamagedState, match="update Iris"):
        decode_slots((bytes(slot) + struct.pack("<I", crc32(slot))).ljust(2 * SLOT_BYTES, b"\0"))
