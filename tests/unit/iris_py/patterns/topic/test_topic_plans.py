"""The plans that a publisher remembers: which topics share one, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from iris_py.patterns.topic import topic_plans
from iris_py.patterns.topic.topic_plans import PlanCache

if TYPE_CHECKING:
    from iris_py.patterns.topic.topic_plans import TopicPlan


def make(stem: int = 1) -> TopicPlan:
    plan: Any = Mock(stem=stem)
    return plan  # type: ignore[no-any-return]


def find(cache: PlanCache, topic: str) -> TopicPlan | None:
    return cache.find(topic, tuple(topic.split(".")))


def add(cache: PlanCache, topic: str, bits: int, stem: int = 1) -> TopicPlan:
    plan = make(stem)
    cache.add(topic, tuple(topic.split(".")), plan, bits)
    return plan


def test_a_topic_with_a_known_plan_is_remembered_by_name() -> None:
    cache = PlanCache()
    plan = add(cache, "a.b.c", 0b100)
    assert find(cache, "a.x.c") is plan
    assert cache.by_topic == {"a.b.c": plan, "a.x.c": plan}
    assert find(cache, "a.x.y") is None
    other = add(cache, "a.x.y", 0b111)
    assert cache.by_topic == {"a.b.c": plan, "a.x.c": plan, "a.x.y": other}


def test_a_topic_that_may_never_come_again_is_not_remembered_by_name() -> None:
    cache = PlanCache()
    plan, other = add(cache, "a.b", 0), add(cache, "b.b", 0b11)
    found = [cache.find_alike(topic, tuple(topic.split("."))) for topic in ("a.x", "b.b", "b.x", "c.b")]
    assert found == [plan, other, None, None]
    assert cache.by_topic == {"a.b": plan, "b.b": other}


@pytest.mark.parametrize("bits", [0, 0b10])
def test_all_is_bounded(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(topic_plans, "TOPICS_MAX", 5)
    cache = PlanCache()
    for number in range(100):
        topic = f"{number % 7}.{number}.c"
        if find(cache, topic) is None:
            add(cache, topic, bits, number % 7)
        assert topic in cache.by_topic
        assert len(cache.by_topic) <= 5
        assert len(cache._stems) <= 5


def test_forgotten_stems_leave_the_others() -> None:
    cache = PlanCache()
    first, second = add(cache, "a.b", 0, 1), add(cache, "b.b", 0, 2)
    cache.forget({3})
    assert find(cache, "a.c") is first
    cache.forget({1})
    assert find(cache, "a.d") is None
    assert find(cache, "b.d") is second
    assert cache.by_topic == {"b.b": second, "b.d": second}
    cache.clear()
    assert find(cache, "b.e") is None
    assert cache.by_topic == {}
