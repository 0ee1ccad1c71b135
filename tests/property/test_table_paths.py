"""Properties of iris_py/patterns/topic/table_paths.py: a publisher looks at every table where an entry for its topic may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.groups.splits import BY_STEM, BY_TAG, UNSPLIT, TableSplit
from iris_py.patterns.topic.shapes import EntryHasher, shape_of
from iris_py.patterns.topic.table_paths import DEPTH_MAX, TOP, TopicWay, place_of
from tests.profiles import examples

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens

HASHER = EntryHasher(bytes(32))
TOPICS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(tuple)
#: Further shapes that a split names: those of patterns, and numbers that a hostile member calls shapes.
SHAPES = st.frozensets(
    st.one_of(st.sampled_from([("a",), ("a", ">"), ("a", "*")]).map(shape_of), st.integers(0, 2**32 - 1)), max_size=3
)
#: The splits that tables get in turn.
SPLITS = st.lists(
    st.one_of(
        st.just(TableSplit(BY_STEM)),
        st.builds(TableSplit, st.sampled_from([BY_TAG, BY_STEM | BY_TAG]), SHAPES),
        st.just(UNSPLIT),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def matching(draw: st.DrawFn) -> tuple[Tokens, Tokens]:
    """Return a topic and a pattern that matches it."""
    topic = draw(TOPICS)
    body = tuple(draw(st.sampled_from([token, token, "*"])) for token in topic)
    length = draw(st.integers(0, len(topic)))
    return topic, body if length in (0, len(topic)) else (*body[:length], ">")


@settings(max_examples=examples(500))
@given(matching(), SPLITS, st.booleans(), st.frozensets(st.integers(0, DEPTH_MAX), max_size=2))
def test_a_publisher_looks_at_each_table_on_the_way_of_an_entry(
    both: tuple[Tokens, Tokens], splits: list[TableSplit], is_named: bool, untold: frozenset[int]
) -> None:
    topic, pattern = both
    own = {shape_of(pattern)} if is_named else set()

    def split_of(path: bytes) -> TableSplit:
        ways, shapes = splits[sum(path) % len(splits)]
        return TableSplit(ways, shapes | own if ways & BY_TAG else shapes)

    def told_of(path: bytes) -> TableSplit:
        """Return what the member knows: it may not have been told of a split."""
        return UNSPLIT if len(path) in untold else split_of(path)

    seen, tables = {TOP}, [TOP]
    for table in tables:
        children = TopicWay(topic, HASHER).children(table, split_of(table))
        tables += children - seen
        seen |= children
    assert all(len(path) <= DEPTH_MAX for path in seen)
    assert place_of(HASHER.entry(pattern), told_of) in seen
