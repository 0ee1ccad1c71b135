"""Recalls: queued requests are taken back from slow members, for members that are about to be idle (docs/design.md 6.16).

The caller sends a burst before it has measured its members. Later it knows how many requests each member answers in a second,
and how many are with each. It asks the members with too many for those that have not begun (RECALL), and the requests that
come back go to the members with too few. This is work stealing (Blumofe and Leiserson, *Scheduling Multithreaded Computations
by Work Stealing*, 1999), decided by the caller: members do not know each other's load.
"""

from __future__ import annotations

import math
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Protocol

from iris_overlay.timers import DeadlineTable
from iris_py.peers.balancer import FAILED_FACTOR, FAILED_MARGIN, FAILED_TIMES, SPILL_FACTOR
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.hedging import LATE_S
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.patterns.request.pending import Pending
    from iris_py.patterns.request.request_queues import Rooms
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer

#: Requests in flight at one member, and each multiple, at which the reviews of its cluster begin. Too small: callers with few
#: requests pay for timers; too large: small bursts of many callers stand in the queue of a slow member.
REVIEWED_IN_FLIGHT = 4
#: The shortest and the longest time between two reviews (seconds), and its share of the time since the first. Too small:
#: processor time, and rates measured from too few answers; too large: a fast member is idle that long before it gets more.
REVIEW_S_MIN = 0.02
REVIEW_S_MAX = 0.25
REVIEW_SHARE = 0.125
#: Clusters under review. Those beyond are not reviewed, as in a node without recalls; each costs some bytes for each member.
REVIEWS_MAX = 64
#: Rates remember this time (seconds), or this number of answers if that is longer. Too small: they follow chance; too large: a
#: member that has become slow keeps its requests that long.
MEASURED_S = 0.5
MEASURED_ANSWERS = 8.0
#: Time (seconds) before a member is idle, in which requests can come back and cross to it, beside the time to the next review
#: but one. Too small: it is idle for a round trip; too large: requests move although the rates are not well known yet.
AHEAD_S = 0.05
#: A member gives back requests only if they would wait longer than elsewhere by this time (seconds) and by this factor. Too
#: small: requests move for a difference of chance; too large: a slow member keeps the last requests of a burst.
GAIN_S = 0.05
GAIN_FACTOR = 1.25


class MemberRate:
    """The measured rate of answers of one member to this caller.

    Args:
        answered: The answers of the member so far.
    """

    __slots__ = ("_answered", "_answers", "_time_s")

    def __init__(self, answered: int) -> None:
        self._answered = answered
        self._answers = 0.0
        self._time_s = 0.0

    def measure(self, answered: int, in_flight: int, duration_s: float) -> None:
        """Take account of the time since the last measurement, unless the member has had no requests.

        Args:
            answered: The answers of the member so far.
            in_flight: Requests at the member now.
        """
        new, self._answered = answered - self._answered, answered
        if not new and not in_flight:
            return
        excess = min(self._time_s / MEASURED_S, self._answers / MEASURED_ANSWERS)
        if excess > 1.0:
            self._time_s /= excess
            self._answers /= excess
        self._time_s += duration_s
        self._answers += new

    @property
    def per_second(self) -> float:
        """Answers per second, with one that may be about to come; 0.0 before the first measurement."""
        return (self._answers + 1.0) / self._time_s if self._time_s else 0.0


class Redistribution:
    """The moves of requests with which all members have the same wait.

    Args:
        rates: The members, and the answers per second of each, not 0.
        ahead_s: A member is about to be idle if its requests end within this time (seconds).

    Attributes:
        surplus: Number of requests to take back, by member; empty if no member is about to be idle.
    """

    __slots__ = ("_takers", "surplus")

    def __init__(self, rates: dict[KnownMember, float], ahead_s: float) -> None:
        self.surplus: dict[KnownMember, int] = {}
        self._takers: list[tuple[KnownMember, float]] = []
        if not any(member.in_flight <= rate * ahead_s for member, rate in rates.items()):
            return
        nearest = min(member.distance for member in rates)
        failed_max = FAILED_TIMES * min(member.failed for member in rates) + FAILED_MARGIN
        counted = {}
        for member, rate in rates.items():
            rate /= member.cost
            if member.distance > nearest:
                rate /= SPILL_FACTOR
            counted[member] = rate / FAILED_FACTOR if member.failed > failed_max else rate
        wait_s = sum(member.in_flight for member in counted) / sum(counted.values())
        longest_s = max(wait_s + GAIN_S, GAIN_FACTOR * wait_s)
        for member, rate in counted.items():
            if member.in_flight > rate * longest_s:
                self.surplus[member] = math.floor(member.in_flight - rate * wait_s)
            elif member.in_flight < rate * wait_s and member.in_flight < member.limit:
                self._takers.append((member, rate))
        if not self._takers:
            self.surplus.clear()

    def receivers(self, count: int) -> list[KnownMember]:
        """Return a member for each of ``count`` requests: the member with the shortest wait is next."""
        waits = [((member.in_flight + 1) / rate, number) for number, (member, rate) in enumerate(self._takers)]
        heapify(waits)
        found = []
        for _ in range(count):
            wait_s, number = waits[0]
            member, rate = self._takers[number]
            found.append(member)
            heapreplace(waits, (wait_s + 1 / rate, number))
        return found


class Review:
    """The state of the reviews of one cluster.

    Args:
        now: The time of the beginning (seconds).

    Attributes:
        due: The time of the next review.
        receivers: The members for the requests that come back, the next one last.
    """

    __slots__ = ("_rates", "_reviewed_at", "_since", "due", "receivers")

    def __init__(self, members: Iterable[KnownMember], now: float) -> None:
        self._since = self._reviewed_at = now
        self._rates = {member: MemberRate(member.answered) for member in members}
        self.due = now + REVIEW_S_MIN
        self.receivers: list[KnownMember] = []

    def measure(self, members: Iterable[KnownMember], now: float) -> dict[KnownMember, float]:
        """Measure the rates of members since the last review.

        Returns:
            The answers per second of each; those of an unmeasured member are the most of any other. Empty if none is measured.
        """
        duration_s, known = now - self._reviewed_at, self._rates
        self._reviewed_at = now
        self._rates = {member: known.get(member) or MemberRate(member.answered) for member in members}
        rates = {}
        for member, rate in self._rates.items():
            if member in known:
                rate.measure(member.answered, member.in_flight, duration_s)
            rates[member] = rate.per_second
        most = max(rates.values(), default=0.0)
        return {member: rate or most for member, rate in rates.items()} if most else {}

    def schedule(self, now: float) -> float:
        """Set the time of the next review; return the time until then (seconds)."""
        pause_s = min(REVIEW_S_MAX, max(REVIEW_S_MIN, REVIEW_SHARE * (now - self._since)))
        self.due = now + pause_s
        return pause_s


class RecallSender(Protocol):
    """The part of a requester that its recalls (requests taken back from members) call."""

    has_new_deadline: bool
    out: list[PeerMessage]
    wanted: list[Peer]


class Recalls:
    """Takes queued requests back from members with too many.

    Args:
        requester: Sends the messages.
        pending_by_id: The requests of the requester.
        rooms: The requests that wait for a place.

    Attributes:
        reviews: The clusters under review; at most ``REVIEWS_MAX``.
    """

    __slots__ = ("_pending_by_id", "_requester", "_rooms", "_times", "reviews")

    def __init__(self, requester: RecallSender, pending_by_id: dict[int, Pending], rooms: Rooms) -> None:
        self._requester = requester
        self._pending_by_id = pending_by_id
        self._rooms = rooms
        self.reviews: dict[Group, Review] = {}
        self._times: DeadlineTable[Group] = DeadlineTable()

    def begin_reviews(self, group: Group, now: float) -> None:
        """Begin to review a cluster, unless it is under review."""
        if group in self.reviews or len(self.reviews) >= REVIEWS_MAX:
            return
        review = self.reviews[group] = Review(group.lowest, now)
        self._times.set(group, review.due)
        self._requester.has_new_deadline = True

    def handle_timeout(self, now: float) -> None:
        """Make the due reviews."""
        for group in self._times.expired(now):
            review = self.reviews[group]
            if not any(member.in_flight for member in group.members or ()):
                del self.reviews[group]
                continue
            is_late = now - review.due > LATE_S  # unread answers may be waiting
            rates = review.measure((member for member in group.lowest if member.is_ready), now)
            ahead_s = AHEAD_S + 2 * review.schedule(now)
            if rates and not is_late and not self._rooms.of(group):
                self._recall(group, review, Redistribution(rates, ahead_s))
                self._want_link(group, rates)
                for member in rates:
                    if member.full_until <= now:
                        member.limit = math.inf  # a rejection counts for one plan
            self._times.set(group, review.due)
            self._requester.has_new_deadline = True

    def deadline(self) -> float | None:
        """Return the time of the next review, or None."""
        return self._times.deadline()

    def take_receiver(self, pending: Pending) -> KnownMember | None:
        """Return the member that gets a request that has come back; None if the balancer chooses."""
        review = self.reviews.get(pending.group)
        if review is None or not review.receivers:
            return None
        member = review.receivers.pop()
        is_usable = member.is_ready and member.peer.has_room_for(len(pending.payload)) and member in pending.group.lowest
        return member if is_usable else None

    def _recall(self, group: Group, review: Review, plan: Redistribution) -> None:
        """Ask members for their surplus requests, the newest first; those asked for earlier count."""
        surplus, count = plan.surplus, sum(plan.surplus.values())
        ids_by_member: dict[KnownMember, list[int]] = {member: [] for member in surplus}
        moved = 0
        for request_id in reversed(self._pending_by_id):
            if moved == count:
                break
            pending = self._pending_by_id[request_id]
            member = pending.member
            if member is None or not surplus.get(member):
                continue
            if pending.recalled is not member:
                if not pending.may_be_recalled:
                    continue
                pending.recalled = member
                ids_by_member[member].append(request_id)
            surplus[member] -= 1
            moved += 1
        if moved:
            review.receivers = plan.receivers(moved)
            review.receivers.reverse()
        for member, ids in ids_by_member.items():
            for start in range(0, len(ids), packets.RECALLED_MAX):
                payload = packets.encode_ids(ids[start : start + packets.RECALLED_MAX])
                self._requester.out.append(PeerMessage(group, member.peer, packets.RECALL, 0, 0, payload))

    def _want_link(self, group: Group, rates: dict[KnownMember, float]) -> None:
        """Open a link to a member without one, such as a new member, while requests wait long at all others."""
        if min(member.in_flight / rate for member, rate in rates.items()) > GAIN_S:
            unready = next((member for member in group.levels[0] if not member.is_ready), None) if group.levels else None
            if unready is not None:
                self._requester.wanted.append(unready.peer)
