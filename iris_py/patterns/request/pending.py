"""One request that is under way, as its caller keeps it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.errors import RemoteError
from iris_py.patterns.request.backlog import Line, Room, RoomKey
from iris_py.patterns.request.retry import Retry
from iris_py.patterns.tunnel.end import Offer
from iris_py.peers.group import Group
from iris_py.peers.member import Member, Placement
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from iris_overlay.timers import DeadlineTable
    from iris_py.peers.peer import Peer

#: Nobody waits for longer than ten years, and event loops do not take a timer at the end of time.
TIMEOUT_S_MAX = 10 * 365 * 86400.0
#: Lost members that are counted for one request. Too small: policies that risk more members are not held to their number; too
#: large: a member that names ever new ones makes the request large.
LOSSES_MAX = 64


class Together(msgspec.Struct, eq=False):
    """Requests that were begun at once, and share a deadline.

    Attributes:
        ids: Theirs.
        left: How many have no outcome yet.
    """

    ids: range
    left: int


class Ticket(msgspec.Struct, eq=False):
    """The token of a question that is asked with many others (:mod:`iris_py.api.bulk`).

    Attributes:
        asker: Who is told of the outcome.
        question: What was asked.
        member: The id of the member that replied, once it has.
    """

    asker: Any
    question: Any
    member: bytes = b""


class Reservation:
    """The place that an exclusive request asks for before it is sent: in the role of the offer of a tunnel.

    Args:
        identity: That of the request.
    """

    __slots__ = ("_identity",)

    def __init__(self, identity: bytes) -> None:
        self._identity = identity

    def make(self, _peer: Peer, _request_id: int) -> bytes:
        """Return the payload of a RESERVE."""
        return self._identity


class Pending(msgspec.Struct, eq=False):
    """One request that has no outcome yet.

    Attributes:
        token: What its outcome comes with.
        group: Whom it asks.
        kind: Of the message.
        payload: Of the message.
        timeout_s: How long its caller waits, from the beginning.
        deadline: Until when.
        retry: How it may be repeated though a member may have executed it; None if it may not.
        placement: Which zones it prefers and requires; None for the usual.
        headers: What travels beside the payload.
        waits: Whether it waits for a place where every member is full; otherwise that ends it.
        anchor: Chooses the member; empty: the balancer does.
        members_wait_s: How long it waits for a member while nobody serves the cluster; infinite for as long as it may take.
        together: Those with which it shares its deadline; None if it has its own.
        offer: The offer of a tunnel, or the reservation of an exclusive request, to be accepted before anything begins there.
        reservation: That of an exclusive request, which the offer becomes again for each member.
        member: Who has it.
        sent_at: Since when.
        attempts: How often it was given to a member.
        tried: Who did not take it since the last pause.
        tried_count: The most of these at once.
        is_parked: Whether it waits for a member or for a time: only then it is among those.
        is_routed: Whether it went through the ring: it may have been executed although no link says so.
        lost: Who went away with the request, so that it may have been executed.
        rejected: The last :class:`~iris_py.wire.packets.Rejection`, 0 for none.
        also: Who has it besides ``member``, since when, in that order: they have not answered. None if it has no member.
        probed_at: When its member was asked for a sign of life; 0.0 if it was not since it gave the last one.
        sign_by: Until when it may take for that.
        failure: What the last handler that failed it said, while another member is asked.
        room: Where it waits for a place; None if it does not.
        refused: How many of the attempts surely did not execute it.
        failures: How many handlers have failed it.
        losses: The ids of the members that went away while they had it, each once.
        stopped: The ids of the members that were told to stop, for they took too long: they may still execute it.
        attempt_by: Until when those who have it may take; 0.0 for as long as the request may.
        members_by: Until when it waits so; 0.0 while it does not.
    """

    token: object
    group: Group
    kind: int
    payload: bytes
    timeout_s: float
    deadline: float
    retry: Retry | None
    placement: Placement | None
    headers: Headers
    waits: bool = False
    anchor: bytes = b""
    members_wait_s: float = 0.0
    together: Together | None = None
    offer: Offer | Reservation | None = None
    reservation: Reservation | None = None
    member: Member | None = None
    sent_at: float = 0.0
    attempts: int = 0
    tried: list[Member] | None = None
    tried_count: int = 0
    is_parked: bool = False
    is_routed: bool = False
    lost: Member | None = None
    rejected: int = 0
    also: list[tuple[Member, float]] | None = None
    probed_at: float = 0.0
    sign_by: float = 0.0
    failure: RemoteError | None = None
    room: Room | None = None
    refused: int = 0
    failures: int = 0
    losses: tuple[bytes, ...] = ()
    stopped: tuple[bytes, ...] = ()
    attempt_by: float = 0.0
    members_by: float = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether as many members have had it as may execute it."""
        retry = self.retry
        return retry is not None and retry.attempts is not None and self.attempts - self.refused >= retry.attempts

    @property
    def outlives_member(self) -> bool:
        """Whether it is given to another member when its member is lost, though that may have executed it."""
        return self.retry is not None and "lost" in self.retry.on and not self.is_spent and self.may_lose(1)

    @property
    def may_have_place(self) -> bool:
        """Whether its member may keep a place for it, which a CANCEL gives back."""
        return self.reservation is not None and (self.offer is not None or self.kind == packets.REQUEST_ONCE)

    def note_place_refused(self) -> None:
        """Note that the member keeps no place for the request. It would take a CANCEL for one of the next RESERVE."""
        if self.kind == packets.RESERVE:
            self.offer = None

    def may_lose(self, count: int) -> bool:
        """Tell whether so many members may have the request now: as many as it may lose besides those that it has lost."""
        assert self.retry is not None
        limit = self.retry.members_lost_max
        return limit is None or len(self.losses) + count <= limit

    def note_loss(self, member: Member, *, is_counted: bool = True) -> None:
        """Note that a member is lost with the request, so that it may have been executed.

        Args:
            member: The member.
            is_counted: Whether the request may have ended its process.
        """
        self.lost = member
        if is_counted:
            self.add_loss(member.peer.id)

    def add_loss(self, member: bytes) -> bool:
        """Count a member, by its id, among those that went away with the request; returns whether it was not counted yet."""
        is_new = member not in self.losses and len(self.losses) < LOSSES_MAX
        if is_new:
            self.losses += (member,)
        return is_new

    @property
    def is_member_gone(self) -> bool:
        """Whether its member is known to be dead, or is in the view of the cluster no more."""
        member, members = self.member, self.group.members
        assert member is not None
        return member.peer.is_dead or (members is not None and all(other.peer is not member.peer for other in members))

    @property
    def loss_key(self) -> bytes:
        """The request as others know it that remember its losses; empty if it has no key."""
        return self.group.subject + self.anchor if self.anchor and self.retry is not None else b""

    def hedge_s(self) -> float:
        """Return how long a member is waited for alone, in seconds."""
        if self.retry is None:
            return math.inf
        return self.retry.delay_s(self.group.hedging, self.timeout_s)

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for a place before every member has rejected it: nobody has it, nobody has failed it."""
        return self.waits and not self.also and self.failure is None and self.offer is None

    def drop_also(self, peer: Peer) -> Member | None:
        """Forget that a peer has the request which the member has, too; returns who that was."""
        for entry in self.also or ():
            member = entry[0]
            if member.peer is peer:
                assert self.also is not None
                self.also = [other for other in self.also if other is not entry] or None
                member.in_flight -= 1
                member.peer.awaited -= 1
                return member
        return None

    def refuse_also(self, peer: Peer, *, is_lost: bool) -> bool:
        """Forget that a peer has the request, which was asked before the member; returns whether it was.

        Args:
            peer: The peer, which says that it has not executed it.
            is_lost: Whether it says that another one, which it gave it to, was lost and may have.
        """
        other = self.drop_also(peer)
        if other is None:
            return False
        if is_lost:
            self.lost = other
        else:
            self.refused += 1
        return True

    def swap(self, peer: Peer) -> bool:
        """Make a peer that was asked before the member, to take its answer; returns whether it was asked."""
        for entry in self.also or ():
            if entry[0].peer is peer:
                assert self.also is not None
                assert self.member is not None
                others = [other for other in self.also if other is not entry]
                self.also = [*others, (self.member, self.sent_at)]
                self.member, self.sent_at = entry
                return True
        return False

    def is_held_by(self, peer: Peer) -> bool:
        """Tell whether a peer has the request, and make it the member if it was asked before that one."""
        return self.member is not None and (self.member.peer is peer or self.swap(peer))

    def fall_back(self) -> None:
        """Take the member that was asked before: the last one does not answer."""
        assert self.also is not None
        *also, (self.member, self.sent_at) = self.also
        self.also = also or None

    def look_for_sign(self, later: float, now: float) -> float:
        """See whether its member gives a sign of life, for which it is asked the first time; if its link broke, over a new one.

        A request is looked at once for each time that it was sent, and once more for those that it was begun with. So the
        member has all of its time from the question on, whichever of these looks comes next.

        Args:
            later: When to look again if it has given a sign.
            now: The time.

        Returns:
            When to look again; 0.0 if it has given none in its time.
        """
        assert self.member is not None
        link = self.member.peer.link
        if not self.probed_at:
            self.probed_at, self.sign_by = now, now + self.group.hedging.sign_s(self.timeout_s)
        elif link is not None and link.is_open and link.heard_at >= self.probed_at:
            self.probed_at = 0.0
            return later
        elif now >= self.sign_by:
            return 0.0
        return self.sign_by

    def forget_member(self, *, is_tried: bool) -> None:
        """Take the request from its member; one that is tried is asked again after the next pause at the earliest."""
        member = self.member
        assert member is not None
        member.in_flight -= 1
        member.peer.awaited -= 1
        self.member = None
        if self.reservation is not None:
            self.offer, self.kind = self.reservation, packets.RESERVE
        self.probed_at = 0.0  # the next one has all the time for a sign
        if is_tried:
            self.tried = [*(self.tried or ()), member]
            self.tried_count = max(self.tried_count, len(self.tried))

    def forget_deadline(self, request_id: int, deadlines: DeadlineTable[int | Together]) -> None:
        """Forget its deadline; of one that it shares, with the last of those that share it.

        Args:
            request_id: What it is called.
            deadlines: Where that is.
        """
        if self.together is None:
            deadlines.cancel(request_id)
            return
        self.together.left -= 1
        if not self.together.left:
            deadlines.cancel(self.together)

    def release(self) -> list[Member]:
        """Count the request no more at those who have it, for it has ended; returns those that have it besides the member."""
        others = [member for member, _since in self.also or ()]
        for member in others if self.member is None else (self.member, *others):
            member.in_flight -= 1
            member.peer.awaited -= 1
        return others


def new_request(
    group: Group,
    payload: bytes,
    timeout_s: float,
    retry: Retry | None,
    token: object,
    now: float,
    identity: bytes = b"",
    placement: Placement | None = None,
    headers: Headers = NO_HEADERS,
    *,
    is_anchored: bool = False,
    waits: bool = False,
    members_wait_s: float | None = None,
    is_exclusive: bool = False,
) -> Pending:
    """Return a request that is to be begun.

    Args:
        group: Whom to ask.
        payload: The request.
        timeout_s: How long to wait for an answer.
        retry: How it may be repeated though a member may have executed it; None if it may not.
        token: What the outcome comes with.
        now: The time.
        identity: By which a member knows a request that it has executed; empty for none.
        placement: Which zones it prefers and requires; None for the nearest.
        headers: What travels beside the payload.
        is_anchored: Whether the identity also chooses the member, for others may ask with the same one.
        waits: Whether it waits for a place, until its time is out, if every member is full.
        members_wait_s: How long it waits for a member while nobody serves the cluster; None for what ``retry`` says.
        is_exclusive: Whether its member executes no other exclusive request meanwhile; only with an identity.
    """
    kind = packets.REQUEST
    if identity:
        kind, payload = packets.REQUEST_ONCE, identity + payload
    deadline = now + min(timeout_s, TIMEOUT_S_MAX)
    anchor = identity if is_anchored else b""
    pending = Pending(token, group, kind, payload, timeout_s, deadline, retry, placement, headers, waits, anchor)
    if members_wait_s is not None:
        pending.members_wait_s = members_wait_s
    elif retry is not None and "no_members" in retry.on:
        pending.members_wait_s = math.inf
    if is_exclusive and identity:
        pending.reservation = pending.offer = Reservation(identity)
        pending.kind = packets.RESERVE
    return pending


def new_opening(
    group: Group,
    offer: Offer,
    timeout_s: float,
    token: object,
    now: float,
    placement: Placement | None = None,
    anchor: bytes = b"",
    *,
    waits: bool = False,
) -> Pending:
    """Return the opening of a tunnel that is to be begun; the arguments are those of :func:`new_request`."""
    deadline = now + min(timeout_s, TIMEOUT_S_MAX)
    how = (timeout_s, deadline, None, placement, offer.headers, waits, anchor)
    return Pending(token, group, packets.TUNNEL_OPEN, b"", *how, offer=offer)


def room_key_of(pending: Pending) -> RoomKey:
    """Return with whom a request waits."""
    if pending.kind == packets.TUNNEL_OPEN:
        return pending.group, pending.placement, Line.TUNNELS
    return pending.group, pending.placement, Line.KEYED if pending.anchor and pending.group.spills else Line.USUAL
