"""The answers of other nodes for a program: reports, the path to a root, and a trace of a request (docs/observe.md).

All are msgspec structs, which ``msgspec.json.encode`` writes as JSON. From the answers of a sample follow estimates for a whole
network: its size, and sums over all nodes.

A sample is uniform if all nodes have the same probability. The root of a random key is not: a node with a larger section of the
ring has more keys. So the sample draws a node from the root and all neighbours, 17 nodes: the section of 17 nodes varies by a
quarter or so, and is independent of the load of any node.
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

    from iris_overlay.node_info import NodeInfo

#: In a normal distribution, 95 % lie within this many deviations; for the mean of 64 numbers, hardly more.
_DEVIATIONS: Final = 2.0
#: If a few nodes have most of a sum, the mean of 64 is not normal: the interval grows by this factor times the skewness over
#: the root of their number. Found by trial, for lognormal and exponential numbers, and for numbers of which 19 in 20 are 0.
_SKEWED: Final = 2.0
#: The least number of values for an estimate of the error.
_VALUES_MIN: Final = 2


class Estimate(msgspec.Struct, frozen=True):
    """A sum over all nodes, exact or estimated."""

    total: float
    """The sum, or its estimate."""
    error: float = 0.0
    """The bound of its error to either side in 19 of 20 cases; 0 if exact."""


class Size(msgspec.Struct, frozen=True):
    """The number of nodes of a network, exact or estimated."""

    nodes: float
    """The number, or its estimate."""
    deviation: float = 0.0
    """Its relative standard deviation; 0 if exact."""


def size_of(neighbourhoods: Sequence[tuple[NodeInfo, Sequence[NodeInfo]]], leaves_max: int = 16) -> Size:
    """Estimate the number of nodes of a network from their density at some roots.

    The gaps on either side of a root are left out: a random key falls into large gaps more often than into small ones. The
    median counts, so nodes that lie about their neighbours change little unless they are the majority.

    Args:
        neighbourhoods: Roots of random keys with their neighbours; at least one root.
        leaves_max: The number of neighbours of a node in a large network. A node with fewer knows all nodes.
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
    from statistics import median  # 5 ms of imports, only for programs that ask

    # The median of a sum of gaps with equal means is a third of a gap below its mean.
    nodes = (gaps - 1 / 3) * RING / max(1.0, median(rooms))
    return Size(max(1.0, nodes), math.sqrt(math.pi / 2 / (gaps * len(rooms))))


def sum_of(values: Sequence[float], size: Size) -> Estimate:
    """Return the sum of a value over all nodes of a network.

    Args:
        values: The values of all nodes, or of a uniform sample.
        size: The number of nodes.
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
    """The requested parts; all others have their defaults."""
    round_trip_s: float
    """The round trip of its first answer, in seconds."""
    received_unix_s: float = 0.0
    """The arrival of its last answer, by the clock of the asking node: seconds since 1970."""
    events: tuple[EventRecord, ...] | None = None
    """Its events after the requested number, the oldest first; None if not requested, hidden by the node's setting ``observe``,
    or unknown to its version.
    """
    departures: tuple[Departure, ...] | None = None
    """The nodes it has seen leave or die since its start, the oldest first, at most 256; None if not requested, hidden by the
    node's setting ``observe``, or unknown to its version.
    """
    left_out: int = 0
    """Elements left out of the answer: too large for a page, or too many."""
    pages: int = 1
    """The pages of its answer. Each counts as a question, of which a node answers some 20 in a second."""

    def unix_s_of(self, event: EventRecord | Departure) -> float:
        """Return the time of an event or departure of the node, by the clock of the asking node.

        The node's own clock is not used. The error is at most the round trip of the answer.
        """
        ago_s = self.about.now_s - event.at_s
        return self.received_unix_s - (max(0.0, ago_s) if isfinite(ago_s) else 0.0)


class NodeReports(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of several nodes, for sums over a network."""

    reports: tuple[NodeReport, ...] = ()
    """The reports of the nodes that answered."""
    missing: tuple[NodeName, ...] = ()
    """The nodes without an answer in time, or with an undecodable answer."""
    refused: tuple[NodeName, ...] = ()
    """The nodes that refused: the setting ``observe`` is ``none``, or too many nodes ask."""
    size: Size = Size(0.0)
    """The number of other nodes in the network."""
    is_sample: bool = False
    """Whether only a uniform sample of them was asked."""
    is_whole: bool = True
    """Without a sample, whether the walk round the ring had no gap, so that no node was missed."""

    @property
    def asked(self) -> int:
        """The number of nodes asked."""
        return len(self.reports) + len(self.missing) + len(self.refused)

    def total(self, read: Callable[[NodeReport], float]) -> Estimate:
        """Return the sum of a value over all nodes, exact or estimated from a sample.

        Args:
            read: Returns the value from the report of a node.
        """
        values = [float(read(report)) for report in self.reports]
        return sum_of(values, self.size if self.is_sample else Size(float(len(values))))


class Hop(msgspec.Struct, frozen=True):
    """A node on the path of a message through the ring."""

    node: NodeName
    """The node. Address and zone are empty if unknown."""
    held_us: int | None = None
    """The time it held the message, in microseconds; None if any node on the path reported no time."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a question to the root of a key, and the root's answer."""

    key: str
    """The key: 32 hexadecimal digits."""
    root: NodeName
    """The root, which keeps the directory of the group with that id."""
    hops: tuple[Hop, ...] = ()
    """The nodes on the path, this one first, without the root."""
    round_trip_s: float = 0.0
    """The time until the answer, in seconds."""
    neighbours: tuple[NodeName, ...] = ()
    """The neighbours of the root on the ring, the nearest first."""
    members: int | None = None
    """The number of members of the group; None if the root has no directory of the group, or does not disclose the number."""
    watchers: int | None = None
    """The number of watchers; likewise."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a cluster, as seen by the asking node."""

    node: NodeName
    """The member."""
    distance: int
    """The number of parts of the own zone not shared: 0 is the nearest."""
    in_flight: int
    """Unanswered requests of this node at the member."""
    expected_s: float | None
    """The expected time until a reply, in seconds; None if not measured."""
    is_linked: bool
    """Whether a link to it is open."""
    rank: int = 0
    """0 for an ordinary member; 1 to 7 for a stand-in, which follows all members of lower rank."""
    reason: str = ""
    """Why it gets the next request, or does not."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a request to a cluster, step by step. Failed steps are None."""

    cluster: str
    """The cluster."""
    route: Route | None = None
    """The path to its root; None without an answer."""
    candidates: tuple[Candidate, ...] = ()
    """The known members, in the order of their preference."""
    chosen: NodeName | None = None
    """The member chosen by the balancer."""
    way: str = ""
    """The connection to it: an open ``link``, a link ``dialled`` for this trace, the ``ring``, or ``local``."""
    dial_s: float | None = None
    """The time to open the link, in seconds."""
    answer_s: float | None = None
    """The member's time to answer an empty question, without its handler, in seconds."""
