"""Tests of iris_py/balancer.py."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.balancer import MemberLoad, choose, is_less_loaded


def loads(count: int) -> list[MemberLoad]:
    return [MemberLoad() for _ in range(count)]


def load(in_flight: int, service_time_s: float) -> MemberLoad:
    member = MemberLoad()
    member.in_flight, member.service_time_s = in_flight, service_time_s
    return member


class Draws:
    """Randomness that was written down."""

    def __init__(self, *draws: float) -> None:
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0)


def test_one_member_needs_no_randomness() -> None:
    (only,) = loads(1)
    assert choose([only], Draws()) is only


@given(st.integers(2, 50), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_two_different_ones_are_drawn(count: int, first: float, second: float) -> None:
    members = loads(count)
    for member in members:
        member.in_flight = 1
    one = choose(members, Draws(first, second))
    one.in_flight = 2
    assert choose(members, Draws(first, second)) is not one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (load(0, 0.0), load(1, 0.0)),
        (load(0, 5.0), load(1, 0.0)),  # not measured: by what is in flight alone
        (load(3, 0.001), load(0, 0.1)),
        (load(0, 0.001), load(0, 0.002)),
    ],
)
def test_less_loaded(one: MemberLoad, other: MemberLoad) -> None:
    assert is_less_loaded(one, other)
    assert not is_less_loaded(other, one)


def test_the_mean_follows_within_ten_replies() -> None:
    member = MemberLoad()
    member.observe(1.0)
    assert member.service_time_s == 1.0
    for _ in range(10):
        member.observe(0.0)
    assert 0 < member.service_time_s < 0.11
    member.observe(100.0)
    assert member.service_time_s < 21


def test_even_spread_of_equals() -> None:
    rng = random.Random(1)
    members = loads(10)
    counts = Counter(id(choose(members, rng)) for _ in range(10_000))
    assert all(800 < counts[id(member)] < 1200 for member in members)


def test_the_longest_queue_stays_short() -> None:
    """One choice puts about log n / log log n, here 8 or more, on the fullest of 1,000; two choices 3 or 4."""
    rng = random.Random(1)
    members = loads(1000)
    for _ in range(1000):
        choose(members, rng).in_flight += 1
    assert max(member.in_flight for member in members) <= 4


def simulate(service_times_s: list[float], requests: int, *, concurrent: int = 8) -> Counter[int]:
    """Keep some requests in flight at members that serve one after another; returns how many each got."""
    rng = random.Random(1)
    members = loads(len(service_times_s))
    busy_until = [0.0] * len(members)
    running: list[tuple[float, float, int]] = []
    counts: Counter[int] = Counter()
    now = 0.0
    for _ in range(requests):
        if len(running) == concurrent:
            running.sort()
            now, sent_at, index = running.pop(0)
            members[index].in_flight -= 1
            members[index].observe(now - sent_at)
        index = members.index(choose(members, rng))
        members[index].in_flight += 1
        counts[index] += 1
        busy_until[index] = max(now, busy_until[index]) + service_times_s[index]
        running.append((busy_until[index], now, index))
    return counts


def test_a_slow_member_gets_less() -> None:
    counts = simulate([0.001, 0.001, 0.001, 0.01], 4000)
    assert counts[3] < 0.1 * 4000
    assert min(counts[0], counts[1], counts[2]) > 0.25 * 4000


@pytest.mark.parametrize("others", [1, 3])
def test_one_slow_reply_does_not_keep_a_member_out(others: int) -> None:
    """Who is not asked is not measured: what was measured long ago must fade."""
    rng = random.Random(1)
    members = loads(1 + others)
    for member in members:
        member.observe(0.001)
    members[0].observe(1.0)
    counts: Counter[int] = Counter()
    for _ in range(4000):
        member = choose(members, rng)
        member.observe(0.001)
        counts[members.index(member)] += 1
    assert counts[0] > 0.5 * 4000 / (1 + others)


def test_a_member_that_stays_ten_times_slower_is_rarely_tried() -> None:
    rng = random.Random(1)
    members = loads(2)
    counts: Counter[int] = Counter()
    for _ in range(5000):
        member = choose(members, rng)
        index = members.index(member)
        member.observe(0.01 if index == 0 else 0.001)
        counts[index] += 1
    assert 0 < counts[0] < 0.03 * 5000
