"""The sources of a client's patterns: each topic that matches comes from one source, and no other topic comes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.rights import covers
from iris_py.doors.settings import HistorySettings
from iris_py.doors.web.cursors import CursorKeys
from iris_py.doors.web.histories import Histories
from iris_py.doors.web.topic_selection import TopicSelection, select_topics

KEYS = CursorKeys(bytes(32))
TOPICS = [tokens for length in (1, 2, 3) for tokens in itertools.product("ab", repeat=length)]
PATTERNS = st.builds(
    lambda body, rest: ".".join((*body, *rest)) or "*",
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.sampled_from([(), (">",)]),
)


def made(*patterns: str) -> Histories:
    return Histories([HistorySettings(pattern) for pattern in patterns], KEYS, b"thisdoor", 0.0)


@given(st.lists(PATTERNS, min_size=1, max_size=4), st.lists(PATTERNS, unique=True, max_size=3))
def test_each_wanted_topic_has_one_source(patterns: list[str], kept: list[str]) -> None:
    sources = select_topics(patterns, made(*kept))
    for topic in TOPICS:
        wanted = any(covers(tuple(pattern.split(".")), topic) for pattern in patterns)
        found = [source for source in sources if source.topics.matcher()(".".join(topic))]
        assert len(found) == wanted, (topic, sources)
        for source in found:
            pattern = source.subscription if source.history is None else source.history.settings.pattern
            assert covers(tuple(pattern.split(".")), topic)


def test_the_order_of_the_patterns_says_nothing_and_covered_ones_are_left_out() -> None:
    histories = made("notes.>")
    one = select_topics(["notes.a", "x.>", "x.y", "notes.*", "z"], histories)
    assert one == select_topics(["z", "notes.*", "x.>", "notes.a", "notes.a"], histories)
    assert one[0].topics == TopicSelection((("notes", "*"),))
    assert [source.subscription for source in one] == ["", "x.>", "z"]


def test_topics_of_other_clouds_have_no_history_and_exclude_nothing_here() -> None:
    found = select_topics(["notes.*@eu", "notes.a@eu", "notes.*", "notes.*@us"], made("notes.>"))
    assert [source.subscription for source in found] == ["", "notes.*@eu", "notes.*@us"]
    assert all(not source.topics.excluded for source in found)


@pytest.mark.parametrize("wrong", ["", "a..b", "a.>.b", "iris.doors", "a*", "a@"])
def test_an_invalid_pattern_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|iris"):
        select_topics([wrong], made())


def test_any_character_of_a_topic_is_matched() -> None:
    matches = TopicSelection((("a", "*"), ("b+", ">"))).matcher()
    assert matches("a.\n\r(x)")
    assert matches("b+.\n.c")
    assert not matches("bb.c")
    assert not matches("a.b.c")


@pytest.mark.parametrize("excluded", [(), (("c", "d"),)])
def test_topics_without_wildcards_are_matched_as_they_are(excluded: tuple[tuple[str, ...], ...]) -> None:
    matches = TopicSelection((("a",), ("b", "x+")), excluded).matcher()
    assert [topic for topic in ("a", "b", "b.x+", "b.xx", "aa", "a.b", "c.d", "") if matches(topic)] == ["a", "b.x+"]
