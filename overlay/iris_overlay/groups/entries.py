"""The entries of a member of a table: 20-byte values, packed as one sorted string without duplicates.

An entry is ``>QIQ``: stem, shape and tag, opaque here. Two nodes with the same entries have the same bytes. So a checksum of
the bytes compares them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The fields of an entry: stem, shape, tag.
EntryFields: TypeAlias = tuple[int, int, int]

_ENTRY: Final = struct.Struct(">QIQ")

#: The place of the shape in an entry.
SHAPE_AT: Final = 8

#: The size of an entry.
ENTRY_BYTES: Final = _ENTRY.size

#: The largest number of entries of one member of one table. Too small: a gateway with many subscriptions reaches it. Too large:
#: all of them have to fit into one message (320 KiB).
ENTRIES_MAX: Final = 16_384

#: The largest size of the packed entries of one member.
ENTRIES_BYTES_MAX: Final = ENTRIES_MAX * ENTRY_BYTES

#: The size of a checksum: 64 bits, because a member can deceive only about its own entries.
CHECKSUM_BYTES: Final = 8

#: The bit of the shape of a *fixed* entry, which is never promoted (promotions.py). Owners use it for entries that say
#: something about one member, though others may have the same one. With stem 0 it stays in a table that is split, too.
FIXED: Final = 1 << 31

#: The number of changed entries up to which `apply` looks up the place of each in the packed string. Too small: a change of a
#: few entries takes apart a string of 320 KiB (3 ms). Too large: each look-up takes 5 us.
INSERTED_MAX: Final = 512


def pack(entries: Iterable[EntryFields]) -> bytes:
    """Pack entries: sorted, without duplicates.

    Args:
        entries: Stem (64 bits), shape (32 bits) and tag (64 bits) of each.

    Raises:
        struct.error: A number is negative or has too many bits.
    """
    return b"".join(sorted({_ENTRY.pack(*entry) for entry in entries}))


def unpack(packed: bytes) -> list[EntryFields]:
    """Return the entries of a packed string, in its order."""
    return list(_ENTRY.iter_unpack(packed))


def is_packed(data: bytes) -> bool:
    """Return whether bytes are packed entries: whole ones, strictly ascending, at most ENTRIES_MAX."""
    if len(data) % ENTRY_BYTES or len(data) > ENTRIES_BYTES_MAX:
        return False
    if len(data) <= ENTRY_BYTES:
        return True
    entries = split(data)
    return all(entries[index] < entries[index + 1] for index in range(len(entries) - 1))


def count(packed: bytes) -> int:
    """Return the number of packed entries."""
    return len(packed) // ENTRY_BYTES


def checksum(packed: bytes) -> bytes:
    """Return CHECKSUM_BYTES that compare the entries of two nodes: BLAKE2b of the packed string."""
    return blake2b(packed, digest_size=CHECKSUM_BYTES).digest()


def apply(packed: bytes, added: bytes, removed: bytes = b"") -> bytes:
    """Return packed entries without the removed and with the added ones; an entry in both is added."""
    if not packed and not removed:
        return added
    if count(added) + count(removed) <= INSERTED_MAX:
        return apply_exactly(packed, added, removed)[0]
    gone = set(split(removed)).union(split(added))
    kept = [entry for entry in split(packed) if entry not in gone]
    return b"".join(sorted(kept + split(added)))  # two sorted runs


def effect(packed: bytes, added: bytes, removed: bytes) -> tuple[bytes, bytes]:
    """Return the entries that `apply` really adds and removes; fast for few entries."""
    _result, really_added, really_removed = apply_exactly(packed, added, removed)
    return really_added, really_removed


def apply_exactly(packed: bytes, added: bytes, removed: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the results of `apply` and of `effect`, for the time of one."""
    if count(added) + count(removed) > INSERTED_MAX:
        result = apply(packed, added, removed)
        return result, *diff(packed, result)
    if not removed and len(added) == ENTRY_BYTES:  # the usual change, in a third of the time
        at = _find(packed, added)
        if packed[at : at + ENTRY_BYTES] == added:
            return packed, b"", b""
        return packed[:at] + added + packed[at:], added, b""
    new = set(split(added))
    pieces, really_added, really_removed = [], [], []
    start = 0
    for entry in sorted(new.union(split(removed))):
        at = _find(packed, entry, start)
        is_there = packed[at : at + ENTRY_BYTES] == entry
        pieces.append(packed[start:at])
        start = at + ENTRY_BYTES * is_there
        if entry in new:
            pieces.append(entry)
            if not is_there:
                really_added.append(entry)
        elif is_there:
            really_removed.append(entry)
    pieces.append(packed[start:])
    return b"".join(pieces), b"".join(really_added), b"".join(really_removed)


def contains(packed: bytes, entry: bytes) -> bool:
    """Return whether packed entries have one."""
    at = _find(packed, entry)
    return packed[at : at + ENTRY_BYTES] == entry


def diff(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Return the packed entries to add to, and to remove from, old ones to get new ones."""
    if old == new:
        return b"", b""
    if not old or not new:
        return new, old
    start = _common(old, new)
    before, after = old[start:], new[start:]
    end = _common(before, after, is_at_end=True)
    had, has = set(split(before[: len(before) - end])), set(split(after[: len(after) - end]))
    return b"".join(sorted(has - had)), b"".join(sorted(had - has))


def compose(first: tuple[bytes, bytes], second: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the net change (added and removed entries) of two changes.

    Each change is exact: an added entry was not there before it, and a removed one was.
    """
    (added, removed), (added_later, removed_later) = first, second
    net_added = apply(apply(added, b"", removed_later), diff(removed, added_later)[0])
    net_removed = apply(apply(removed, b"", added_later), diff(added, removed_later)[0])
    return net_added, net_removed


def is_fixed(entry: bytes) -> bool:
    """Return whether a packed entry is fixed; false for an empty string."""
    return bool(entry) and bool(entry[SHAPE_AT] & 0x80)


def split(packed: bytes) -> list[bytes]:
    """Return the packed entries, one each."""
    return [packed[at : at + ENTRY_BYTES] for at in range(0, len(packed), ENTRY_BYTES)]


def _find(packed: bytes, entry: bytes, start: int = 0) -> int:
    """Return the place of an entry in a packed string at or behind a place, or the place for it (bytes)."""
    starts = range(start, len(packed), ENTRY_BYTES)
    return start + ENTRY_BYTES * bisect_left(starts, entry, key=lambda start: packed[start : start + ENTRY_BYTES])


def _common(one: bytes, other: bytes, *, is_at_end: bool = False) -> int:
    """Return the size of the longest common beginning, or end, of two packed strings, in whole entries."""
    low, high = 0, min(len(one), len(other)) // ENTRY_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        size = middle * ENTRY_BYTES
        if one.endswith(other[-size:]) if is_at_end else one.startswith(other[:size]):
            low = middle
        else:
            high = middle - 1
    return low * ENTRY_BYTES
