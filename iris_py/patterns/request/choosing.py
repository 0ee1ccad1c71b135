"""Choose the member for a request, and when to ask the next: the part of a requester that nobody calls from outside.

Theory of operation (docs/design.md section 6). A request that has no outcome is in one place: a member has it (and, while it is
hedged, maybe others that were asked before), or it waits for a member or a link (``_waiting``), for a place at one (a room), or
for a time (``_retry_times``). What the application and the members say comes in by :mod:`iris_py.patterns.request.requester`.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from iris_overlay.timers import DeadlineTable
from iris_py.errors import IrisError, MemberLost, NoMembers, Overloaded, RemoteError, RequestTimeout
from iris_py.patterns.request.pending import room_key_of
from iris_py.patterns.request.room import ROOM_BYTES_MAX, ROOM_GROWTH, ROOM_REQUESTS_MAX, Room
from iris_py.peers.balancer import choose_near
from iris_py.peers.hedging import LATE_S
from iris_py.peers.keyed import first_of, slot_of
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_overlay.rng import Rng
    from iris_py.patterns.request.pending import Pending, Together
    from iris_py.patterns.request.room import RoomKey
    from iris_py.peers.group import Group
    from iris_py.peers.member import Member
    from iris_py.peers.peer import Peer

#: A request that found every member full, and an idempotent one that found them gone, is tried again after this time (seconds),
#: doubling up to the second value. Too small: a full cluster is hammered; too large: a restarted member idles.
RETRY_DELAY_S = 0.01
RETRY_DELAY_S_MAX = 0.25

_REQUEST_ONCE = packets.REQUEST_ONCE  # looked up for each request


class Choosing:
    """The requests of one node that have no outcome yet, and who has them; made as a ``Requester``."""

    def __init__(self, rng: Rng, count_nodes: Callable[[], int]) -> None:
        self.sent = 0
        self.replied = 0
        self.failed = 0
        self.retries = 0
        self.hedged = 0
        self.late = 0
        self.silent: dict[Peer, None] = {}
        self.wanted: list[Peer] = []
        self._rng = rng
        self._count_nodes = count_nodes
        self._last_id = 0
        self._pending: dict[int, Pending] = {}
        self._waiting: dict[int, None] = {}  # without a member: the view is unknown or empty, or every link is congested
        self._deadlines: DeadlineTable[int | Together] = DeadlineTable()
        self._retry_times: DeadlineTable[int] = DeadlineTable()
        # a heap: when, the first of some requests, the one behind the last
        self._hedge_times: list[tuple[float, int, int]] = []
        self._rooms: dict[RoomKey, Room] = {}  # those with requests that wait for a place
        self._room_times: DeadlineTable[Room] = DeadlineTable()
        self._waiting_requests = self._waiting_bytes = 0  # in the rooms
        self.out: list[PeerMessage] = []
        self.has_new_deadline = False
        self._earliest = math.inf
        self.outcomes: list[tuple[object, bytes | IrisError]] = []

    # -- choice of a member

    def _dispatch(self, request_id: int, pending: Pending, now: float) -> None:
        if pending.is_parked:
            self._unpark(request_id, pending)
        placement = pending.placement
        levels = pending.group.levels if placement is None else pending.group.placed_levels(placement)
        if not levels:
            self._handle_no_members(request_id, pending, known=pending.group.members is not None)
            return
        if pending.anchor:
            self._dispatch_anchored(request_id, pending, now)
            return
        member, unready = choose_near(levels, self._rng)
        peer = member.peer
        if pending.tried or peer.is_full or (peer.link is not None and peer.link.congested):  # not Peer.is_congested: it is hot
            members = pending.group.candidates(placement)
            untried = [other for other in members if not pending.tried or other not in pending.tried]
            uncongested = [other for other in untried if other.peer.has_room_for(len(pending.payload))]
            if not uncongested:
                self._handle_none_ready(request_id, pending, congested=bool(untried), now=now)
                return
            member, unready = choose_near(pending.group.order(uncongested, placement), self._rng)
        if unready is not None:
            self.wanted.append(unready.peer)
        self._send(request_id, pending, member, now)

    def _dispatch_anchored(self, request_id: int, pending: Pending, now: float) -> None:
        """Give a request to the member that its key chooses, or let it wait for that one."""
        member = pending.group.keyed_member(pending.anchor, pending.placement, pending.tried)
        if member is None or not member.peer.has_room_for(len(pending.payload)):
            self._handle_none_ready(request_id, pending, congested=member is not None, now=now)
        else:
            self._send(request_id, pending, member, now)

    def _send(self, request_id: int, pending: Pending, member: Member, now: float) -> None:
        if pending.attempts:
            self.retries += 1
        pending.attempts += 1
        pending.member = member
        pending.sent_at = now
        member.in_flight += 1
        member.peer.awaited += 1
        time_left = packets.encode_time_left(pending.deadline - now)
        payload = pending.payload if pending.offer is None else pending.offer.make(member.peer, request_id)
        self.out.append(PeerMessage(pending.group, member.peer, pending.kind, request_id, time_left, payload, pending.headers))
        if pending.kind == _REQUEST_ONCE and len((group := pending.group).targets) > 1:
            when = now + group.hedging.delay_s(pending.timeout_s)
            heappush(self._hedge_times, (when, request_id, request_id + 1))
            if when < self._earliest:
                self.has_new_deadline = True

    def _handle_no_members(self, request_id: int, pending: Pending, *, known: bool) -> None:
        if pending.failure is not None and known:
            self._fail(request_id, pending, pending.failure)
        elif pending.idempotent or not known:
            self._park(request_id, pending)
        else:
            self._finish(request_id, pending, self._no_members(pending))

    def _no_members(self, pending: Pending) -> NoMembers:
        group, placement = pending.group, pending.placement
        elsewhere = len(group.members or ()) - len(group.candidates(placement))
        return NoMembers(group.name, self._count_nodes(), "" if placement is None else placement[1], elsewhere)

    def _handle_none_ready(self, request_id: int, pending: Pending, *, congested: bool, now: float) -> None:
        is_full = pending.rejected == packets.Rejection.OVERLOADED
        if congested:
            self._park(request_id, pending)
        elif pending.failure is not None:
            self._fail(request_id, pending, pending.failure)
        elif is_full and pending.waits:
            self._enter_room(request_id, pending, now)
        elif pending.idempotent and not is_full:
            assert pending.tried is not None
            rounds = max(0, pending.attempts // len(pending.tried) - 1)
            pending.tried = None
            pending.is_parked = True
            self._retry_times.set(request_id, now + min(RETRY_DELAY_S_MAX, RETRY_DELAY_S * 2.0 ** min(rounds, 16)))
            self.has_new_deadline = True
        elif is_full and pending.lost is not None:
            self._finish(request_id, pending, MemberLost(pending.group.name, pending.lost.peer.id.hex()))
        elif is_full:
            self._finish(request_id, pending, Overloaded(pending.group.name, pending.tried_count))
        elif pending.rejected == packets.Rejection.EXPIRED:
            self._finish(request_id, pending, RequestTimeout(pending.group.name, pending.timeout_s, None))
        elif pending.rejected == packets.Rejection.NO_TUNNELS:
            self._finish(
                request_id, pending, NoMembers(pending.group.name, self._count_nodes(), without_tunnels=pending.tried_count)
            )
        else:
            self._finish(request_id, pending, self._no_members(pending))

    def _try_another(self, request_id: int, pending: Pending, now: float) -> None:
        member = pending.member
        assert member is not None
        self._take_from(request_id, member, pending)
        pending.tried = [*(pending.tried or ()), member]
        pending.tried_count = max(pending.tried_count, len(pending.tried))
        if pending.also:
            self._fall_back(request_id, pending, now)
        else:
            self._dispatch(request_id, pending, now)

    def _take_from(self, request_id: int, member: Member, pending: Pending) -> None:
        member.in_flight -= 1
        member.peer.awaited -= 1
        pending.member = None
        if pending.is_routed:
            pending.is_routed = False
            self._retry_times.cancel(request_id)

    def _sent_to(self, peer: Peer, unsent: Container[int]) -> list[tuple[int, Pending]]:
        """Return the requests that a peer has, or had."""
        leaving = {message.id for message in self.out if message.peer is peer and message.kind != packets.CANCEL}
        return [
            (id_, pending)
            for id_, pending in self._pending.items()
            if pending.member is not None and pending.member.peer is peer and id_ not in leaving and id_ not in unsent
        ]

    def _park(self, request_id: int, pending: Pending) -> None:
        pending.is_parked = True
        self._waiting[request_id] = None

    def _unpark(self, request_id: int, pending: Pending) -> None:
        pending.is_parked = False
        if pending.room is not None:
            self._leave_room(pending, pending.room)
            return
        self._waiting.pop(request_id, None)
        self._retry_times.cancel(request_id)

    # -- asking a second member

    def _hedge_at(self, when: float, first: int, end: int) -> None:
        """Look then whether some requests are to be given to second members."""
        heappush(self._hedge_times, (when, first, end))
        if when < self._earliest:
            self.has_new_deadline = True

    def _next_hedge(self) -> float | None:
        """Return when to look next; requests that have ended, or have no member now, are forgotten."""
        hedges, pending_by_id = self._hedge_times, self._pending
        while hedges:
            when, first, end = hedges[0]
            next_ = first
            while next_ < end and ((pending := pending_by_id.get(next_)) is None or pending.member is None):
                next_ += 1
            if next_ == first:
                return when
            if next_ < end:
                heapreplace(hedges, (when, next_, end))
            else:
                heappop(hedges)
        return None

    def _hedge(self, now: float) -> None:
        """Give to second members what the first have had for too long."""
        hedges = self._hedge_times
        while hedges and hedges[0][0] <= now:
            due, first, end = heappop(hedges)
            for request_id in range(first, end):
                pending = self._pending.get(request_id)
                if pending is None or (member := pending.member) is None or pending.is_routed:
                    continue
                delay_s = pending.group.hedging.delay_s(pending.timeout_s)
                again_at = pending.sent_at + delay_s
                if again_at <= now:
                    again_at = now + delay_s
                    if now - due <= LATE_S:  # else this node stood still, and has answers to read
                        again_at = self._hedge_one(request_id, pending, member, delay_s, now)
                if again_at:
                    self._hedge_at(again_at, request_id, request_id + 1)

    def _hedge_one(self, request_id: int, pending: Pending, member: Member, delay_s: float, now: float) -> float:
        """Give a request to another member as well, if the one that has had it for too long is not to be waited for alone.

        A key has one member as long as that one lives, however busy it is: so only one that gives no sign of life when it is
        asked for one is passed over.

        Returns:
            When to look again if that cannot be now; 0.0 otherwise.
        """
        later = now + max(delay_s, now - pending.sent_at)  # ever more rarely
        if not member.is_ready:  # it was not sent yet: what becomes of that is known soon
            return later
        if pending.anchor:
            link = member.peer.link
            if link is None:  # it is this node itself
                return later
            if not pending.probed_at:
                pending.probed_at = now
                self.silent[member.peer] = None
                return now + pending.group.hedging.sign_s(pending.timeout_s)
            if link.heard_at >= pending.probed_at:
                pending.probed_at = 0.0
                return later
        return 0.0 if self._give_to_second(request_id, pending, member, now) else later

    def _give_to_second(self, request_id: int, pending: Pending, member: Member, now: float) -> bool:
        """Give a request to another member as well; returns whether there is one, and the budget allows it."""
        group, size = pending.group, len(pending.payload)
        having = [member, *(each for each, _since in pending.also or ()), *(pending.tried or ())]
        others = [
            other
            for other in group.candidates(pending.placement)
            if other not in having and other.is_ready and other.peer.has_room_for(size)
        ]
        if not others or not group.hedging.take():
            return False
        levels = group.order(others, pending.placement)
        other = first_of(levels[0], slot_of(pending.anchor)) if pending.anchor else choose_near(levels, self._rng)[0]
        self.hedged += 1
        member.observe_silence(now - pending.sent_at)
        pending.also = [*(pending.also or ()), (member, pending.sent_at)]
        pending.probed_at = 0.0
        self._send(request_id, pending, other, now)
        return True

    def _drop_also(self, pending: Pending, peer: Peer) -> Member | None:
        """Forget that a peer has a request which the member has, too; returns who that was."""
        for entry in pending.also or ():
            member = entry[0]
            if member.peer is peer:
                assert pending.also is not None
                pending.also = [other for other in pending.also if other is not entry] or None
                member.in_flight -= 1
                member.peer.awaited -= 1
                return member
        return None

    def _fall_back(self, request_id: int, pending: Pending, now: float) -> None:
        """The last to be asked does not answer: wait for those that were asked before, and soon ask another one."""
        assert pending.also is not None
        *also, (pending.member, pending.sent_at) = pending.also
        pending.also = also or None
        self._hedge_at(now, request_id, request_id + 1)

    def _swap(self, pending: Pending, peer: Peer) -> bool:
        """Make a peer that was asked before the member of a request, to take its answer; returns whether it was asked."""
        for entry in pending.also or ():
            if entry[0].peer is peer:
                assert pending.also is not None
                assert pending.member is not None
                others = [other for other in pending.also if other is not entry]
                pending.also = [*others, (pending.member, pending.sent_at)]
                pending.member, pending.sent_at = entry
                return True
        return False

    # -- waiting for a place

    def _enter_room(self, request_id: int, pending: Pending, now: float) -> None:
        """Let a request wait for a place, behind those that came before it."""
        size = len(pending.payload)
        pending.tried_count = max(pending.tried_count, len(pending.group.candidates(pending.placement)))
        if self._waiting_requests >= ROOM_REQUESTS_MAX or self._waiting_bytes + size > ROOM_BYTES_MAX:
            self._finish(request_id, pending, Overloaded(pending.group.name, pending.tried_count))
            return
        self._waiting_requests += 1
        self._waiting_bytes += size
        pending.rejected = packets.Rejection.OVERLOADED
        pending.tried = None
        pending.is_parked = True
        key = room_key_of(pending)
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = Room(key)
            self._pause_room(room, pending, now)
        pending.room = room
        room.add(request_id)

    def _leave_room(self, pending: Pending, room: Room) -> None:
        pending.room = None
        self._waiting_requests -= 1
        self._waiting_bytes -= len(pending.payload)
        room.count -= 1
        if not room.count:
            del self._rooms[room.key]
            self._room_times.cancel(room)
            for member in room.key[0].members or ():
                member.limit = math.inf

    def _pause_room(self, room: Room, first: Pending, now: float) -> None:
        rounds = max(0, first.attempts // max(1, first.tried_count) - 1)
        self._room_times.set(room, now + min(RETRY_DELAY_S_MAX, RETRY_DELAY_S * 2.0 ** min(rounds, 16)))
        self.has_new_deadline = True

    def _place_freed(self, group: Group, member: Member, now: float) -> None:
        """A member has answered: it takes another one."""
        member.limit += ROOM_GROWTH
        for room in [room for room in self._rooms.values() if room.key[0] is group]:
            self._fill_places(room, now)

    def _try_rooms(self, now: float) -> None:
        """Try again, with one request for each member, where nothing was heard of a place for long enough."""
        for room in self._room_times.expired(now):
            first = room.first(self._pending)
            assert first is not None
            self._pause_room(room, first[1], now)
            for member in room.key[0].members or ():
                member.limit = max(member.limit, member.in_flight + 1)
            if room.key[2]:
                self._try_first(room, now)
        for room in list(self._rooms.values()):
            self._fill_places(room, now)

    def _try_first(self, room: Room, now: float) -> None:
        """Ask again for the tunnel that has waited for longest."""
        first = room.first(self._pending)
        if first is not None:
            self._dispatch(*first, now)

    def _fill_places(self, room: Room, now: float) -> None:
        """Send what waits to those that have a place, as far as is known."""
        group, placement, is_for_tunnels = room.key
        while (first := room.first(self._pending)) is not None:
            request_id, pending = first
            members = group.candidates(placement)
            if not members:
                self._unpark(request_id, pending)
                self._handle_no_members(request_id, pending, known=True)
                continue
            if is_for_tunnels:  # whether there is a place for one nobody knows but the member
                return
            size = len(pending.payload)
            having = [member for member in members if member.in_flight + 1 <= member.limit and member.peer.has_room_for(size)]
            if not having:
                return
            levels = group.order(having, placement)
            if pending.anchor:
                member = first_of(levels[0], slot_of(pending.anchor))
            else:
                member, unready = choose_near(levels, self._rng)
                if unready is not None:
                    self.wanted.append(unready.peer)
            self._unpark(request_id, pending)
            self._send(request_id, pending, member, now)

    # -- the end of a request

    def _take(self, peer: Peer, request_id: int) -> Pending | None:
        """Take the request that a peer answers; None if it has ended, or is not that peer's to answer."""
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None or (pending.member.peer is not peer and not self._swap(pending, peer)):
            self.late += 1
            return None
        self._forget(request_id, pending)
        return pending

    def _finish(self, request_id: int, pending: Pending, error: IrisError) -> None:
        self._forget(request_id, pending)
        self.outcomes.append((pending.token, error))

    def _fail(self, request_id: int, pending: Pending, failure: RemoteError) -> None:
        self.failed += 1
        self._finish(request_id, pending, failure)

    def _forget(self, request_id: int, pending: Pending) -> None:
        del self._pending[request_id]
        self._forget_deadline(request_id, pending.together)
        member = pending.member
        if member is not None:
            member.in_flight -= 1
            member.peer.awaited -= 1
        for other, _since in pending.also or ():
            other.in_flight -= 1
            other.peer.awaited -= 1
            self.out.append(PeerMessage(pending.group, other.peer, packets.CANCEL, request_id))
        if pending.is_routed:
            self._retry_times.cancel(request_id)
        if pending.is_parked:
            self._unpark(request_id, pending)

    def _forget_deadline(self, request_id: int, together: Together | None) -> None:
        if together is None:
            self._deadlines.cancel(request_id)
            return
        together.left -= 1
        if not together.left:
            self._deadlines.cancel(together)

    def _timeout_of(self, pending: Pending) -> IrisError:
        """Return what is said of a request that is out of time."""
        if pending.failure is not None and pending.member is None:
            return pending.failure
        last = pending.member or pending.lost
        if last is not None:
            return RequestTimeout(pending.group.name, pending.timeout_s, last.peer.id.hex())
        if pending.rejected == packets.Rejection.OVERLOADED:
            return Overloaded(pending.group.name, pending.tried_count)
        if pending.group.members is not None and not pending.group.candidates(pending.placement):
            return self._no_members(pending)
        return RequestTimeout(pending.group.name, pending.timeout_s, None)

    def _cancel_at_member(self, request_id: int, pending: Pending) -> None:
        if pending.member is not None:
            self.out.append(PeerMessage(pending.group, pending.member.peer, packets.CANCEL, request_id))
