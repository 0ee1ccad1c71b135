"""Entries of patterns: shapes, keyed hashes, the check of foreign entries, and fewer patterns within the bounds of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic.names import TOKENS_MAX, Tokens, TopicTrie, parse_pattern
from iris_py.patterns.topic.shapes import (
    COUNTED,
    ENTRY,
    NODE_SHAPES_MAX,
    WILD_STEM,
    EntryHasher,
    can_match,
    counted_entries,
    is_entry,
    is_exact,
    literal_positions,
    pattern_of,
    shape_of,
    widen,
)

HASHER = EntryHasher(bytes(32))
patterns = st.builds(
    lambda body, rest: (*body, *rest) or ("*",),
    st.lists(st.sampled_from(["a", "b", "c", "*"]), max_size=4),
    st.sampled_from([(), (">",)]),
)


def pattern(text: str) -> Tokens:
    return parse_pattern(text)


@pytest.mark.parametrize(
    ("text", "count", "rest", "literal"),
    [
        ("orders.*.eu.>", 3, 1, 0b101),
        ("a", 1, 0, 0b1),
        ("*", 1, 0, 0),
        (">", 0, 1, 0),
        ("*.b", 2, 0, 0b10),
        (".".join("a" * TOKENS_MAX), TOKENS_MAX, 0, 0xFFFF),
        (".".join("a" * (TOKENS_MAX - 1)) + ".>", TOKENS_MAX - 1, 1, 0x7FFF),
    ],
)
def test_a_shape_has_the_number_of_tokens_the_rest_and_the_literal_positions(
    text: str, count: int, rest: int, literal: int
) -> None:
    shape = shape_of(pattern(text))
    assert shape == count << 17 | rest << 16 | literal
    assert literal_positions(shape) == [bit for bit in range(16) if literal >> bit & 1]
    assert is_entry(literal & 1, shape)
    assert is_exact(shape) == ("*" not in text and ">" not in text)
    assert [length for length in range(20) if can_match(shape, length)] == [
        length for length in range(20) if (length > count if rest else length == count)
    ]


@pytest.mark.parametrize(
    ("stem", "shape"),
    [
        (1, 17 << 17 | 1),  # too many tokens
        (1, 16 << 17 | 1 << 16 | 1),  # and with the rest
        (1, 31 << 17 | 1),
        (1, 1 << 22 | 1 << 17 | 1),  # bits above the number of tokens
        (1, 2 << 17 | 0b101),  # literal tokens beyond the last
        (WILD_STEM, 0),  # no token at all
        (1, 1),
        (WILD_STEM, 2 << 17 | 0b01),  # a literal first token without a stem
        (1, 2 << 17 | 0b10),  # a stem without a literal first token
        (1, 1 << 16),
    ],
)
def test_an_entry_that_no_pattern_has_is_refused(stem: int, shape: int) -> None:
    assert not is_entry(stem, shape)


def test_equal_tags_need_the_same_shape_the_same_tokens_and_the_same_key() -> None:
    texts = ["a.b", "a.*.b", "*.a.b", "a.b.>", "a.*.b.>", "a", "*", "*.*", ">", "b.a", "a.c"]
    entries = {HASHER.entry(pattern(text)) for text in texts}
    assert len({entry.tag for entry in entries}) == len(texts)
    assert HASHER.entry(pattern("a.*.b")) == EntryHasher(bytes(32)).entry(pattern("a.*.b"))
    assert EntryHasher(bytes([1] * 32)).entry(pattern("a.b")).tag != HASHER.entry(pattern("a.b")).tag
    assert EntryHasher(bytes([1] * 32)).stem("a") != HASHER.stem("a")


def test_patterns_with_the_same_first_token_have_the_same_stem() -> None:
    stems = [HASHER.entry(pattern(text)).stem for text in ("a", "a.b", "a.*.>", "b", "*.a", ">")]
    assert stems == [HASHER.stem("a")] * 3 + [HASHER.stem("b")] + [WILD_STEM] * 2


def test_the_bytes_of_an_entry_are_fixed() -> None:
    """Nodes of different versions must compute the same numbers."""
    entry = EntryHasher(bytes(range(32))).entry(pattern("orders.*.eu.>"))
    assert entry.pack().hex() == "7e00525c4a1bacd9000700056c542506031eb5c5"
    assert ENTRY.unpack(entry.pack()) == entry


@given(st.sets(patterns, max_size=20), st.integers(1, 6), st.integers(1, 3))
def test_widened_patterns_match_all_and_keep_the_bounds(many: set[Tokens], entries_max: int, shapes_max: int) -> None:
    few = widen(many, entries_max, shapes_max)
    assert len(few) <= entries_max
    trie: TopicTrie[bool] = TopicTrie()
    for each in few:
        trie.add(each, True)
    for each in many:
        topics = [tuple("a" if token == "*" else token for token in each)]
        if each[-1] == ">":
            topics = [(*topics[0][:-1], "z"), (*topics[0][:-1], "z", "z")]
        for topic in topics:
            assert trie.match(topic)
    stems = {each[0] if each[0] != ">" else "*" for each in few}
    for stem in stems:
        under = {shape_of(each) for each in few if (each[0] if each[0] != ">" else "*") == stem}
        assert len(under) <= shapes_max


def test_patterns_within_the_bounds_stay() -> None:
    many = {pattern(text) for text in ("a.b", "a.*", "*.b", ">", "b.c.d")}
    assert widen(many) == many


def test_many_shapes_under_one_token_leave_other_tokens_exact() -> None:
    odd = {("a", *["*"] * count, "b") for count in range(NODE_SHAPES_MAX + 1) if count < TOKENS_MAX - 2}
    odd |= {("a", *["*"] * count, ">") for count in range(5)}
    exact = {("b", str(number)) for number in range(100)}
    few = widen(odd | exact)
    assert exact < few
    assert few - exact == {("a", ">")}


@given(patterns, st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6))
def test_a_counted_entry_is_another_one_that_matches_the_same_topics(one: Tokens, topic: list[str]) -> None:
    plain, counted = HASHER.entry(one), HASHER.entry(one, is_counted=True)
    assert (counted.stem, counted.shape) == (plain.stem, plain.shape | COUNTED)
    assert counted.tag != plain.tag
    assert is_entry(counted.stem, counted.shape)
    assert is_exact(counted.shape) == is_exact(plain.shape)
    assert literal_positions(counted.shape) == literal_positions(plain.shape)
    assert can_match(counted.shape, len(topic)) == can_match(plain.shape, len(topic))
    trie: TopicTrie[str] = TopicTrie()
    trie.add(one, "x")
    if trie.match(tuple(topic)):
        assert pattern_of(counted.shape, tuple(topic)) == pattern_of(plain.shape, tuple(topic)) == one


@given(st.lists(st.tuples(patterns, st.booleans()), max_size=8))
def test_counted_entries_are_found_among_others(drawn: list[tuple[Tokens, bool]]) -> None:
    entries = [HASHER.entry(each, is_counted=is_counted) for each, is_counted in drawn]
    assert counted_entries(b"".join([entry.pack() for entry in entries])) == [
        entry for entry, (_, is_counted) in zip(entries, drawn, strict=True) if is_counted
    ]


def test_entries_with_unknown_flags_or_a_false_shape_are_none() -> None:
    entry = HASHER.entry(("a",), is_counted=True)
    for false in (entry._replace(shape=entry.shape | 1 << 25), entry._replace(stem=0), entry._replace(shape=1 << 22 | 1)):
        assert not is_entry(false.stem, false.shape)
        assert counted_entries(false.pack()) == []
