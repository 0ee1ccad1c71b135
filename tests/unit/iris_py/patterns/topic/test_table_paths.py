"""The paths of tables: which bits select a child, and which entries stay."""

from __future__ import annotations

from iris_overlay.groups.splits import BY_STEM, BY_TAG, UNSPLIT, TableSplit
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.shapes import Entry, EntryHasher
from iris_py.patterns.topic.table_paths import DEPTH_MAX, TOP, TopicWay, child_path, place_of

ENTRY = Entry(0x1234_0000_0000_0000, 5, 0x5678_0000_0000_0000)


def place(entry: Entry, **splits: TableSplit) -> bytes:
    return place_of(entry, lambda path: splits.get("top" + path.hex(), UNSPLIT))


def test_each_level_of_a_way_uses_the_next_bits() -> None:
    path = TOP
    for way, value in ((BY_STEM, ENTRY.stem), (BY_TAG, ENTRY.tag), (BY_STEM, ENTRY.stem), (BY_TAG, ENTRY.tag)):
        path = child_path(path, way, value)
    assert path == bytes([0x11, 0x25, 0x12, 0x26])


def test_an_entry_is_in_the_last_table_that_is_known_on_its_way() -> None:
    by_stem, by_tag = TableSplit(BY_STEM), TableSplit(BY_TAG, frozenset([5]))
    assert place(ENTRY) == TOP
    assert place(ENTRY, top=by_stem) == bytes([0x11])
    assert place(ENTRY, top=by_stem, top11=by_stem, top1112=by_tag) == bytes([0x11, 0x12, 0x25])
    assert place(ENTRY, top=by_tag) == bytes([0x25])
    assert place(ENTRY, top=TableSplit(BY_STEM | BY_TAG, frozenset([5]))) == bytes([0x11]), "the stem goes first"


def test_entries_without_a_stem_or_with_a_shape_that_is_not_named_stay() -> None:
    assert place(Entry(0, 4, 7), top=TableSplit(BY_STEM | BY_TAG, frozenset([4]))) == TOP
    assert place(ENTRY, top=TableSplit(BY_TAG, frozenset([4]))) == TOP


def test_tables_of_the_last_level_have_no_children() -> None:
    hasher = EntryHasher(bytes(32))
    deepest = place_of(ENTRY, lambda _: TableSplit(BY_STEM))
    assert len(deepest) == DEPTH_MAX
    way = TopicWay(parse_pattern("a.b"), hasher)
    assert len(way.children(deepest[:-1], TableSplit(BY_STEM))) == 1
    assert way.children(deepest, TableSplit(BY_STEM)) == set()


def test_a_table_split_by_tag_has_a_child_for_each_shape_that_fits_the_topic() -> None:
    hasher = EntryHasher(bytes(32))
    patterns = ["a.b", "a.*", "a.>", "a.b.c", "*.b"]
    entries = {pattern: hasher.entry(parse_pattern(pattern)) for pattern in patterns}
    split = TableSplit(BY_TAG, frozenset([entry.shape for entry in entries.values()] + [2**31]))
    found = TopicWay(parse_pattern("a.b"), hasher).children(TOP, split)
    assert found == {child_path(TOP, BY_TAG, entries[pattern].tag) for pattern in ("a.b", "a.*", "a.>")}
