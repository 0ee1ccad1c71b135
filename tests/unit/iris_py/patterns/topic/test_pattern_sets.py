"""Sets of patterns: what two have in common, and fewer that stand for many, against every topic of a small world."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic.names import Tokens, TopicTrie
from iris_py.patterns.topic.pattern_sets import Wanted, covers, intersection, reduced

TOPICS = [tokens for length in (1, 2, 3) for tokens in itertools.product("ab", repeat=length)]
patterns = st.builds(
    lambda tokens, has_rest: tuple(tokens) + ((">",) if has_rest or not tokens else ()),
    st.lists(st.sampled_from(("a", "b", "*")), max_size=3),
    st.booleans(),
)


def matched(*those: Tokens) -> set[Tokens]:
    trie: TopicTrie[bool] = TopicTrie()
    for each in those:
        trie.add(each, True)
    return {topic for topic in TOPICS if trie.match(topic)}


@given(patterns, patterns)
def test_an_intersection_matches_what_both_match(one: Tokens, other: Tokens) -> None:
    both = intersection(one, other)
    assert both == intersection(other, one)
    assert (set() if both is None else matched(both)) == matched(one) & matched(other)


@given(patterns, patterns)
def test_a_pattern_covers_another_one_if_it_matches_all_of_it(one: Tokens, other: Tokens) -> None:
    if covers(one, other):
        assert matched(other) <= matched(one)
    assert covers((">",), one)
    assert covers(one, one)


@given(st.sets(patterns, max_size=12), st.integers(1, 12))
def test_fewer_patterns_match_all_that_many_do(many: set[Tokens], limit: int) -> None:
    few = reduced(many, limit)
    assert len(few) <= limit
    assert matched(*many) <= matched(*few)
    if len(many) <= limit:
        assert few == many


def test_what_has_most_in_common_gives_way_first() -> None:
    many = {("a", "b", str(number)) for number in range(5)} | {("a", "c"), ("d",)}
    assert reduced(many, 3) == {("a", "b", ">"), ("a", "c"), ("d",)}
    assert reduced({("a",), ("a", "b"), ("a", "c")}, 2) == {("a",), ("a", ">")}
    assert reduced({("a",), ("b", "c"), ("*", "d")}, 1) == {(">",)}


def test_wishes_are_counted() -> None:
    wanted = Wanted()
    assert wanted.add(("a",))
    assert not wanted.add(("a",))
    assert not wanted.remove(("a",))
    assert set(wanted) == {("a",)}
    assert wanted.remove(("a",))
    assert not len(wanted)


@given(st.sets(patterns, max_size=12), st.integers(1, 4))
def test_a_limit_of_kinds_leaves_patterns_of_few_kinds(many: set[Tokens], limit: int) -> None:
    few = reduced(many, limit, len)
    assert len(set(map(len, few))) <= limit
    assert matched(*many) <= matched(*few)
    if len(set(map(len, many))) <= limit:
        assert few == many


def test_the_group_of_most_kinds_gives_way_first() -> None:
    many = {("a", str(number)) for number in range(5)}
    assert reduced(many | {("b", "c"), ("b", "d", "e")}, 1, len) == many | {("b", ">")}
