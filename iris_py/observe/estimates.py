"""Estimates of a whole network from a part of its nodes: how many there are, and the sums of what they tell.

A sample is fair if each node is as likely in it as any other. The root of a random key is not: the more room a node has on the
ring, the more keys are its. So of the root and its neighbours, 17 nodes, one is drawn: how much room 17 nodes have together
differs by a quarter or so, and has nothing to do with what one of them does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.ids import RING, clockwise, position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.messages import NodeInfo

#: Of a normal distribution so many deviations to either side hold 95 % of it; of the mean of 64 numbers, hardly more.
_DEVIATIONS: Final = 2.0
#: Where a few nodes have most of something, the mean of 64 is not normal: so many times the skewness over the root of their
#: number is added. Found by trial, for lognormal and exponential numbers, and for those of which one in 20 is not 0.
_SKEWED: Final = 2.0
#: The error of a sum that a single node tells is not known.
_VALUES_MIN: Final = 2


class Estimate(msgspec.Struct, frozen=True):
    """A sum over all nodes, as far as it is known."""

    total: float
    """The sum, or what it probably is."""
    error: float = 0.0
    """How far off it may be in 19 of 20 cases, to either side; 0 if it is exact."""


class Size(msgspec.Struct, frozen=True):
    """The number of nodes of a network, as far as it is known."""

    nodes: float
    """How many, or how many there probably are."""
    deviation: float = 0.0
    """The standard deviation of that, as a share of it; 0 if it is exact."""


def size_of(neighbourhoods: Sequence[tuple[NodeInfo, Sequence[NodeInfo]]], leaves_max: int = 16) -> Size:
    """Return how many nodes a network has, from how densely some of them lie.

    The room on either side of a root is left out: a random key falls into large gaps more often than into small ones. The
    median of all counts, so whoever lies about its neighbours changes little unless most of them do.

    Args:
        neighbourhoods: Roots of random keys, each with its neighbours; at least one.
        leaves_max: How many neighbours a node has in a large network. One with fewer knows all nodes.
    """
    known = [{root.id: root, **{leaf.id: leaf for leaf in leaves}} for root, leaves in neighbourhoods]
    small = sorted(len(each) for each in known if len(each) <= leaves_max)
    if 2 * len(small) >= len(known):
        return Size(small[len(small) // 2])
    gaps, rooms = 0, []
    for each, (root, _leaves) in zip(known, neighbourhoods, strict=True):
        if len(each) <= leaves_max:
            continue
        place = position(root.id)
        ways = sorted(clockwise(place, position(node)) for node in each if node != root.id)
        right, left = ways[: len(ways) // 2], ways[len(ways) // 2 :]
        gaps = len(ways) - 2
        rooms.append(right[-1] - right[0] + left[-1] - left[0])
    from statistics import median  # 5 ms of imports, which a program pays that asks nobody

    # The median of a sum of so many gaps, each of the same mean, is a third of a gap below the mean of the sum.
    nodes = (gaps - 1 / 3) * RING / max(1.0, median(rooms))
    return Size(max(1.0, nodes), math.sqrt(math.pi / 2 / (gaps * len(rooms))))


def sum_of(values: Sequence[float], size: Size) -> Estimate:
    """Return the sum over all nodes of a network of something that some of them told.

    Args:
        values: What each of them told: all nodes if there are no more, or else a fair sample.
        size: How many nodes there are.
    """
    count = len(values)
    finite = [value for value in values if math.isfinite(value)]
    if count >= size.nodes and not size.deviation:
        return Estimate(math.fsum(finite))
    if not finite:
        return Estimate(0.0, math.inf)
    from statistics import fmean, variance

    mean = fmean(finite)
    total = mean * size.nodes
    if len(finite) < _VALUES_MIN:
        return Estimate(total, math.inf)
    unseen = max(0.0, 1 - count / size.nodes)
    spread = variance(finite, mean)
    of_mean = spread / len(finite) * unseen * size.nodes**2
    skew = fmean((value - mean) ** 3 for value in finite) / spread**1.5 if spread else 0.0
    deviations = _DEVIATIONS + _SKEWED * abs(skew) / math.sqrt(len(finite))
    return Estimate(total, deviations * math.sqrt(of_mean + (total * size.deviation) ** 2))
