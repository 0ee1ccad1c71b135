"""Which topic groups a node takes part in: everything wanted is covered at all times, by few memberships."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_py.patterns.topic.coverage import TOPIC_GROUPS_MAX, Coverage
from iris_py.patterns.topic.names import Tokens, prefixes
from tests.profiles import examples

wanted_prefixes = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


def take(coverage: Coverage) -> tuple[list[Tokens], list[Tokens]]:
    joins, coverage.joins = coverage.joins, []
    leaves, coverage.leaves = coverage.leaves, []
    coverage.settled.clear()
    return joins, leaves


def settle(coverage: Coverage) -> tuple[list[Tokens], list[Tokens]]:
    """Let the overlay do everything that is asked of it."""
    all_joins, all_leaves = [], []
    while True:
        joins, leaves = take(coverage)
        all_joins += joins
        all_leaves += leaves
        if not joins:
            return all_joins, all_leaves
        for prefix in joins:
            coverage.joined(prefix)


def test_a_wide_membership_covers_narrower_ones_and_replaces_them_when_it_is_known() -> None:
    coverage = Coverage()
    assert coverage.add(("a", "b")) == ("a", "b")
    assert settle(coverage) == ([("a", "b")], [])
    assert coverage.add(("a",)) == ("a",)
    assert take(coverage) == ([("a",)], [])
    assert coverage.is_known(("a", "b"))
    assert not coverage.is_known(("a",))
    coverage.joined(("a",))
    assert take(coverage) == ([], [("a", "b")])
    assert coverage.add(("a", "c", "d")) == ("a",)
    assert take(coverage) == ([], [])


def test_a_wide_membership_that_nobody_wants_any_more_gives_way_when_narrower_ones_are_known() -> None:
    coverage = Coverage()
    coverage.add(())
    settle(coverage)
    coverage.add(("a", "b"))
    coverage.add(("c",))
    coverage.remove(())
    joins, leaves = take(coverage)
    assert (set(joins), leaves) == ({("a", "b"), ("c",)}, [])
    coverage.joined(("c",))
    assert take(coverage) == ([], [])
    assert coverage.is_known(("a", "b"))
    coverage.joined(("a", "b"))
    assert take(coverage) == ([], [()])


def test_a_wide_membership_stays_until_half_the_bound_is_enough_for_the_narrower_ones() -> None:
    coverage = Coverage(4)
    for prefix in (("a",), ("a", "b"), ("a", "c"), ("a", "d")):
        coverage.add(prefix)
    settle(coverage)
    coverage.remove(("a",))
    assert settle(coverage) == ([], [])
    assert coverage.members == {("a",): True}
    coverage.remove(("a", "d"))
    settle(coverage)
    assert coverage.members == {("a", "b"): True, ("a", "c"): True}


def test_very_many_subscriptions_take_a_bounded_number_of_memberships() -> None:
    coverage = Coverage()
    for number in range(3_000):
        coverage.add(("users", str(number)))
        settle(coverage)
        assert len(coverage.members) <= TOPIC_GROUPS_MAX
    assert list(coverage.members) == [("users",)]
    for number in range(3_000):
        coverage.add((f"team{number % 60}", "x", str(number)))
        settle(coverage)
        assert len(coverage.members) <= TOPIC_GROUPS_MAX
    assert ("users",) in coverage.members
    assert () not in coverage.members
    for number in range(3_000):
        coverage.remove(("users", str(number)))
        coverage.remove((f"team{number % 60}", "x", str(number)))
        settle(coverage)
    assert coverage.members == {}
    assert coverage._under == coverage._wanted == {}


def test_topics_of_one_token_each_fall_back_to_the_group_of_everything() -> None:
    coverage = Coverage(8)
    for number in range(100):
        coverage.add((str(number),))
        settle(coverage)
    assert list(coverage.members) == [()]


class Covering(RuleBasedStateMachine):
    """Subscriptions come and go while the overlay reports memberships in any order."""

    @initialize(groups_max=st.integers(2, 6))
    def start(self, groups_max: int) -> None:
        self.coverage = Coverage(groups_max)
        self.wanted: list[Tokens] = []
        self.joining: set[Tokens] = set()
        self.joined: set[Tokens] = set()
        self.known: set[Tokens] = set()  # what is wanted and was covered by what everybody knows

    def carry(self) -> None:
        joins, leaves = take(self.coverage)
        for prefix in joins:
            assert prefix not in self.joining | self.joined
            self.joining.add(prefix)
        for prefix in leaves:
            assert prefix in self.joining | self.joined
            self.joining.discard(prefix)
            self.joined.discard(prefix)

    @rule(prefix=wanted_prefixes)
    def add(self, prefix: Tokens) -> None:
        cover = self.coverage.add(prefix)
        assert cover == prefix[: len(cover)]
        self.wanted.append(prefix)
        self.carry()

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        prefix = data.draw(st.sampled_from(self.wanted))
        self.wanted.remove(prefix)
        self.known &= set(self.wanted)
        self.coverage.remove(prefix)
        self.carry()

    @precondition(lambda self: self.joining)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        prefix = data.draw(st.sampled_from(sorted(self.joining)))
        self.joining.remove(prefix)
        self.joined.add(prefix)
        self.coverage.joined(prefix)
        self.carry()

    @invariant()
    def everything_wanted_is_covered(self) -> None:
        for prefix in set(self.wanted):
            assert self.coverage.cover(prefix) is not None
            is_known = any(each in self.joined for each in prefixes(prefix))
            assert is_known or prefix not in self.known, "what everybody knew of is not covered any more"
            if is_known:
                self.known.add(prefix)
        assert set(self.coverage.members) == self.joining | self.joined

    @invariant()
    def nothing_is_left_over_when_all_is_quiet(self) -> None:
        if self.joining:
            return
        assert len(self.joined) <= self.coverage._groups_max
        assert not any(other in self.joined for each in self.joined for other in prefixes(each)[:-1])
        assert self.wanted or not self.joined


TestCovering = Covering.TestCase
TestCovering.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@given(st.lists(wanted_prefixes, min_size=1, max_size=20), st.integers(0, 19))
def test_memberships_that_are_refused_leave_the_others_as_they_were(wanted: list[Tokens], at: int) -> None:
    coverage = Coverage(4)
    for prefix in wanted[:at]:
        coverage.add(prefix)
        settle(coverage)
    before = dict(coverage.members)
    prefix = wanted[-1]
    coverage.add(prefix)
    refused, coverage.joins = coverage.joins, []
    coverage.failed(refused)
    if refused:
        coverage.remove(prefix)
    assert set(settle(coverage)[0]) <= set(before) | set(wanted)
    assert all(coverage.is_known(each) for each in wanted[:at])


def test_beyond_the_bound_the_wider_group_takes_the_place_of_the_narrow_one() -> None:
    coverage = Coverage(groups_max=2)
    for prefix in (("a", "b"), ("a", "c")):
        assert coverage.add(prefix) == prefix
    settle(coverage)
    assert coverage.add(("a", "d")) == ("a",)
    assert take(coverage) == ([("a",)], [])  # and not the narrow one besides: the bound is one on what is joined, too
    assert len(coverage.members) == 3
    coverage.joined(("a",))
    assert sorted(take(coverage)[1]) == [("a", "b"), ("a", "c")]
    assert list(coverage.members) == [("a",)]


def test_beyond_the_bound_what_shares_no_prefix_gets_a_group_of_everything() -> None:
    coverage = Coverage(groups_max=2)
    for prefix in (("a",), ("b",)):
        coverage.add(prefix)
    settle(coverage)
    assert coverage.add(("c",)) == ()
    assert take(coverage) == ([()], [])
