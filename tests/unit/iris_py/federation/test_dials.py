"""The dials to one neighbour: several slots, no address twice at once, and waits that grow."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.connections import CONNECTION_TRIES_MAX
from iris_py.federation.dials import (
    BACK_OFF_S_MAX,
    BACK_OFF_S_MIN,
    DUPLICATE_S_MAX,
    DUPLICATE_S_MIN,
    LIFE_S,
    PAUSES_MAX,
    TURN_S,
    Dials,
    draw_pause,
)

if TYPE_CHECKING:
    from iris_py.federation.bundle import Bundle


class FakeBundle:
    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at


def bundle(opened_at: float = 0.0) -> Bundle:
    return cast("Bundle", FakeBundle(opened_at))


def make(addresses: tuple[str, ...] = ("a:1",), bundles: int = 2, seed: int = 1) -> Dials:
    return Dials(addresses, bundles, Random(seed), 0.0)


def test_without_addresses_nothing_is_dialled() -> None:
    dials = make(())
    assert dials.due(0.0) == []
    assert dials.deadline() is None


def test_each_slot_dials_an_address_of_its_own() -> None:
    dials = make(("a:1", "b:1", "c:1"))
    assert [slot.address for slot in dials.due(0.0)] == ["a:1", "b:1"]
    assert dials.due(10.0) == []
    assert dials.deadline() is None


def test_one_address_is_dialled_by_one_slot_at_a_time() -> None:
    dials = make()
    (slot,) = dials.due(0.0)
    assert dials.deadline() == TURN_S
    assert dials.due(TURN_S) == []
    slot.bundle = bundle()
    (other,) = dials.due(2 * TURN_S)
    assert other is not slot
    assert other.address == "a:1"


def test_where_it_was_dialled_last_is_remembered_and_an_error_until_somebody_answers() -> None:
    dials = make(bundles=1)
    (slot,) = dials.due(0.0)
    dials.failed(slot, "nobody", 0.0)
    assert (slot.address, slot.tried, slot.error, slot.failures) == ("", "a:1", "nobody", 1)
    (slot,) = dials.due(10.0)
    dials.failed(slot, "", 10.0, is_duplicate=True)
    assert (slot.tried, slot.error, slot.failures) == ("a:1", "", 0), "a gateway that has a line already has answered"


def test_waits_grow_up_to_a_bound() -> None:
    dials, now = make(bundles=1), 0.0
    for failures in range(1, 60):
        (slot,) = dials.due(now)
        dials.failed(slot, "nobody", now)
        assert slot.failures == failures
        assert slot.error == "nobody"
        assert now <= slot.dial_at <= now + min(BACK_OFF_S_MAX, BACK_OFF_S_MIN * 2**failures)
        assert dials.deadline() == slot.dial_at
        now = slot.dial_at
    assert now < 60 * BACK_OFF_S_MAX


@pytest.mark.parametrize(("life_s", "failures"), [(LIFE_S - 1, 4), (LIFE_S, 1)])
def test_a_bundle_that_lived_makes_waits_short_again(life_s: float, failures: int) -> None:
    dials = make(bundles=1)
    (slot,) = dials.due(0.0)
    slot.failures, slot.bundle = 3, bundle(100.0)
    dials.failed(slot, "it broke", 100.0 + life_s)
    assert slot.failures == failures
    assert slot.is_idle


def test_a_duplicate_is_tried_again_ever_later_and_is_no_failure() -> None:
    dials, now = make(bundles=1), 0.0
    for count in range(10):
        (slot,) = dials.due(now)
        dials.failed(slot, "", now, is_duplicate=True)
        pause_s = min(DUPLICATE_S_MAX, DUPLICATE_S_MIN * 2**count)
        assert now <= slot.dial_at <= now + PAUSES_MAX * pause_s
        assert (slot.failures, slot.error) == (0, "")
        now = slot.dial_at
    (slot,) = dials.slots
    slot.bundle = bundle(now)
    dials.failed(slot, "it broke", now)
    (slot,) = dials.due(now + BACK_OFF_S_MAX)
    dials.failed(slot, "", now, is_duplicate=True)
    assert slot.dial_at <= now + PAUSES_MAX * DUPLICATE_S_MIN, "after a bundle it begins anew"


def test_other_addresses_are_dialled_from_now_on() -> None:
    dials = make(("a:1", "b:1"), 2)
    one, two = dials.due(0.0)
    one.bundle = bundle()
    dials.change(["c:1"], 2, 1.0)
    dials.failed(two, "gone", 1.0)
    (again,) = dials.due(20.0)
    assert (again, again.address) == (two, "c:1")
    assert dials.slots == [one, two]


def test_fewer_bundles_are_kept_until_they_end() -> None:
    dials = make(("a:1", "b:1", "c:1"), 3)
    one, two, three = dials.due(0.0)
    one.bundle = two.bundle = bundle()
    dials.failed(three, "nobody", 0.0)
    dials.change(["a:1"], 1, 1.0)
    assert dials.slots == [one, two]
    dials.failed(two, "it broke", 2.0)
    assert dials.slots == [one]
    dials.failed(one, "it broke", 2.0)
    assert dials.slots == [one]
    dials.change([], 1, 3.0)
    assert dials.slots == []
    assert dials.deadline() is None


def test_another_gateway_is_looked_for_while_one_leaves_and_takes_its_place() -> None:
    dials = Dials(["a", "b"], 1, Random(1), 0.0)
    (slot,) = dials.due(0.0)
    slot.bundle = bundle(0.0)
    dials.handle_leaving(1.0)
    dials.handle_leaving(1.0)
    (other,) = dials.due(1.0)
    assert (slot.address, other.address) == ("a", "b")
    other.bundle = bundle(1.0)
    dials.handle_leaving(1.0)
    assert len(dials.slots) == 2, "all addresses are in use"
    dials.failed(slot, "it has left", 2.0)
    assert dials.slots == [other]


def test_who_finds_no_other_gateway_goes_on_with_the_one_that_leaves() -> None:
    dials = Dials(["a", "b"], 1, Random(1), 0.0)
    (slot,) = dials.due(0.0)
    slot.bundle = bundle(0.0)
    dials.handle_leaving(1.0)
    (other,) = dials.due(1.0)
    dials.failed(other, "nobody listens there", 1.0)
    assert dials.slots == [slot]


def test_more_bundles_are_dialled_at_once() -> None:
    dials = make(("a:1", "b:1", "c:1"), 1)
    dials.due(0.0)
    dials.change(["a:1", "b:1", "c:1"], 3, 5.0)
    assert [slot.address for slot in dials.due(5.0)] == ["b:1", "c:1"]


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(["wait", "open", "fail", "duplicate", "end", "change"]), st.integers(0, 7)), max_size=60
    ),
)
def test_whatever_happens_no_address_is_dialled_twice_at_once(
    addresses: int, bundles: int, steps: list[tuple[str, int]]
) -> None:
    names = [f"{n}:1" for n in range(addresses)]
    dials, now = make(tuple(names), bundles), 0.0
    wanted = bundles
    for what, number in steps:
        dialling = [slot for slot in dials.slots if slot.address and slot.bundle is None]
        living = [slot for slot in dials.slots if slot.bundle is not None]
        if what == "wait":
            now = max(now, dials.deadline() or now) + number / 10
            dials.due(now)
        elif what == "change":
            wanted = number
            dials.change(names[: number + 1], wanted, now)
        elif what == "end" and living:
            dials.failed(living[number % len(living)], "x", now)
        elif dialling and what != "end":
            slot = dialling[number % len(dialling)]
            if what == "open":
                slot.bundle = bundle(now)
            else:
                dials.failed(slot, "x", now, is_duplicate=what == "duplicate")
        under_way = [slot.address for slot in dials.slots if slot.address and slot.bundle is None]
        assert len(set(under_way)) == len(under_way)
        assert len(dials.slots) >= wanted
        assert not any(slot.is_idle for slot in dials.slots[max(wanted, 0) :]) or len(dials.slots) == wanted
        idle = [slot for slot in dials.slots if slot.is_idle]
        assert (dials.deadline() is None) == (not idle)
        assert all(slot.dial_at <= now + PAUSES_MAX * DUPLICATE_S_MAX for slot in idle)


def test_two_that_dial_in_turns_fall_out_of_step() -> None:
    """Round robin leads each of two to the target of the other one as long as both dial in one rhythm."""
    rng = Random(1)
    for _ in range(2000):
        dials_at = [draw_pause(1.0, rng), draw_pause(1.0, rng)]
        turns, tries = itertools.count(int(dials_at[0] < dials_at[1])), 0
        while len(dials_at) == 2:
            dialler = dials_at.index(min(dials_at))
            if next(turns) % 2 == dialler:
                break  # one of them is led to its target, and the other one's next dial, too
            dials_at[dialler] += draw_pause(1.0, rng)
            tries += 1
        assert tries < 2 * CONNECTION_TRIES_MAX
