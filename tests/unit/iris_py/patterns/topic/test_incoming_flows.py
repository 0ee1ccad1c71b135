"""The receiver's side of flows, in small steps; tests/property/test_flows.py runs both sides against a model."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_py.patterns.topic import incoming_flows
from iris_py.patterns.topic.incoming_flows import (
    ANSWER_S,
    GAPS_MAX,
    HELD_BYTES_MAX,
    HELD_ITEM_BYTES,
    IncomingFlow,
    IncomingFlows,
    ReportedGaps,
)
from iris_py.patterns.topic.outgoing_flows import OutgoingFlows
from iris_py.wire.flows import FETCHED_MESSAGES_MAX, MissedEntries, MissedRange
from iris_py.wire.packets import MESSAGE

SOURCE, OTHER, LOCAL = (NodeId(bytes([number]) * 16) for number in (1, 2, 3))


class Node:
    """A node with some subscriptions, each with an entry of its own, and the items that it handed out with their gaps."""

    def __init__(self, *tags: int) -> None:
        self.subscriptions: dict[int, ReportedGaps] = {}
        self.flows: IncomingFlows[str] = IncomingFlows(self.subscriptions, self.hand_out, self.forget)
        self.handed: list[str] = []
        self.gaps: list[dict[int, int | None]] = []  # for each item, by tag, the gaps other than 0
        self.forgotten: list[NodeId] = []
        self.now = 0.0
        for tag in tags:
            self.subscribe(tag)

    def subscribe(self, tag: int) -> None:
        self.subscriptions[tag] = ReportedGaps(tag, self.flows)

    def hand_out(self, flow: IncomingFlow[str], item: str, _now: float) -> None:
        self.handed.append(item)
        gaps = {tag: each.take(flow) for tag, each in self.subscriptions.items()}
        self.gaps.append({tag: gap for tag, gap in gaps.items() if gap != 0})

    def forget(self, publisher: NodeId) -> None:
        self.forgotten.append(publisher)
        for each in self.subscriptions.values():
            each.forget(publisher)

    def receive(self, name: int, before: int, number: int, count: int = 1, publisher: NodeId = SOURCE, size: int = 0) -> int:
        """Read a body of one batch; return the number of late publications."""
        flow = self.flows.start_body(publisher, name, before, self.now)
        late = self.flows.accept(flow, number, count, self.now)
        if late < count:
            item = f"{number + late}-{number + count - 1}"
            if flow.is_held:
                self.flows.hold(flow, item, size, self.now)
            else:
                self.hand_out(flow, item, self.now)
        return late

    def answer(self, messages: int, publisher: NodeId = SOURCE, **counts: int) -> bool:
        """Answer the earliest question; counts are by tag, as ``t7``."""
        asked, id_, _range = self.flows.fetches.pop(0)
        assert asked == SOURCE
        answer = MissedEntries(messages, {int(tag[1:]): count for tag, count in counts.items()})
        return self.flows.receive_answer(publisher, id_, answer, self.now)

    def wait(self, duration_s: float) -> None:
        self.now += duration_s
        self.flows.handle_timeout(self.now)


def test_the_first_message_of_a_publisher_has_no_gap() -> None:
    node = Node(7)
    assert node.receive(10, 5, 40) == 0
    assert (node.handed, node.gaps, node.flows.fetches) == (["40-40"], [{}], [])


def test_a_flow_without_loss_asks_nothing() -> None:
    node = Node(7)
    node.receive(0, 0, 1, 3)
    node.receive(0, 3, 9)
    node.receive(0, 4, 10)
    assert node.handed == ["1-3", "9-9", "10-10"]
    assert node.gaps == [{}, {}, {}]
    assert node.flows.fetches == []


def test_late_and_repeated_messages_are_dropped_by_number() -> None:
    node = Node(7)
    node.receive(0, 0, 1, 3)
    assert node.receive(0, 0, 1, 3) == 3
    assert node.receive(0, 0, 2) == 1
    assert node.receive(0, 2, 3, 4) == 1, "the rest of the batch is new"
    node.receive(0, 6, 8)
    assert node.handed == ["1-3", "4-6", "8-8"]
    assert node.gaps == [{}, {}, {}]


def test_a_late_body_of_an_earlier_flow_changes_nothing() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(1, 0, 2)
    assert node.receive(0, 0, 1) == 1
    node.receive(1, 1, 3)
    assert node.gaps == [{}, {}, {}]


def test_each_subscription_gets_its_own_gap_where_the_loss_was() -> None:
    node = Node(7, 8, 9)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    node.receive(0, 4, 21)
    assert node.flows.fetches == [(SOURCE, 1, MissedRange(0, 1, 20))]
    assert node.handed == ["1-1"], "the others wait for the answer"
    assert node.answer(2, t7=2, t9=1)
    assert node.handed == ["1-1", "20-20", "21-21"]
    assert node.gaps == [{}, {7: 2, 9: 1}, {}]
    assert node.flows.deadline() is None


def test_a_thousand_subscriptions_and_one_lost_message_give_one_gap() -> None:
    class Matched:
        def __init__(self, tag: int) -> None:
            self.tag = tag

        def tags_of(self, node: NodeId) -> tuple[int, ...]:
            return (self.tag,) if node == LOCAL else ()

    publisher, node = OutgoingFlows(), Node(*range(1000))
    outgoing = publisher.begin(LOCAL)
    for tag in range(1000):
        number = publisher.publish(Matched(tag), [outgoing])
        header = outgoing.take_header()
        if tag != 500:
            *_, name, before = MESSAGE.unpack(header)
            node.receive(name, before, number)
    ((asked, id_, lost),) = node.flows.fetches
    assert asked == SOURCE
    node.flows.receive_answer(SOURCE, id_, publisher.answer(LOCAL, lost, 0.0), 0.0)
    assert len(node.handed) == 999
    assert [gaps for gaps in node.gaps if gaps] == [{500: 1}]


def test_without_an_answer_all_subscriptions_report_the_gap() -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    assert node.flows.deadline() == ANSWER_S
    node.wait(ANSWER_S / 2)
    assert node.handed == ["1-1"]
    node.wait(ANSWER_S / 2)
    assert node.gaps == [{}, {7: 2, 8: 2}]
    assert not node.answer(2, t7=2), "too late"
    node.receive(0, 4, 21)
    assert node.gaps[2:] == [{}]


@pytest.mark.parametrize("messages", [0, 1, 3])
def test_an_answer_that_contradicts_the_count_is_none(messages: int) -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    node.answer(messages, t7=messages)
    assert node.gaps == [{}, {7: 2, 8: 2}]


def test_a_publisher_that_does_not_know_says_so_at_once() -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    assert node.flows.receive_answer(SOURCE, 1, None, 0.0)
    assert node.gaps == [{}, {7: 2, 8: 2}]


def test_only_the_publisher_answers() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    assert not node.flows.receive_answer(SOURCE, 2, None, 0.0)
    assert not node.answer(2, OTHER, t7=2)
    assert node.handed == ["1-1"]


def test_entries_that_the_node_does_not_have_are_left_out() -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    node.answer(2, t7=1, t6=2)
    node.subscribe(6)
    node.receive(0, 4, 21)
    assert node.gaps == [{}, {7: 1}, {}]


@pytest.mark.parametrize("lost", [FETCHED_MESSAGES_MAX, FETCHED_MESSAGES_MAX + 1])
def test_a_large_gap_is_reported_by_all_without_a_question(lost: int) -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 1 + lost, 10_000)
    is_asked = lost <= FETCHED_MESSAGES_MAX
    assert len(node.flows.fetches) == is_asked
    node.wait(ANSWER_S * is_asked)
    assert node.gaps == [{}, {7: lost, 8: lost}]


def test_another_flow_may_have_missed_everything_between() -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(10, 3, 20)  # the numbers 2 to 10, and three messages of the new flow
    assert node.flows.fetches == []
    assert node.gaps == [{}, {7: 12, 8: 12}]
    node.receive(20, 0, 21)
    assert node.gaps[2:] == [{}], "nothing was published between"


def test_no_gap_is_larger_than_what_was_published() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(0, 1 << 31, 5)
    node.receive(4, 100, 9)
    node.receive(9, 1, (1 << 33) + 9)  # the count of the new flow may have passed 2^32
    node.wait(ANSWER_S)
    assert node.gaps == [{}, {7: 3}, {7: 3}, {7: (1 << 33) - 1}]


def test_a_count_goes_on_beyond_32_bits() -> None:
    node = Node(7)
    node.receive(0, (1 << 32) - 2, 1 << 33, 3)
    node.receive(0, 1, (1 << 33) + 3)
    node.receive(0, 4, (1 << 33) + 9)
    node.answer(2, t7=2)
    assert node.gaps == [{}, {}, {7: 2}]


def test_gaps_are_reported_in_order_whichever_answer_is_first() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(0, 2, 5)
    node.receive(0, 4, 9)
    first = node.flows.fetches.pop(0)
    node.answer(1, t7=1)
    assert node.handed == ["1-1"]
    node.flows.receive_answer(SOURCE, first[1], MissedEntries(1, {7: 1}), 0.0)
    assert node.handed == ["1-1", "5-5", "9-9"]
    assert node.gaps == [{}, {7: 1}, {7: 1}]


def test_too_many_gaps_do_not_wait() -> None:
    node = Node(7, 8)
    for each in range(GAPS_MAX + 1):
        node.receive(0, 2 * each, 2 * each + 1)
    assert len(node.flows.fetches) == GAPS_MAX
    assert node.handed == ["1-1"]
    node.receive(0, 2 * GAPS_MAX + 2, 2 * GAPS_MAX + 3)
    assert node.gaps == [{}] + [{7: 1, 8: 1}] * (GAPS_MAX + 1)
    assert node.flows.deadline() is None


def test_too_many_bytes_do_not_wait() -> None:
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 2, 5, size=HELD_BYTES_MAX - 2 * HELD_ITEM_BYTES)
    node.receive(0, 3, 6)
    assert node.handed == ["1-1"]
    node.receive(0, 4, 7)
    assert node.gaps == [{}, {7: 1, 8: 1}, {}, {}]
    node.receive(0, 5, 8)
    node.receive(0, 7, 10)
    assert node.handed[-1] == "8-8", "the released bytes do not count any more"


def test_a_node_without_subscriptions_asks_nothing() -> None:
    node = Node()
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    assert (node.flows.fetches, node.handed) == ([], ["1-1", "20-20"])


def test_a_new_subscription_does_not_report_earlier_gaps() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(10, 3, 20)
    node.subscribe(8)
    node.receive(10, 4, 21)
    node.receive(30, 0, 31)
    assert node.gaps == [{}, {7: 12}, {}, {7: 9, 8: 9}]


def test_joined_totals_are_never_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "TOTALS_MAX", 1)
    node = Node(7, 8, 9)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    node.answer(2, t7=2, t8=1)
    assert node.gaps == [{}, {7: 2, 8: 2, 9: 2}]


def test_a_forgotten_publisher_is_unknown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "PUBLISHERS_MAX", 1)
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(5, 1, 9, publisher=OTHER)
    assert node.forgotten == [SOURCE]
    assert node.gaps == [{}, {}], "a new publisher is not unknown"
    node.receive(0, 4, 12)
    node.receive(0, 5, 13)
    assert node.gaps[2:] == [{7: None, 8: None}, {}]
    node.receive(0, 8, 16)
    node.answer(2, t7=2)
    assert node.gaps[4:] == [{7: 2}]


def test_messages_of_a_forgotten_publisher_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "PUBLISHERS_MAX", 1)
    node = Node(7)
    node.receive(0, 0, 1, 3)
    node.receive(0, 0, 1, publisher=OTHER)
    assert node.receive(0, 0, 1, 3) == 3
    assert node.handed == ["1-3", "1-1"]


def test_the_longest_silent_publisher_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "PUBLISHERS_MAX", 2)
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(0, 0, 1, publisher=OTHER)
    node.receive(0, 1, 2)
    node.receive(0, 0, 1, publisher=LOCAL)
    assert node.forgotten == [OTHER]


def test_after_too_many_forgotten_publishers_a_new_one_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "PUBLISHERS_MAX", 1)
    monkeypatch.setattr(incoming_flows, "FORGOTTEN_MAX", 1)
    node = Node(7)
    for number in range(5, 8):
        node.receive(0, 0, 1, publisher=NodeId(bytes([number]) * 16))
    assert node.gaps == [{}, {}, {}]
    node.receive(3, 1, 9, publisher=OTHER)
    node.receive(0, 0, 1, publisher=LOCAL)
    assert node.gaps[3:] == [{7: None}, {}], "the first publication of a publisher misses nothing"


def test_what_is_held_of_a_forgotten_publisher_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_flows, "PUBLISHERS_MAX", 1)
    node = Node(7, 8)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    node.receive(0, 0, 1, publisher=OTHER)
    assert node.gaps == [{}, {7: 2, 8: 2}, {}]
    assert node.flows.deadline() is None


def test_a_node_counts_what_it_missed() -> None:
    node = Node(7)
    node.receive(0, 0, 1)
    node.receive(0, 3, 20)
    flow = node.flows.start_body(SOURCE, 0, 4, 0.0)
    assert (flow.missed, flow.last, flow.name) == (2, 20, 0)
