"""The index of shares finds the nodes of each group, and no others."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic import share_index
from iris_py.patterns.topic.names import TopicTrie, parse_pattern, parse_topic
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import Row, group_tag, share_entries, split_shares
from iris_py.patterns.topic.share_index import TOPIC_GROUPS_MAX, Node, Share, ShareIndex
from iris_py.peers.member import WEIGHT_MAX

KEY = bytes(range(32))
HASHER = EntryHasher(KEY)
TOKEN = st.sampled_from("abc")
TOPIC = st.lists(TOKEN, min_size=1, max_size=4).map(".".join)
PATTERN = st.builds(
    lambda tokens, rest: ".".join([*tokens, ">"] if rest else tokens),
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.booleans(),
)
CLAIM = st.tuples(st.integers(0, 3), PATTERN, st.sampled_from(["g", "h"]))


def rows(claims: set[tuple[str, str]], weight: float = 1.0) -> list[Row]:
    shares = [(parse_pattern(pattern), group_tag(KEY, group), weight, False) for pattern, group in claims]
    return [row for row in split_shares(share_entries(HASHER, shares))[1] if row is not None]


def match_nodes(index: ShareIndex[Node], topic: str) -> dict[int, set[Node]]:
    return {tag: set(nodes) for tag, nodes in index.match(topic, HASHER.stem(topic.split(".")[0])).items()}


@given(st.lists(st.tuples(CLAIM, st.booleans()), max_size=30), st.lists(TOPIC, min_size=1, max_size=5))
def test_it_finds_exactly_the_nodes_whose_patterns_match(
    changes: list[tuple[tuple[int, str, str], bool]], topics: list[str]
) -> None:
    index: ShareIndex[int] = ShareIndex(HASHER)
    claims: dict[int, set[tuple[str, str]]] = {node: set() for node in range(4)}
    for (node, pattern, group), is_added in changes:
        before = rows(claims[node])
        (claims[node].add if is_added else claims[node].discard)((pattern, group))
        after = rows(claims[node])
        index.change(node, [row for row in after if row not in before], [row for row in before if row not in after])
    trie: TopicTrie[tuple[int, str]] = TopicTrie()
    for node, its in claims.items():
        for pattern, group in its:
            trie.add(parse_pattern(pattern), (node, group))
    for topic in topics:
        expected: dict[int, set[int]] = {}
        for node, group in trie.match(parse_topic(topic)):
            expected.setdefault(group_tag(KEY, group), set()).add(node)
        assert match_nodes(index, topic) == expected
    for node in range(4):
        index.remove(node)
    assert not index
    assert not match_nodes(index, topics[0])


def test_weights_of_several_patterns_add_up() -> None:
    index: ShareIndex[str] = ShareIndex(HASHER)
    index.change("n", rows({("a", "g"), ("b.>", "g"), ("a", "h")}, 2.0), ())
    groups = index.groups_of("n")
    assert groups.keys() == {group_tag(KEY, "g"), group_tag(KEY, "h")}
    assert round(groups[group_tag(KEY, "g")].weight, 1) == 4.0
    assert not index.groups_of("other")
    index.change("n", rows({("a", "h")}, 1.0), rows({("a", "h")}, 2.0))
    assert index.groups_of("n")[group_tag(KEY, "h")] == Share(1.0, blocks=False)


def test_a_node_with_many_shapes_does_not_crowd_out_others() -> None:
    with patch.object(share_index, "SHAPES_MAX", 4):
        index: ShareIndex[str] = ShareIndex(HASHER)
        greedy = {(".".join("a" if number >> bit & 1 else "*" for bit in range(4)) + ".>", "g") for number in range(16)}
        index.change("greedy", rows(greedy), ())
        index.change("honest", rows({("a.b", "g")}), ())
        assert index.match("a.b", HASHER.stem("a")) == {group_tag(KEY, "g"): {"honest": None}}
        assert index.shapes_many


def test_a_node_has_a_bounded_number_of_shares() -> None:
    with patch.object(share_index, "NODE_SHARES_MAX", 8):
        index: ShareIndex[str] = ShareIndex(HASHER)
        assert index.change("n", rows({(f"t{number}", "g") for number in range(20)}), ()) == 12
        assert len([number for number in range(20) if index.match(f"t{number}", HASHER.stem(f"t{number}"))]) <= 8
        index.remove("n")
        assert not index


def test_the_weights_of_a_node_are_bounded_together() -> None:
    index: ShareIndex[str] = ShareIndex(HASHER)
    index.change("greedy", rows({(f"t{number}", "g") for number in range(200)}, WEIGHT_MAX), ())
    assert index.groups_of("greedy")[group_tag(KEY, "g")] == Share(WEIGHT_MAX, blocks=False)


def test_a_node_has_a_bounded_number_of_groups_for_a_topic() -> None:
    index: ShareIndex[str] = ShareIndex(HASHER)
    index.change("greedy", rows({(pattern, f"g{number}") for number in range(100) for pattern in ("a", ">", "*")}), ())
    index.change("honest", rows({("a", "g")}), ())
    found = match_nodes(index, "a")
    assert found[group_tag(KEY, "g")] == {"honest"}
    assert len(found) == TOPIC_GROUPS_MAX + 1


def test_several_patterns_of_a_group_count_once_for_a_topic() -> None:
    index: ShareIndex[str] = ShareIndex(HASHER)
    claims = {(pattern, f"g{number}") for number in range(TOPIC_GROUPS_MAX) for pattern in ("a", ">", "*")}
    index.change("n", rows(claims), ())
    assert len(match_nodes(index, "a")) == TOPIC_GROUPS_MAX
