"""Counters by name: what is forgotten goes on in one sum, so that no number falls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_py.observe.counts import FAR_NAMES_MAX, OTHER, CountTable, FarTable, GroupCounts


def count(counts: GroupCounts, times: int) -> None:
    counts.sent += times
    counts.published += times
    counts.errors["NoMembers"] = counts.errors.get("NoMembers", 0) + times
    counts.unopened["Overloaded"] = counts.unopened.get("Overloaded", 0) + times
    counts.round_trip.recent += [0.5] * times
    counts.serving().rejected["expired"] = counts.serving().rejected.get("expired", 0) + times
    counts.serving().queue_wait.at_once += times
    counts.surveying().asked += times


def numbers(counts: GroupCounts) -> tuple[int, ...]:
    service, surveys = counts.service, counts.surveys
    return (
        counts.sent,
        counts.published,
        counts.errors.get("NoMembers", 0),
        counts.unopened.get("Overloaded", 0),
        counts.round_trip.show().count,
        0 if service is None else service.rejected.get("expired", 0),
        0 if service is None else service.queue_wait.show().count,
        0 if surveys is None else surveys.asked,
    )


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", OTHER]), st.integers(0, 5), st.booleans()), max_size=60))
def test_the_sum_of_all_names_is_what_was_counted_whatever_is_forgotten(steps: list[tuple[str, int, bool]]) -> None:
    table, used, total = CountTable(), dict.fromkeys(("a", "b", "c", OTHER), 0), 0
    for name, times, is_released in steps:
        if is_released and used[name]:
            table.release(name)
            used[name] -= 1
            continue
        count(table.use(name), times)
        used[name] += 1
        total += times
        every = [numbers(counts) for counts in (*table.by_name.values(), table.forgotten)]
        assert [sum(each) for each in zip(*every, strict=True)] == [total] * 8
        assert table.sent() == table.totals.round_trip.show().count == table.totals.queue_wait.show().count == total
    assert set(table.by_name) == {name for name, users in used.items() if users and name != OTHER}


def test_generations_of_a_secret_share_the_counters_of_their_name() -> None:
    table = CountTable()
    first, second = table.use("a"), table.use("a")
    assert first is second
    first.sent += 1
    table.release("a")
    assert table.by_name["a"].sent == 1
    assert table.forgotten.sent == 0
    table.release("a")
    assert not table.by_name
    assert (table.forgotten.sent, table.has_forgotten) == (1, True)


def test_a_program_that_makes_up_names_of_other_clouds_is_counted_in_one_sum_beyond_the_bound() -> None:
    table = FarTable()
    for number in range(FAR_NAMES_MAX + 10):
        table.of(f"made-up-{number}@eu").sent += 1
    assert table.of("made-up-0@eu").sent == 1
    assert table.all()[OTHER].sent == 10
    assert len(table.all()) == FAR_NAMES_MAX + 1
