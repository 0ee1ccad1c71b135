"""Properties of iris_py/patterns/topic/table_paths.py: a publisher looks at every table where an entry for its topic may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups.splits import BY_STEM, BY_TAG, UNSPLIT, TableSplit
from iris_py.patterns.topic.names import Tokens, TopicTrie
from iris_py.patterns.topic.shapes import EntryHasher, shape_of
from iris_py.patterns.topic.table_paths import DEPTH_MAX, TOP, TopicWay, place_of

HASHER = EntryHasher(bytes(32))
TOKENS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(TOKENS, min_size=1, max_size=4).map(tuple)
PATTERNS = st.builds(
    lambda body, rest: (*body, *rest) or ("*",),
    st.lists(st.sampled_from(["a", "b", "c", "*"]), max_size=4),
    st.sampled_from([(), (">",)]),
)
#: Shapes of patterns, and numbers that a hostile member could call shapes.
SHAPES = st.frozensets(st.one_of(PATTERNS.map(shape_of), st.integers(0, 2**32 - 1)), max_size=20)
#: The splits that tables get, in this order, by their number of levels and the level's bits.
SPLITS = st.lists(
    st.one_of(
        st.just(UNSPLIT),
        st.just(TableSplit(BY_STEM)),
        st.builds(TableSplit, st.sampled_from([BY_TAG, BY_STEM | BY_TAG]), SHAPES),
    ),
    min_size=1,
    max_size=16,
)


def matches(pattern: Tokens, topic: Tokens) -> bool:
    trie: TopicTrie[bool] = TopicTrie()
    trie.add(pattern, True)
    return bool(trie.match(topic))


@given(PATTERNS, TOPICS, SPLITS, st.integers(0, 2**16))
def test_a_publisher_looks_at_each_table_on_the_way_of_an_entry(
    pattern: Tokens, topic: Tokens, splits: list[TableSplit], told: int
) -> None:
    def split_of(path: bytes) -> TableSplit:
        return splits[sum(path) % len(splits)]

    def told_of(path: bytes) -> TableSplit:
        """Return what a member knows: it may not have been told of a split."""
        return UNSPLIT if told >> len(path) & 1 else split_of(path)

    seen, tables = {TOP}, [TOP]
    for table in tables:
        children = TopicWay(topic, HASHER).children(table, split_of(table))
        tables += children - seen
        seen |= children
    assert all(len(path) <= DEPTH_MAX for path in seen)
    if matches(pattern, topic):
        assert place_of(HASHER.entry(pattern), told_of) in seen
