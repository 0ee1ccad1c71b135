"""The attempts of requests that say how they may be repeated (:class:`~iris_py.patterns.request.retry.Retry`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.timers import DeadlineTable
from iris_py.peers.hedging import LATE_S
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.patterns.request.pending import Pending

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
