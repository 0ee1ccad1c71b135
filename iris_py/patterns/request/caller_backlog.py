"""The caller's backlog: requests that wait for a member, for a place or for a time.

A request waits *for a member* while the membership view is unknown or empty, or all links are congested; *for a time* after
failures and rejections; *for a place* if it found every member full (:mod:`iris_py.patterns.request.request_queues`). A request
that waits for a member until a deadline also waits for that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from iris_overlay.timers import DeadlineTable
from iris_py.errors import Overloaded
from iris_py.patterns.request import candidates
from iris_py.patterns.request.request_queues import ROOM_GROWTH, QueueKind, Rooms, pause_s
from iris_py.wire import packets

if TYPE_CHECKING:
    from iris_overlay.environment import Rng
    from iris_py.errors import IrisError
    from iris_py.patterns.request.pending import Pending
    from iris_py.patterns.request.request_queues import Room, RoomKey
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer


class Dispatcher(Protocol):
    """The part of a requester that its backlog (waiting requests) calls."""

    has_new_deadline: bool
    wanted: list[Peer]

    def dispatch(self, request_id: int, pending: Pending, now: float) -> None:
        """Choose a member for a request and send it, or let it wait."""

    def send(self, request_id: int, pending: Pending, member: KnownMember, now: float) -> None:
        """Send a request to a member."""

    def handle_no_members(self, request_id: int, pending: Pending, now: float, *, known: bool) -> None:
        """Let a request wait for a member, or end it once it has waited long enough."""

    def finish(self, request_id: int, pending: Pending, error: IrisError) -> None:
        """End a request with an error."""


class Backlog:
    """The requests of one requester that wait for a member, for a place or for a time.

    Args:
        requester: Sends and ends the requests that no longer wait.
        pending_by_id: The requests of the requester.
        rng: The randomness of the balancer.

    Attributes:
        rooms: The requests that wait for a place.
    """

    __slots__ = ("_pending_by_id", "_requester", "_rng", "_times", "_waiting", "rooms")

    def __init__(self, requester: Dispatcher, pending_by_id: dict[int, Pending], rng: Rng) -> None:
        self.rooms = Rooms()
        self._requester = requester
        self._pending_by_id = pending_by_id
        self._rng = rng
        self._waiting: dict[int, None] = {}  # for a member, or for room on a link
        self._times: DeadlineTable[int] = DeadlineTable()

    def park(self, request_id: int, pending: Pending) -> None:
        """Let a request wait for a member."""
        pending.is_parked = True
        self._waiting[request_id] = None

    def pause(self, request_id: int, pending: Pending, until: float) -> None:
        """Let a request wait for a time."""
        pending.is_parked = True
        self.set_time(request_id, until)

    def enter(self, request_id: int, pending: Pending, now: float) -> None:
        """Let a request wait for a place; with ``Overloaded`` end a request beyond the bounds of the queues."""
        pending.tried_count = max(pending.tried_count, candidates.count(pending))
        if not self.rooms.can_take(len(pending.payload)):
            self._requester.finish(request_id, pending, Overloaded(pending.group.name, pending.tried_count))
            return
        pending.rejected = packets.Rejection.OVERLOADED
        pending.tried = None
        pending.is_parked = True
        if self.rooms.enter(request_id, pending, room_key_of(pending), now + pause_s(pending.attempts, pending.tried_count)):
            self._requester.has_new_deadline = True

    def leave(self, request_id: int, pending: Pending) -> None:
        """Remove a request that no longer waits."""
        pending.is_parked = False
        if pending.room is not None:
            self.rooms.leave(pending)
            return
        self._waiting.pop(request_id, None)
        self._times.cancel(request_id)

    def set_time(self, request_id: int, when: float) -> None:
        """Set the time at which :meth:`times_expired` returns a request."""
        self._times.set(request_id, when)
        self._requester.has_new_deadline = True

    def cancel_time(self, request_id: int) -> None:
        """Cancel the time of :meth:`set_time`."""
        self._times.cancel(request_id)

    def times_expired(self, now: float) -> list[int]:
        """Take the requests whose time has come."""
        return self._times.expired(now)

    def view_changed(self, now: float) -> None:
        """Try waiting requests again after new members or a drained link."""
        for request_id in list(self._waiting):
            self._requester.dispatch(request_id, self._pending_by_id[request_id], now)
        for room in self.rooms:
            self.fill(room, now)

    def place_freed(self, group: Group, member: KnownMember, now: float) -> None:
        """Handle a member's answer, which frees a place."""
        member.limit += ROOM_GROWTH
        for room in self.rooms.of(group):
            self.fill(room, now)

    def try_first(self, room: Room, now: float) -> None:
        """Give the longest-waiting request of a room (a queue for a place) to a member again."""
        if (first := room.first(self._pending_by_id)) is not None:
            self._requester.dispatch(*first, now)

    def fill(self, room: Room, now: float) -> None:
        """Send requests of a room (a queue for a place) to the members known to have a place."""
        group, placement, line = room.key
        while (first := room.first(self._pending_by_id)) is not None:
            request_id, pending = first
            if not group.candidates(placement):
                self.leave(request_id, pending)
                self._requester.handle_no_members(request_id, pending, now, known=True)
                continue
            if line == QueueKind.TUNNELS:  # free places for tunnels are known to the member only
                return
            having = candidates.having_place(room, pending)
            if not having:
                return
            member, unready = candidates.choose(pending, having, self._rng)
            if unready is not None:
                self._requester.wanted.append(unready.peer)
            self.leave(request_id, pending)
            self._requester.send(request_id, pending, member, now)

    def handle_timeout(self, now: float) -> None:
        """In rooms (queues for a place) whose pause is over, try one more request per member."""
        for room in self.rooms.due(now):
            first = room.first(self._pending_by_id)
            assert first is not None
            self.rooms.try_again(room, now + pause_s(first[1].attempts, first[1].tried_count))
            self._requester.has_new_deadline = True
            for member in room.key[0].members or ():
                member.limit = max(member.limit, member.in_flight + 1)
            if room.key[2] == QueueKind.TUNNELS:
                self.try_first(room, now)
        for room in self.rooms:
            self.fill(room, now)

    def deadline(self) -> float | None:
        """Return the earliest time of a request or of a room, or None."""
        times, rooms = self._times.deadline(), self.rooms.deadline()
        return rooms if times is None else times if rooms is None else min(times, rooms)


def room_key_of(pending: Pending) -> RoomKey:
    """Return the key of the queue (room) in which a request waits for a place."""
    if pending.kind == packets.TUNNEL_OPEN:
        return pending.group, pending.placement, QueueKind.TUNNELS
    return pending.group, pending.placement, QueueKind.KEYED if pending.anchor and pending.group.spills else QueueKind.USUAL
