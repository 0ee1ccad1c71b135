"""Following the events of nodes: their order, what is missing, and nodes that come, go and begin anew."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from iris_py import ConfigurationError, EventRecord, NodeName, NodeReport, NodeReports
from iris_py.cli.monitor import WatchLine, describe, read_kinds, read_since
from iris_py.observe.journal import EVENTS_MAX, KINDS, Journal
from iris_py.observe.queries import About
from iris_py.observe.reports import Size
from iris_py.observe.statistics import Statistics
from iris_py.overview.event_stream import EventLine, Following, GapLine

NOW = 1_700_000_000.0


class FakeNode:
    """A node with a journal, whose clock says nothing of ours; it answers after a delay."""

    def __init__(self, name: str, started_at: float = NOW, delay_s: float = 0.0) -> None:
        self.name = NodeName(name * 32, f"10.0.0.{ord(name)}:1", "eu")
        self.delay_s = delay_s
        self.start(started_at)

    def start(self, at: float) -> None:
        self.journal = Journal()
        self.journal.started_at = at

    def note(self, at: float, kind: str = "died", detail: str = "") -> None:
        self.journal.note_at(at, kind, str(self.journal.last), detail=detail)

    def report(self, since: int | None, now: float) -> NodeReport:
        about = About(now_s=now - self.journal.started_at, last_event=self.journal.last)
        return NodeReport(
            node=self.name,
            about=about,
            statistics=Statistics(),
            round_trip_s=self.delay_s,
            received_unix_s=now + self.delay_s,
            events=None if since is None else self.journal.told_since(since),
        )


def find(following: Following, *nodes: FakeNode, now: float = NOW, **others: Any) -> list[str]:
    found = NodeReports(reports=tuple(node.report(None, now) for node in nodes), size=Size(float(len(nodes))), **others)
    return [line.change for line in following.find(found, now)]


def read(following: Following, *nodes: FakeNode, now: float, **others: Any) -> list[str]:
    numbers, due = following.numbers(), {each.id for each in following.due()}
    reports = tuple(node.report(numbers[node.name.id], now) for node in nodes if node.name.id in due)
    return [line.change for line in following.read(NodeReports(reports=reports, **others), now)]


def told(following: Following, before: float = inf) -> list[tuple[str, str | int | None]]:
    """Return what is told: the first letter of each node, and the detail of an event or how many are missing."""
    lines = following.take(before)
    return [(line.id[0], line.detail if isinstance(line, EventLine) else line.missed) for line in lines]


def test_events_of_all_nodes_come_in_the_order_of_time_whatever_their_clocks_say() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a, b = FakeNode("a", NOW - 1000.0), FakeNode("b", NOW - 5.0)
    a.note(NOW - 1.0, detail="before the beginning")
    assert find(following, a, b) == []
    for number in range(6):
        (a, b)[number % 2].note(NOW + 1.0 + number, detail=str(number))
    assert read(following, b, a, now=NOW + 10.0) == []
    assert told(following, NOW + 5.5) == [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3"), ("a", "4")]
    a.note(NOW + 5.8, detail="of an answer that came later")
    read(following, a, b, now=NOW + 11.0)
    assert told(following, NOW + 20.0) == [("a", "of an answer that came later"), ("b", "5")]
    assert told(following) == []


def test_a_clock_that_is_set_back_holds_nothing_up_for_long() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a")
    find(following, a)
    a.note(NOW + 5.0, detail="before the hour begins again")
    read(following, a, now=NOW + 6.0)
    assert told(following, NOW + 4.0) == []
    assert told(following, NOW - 3600.0) == [("a", "before the hour begins again")]


def test_answers_that_are_slow_by_turns_do_not_mix_up_the_events_of_a_node() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a", delay_s=2.0)
    find(following, a)
    a.note(NOW + 1.0, detail="first")
    read(following, a, now=NOW + 1.1)
    a.note(NOW + 1.2, detail="second")
    a.delay_s = 0.0
    read(following, a, now=NOW + 1.3)
    assert told(following) == [("a", "first"), ("a", "second")]


def test_what_was_overwritten_is_a_gap_with_how_many_are_missing() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a")
    find(following, a)
    for number in range(EVENTS_MAX + 10):
        a.note(NOW + 1.0 + number / 1000, detail=str(number))
    read(following, a, now=NOW + 5.0)
    lines = told(following)
    assert lines[:2] == [("a", 10), ("a", "10")]
    assert len(lines) == EVENTS_MAX + 1
    a.note(NOW + 6.0, detail="next")
    read(following, a, now=NOW + 7.0)
    assert told(following) == [("a", "next")]


def test_it_is_said_if_nobody_knows_how_many_of_the_missing_are_of_interest() -> None:
    old = FakeNode("a", NOW - 1000.0)
    for number in range(EVENTS_MAX + 10):
        old.note(NOW - 600.0 + number, detail=str(number))
    for since_s, missed in ((NOW - 595.0, None), (-inf, 10)):
        following = Following(since_unix_s=since_s, begin=0)
        find(following, old)
        read(following, old, now=NOW)
        assert told(following)[0] == ("a", missed)
    following = Following(since_unix_s=NOW - 300.0, begin=0)
    find(following, old)
    read(following, old, now=NOW)
    assert not any(isinstance(line, GapLine) for line in following.take()), "they are older than what is asked for"


def test_one_node_is_read_after_the_number_that_is_given() -> None:
    following = Following(since_unix_s=-inf, begin=2)
    a = FakeNode("a", NOW - 100.0)
    for number in range(1, 5):
        a.note(NOW - 50.0 + number, detail=str(number))
    find(following, a)
    read(following, a, now=NOW)
    assert told(following) == [("a", "3"), ("a", "4")]


def test_a_number_that_is_still_to_come_is_that_of_the_last_event() -> None:
    following = Following(since_unix_s=-inf, begin=99)
    a = FakeNode("a", NOW - 100.0)
    a.note(NOW - 50.0, detail="1")
    find(following, a)
    a.note(NOW + 1.0, detail="2")
    read(following, a, now=NOW + 2.0)
    assert told(following) == [("a", "2")]


def test_a_node_that_tells_more_events_than_nodes_keep_is_not_heard_to_the_end() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a")
    find(following, a)
    events = tuple(EventRecord(number=number, at_s=1.0, kind="died") for number in range(1, 3 * EVENTS_MAX + 1))
    lie = msgspec.structs.replace(a.report(0, NOW + 2.0), events=events)
    following.read(NodeReports(reports=(lie,)), NOW + 2.0)
    lines = told(following)
    assert (lines[0], len(lines)) == (("a", 2 * EVENTS_MAX), EVENTS_MAX + 1)


def test_only_the_kinds_that_are_wanted_are_told_and_none_is_missed() -> None:
    following = Following(kinds={"died"}, since_unix_s=NOW, begin=None)
    a = FakeNode("a")
    find(following, a)
    for number, kind in enumerate(("died", "left", "joined", "died")):
        a.note(NOW + number, kind, str(number))
    read(following, a, now=NOW + 10.0)
    assert told(following) == [("a", "0"), ("a", "3")]


def test_newcomers_are_followed_from_their_first_event_on() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a, b, old = FakeNode("a"), FakeNode("b", NOW + 3.0), FakeNode("c", NOW - 100.0)
    find(following, a)
    b.note(NOW + 4.0, detail="of the newcomer")
    old.note(NOW - 50.0, detail="before the beginning")
    old.note(NOW + 2.0, detail="overlooked at first")
    assert find(following, a, b, old, now=NOW + 5.0) == ["found", "found"]
    read(following, a, b, old, now=NOW + 6.0)
    assert told(following) == [("c", "overlooked at first"), ("b", "of the newcomer")]


def test_a_node_that_does_not_answer_holds_nobody_up_and_is_given_up_in_the_end() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a, b = FakeNode("a"), FakeNode("b")
    find(following, a, b)
    a.note(NOW + 1.0, detail="one")
    read(following, a, now=NOW + 1.5)
    assert read(following, b, now=NOW + 2.0, missing=(a.name,)) == ["silent"]
    assert [each.id for each in following.due()] == [b.name.id]
    assert find(following, b, now=NOW + 10.0, missing=(a.name,)) == []
    assert find(following, b, now=NOW + 20.0, missing=(a.name,)) == ["gone"]
    assert following.watched.keys() == {b.name.id}
    a.note(NOW + 21.0, detail="two")
    assert find(following, a, b, now=NOW + 30.0) == ["back"]
    read(following, a, b, now=NOW + 31.0)
    assert told(following) == [("a", "one"), ("a", "two")], "what was told is not told again"


def test_who_is_silent_and_in_the_ring_no_more_has_gone() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a, b = FakeNode("a"), FakeNode("b")
    find(following, a, b)
    read(following, b, now=NOW + 2.0, missing=(a.name,))
    assert find(following, b, now=NOW + 10.0, is_whole=False) == []
    assert find(following, b, now=NOW + 20.0) == ["gone"]


def test_who_answers_again_is_back() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a")
    find(following, a)
    assert read(following, now=NOW + 2.0, missing=(a.name,)) == ["silent"]
    assert find(following, a, now=NOW + 10.0) == ["back"]
    assert read(following, a, now=NOW + 11.0) == []


def test_a_node_whose_numbers_begin_again_is_read_from_its_first_one() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a = FakeNode("a", NOW - 100.0)
    for number in range(5):
        a.note(NOW - 50.0 + number)
    find(following, a)
    a.start(NOW + 3.0)
    for number in range(8):  # more than before: the numbers alone do not show it
        a.note(NOW + 4.0 + number, detail=str(number))
    assert read(following, a, now=NOW + 20.0) == ["restarted"]
    assert told(following) == []
    assert read(following, a, now=NOW + 21.0) == []
    assert told(following) == [("a", str(number)) for number in range(8)]


def test_nodes_that_tell_no_events_are_named_once() -> None:
    following = Following(since_unix_s=NOW, begin=None)
    a, b, c = FakeNode("a"), FakeNode("b"), FakeNode("c")
    assert find(following, a, b, refused=(c.name,)) == ["closed"]
    assert read(following, now=NOW + 1.0, refused=(a.name,)) == ["closed"]
    silent = NodeReports(reports=(b.report(None, NOW + 1.0),))
    assert [line.change for line in following.read(silent, NOW + 1.0)] == ["closed"]
    assert following.due() == []
    assert find(following, a, b, now=NOW + 10.0, refused=(c.name,)) == []
    assert read(following, a, b, now=NOW + 11.0) == []


def test_of_a_sample_no_more_are_watched_than_were_drawn_first() -> None:
    following = Following(since_unix_s=NOW, begin=None, sample=2)
    a, b, c, d = (FakeNode(name) for name in "abcd")
    find(following, a, b, is_sample=True)
    find(following, c, d, now=NOW + 10.0, is_sample=True)
    assert following.watched.keys() == {a.name.id, b.name.id}
    for seconds in (11.0, 22.0, 33.0):
        read(following, b, now=NOW + seconds, missing=(a.name,))
        find(following, c, now=NOW + seconds + 1.0, is_sample=True)
    assert following.watched.keys() == {b.name.id, c.name.id}, "in place of who has gone"
    find(following, d, now=NOW + 40.0, is_sample=True)
    assert following.watched.keys() == {b.name.id, c.name.id}


@pytest.mark.parametrize("at_s", [inf, -inf, float("nan"), 1e300, -1e300])
def test_times_that_cannot_be_harm_nothing(at_s: float) -> None:
    following = Following(since_unix_s=-inf, begin=0)
    a = FakeNode("a")
    find(following, a)
    event = EventRecord(number=1, at_s=at_s, kind="died", detail="lie")
    report = NodeReport(
        node=a.name,
        about=About(now_s=5.0, last_event=1),
        statistics=Statistics(),
        round_trip_s=0.0,
        received_unix_s=NOW,
        events=(event,) * 3,
    )
    following.read(NodeReports(reports=(report,)), NOW)
    assert told(following) == [("a", "lie")]


def test_kinds_are_named_by_how_they_begin_and_a_wrong_one_names_the_nearest() -> None:
    assert read_kinds([]) == frozenset()
    assert read_kinds(["died,drop", "link"]) == {"died", "dropped", "link_opened", "link_closed", "link_lost"}
    with pytest.raises(ConfigurationError, match=r"no kind of event 'dead'; the nearest is 'died'\. Kinds are joined"):
        read_kinds(["dead"])
    with pytest.raises(ConfigurationError, match="no kind of event ''"):
        read_kinds(["died,"])
    assert all(read_kinds([kind]) >= {kind} for kind in KINDS)


def test_since_is_a_number_or_a_duration() -> None:
    assert read_since(None) == (None, 0.0)
    assert read_since("17") == (17, 0.0)
    assert [read_since(text)[1] for text in ("90s", "1.5m", "2 h", "1d", "3min")] == [90.0, 90.0, 7200.0, 86_400.0, 180.0]
    for wrong in ("", "yesterday", "-5", "10 parsecs"):
        with pytest.raises(ConfigurationError, match="neither the number of an event nor a duration"):
            read_since(wrong)


@pytest.mark.parametrize(
    ("watched", "is_sample", "is_whole", "text"),
    [
        (0, False, True, "no other node found in the network 'n': waiting for one"),
        (1, False, True, "watching 1 node;"),
        (7, False, False, "watching 7 nodes; a part of the ring did not answer, so there may be more;"),
        (64, True, True, "watching 64 of about 1,000 nodes, drawn by chance: --all watches every node;"),
    ],
)
def test_it_is_said_which_part_of_the_network_is_watched(watched: int, is_sample: bool, is_whole: bool, text: str) -> None:
    line = WatchLine(watched=watched, nodes=1000.4, is_sample=is_sample, is_whole=is_whole)
    assert describe(line, "n").startswith(text)
