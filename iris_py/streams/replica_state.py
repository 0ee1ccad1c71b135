"""The state of a replica beside its log: term, vote, and the synced part of the log, in two slots (docs/streams-format.md).

A save writes the slot that does not hold the newest state. So a torn write costs the save alone, and the state before remains.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from iris_py.streams.blocks import CHAIN_BYTES, ID_BYTES, ROOT_CHAIN

__all__ = ["SLOT_BYTES", "DamagedState", "ReplicaState", "SavedState", "SyncMark", "decode_slots", "encode_slot"]

#: The size of a slot. A disk writes at most this much at once without a tear in general.
SLOT_BYTES: Final = 4096
SLOTS: Final = 2
MAGIC: Final = b"IRST"
VERSION: Final = 1

# magic, version, is damaged; number; term, vote; mark: index, term, chain
_SLOT: Final = struct.Struct(f"<4sBB2xQQ{ID_BYTES}sQQ{CHAIN_BYTES}s")
_CRC: Final = struct.Struct("<I")
#: The zeros behind a state, up to the end of its slot.
_REST: Final = bytes(SLOT_BYTES - _SLOT.size - _CRC.size)


class DamagedState(ValueError):
    """No slot can be read, though one was written before."""


class SyncMark(msgspec.Struct, frozen=True, gc=False):
    """A synced part of the log: everything up to a block. It may be old, and is never ahead of the disk."""

    index: int
    term: int
    chain: bytes


class ReplicaState(NamedTuple):
    """The state of a replica."""

    term: int = 0
    vote: bytes = bytes(ID_BYTES)
    """The store that got the vote in this term; zeros for none."""
    mark: SyncMark = SyncMark(0, 0, ROOT_CHAIN)
    is_damaged: bool = False
    """Whether the replica lacks blocks before its mark, or had to find out."""


class SavedState(NamedTuple):
    """A state with its number."""

    number: int
    """Higher for each save."""
    state: ReplicaState

    @property
    def slot(self) -> int:
        """The slot that holds the state."""
        return self.number % SLOTS

    def followed_by(self, state: ReplicaState, *, is_synced: bool) -> SavedState:
        """Return the next state to save.

        Saves without a sync share the slot beside the newest synced state. A torn write never costs the synced state.

        Args:
            state: The next state.
            is_synced: Whether this state has been synced.
        """
        return SavedState(self.number + (1 if is_synced else SLOTS), state)


def encode_slot(saved: SavedState) -> bytes:
    """Return the `SLOT_BYTES` of a state, for its slot."""
    state, mark = saved.state, saved.state.mark
    packed = _SLOT.pack(
        MAGIC, VERSION, state.is_damaged, saved.number, state.term, state.vote, mark.index, mark.term, mark.chain
    )
    return packed + _CRC.pack(crc32(packed)) + _REST


def decode_slots(data: bytes) -> SavedState | None:
    """Return the newest state of both slots.

    Args:
        data: The file: two slots.

    Returns:
        None if nothing was ever written.

    Raises:
        DamagedState: Bytes were written, and no slot can be read; or a newer version has written them.
    """
    slots = [data[place : place + SLOT_BYTES] for place in range(0, SLOTS * SLOT_BYTES, SLOT_BYTES)]
    found = [saved for saved in map(_decode_slot, slots) if saved is not None]
    if found:
        return max(found, key=lambda saved: saved.number)
    if any(data):
        raise DamagedState("both slots of the state have changed")
    return None


def _decode_slot(slot: bytes) -> SavedState | None:
    packed, crc = slot[: _SLOT.size], slot[_SLOT.size : _SLOT.size + _CRC.size]
    if len(crc) < _CRC.size or not packed.startswith(MAGIC) or crc32(packed) != _CRC.unpack(crc)[0]:
        return None
    _magic, version, is_damaged, number, term, vote, *mark = _SLOT.unpack(packed)
    if version != VERSION:
        raise DamagedState(f"the version {version} of the state is newer than {VERSION}: update Iris")
    return SavedState(number, ReplicaState(term, vote, SyncMark(*mark), bool(is_damaged)))
