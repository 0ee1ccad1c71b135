"""Tests of security/iris_security/replay.py: the bitmap against a set that remembers everything."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris_security.replay import REPLAY_WINDOW, ReplayWindow

EDGES = [1, 2, REPLAY_WINDOW - 1, REPLAY_WINDOW, REPLAY_WINDOW + 1, 2 * REPLAY_WINDOW]


class SetWindow:
    """A window as plainly as it can be said."""

    def __init__(self) -> None:
        self.highest = -1
        self.seen: set[int] = set()

    def accept(self, counter: int) -> bool:
        if counter in self.seen or counter <= self.highest - REPLAY_WINDOW:
            return False
        self.seen.add(counter)
        self.highest = max(self.highest, counter)
        return True


def check(counters: list[int]) -> None:
    window, model = ReplayWindow(), SetWindow()
    for counter in counters:
        assert window.accept(counter) is model.accept(counter), counter


@given(st.lists(st.integers(0, 20)))
def test_dense(counters: list[int]) -> None:
    check(counters)


@given(st.lists(st.integers(0, 3 * REPLAY_WINDOW)))
def test_sparse(counters: list[int]) -> None:
    check(counters)


STEPS = st.one_of(st.sampled_from(EDGES), st.sampled_from([-step for step in EDGES]), st.integers(-40, 40))


@given(st.lists(STEPS))
@example([REPLAY_WINDOW, 1 - REPLAY_WINDOW, REPLAY_WINDOW - 1, -REPLAY_WINDOW])
def test_steps_over_the_edges(steps: list[int]) -> None:
    counters, at = [], 0
    for step in steps:
        at = max(0, at + step)
        counters.append(at)
    check(counters)


@given(st.permutations(range(60)), st.permutations(range(60)))
def test_any_order_is_accepted_once(first: list[int], second: list[int]) -> None:
    window = ReplayWindow()
    assert all(window.accept(counter) for counter in first)
    assert not any(window.accept(counter) for counter in second)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_the_whole_range_of_a_counter(counters: list[int]) -> None:
    check(counters)


def test_in_order_then_all_again() -> None:
    window = ReplayWindow()
    assert all(window.accept(counter) for counter in range(3 * REPLAY_WINDOW))
    assert not any(window.accept(counter) for counter in range(3 * REPLAY_WINDOW))


@pytest.mark.parametrize("start", [0, 1, 5 * REPLAY_WINDOW])
def test_the_last_place_of_the_window(start: int) -> None:
    highest = start + REPLAY_WINDOW
    window = ReplayWindow()
    assert window.accept(highest)
    assert not window.accept(start)
    assert window.accept(start + 1)
    assert not window.accept(start + 1)


def test_a_leap_leaves_a_small_window() -> None:
    """A counter of 2^64 - 1 must not become a shift of that width."""
    window = ReplayWindow()
    assert window.accept(0)
    assert window.accept(2**64 - 1)
    assert not window.accept(2**64 - 1)
    assert window.accept(2**64 - REPLAY_WINDOW)
    assert not window.accept(2**64 - REPLAY_WINDOW - 1)


def test_a_stream_without_loss_needs_no_bitmap() -> None:
    window = ReplayWindow()
    for counter in range(5):
        window.accept(counter)
    assert window._missing == 0


def test_the_bitmap_never_outgrows_the_window() -> None:
    for step in (1, 7):
        window = ReplayWindow()
        window.accept(0)
        for counter in range(5, 5 * REPLAY_WINDOW, step):
            window.accept(counter)
            assert window._missing.bit_length() <= REPLAY_WINDOW
