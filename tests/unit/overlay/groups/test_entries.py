"""Packed entries against sets: whatever the set says, the packed string says."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups import entries
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX, ENTRIES_MAX, ENTRY_BYTES, INSERTED_MAX, EntryFields

#: Few different values, so that two sets share some; the ends of the ranges among them.
FIELDS = st.tuples(
    st.sampled_from([0, 1, 255, 256, (1 << 64) - 1]),
    st.sampled_from([0, 1, (1 << 32) - 1]),
    st.sampled_from([0, 7, 1 << 63, (1 << 64) - 1]),
)
SETS = st.sets(FIELDS, max_size=20)


def many(count: int, seed: int = 1) -> set[EntryFields]:
    rng = random.Random(seed)
    return {(rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(64)) for _ in range(count)}


@given(SETS)
def test_packed_entries_are_sorted_and_come_back(values: set[EntryFields]) -> None:
    packed = entries.pack([*values, *values])
    assert entries.is_packed(packed)
    assert entries.unpack(packed) == sorted(values)
    assert entries.count(packed) == len(values)
    assert len(packed) == ENTRY_BYTES * len(values)


@given(SETS, SETS, SETS)
def test_a_change_is_that_of_sets(values: set[EntryFields], added: set[EntryFields], removed: set[EntryFields]) -> None:
    changed = entries.apply(entries.pack(values), entries.pack(added), entries.pack(removed))
    assert changed == entries.pack((values - removed) | added)


@given(SETS, SETS, SETS, st.booleans())
def test_the_effect_of_a_change_is_what_it_really_changes(
    values: set[EntryFields], added: set[EntryFields], removed: set[EntryFields], is_large: bool
) -> None:
    added |= many(INSERTED_MAX) if is_large else set()
    found = entries.effect(entries.pack(values), entries.pack(added), entries.pack(removed))
    assert found == (entries.pack(added - values), entries.pack((removed - added) & values))


@given(SETS, SETS)
def test_a_difference_is_exact_and_leads_from_one_to_the_other(old: set[EntryFields], new: set[EntryFields]) -> None:
    added, removed = entries.diff(entries.pack(old), entries.pack(new))
    assert (added, removed) == (entries.pack(new - old), entries.pack(old - new))
    assert entries.apply(entries.pack(old), added, removed) == entries.pack(new)


@given(st.lists(SETS, min_size=3, max_size=3))
def test_two_changes_are_one(states: list[set[EntryFields]]) -> None:
    first, second, third = map(entries.pack, states)
    assert entries.compose(entries.diff(first, second), entries.diff(second, third)) == entries.diff(first, third)


@given(SETS, SETS)
def test_checksums_are_equal_exactly_for_equal_entries(one: set[EntryFields], other: set[EntryFields]) -> None:
    checksums = [entries.checksum(entries.pack(values)) for values in (one, other)]
    assert (checksums[0] == checksums[1]) == (one == other)
    assert all(len(checksum) == entries.CHECKSUM_BYTES for checksum in checksums)


@pytest.mark.parametrize("count", [1, INSERTED_MAX, INSERTED_MAX + 1, 3_000])
def test_large_changes_are_those_of_sets_too(count: int) -> None:
    values, added = many(5_000), many(count, seed=2)
    removed = set(sorted(values)[:: 5_000 // count][:count])
    old, new = entries.pack(values), entries.pack((values - removed) | added)
    assert entries.apply(old, entries.pack(added), entries.pack(removed)) == new
    assert entries.diff(old, new) == (entries.pack(added), entries.pack(removed))


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        bytes(ENTRY_BYTES + 1),
        bytes(2 * ENTRY_BYTES),  # twice the same
        entries.pack([(2, 0, 0)]) + entries.pack([(1, 0, 0)]),
        b"".join(index.to_bytes(ENTRY_BYTES, "big") for index in range(ENTRIES_MAX + 1)),
    ],
)
def test_other_bytes_are_no_packed_entries(data: bytes) -> None:
    assert not entries.is_packed(data)


def test_as_many_entries_as_may_be_are_packed_entries() -> None:
    data = b"".join(index.to_bytes(ENTRY_BYTES, "big") for index in range(ENTRIES_MAX))
    assert len(data) == ENTRIES_BYTES_MAX
    assert entries.is_packed(data)


@pytest.mark.parametrize("fields", [(-1, 0, 0), (1 << 64, 0, 0), (0, 1 << 32, 0)])
def test_fields_beyond_their_sizes_are_refused(fields: EntryFields) -> None:
    with pytest.raises(struct.error):
        entries.pack([fields])
