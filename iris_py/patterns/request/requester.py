"""Requests, at the caller: choose a member, wait, and report the exact outcome of each request (docs/design.md section 6).

The outcome is the reply, or an error that names the cause: no member, all members full, handler failed, member died, timeout.
A request that surely was not executed is tried on another member; after a possible execution, only an idempotent request.
Tunnel openings find their member in the same way (:mod:`iris_py.patterns.tunnel.table`), because they execute nothing.

A request without an outcome is in one place: at a member (and, while hedged, at earlier members), or in the backlog
(:mod:`iris_py.patterns.request.caller_backlog`), where it waits for a member, for a place or for a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from iris_overlay.timers import DeadlineTable
from iris_py.errors import IrisError, MemberLost, RemoteError
from iris_py.observe.counts import RequesterCounts, count_in
from iris_py.observe.histogram import RECENT_MAX
from iris_py.patterns.request import candidates, outcomes
from iris_py.patterns.request.attempts import ROUTED_RETRY_S, Attempts, Hedges, stop
from iris_py.patterns.request.caller_backlog import Backlog, room_key_of
from iris_py.patterns.request.deduplication import identities_of_keys
from iris_py.patterns.request.pending import TIMEOUT_S_MAX, Pending, Ticket, Together
from iris_py.patterns.request.recalls import REVIEWED_IN_FLIGHT, Recalls
from iris_py.patterns.request.request_queues import QueueKind, pause_s
from iris_py.patterns.request.retry import IDEMPOTENT, Retry
from iris_py.peers.balancer import choose_near
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.keyed_members import slot_of
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from iris_overlay.environment import Rng
    from iris_py.observe.histogram import Histogram
    from iris_py.patterns.request.losses import Losses
    from iris_py.patterns.tunnel.end import TunnelOffer
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer


class Requester:
    """The requests and tunnel openings of a node, as their caller.

    Args:
        rng: The randomness of the balancer.
        count_nodes: Returns the number of other known nodes, for the text of :exc:`NoMembers`.
        losses: The losses known to the node.

    Attributes:
        counts: Counters of outcomes; the groups count requests and round-trip times.
        last_id: The last id of a request or tunnel opening, numbered from 1.
        wanted: The output of :meth:`peers_wanted`.
        silent: Peers to ask for a sign of life.
        out: The output of :meth:`messages_to_send`.
        outcomes: The output of :meth:`outcomes_received`.
        has_new_deadline: Whether :meth:`deadline` may be earlier than at its last call.
        earliest: The result of the last call of :meth:`deadline`; infinity for None.
    """

    def __init__(self, rng: Rng, count_nodes: Callable[[], int], losses: Losses) -> None:
        self.counts = RequesterCounts()
        self.silent: dict[Peer, None] = {}
        self.wanted: list[Peer] = []
        self._rng = rng
        self._count_nodes = count_nodes
        self._losses = losses
        self.last_id = 0
        self._pending: dict[int, Pending] = {}
        self._deadlines: DeadlineTable[int | Together] = DeadlineTable()
        self._backlog = Backlog(self, self._pending, rng)
        self._rooms = self._backlog.rooms
        self._hedges = Hedges(self, self._pending, rng)
        self._attempts = Attempts()
        self._recalls = Recalls(self, self._pending, self._rooms)
        self._reviews = self._recalls.reviews
        self.out: list[PeerMessage] = []
        self.has_new_deadline = False
        self.earliest = math.inf
        self.outcomes: list[tuple[object, bytes | IrisError]] = []

    @property
    def is_alone(self) -> bool:
        """Whether exactly one request is pending."""
        return len(self._pending) == 1

    # -- commands

    def begin(self, pending: Pending, now: float) -> int:
        """Start a request or a tunnel opening; return its id, for :meth:`cancel`.

        The outcome carries the request's token; a tunnel opening has an outcome only if it fails.
        """
        self.last_id = request_id = self.last_id + 1
        if pending.kind != packets.TUNNEL_OPEN:
            pending.group.counts.sent += 1
        self._pending[request_id] = pending
        self._deadlines.set(request_id, pending.deadline)
        if pending.deadline < self.earliest:
            self.has_new_deadline = True
        if self._losses.entries and self._losses.recall(pending, now):
            self.finish(request_id, pending, outcomes.of_loss(pending))
        elif self._rooms.requests and pending.waits and room_key_of(pending) in self._rooms:
            self._backlog.enter(request_id, pending, now)  # behind earlier requests
        else:
            self.dispatch(request_id, pending, now)
        return request_id

    def request_many(
        self,
        group: Group,
        asked: Sequence[tuple[object, str | bytes, bytes]],
        timeout_s: float,
        now: float,
        retry: Retry = IDEMPOTENT,
    ) -> range:
        """Start idempotent keyed requests, like :meth:`begin` with anchored identities.

        Args:
            group: The addressed cluster.
            asked: The token, the key and the payload of each request.
            timeout_s: Time to wait for each answer.
            retry: The policy for repeating each.

        Returns:
            The ids of the requests, for :meth:`cancel`.

        Raises:
            ValueError: A key is empty or cannot be encoded as UTF-8. No request is started.
            TypeError: A key is neither text nor bytes. No request is started.
        """
        if not asked:
            return range(0)
        identities = identities_of_keys(group.name, [key for _token, key, _payload in asked])
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        if deadline < self.earliest:
            self.has_new_deadline = True
        time_left = packets.encode_time_left(deadline - now)
        ids = range(self.last_id + 1, self.last_id + 1 + len(asked))
        self.last_id += len(ids)
        group.counts.sent += len(ids)
        together = Together(ids, len(ids))
        self._deadlines.set(together, deadline)
        kind, pending_by_id, out = packets.REQUEST_ONCE, self._pending, self.out
        who_has = {} if candidates.news_by(group, retry, is_exclusive=False) > now else group.keyed.usual
        is_sent, has_losses = False, bool(self._losses.entries)
        is_full = (
            self._rooms.requests > 0 and (group, None, QueueKind.KEYED if group.spills else QueueKind.USUAL) in self._rooms
        )
        for request_id, identity, (token, _key, payload) in zip(ids, identities, asked, strict=True):
            content = identity + payload
            pending = Pending(  # positional where names repeat: a keyword takes 20 ns
                token,
                group,
                kind,
                content,
                timeout_s,
                deadline,
                retry,
                placement=None,
                headers=NO_HEADERS,
                waits=True,
                anchor=identity,
                members_wait_s=math.inf,
                together=together,
            )
            pending_by_id[request_id] = pending
            if has_losses and self._losses.recall(pending, now):
                self.finish(request_id, pending, outcomes.of_loss(pending))
                continue
            if is_full:
                self._backlog.enter(request_id, pending, now)  # behind earlier requests
                continue
            member = who_has.get(slot_of(identity))  # known after the first request of a slot
            if member is None or (peer := member.peer).is_full or peer.link is None or peer.link.congested:
                self.dispatch(request_id, pending, now)
                continue
            is_sent = True
            pending.attempts = 1
            pending.member = member
            pending.sent_at = now
            member.in_flight += 1
            peer.awaited += 1
            out.append(PeerMessage(group, peer, kind, request_id, time_left, content))
        if is_sent and len(group.members or ()) > 1:
            self._hedges.schedule(now + group.hedging.delay_s(timeout_s), ids.start, ids.stop)
        return ids

    def offer_of(self, peer: Peer, request_id: int) -> TunnelOffer | None:
        """Return the tunnel offer that a member accepts; None if the member has no offer with the id."""
        pending = self._pending.get(request_id)
        offer = None if pending is None or pending.kind != packets.TUNNEL_OPEN else pending.offer
        if pending is None or pending.member is None or pending.member.peer is not peer or offer is None:
            self.counts.late += 1
            return None
        return cast("TunnelOffer", offer)

    def take_offer(self, peer: Peer, request_id: int, now: float) -> object:
        """Remove the request of a tunnel that a member has accepted; return its token."""
        pending = self._take(peer, request_id)
        assert pending is not None
        assert pending.member is not None
        pending.member.observe(now - pending.sent_at)
        self.counts.openings.observe(now - pending.sent_at)
        if self._rooms.requests and (room := self._rooms.get(room_key_of(pending))) is not None:
            self._backlog.try_first(room, now)
        return pending.token

    def cancel_all(self, is_meant: Callable[[object], bool]) -> None:
        """Cancel all requests with tokens for which ``is_meant`` returns True, like :meth:`cancel`."""
        for request_id in [id_ for id_, pending in self._pending.items() if is_meant(pending.token)]:
            self.cancel(request_id)

    def cancel(self, request_id: int) -> None:
        """Cancel a request here and at its members, without an outcome; harmless if the request has ended."""
        pending = self._pending.get(request_id)
        if pending is not None:
            self._cancel_at_member(request_id, pending)
            self._forget(request_id, pending)
            if pending.kind != packets.TUNNEL_OPEN:
                pending.group.counts.cancelled += 1

    def close(self, error: IrisError) -> None:
        """End every request with ``error``."""
        for request_id, pending in list(self._pending.items()):
            self._cancel_at_member(request_id, pending)
            self.finish(request_id, pending, error)

    # -- in

    def receive_reply(self, peer: Peer, request_id: int, payload: bytes, now: float) -> None:
        """Handle a member's reply."""
        pending = self._take(peer, request_id)
        if pending is not None:
            assert pending.member is not None
            duration_s = now - pending.sent_at
            pending.member.observe(duration_s)
            pending.group.counts.round_trip.observe(duration_s)
            if pending.kind == packets.REQUEST_ONCE:
                pending.group.hedging.observe(duration_s)
            if type(pending.token) is Ticket:
                pending.token.member = peer.id
            self.outcomes.append((pending.token, payload))
            if self._rooms.requests:
                self._backlog.place_freed(pending.group, pending.member, now)

    def receive_replies(self, peer: Peer, replies: Sequence[tuple[int, bytes]], now: float) -> None:
        """Handle several replies of a member, like :meth:`receive_reply`: (id, payload) of each."""
        pending_by_id, ended, deadlines, rooms = self._pending, self.outcomes, self._deadlines, self._rooms
        round_trip: Histogram | None = None
        for request_id, payload in replies:
            pending = pending_by_id.get(request_id)
            member = None if pending is None else pending.member
            if (
                pending is None
                or member is None
                or member.peer is not peer
                or pending.is_routed
                or pending.also
                or pending.attempt_by
                or pending.reservation is not None  # the member must learn that its place is free
            ):
                self.receive_reply(peer, request_id, payload, now)
                continue
            del pending_by_id[request_id]
            if pending.together is None:
                deadlines.cancel(request_id)
            else:
                pending.forget_deadline(request_id, deadlines)
            member.in_flight -= 1
            peer.awaited -= 1
            duration_s = now - pending.sent_at
            member.observe(duration_s)
            round_trip = pending.group.counts.round_trip
            round_trip.recent.append(duration_s)
            if pending.kind == packets.REQUEST_ONCE:
                pending.group.hedging.observe(duration_s)
            if type(pending.token) is Ticket:
                pending.token.member = peer.id
            ended.append((pending.token, payload))
            if rooms.requests:
                self._backlog.place_freed(pending.group, member, now)
        if round_trip is not None and len(round_trip.recent) >= RECENT_MAX:
            round_trip.settle()

    def receive_failure(self, peer: Peer, request_id: int, payload: bytes, now: float) -> None:
        """Handle a member's report of a failed handler: end or retry the request. After the deadline the request times out."""
        pending = self._pending.get(request_id)
        if pending is None or not pending.is_held_by(peer):
            self.counts.late += 1
            return
        member = pending.member
        assert member is not None
        if now >= pending.deadline:
            self.finish(request_id, pending, outcomes.of_timeout(pending, self._count_nodes()))
        else:
            member.observe_failure()
            self._take_failure(request_id, pending, outcomes.of_failure(pending, peer, payload), now)
        if self._rooms.requests:
            self._backlog.place_freed(pending.group, member, now)

    def receive_rejection(self, peer: Peer, request_id: int, reason: int, now: float, payload: bytes = b"") -> None:
        """Handle a member's rejection: try another member, or wait; after ``LOST_BEFORE`` choose again, aware of the losses."""
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None:
            self.counts.late += 1
            return
        is_news = reason == packets.Rejection.LOST_BEFORE and self._losses.learn(pending, payload, peer, now)
        if pending.member.peer is not peer:  # the current member may still answer
            if not pending.refuse_also(peer, is_lost=reason == packets.Rejection.LOST):
                self.counts.late += 1
            return
        if reason == packets.Rejection.LOST:
            self._lose(request_id, pending, now, is_uncounted=True)
            return
        if reason == packets.Rejection.RESERVED and pending.kind == packets.RESERVE:
            return self._use_reservation(request_id, pending, now)
        if reason == packets.Rejection.RECALLED and pending.recalled is pending.member:
            return self._give_to_receiver(request_id, pending, now)
        pending.note_place_refused()
        if is_news:
            pending.refused += 1
            self._take_from_member(request_id, pending)
            if pending.may_lose(1) or pending.also:
                self._choose_anew(request_id, pending, now)
            else:
                self.finish(request_id, pending, outcomes.of_loss(pending))
            return
        if reason != packets.Rejection.NOT_A_MEMBER or not pending.rejected:  # a departed member is not a full one
            pending.rejected = reason
        member = pending.member
        pending.refused += 1
        candidates.note_rejection(pending, member, reason, now)
        has_line = self._rooms.requests and pending.may_wait and room_key_of(pending) in self._rooms
        if has_line and reason in (packets.Rejection.OVERLOADED, packets.Rejection.NOT_A_MEMBER):
            self._take_from_member(request_id, pending)
            self._backlog.enter(request_id, pending, now)
            if pending.room is not None and pending.group.spills:  # a member that takes overflow may have a place
                self._backlog.fill(pending.room, now)
            return
        self._try_another(request_id, pending, now)

    def peer_lost(
        self, peer: Peer, now: float, unsent: Container[int] = (), *, is_broken: bool = False, is_silent: bool = False
    ) -> None:
        """Retry or fail the requests at a lost peer, which may have executed them. Update the membership views first.

        Args:
            unsent: Ids of requests not yet sent to the peer; these requests are unaffected.
            is_broken: Whether the connection broke, so the peer may live and keep keyed requests waiting.
            is_silent: Whether only silence is known, so no request counts as the cause.
        """
        for pending in self._pending.values():
            if pending.also and (member := pending.drop_also(peer)):
                self._losses.count(pending, member, now, is_counted=not is_silent)
            elif pending.stopped and peer.id in pending.stopped and not is_silent:
                pending.add_loss(peer.id)
        for request_id, pending in self._sent_to(peer, unsent):
            gone = is_broken and pending.is_member_gone  # others know: the view may change before the link breaks
            stays = is_broken and not gone and bool(pending.anchor)
            self._lose(request_id, pending, now, stays=stays, is_uncounted=is_silent and not gone)
        self.out += self._losses.messages_to_send()

    def _lose(self, request_id: int, pending: Pending, now: float, *, stays: bool = False, is_uncounted: bool = False) -> None:
        """Retry or fail a request whose member was lost; with ``stays`` the member may live and is asked again.

        With ``is_uncounted`` no member is known to be gone: the member is silent, or the ring or a gateway lost the request.
        """
        assert pending.member is not None
        if pending.offer is not None and pending.lost is not pending.member:  # nothing is executed before the offer is taken
            self._try_another(request_id, pending, now, stays=stays)
            return
        self._losses.count(pending, pending.member, now, is_counted=not (stays or is_uncounted))
        if pending.outlives_member or pending.also:
            self._try_another(request_id, pending, now, stays=stays)
        else:
            self.finish(request_id, pending, outcomes.of_loss(pending))

    def _give_to_receiver(self, request_id: int, pending: Pending, now: float) -> None:
        """Send a request that its member has given back to a member with fewer requests."""
        self.counts.recalled += 1
        pending.attempts -= 1
        self._take_from_member(request_id, pending)
        pending.tried = None  # members that were full have answered since
        member = self._recalls.take_receiver(pending)
        if member is None:
            self.dispatch(request_id, pending, now)
        else:
            self.send(request_id, pending, member, now)

    def _use_reservation(self, request_id: int, pending: Pending, now: float) -> None:
        """Send an exclusive request to the member with the reserved place."""
        assert pending.member is not None
        pending.offer, pending.kind, pending.sent_at = None, packets.REQUEST_ONCE, now
        time_left, peer = packets.encode_time_left(pending.deadline - now), pending.member.peer
        self.out.append(PeerMessage(pending.group, peer, pending.kind, request_id, time_left, pending.payload, pending.headers))

    def peer_released(self, peer: Peer, now: float, unsent: Container[int] = ()) -> None:
        """Send requests again after a peer closed its link as idle: unanswered requests were surely not executed."""
        for pending in self._pending.values():
            if pending.also:
                pending.drop_also(peer)
        for request_id, pending in self._sent_to(peer, unsent):
            if not pending.is_routed:
                self.give_back(request_id, peer, now, is_tried=False)

    def give_back(self, request_id: int, peer: Peer, now: float, *, is_tried: bool) -> None:
        """Choose a new member for a request that surely was not executed; harmless if the request has ended.

        Args:
            peer: The previous member.
            is_tried: Whether not to try this member again.
        """
        pending = self._pending.get(request_id)
        if pending is None or pending.member is None:
            return
        if pending.member.peer is not peer:
            pending.drop_also(peer)
        elif is_tried:
            pending.refused += 1
            if pending.lost is pending.member:  # sent before, over a link that broke
                self._lose(request_id, pending, now)
                self.out += self._losses.messages_to_send()
            else:
                self._try_another(request_id, pending, now)
        else:
            pending.attempts -= 1
            self._take_from_member(request_id, pending)
            self._choose_anew(request_id, pending, now)

    def give_to_linked(self, request_id: int, now: float) -> bool:
        """Give an unsent request to another member with a link; return whether there is one."""
        pending = self._pending[request_id]
        assert pending.member is not None
        if pending.anchor or pending.also or not (others := candidates.linked(pending, pending.member)):
            return False
        pending.attempts -= 1
        self._take_from_member(request_id, pending)
        self.send(request_id, pending, candidates.choose(pending, others, self._rng)[0], now)
        return True

    def routed(self, request_id: int, now: float) -> None:
        """Schedule the repetition of an idempotent request that went through the ring, which reports no losses."""
        pending = self._pending.get(request_id)
        if pending is not None:
            pending.is_routed = True
            if pending.outlives_member or pending.offer is not None:
                self._backlog.set_time(request_id, now + ROUTED_RETRY_S)

    def view_changed(self, now: float) -> None:
        """Try waiting requests again after new members or a drained link."""
        self._backlog.view_changed(now)

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines and due retries; harmless if early."""
        for expired in self._deadlines.expired(now):
            for request_id in (expired,) if isinstance(expired, int) else expired.ids:
                pending = self._pending.get(request_id)
                if pending is not None:
                    self._cancel_at_member(request_id, pending)
                    self.finish(request_id, pending, outcomes.of_timeout(pending, self._count_nodes()))
        for request_id in self._backlog.times_expired(now):
            pending = self._pending[request_id]
            if pending.member is not None:  # it went through the ring
                self._lose(request_id, pending, now, is_uncounted=True)
            else:
                self.dispatch(request_id, pending, now)
        for request_id, pending in self._attempts.due(self._pending, now):
            self._end_attempt(request_id, pending, now)
        if self._rooms.requests:
            self._backlog.handle_timeout(now)
        if self._hedges.times:
            self._hedges.handle_timeout(now)
        if self._reviews:
            self._recalls.handle_timeout(now)

    # -- choice of a member

    def dispatch(self, request_id: int, pending: Pending, now: float) -> None:
        """Choose a member for a request and send it, or let it wait."""
        if pending.is_parked:
            self._backlog.leave(request_id, pending)
        group, placement = pending.group, pending.placement
        levels = group.levels if placement is None else group.placed_levels(placement)
        if not levels:
            self.handle_no_members(request_id, pending, now, known=group.members is not None)
            return
        if pending.anchor:
            self._dispatch_anchored(request_id, pending, now)
            return
        member, unready = choose_near(levels, self._rng)
        peer = member.peer
        is_congested = peer.is_full or (peer.link is not None and peer.link.congested)  # inline: the path is hot
        if pending.tried or is_congested or (group.spills and candidates.has_full(group, now)):
            untried = candidates.untried(pending, now)
            uncongested = [other for other in untried if other.peer.has_room_for(len(pending.payload))]
            if not uncongested:
                self._handle_none_ready(request_id, pending, congested=bool(untried), now=now)
                return
            member, unready = choose_near(group.order(uncongested, placement), self._rng)
        if unready is not None:
            self.wanted.append(unready.peer)
        self.send(request_id, pending, member, now)

    def _dispatch_anchored(self, request_id: int, pending: Pending, now: float) -> None:
        """Give a keyed request to the member chosen by the key, or let the request wait for the member."""
        news_by = candidates.news_by(pending.group, pending.retry, is_exclusive=pending.reservation is not None)
        if news_by > now:
            return self._backlog.pause(request_id, pending, news_by)
        member = candidates.keyed(pending, now, self._rng)
        if member is None or not member.peer.has_room_for(len(pending.payload)):
            self._handle_none_ready(request_id, pending, congested=member is not None, now=now)
        else:
            self.send(request_id, pending, member, now)

    def send(self, request_id: int, pending: Pending, member: KnownMember, now: float) -> None:
        """Send a request to a member."""
        if pending.attempts:
            self.counts.retries += 1
            pending.group.counts.retries += 1
        pending.attempts += 1
        pending.member = member
        pending.sent_at = now
        member.in_flight += 1
        if not (member.in_flight % REVIEWED_IN_FLIGHT or pending.anchor or pending.group in self._reviews):
            self._recalls.begin_reviews(pending.group, now)
        member.peer.awaited += 1
        time_left = packets.encode_time_left(pending.deadline - now)
        payload = pending.payload if pending.offer is None else pending.offer.make(member.peer, request_id)
        self.out.append(PeerMessage(pending.group, member.peer, pending.kind, request_id, time_left, payload, pending.headers))
        if pending.retry is not None and pending.retry.attempt_timeout is not None:
            self._attempts.begin(request_id, pending, now)
            self.has_new_deadline = True
        if pending.kind == packets.REQUEST_ONCE and (len((group := pending.group).lowest) > 1 or group.spills):
            self._hedges.schedule(now + pending.hedge_s(), request_id, request_id + 1)

    def _take_failure(self, request_id: int, pending: Pending, failure: RemoteError | MemberLost, now: float) -> None:
        """Handle a handler's failure: end the request, wait for its earlier members, or pause and try again."""
        if isinstance(failure, MemberLost):  # reported by a stand-in
            self.finish(request_id, pending, failure)
            return
        pending.failure = failure
        pending.failures += 1
        retry = pending.retry
        if retry is None or pending.failures >= retry.failures_max or (pending.is_spent and not pending.also):
            self._fail(request_id, pending, failure)
            return
        if pending.also:
            self._try_another(request_id, pending, now)
            return
        pause_s = retry.backoff_s(pending.failures, self._rng)
        if now + pause_s >= pending.deadline:
            self._fail(request_id, pending, failure)
            return
        self._take_from_member(request_id, pending, is_tried=True)
        if not candidates.untried(pending, now):
            pending.tried = None  # the same members again
        self._backlog.pause(request_id, pending, now + pause_s)

    def handle_no_members(self, request_id: int, pending: Pending, now: float, *, known: bool) -> None:
        """Let a request wait for a member, or end it once it has waited long enough.

        Args:
            known: Whether the membership view is known, and empty.
        """
        if known and not pending.members_by:
            pending.members_by = now + pending.members_wait_s
        if known and now >= pending.members_by:
            if pending.failure is not None:
                self._fail(request_id, pending, pending.failure)
            else:
                self.finish(request_id, pending, outcomes.of_lost_and_nobody(pending, self._count_nodes()))
            return
        self._backlog.park(request_id, pending)
        if known and pending.members_by < pending.deadline:
            self._backlog.pause(request_id, pending, pending.members_by)

    def _handle_none_ready(self, request_id: int, pending: Pending, *, congested: bool, now: float) -> None:
        is_full = pending.rejected == packets.Rejection.OVERLOADED
        if congested:
            self._backlog.park(request_id, pending)
        elif is_full and pending.waits and pending.failure is None:
            self._backlog.enter(request_id, pending, now)
        elif pending.failure is not None or (pending.retry is not None and not is_full):
            assert pending.tried is not None
            wait_s = pause_s(pending.attempts, len(pending.tried))
            pending.tried = None
            self._backlog.pause(request_id, pending, now + wait_s)
        else:
            self.finish(request_id, pending, outcomes.of_no_taker(pending, self._count_nodes()))

    def _end_attempt(self, request_id: int, pending: Pending, now: float) -> None:
        """Cancel a timed-out attempt at its members and try another member."""
        self.out += stop(request_id, pending, now)
        if not pending.may_lose(1):
            self.finish(request_id, pending, outcomes.of_loss(pending))
        elif pending.is_spent:
            self.finish(request_id, pending, outcomes.of_attempts(pending, now))
        else:
            pending.lost = pending.member
            self._try_another(request_id, pending, now)

    def _try_another(self, request_id: int, pending: Pending, now: float, *, stays: bool = False) -> None:
        self._take_from_member(request_id, pending, is_tried=not stays)
        self._choose_anew(request_id, pending, now)

    def _take_from_member(self, request_id: int, pending: Pending, *, is_tried: bool = False) -> None:
        if pending.may_have_place:
            self._cancel_at_member(request_id, pending)
        pending.forget_member(is_tried=is_tried)
        if pending.attempt_by:
            self._attempts.forget(request_id, pending)
        pending.members_by = 0.0
        if pending.is_routed:
            pending.is_routed = False
            self._backlog.cancel_time(request_id)

    def _sent_to(self, peer: Peer, unsent: Container[int]) -> list[tuple[int, Pending]]:
        """Return the requests (id, state) with a peer as their current member, except requests not sent yet."""
        leaving = {message.id for message in self.out if message.peer is peer and message.kind != packets.CANCEL}
        return [
            (id_, pending)
            for id_, pending in self._pending.items()
            if pending.member is not None and pending.member.peer is peer and id_ not in leaving and id_ not in unsent
        ]

    def _choose_anew(self, request_id: int, pending: Pending, now: float) -> None:
        """Return a hedged request to its earlier members and soon ask one more; give any other request to a new member."""
        if pending.also:
            pending.fall_back()
            self._attempts.begin(request_id, pending, now)
            self._hedges.schedule(now, request_id, request_id + 1)
        else:
            self.dispatch(request_id, pending, now)

    # -- the end of a request

    def _take(self, peer: Peer, request_id: int) -> Pending | None:
        """Take the request that a peer answers; None after the end, or if the peer does not have it."""
        pending = self._pending.get(request_id)
        if pending is None or not pending.is_held_by(peer):
            self.counts.late += 1
            return None
        self._forget(request_id, pending)
        return pending

    def finish(self, request_id: int, pending: Pending, error: IrisError) -> None:
        """End a request with an error."""
        self._forget(request_id, pending)
        counts = pending.group.counts
        count_in(counts.unopened if pending.kind == packets.TUNNEL_OPEN else counts.errors, type(error).__name__)
        self.outcomes.append((pending.token, error))

    def _fail(self, request_id: int, pending: Pending, failure: RemoteError) -> None:
        self.counts.failed += 1
        self.finish(request_id, pending, failure)

    def _forget(self, request_id: int, pending: Pending) -> None:
        del self._pending[request_id]
        pending.forget_deadline(request_id, self._deadlines)
        for other in pending.release():
            self.out.append(PeerMessage(pending.group, other.peer, packets.CANCEL, request_id))
        if pending.attempt_by:
            self._attempts.forget(request_id, pending)
        if pending.is_routed:
            self._backlog.cancel_time(request_id)
        if pending.is_parked:
            self._backlog.leave(request_id, pending)
        if pending.may_have_place:
            self._cancel_at_member(request_id, pending)

    def _cancel_at_member(self, request_id: int, pending: Pending) -> None:
        if pending.member is not None:
            self.out.append(PeerMessage(pending.group, pending.member.peer, packets.CANCEL, request_id))

    # -- out

    def messages_to_send(self) -> list[PeerMessage]:
        """Take the messages to send, in order."""
        out, self.out = self.out, []
        return out

    def outcomes_received(self) -> list[tuple[object, bytes | IrisError]]:
        """Take the outcomes: (token, reply or error)."""
        ended, self.outcomes = self.outcomes, []
        return ended

    def peers_wanted(self) -> list[Peer]:
        """Take the peers to dial: members passed over for lack of a link."""
        wanted, self.wanted = self.wanted, []
        return wanted

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        hedges = self._hedges.deadline() if self._hedges.times else None
        recalls = self._recalls.deadline() if self._reviews else None
        times = (self._deadlines.deadline(), self._backlog.deadline(), self._attempts.deadline(), hedges, recalls)
        earliest = min((time for time in times if time is not None), default=None)
        self.has_new_deadline = False
        self.earliest = math.inf if earliest is None else earliest
        return earliest

    def rekey(self, find: Callable[[str], Group | None], now: float) -> None:
        """Continue requests of retired key generations in the group of their cluster's primary generation."""
        for request_id, pending in self._pending.items():
            if pending.group.is_left and pending.offer is None:
                if pending.is_parked:
                    self._backlog.leave(request_id, pending)
                    self._backlog.park(request_id, pending)
                pending.group, pending.tried = find(pending.group.name) or pending.group, None
        self.view_changed(now)

    def find(self, request_id: int) -> Pending | None:
        """Return a pending request, or None after the end."""
        return self._pending.get(request_id)

    def groups_pending(self) -> set[Group]:
        """Return the groups with a pending request."""
        return {pending.group for pending in self._pending.values()}
