"""The attempts of requests that say how they may be repeated (:class:`~iris_py.patterns.request.retry.Retry`).

The times at which a requester looks whether members have had requests for too long (docs/design.md 6.12).
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, TypeAlias

from iris_overlay.timers import DeadlineTable
from iris_py.peers.hedging import LATE_S
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from iris_py.patterns.request.pending import Pending
    from iris_py.peers.member import Member
    from iris_py.peers.peer import Peer

#: What :meth:`HedgeTimes.looks` yields.
Look: TypeAlias = "tuple[int, Pending, Member, float, float]"


class HedgeTimes:
    """Times, and the requests to look at then: those that were begun together are one entry. Falsy if there is none."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []  # when, the first of some requests, the one behind the last

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, first: int, end: int) -> None:
        """Look then at the requests from the first to the one before the end."""
        heappush(self._heap, (when, first, end))

    def take_due(self, now: float) -> Iterator[tuple[float, int]]:
        """Take the entries whose time has come: when that was, and each of their requests. More may be added meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            when, first, end = heappop(self._heap)
            for request_id in range(first, end):
                yield when, request_id

    def looks(self, pending_by_id: Mapping[int, Pending], silent: dict[Peer, None], now: float) -> Iterator[Look]:
        """Look at the requests whose members have had them for too long; see :func:`look_again_at`.

        Args:
            pending_by_id: The requests.
            silent: The peers that are to be asked for a sign of life.
            now: The time.

        Yields:
            The id of each, the request, its member, when to look again (0.0: it is to be given to a second member now), and
            when to look again if there is none. More may be added meanwhile.
        """
        for due, request_id in self.take_due(now):
            pending = pending_by_id.get(request_id)
            if pending is None or (member := pending.member) is None or pending.is_routed:
                continue
            delay_s = pending.hedge_s()
            again_at = pending.sent_at + delay_s
            later = now + max(delay_s, now - pending.sent_at)  # ever more rarely
            if again_at <= now:
                stood_still = now - due > LATE_S  # and has answers to read
                again_at = now + delay_s if stood_still else look_again_at(pending, later, silent, now)
            yield request_id, pending, member, again_at, later

    def deadline(self, pending_by_id: Mapping[int, Pending]) -> float | None:
        """Return when to look next; requests that no member holds any more are forgotten."""
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
    """Tell whether the member that has had a request for too long is still to be waited for alone.

    A key has one member as long as that one lives, however busy it is: so only one that gives no sign of life when it is
    asked for one is passed over.

    Args:
        pending: The request.
        later: When to look again if nothing else says when.
        silent: The peers that are to be asked for a sign of life; the member is added if it is time for that.
        now: The time.

    Returns:
        When to look again; 0.0 if it is to be given to a second member now.
    """
    member = pending.member
    assert member is not None
    is_given_again = pending.anchor and pending.lost is member
    if not member.is_ready and not is_given_again:  # it was not sent yet: what becomes of that is known soon
        return later
    if not pending.anchor:
        return 0.0
    if member.peer.is_local:  # it is this node itself
        return later
    if not pending.probed_at:
        silent[member.peer] = None
    return pending.look_for_sign(later, now)


#: An idempotent request that went through the ring and was not answered is given again after this time (seconds). Too small:
#: slow handlers work twice; too large: what was lost on the way costs its caller as much.
ROUTED_RETRY_S = 5.0


class Attempts:
    """The times at which those who have a request have had it for as long as they may."""

    def __init__(self) -> None:
        self._ends: DeadlineTable[int] = DeadlineTable()

    def begin(self, request_id: int, pending: Pending, now: float) -> None:
        """A member has a request from now on."""
        timeout_s = None if pending.retry is None else pending.retry.attempt_timeout
        if timeout_s is not None:
            pending.attempt_by = now + timeout_s
            self._ends.set(request_id, pending.attempt_by)

    def forget(self, request_id: int, pending: Pending) -> None:
        """No member has it any more, or it has ended."""
        pending.attempt_by = 0.0
        self._ends.cancel(request_id)

    def due(self, pending_by_id: Mapping[int, Pending], now: float) -> list[tuple[int, Pending]]:
        """Take the requests whose attempts are over. Where this node itself stood still, answers are read first."""
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
        """Return when the first of them ends."""
        return self._ends.deadline()


def stop(request_id: int, pending: Pending, now: float) -> list[PeerMessage]:
    """Return what tells all who have a request that nobody waits for them. The last to be asked is still its member."""
    member = pending.member
    assert member is not None
    member.observe_silence(now - pending.sent_at)
    holders = [member, *(other for other, _since in pending.also or ())]
    for other in holders[1:]:
        pending.drop_also(other.peer)
    pending.stopped += tuple(holder.peer.id for holder in holders if holder.peer.id not in pending.stopped)
    return [PeerMessage(pending.group, holder.peer, packets.CANCEL, request_id) for holder in holders]
