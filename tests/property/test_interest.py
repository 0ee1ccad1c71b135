"""Properties of iris_py/patterns/topic/interest.py: it finds what a trie of the same patterns finds, after any changes."""

from __future__ import annotations

import itertools
from collections import Counter
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris_py.patterns.topic import interest
from iris_py.patterns.topic.interest import WIDE_TAG, InterestIndex
from iris_py.patterns.topic.names import Tokens, TopicTrie
from iris_py.patterns.topic.shapes import ENTRY, EntryHasher
from tests.profiles import examples

HASHER = EntryHasher(bytes(32))
TARGETS = "ABCDE"
TOPICS = [tokens for length in (1, 2, 3) for tokens in itertools.product("ab", repeat=length)]
PATTERNS = st.builds(
    lambda body, rest: (*body, *rest) or ("*",),
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.sampled_from([(), (">",)]),
)
CHANGES = st.lists(PATTERNS, max_size=4)


class Route:
    """The targets of topics. Each route is another object."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets


def packed(patterns: list[Tokens]) -> bytes:
    return b"".join(sorted(HASHER.entry(each).pack() for each in patterns))


class InterestMachine(RuleBasedStateMachine):
    """Nodes that add and remove patterns, in tables that may have the same entry twice."""

    shapes_max = interest.SHAPES_MAX

    def __init__(self) -> None:
        super().__init__()
        # Small, so that few entries reach them.
        self.patches = [
            patch.object(interest, "BUCKET_ROWS", 2),
            patch.object(interest, "ROUTES_MAX", 6),
            patch.object(interest, "ROUTE_NODES_MAX", 7),
            patch.object(interest, "STEMS_MAX", 1),
            patch.object(interest, "SHAPES_MAX", self.shapes_max),
        ]
        for each in self.patches:
            each.start()
        self.index: InterestIndex[str, Route] = InterestIndex(HASHER, Route)
        self.held: dict[str, Counter[Tokens]] = {target: Counter() for target in TARGETS}

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    @rule(node=st.sampled_from(TARGETS), added=CHANGES, data=st.data())
    def change(self, node: str, added: list[Tokens], data: st.DataObject) -> None:
        held = self.held[node]
        removed = [each for each in sorted(held.elements()) if data.draw(st.booleans())]
        assert self.index.change(node, packed(added), packed(removed)) == 0
        held.subtract(removed)
        held.update(added)
        self.held[node] = +held

    @rule(node=st.sampled_from(TARGETS))
    def leave(self, node: str) -> None:
        self.index.change(node, b"", packed(list(self.held[node].elements())))
        self.held[node].clear()

    @rule(node=st.sampled_from(TARGETS), shape=st.integers(0, 2**32 - 1))
    def lie(self, node: str, shape: int) -> None:
        entry = ENTRY.pack(1 - (shape & 1), shape, 7)  # a stem that no pattern of this shape has
        assert self.index.change(node, entry) == 1
        assert self.index.change(node, b"", entry) == 1

    def expected(self, topic: Tokens) -> tuple[set[str], set[int]]:
        """Return the targets, and the tags of the matching patterns."""
        trie: TopicTrie[tuple[str, Tokens]] = TopicTrie()
        for target, held in self.held.items():
            for pattern in held:
                trie.add(pattern, (target, pattern))
        matches = trie.match(topic)
        return {target for target, _ in matches}, {HASHER.entry(pattern).tag for _, pattern in matches}

    @invariant()
    def finds_what_the_trie_finds(self) -> None:
        for topic in TOPICS:
            route, tags, _stem = self.index.match(".".join(topic))
            targets, expected_tags = self.expected(topic)
            self.check(set(route.targets), targets, set(tags), expected_tags)
            assert len(set(route.targets)) == len(route.targets)
            assert len(set(tags)) == len(tags)

    def check(self, found: set[str], expected: set[str], tags: set[int], expected_tags: set[int]) -> None:
        assert found == expected
        assert tags == expected_tags

    @invariant()
    def equal_sets_share_a_route(self) -> None:
        one, other = (self.index.match(".".join(topic))[0] for topic in (TOPICS[0], TOPICS[1]))
        assert (one is other) == (set(one.targets) == set(other.targets))

    @invariant()
    def topics_with_equal_deciding_tokens_match_alike(self) -> None:
        found: dict[tuple[object, ...], object] = {}
        for topic in TOPICS:
            route, tags, stem = self.index.match(".".join(topic))
            bits = self.index.literal_bits(stem, len(topic))
            deciding = tuple(token for position, token in enumerate(topic) if bits >> position & 1)
            match = (route.targets, tags)
            assert found.setdefault((topic[0], len(topic), bits, deciding), match) == match

    @invariant()
    def counts_the_entries(self) -> None:
        assert len(self.index) == sum(held.total() for held in self.held.values())
        assert {target for target in TARGETS if target in self.index} == {each for each in TARGETS if self.held[each]}


class CrowdedMachine(InterestMachine):
    """The same with a bound of shapes that the nodes exceed."""

    shapes_max = 3

    @rule()
    def settle(self) -> None:
        self.index.settle(lambda target: packed(list(self.held[target].elements())))
        assert not self.index.is_crowded

    def check(self, found: set[str], expected: set[str], tags: set[int], expected_tags: set[int]) -> None:
        assert expected <= found
        assert tags - {WIDE_TAG} <= expected_tags
        if WIDE_TAG not in tags:
            assert found == expected
            assert tags == expected_tags


TestInterest = InterestMachine.TestCase
TestInterest.settings = settings(max_examples=examples(60), stateful_step_count=20)
TestCrowded = CrowdedMachine.TestCase
TestCrowded.settings = settings(max_examples=examples(60), stateful_step_count=20)
