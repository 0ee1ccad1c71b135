"""Estimates from a part of a network: they are right within what they say, and one liar changes little."""

from __future__ import annotations

import math
import random
from bisect import bisect_left

import pytest

from iris_overlay.ids import RING, NodeId, ring_distance
from iris_overlay.node_info import NodeInfo
from iris_py.observe.reports import Size, size_of, sum_of

LEAVES = 16


class PerfectRing:
    """A ring of nodes with random ids, each with a number of its own, some of them much larger than others."""

    def __init__(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        self.places = sorted(rng.randrange(RING) for _ in range(count))
        self.values = [rng.lognormvariate(3.0, 1.0) for _ in self.places]
        self.infos = [NodeInfo(NodeId(place.to_bytes(16, "big")), ()) for place in self.places]

    def neighbourhood(self, key: int) -> tuple[int, list[int]]:
        """Return the root of a key and its neighbours, as indices."""
        count = len(self.places)
        at = bisect_left(self.places, key)
        root = min((at - 1) % count, at % count, key=lambda index: ring_distance(self.places[index], key))
        half = min(LEAVES // 2, (count - 1) // 2)
        return root, [(root + step) % count for step in range(-half, half + 1) if step]

    def draw(self, rng: random.Random, sample: int = 64) -> tuple[list[float], Size]:
        """Draw a sample as a node does."""
        neighbourhoods, drawn = [], {}
        for _ in range(sample):
            root, leaves = self.neighbourhood(rng.randrange(RING))
            neighbourhoods.append((self.infos[root], [self.infos[leaf] for leaf in leaves]))
            chosen = rng.choice([root, *leaves])
            drawn[chosen] = self.values[chosen]
        return list(drawn.values()), size_of(neighbourhoods)


def share_within(ring: PerfectRing, runs: int) -> tuple[float, float]:
    """Return how many of some samples were right within their own error, and the mean of the numbers of nodes, as a share."""
    rng, total, right, sizes = random.Random(5), sum(ring.values), 0, 0.0
    for _ in range(runs):
        values, size = ring.draw(rng)
        estimate = sum_of(values, size)
        right += abs(estimate.total - total) <= estimate.error
        sizes += size.nodes / len(ring.places)
    return right / runs, sizes / runs


def test_samples_are_right_within_their_error() -> None:
    right, size = share_within(PerfectRing(5_000, 1), 150)
    assert right >= 0.9
    assert 0.97 < size < 1.03


@pytest.mark.long
def test_samples_of_a_large_network_are_right_within_their_error_in_19_of_20_cases() -> None:
    right, size = share_within(PerfectRing(100_000, 1), 1_000)
    assert right >= 0.93, "the sum of 64 such numbers is not quite normal"
    assert 0.98 < size < 1.02


def test_a_small_network_is_known_exactly() -> None:
    ring = PerfectRing(9, 2)
    values, size = ring.draw(random.Random(1), 20)
    assert size == Size(9)
    assert sum_of(ring.values, size).error == 0.0
    assert sum_of(ring.values, size).total == pytest.approx(sum(ring.values))
    assert len(values) <= 9


@pytest.mark.parametrize("lie", ["alone", "crowded"])
def test_a_liar_in_four_roots_changes_the_number_of_nodes_little(lie: str) -> None:
    ring, rng = PerfectRing(2_000, 3), random.Random(3)
    neighbourhoods = []
    for number in range(64):
        root, leaves = ring.neighbourhood(rng.randrange(RING))
        told = [ring.infos[leaf] for leaf in leaves]
        if number % 4 == 0:
            near = [((ring.places[root] + step) % RING).to_bytes(16, "big") for step in range(1, 17)]
            told = [] if lie == "alone" else [NodeInfo(NodeId(each), ()) for each in near]
        neighbourhoods.append((ring.infos[root], told))
    assert 0.6 < size_of(neighbourhoods).nodes / 2_000 < 1.7


def test_sums_of_few_or_strange_numbers_do_not_claim_to_be_good() -> None:
    size = Size(1000.0, 0.05)
    assert math.isinf(sum_of([], size).error)
    assert math.isinf(sum_of([5.0], size).error)
    assert sum_of([5.0, math.inf, math.nan, 5.0], size).total == 5_000
    assert sum_of([1.0, 2.0], Size(2.0)).error == 0.0
