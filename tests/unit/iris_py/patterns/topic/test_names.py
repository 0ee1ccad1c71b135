"""Names of topics, patterns, and the index of patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic.names import (
    TOKENS_MAX,
    TOPIC_BYTES_MAX,
    Tokens,
    TopicTrie,
    literal_prefix,
    parse_pattern,
    parse_topic,
)

token = st.sampled_from(["a", "b", "c", "é"])
topics = st.lists(token, min_size=1, max_size=5).map(tuple)
patterns = st.builds(
    lambda body, rest: (*body, *rest) or ("*",),
    st.lists(token | st.just("*"), max_size=4),
    st.sampled_from([(), (">",)]),
)


def matches(pattern: Tokens, topic: Tokens) -> bool:
    """Compare token by token, as the definition says."""
    for index, expected in enumerate(pattern):
        if expected == ">":
            return len(topic) > index
        if index >= len(topic) or expected not in ("*", topic[index]):
            return False
    return len(pattern) == len(topic)


@pytest.mark.parametrize("topic", ["a", "a.b", "sensors.berlin.roof-1", "ü.日本", "a b", ".".join("a" * TOKENS_MAX), "x" * 255])
def test_topics_are_tokens_with_dots_between(topic: str) -> None:
    assert ".".join(parse_topic(topic)) == topic
    assert parse_pattern(topic) == parse_topic(topic)
    assert literal_prefix(parse_topic(topic)) == parse_topic(topic)


@pytest.mark.parametrize(
    ("topic", "advice"),
    [
        ("", "Give it tokens"),
        (7, "Give it tokens"),
        (".a", "empty token"),
        ("a.", "empty token"),
        ("a..b", "empty token"),
        ("a.*", "wildcard"),
        ("a.>", "wildcard"),
        ("a*", "wildcard"),
        ("a\0b", "Leave it out"),
        ("\ud800", "Leave the surrogates out"),
        ("x" * (TOPIC_BYTES_MAX + 1), "Choose a shorter one"),
        ("é" * 128, "Choose a shorter one"),
        (".".join("a" * (TOKENS_MAX + 1)), "Join some"),
    ],
)
def test_what_is_no_topic_is_refused_with_advice(topic: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_topic(topic)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (">", ()),
        ("*", ()),
        ("*.a", ()),
        ("a.>", ("a",)),
        ("a.*.c", ("a",)),
        ("a.b.*.>", ("a", "b")),
        ("a.b", ("a", "b")),
    ],
)
def test_the_literal_prefix_ends_before_the_first_wildcard(pattern: str, prefix: Tokens) -> None:
    assert literal_prefix(parse_pattern(pattern)) == prefix


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        (">.a", "as the last token"),
        ("a.b*", "mixes a wildcard with text"),
        ("a.>>", "mixes a wildcard with text"),
        ("a.**", "mixes a wildcard with text"),
    ],
)
def test_what_is_no_pattern_is_refused_with_advice(pattern: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_pattern(pattern)


@given(st.lists(st.tuples(patterns, st.integers(0, 3)), max_size=30), topics)
def test_the_trie_finds_what_a_naive_matcher_finds(entries: list[tuple[Tokens, int]], topic: Tokens) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for pattern, value in entries:
        trie.add(pattern, value)
    found = trie.match(topic)
    assert len(found) == len(set(found))
    assert set(found) == {value for pattern, value in entries if matches(pattern, topic)}
    assert len(trie) == len(set(entries))


@given(st.lists(st.tuples(patterns, st.integers(0, 3)), max_size=30), st.lists(st.tuples(patterns, st.integers(0, 3))), topics)
def test_what_was_removed_is_not_found_and_leaves_nothing(
    entries: list[tuple[Tokens, int]], others: list[tuple[Tokens, int]], topic: Tokens
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for entry in entries:
        trie.add(*entry)
    left = set(entries)
    for entry in others:
        assert trie.remove(*entry) == (entry in left)
        left.discard(entry)
    assert set(trie.match(topic)) == {value for pattern, value in left if matches(pattern, topic)}
    for entry in left:
        assert trie.remove(*entry)
    assert len(trie) == 0
    assert trie._root.is_empty


@given(st.lists(patterns, max_size=30), topics)
def test_topics_with_equal_deciding_tokens_have_equal_matches(entries: list[Tokens], topic: Tokens) -> None:
    trie: TopicTrie[Tokens] = TopicTrie()
    for pattern in entries:
        trie.add(pattern, pattern)
    bits = trie.literal_bits(topic)
    for position in range(len(topic)):
        if not bits >> position & 1:
            for other in ("a", "b", "c", "x"):
                alike = (*topic[:position], other, *topic[position + 1 :])
                assert trie.match(alike) == trie.match(topic)
                assert trie.literal_bits(alike) == bits


@given(st.text(st.sampled_from("abirs1.*>@\0é\ud800-"), max_size=12) | st.text(max_size=6), st.integers(0, 3))
def test_a_topic_is_a_pattern_without_wildcards(name: str, times: int) -> None:
    """The quick check of a plain name accepts what the other checks accept."""
    name *= times * 9 + 1
    try:
        pattern: Tokens | None = parse_pattern(name)
    except ValueError:
        pattern = None
    if pattern is not None and any("*" in token or ">" in token for token in pattern):
        pattern = None
    try:
        topic: Tokens | None = parse_topic(name)
    except ValueError:
        topic = None
    assert topic == pattern
