"""Tests of iris_overlay/detector/order.py, alone and through the detector."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.detector.config import CONTACTS_MAX
from iris_overlay.detector.messages import (
    Ping,
    PingRequest,
)
from iris_overlay.detector.order import ProbeOrder
from iris_overlay.ids import NodeId
from tests.unit.overlay.detector.harness import LOCAL, STRANGER, Harness, contact


def test_the_neighbour_is_probed_every_period_and_the_others_in_turn() -> None:
    harness = Harness()
    sent = harness.run_for(8.0)
    pings = [(when, message.target) for when, _, message in sent if type(message) is Ping]
    times = [when for when, target in pings if target == harness.neighbour.id]
    assert len(times) == 8
    assert [after - before for before, after in itertools.pairwise(times)] == pytest.approx([1.0] * 7)
    assert sorted(target for _, target in pings if target != harness.neighbour.id) == [other.id for other in harness.others]
    assert len(pings) == len(sent)


def test_each_pass_has_another_order() -> None:
    harness = Harness()
    passes = []
    for _ in range(3):
        sent = harness.run_for(8.0)
        passes.append([m.target for _, _, m in sent if type(m) is Ping and m.target != harness.neighbour.id])
    assert len({tuple(order) for order in passes}) == 3
    assert len({tuple(sorted(order)) for order in passes}) == 1


def test_a_newcomer_has_its_turn_within_the_pass() -> None:
    for count in range(1, 7):
        harness = Harness()
        harness.run_for(float(count))
        newcomer = contact(99)
        harness.detector.set_contacts(harness.neighbour, [*harness.others, newcomer], harness.now)
        sent = harness.run_for(9.0 - count)
        assert newcomer.id in {message.target for _, _, message in sent if type(message) is Ping}


def test_helpers_are_three_different_living_contacts_out_of_the_first() -> None:
    harness = Harness(others=100)
    harness.silent = {harness.neighbour.id}
    sent = harness.run_for(1.9)
    helpers = [address for _, address, m in sent if type(m) is PingRequest]
    near = {other.address for other in harness.others[:16]}
    assert len(helpers) >= 6
    assert set(helpers) <= near
    assert all(len(set(helpers[at : at + 3])) == 3 for at in (0, 3))


def test_who_asked_is_not_asked_in_the_same_pass() -> None:
    harness = Harness(others=4)
    asking = harness.others[1]
    asked = Counter[NodeId]()
    for number in range(40):
        harness.give(Ping(number, asking.id, LOCAL), asking.address or STRANGER)
        asked.update(m.target for _, _, m in harness.run_for(1.0) if type(m) is Ping)
    assert asking.id not in asked
    assert all(asked[other.id] >= 9 for other in harness.others if other is not asking)


def test_contacts_are_bounded() -> None:
    harness = Harness()
    many = [contact(number) for number in range(1, CONTACTS_MAX + 100)]
    harness.detector.set_contacts(many[0], many, harness.now)
    assert len(harness.detector._order.contacts) == CONTACTS_MAX
    assert harness.detector.counters.contacts_ignored == 99
    for _ in range(100):
        harness.detector.set_contacts(many[0], many[:5], harness.now)
        harness.detector.set_contacts(many[0], many[:50], harness.now)
    assert len(harness.detector._order._round_robin) <= 50


@given(st.lists(st.tuples(st.sets(st.integers(1, 12)), st.integers(0, 5)), max_size=12))
def test_a_pass_comes_past_everybody_once(steps: list[tuple[set[int], int]]) -> None:
    order = ProbeOrder(random.Random(1))
    for numbers, turns in steps:
        order.replace(LOCAL, None, [contact(number) for number in sorted(numbers)])
        for _ in range(turns):
            assert (order.next_other(lambda _: True) is not None) == bool(numbers)
        assert len(set(order._round_robin)) == len(order._round_robin)
        assert set(order._round_robin) <= set(order.contacts)
    names = set(order.contacts)
    seen = {found.id for _ in range(2 * len(names)) if (found := order.next_other(lambda _: True)) is not None}
    assert seen == names
