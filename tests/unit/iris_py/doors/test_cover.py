"""Cover of patterns, against brute force over all topics of a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.rights import covers
from iris_py.patterns.topic.names import TopicTrie, parse_pattern

#: `c` stands for tokens that no pattern has. Topics are longer than patterns, for `>` to match more than one token.
TOPICS = [topic for length in range(1, 6) for topic in product("abc", repeat=length)]


def matched(pattern: tuple[str, ...]) -> set[tuple[str, ...]]:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(pattern, 1)
    return {topic for topic in TOPICS if trie.match(topic)}


patterns = st.builds(
    lambda tokens, rest: (*tokens, ">") if rest or not tokens else tuple(tokens),
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.booleans(),
)


@given(patterns, patterns)
def test_a_pattern_covers_another_if_it_matches_all_of_its_topics(wide: tuple[str, ...], narrow: tuple[str, ...]) -> None:
    assert covers(wide, narrow) == (matched(narrow) <= matched(wide))


def test_a_star_covers_no_rest() -> None:
    assert not covers(parse_pattern("a.*"), parse_pattern("a.>"))
    assert covers(parse_pattern("a.>"), parse_pattern("a.*"))
    assert covers(parse_pattern(">"), parse_pattern("*.b.>"))
    assert not covers(parse_pattern("*.>"), parse_pattern(">"))
