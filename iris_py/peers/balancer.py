"""Choose the member that gets a request: the power of two choices, nearer zones first (docs/design.md 6.1).

Rank comes before all of this: the levels that are chosen from are those of one rank (6.13, :func:`by_rank`).

Two members drawn at random, the less loaded of them taken, keeps the longest queue at O(log log n) where one random choice
gives O(log n / log log n) (Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing*, 2001), and unlike "take the
least loaded" it does not send a herd of callers to the same member.

The two are drawn among the nearest members. Farther ones get what the nearer ones cannot take: all of it when the nearer are
full (the caller leaves those out), and their share when the nearer are clearly slower. The latter is weighted workload routing
(Xie, Yekkehkhany, Lu, *Scheduling with Multi-Level Data Locality*, 2016): a request goes where its expected wait is the least,
and the wait at a farther member counts ``SPILL_FACTOR`` times. As everywhere here one drawn member stands for its whole level,
so that callers do not all spill over to the same one.

Weights. A member of twice the weight is drawn twice as often, which shares out light load, and a request in flight there counts
half, which shares out heavy load. What a member is measured to be is not touched by that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from iris_overlay.ring.table import common_zone_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_overlay.environment import Rng

#: Weight of the newest service time in the running mean. 0.2 follows a change within about ten requests and is not thrown
#: by one slow reply.
SERVICE_TIME_WEIGHT = 0.2
#: What is left of a service time each time that an idle member is passed over. Without forgetting, one slow reply would keep a
#: member out for ever, for who is not asked is not measured. With 0.99 one that seemed ten times slower is tried again after it
#: was passed over 230 times, or 80 times while the others have three requests in flight: less than one request in a hundred
#: goes to one that is that slow, so it does not show in the 99th percentile. With 0.98 it does.
SERVICE_TIME_KEPT = 0.99

#: Weight of the newest outcome in the share of requests that a member's handler failed. At 0.05 one failure, which the request
#: itself may have caused, counts for nothing, and three in a row do.
FAILED_WEIGHT = 0.05
#: A smaller share is none.
FAILED_FORGOTTEN = 0.001
#: A member fails much more often than another one when its share is over so many times the other's, and this much more. So
#: where requests fail wherever they go, for they are wrong, nobody is to blame.
FAILED_TIMES = 2.0
FAILED_MARGIN = 0.1
#: How many times longer the expected wait at such a member counts. Who fails at once has no queue and the least service time,
#: and so drew the load. What is remembered of failures fades as a service time does, and is remembered anew by the next one:
#: so a member that always fails gets about one request in a hundred, and one that is mended is found within as many.
FAILED_FACTOR = 100.0

#: How many times shorter the expected wait at a farther member must be. With 1 a zone is nothing but a tie-break, and traffic
#: between zones, which is what clouds charge for, follows every ripple of load; the larger, the longer the queues in a zone
#: that is too small while members elsewhere are idle. At 2 a full zone holds about twice the load per member of the next one.
SPILL_FACTOR = 2.0
#: Farther members are not even looked at while the chosen near one has fewer requests of ours in flight: it runs more than one
#: at once, so these are no queue. It is also the least where an idle far member of the same speed would win by SPILL_FACTOR.
SPILL_IN_FLIGHT_MIN = 2
#: A member stands in its level as often as its weight says, up to so often for the heaviest; so weights need nothing where
#: members are drawn. Too small: 3 and 2 become the same; too large: the lists of 32 members do not fit a cache.
SHARES_MAX = 64


Load = TypeVar("Load", bound="MemberLoad")


class MemberLoad:
    """The load of one member, as one requester knows it.

    Args:
        distance: How far away its zone is, see :func:`zone_distance`.

    Attributes:
        distance: How far away its zone is: 0 for the own zone.
        in_flight: Requests sent to it and not answered.
        service_time_s: Running mean of the time to a reply, 0.0 before the first; fades while the member is passed over.
        cost: What a request in flight there counts: one over its weight, where the mean weight of the members is 1.
        failed: The share of our requests that its handler failed, of late; fades while the member is passed over.
        limit: How many of our requests it takes at once, as far as it is known: where requests wait for a place none is
            sent beyond it.
        rank: 0 for an ordinary member; of a stand-in, how many others come before it.
        takes_overflow: Of a stand-in: whether it takes what those before it have no place for, too.
        full_until: Until when ``limit`` counts where somebody takes the overflow.
    """

    __slots__ = (
        "_failed_measured",
        "_measured_s",
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
        self.in_flight = 0
        self.limit = math.inf
        self.rank = 0
        self.takes_overflow = False
        self.full_until = 0.0
        self.service_time_s: float = 0.0
        self._measured_s = 0.0  # the mean when it was last measured
        self.failed = 0.0
        self._failed_measured = 0.0  # the share when it was last measured

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent to it at once; a subclass whose members need a link first says so."""
        return True

    def is_known_full(self, now: float) -> bool:
        """Tell whether it has rejected a request just now, and has answered none since that would have freed a place."""
        return self.full_until > now and self.in_flight + 1 > self.limit

    def observe_silence(self, duration_s: float) -> None:
        """Take in that a reply takes longer than so much: a member that has stopped is to get no more for now."""
        if duration_s > self.service_time_s:
            failed, measured = self.failed, self._failed_measured
            self.observe(duration_s)
            self.failed, self._failed_measured = failed, measured  # it was no reply

    def observe(self, duration_s: float) -> None:
        """Take a reply's time into the mean.

        What has faded since the last one was no measurement, so the newest counts the more for it. Otherwise a slow member
        that was tried again would seem hardly slower than the others, and be tried again soon: it got twice as much so.
        """
        if self._measured_s:
            kept = self.service_time_s / self._measured_s
            duration_s = self.service_time_s + (1 - (1 - SERVICE_TIME_WEIGHT) * kept) * (duration_s - self.service_time_s)
        self.service_time_s = self._measured_s = duration_s
        if self.failed:
            failed = self.failed * (1 - FAILED_WEIGHT)
            self.failed = self._failed_measured = failed if failed > FAILED_FORGOTTEN else 0.0

    def observe_failure(self) -> None:
        """Take in that its handler failed a request. What has faded meanwhile counts again: it fails still."""
        self.failed = self._failed_measured = self._failed_measured + FAILED_WEIGHT * (1 - self._failed_measured)


def zone_distance(local: str, other: str) -> int:
    """Return how far a zone is from the local one: how many parts of the local zone it does not share.

    From ``eu/a`` it is 0 to ``eu/a`` and to ``eu/a/rack-7`` inside it, 1 to ``eu/b`` and ``eu``, 2 to ``us`` and to no zone at
    all. A node without a zone of its own is equally near to everybody: 0.
    """
    return 1 + local.count("/") - common_zone_parts(local, other) if local else 0


def is_in_zone(zone: str, required: str) -> bool:
    """Tell whether a zone is another one, or lies in it: ``eu/a/rack-7`` and ``eu/a`` do in ``eu/a``, ``eu/ab`` does not."""
    return zone == required or zone.startswith(required + "/")


def by_rank(members: Iterable[Load]) -> list[list[Load]]:
    """Group members by rank, the lowest first.

    Returns:
        One list for each rank that occurs, none of them empty, each in the order of ``members``.
    """
    ranks: dict[int, list[Load]] = {}
    for member in members:
        ranks.setdefault(member.rank, []).append(member)
    return [ranks[rank] for rank in sorted(ranks)]


def by_distance(members: Iterable[Load], distance_of: Callable[[Load], int] | None = None) -> list[list[Load]]:
    """Group members by distance for :func:`choose_near`, the nearest first; keep it until the members change.

    Args:
        members: The members.
        distance_of: Tells how far away one is; None for its ``distance``.

    Returns:
        One list for each distance that occurs, none of them empty, each in the order of ``members``. Where weights differ, a
        member is in its list as often as its weight says.
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
    """Compare expected waiting times, that of ``one`` multiplied by ``factor``.

    A member without a measured service time is compared by what is in flight alone. Who fails much more often than the other
    is expected to take ``FAILED_FACTOR`` times as long.
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
    """Return a near member that is little loaded.

    Of two drawn from the nearest level the ready one is taken, and if both or none are ready, the less loaded. While what was
    taken has ``SPILL_IN_FLIGHT_MIN`` requests in flight, one is drawn from the next level, and taken instead if its expected
    wait is less by ``SPILL_FACTOR``. With one level this is the plain power of two choices, at its price.

    Leave out who is congested or has rejected this request, by ``by_distance`` of the rest: where all near ones are left out,
    the next level is the nearest.

    Args:
        levels: What :func:`by_distance` returned: at least one level, and in each at least one member.
        rng: The source of randomness.

    Returns:
        The member to send to, and one that was not taken only because it is not ready, or None. Open links to that one, and to
        the member itself if it is not ready either, which happens only if nobody else was drawn.
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
        if not passed.in_flight and passed is not chosen:  # where weights differ, both may be the same
            passed.service_time_s *= SERVICE_TIME_KEPT
            if passed.failed:
                passed.failed *= SERVICE_TIME_KEPT
    if len(levels) > 1 and chosen.in_flight >= SPILL_IN_FLIGHT_MIN:
        return _spill_over(levels, chosen, unready, rng)
    return chosen, unready


def _spill_over(levels: Sequence[Sequence[Load]], chosen: Load, unready: Load | None, rng: Rng) -> tuple[Load, Load | None]:
    """Go on to farther levels as long as the member chosen so far is clearly slower than one drawn there."""
    for level in levels[1:]:
        far = level[int(rng.random() * len(level))]
        if not is_less_loaded(far, chosen, SPILL_FACTOR):
            if not far.in_flight:
                far.service_time_s *= SERVICE_TIME_KEPT
            break
        if not far.is_ready:
            # Who is ready sends sooner; the link that is opened now serves those who spill over next.
            return chosen, unready or far
        chosen = far
        if chosen.in_flight < SPILL_IN_FLIGHT_MIN:
            break
    return chosen, unready
