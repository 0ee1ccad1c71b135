"""The entries that stand for the subscriptions of a node: enough, bounded, and changed as seldom as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.patterns.topic import own_interest
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.own_interest import WIDENED_MIN, OwnInterest
from iris_py.patterns.topic.pattern_sets import covers
from iris_py.patterns.topic.shapes import NODE_SHAPES_MAX, shape_of
from iris_py.wire.packets import NODE_COUNTED_MAX

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens

TOKEN = st.sampled_from(["a", "b", "*"])
PATTERN = st.tuples(st.lists(TOKEN, min_size=1, max_size=4), st.booleans()).map(
    lambda drawn: (*drawn[0], ">") if drawn[1] else tuple(drawn[0])
)


class Registered:
    """The entries as other nodes know them, from the changes alone."""

    def __init__(self) -> None:
        self.interest = OwnInterest()
        self.patterns: set[Tokens] = set()
        self.subscribed: list[Tokens] = []

    def add(self, pattern: Tokens) -> int:
        """Subscribe; return the number of changed entries."""
        self.subscribed.append(pattern)
        return self._apply(*self.interest.add(pattern))

    def remove(self, pattern: Tokens) -> int:
        self.subscribed.remove(pattern)
        return self._apply(*self.interest.remove(pattern))

    def widen(self, first: str, entries_max: int) -> int:
        """Use fewer entries for those with a first token."""
        return self._apply(*self.interest.widen({each for each in self.patterns if each[0] == first}, entries_max))

    def _apply(self, added: list[own_interest.OwnEntry], removed: list[own_interest.OwnEntry]) -> int:
        new, old = {entry.pattern for entry in added}, {entry.pattern for entry in removed}
        assert old <= self.patterns
        assert not new & self.patterns - old
        self.patterns = self.patterns - old | new
        assert self.patterns == self.interest.entries.keys()
        for pattern in self.subscribed:
            entry = self.interest.entry_of(pattern)
            assert self.interest.entries[entry.pattern] is entry
            assert covers(entry.pattern, pattern)
        return len(added) + len(removed)


def test_within_the_bounds_each_pattern_has_an_entry_of_its_own() -> None:
    node = Registered()
    for name in ("a", "a.*", "a.>", "*.b", ">", "a"):
        node.add(parse_pattern(name))
    assert node.patterns == set(map(parse_pattern, ("a", "a.*", "a.>", "*.b", ">")))
    assert node.remove(parse_pattern("a")) == 0, "another subscription has the same pattern"
    assert node.remove(parse_pattern("a")) == 1
    assert parse_pattern("a") not in node.patterns


def test_counted_patterns_have_exact_entries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_interest, "ENTRIES_MAX", 100)
    node = Registered()
    for number in range(100):
        node.add(("users", f"{number}"))
    interest, pattern = node.interest, ("users", "7")
    added, removed = interest.add(pattern, is_counted=True)
    entry = interest.entry_of(pattern, is_counted=True)
    assert entry is added[0]
    assert (entry.pattern, entry.is_counted) == (pattern, True)
    assert len(interest.all_entries()) == 100 - len(removed) + len(added) < 100, "others made room"
    assert interest.entry_of(pattern) is not entry
    assert interest.add(pattern, is_counted=True) == interest.remove(pattern, is_counted=True) == ([], [])
    for number in range(NODE_COUNTED_MAX - 1):
        interest.add((f"{number}",), is_counted=True)
    with pytest.raises(ValueError, match=r"^this node has 16 counted patterns"):
        interest.add(("x",), is_counted=True)
    assert interest.remove(pattern, is_counted=True) == ([], [entry])
    assert len(interest.counted) == NODE_COUNTED_MAX - 1
    interest.add(("x",), is_counted=True)
    node.patterns = set(interest.entries)
    for number in range(200):
        node.add((f"t{number}", "x"))
        assert len(interest.all_entries()) <= 100


def test_very_many_subscriptions_have_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_interest, "ENTRIES_MAX", 20)
    node = Registered()
    changes = [node.add(("users", f"{number}")) for number in range(200)]
    assert len(node.patterns) <= 20
    assert sum(change > 0 for change in changes) <= 21, "what a wide entry stands for changes nothing"
    for number in range(195):
        node.remove(("users", f"{number}"))
    assert node.patterns == {("users", f"{number}") for number in range(195, 200)}, "few are exact again"


def test_shapes_under_one_first_token_are_bounded_and_other_tokens_stay_exact() -> None:
    node = Registered()
    node.add(("b", "c"))
    for number in range(NODE_SHAPES_MAX + 4):
        node.add(("a", *(["*", "x"][number >> bit & 1] for bit in range(5))))
    assert ("b", "c") in node.patterns
    shapes = {shape_of(pattern) for pattern in node.patterns if pattern[0] == "a"}
    assert len(shapes) <= NODE_SHAPES_MAX


def test_a_full_table_makes_some_entries_wider_and_no_others() -> None:
    node = Registered()
    for number in range(2 * WIDENED_MIN):
        for first in "ab":
            node.add((first, f"{number}"))
    assert node.widen("a", WIDENED_MIN) == 2 * WIDENED_MIN + 1
    assert node.patterns == {("a", ">"), *(("b", f"{number}") for number in range(2 * WIDENED_MIN))}
    assert node.add(("a", "x")) == 0, "the wide entry stands for it"
    assert node.widen("b", 1) == 2 * WIDENED_MIN + 1
    node = Registered()
    for number in range(WIDENED_MIN):
        node.add(("a", f"{number}"))
    assert node.widen("a", 1) == 0, "a lying root may ask for anything"


@given(st.lists(st.tuples(st.sampled_from("+-w"), PATTERN), max_size=40), st.integers(1, 6), st.integers(2, 4))
def test_the_entries_stand_for_all_subscriptions_and_for_nothing_after_the_last(
    steps: list[tuple[str, Tokens]], entries_max: int, shapes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_interest, "ENTRIES_MAX", 4 * entries_max)
        patch.setattr(own_interest, "NODE_SHAPES_MAX", 2 * shapes_max)
        patch.setattr(own_interest, "WIDENED_MIN", 1)
        node = Registered()
        for step, pattern in steps:
            if step == "w":
                node.widen(pattern[0], entries_max)
            elif step == "+":
                node.add(pattern)
                assert len(node.patterns) <= 4 * entries_max
            elif pattern in node.subscribed:
                node.remove(pattern)
        for pattern in list(node.subscribed):
            node.remove(pattern)
        assert node.patterns == set()
