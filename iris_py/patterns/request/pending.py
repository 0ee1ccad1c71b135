"""One request that is under way, as its caller keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.errors import RemoteError
from iris_py.patterns.request.retry import Retry
from iris_py.patterns.request.rooms import Line, Room, RoomKey
from iris_py.patterns.tunnel.offer import Offer
from iris_py.peers.group import Group
from iris_py.peers.member import Member, Placement
from iris_py.wire.headers import Headers

if TYPE_CHECKING:
    from iris_overlay.timers import DeadlineTable
    from iris_py.peers.peer import Peer

#: Nobody waits for longer than ten years, and event loops do not take a timer at the end of time.
TIMEOUT_S_MAX = 10 * 365 * 86400.0


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


class Pending(msgspec.Struct, eq=False):
    """One request that has no outcome yet.

    Attributes:
        token: What its outcome comes with.
        group: Whom it asks.
        kind: Of the message.
        payload: Of the message.
        timeout_s: How long its caller waits, from the beginning.
        deadline: Until when.
        idempotent: Whether it may be given to another member though one may have executed it.
        placement: Which zones it prefers and requires; None for the usual.
        headers: What travels beside the payload.
        waits: Whether it waits for a place where every member is full; otherwise that ends it.
        retries_failed: Whether another member is asked when a handler has failed it.
        anchor: Chooses the member; empty: the balancer does.
        together: Those with which it shares its deadline; None if it has its own.
        offer: It asks for a tunnel, with this.
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
        retry: How it may be repeated; None for what ``idempotent`` and ``retries_failed`` say.
        refused: How many of the attempts surely did not execute it.
        attempt_by: Until when those who have it may take; 0.0 for as long as the request may.
    """

    token: object
    group: Group
    kind: int
    payload: bytes
    timeout_s: float
    deadline: float
    idempotent: bool
    placement: Placement | None
    headers: Headers
    waits: bool = False
    retries_failed: bool = False
    anchor: bytes = b""
    together: Together | None = None
    offer: Offer | None = None
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
    retry: Retry | None = None
    refused: int = 0
    attempt_by: float = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether as many members have had it as may execute it."""
        retry = self.retry
        return retry is not None and retry.attempts is not None and self.attempts - self.refused >= retry.attempts

    @property
    def outlives_member(self) -> bool:
        """Whether it is given to another member when its member is lost, though that may have executed it."""
        return self.idempotent if self.retry is None else "lost" in self.retry.on and not self.is_spent

    @property
    def waits_for_members(self) -> bool:
        """Whether it waits for a member where there is none."""
        return self.idempotent if self.retry is None else "no_members" in self.retry.on

    def hedge_s(self) -> float:
        """Return how long a member is waited for alone, in seconds."""
        if self.retry is None:
            return self.group.hedging.delay_s(self.timeout_s)
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

    def forget_member(self) -> None:
        """Take the request from its member."""
        assert self.member is not None
        self.member.in_flight -= 1
        self.member.peer.awaited -= 1
        self.member = None
        self.probed_at = 0.0  # the next one has all the time for a sign

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


def room_key_of(pending: Pending) -> RoomKey:
    """Return with whom a request waits."""
    if pending.offer is not None:
        return pending.group, pending.placement, Line.TUNNELS
    return pending.group, pending.placement, Line.KEYED if pending.anchor and pending.group.spills else Line.USUAL
