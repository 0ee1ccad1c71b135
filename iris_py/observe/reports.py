"""The answers of other nodes, as a program gets them: reports, the way to a root, and a trace of a request (docs/observe.md).

All of it is msgspec structs, so ``msgspec.json.encode`` writes each as JSON.

Estimates of a whole network from a part of its nodes: how many there are, and the sums of what they tell.

A sample is fair if each node is as likely in it as any other. The root of a random key is not: the more room a node has on the
ring, the more keys are its. So of the root and its neighbours, 17 nodes, one is drawn: how much room 17 nodes have together
differs by a quarter or so, and has nothing to do with what one of them does.
"""

from __future__ import annotations

import math
from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.ids import RING, clockwise, position
from iris_py.observe.departures import Departure
from iris_py.observe.journal import EventRecord
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import About
from iris_py.observe.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one node."""

    node: NodeName
    """The node."""
    about: About
    """Its version, clock and sizes."""
    statistics: Statistics
    """The parts that were asked for; all others have their defaults."""
    round_trip_s: float
    """How long its first answer took, in seconds."""
    received_unix_s: float = 0.0
    """When its last answer came, by the clock of the node that asked: seconds since 1970."""
    events: tuple[EventRecord, ...] | None = None
    """Its events after the number that was asked for, the oldest first; None if nobody asked for them, and of a node that keeps
    them to itself (``observe``) or is of an older version."""
    departures: tuple[Departure, ...] | None = None
    """The nodes that it has seen leave or die since it was started, the oldest first, at most 256; None if nobody asked for
    them, and of a node that keeps them to itself (``observe``) or is of an older version."""
    left_out: int = 0
    """Things that it had to leave out: too large for a page, or too many."""
    pages: int = 1
    """How many pages its answer took, each of which counts as a question: it answers some 20 in a second."""

    def unix_s_of(self, event: EventRecord | Departure) -> float:
        """Return when an event of the node, or a departure that it saw, happened, by the clock of the node that asked.

        The clock of the other node may show anything. The time is as exact as the answer was quick.
        """
        ago_s = self.about.now_s - event.at_s
        return self.received_unix_s - (max(0.0, ago_s) if isfinite(ago_s) else 0.0)


class NodeReports(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of several nodes."""

    reports: tuple[NodeReport, ...] = ()
    """Those of the nodes that answered."""
    missing: tuple[NodeName, ...] = ()
    """The nodes that did not answer in time, or not in a way that this version understands."""
    refused: tuple[NodeName, ...] = ()
    """The nodes that would not: their setting ``observe`` is ``none``, or too many ask them."""
    size: Size = Size(0.0)
    """How many other nodes the network has."""
    is_sample: bool = False
    """Whether only a fair sample of them was asked."""
    is_whole: bool = True
    """Whether, otherwise, the ring was walked without a gap: then nobody else was there."""

    @property
    def asked(self) -> int:
        """How many nodes were asked."""
        return len(self.reports) + len(self.missing) + len(self.refused)

    def total(self, read: Callable[[NodeReport], float]) -> Estimate:
        """Return the sum of something over all nodes: as it is, or estimated from a sample.

        Args:
            read: Takes it from the report of a node.
        """
        values = [float(read(report)) for report in self.reports]
        return sum_of(values, self.size if self.is_sample else Size(float(len(values))))


class Hop(msgspec.Struct, frozen=True):
    """A node that a message through the ring passed."""

    node: NodeName
    """The node. Its address and zone are empty unless this node knows them."""
    held_us: int | None = None
    """How long it kept the message, in microseconds; None if a node on the way did not say so."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The way of a question to the root of a key, and what the root says."""

    key: str
    """The key: 32 hexadecimal digits."""
    root: NodeName
    """The root, which keeps the directory of the group with that id."""
    hops: tuple[Hop, ...] = ()
    """The nodes that the question passed, this one first, the root not among them."""
    round_trip_s: float = 0.0
    """How long it took until the answer was here, in seconds."""
    neighbours: tuple[NodeName, ...] = ()
    """The neighbours of the root on the ring, the nearest first."""
    members: int | None = None
    """How many members the group has; None if there is no directory of it, or the root does not tell."""
    watchers: int | None = None
    """How many nodes watch it; likewise."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a cluster, as the node that asks sees it."""

    node: NodeName
    """The member."""
    distance: int
    """How many parts of the own zone it does not share: 0 is the nearest."""
    in_flight: int
    """Requests of this node that it has and has not answered."""
    expected_s: float | None
    """How long a reply is expected to take, in seconds; None where no reply has been measured."""
    is_linked: bool
    """Whether a link to it is open."""
    rank: int = 0
    """0 for an ordinary member; of a stand-in, how many others come before it."""
    reason: str = ""
    """Why it gets the next request, or does not."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The way of a request to a cluster, step by step. Steps that did not happen are None."""

    cluster: str
    """The cluster."""
    route: Route | None = None
    """The way to its root; None if no answer came."""
    candidates: tuple[Candidate, ...] = ()
    """The members that this node knows, in the order in which they are considered."""
    chosen: NodeName | None = None
    """The member that the balancer took."""
    way: str = ""
    """How it is reached: by a ``link`` that was open, by one that was ``dialled`` for this, by the ``ring``, or ``local``."""
    dial_s: float | None = None
    """How long opening the link took, in seconds."""
    answer_s: float | None = None
    """How long that member took to answer an empty question, its handler untouched, in seconds."""
