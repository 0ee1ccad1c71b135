"""Tests of iris_py/peers/balancer.py."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.groups.tree import Dealer
from iris_overlay.ids import ID_BYTES, NodeId
from iris_py.peers.balancer import (
    FAILED_FACTOR,
    FAILED_MARGIN,
    FAILED_TIMES,
    SERVICE_TIME_KEPT,
    SERVICE_TIME_WEIGHT,
    SHARES_MAX,
    SPILL_FACTOR,
    SPILL_IN_FLIGHT_MIN,
    MemberLoad,
    by_distance,
    by_rank,
    choose_near,
    is_in_zone,
    is_less_loaded,
    zone_distance,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.environment import Rng


class Linked(MemberLoad):
    """A member with a link that may not be open yet."""

    def __init__(self, distance: int = 0, *, is_linked: bool = True) -> None:
        super().__init__(distance)
        self.is_linked = is_linked

    @property
    def is_ready(self) -> bool:
        return self.is_linked


def loads(count: int, distance: int = 0) -> list[MemberLoad]:
    return [MemberLoad(distance) for _ in range(count)]


def load(in_flight: int, service_time_s: float, distance: int = 0) -> MemberLoad:
    member = MemberLoad(distance)
    member.in_flight, member.service_time_s = in_flight, service_time_s
    return member


def choose(members: Sequence[MemberLoad], rng: Rng) -> MemberLoad:
    """Choose among members that have a link."""
    chosen, unready = choose_near(by_distance(members), rng)
    assert unready is None
    return chosen


class Draws(random.Random):
    """Randomness that was written down."""

    def __init__(self, *draws: float) -> None:
        super().__init__(1)
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


def test_what_has_faded_gives_way_to_what_is_measured() -> None:
    slow, recovered, steady = MemberLoad(), MemberLoad(), MemberLoad()
    for member in (slow, recovered):
        member.observe(1.0)
        member.service_time_s = 0.1  # passed over for long
    slow.observe(1.0)
    assert 0.9 < slow.service_time_s < 1.0
    recovered.observe(0.1)
    assert recovered.service_time_s == pytest.approx(0.1)
    steady.observe(1.0)
    steady.observe(2.0)
    assert steady.service_time_s == pytest.approx(1.0 + SERVICE_TIME_WEIGHT)


def weigh(*weights: float) -> list[MemberLoad]:
    members = loads(len(weights))
    for member, weight in zip(members, weights, strict=True):
        member.cost = sum(weights) / len(weights) / weight
    return members


@pytest.mark.parametrize("concurrent", [1, 40])
@pytest.mark.parametrize("weights", [(1.0, 2.0), (1.0, 1.0, 4.0), (0.5, 1.0, 1.0, 3.5)])
def test_weights_share_out_light_and_heavy_load(concurrent: int, weights: tuple[float, ...]) -> None:
    """Of members of the same speed, each of which runs everything at once."""
    rng = random.Random(1)
    members = weigh(*weights)
    levels = by_distance(members)
    counts: Counter[int] = Counter()
    running: list[tuple[float, int, MemberLoad, float]] = []
    now = 0.0
    for number in range(20_000):
        if len(running) == concurrent:
            now, _number, member, duration_s = heapq.heappop(running)
            member.in_flight -= 1
            member.observe(duration_s)
        member, _unready = choose_near(levels, rng)
        member.in_flight += 1
        counts[members.index(member)] += 1
        duration_s = rng.uniform(0.9, 1.1)
        heapq.heappush(running, (now + duration_s, number, member, duration_s))
    for index, weight in enumerate(weights):
        assert 0.8 < counts[index] / (20_000 * weight / sum(weights)) < 1.2


def test_a_level_holds_a_member_as_often_as_its_weight_says() -> None:
    one, two, tiny, far = weigh(1.0, 2.0, 0.01, 5.0)
    far.distance = 1
    near, beyond = by_distance([one, two, tiny, far])
    assert [near.count(member) for member in (one, two, tiny)] == [SHARES_MAX // 2, SHARES_MAX, 1]
    assert beyond == [far]  # nobody to share with
    heavy = weigh(7.0, 7.0)
    assert by_distance(heavy) == [heavy]


def test_who_is_drawn_twice_does_not_fade() -> None:
    heavy, light = weigh(3.0, 1.0)
    heavy.observe(1.0)
    light.observe(1.0)
    levels = by_distance([heavy, light])
    chosen, unready = choose_near(levels, Draws(0.0, 0.0))  # two places of the same member
    assert (chosen, unready, heavy.service_time_s) == (heavy, None, 1.0)


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


@dataclass
class Requester:
    """Keeps some requests in flight at what it knows of the members."""

    members: list[MemberLoad]
    indices: list[int]

    def __post_init__(self) -> None:
        self.levels = by_distance(self.members)
        self.index_of = {id(member): index for member, index in zip(self.members, self.indices, strict=True)}


def simulate(
    requesters: Sequence[Requester], service_times_s: Sequence[float], requests: int, *, concurrent: int, varies: bool = False
) -> Counter[int]:
    """Let members serve one request after another, and requesters send the next when one is answered.

    Returns how many each member got. The first half is not counted: nobody knows anybody's speed yet.
    """
    rng = random.Random(1)
    busy_until = [0.0] * len(service_times_s)
    counts: Counter[int] = Counter()
    waiting = [requester for requester in requesters for _ in range(concurrent)]
    running: list[tuple[float, int, Requester, MemberLoad, float]] = []
    now = 0.0
    for number in range(requests):
        if waiting:
            requester = waiting.pop()
        else:
            now, _, requester, member, sent_at = heapq.heappop(running)
            member.in_flight -= 1
            member.observe(now - sent_at)
        member, _ = choose_near(requester.levels, rng)
        member.in_flight += 1
        index = requester.index_of[id(member)]
        if number >= requests // 2:
            counts[index] += 1
        duration_s = service_times_s[index] * (rng.expovariate(1.0) if varies else 1.0)
        busy_until[index] = max(now, busy_until[index]) + duration_s
        heapq.heappush(running, (busy_until[index], number, requester, member, now))
    return counts


def alone(*members: MemberLoad) -> list[Requester]:
    return [Requester(list(members), list(range(len(members))))]


def test_a_slow_member_gets_less() -> None:
    counts = simulate(alone(*loads(4)), [0.001, 0.001, 0.001, 0.01], 8000, concurrent=8)
    assert counts[3] < 0.1 * 4000
    assert min(counts[0], counts[1], counts[2]) > 0.25 * 4000


@pytest.mark.parametrize("others", [1, 3])
def test_one_slow_reply_does_not_keep_a_member_out(others: int) -> None:
    """A member that is not asked is not measured: an old measurement must fade."""
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


# -- as it was without zones and links


def plain_power_of_two_choices(members: Sequence[MemberLoad], rng: Rng) -> MemberLoad:
    count = len(members)
    if count == 1:
        return members[0]
    first, second = int(rng.random() * count), int(rng.random() * (count - 1))
    one, other = members[first], members[second + (second >= first)]
    chosen, passed = (one, other) if is_less_loaded(one, other) else (other, one)
    if not passed.in_flight:
        passed.service_time_s *= SERVICE_TIME_KEPT
    return chosen


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.001, 0.002, 0.1])), min_size=1, max_size=40),
    st.integers(0, 3),
    st.integers(0, 2**32),
)
def test_with_equal_distances_it_is_the_plain_power_of_two_choices(
    states: list[tuple[int, float]], distance: int, seed: int
) -> None:
    ours = [load(*state, distance) for state in states]
    plain = [load(*state) for state in states]
    levels, our_rng, plain_rng = by_distance(ours), random.Random(seed), random.Random(seed)
    for _ in range(20):
        chosen, unready = choose_near(levels, our_rng)
        assert unready is None
        index = ours.index(chosen)
        assert index == plain.index(plain_power_of_two_choices(plain, plain_rng))
        ours[index].in_flight += 1
        plain[index].in_flight += 1
    assert [member.service_time_s for member in ours] == [member.service_time_s for member in plain]
    assert our_rng.random() == plain_rng.random()


def test_samples_of_a_large_cluster_spread_its_load() -> None:
    """The busiest of 1,000 members gets at most 1.5 times the mean from 100 requesters who see 32 members each."""
    dealer = Dealer(random.Random(1))
    nodes = [NodeId(number.to_bytes(ID_BYTES, "big")) for number in range(1000)]
    for node in nodes:
        dealer.add(node)
    index_of = {node: index for index, node in enumerate(nodes)}
    requesters = [Requester(loads(32), [index_of[node] for node in dealer.deal(32)]) for _ in range(100)]
    counts = simulate(requesters, [0.001] * 1000, 500_000, concurrent=4, varies=True)
    mean = counts.total() / len(nodes)
    assert max(counts.values()) <= 1.5 * mean


# -- zones


@pytest.mark.parametrize(
    ("local", "other", "distance"),
    [
        ("", "", 0),
        ("", "eu/a", 0),
        ("eu", "eu", 0),
        ("eu", "eu/a", 0),
        ("eu", "us", 1),
        ("eu", "", 1),
        ("eu/a", "eu/a", 0),
        ("eu/a", "eu/a/rack-7", 0),
        ("eu/a", "eu/b", 1),
        ("eu/a", "eu", 1),
        ("eu/a", "eu/aa", 1),
        ("eu/a", "us/a", 2),
        ("eu/a", "", 2),
        ("eu/a/rack-7", "eu/a/rack-8", 1),
        ("eu/a/rack-7", "eu/b/rack-7", 2),
    ],
)
def test_the_distance_of_zones(local: str, other: str, distance: int) -> None:
    assert zone_distance(local, other) == distance


@pytest.mark.parametrize(
    ("zone", "required", "is_in"),
    [("eu", "eu", True), ("eu/a", "eu", True), ("eu/a/7", "eu/a", True), ("eu", "eu/a", False), ("eu/ab", "eu/a", False)],
)
def test_what_lies_in_a_zone(zone: str, required: str, is_in: bool) -> None:
    assert is_in_zone(zone, required) is is_in
    assert not is_in_zone("", required)


@given(st.lists(st.integers(0, 3)))
def test_levels_hold_everybody_the_nearest_first(distances: list[int]) -> None:
    members = [MemberLoad(distance) for distance in distances]
    levels = by_distance(members)
    assert all(levels)
    assert [member for level in levels for member in level] == sorted(members, key=lambda member: member.distance)
    assert [level[0].distance for level in levels] == sorted(set(distances))


@pytest.mark.parametrize("near", [1, 2, 10])
def test_an_idle_zone_keeps_its_requests(near: int) -> None:
    """One after another, even if others are faster."""
    members = [*loads(near), *loads(20, 1), *loads(20, 2)]
    for member in members:
        member.observe(0.0001 if member.distance else 0.001)
    levels, rng = by_distance(members), random.Random(1)
    for _ in range(2000):
        chosen, _ = choose_near(levels, rng)
        assert chosen.distance == 0
        chosen.observe(0.001)


def test_a_zone_that_is_large_enough_keeps_what_is_sent_at_once() -> None:
    members = [*loads(10), *loads(20, 1)]
    counts = simulate(alone(*members), [0.001] * 10 + [0.003] * 20, 20_000, concurrent=8)
    assert sum(counts[index] for index in range(10)) > 0.99 * counts.total()


def test_what_is_too_much_for_a_zone_spills_over_to_the_next() -> None:
    """A near member holds about SPILL_FACTOR times as much as one of the next level, and the third level nothing."""
    members = [*loads(2), *loads(20, 1), *loads(20, 2)]
    rng, levels = random.Random(1), by_distance(members)
    for _ in range(100):
        chosen, _ = choose_near(levels, rng)
        chosen.in_flight += 1
    near, next_, third = (sum(member.in_flight for member in level) / len(level) for level in levels)
    assert SPILL_FACTOR * next_ <= near + 1 <= SPILL_FACTOR * (next_ + 3)
    assert third < next_ / 2
    for _ in range(1000):
        chosen, _ = choose_near(levels, rng)
        chosen.in_flight += 1
    near, next_, third = (sum(member.in_flight for member in level) / len(level) for level in levels)
    assert near > next_ > third > 0


def test_an_overloaded_zone_shares_its_load() -> None:
    """Two near members serve 2,000 a second; others are as fast and ten times as many."""
    members = [*loads(2), *loads(20, 1)]
    counts = simulate(alone(*members), [0.001] * 22, 40_000, concurrent=60)
    near = (counts[0] + counts[1]) / counts.total()
    assert 2 / 22 < near < 0.5
    assert min(counts[index] for index in range(22)) > 0


def test_a_slow_zone_is_left_for_the_next_under_load() -> None:
    members = [*loads(4), *loads(4, 1)]
    counts = simulate(alone(*members), [0.1] * 4 + [0.001] * 4, 20_000, concurrent=16)
    assert sum(counts[index] for index in range(4)) < 0.1 * counts.total()


def test_requests_come_home_when_the_overload_is_over() -> None:
    members = [*loads(2), *loads(20, 1)]
    requesters = alone(*members)
    simulate(requesters, [0.001] * 22, 20_000, concurrent=60)
    for member in members:
        member.in_flight = 0
    counts = simulate(requesters, [0.001] * 22, 4_000, concurrent=1)
    assert counts[0] + counts[1] == counts.total()


def test_where_all_near_members_are_left_out_the_next_level_is_the_nearest() -> None:
    members = [*loads(3), *loads(3, 1), *loads(3, 2)]
    levels, rng = by_distance(members[3:]), random.Random(1)
    assert {choose_near(levels, rng)[0].distance for _ in range(200)} == {1}


@pytest.mark.parametrize(
    ("near", "far", "spills"),
    [
        (load(SPILL_IN_FLIGHT_MIN - 1, 1.0), load(0, 0.001, 1), False),
        (load(2, 0.0), load(0, 0.0, 1), True),
        (load(3, 0.0), load(1, 0.0, 1), False),
        (load(4, 0.0), load(1, 0.0, 1), True),
        (load(2, 0.001), load(0, 0.0014, 1), True),
        (load(2, 0.001), load(0, 0.0016, 1), False),
        (load(9, 0.001), load(0, 0.0, 1), True),
    ],
)
def test_the_rule_of_spilling_over(near: MemberLoad, far: MemberLoad, spills: bool) -> None:
    assert choose_near([[near], [far]], random.Random(1))[0] is (far if spills else near)


def test_a_far_member_that_was_slow_once_is_tried_again() -> None:
    near, far = load(3, 0.001), load(0, 1.0, 1)
    rng = random.Random(1)
    tries = next(number for number in range(1000) if choose_near([[near], [far]], rng)[0] is far)
    assert 600 < tries < 650  # 0.99 ** 618 is a 500th


# -- links


def test_of_two_the_ready_one_is_taken_and_the_other_named() -> None:
    ready, unready = Linked(), Linked(is_linked=False)
    ready.in_flight = 100
    for draw in (0.0, 0.9):
        assert choose_near([[ready, unready]], Draws(draw, 0.0)) == (ready, unready)
        assert choose_near([[unready, ready]], Draws(draw, 0.0)) == (ready, unready)


def test_of_two_that_are_not_ready_the_less_loaded_is_taken() -> None:
    one, other = Linked(is_linked=False), Linked(is_linked=False)
    one.in_flight = 1
    for draw in (0.0, 0.9):
        assert choose_near([[one, other]], Draws(draw, 0.0)) == (other, None)


def test_nearness_counts_more_than_a_link() -> None:
    near, far = Linked(is_linked=False), Linked(1)
    assert choose_near([[near], [far]], Draws()) == (near, None)


def test_who_spills_over_does_not_wait_for_a_link() -> None:
    near, far, farther = Linked(), Linked(1, is_linked=False), Linked(2)
    near.in_flight = 10
    assert choose_near([[near], [far], [farther]], Draws(0.0)) == (near, far)
    far.is_linked = True
    assert choose_near([[near], [far], [farther]], Draws(0.0)) == (far, None)
    far.in_flight = 1  # no longer worth it
    near.in_flight = 2
    far.is_linked = False
    assert choose_near([[near], [far], [farther]], Draws(0.0)) == (near, None)


def test_the_near_member_without_a_link_comes_first() -> None:
    busy, unready, far = Linked(), Linked(is_linked=False), Linked(1, is_linked=False)
    busy.in_flight = 10
    assert choose_near([[busy, unready], [far]], Draws(0.0, 0.0, 0.0)) == (busy, unready)
    far.is_linked = True
    assert choose_near([[busy, unready], [far]], Draws(0.0, 0.0, 0.0)) == (far, unready)


def test_everybody_gets_a_link_and_then_the_same_share() -> None:
    members = [Linked(is_linked=False) for _ in range(32)]
    levels, rng = by_distance(members), random.Random(1)
    for _ in range(300):
        chosen, unready = choose_near(levels, rng)
        for member in (chosen, unready):
            if member is not None:
                member.is_linked = True
    assert all(member.is_ready for member in members)
    counts = Counter(members.index(choose_near(levels, rng)[0]) for _ in range(32_000))
    assert all(850 < counts[index] < 1150 for index in range(32))


def test_a_member_of_which_nothing_is_known_has_not_failed() -> None:
    known, new = MemberLoad(), MemberLoad()
    known.observe_failure()
    known.observe(0.01)
    assert new.failed == 0.0
    assert known.failed > 0.0


def failing(share: float) -> MemberLoad:
    member = MemberLoad()
    while member.failed < share:
        member.observe_failure()
    return member


@pytest.mark.parametrize("failed", [0.0, 0.1])
def test_who_fails_much_more_often_than_another_is_taken_for_slower(failed: float) -> None:
    one, other = failing(FAILED_TIMES * 0.2 + FAILED_MARGIN), failing(failed)
    other.in_flight = 1
    assert not is_less_loaded(one, other)
    assert is_less_loaded(other, one)
    other.in_flight = int(FAILED_FACTOR)
    assert is_less_loaded(one, other), "it is not kept out for ever"
    assert not is_less_loaded(other, one)


def test_who_fails_about_as_often_as_another_is_compared_by_load() -> None:
    one, other = failing(0.5), failing(0.4)
    one.in_flight = 1
    assert is_less_loaded(other, one)
    other.in_flight = 2
    assert is_less_loaded(one, other)


def test_replies_let_failures_be_forgotten() -> None:
    member, shares = failing(0.9), [1.0]
    while member.failed and len(shares) < 1000:
        assert member.failed < shares[-1]
        shares.append(member.failed)
        member.observe(0.01)
    assert member.failed == 0.0
    assert len(shares) > 2
    member.observe_failure()
    assert member.failed == failing(0.01).failed, "what was forgotten does not count again"


def test_to_wait_for_a_reply_is_neither_a_failure_nor_a_success() -> None:
    member = failing(0.5)
    failed = member.failed
    member.observe_silence(1.0)
    assert (member.failed, member.service_time_s) == (failed, 1.0)
    member.observe_silence(0.5)
    assert member.service_time_s == 1.0, "that it takes longer than this is known"


def test_ranks_come_in_order_and_their_members_in_that_of_the_view() -> None:
    members = loads(5)
    for member, rank in zip(members, (2, 0, 1, 0, 2), strict=True):
        member.rank = rank
    assert by_rank(members) == [[members[1], members[3]], [members[2]], [members[0], members[4]]]
    assert by_rank(members[1:2]) == [[members[1]]]
    assert by_rank(()) == []


def test_a_member_is_known_to_be_full_for_some_time_and_as_long_as_it_has_what_it_takes() -> None:
    member = load(3, 0.1)
    assert not member.is_known_full(0.0)
    member.limit, member.full_until = 3.0, 5.0
    assert member.is_known_full(4.9)
    assert not member.is_known_full(5.0)
    member.in_flight = 2
    assert not member.is_known_full(4.9)
