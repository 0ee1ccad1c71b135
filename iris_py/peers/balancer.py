"""Choose the member for a request: the power of two choices, nearer zones first (docs/design.md 6.1).

Rank precedes load and distance: the members to choose from have the same rank (6.13, :func:`by_rank`).

Taking the less loaded of two random members keeps the longest queue at O(log log n), where one random choice gives O(log n /
log log n) (Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing*, 2001). Unlike "take the least loaded", it
does not send a herd of callers to the same member.

The two are drawn among the nearest members. Farther members get all requests when the nearer members are full (the caller
leaves full members out), and a share when the nearer members are clearly slower. This is weighted workload routing (Xie,
Yekkehkhany, Lu, *Scheduling with Multi-Level Data Locality*, 2016): a request goes to the member with the least expected wait,
and the wait at a farther member counts ``SPILL_FACTOR`` times. A random member represents the whole level, so that callers
spill over to different members.

Weights: a member of twice the weight is drawn twice as often, which shares out light load, and a request in flight there counts
half, which shares out heavy load. Weights do not change measured service times.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from iris_overlay.ring.table import common_zone_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_overlay.environment import Rng

#: Weight of the newest service time in the running mean. 0.2 follows a change within about ten requests and tolerates one slow
#: reply.
SERVICE_TIME_WEIGHT = 0.2
#: Factor on a service time each time its idle member is passed over. Without this decay, one slow reply would exclude a member
#: for ever, because only requests measure it. With 0.99 a member that seemed ten times slower is tried again after it was
#: passed over 230 times, or 80 times while the others have three requests in flight. A member that is really so slow gets less
#: than one request in a hundred, which the 99th percentile does not show. With 0.98 it does.
SERVICE_TIME_KEPT = 0.99

#: Weight of the newest outcome in a member's share of failed requests. At 0.05 a single failure, perhaps the request's own
#: fault, has no effect, and three in a row have one.
FAILED_WEIGHT = 0.05
#: Smaller shares of failed requests count as zero.
FAILED_FORGOTTEN = 0.001
#: A member fails much more often than another if its share of failed requests exceeds the other's by this factor plus this
#: margin. So where requests fail at every member, no member is blamed.
FAILED_TIMES = 2.0
FAILED_MARGIN = 0.1
#: Factor on the expected wait at a member that fails much more often. A handler that fails at once has no queue and the least
#: service time, and would attract the load. The share of failures decays as a service time does, and the next failure restores
#: it: a member that always fails gets about one request in a hundred, and a repaired member is found within as many.
FAILED_FACTOR = 100.0

#: Factor by which the expected wait at a farther member must be shorter. With 1 a zone is only a tie-break, and traffic between
#: zones, which clouds charge for, follows every ripple of load; the larger, the longer the queues in a zone that is too small
#: while members elsewhere are idle. At 2 a full zone holds about twice the load per member of the next zone.
SPILL_FACTOR = 2.0
#: Farther members are considered only once the chosen near member has this many of our requests in flight: members run several
#: at once, so fewer are no queue. It is also the least number with which an idle far member of the same speed wins by
#: SPILL_FACTOR.
SPILL_IN_FLIGHT_MIN = 2
#: Number of list entries of the heaviest member; other members have fewer, by weight, so drawing needs no weights. Too small: 3
#: and 2 become equal; too large: the lists of 32 members do not fit a cache.
SHARES_MAX = 64


Load = TypeVar("Load", bound="MemberLoad")


class MemberLoad:
    """The load of a member of a cluster, as known to one node that sends requests: the measure for choosing a member.

    Args:
        distance: The distance of the zone, see :func:`zone_distance`.

    Attributes:
        distance: The distance of the zone; 0 for the own zone.
        answered: Number of replies of the member.
        in_flight: Requests in progress at the member.
        service_time_s: Running mean of the time to a reply, 0.0 before the first; decays while the member is passed over.
        cost: Load of a request in flight: the reciprocal of the member's weight, relative to a mean weight of 1.
        failed: Recent share of our requests for which the handler failed; decays while the member is passed over.
        limit: Number of our requests the member is known to accept at once; callers with a backlog send no more.
        rank: 0 for an ordinary member; for a stand-in, the position among the stand-ins (1 to 7).
        takes_overflow: Whether a stand-in takes requests while members of lower rank are full, not only while they are gone.
        full_until: Time until which ``limit`` counts in a cluster with overflow.
    """

    __slots__ = (
        "_failed_measured",
        "_measured_s",
        "answered",
        "cost",
        "distance",
        "failed",
        "full_until",
        "in_flight",
        "limit",
        "rank",
        "service_time_s",
        "takes_overflow",
    )

    def __init__(self, distance: int = 0) -> None:
        self.distance = distance
        self.cost = 1.0
        self.answered = 0
        self.in_flight = 0
        self.limit = math.inf
        self.rank = 0
        self.takes_overflow = False
        self.full_until = 0.0
        self.service_time_s: float = 0.0
        self._measured_s = 0.0  # the mean at the last measurement
        self.failed = 0.0
        self._failed_measured = 0.0  # the share at the last measurement

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent at once; subclasses with links override it."""
        return True

    def is_known_full(self, now: float) -> bool:
        """Tell whether the member has just rejected a request as full, and none of our requests there has ended since."""
        return self.full_until > now and self.in_flight + 1 > self.limit

    def observe_silence(self, duration_s: float) -> None:
        """Count the wait so far as a reply time; a stopped member then gets no more requests for now."""
        if duration_s > self.service_time_s:
            failed, measured = self.failed, self._failed_measured
            self.observe(duration_s)
            self.answered -= 1
            self.failed, self._failed_measured = failed, measured  # no reply, so the failures stand

    def observe(self, duration_s: float) -> None:
        """Add a reply's time to the running mean."""
        self.answered += 1
        if self._measured_s:
            kept = self.service_time_s / self._measured_s
            duration_s = self.service_time_s + (1 - (1 - SERVICE_TIME_WEIGHT) * kept) * (duration_s - self.service_time_s)
        self.service_time_s = self._measured_s = duration_s
        if self.failed:
            failed = self.failed * (1 - FAILED_WEIGHT)
            self.failed = self._failed_measured = failed if failed > FAILED_FORGOTTEN else 0.0

    def observe_failure(self) -> None:
        """Record a failed request. The decay of the share of failures is undone, because the member still fails."""
        self.failed = self._failed_measured = self._failed_measured + FAILED_WEIGHT * (1 - self._failed_measured)


def zone_distance(local: str, other: str) -> int:
    """Return the distance of a zone: the number of parts of the local zone that it does not share."""
    return 1 + local.count("/") - common_zone_parts(local, other) if local else 0


def is_in_zone(zone: str, required: str) -> bool:
    """Tell whether a zone equals ``required`` or lies in it: ``eu/a/rack-7`` and ``eu/a`` lie in ``eu/a``, not ``eu/ab``."""
    return zone == required or zone.startswith(required + "/")


def by_rank(members: Iterable[Load]) -> list[list[Load]]:
    """Group members by rank, the lowest first.

    Returns:
        A non-empty list per rank, in the order of ``members``.
    """
    ranks: dict[int, list[Load]] = {}
    for member in members:
        ranks.setdefault(member.rank, []).append(member)
    return [ranks[rank] for rank in sorted(ranks)]


def by_distance(members: Iterable[Load], distance_of: Callable[[Load], int] | None = None) -> list[list[Load]]:
    """Group members by distance for :func:`choose_near`, the nearest first; keep the result until the members change.

    Args:
        distance_of: Returns the distance of a member; None for its ``distance``.

    Returns:
        A non-empty list per distance, in the order of ``members``. Where weights differ, lists repeat members by weight.
    """
    levels: dict[int, list[Load]] = {}
    for member in members:
        distance = member.distance if distance_of is None else distance_of(member)
        levels.setdefault(distance, []).append(member)
    return [_repeat_by_weight(levels[distance]) for distance in sorted(levels)]


def _repeat_by_weight(level: list[Load]) -> list[Load]:
    cheapest = min(member.cost for member in level)
    if all(member.cost == cheapest for member in level):
        return level
    return [member for member in level for _ in range(max(1, round(SHARES_MAX * cheapest / member.cost)))]


def is_less_loaded(one: MemberLoad, other: MemberLoad, factor: float = 1.0) -> bool:
    """Compare expected waiting times, with that of ``one`` multiplied by ``factor``.

    Without a measured service time only requests in flight count. A member that fails much more often than the other counts
    ``FAILED_FACTOR`` times the wait.
    """
    if one.failed or other.failed:
        if one.failed > FAILED_TIMES * other.failed + FAILED_MARGIN:
            factor *= FAILED_FACTOR
        elif other.failed > FAILED_TIMES * one.failed + FAILED_MARGIN:
            factor /= FAILED_FACTOR
    if one.service_time_s and other.service_time_s:
        expected_s = (other.in_flight * other.cost + 1) * other.service_time_s
        return factor * (one.in_flight * one.cost + 1) * one.service_time_s < expected_s
    return factor * (one.in_flight * one.cost + 1) < other.in_flight * other.cost + 1


def choose_near(levels: Sequence[Sequence[Load]], rng: Rng) -> tuple[Load, Load | None]:
    """Choose a member with little load for a request, preferably a near one.

    Args:
        levels: The result of :func:`by_distance`: at least one level.

    Returns:
        The chosen member, and a drawn member passed over for lack of a link, or None. Open a link to the latter, and to a
        chosen member without a link, which is chosen only if no other member was drawn.
    """
    near = levels[0]
    count = len(near)
    unready: Load | None = None
    if count == 1:
        chosen = near[0]
    else:
        first = int(rng.random() * count)
        second = int(rng.random() * (count - 1))
        if second >= first:
            second += 1
        chosen, passed = near[first], near[second]
        is_ready = passed.is_ready
        if chosen.is_ready is not is_ready:
            if is_ready:
                chosen, passed = passed, chosen
            unready = passed
        elif not is_less_loaded(chosen, passed):
            chosen, passed = passed, chosen
        if not passed.in_flight and passed is not chosen:  # with unequal weights both may be the same member
            passed.service_time_s *= SERVICE_TIME_KEPT
            if passed.failed:
                passed.failed *= SERVICE_TIME_KEPT
    if len(levels) > 1 and chosen.in_flight >= SPILL_IN_FLIGHT_MIN:
        return _spill_over(levels, chosen, unready, rng)
    return chosen, unready


def _spill_over(levels: Sequence[Sequence[Load]], chosen: Load, unready: Load | None, rng: Rng) -> tuple[Load, Load | None]:
    """Try farther levels (of members) while the chosen member is clearly slower than a random member of the next level."""
    for level in levels[1:]:
        far = level[int(rng.random() * len(level))]
        if not is_less_loaded(far, chosen, SPILL_FACTOR):
            if not far.in_flight:
                far.service_time_s *= SERVICE_TIME_KEPT
            break
        if not far.is_ready:
            # A ready member sends sooner; the link opened now serves later requests that spill over.
            return chosen, unready or far
        chosen = far
        if chosen.in_flight < SPILL_IN_FLIGHT_MIN:
            break
    return chosen, unready
