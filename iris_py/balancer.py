"""Which member gets a request: the power of two choices (docs/design.md 6.1).

Two members drawn at random, the less loaded of them taken, keeps the longest queue at O(log log n) where one random choice
gives O(log n / log log n) (Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing*, 2001), and unlike "take the
least loaded" it does not send a herd of callers to the same member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Weight of the newest service time in the running mean. 0.2 follows a change within about ten requests and is not thrown
#: by one slow reply.
SERVICE_TIME_WEIGHT = 0.2
#: What is left of a service time each time that an idle member is passed over. Without forgetting, one slow reply would keep a
#: member out for ever, for who is not asked is not measured. With 0.98 one that seemed ten times slower is tried again after
#: about 115 choices, so a member that is that slow gets less than one in a hundred.
SERVICE_TIME_KEPT = 0.98


Load = TypeVar("Load", bound="MemberLoad")


class Rng(Protocol):
    """The randomness a balancer needs; ``random.Random`` has it."""

    def random(self) -> float: ...


class MemberLoad:
    """What one requester knows of the load of one member.

    Attributes:
        in_flight: Requests sent to it and not answered.
        service_time_s: Running mean of the time to a reply, 0.0 before the first; fades while the member is passed over.
    """

    __slots__ = ("in_flight", "service_time_s")

    def __init__(self) -> None:
        self.in_flight = 0
        self.service_time_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Take a reply's time into the mean."""
        if self.service_time_s:
            self.service_time_s += SERVICE_TIME_WEIGHT * (duration_s - self.service_time_s)
        else:
            self.service_time_s = duration_s


def is_less_loaded(one: MemberLoad, other: MemberLoad) -> bool:
    """Compare expected waiting times; a member without a measured service time is compared by what is in flight alone."""
    if one.service_time_s and other.service_time_s:
        return (one.in_flight + 1) * one.service_time_s < (other.in_flight + 1) * other.service_time_s
    return one.in_flight < other.in_flight


def choose(members: Sequence[Load], rng: Rng) -> Load:
    """Return the less loaded of two members drawn at random.

    Args:
        members: At least one.
        rng: The source of randomness.
    """
    count = len(members)
    if count == 1:
        return members[0]
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = members[first], members[second]
    chosen, passed = (one, other) if is_less_loaded(one, other) else (other, one)
    if not passed.in_flight:
        passed.service_time_s *= SERVICE_TIME_KEPT
    return chosen
