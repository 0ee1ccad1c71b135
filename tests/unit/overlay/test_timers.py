from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.timers import STALE_ENTRIES_FLOOR, DeadlineTable

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("deadline"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@given(OPERATIONS)
def test_equals_a_table_that_sorts(operations: list[tuple[str, int, int]]) -> None:
    table: DeadlineTable[int] = DeadlineTable()
    # The dumb version: the deadline and the order of setting, by key.
    model: dict[int, tuple[int, float]] = {}
    for order, (operation, key, when) in enumerate(operations):
        if operation == "set":
            table.set(key, when)
            model[key] = (when, order)
        elif operation == "cancel":
            table.cancel(key)
            model.pop(key, None)
        elif operation == "deadline":
            # Not after each operation: it removes stale entries, and expired has to cope with them too.
            assert table.deadline() == min((when for when, _ in model.values()), default=None)
        else:
            expected = [key for key in sorted(model, key=model.__getitem__) if model[key][0] <= when]
            if key:
                expected = expected[:key]
            assert table.expired(when, *[key] * bool(key)) == expected
            for each in expected:
                del model[each]
        assert len(table) == len(model)
        assert all((key in table) == (key in model) for key in range(6))


def test_memory_follows_the_live_entries() -> None:
    table: DeadlineTable[int] = DeadlineTable()
    for number in range(10_000):
        table.set(number % 3, float(number))
    assert len(table._heap) <= 2 * 3 + STALE_ENTRIES_FLOOR
    for number in range(10_000):
        table.set(number, 1.0)
    for number in range(10_000):
        table.cancel(number)
    assert len(table._heap) <= STALE_ENTRIES_FLOOR
    assert table.deadline() is None
    assert table.expired(1e9) == []


def test_memory_follows_the_live_entries_after_deadlines_have_passed() -> None:
    table: DeadlineTable[int] = DeadlineTable()
    for number in range(100):
        table.set(number, 1.0)
        table.set(100 + number, 9.0)
    for number in range(100, 200):
        table.cancel(number)
    assert len(table.expired(1.0)) == 100
    assert len(table._heap) <= STALE_ENTRIES_FLOOR
    table.set(1, 5.0)
    assert table.expired(9.0) == [1]


def test_keys_are_never_compared() -> None:
    table: DeadlineTable[complex] = DeadlineTable()
    table.set(1j, 1.0)
    table.set(2j, 1.0)
    assert table.expired(1.0) == [1j, 2j]


def test_a_key_moved_to_the_future_does_not_expire_early() -> None:
    table: DeadlineTable[str] = DeadlineTable()
    table.set("a", 1.0)
    table.set("a", 5.0)
    assert table.expired(2.0) == []
    assert table.expired(5.0) == ["a"]


def test_a_key_moved_to_the_past_expires_once() -> None:
    table: DeadlineTable[str] = DeadlineTable()
    table.set("a", 5.0)
    table.set("a", 1.0)
    assert table.deadline() == 1.0
    assert table.expired(10.0) == ["a"]
    assert table.expired(10.0) == []
