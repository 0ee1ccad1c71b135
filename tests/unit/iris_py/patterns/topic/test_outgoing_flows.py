"""The publisher's side of flows, in small steps; tests/property/test_flows.py runs both sides against a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.ids import NodeId
from iris_py.patterns.topic import outgoing_flows
from iris_py.patterns.topic.outgoing_flows import ABSENT_S, ANSWERS_MAX, ANSWERS_S, OutgoingFlow, OutgoingFlows
from iris_py.wire.flows import FETCHED_MESSAGES_MAX, MissedEntries, MissedRange, encode_flow

if TYPE_CHECKING:
    from collections.abc import Collection

ONE, TWO, THREE = (NodeId(bytes([number]) * 16) for number in (1, 2, 3))


class Matched:
    def __init__(self, **tags: tuple[int, ...]) -> None:
        self.tags = {{"one": ONE, "two": TWO}[name]: its for name, its in tags.items()}

    def tags_of(self, node: NodeId) -> Collection[int]:
        return self.tags.get(node, ())


FOR_ONE = Matched(one=(7,))
FOR_BOTH = Matched(one=(7, 8), two=(9,))


def test_one_number_counts_everything_that_is_published() -> None:
    flows = OutgoingFlows()
    one, two = flows.begin(ONE), flows.begin(TWO)
    assert flows.publish(FOR_ONE, [one]) == 1
    assert flows.publish(Matched(), [], 10) == 2
    assert flows.publish(FOR_BOTH, [one, two], 3) == 12
    assert (flows.number, one.count, two.count) == (14, 4, 3)


def test_a_flow_is_named_by_the_number_when_it_began() -> None:
    flows = OutgoingFlows()
    flows.publish(Matched(), [], 5)
    one = flows.begin(ONE)
    assert one.take_header() == encode_flow(5, 0)
    flows.publish(FOR_ONE, [one], 3)
    assert one.take_header() == encode_flow(5, 0)
    flows.publish(FOR_ONE, [one])
    assert one.take_header() == encode_flow(5, 3)


def test_a_dropped_body_is_counted_before_the_next_one() -> None:
    flows = OutgoingFlows()
    one = flows.begin(ONE)
    flows.publish(FOR_ONE, [one], 3)
    one.drop_body()
    flows.publish(FOR_ONE, [one])
    assert one.take_header() == encode_flow(0, 3)


def test_a_flow_goes_on_after_an_absence_and_without_entries() -> None:
    flows = OutgoingFlows()
    one = flows.begin(ONE)
    assert flows.lose(ONE, 100.0) == flows.lose(ONE, 200.0) == flows.lose(TWO, 100.0) == []
    assert [flow.node for flow in flows.flows.values() if flow.is_absent] == [ONE]
    flows.publish(FOR_ONE, [one], 4)
    assert flows.deadline() == 100.0 + ABSENT_S
    assert flows.handle_timeout(99.0 + ABSENT_S) == []
    assert flows.begin(ONE) is one
    assert not one.is_absent
    assert flows.deadline() is None
    assert one.take_header() == encode_flow(0, 4)
    flows.withdraw(ONE)
    assert not flows.flows
    flows.publish(Matched(), [], 9)
    assert flows.begin(ONE) is one
    assert one.take_header() == encode_flow(0, 4)


def test_an_absent_node_is_forgotten_in_time() -> None:
    flows = OutgoingFlows()
    for node, now in ((ONE, 0.0), (TWO, 1.0), (THREE, 2.0)):
        flows.begin(node)
        flows.lose(node, now)
    flows.begin(TWO)
    assert flows.handle_timeout(2.0 + ABSENT_S) == [ONE, THREE]
    assert list(flows.flows) == [TWO]
    flows.publish(Matched(), [], 6)
    assert flows.begin(ONE).take_header() == encode_flow(6, 0)


def test_the_longest_absent_node_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_flows, "ABSENT_MAX", 2)
    flows = OutgoingFlows()
    for node in (ONE, TWO, THREE):
        flows.begin(node)
    assert [flows.lose(node, 0.0) for node in (TWO, ONE, THREE)] == [[], [], [TWO]]
    assert set(flows.flows) == {ONE, THREE}


def test_an_absent_node_without_entries_is_no_longer_absent() -> None:
    flows = OutgoingFlows()
    flows.begin(ONE)
    flows.lose(ONE, 0.0)
    flows.withdraw(ONE)
    flows.withdraw(TWO)
    assert flows.deadline() is None
    assert not flows.begin(ONE).is_absent


def test_the_first_withdrawn_flow_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_flows, "REMEMBERED_MAX", 1)
    flows = OutgoingFlows()
    one, two = flows.begin(ONE), flows.begin(TWO)
    flows.publish(FOR_BOTH, [one, two])
    flows.withdraw(ONE)
    flows.withdraw(TWO)
    assert flows.begin(TWO) is two
    assert flows.begin(ONE).name == 1


def logged() -> tuple[OutgoingFlows, OutgoingFlow]:
    """Publish the numbers 1 to 6: one for both, three for ONE, one for nobody, one for ONE."""
    flows = OutgoingFlows()
    one, two = flows.begin(ONE), flows.begin(TWO)
    flows.publish(FOR_BOTH, [one, two])
    flows.publish(FOR_ONE, [one], 3)
    flows.publish(Matched(), [])
    flows.publish(FOR_ONE, [one])
    return flows, one


@pytest.mark.parametrize(
    ("after", "before", "found"),
    [
        (0, 7, MissedEntries(5, {7: 5, 8: 1})),
        (1, 6, MissedEntries(3, {7: 3})),
        (2, 4, MissedEntries(1, {7: 1})),
        (3, 7, MissedEntries(2, {7: 2})),
        (4, 6, MissedEntries(0, {})),
        (0, 100, MissedEntries(5, {7: 5, 8: 1})),
    ],
)
def test_the_entries_of_a_range(after: int, before: int, found: MissedEntries) -> None:
    flows, _one = logged()
    assert flows.answer(ONE, MissedRange(0, after, before), 0.0) == found


def test_questions_about_other_flows_have_no_answer() -> None:
    flows, _one = logged()
    assert flows.answer(THREE, MissedRange(0, 0, 7), 0.0) is None
    assert flows.answer(ONE, MissedRange(1, 1, 7), 0.0) is None


def test_a_withdrawn_node_still_gets_its_answer() -> None:
    flows, _one = logged()
    flows.withdraw(ONE)
    assert flows.answer(ONE, MissedRange(0, 3, 7), 0.0) == MissedEntries(2, {7: 2})


def test_a_range_of_too_many_messages_has_no_answer() -> None:
    flows = OutgoingFlows()
    one = flows.begin(ONE)
    flows.publish(FOR_ONE, [one], FETCHED_MESSAGES_MAX + 1)
    assert flows.answer(ONE, MissedRange(0, 0, flows.number), 0.0) == MissedEntries(4096, {7: 4096})
    assert flows.answer(ONE, MissedRange(0, 0, flows.number + 1), 0.0) is None


def test_the_log_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_flows, "LOGGED_MAX", 3)
    flows = OutgoingFlows()
    one = flows.begin(ONE)
    for _ in range(5):
        flows.publish(FOR_ONE, [one], 2)
    assert flows.answer(ONE, MissedRange(0, 0, 11), 0.0) == MissedEntries(10, {7: 10})
    flows.publish(FOR_ONE, [one], 2)
    assert flows.answer(ONE, MissedRange(0, 5, 13), 0.0) is None
    assert flows.answer(ONE, MissedRange(0, 6, 13), 0.0) == MissedEntries(6, {7: 6})


def test_a_node_that_asks_too_often_waits() -> None:
    flows, _one = logged()
    answers = [flows.answer(ONE, MissedRange(0, 4, 6), 5.0) for _ in range(ANSWERS_MAX + 2)]
    assert answers == [MissedEntries(0, {})] * ANSWERS_MAX + [None, None]
    assert flows.answer(TWO, MissedRange(0, 4, 6), 5.0) is not None
    assert flows.answer(ONE, MissedRange(0, 4, 6), 5.0 + ANSWERS_S) is not None
