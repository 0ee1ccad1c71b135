"""Values for topics: which topics share one, and how many are remembered."""

from __future__ import annotations

import pytest

from iris_py.patterns.topic.alike_topics import AlikeTopics
from iris_py.patterns.topic.names import parse_topic


class Topics:
    """Values by the text of a topic."""

    def __init__(self, values_max: int = 100) -> None:
        self.alike: AlikeTopics[str] = AlikeTopics(values_max)

    def find(self, topic: str) -> str | None:
        return self.alike.find(parse_topic(topic))

    def add(self, topic: str, bits: int, value: str) -> None:
        self.alike.add(parse_topic(topic), bits, value)


def test_topics_share_a_value_if_the_deciding_tokens_are_equal() -> None:
    topics = Topics()
    topics.add("a.b.c", 0b100, "value")
    assert topics.find("a.x.c") == "value"
    assert [topics.find(topic) for topic in ("a.x.y", "b.b.c", "a.c", "a.b.c.d")] == [None] * 4
    topics.add("b.c", 0, "other")
    assert [topics.find(topic) for topic in ("b.c", "b.d", "b", "c.d")] == ["other", "other", None, None]
    topics.add("c", 0, "short")
    assert topics.find("c") == "short"


def test_a_value_that_depends_on_more_tokens_ends_those_with_fewer_and_not_the_other_way_round() -> None:
    topics = Topics()
    topics.add("a.b.c", 0, "first")
    topics.add("a.c.c", 0b010, "second")
    assert [topics.find(topic) for topic in ("a.b.d", "a.c.d")] == [None, "second"]
    topics.add("a.b.d", 0, "third")
    assert [topics.find(topic) for topic in ("a.b.e", "a.c.e", "a.d.e")] == ["third", "second", None]


def test_a_topic_whose_every_token_decides_takes_no_room() -> None:
    topics = Topics(2)
    for number in range(10):
        topics.add(f"a.{number}", 0b10, "value")
        assert topics.find(f"a.{number}") is None
    topics.add("b", 0, "other")
    assert topics.find("b") == "other"


@pytest.mark.parametrize(("form", "bits"), [("{}.b", 0), ("a.{}.c", 0b10)])
def test_the_number_of_values_is_bounded(form: str, bits: int) -> None:
    topics = Topics(5)
    for number in range(100):
        topics.add(form.format(number), bits, "value")
        assert topics.find(form.format(number)) == "value"
        assert [topics.find(form.format(each)) for each in range(number + 1)].count("value") <= 5


def test_the_values_of_a_first_token_are_forgotten_alone() -> None:
    topics = Topics()
    topics.add("a.b", 0, "first")
    topics.add("a.b.c", 0, "second")
    topics.add("b.b", 0, "third")
    topics.alike.forget("a")
    topics.alike.forget("unknown")
    assert [topics.find(topic) for topic in ("a.b", "a.b.c", "b.c")] == [None, None, "third"]
    topics.alike.clear()
    assert topics.find("b.c") is None
