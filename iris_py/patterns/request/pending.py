"""A request as its caller wants it, and the caller's state of the request while it is in progress."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.errors import RemoteError
from iris_py.patterns.request.request_queues import Room
from iris_py.patterns.request.retry import Retry
from iris_py.peers.group import Group
from iris_py.peers.member import KnownMember, Placement
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from iris_overlay.timers import DeadlineTable
    from iris_py.peers.peer import Peer

#: Longest timeout, ten years: event loops reject timers at the end of time.
TIMEOUT_S_MAX = 10 * 365 * 86400.0
#: Lost members counted for one request. Too small: policies that risk more members are not enforced; too large: a member that
#: invents lost members makes the request large.
LOSSES_MAX = 64


class RequestSpec(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request as its caller wants it, apart from the addressed cluster.

    Attributes:
        payload: The payload.
        timeout_s: Time to wait for an answer, from the start.
        retry: The policy for repeating a request that may have been executed; None forbids it.
        identity: The identity by which members deduplicate the request; empty for none.
        is_anchored: Whether the identity also chooses the member, because other callers may use the same key.
        placement: The preferred and required zones; None for the nearest.
        headers: The named values beside the payload.
        waits: Whether the request waits for a place, until the timeout, while every member is full; otherwise it fails.
        members_wait_s: Time to wait for a member while the cluster has none; None for the default of ``retry``.
        is_exclusive: Whether the member executes no other exclusive request meanwhile; needs an identity.
    """

    payload: bytes
    timeout_s: float
    retry: Retry | None = None
    identity: bytes = b""
    is_anchored: bool = False
    placement: Placement | None = None
    headers: Headers = NO_HEADERS
    waits: bool = False
    members_wait_s: float | None = None
    is_exclusive: bool = False


class Together(msgspec.Struct, eq=False):
    """Requests started together, with a shared deadline.

    Attributes:
        ids: Their ids.
        left: Number of requests without an outcome.
    """

    ids: range
    left: int


class Ticket(msgspec.Struct, eq=False):
    """The token of a question asked as part of a batch (:mod:`iris_py.api.bulk_requester`).

    Attributes:
        asker: The receiver of the outcome.
        question: The question.
        member: The id of the replying member, after the reply.
    """

    asker: Any
    question: Any
    member: bytes = b""


class RequestOffer(ABC):
    """A message that a member must accept before the request itself: the offer of a tunnel, or a RESERVE.

    Attributes:
        headers: The named values of the message.
    """

    __slots__ = ()
    headers: Headers = NO_HEADERS

    @abstractmethod
    def make(self, peer: Peer, request_id: int) -> bytes:
        """Return the payload of the message to a member."""


class Reservation(RequestOffer):
    """The reservation of a place, sent before an exclusive request; it takes the role of a tunnel's offer.

    Args:
        identity: The identity of the request.
    """

    __slots__ = ("_identity",)

    def __init__(self, identity: bytes) -> None:
        self._identity = identity

    def make(self, peer: Peer, request_id: int) -> bytes:
        """Return the payload of a RESERVE."""
        return self._identity


class Pending(msgspec.Struct, eq=False):
    """A request or tunnel opening in progress, as its caller tracks it.

    Attributes:
        token: The owner's token for the outcome.
        group: The addressed cluster.
        kind: The kind of the message.
        payload: The payload of the message.
        timeout_s: The caller's timeout, from the start.
        deadline: The time of the timeout.
        retry: The policy for repeating a request that may have been executed; None forbids it.
        placement: The preferred and required zones; None for the default.
        headers: The named values beside the payload.
        waits: Whether the request waits for a place while every member is full; otherwise it fails.
        anchor: The identity that chooses the member; empty if the balancer does.
        members_wait_s: Time to wait for a member while the cluster has none; infinity for the whole timeout.
        together: The requests with the same deadline; None for a deadline of its own.
        offer: The offer of a tunnel, or the reservation of an exclusive request, which the member must accept first.
        reservation: The reservation of an exclusive request, offered anew to each member.
        member: The member that has the request.
        sent_at: Time at which the request was given to ``member``.
        attempts: Number of times the request was given to a member.
        tried: Members that rejected the request since the last pause.
        tried_count: The largest size of ``tried``.
        is_parked: Whether the request waits for a member, a place or a time.
        is_routed: Whether the request went through the ring, where no broken link reveals a loss.
        lost: The last member lost with the request, which may have executed it.
        rejected: The last :class:`~iris_py.wire.packets.Rejection`, 0 for none.
        also: For a hedged request, the earlier members and the times at which each got it, in order; None without a ``member``.
        probed_at: Time at which the member was asked for a sign of life; 0.0 if no answer is awaited.
        sign_by: The deadline of the sign of life.
        failure: The last handler's failure, while another member is tried.
        room: The queue in which the request waits for a place; None outside of queues.
        refused: Number of attempts surely without execution.
        failures: Number of handlers that failed on the request.
        losses: Ids of the members lost with the request, without duplicates.
        stopped: Ids of the members that took too long and were sent a CANCEL, but may still execute the request.
        attempt_by: The deadline of the attempt; 0.0 without one.
        members_by: The deadline of the wait for a member; 0.0 outside of this wait.
        recalled: The member, if it was asked to give the request back; it is asked once.
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
    offer: RequestOffer | None = None
    reservation: Reservation | None = None
    member: KnownMember | None = None
    sent_at: float = 0.0
    attempts: int = 0
    tried: list[KnownMember] | None = None
    tried_count: int = 0
    is_parked: bool = False
    is_routed: bool = False
    lost: KnownMember | None = None
    rejected: int = 0
    also: list[tuple[KnownMember, float]] | None = None
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
    recalled: KnownMember | None = None

    @property
    def is_spent(self) -> bool:
        """Whether the largest number of executions is reached."""
        retry = self.retry
        return retry is not None and retry.attempts is not None and self.attempts - self.refused >= retry.attempts

    @property
    def outlives_member(self) -> bool:
        """Whether another member gets the request when the current member is lost and may have executed it."""
        return self.retry is not None and "lost" in self.retry.on and not self.is_spent and self.may_lose(1)

    @property
    def may_have_place(self) -> bool:
        """Whether the member may hold a place for the request, which a CANCEL frees."""
        return self.reservation is not None and (self.offer is not None or self.kind == packets.REQUEST_ONCE)

    def note_place_refused(self) -> None:
        """Note that the member refused a place, so that no CANCEL is sent, which could cancel the next RESERVE."""
        if self.kind == packets.RESERVE:
            self.offer = None

    def may_lose(self, count: int) -> bool:
        """Tell whether ``count`` members may have the request at once, without exceeding the limit of lost members."""
        assert self.retry is not None
        limit = self.retry.members_lost_max
        return limit is None or len(self.losses) + count <= limit

    def note_loss(self, member: KnownMember, *, is_counted: bool = True) -> None:
        """Record a member lost with the request, which may have executed it.

        Args:
            is_counted: Whether the request may have killed the member.
        """
        self.lost = member
        if is_counted:
            self.add_loss(member.peer.id)

    def add_loss(self, member: bytes) -> bool:
        """Add a member's id to the losses; return whether it was new."""
        is_new = member not in self.losses and len(self.losses) < LOSSES_MAX
        if is_new:
            self.losses += (member,)
        return is_new

    @property
    def is_member_gone(self) -> bool:
        """Whether the request's member is dead or no longer in the cluster's membership view."""
        member, members = self.member, self.group.members
        assert member is not None
        return member.peer.is_dead or (members is not None and all(other.peer is not member.peer for other in members))

    @property
    def loss_key(self) -> bytes:
        """The request's key in the tables of losses; empty without a request key."""
        return self.group.subject + self.anchor if self.anchor and self.retry is not None else b""

    def hedge_s(self) -> float:
        """Return the time before the request is hedged, in seconds."""
        if self.retry is None:
            return math.inf
        return self.retry.delay_s(self.group.hedging, self.timeout_s)

    @property
    def may_be_recalled(self) -> bool:
        """Whether the caller may take the request back from its member, if it has not begun, for any other member."""
        return (
            self.waits
            and self.kind in packets.REQUESTS
            and not (self.anchor or self.also or self.is_routed)
            and self.reservation is None
            and (self.placement is None or not (self.placement.prefer or self.placement.require))
        )

    @property
    def may_wait(self) -> bool:
        """Whether the request may wait for a place before all members have rejected it: not failed, and at no member."""
        return self.waits and not self.also and self.failure is None and self.offer is None

    def drop_also(self, peer: Peer) -> KnownMember | None:
        """Remove a peer from the earlier members; return the member, or None."""
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
        """Remove a peer that rejected the request from the earlier members; return whether the peer was among them.

        Args:
            peer: The peer, which has not executed the request.
            is_lost: Whether the peer had forwarded the request to a lost node, which may have executed it.
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
        """Make an earlier member the current member, to accept an answer; return whether the peer had the request."""
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
        """Tell whether a peer has the request; an earlier member becomes the current one."""
        return self.member is not None and (self.member.peer is peer or self.swap(peer))

    def fall_back(self) -> None:
        """Return to the previous member after the current one failed."""
        assert self.also is not None
        *also, (self.member, self.sent_at) = self.also
        self.also = also or None

    def look_for_sign(self, later: float, now: float) -> float:
        """Check whether the member gave a sign of life; the first check starts the wait for the sign.

        A request is checked once per attempt, and once more together with other requests of the same start. The deadline of the
        sign does not depend on the number of checks.

        Args:
            later: Time of the next check after a sign.

        Returns:
            The time of the next check; 0.0 if the sign is overdue.
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
        """Remove the request from its member; a tried member is asked again after the next pause at the earliest."""
        member = self.member
        assert member is not None
        member.in_flight -= 1
        member.peer.awaited -= 1
        self.member = None
        if self.reservation is not None:
            self.offer, self.kind = self.reservation, packets.RESERVE
        self.probed_at = 0.0  # the next member gets the full time
        self.recalled = None
        if is_tried:
            self.tried = [*(self.tried or ()), member]
            self.tried_count = max(self.tried_count, len(self.tried))

    def forget_deadline(self, request_id: int, deadlines: DeadlineTable[int | Together]) -> None:
        """Cancel this request's deadline. A deadline shared by a batch is cancelled with the batch's last request."""
        if self.together is None:
            deadlines.cancel(request_id)
            return
        self.together.left -= 1
        if not self.together.left:
            deadlines.cancel(self.together)

    def release(self) -> list[KnownMember]:
        """Stop counting the ended request at its members; return the earlier members."""
        others = [member for member, _since in self.also or ()]
        for member in others if self.member is None else (self.member, *others):
            member.in_flight -= 1
            member.peer.awaited -= 1
        return others


def new_request(group: Group, spec: RequestSpec, token: object, now: float) -> Pending:
    """Return a new request to a cluster, to be started.

    Args:
        token: The owner's token for the outcome.
    """
    identity, retry, members_wait_s = spec.identity, spec.retry, spec.members_wait_s
    pending = Pending(
        token=token,
        group=group,
        kind=packets.REQUEST_ONCE if identity else packets.REQUEST,
        payload=identity + spec.payload,
        timeout_s=spec.timeout_s,
        deadline=now + min(spec.timeout_s, TIMEOUT_S_MAX),
        retry=retry,
        placement=spec.placement,
        headers=spec.headers,
        waits=spec.waits,
    )
    if members_wait_s is not None:
        pending.members_wait_s = members_wait_s
    elif retry is not None and "no_members" in retry.on:
        pending.members_wait_s = math.inf
    if identity:
        if spec.is_anchored:
            pending.anchor = identity
        if spec.is_exclusive:
            pending.reservation = pending.offer = Reservation(identity)
            pending.kind = packets.RESERVE
    return pending


def new_opening(
    group: Group,
    offer: RequestOffer,
    timeout_s: float,
    token: object,
    now: float,
    placement: Placement | None = None,
    anchor: bytes = b"",
    *,
    waits: bool = False,
) -> Pending:
    """Return a new tunnel opening, to be started.

    Args:
        offer: The offer that the member must accept.
        timeout_s: Time to wait for an answer.
        token: The owner's token for the outcome.
        placement: The preferred and required zones; None for the nearest.
        anchor: The identity that chooses the member; empty if the balancer does.
        waits: Whether the opening waits for a place while every member is full.
    """
    return Pending(
        token=token,
        group=group,
        kind=packets.TUNNEL_OPEN,
        payload=b"",
        timeout_s=timeout_s,
        deadline=now + min(timeout_s, TIMEOUT_S_MAX),
        retry=None,
        placement=placement,
        headers=offer.headers,
        waits=waits,
        anchor=anchor,
        offer=offer,
    )
