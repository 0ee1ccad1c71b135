"""Labels of metrics: their number is bounded, and no counter falls, whatever a node forgets and remembers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from iris_py.metrics.families import Labels, NamedTotals
from iris_py.observe.counts import OTHER

NAMES = ["a", "b", "c", "d", OTHER]


def test_the_first_names_have_labels_of_their_own_for_ever() -> None:
    labels = Labels(2)
    assert [labels(name) for name in ("b", "a", "c", "b", OTHER)] == ["b", "a", OTHER, "b", OTHER]


#: What happens to a node between two looks: something is counted under a name, or the node forgets the name.
steps = st.lists(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["count", "forget"])), max_size=6), min_size=1, max_size=12
)


@given(steps)
def test_no_series_falls_and_nothing_is_told_twice(steps: list[list[tuple[str, str]]]) -> None:
    node: dict[str, Counter[str]] = {}
    totals: NamedTotals[str] = NamedTotals(Labels(2))
    counted = 0
    before: dict[str, dict[str, float]] = {}
    for step in steps:
        for name, what in step:
            if what == "count":
                counted += 1
                node.setdefault(name, Counter())["requests"] += 1
            elif name in node and name != OTHER:
                node.setdefault(OTHER, Counter()).update(node.pop(name))
        series = totals.take(node)
        assert set(series) <= {*list(totals._labels._names), OTHER}
        assert len(series) <= 3
        for label, numbers in before.items():
            assert all(series[label][key] >= value for key, value in numbers.items())
        total = sum(numbers.get("requests", 0) for numbers in series.values())
        assert total >= counted
        if not any(what == "forget" for _name, what in (each for one in steps for each in one)):
            assert total == counted
        before = {label: dict(numbers) for label, numbers in series.items()}


def test_what_was_counted_under_a_forgotten_name_stays_where_it_was() -> None:
    totals: NamedTotals[str] = NamedTotals(Labels(1))
    assert totals.take({"a": {"x": 5}, "b": {"x": 2}}) == {"a": {"x": 5}, OTHER: {"x": 2}}
    assert totals.take({OTHER: {"x": 6}, "b": {"x": 2}}) == {"a": {"x": 5}, OTHER: {"x": 3}}, (
        "one more, before it was forgotten"
    )
    assert totals.take({"a": {"x": 1}, OTHER: {"x": 6}, "b": {"x": 2}}) == {"a": {"x": 6}, OTHER: {"x": 3}}
