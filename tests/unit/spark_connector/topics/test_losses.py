"""The messages of a topic that a query has not got, counted by publisher."""

from __future__ import annotations

import json
from typing import Any

from iris_py import Message
from iris_py.connector import CountedMessage, MatchesBefore, holder_of
from spark_connector.topics.buffer import Arrival
from spark_connector.topics.losses import LIVES_MAX, OTHERS, PUBLISHERS_MAX, MessageLosses

NODES = [f"{number:032x}" for number in range(1 << 64, (1 << 64) + 100 * (1 << 64), 1 << 64)]
FIRST, SECOND, THIRD = NODES[:3]


def counted(source: str, count: int, *, since: int = 0, sequence: int | None = None, gap: int = 0) -> Arrival:
    """Return a message with its number in the count of its publisher."""
    number = 10 * count if sequence is None else sequence
    message = CountedMessage(b"", source, number, topic="t", gap=gap, count=count, count_since=since)
    return Arrival(message, 0)


def uncounted(source: str, sequence: int, *, gap: int = 0, cloud: str = "", is_unknown: bool = False) -> Arrival:
    return Arrival(Message(b"", source, sequence, topic="t", gap=gap, cloud=cloud, has_unknown_gap=is_unknown), 0)


def told(count: int, *, since: int = 0, holder: str = FIRST) -> MatchesBefore:
    """Return what a publisher tells before its first message."""
    return MatchesBefore(7, since, holder_of(bytes.fromhex(holder)), count)


def begun(**starts: MatchesBefore) -> MessageLosses:
    """Return the first life of a query, and what publishers have told it."""
    losses = MessageLosses("t", FIRST)
    for source, before in starts.items():
        losses.start(source, before)
    return losses


def after(state: dict[str, Any], node: str = SECOND, topic: str = "t", **starts: MatchesBefore) -> MessageLosses:
    """Return the next life of a query: Spark keeps offsets as JSON."""
    losses = MessageLosses(topic, node)
    losses.restore(json.loads(json.dumps(state)), {})
    for source, before in starts.items():
        losses.start(source, before)
    return losses


def test_what_is_missing_is_the_difference_of_the_counts_from_one_life_to_the_next() -> None:
    losses = begun(a=told(0), b=told(6, holder=THIRD))
    losses.note([counted("a", 1), counted("b", 7), counted("a", 4)], dropped=False)
    losses.note([counted("b", 9)], dropped=True)
    assert (losses.missed, losses.dropped, losses.total, losses.accepted) == ({"a": 2, "b": 1}, 1, 4, 0)

    again = after(losses.state(), a=told(4), c=told(20, holder=THIRD))
    assert (again.total, again.accepted, again.unheard) == (4, 4, ["b"])
    again.start("b", told(11))
    assert again.missed == {"a": 2, "b": 3}, "10 and 11 of b, told before a message"
    again.note([counted("a", 5), counted("b", 12), counted("c", 21), counted("a", 6)], dropped=False)
    assert (again.missed, again.total) == ({"a": 2, "b": 3}, 6), "c had counted for somebody else before"

    once_more = after(after(again.state()).state(), THIRD)
    once_more.note([counted("c", 23)], dropped=False)
    assert once_more.missed == {"a": 2, "b": 3, "c": 1}, "a life that heard nothing forgets nothing"


def test_a_gap_that_is_only_an_upper_bound_says_nothing() -> None:
    losses = begun(a=told(0))
    losses.note([counted("a", 1), counted("a", 3, gap=1000)], dropped=False)
    assert losses.missed == {"a": 1}


def test_a_publisher_that_began_to_count_for_the_query_and_was_never_heard_was_missed() -> None:
    state = begun().state()
    assert after(state, a=told(5)).missed == {"a": 5}
    assert after(after(state).state(), THIRD, a=told(5, holder=SECOND)).missed == {"a": 5}
    assert after(state, a=told(5, holder=THIRD)).missed == {}, "it counts for others, perhaps for longer"
    assert begun(a=told(3)).missed == {"a": 3}, "what was lost on the way before the first message"
    assert begun(a=told(3, holder=THIRD)).missed == {}

    for node in NODES[3 : 3 + LIVES_MAX]:
        state = after(state, node).state()
    assert len(state["lives"]) == LIVES_MAX
    assert after(state, a=told(5)).missed == {}, "that life is forgotten"


def test_a_count_that_began_anew_is_unknown_unless_nothing_was_published_between() -> None:
    losses = begun(a=told(0), b=told(0))
    losses.note([counted("a", 1, sequence=5), counted("b", 1, sequence=5)], dropped=False)
    again = after(losses.state(), a=told(2, since=6), b=told(2, since=5))
    assert (again.missed, again.unknown, again.total, again.accepted) == ({"b": 2}, {"a": 1}, 3, 0)
    again.note([counted("a", 4, since=6, sequence=20), counted("a", 3, since=21)], dropped=False)
    assert (again.missed, again.unknown) == ({"b": 2, "a": 1}, {"a": 2})
    assert (after(again.state()).unknown, after(again.state()).accepted) == ({"a": 2}, 5)


def test_messages_without_a_number_have_their_gap_within_one_life_alone() -> None:
    losses = begun()
    losses.note([uncounted("a", 5), uncounted("a", 9, gap=2), uncounted("a", 50, is_unknown=True)], dropped=False)
    assert (losses.missed, losses.unknown) == ({"a": 2}, {"a": 1})
    state = losses.state()
    for arrival, times in ((uncounted("a", 52), 2), (uncounted("a", 51), 1), (counted("a", 1, since=51), 2)):
        again = after(state)
        again.note([arrival], dropped=False)
        assert (again.missed, again.unknown) == ({"a": 2}, {"a": times})
    again = after(state, a=told(3, since=50))
    assert (again.missed, again.unknown) == ({"a": 5}, {"a": 1}), "it counts from the last message on"


def test_messages_of_other_clouds_have_their_gap_alone() -> None:
    losses = begun()
    losses.note([uncounted("a", 5, cloud="eu"), uncounted("a", 9, gap=2, cloud="eu")], dropped=False)
    again = after(losses.state())
    again.note([uncounted("a", 100, cloud="eu")], dropped=False)
    assert (again.missed, again.unknown, again.unheard) == ({"a": 2}, {}, [])


def test_a_query_in_a_group_misses_what_its_gaps_say() -> None:
    losses = MessageLosses("t", FIRST, is_counted=False)
    losses.note([uncounted("a", 5), uncounted("a", 90, gap=2)], dropped=False)
    again = MessageLosses("t", SECOND, is_counted=False)
    again.restore(losses.state(), {})
    again.note([uncounted("a", 200), uncounted("a", 300, is_unknown=True)], dropped=False)
    assert (again.missed, again.unknown, again.unheard) == ({"a": 2}, {"a": 1}, [])
    counted_before = begun(a=told(0)).state()
    again.restore(counted_before, {})
    assert again.state()["counts"] == {}, "what it misses from now on, others get"


def test_messages_dropped_before_spark_passes_an_offset_hide_nothing() -> None:
    losses = begun(a=told(0), b=told(0))
    losses.note([counted("a", 1)], dropped=False)
    again = MessageLosses("t", SECOND)
    starts = {"a": told(4), "b": told(2)}
    for source, before in starts.items():
        again.start(source, before)
    again.note([counted("a", 6)], dropped=True)
    assert again.missed == {"a": 1}
    again.restore(losses.state(), starts)
    assert (again.missed, again.dropped) == ({"a": 4, "b": 2}, 1)


def test_counts_of_another_topic_say_nothing() -> None:
    losses = begun(a=told(0))
    losses.note([counted("a", 1)], dropped=False)
    other = after(losses.state(), topic="u", a=told(50))
    other.note([counted("a", 51)], dropped=False)
    assert other.total == 0


def test_of_a_state_without_counts_publishers_are_not_heard() -> None:
    state = {"topic": "t", "sequences": {"a": 7}, "missed": {"a": 2}, "dropped": 1, "lost": 3}
    losses = after(state, a=told(5, holder=THIRD))
    losses.note([counted("a", 6)], dropped=False)
    assert (losses.missed, losses.dropped, losses.lost, losses.accepted, losses.unknown) == ({"a": 2}, 1, 3, 6, {})
    assert after({}).total == 0


def test_publishers_that_are_told_apart_are_bounded() -> None:
    losses = begun()
    many = range(PUBLISHERS_MAX + 10)
    losses.note([counted(f"{number}", 5, gap=1) for number in many], dropped=False)
    losses.note([counted(f"{number}", 5, since=99) for number in many], dropped=False)
    state = losses.state()
    assert len(state["counts"]) == PUBLISHERS_MAX
    assert f"{PUBLISHERS_MAX + 9}" in state["counts"], "those that were heard last"
    assert len(state["missed"]) == PUBLISHERS_MAX + 1
    assert losses.missed[OTHERS] == 10
    again = after(state)
    again.start("0", told(7))
    assert again.total == losses.total, "it may have been heard, and forgotten"


def test_what_the_subscription_dropped_had_arrived() -> None:
    losses = begun(a=told(2))
    losses.note([counted("a", 10, gap=7)._replace(overrun=5)], dropped=False)
    assert (losses.missed, losses.dropped, losses.total) == ({"a": 4}, 5, 9)
    losses.note([counted("a", 14, gap=3)._replace(overrun=3)], dropped=True)
    assert (losses.missed, losses.dropped, losses.total) == ({"a": 4}, 9, 13)
