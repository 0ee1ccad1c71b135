"""Requests, at the caller: choose a member, wait, and say exactly what became of each one (docs/design.md section 6).

Every request ends in one outcome: the reply, or the error that says which of these happened: nobody there, all full, the
handler failed, the member died, time ran out. What surely was not executed is tried on another member; what may have been
executed only if the caller said that executing it twice is harmless.

Tunnels find their member in the same way (:mod:`iris_py.patterns.tunnel.table`): who is asked for one executes nothing yet.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iris_py.errors import IrisError, MemberLost, RemoteError
from iris_py.patterns.request.choosing import Choosing
from iris_py.patterns.request.pending import Pending, Ticket, room_key_of
from iris_py.peers.balancer import choose_near
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_py.patterns.tunnel.offer import Offer
    from iris_py.peers.group import Group
    from iris_py.peers.member import Placement
    from iris_py.peers.message import PeerMessage
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: An idempotent request that went through the ring and was not answered is given again after this time (seconds). Too small:
#: slow handlers work twice; too large: what was lost on the way costs its caller as much.
ROUTED_RETRY_S = 5.0
#: Nobody waits for longer than ten years, and event loops do not take a timer at the end of time.
TIMEOUT_S_MAX = 10 * 365 * 86400.0


class Requester(Choosing):
    """The requests of one node.

    Args:
        rng: The randomness of the balancer.
        count_nodes: Tells how many other nodes are known, for the text of :exc:`NoMembers`.

    Attributes:
        sent: Requests made, by the application.
        replied: Requests that ended with a reply.
        failed: Requests that ended because a handler failed.
        retries: Times that a request was given to another member.
        hedged: Times that an idempotent request was given to a second member, for the first had not answered yet.
        late: Replies that came after their request had ended.
        wanted: Peers that :meth:`peers_wanted` returns.
        silent: Peers that are to be asked for a sign of life.
        out: What :meth:`messages_to_send` takes.
        outcomes: What :meth:`outcomes_received` takes.
        has_new_deadline: Whether :meth:`deadline` may be earlier than it was when it was last asked for.
    """

    @property
    def is_alone(self) -> bool:
        """Whether one request is pending, and no other."""
        return len(self._pending) == 1

    # -- commands

    def request(
        self,
        group: Group,
        payload: bytes,
        timeout_s: float,
        idempotent: bool,
        token: object,
        now: float,
        identity: bytes = b"",
        placement: Placement | None = None,
        headers: Headers = NO_HEADERS,
        *,
        is_anchored: bool = False,
        waits: bool = False,
        retries_failed: bool = False,
    ) -> int:
        """Start a request; its outcome comes with ``token``. Returns its id, for :meth:`cancel`.

        Args:
            group: Whom to ask.
            payload: The request.
            timeout_s: How long to wait for an answer.
            idempotent: Whether it may be given to another member though one may have executed it.
            token: What the outcome comes with.
            now: The time.
            identity: By which a member knows a request that it has executed; empty for none.
            placement: Which zones it prefers and requires; None for the nearest.
            headers: What travels beside the payload.
            is_anchored: Whether the identity also chooses the member, for others may ask with the same one.
            waits: Whether it waits for a place, until its time is out, if every member is full.
            retries_failed: Whether another member is asked when the handler of one has failed it; only if it is idempotent.
        """
        self._last_id = request_id = self._last_id + 1
        self.sent += 1
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        kind = packets.REQUEST
        if identity:
            kind, payload = packets.REQUEST_ONCE, identity + payload
        anchor = identity if is_anchored else b""
        pending = Pending(token, group, kind, payload, timeout_s, deadline, idempotent, placement, headers, anchor)
        pending.waits = waits
        pending.retries_failed = retries_failed
        self._pending[request_id] = pending
        self._deadlines.set(request_id, deadline)
        if deadline < self._earliest:
            self.has_new_deadline = True
        if self._rooms and waits and room_key_of(pending) in self._rooms:
            self._enter_room(request_id, pending, now)  # behind those that came before
        else:
            self._dispatch(request_id, pending, now)
        return request_id

    def open_tunnel(
        self, group: Group, offer: Offer, timeout_s: float, token: object, now: float, *, waits: bool = False
    ) -> int:
        """Ask for a tunnel: an outcome comes only if there can be none. Returns the id, for :meth:`cancel`."""
        self._last_id = request_id = self._last_id + 1
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        pending = Pending(token, group, packets.TUNNEL_OPEN, b"", timeout_s, deadline, False, None, offer.headers)
        pending.offer = offer
        pending.waits = waits
        self._pending[request_id] = pending
        self._deadlines.set(request_id, deadline)
        if deadline < self._earliest:
            self.has_new_deadline = True
        if self._rooms and waits and room_key_of(pending) in self._rooms:
            self._enter_room(request_id, pending, now)
        else:
            self._dispatch(request_id, pending, now)
        return request_id

    def offer_of(self, peer: Peer, request_id: int) -> Offer | None:
        """Return what a member was asked to accept; None if that is no tunnel, or not that member's any more."""
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None or pending.member.peer is not peer or pending.offer is None:
            self.late += 1
            return None
        return pending.offer

    def take_offer(self, peer: Peer, request_id: int, now: float) -> object:
        """Forget a tunnel that a member has accepted; returns its token."""
        pending = self._take(peer, request_id)
        assert pending is not None
        assert pending.member is not None
        pending.member.observe(now - pending.sent_at)
        if self._rooms and (room := self._rooms.get(room_key_of(pending))) is not None:
            self._try_first(room, now)
        return pending.token

    def cancel_all(self, is_meant: Callable[[object], bool]) -> None:
        """Forget the requests whose tokens are meant, and tell the members that hold them; no outcomes follow."""
        for request_id in [id_ for id_, pending in self._pending.items() if is_meant(pending.token)]:
            self.cancel(request_id)

    def cancel(self, request_id: int) -> None:
        """Forget a request, and tell the member that holds it; no outcome follows. Harmless if it has ended."""
        pending = self._pending.get(request_id)
        if pending is not None:
            self._cancel_at_member(request_id, pending)
            self._forget(request_id, pending)

    def close(self, error: IrisError) -> None:
        """End every request with ``error``."""
        for request_id, pending in list(self._pending.items()):
            self._cancel_at_member(request_id, pending)
            self._finish(request_id, pending, error)

    # -- in

    def receive_reply(self, peer: Peer, request_id: int, payload: bytes, now: float) -> None:
        """A member answered."""
        pending = self._take(peer, request_id)
        if pending is not None:
            assert pending.member is not None
            duration_s = now - pending.sent_at
            pending.member.observe(duration_s)
            if pending.kind == packets.REQUEST_ONCE:
                pending.group.hedging.observe(duration_s)
            self.replied += 1
            if type(pending.token) is Ticket:
                pending.token.member = peer.id
            self.outcomes.append((pending.token, payload))
            if self._rooms:
                self._place_freed(pending.group, pending.member, now)

    def receive_failure(self, peer: Peer, request_id: int, payload: bytes, now: float) -> None:
        """The handler at a member raised. If the time ran out at both sides at once, that is what became of the request."""
        pending = self._pending.get(request_id)
        if pending is not None and pending.retries_failed and now < pending.deadline:
            self._retry_failed(peer, request_id, pending, payload, now)
            return
        pending = self._take(peer, request_id)
        if pending is None:
            return
        member = pending.member
        assert member is not None
        if now >= pending.deadline:
            self.outcomes.append((pending.token, self._timeout_of(pending)))
        else:
            member.observe_failure()
            self.failed += 1
            self.outcomes.append((pending.token, _failure_of(pending, peer, payload)))
        if self._rooms:
            self._place_freed(pending.group, member, now)

    def _retry_failed(self, peer: Peer, request_id: int, pending: Pending, payload: bytes, now: float) -> None:
        """Ask another member in place of one that failed; each is asked once."""
        if pending.member is None or (pending.member.peer is not peer and not self._swap(pending, peer)):
            self.late += 1
            return
        member = pending.member
        member.observe_failure()
        pending.failure = _failure_of(pending, peer, payload)
        self._try_another(request_id, pending, now)
        if self._rooms:
            self._place_freed(pending.group, member, now)

    def receive_rejection(self, peer: Peer, request_id: int, reason: int, now: float) -> None:
        """A member surely did not execute the request: another one may."""
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None:
            self.late += 1
            return
        if pending.member.peer is not peer:
            if not self._drop_also(pending, peer):  # the other one may still answer
                self.late += 1
            return
        if reason != packets.Rejection.NOT_A_MEMBER or not pending.rejected:  # who says so does not count among the full
            pending.rejected = reason
        member = pending.member
        if reason in (packets.Rejection.OVERLOADED, packets.Rejection.NOT_A_MEMBER):
            member.limit = member.in_flight - 1
            if (
                pending.waits
                and not pending.also
                and pending.failure is None
                and pending.offer is None
                and self._rooms
                and room_key_of(pending) in self._rooms
            ):
                self._take_from(request_id, member, pending)
                self._enter_room(request_id, pending, now)
                return
        self._try_another(request_id, pending, now)

    def peer_lost(self, peer: Peer, now: float, unsent: Container[int] = ()) -> None:
        """A peer died, or the link to it broke: whatever it held may have been executed. Call after the views have changed.

        Args:
            peer: The peer.
            now: The time.
            unsent: The requests for it that were not sent. They stay as they are.
        """
        for pending in self._pending.values():
            if pending.also and (member := self._drop_also(pending, peer)):
                pending.lost = member
        for request_id, pending in self._sent_to(peer, unsent):
            if pending.offer is not None:
                self._try_another(request_id, pending, now)  # nothing begins before the offer is taken
            elif pending.idempotent:
                pending.lost = pending.member
                self._try_another(request_id, pending, now)
            else:
                self._finish(request_id, pending, MemberLost(pending.group.name, peer.id.hex()))

    def peer_released(self, peer: Peer, now: float, unsent: Container[int] = ()) -> None:
        """A peer closed its link as idle: what it had not answered it surely has not executed, and is sent again."""
        for pending in self._pending.values():
            if pending.also:
                self._drop_also(pending, peer)
        for request_id, pending in self._sent_to(peer, unsent):
            if not pending.is_routed:
                self.give_back(request_id, peer, now, is_tried=False)

    def give_back(self, request_id: int, peer: Peer, now: float, *, is_tried: bool) -> None:
        """A request was surely not executed: choose a member anew. Harmless if it has ended.

        Args:
            request_id: The request.
            peer: Who had it.
            now: The time.
            is_tried: Whether that member is not to be tried again.
        """
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None:
            return
        if pending.member.peer is not peer:
            self._drop_also(pending, peer)
        elif is_tried:
            self._try_another(request_id, pending, now)
        else:
            pending.attempts -= 1
            self._take_from(request_id, pending.member, pending)
            if pending.also:
                self._fall_back(request_id, pending, now)
            else:
                self._dispatch(request_id, pending, now)

    def give_to_linked(self, request_id: int, now: float) -> bool:
        """Give a request that was not sent to another member, if one has a link; returns whether one has."""
        pending = self._pending[request_id]
        member, tried = pending.member, pending.tried or ()
        assert member is not None
        if pending.anchor or pending.also:
            return False
        others = [
            other
            for other in pending.group.candidates(pending.placement)
            if other is not member and other.is_ready and not other.peer.is_congested and other not in tried
        ]
        if not others:
            return False
        pending.attempts -= 1
        self._take_from(request_id, member, pending)
        self._send(request_id, pending, choose_near(pending.group.order(others, pending.placement), self._rng)[0], now)
        return True

    def routed(self, request_id: int, now: float) -> None:
        """A request went through the ring, where nothing tells that it was lost: an idempotent one is given again."""
        pending = self._pending.get(request_id)
        if pending is not None:
            pending.is_routed = True
            if pending.idempotent or pending.offer is not None:
                self._retry_times.set(request_id, now + ROUTED_RETRY_S)
                self.has_new_deadline = True

    def view_changed(self, now: float) -> None:
        """Members came, or a link has room again: give waiting requests another chance."""
        for request_id in list(self._waiting):
            self._dispatch(request_id, self._pending[request_id], now)
        for room in list(self._rooms.values()):
            self._fill_places(room, now)

    def handle_timeout(self, now: float) -> None:
        """End what is out of time, and try again what waited for that; harmless if early."""
        for expired in self._deadlines.expired(now):
            for request_id in (expired,) if isinstance(expired, int) else expired.ids:
                pending = self._pending.get(request_id)
                if pending is not None:
                    self._cancel_at_member(request_id, pending)
                    self._finish(request_id, pending, self._timeout_of(pending))
        for request_id in self._retry_times.expired(now):
            pending = self._pending[request_id]
            if pending.member is not None:  # it went through the ring
                pending.lost = pending.member if pending.offer is None else None
                self._try_another(request_id, pending, now)
            else:
                self._dispatch(request_id, pending, now)
        if self._rooms:
            self._try_rooms(now)
        if self._hedge_times:
            self._hedge(now)

    # -- out

    def messages_to_send(self) -> list[PeerMessage]:
        """Take what is to be sent, in order."""
        out, self.out = self.out, []
        return out

    def outcomes_received(self) -> list[tuple[object, bytes | IrisError]]:
        """Take the outcomes: (token, reply or error)."""
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def peers_wanted(self) -> list[Peer]:
        """Take the peers that links are to be opened to: members that were not chosen for want of one."""
        wanted, self.wanted = self.wanted, []
        return wanted

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        times = (
            self._deadlines.deadline(),
            self._retry_times.deadline(),
            self._room_times.deadline(),
            self._next_hedge() if self._hedge_times else None,
        )
        earliest = min((time for time in times if time is not None), default=None)
        self.has_new_deadline = False
        self._earliest = math.inf if earliest is None else earliest
        return earliest

    def groups_pending(self) -> set[Group]:
        """Return the groups with a request that has no outcome yet."""
        return {pending.group for pending in self._pending.values()}


def _failure_of(pending: Pending, peer: Peer, payload: bytes) -> RemoteError:
    type_, text = packets.decode_failure(payload)
    return RemoteError(pending.group.name, peer.id.hex(), type_, text)
