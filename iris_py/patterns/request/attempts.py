"""The times at which a request is given to further members: hedging, and attempt timeouts (docs/design.md 6.12).

``HedgeTimes`` holds the times at which a requester checks for members that are late with an answer; ``Hedges`` gives their
requests to second members. ``Attempts`` holds the timeouts of requests with an ``attempt_timeout``
(:class:`~iris_py.patterns.request.retry.Retry`).
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from iris_overlay.timers import DeadlineTable
from iris_py.patterns.request import candidates
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.hedging import LATE_S
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from iris_overlay.environment import Rng
    from iris_py.observe.counts import RequesterCounts
    from iris_py.patterns.request.pending import Pending
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer

#: A result of :meth:`HedgeTimes.looks`.
Look: TypeAlias = "tuple[int, Pending, KnownMember, float, float]"


class HedgeTimes:
    """Times, each with the requests to check then; requests started together share an entry. Falsy if empty."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []  # time, first request id, end of the request ids

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, first: int, end: int) -> None:
        """Check the requests from ``first`` to before ``end`` at a time."""
        heappush(self._heap, (when, first, end))

    def take_due(self, now: float) -> Iterator[tuple[float, int]]:
        """Yield the scheduled time and request id of all due entries. Entries may be added meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            when, first, end = heappop(self._heap)
            for request_id in range(first, end):
                yield when, request_id

    def looks(self, pending_by_id: Mapping[int, Pending], silent: dict[Peer, None], now: float) -> Iterator[Look]:
        """Check the due requests for late members; see :func:`look_again_at`.

        Args:
            pending_by_id: The requests.
            silent: Collects the peers to ask for a sign of life.

        Yields:
            The request's id, the request, its member, the time of the next check (0.0: give it to a second member now), and the
            time of the next check without a second member. Entries may be added meanwhile.
        """
        for due, request_id in self.take_due(now):
            pending = pending_by_id.get(request_id)
            if pending is None or (member := pending.member) is None or pending.is_routed:
                continue
            delay_s = pending.hedge_s()
            again_at = pending.sent_at + delay_s
            later = now + max(delay_s, now - pending.sent_at)  # ever more rarely
            if again_at <= now:
                stood_still = now - due > LATE_S  # unread answers may be waiting
                again_at = now + delay_s if stood_still else look_again_at(pending, later, silent, now)
            yield request_id, pending, member, again_at, later

    def deadline(self, pending_by_id: Mapping[int, Pending]) -> float | None:
        """Return the time of the next check; discard entries whose requests have no member."""
        heap = self._heap
        while heap:
            when, first, end = heap[0]
            next_ = first
            while next_ < end and ((pending := pending_by_id.get(next_)) is None or pending.member is None):
                next_ += 1
            if next_ == first:
                return when
            if next_ < end:
                heapreplace(heap, (when, next_, end))
            else:
                heappop(heap)
        return None


def look_again_at(pending: Pending, later: float, silent: dict[Peer, None], now: float) -> float:
    """Return when to check a late request again, or 0.0 to give it to a second member now.

    A keyed request stays with a living member, however busy: only a member without a sign of life when asked is passed over.

    Args:
        later: Default time of the next check.
        silent: Collects the peers to ask for a sign of life.
    """
    member = pending.member
    assert member is not None
    is_given_again = pending.anchor and pending.lost is member
    if not member.is_ready and not is_given_again:  # not sent yet, so its outcome is known soon
        return later
    if not pending.anchor:
        return 0.0
    if member.peer.is_local:  # this node itself
        return later
    if not pending.probed_at:
        silent[member.peer] = None
    return pending.look_for_sign(later, now)


class HedgeSender(Protocol):
    """The part of a requester that its hedges (second members for late requests) call."""

    counts: RequesterCounts
    earliest: float
    has_new_deadline: bool
    silent: dict[Peer, None]

    def send(self, request_id: int, pending: Pending, member: KnownMember, now: float) -> None:
        """Send a request to a member."""


class Hedges:
    """Gives requests with a late answer to second members.

    Args:
        requester: Sends the requests.
        pending_by_id: The requests of the requester.
        rng: The randomness of the balancer.

    Attributes:
        times: The times of the checks.
    """

    __slots__ = ("_pending_by_id", "_requester", "_rng", "times")

    def __init__(self, requester: HedgeSender, pending_by_id: dict[int, Pending], rng: Rng) -> None:
        self.times = HedgeTimes()
        self._requester = requester
        self._pending_by_id = pending_by_id
        self._rng = rng

    def schedule(self, when: float, first: int, end: int) -> None:
        """Schedule a check whether the requests from ``first`` to before ``end`` need a second member; infinity for never."""
        if when < math.inf:
            self.times.add(when, first, end)
        if when < self._requester.earliest:
            self._requester.has_new_deadline = True

    def handle_timeout(self, now: float) -> None:
        """Give late requests to second members."""
        silent = self._requester.silent
        for request_id, pending, member, again_at, later in self.times.looks(self._pending_by_id, silent, now):
            if not again_at and not self._give_to_second(request_id, pending, member, now):
                again_at = later
            if again_at:
                self.schedule(again_at, request_id, request_id + 1)

    def deadline(self) -> float | None:
        """Return the time of the next check, or None."""
        return self.times.deadline(self._pending_by_id)

    def _give_to_second(self, request_id: int, pending: Pending, member: KnownMember, now: float) -> bool:
        """Give a request to another member as well; return False without such a member or without budget."""
        group, others = pending.group, candidates.seconds(pending, member)
        having = 2 + len(pending.also or ())
        if not others or pending.is_spent or not pending.may_lose(having) or not group.hedging.take():
            return False
        other, _unready = candidates.choose(pending, others, self._rng)
        self._requester.counts.hedged += 1
        member.observe_silence(now - pending.sent_at)
        pending.also = [*(pending.also or ()), (member, pending.sent_at)]
        pending.probed_at = 0.0
        self._requester.send(request_id, pending, other, now)
        return True


#: An idempotent request routed through the ring is repeated after this time without answer (seconds). Too small: slow handlers
#: execute it twice; too large: a lost request delays its caller that long.
ROUTED_RETRY_S = 5.0


class Attempts:
    """The attempt timeouts of requests."""

    def __init__(self) -> None:
        self._ends: DeadlineTable[int] = DeadlineTable()

    def begin(self, request_id: int, pending: Pending, now: float) -> None:
        """Start the timeout of an attempt, if the policy has one."""
        timeout_s = None if pending.retry is None else pending.retry.attempt_timeout
        if timeout_s is not None:
            pending.attempt_by = now + timeout_s
            self._ends.set(request_id, pending.attempt_by)

    def forget(self, request_id: int, pending: Pending) -> None:
        """Cancel the timeout of an attempt."""
        pending.attempt_by = 0.0
        self._ends.cancel(request_id)

    def due(self, pending_by_id: Mapping[int, Pending], now: float) -> list[tuple[int, Pending]]:
        """Take the requests with a timed-out attempt. After a stall of the node, extend the timeout to read answers first."""
        found = []
        for request_id in self._ends.expired(now):
            pending = pending_by_id[request_id]
            if now - pending.attempt_by > LATE_S:
                pending.attempt_by = now + LATE_S
                self._ends.set(request_id, pending.attempt_by)
            else:
                found.append((request_id, pending))
        return found

    def deadline(self) -> float | None:
        """Return the earliest attempt timeout."""
        return self._ends.deadline()


def stop(request_id: int, pending: Pending, now: float) -> list[PeerMessage]:
    """Return CANCEL messages for all members with a request; the last member asked stays the request's member."""
    member = pending.member
    assert member is not None
    member.observe_silence(now - pending.sent_at)
    holders = [member, *(other for other, _since in pending.also or ())]
    for other in holders[1:]:
        pending.drop_also(other.peer)
    pending.stopped += tuple(holder.peer.id for holder in holders if holder.peer.id not in pending.stopped)
    return [PeerMessage(pending.group, holder.peer, packets.CANCEL, request_id) for holder in holders]
