"""Shares as rows of the table: what is claimed is what publishers read, and hostile rows are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups.entries import ENTRY_BYTES, FIXED, is_fixed, is_packed, pack, split
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import (
    GROUP_BITS,
    PatternRow,
    ShareRow,
    StemRow,
    check_group,
    decode_weight,
    encode_weight,
    group_tag,
    has_shares,
    share_entries,
    split_shares,
)

KEY = bytes(range(32))
HASHER = EntryHasher(KEY)


def test_a_share_is_read_as_it_was_claimed() -> None:
    tag = group_tag(KEY, "billing")
    pattern = parse_pattern("orders.*.eu.>")
    stem, shape, pattern_tag = HASHER.entry(pattern)
    packed = share_entries(HASHER, [(pattern, tag, 1.0, True)])
    assert is_packed(packed)
    plain, rows = split_shares(packed)
    assert not plain
    assert set(rows) == {StemRow(stem), PatternRow(shape, pattern_tag), ShareRow(pattern_tag >> 32, tag, 1.0, blocks=True)}


def test_shares_beside_plain_entries() -> None:
    plain = pack([HASHER.entry(parse_pattern(pattern)) for pattern in ("a", "*.b", ">", "a.b.>")])
    assert not has_shares(plain)
    assert split_shares(plain) == (plain, [])
    shares = share_entries(HASHER, [(("*", "b"), group_tag(KEY, "g"), 2.0, False), (("a",), group_tag(KEY, "g"), 2.0, False)])
    both = b"".join(sorted([*split(plain), *split(shares)]))
    assert has_shares(both)
    assert split_shares(both)[0] == plain
    assert len(split_shares(both)[1]) == 5, "two patterns, two shares, and one first token"


def test_a_pattern_of_several_groups_has_one_pattern_row() -> None:
    shares = [(("a", ">"), group_tag(KEY, name), 1.0, False) for name in ("g", "h", "i")]
    assert len(split(share_entries(HASHER, shares))) == 2 + 3


def test_the_rows_are_these() -> None:
    tag = 0x2_3456_789A_BCDE
    rows = split(share_entries(HASHER, [(("a",), tag, 100.0, True)]))
    _stem, shape, pattern_tag = HASHER.entry(("a",))
    assert rows[0].hex() == "00" * 8 + f"{1 << 31 | shape:08x}" + f"{pattern_tag:016x}"
    assert rows[1].hex() == "00" * 8 + f"{0b101_1 << 28 | 1000 << 18 | tag >> 32:08x}" + f"{pattern_tag >> 32:08x}789abcde"
    assert rows[2].hex() == "00" * 8 + f"{0b110 << 29:08x}" + f"{HASHER.stem('a'):016x}"


@pytest.mark.parametrize(
    "row",
    [
        (0, FIXED | 0b11 << 29, 1),  # no kind
        (0, FIXED | 0b10 << 29, 0),  # no stem
        (0, FIXED | 0b10 << 29 | 1, 5),
        (0, FIXED | 1 << 22, 5),  # no shape
        (0, FIXED, 5),  # a pattern without tokens
        (5, FIXED | 0b01 << 29, 5),  # a share under a stem
    ],
)
def test_hostile_rows_are_refused(row: tuple[int, int, int]) -> None:
    assert split_shares(pack([row])) == (b"", [None])


@given(st.floats(0.01, 100.0))
def test_a_weight_is_exact_to_one_percent(weight: float) -> None:
    assert decode_weight(encode_weight(weight)) == pytest.approx(weight, rel=0.005)


def test_some_weights_are_exact_and_others_bounded() -> None:
    assert [decode_weight(encode_weight(weight)) for weight in (1.0, 1000.0)] == [1.0, 100.0]
    assert decode_weight(encode_weight(0.0)) == 0.01
    assert decode_weight(1023) == 100.0


def test_the_tag_of_a_group_depends_on_name_and_key() -> None:
    tags = {group_tag(key, name) for key in (KEY, bytes(32)) for name in ("a", "b", "billing")}
    assert len(tags) == 6
    assert all(tag < 1 << GROUP_BITS for tag in tags)


@pytest.mark.parametrize("name", ["", "é" * 33, "a\0b", "a@eu", "iris.x", "\ud800", None, 3])
def test_wrong_names_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match=r"[.]$"):
        check_group(name)


def test_other_names_are_taken() -> None:
    for name in ("billing", "é" * 32, "a.b", "irises", "*"):
        check_group(name)


def test_only_rows_of_shares_are_fixed() -> None:
    assert not is_fixed(b"")
    assert not any(is_fixed(entry) for entry in split(pack([HASHER.entry(("a",) * 16), HASHER.entry((">",))])))
    assert all(is_fixed(entry) for entry in split(share_entries(HASHER, [(("a",), 1, 1.0, False)])))
    assert len(pack([(0, FIXED, 1)])) == ENTRY_BYTES
