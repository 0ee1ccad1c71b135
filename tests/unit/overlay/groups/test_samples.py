"""Dealing samples: evenly, without repetition, whatever comes and goes."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.groups.tree import Dealer
from iris_overlay.ids import NodeId
from tests.profiles import examples


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 60), st.integers(1, 40))
def test_samples_differ_by_one_at_most(seed: int, members: int, samples: int, count: int) -> None:
    dealer = Dealer(random.Random(seed))
    for number in range(members):
        dealer.add(node(number))
    uses: Counter[NodeId] = Counter({node(number): 0 for number in range(members)})
    for _ in range(samples):
        sample = dealer.deal(count)
        assert len(sample) == len(set(sample)) == min(count, members)
        uses.update(sample)
    assert max(uses.values()) - min(uses.values()) <= 1
    assert all(dealer.uses(member) == used for member, used in uses.items())
    assert dealer.uses_min() == min(uses.values())


@settings(max_examples=examples(50), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.sampled_from(["add", "remove", "deal", "release"]), st.integers(0, 30)), max_size=200),
)
def test_counts_are_right_after_any_changes(seed: int, steps: list[tuple[str, int]]) -> None:
    dealer = Dealer(random.Random(seed))
    uses: dict[NodeId, int] = {}
    for step, number in steps:
        member = node(number)
        if step == "add" and member not in uses:
            dealer.add(member)
            uses[member] = 0
        elif step == "remove" and member in uses:
            dealer.remove(member)
            del uses[member]
        elif step == "deal":
            excluded = {node(other) for other in range(5)}
            sample = dealer.deal(number % 8, excluded)
            assert excluded.isdisjoint(sample)
            rest = [used for other, used in uses.items() if other not in excluded and other not in sample]
            assert all(uses[other] <= min(rest, default=1000) for other in sample)
            for other in sample:
                uses[other] += 1
        elif step == "release":
            dealer.release(member)
            if member in uses:
                uses[member] = max(0, uses[member] - 1)
        assert all(dealer.uses(other) == used for other, used in uses.items())
        assert all((node(other) in dealer) == (node(other) in uses) for other in range(31))
