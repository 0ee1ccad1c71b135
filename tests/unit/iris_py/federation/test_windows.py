"""The windows of channels: what they begin with, when they grow, and what they take together."""

from __future__ import annotations

import pytest

from iris_py.federation.channels import (
    FIRST_WINDOW_BYTES,
    FIRST_WINDOW_BYTES_MIN,
    FIRST_WINDOW_SHARE,
    HEADROOM,
    WindowBudget,
    WindowGrowth,
)

MIB = 1024 * 1024
QUEUE_BYTES = 1000


def growth_of(limit_bytes: int, largest_bytes: int = 16 * MIB) -> WindowGrowth:
    growth = WindowGrowth(WindowBudget(limit_bytes), largest_bytes)
    growth.round_trip_s = 0.1
    return growth


@pytest.mark.parametrize(
    ("left_bytes", "expected"),
    [
        (1024 * MIB, FIRST_WINDOW_BYTES),
        (FIRST_WINDOW_SHARE * FIRST_WINDOW_BYTES, FIRST_WINDOW_BYTES),
        (FIRST_WINDOW_SHARE * 100_000, 100_000),
        (FIRST_WINDOW_BYTES_MIN + QUEUE_BYTES, FIRST_WINDOW_BYTES_MIN),
        (FIRST_WINDOW_BYTES_MIN + QUEUE_BYTES - 1, 0),
        (0, 0),
    ],
)
def test_a_channel_begins_with_less_where_little_room_is_left(left_bytes: int, expected: int) -> None:
    assert growth_of(left_bytes).first_window_bytes(QUEUE_BYTES) == expected


def test_no_window_begins_larger_than_the_operator_allows() -> None:
    assert growth_of(1024 * MIB, largest_bytes=100_000).first_window_bytes(QUEUE_BYTES) == 100_000


@pytest.mark.parametrize(
    ("taken", "elapsed_s", "expected"),
    [
        (MIB // 2, 0.1, MIB),
        (MIB * 6 // 10, 0.1, MIB),  # it would be 5 % more
        (MIB * 7 // 10, 0.1, int(HEADROOM * (MIB * 7 // 10))),
        (MIB, 0.1, int(HEADROOM * MIB)),
        (MIB, 0.2, MIB),  # half a window in each round trip
        (2 * MIB, 0.2, int(HEADROOM * MIB)),
        (4 * MIB, 0.1, 2 * MIB),
        (0, 0.1, MIB),
    ],
)
def test_a_window_grows_to_some_more_than_was_taken_in_a_round_trip(taken: int, elapsed_s: float, expected: int) -> None:
    growth = growth_of(1024 * MIB)
    growth.budget.take(MIB)
    assert growth.next_window_bytes(MIB, taken, elapsed_s) == expected
    assert growth.budget.used_bytes == expected


def test_a_window_grows_up_to_its_bound_and_only_while_there_is_memory() -> None:
    growth = growth_of(1024 * MIB, largest_bytes=5 * MIB)
    sizes = [MIB]
    for _ in range(4):
        sizes.append(growth.next_window_bytes(sizes[-1], 2 * sizes[-1], 0.1))
    assert sizes == [MIB, 2 * MIB, 4 * MIB, 5 * MIB, 5 * MIB]
    growth = growth_of(2 * MIB)
    growth.budget.take(MIB + 1)
    assert growth.next_window_bytes(MIB, 2 * MIB, 0.1) == MIB


def test_a_part_of_a_budget_is_bound_by_the_whole_too() -> None:
    gateway = WindowBudget(100)
    one, other = (WindowBudget(80, channels_max=2, within=gateway) for _ in range(2))
    assert (one.left_bytes, gateway.has_place) == (80, True)
    other.take(70, channels=1)
    assert (one.left_bytes, other.left_bytes, gateway.used_bytes) == (30, 10, 70)
    other.take(0, channels=1)
    assert (one.has_place, other.has_place) == (True, False)
    other.give_back(70, channels=2)
    assert (one.left_bytes, gateway.used_bytes, gateway.channels, other.has_place) == (80, 0, 0, True)


def test_a_part_has_no_place_where_the_whole_has_none() -> None:
    gateway = WindowBudget(100, channels_max=1)
    one, other = (WindowBudget(80, within=gateway) for _ in range(2))
    one.take(1, channels=1)
    assert not other.has_place
    assert WindowGrowth(other, MIB).first_window_bytes(0) == 0
