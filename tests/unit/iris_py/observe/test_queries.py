"""The desk of a node and the pages that it gives out: what it tells, how much at once, and to how many."""

from __future__ import annotations

import msgspec
import pytest

from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.journal import EVENTS_MAX, Journal, Observe
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import (
    ANSWERS_PER_S_MAX,
    BUSY,
    CLOSED,
    PAGE_BYTES,
    PAGES_MAX,
    PARTS,
    PARTS_MAX,
    SNAPSHOT_S,
    AnswerPage,
    Desk,
    NodeQuestion,
    Pages,
    decode_answer,
    decode_question,
    encode_question,
    lean,
)
from iris_py.observe.statistics import (
    ClusterStatistics,
    LinksStatistics,
    LinkStatistics,
    ServiceStatistics,
    ShareStatistics,
    Statistics,
    SubscriptionStatistics,
    TopicStatistics,
)

SERVED = ServiceStatistics(handlers=1, executed=7, handling=HistogramStatistics((1, 2, 3), 0.5))
FULL = Statistics(
    requests=5,
    drops={"late_reply": 2},
    uptime_s=3.5,
    clusters={f"c{number}": ClusterStatistics(members=number, service=SERVED) for number in range(300)},
    topics={f"t{number}": TopicStatistics(published=number) for number in range(40)},
    shares={f"{number:>60}": ShareStatistics(members=2, given=number) for number in range(300)},
    subscriptions=tuple(
        SubscriptionStatistics(pattern=f"p{number}.>", policy="block", dropped={"full": 3}) for number in range(200)
    ),
    links=LinksStatistics(
        open=3, each=tuple(LinkStatistics(peer=f"{number:032x}", address="10.0.0.1:1", zone="eu") for number in range(256))
    ),
)


class Counting:
    """Numbers of a node, and how often they were taken."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.taken = 0

    def take(self) -> Statistics:
        self.taken += 1
        return self.statistics


def make(observe: Observe = "all", statistics: Statistics = FULL, journal: Journal | None = None) -> tuple[Desk, Counting]:
    counting = Counting(statistics)
    desk = Desk(observe, counting.take, journal or Journal(), lambda name: "#1" if name == "c7" else name, "1.2.3")
    return desk, counting


def note_many(count: int) -> Journal:
    """Return a journal with so many events of a node that was started at the second 5, one in each second."""
    journal = Journal()
    journal.started_at = 5.0
    for number in range(count):
        journal.note_at(5.0 + number, "died", str(number), node=NodeName(f"{number:032x}"))
    return journal


def ask(desk: Desk, question: NodeQuestion, now: float = 0.0) -> AnswerPage:
    data = desk.answer(encode_question(question), now, 1_700_000_000.0)
    assert data is not None
    assert len(data) <= PAGE_BYTES
    answer = decode_answer(data)
    assert answer is not None
    return answer


def ask_all(desk: Desk, question: NodeQuestion) -> Pages:
    pages, now = Pages(question), 0.0
    while not pages.is_complete:
        pages.take(ask(desk, pages.question, now))
        now += 0.1
    return pages


def test_what_is_told_in_pages_is_what_there_is() -> None:
    desk, _counting = make()
    pages = ask_all(desk, NodeQuestion(PARTS))
    told = pages.statistics()
    shown = dict(FULL.clusters)
    shown["#1"] = shown.pop("c7")
    assert told == msgspec.structs.replace(FULL, clusters=shown)
    assert (pages.about.version, pages.about.uptime_s, pages.about.links, pages.about.clusters) == ("1.2.3", 3.5, 3, 300)
    assert (pages.about.subscriptions, pages.about.unix_s, pages.left_out) == (200, 1_700_000_000.0, 0)


def test_nothing_is_told_that_was_not_asked_for() -> None:
    desk, _counting = make()
    assert ask(desk, NodeQuestion()).parts == {}
    assert ask_all(desk, NodeQuestion(("topics",))).statistics() == Statistics(topics=FULL.topics)
    one = ask_all(desk, NodeQuestion(("clusters",), cluster="c3"))
    assert one.statistics() == Statistics(clusters={"c3": FULL.clusters["c3"]})
    assert ask(desk, NodeQuestion(("counts",))).parts["counts"].keys() == {"requests", "drops", "uptime_s"}
    newer = tuple(f"part {number} of a newer version" for number in range(PARTS_MAX - 1))
    assert ask(desk, NodeQuestion((*newer, "topics"))).parts.keys() == {"topics"}


def test_events_are_told_in_pages_after_the_number_that_is_known() -> None:
    journal = note_many(EVENTS_MAX + 100)
    desk, _counting = make(journal=journal)
    pages = ask_all(desk, NodeQuestion(("events",)))
    assert pages.events() == journal.since(0)
    assert pages.about.last_event == EVENTS_MAX + 100
    few = ask_all(desk, NodeQuestion(("topics", "events", "counts"), since=EVENTS_MAX + 98))
    assert few.events() == journal.since(EVENTS_MAX + 98)
    assert few.statistics() == Statistics(requests=5, drops={"late_reply": 2}, uptime_s=3.5, topics=FULL.topics)
    for since in (EVENTS_MAX + 100, 10**9):
        nothing = ask_all(desk, NodeQuestion(("events",), since=since))
        assert (nothing.events(), nothing.tells("events")) == ((), True)
    assert not ask_all(desk, NodeQuestion(("counts",))).tells("events")


def test_events_are_those_of_the_moment_and_none_are_told_with_the_counts() -> None:
    journal = note_many(1)
    desk, counting = make(journal=journal)
    ask(desk, NodeQuestion(("events",)), 5.0)
    journal.note_at(5.1, "stalled")
    answer = ask(desk, NodeQuestion(("events",), since=1), 5.0 + SNAPSHOT_S / 2)
    assert [event["number"] for event in answer.parts["events"]] == [2]
    assert (answer.about.last_event, answer.about.now_s, counting.taken) == (2, SNAPSHOT_S / 2, 1)
    secretive, _counting = make("counts", journal=journal)
    pages = ask_all(secretive, NodeQuestion(("counts", "events")))
    assert (pages.tells("events"), pages.about.last_event) == (False, 2)


def test_events_that_are_pushed_out_between_two_pages_are_missing_in_the_numbers() -> None:
    journal = note_many(EVENTS_MAX)
    desk, _counting = make(journal=journal)
    pages = Pages(NodeQuestion(("events",)))
    pages.take(ask(desk, pages.question))
    first = pages.events()
    assert first is not None
    for number in range(EVENTS_MAX):
        journal.note("left", str(number))
    while not pages.is_complete:
        pages.take(ask(desk, pages.question, 2.0))
    events = pages.events()
    assert events is not None
    assert [event.number for event in events] == [*range(1, len(first) + 1), *range(EVENTS_MAX + 1, 2 * EVENTS_MAX + 1)]


@pytest.mark.parametrize("told", [[5], [{"number": "x"}], [{"number": 1}]], ids=["number", "text", "incomplete"])
def test_events_that_are_none_are_not_taken(told: list[object]) -> None:
    pages = Pages(NodeQuestion(("events",)))
    pages.take(AnswerPage(parts={"events": told}))
    assert pages.events() is None


def test_all_askers_share_a_snapshot() -> None:
    desk, counting = make()
    for number in range(10):
        ask(desk, NodeQuestion(("counts",)), number * SNAPSHOT_S / 10)
    assert counting.taken == 1
    ask(desk, NodeQuestion(("counts",)), SNAPSHOT_S)
    assert counting.taken == 2


def test_more_questions_than_a_node_answers_are_refused_and_counted() -> None:
    desk, counting = make()
    answers = [ask(desk, NodeQuestion(), number / 1000) for number in range(ANSWERS_PER_S_MAX + 30)]
    assert [answer.refused for answer in answers] == [""] * ANSWERS_PER_S_MAX + [BUSY] * 30
    assert (desk.answered, desk.refused, counting.taken) == (ANSWERS_PER_S_MAX, {BUSY: 30}, 1)
    assert ask(desk, NodeQuestion(), 1.5).refused == ""


def test_a_desk_that_tells_counts_names_nothing() -> None:
    desk, _counting = make("counts")
    told = ask_all(desk, NodeQuestion(PARTS)).statistics()
    assert told == Statistics(requests=5, drops={"late_reply": 2}, uptime_s=3.5, links=LinksStatistics(open=3))
    desk, _counting = make("counts", Statistics(requests=5, shares={"billing": ShareStatistics(given=1)}))
    assert ask_all(desk, NodeQuestion(PARTS)).statistics() == Statistics(requests=5)


def test_a_closed_desk_takes_no_snapshot() -> None:
    desk, counting = make("none")
    assert ask(desk, NodeQuestion(("counts",))).refused == CLOSED
    assert (counting.taken, desk.refused) == (0, {CLOSED: 1})


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x90" * 5000, msgspec.msgpack.encode([["a"] * (PARTS_MAX + 1)]), msgspec.msgpack.encode([1])],
    ids=["nothing", "garbage", "too deep", "too many", "wrong"],
)
def test_what_is_no_question_is_not_answered(data: bytes) -> None:
    desk, counting = make()
    assert desk.answer(data, 0.0, 0.0) is None
    assert (counting.taken, desk.answered, desk.refused) == (0, 0, {})


def test_a_thing_that_is_too_large_is_left_out_and_counted() -> None:
    large = ClusterStatistics(service=ServiceStatistics(rejected={f"{number:>50}": 1 for number in range(400)}))
    small = ClusterStatistics(members=1)
    desk, _counting = make(statistics=Statistics(clusters={"a": small, "b": large, "c": small}))
    pages = ask_all(desk, NodeQuestion(("clusters",)))
    assert pages.statistics() == Statistics(clusters={"a": small, "c": small})
    assert pages.left_out == 1


def test_an_asker_takes_so_many_pages_and_no_more() -> None:
    pages = Pages(NodeQuestion(("clusters",)))
    for number in range(PAGES_MAX):
        assert not pages.is_complete
        pages.take(AnswerPage(parts={"clusters": {f"c{number}": {}}}, next_part="clusters", next_key=f"c{number}"))
    assert pages.is_complete
    assert pages.left_out == 1


def test_trailing_fields_of_newer_versions_are_ignored() -> None:
    question = msgspec.msgpack.encode([["counts"], "", "", "", 0, "new"])
    assert decode_question(question) == NodeQuestion(("counts",))
    about = {"version": "9", "colour": "red"}
    answer = msgspec.msgpack.encode(["", about, {"counts": {"requests": 1, "new": 2}}, "", "", 0, "new"])
    decoded = decode_answer(answer)
    assert decoded is not None
    pages = Pages(NodeQuestion(("counts",)))
    pages.take(decoded)
    assert pages.about.version == "9"
    assert pages.statistics() == Statistics(requests=1)


def test_lean_trees_hold_what_differs_from_the_defaults() -> None:
    assert lean(Statistics()) == {}
    assert lean(Statistics(requests=1, clusters={"a": ClusterStatistics()})) == {"requests": 1, "clusters": {"a": {}}}
    assert msgspec.convert(lean(FULL), Statistics) == FULL
