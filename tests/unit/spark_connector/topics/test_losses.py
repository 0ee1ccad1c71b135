"""The messages of a topic that a query has not got, counted by publisher."""

from __future__ import annotations

import json

from iris_py import Message
from spark_connector.topics.buffer import Arrival
from spark_connector.topics.losses import OTHERS, PUBLISHERS_MAX, MessageLosses


def arrivals(*numbers: tuple[str, int, int]) -> list[Arrival]:
    """Return messages: source, number, gap."""
    return [Arrival(Message(b"", source, number, topic="t", gap=gap), 0) for source, number, gap in numbers]


def after(state: dict[str, object], topic: str = "t") -> MessageLosses:
    """Return what the next life of a query begins with: Spark keeps offsets as JSON."""
    losses = MessageLosses(topic)
    losses.restore(json.loads(json.dumps(state)))
    return losses


def test_gaps_and_drops_are_counted_on_from_one_life_to_the_next() -> None:
    losses = MessageLosses("t")
    assert losses.state() == {}
    losses.note(arrivals(("a", 1, 0), ("b", 7, 0), ("a", 4, 2)), dropped=False)
    losses.note(arrivals(("b", 9, 1)), dropped=True)
    assert (losses.missed, losses.dropped, losses.total, losses.accepted) == ({"a": 2, "b": 1}, 1, 4, 0)

    again = after(losses.state())
    assert (again.total, again.accepted) == (4, 4)
    again.note(arrivals(("a", 5, 0), ("b", 12, 0), ("c", 100, 0), ("a", 6, 0)), dropped=False)
    assert (again.missed, again.total) == ({"a": 2, "b": 3}, 6), "10 and 11 of b; of c nothing was heard before"
    once_more = after(after(again.state()).state())
    once_more.note(arrivals(("c", 102, 0)), dropped=False)
    assert once_more.missed == {"a": 2, "b": 3, "c": 1}, "a life that heard nothing forgets nothing"


def test_numbers_of_another_topic_say_nothing() -> None:
    losses = MessageLosses("t")
    losses.note(arrivals(("a", 1, 3)), dropped=False)
    other = after(losses.state(), "u")
    other.note(arrivals(("a", 50, 0)), dropped=False)
    assert other.total == 0


def test_publishers_that_are_told_apart_are_bounded() -> None:
    losses = MessageLosses("t")
    losses.note(arrivals(*[(f"{number}", 5, 1) for number in range(PUBLISHERS_MAX + 10)]), dropped=False)
    state = losses.state()
    assert len(state["sequences"]) == PUBLISHERS_MAX
    assert f"{PUBLISHERS_MAX + 9}" in state["sequences"], "those that were heard last"
    assert len(state["missed"]) == PUBLISHERS_MAX + 1
    assert losses.missed[OTHERS] == 10
    assert after(state).total == PUBLISHERS_MAX + 10


def test_what_the_subscription_dropped_had_arrived() -> None:
    losses = MessageLosses("t")
    (arrival,) = arrivals(("a", 10, 7))
    losses.note([arrival._replace(overrun=5)], dropped=False)
    assert (losses.missed, losses.dropped, losses.total) == ({"a": 2}, 5, 7)
    (arrival,) = arrivals(("a", 14, 3))
    losses.note([arrival._replace(overrun=3)], dropped=True)
    assert (losses.missed, losses.dropped, losses.total) == ({"a": 2}, 9, 11)
