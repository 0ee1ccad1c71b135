"""The members that a request may be given to, where some were asked before or some stand in for others (docs/design.md 6.13).

A stand-in has the work done in another cloud, so it gets what the members of lower ranks cannot take, and nothing else. Those
that do not take overflow get a request while nobody of a lower rank is there; those that do, also when all of them are full.
Load, distance and zones count among members of one rank only.

A member that was full some milliseconds ago is not asked again while another one takes the overflow: under load each request
would otherwise be rejected by every member before it goes over. What is known of its places is what makes requests come back:
each answer frees one, and soon nothing is known any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iris_py.peers.balancer import by_rank, choose_near
from iris_py.peers.keyed import first_of, slot_of
from iris_py.wire.packets import Rejection

if TYPE_CHECKING:
    from iris_overlay.environment import Rng
    from iris_py.patterns.request.backlog import Room
    from iris_py.patterns.request.pending import Pending
    from iris_py.patterns.request.retry import Retry
    from iris_py.peers.group import Group
    from iris_py.peers.member import Member

#: How long what a full member has of our requests counts as all that it takes, where another one takes the overflow (seconds).
#: Too small: it is asked in vain for much that goes over; too large: work goes over though it has room again, for places that
#: others free are found after that time only.
FULL_S = 0.05
#: How long requests that may lose one member alone, and exclusive ones, wait after a member is gone (seconds). Meanwhile a
#: caller that has lost it with the same request tells the others. Too small: the copy of a request ends a second member; too
#: large: tasks of Spark stand still for as long after each member that is gone.
NEWS_S = 0.5


def has_full(group: Group, now: float) -> bool:
    """Tell whether a member of the lowest rank may be known to be full, where others take the overflow."""
    return any(member.full_until > now for member in group.lowest)


def note_rejection(pending: Pending, member: Member, reason: int, now: float) -> None:
    """Take in that a member, which still counts the request, has no place for it."""
    if reason not in (Rejection.OVERLOADED, Rejection.NOT_A_MEMBER):
        return
    member.limit = member.in_flight - 1
    if reason == Rejection.OVERLOADED and pending.group.spills and pending.offer is None:  # places for tunnels are others
        member.full_until = now + FULL_S


def untried(pending: Pending, now: float) -> list[Member]:
    """Return the members that a request may be given to now, of one rank, without those that did not take it."""
    group, tried = pending.group, pending.tried or ()
    left = [member for member in group.candidates(pending.placement) if member not in tried]
    if not group.higher:
        return left
    if free := _with_place(pending, left, now):
        return free
    is_absent, is_full = not left and _are_absent(pending), _are_full(pending)
    for rank in group.candidates_after(pending.placement):
        those = [member for member in rank if is_absent or (is_full and member.takes_overflow)]
        those = [member for member in those if member not in tried]
        if free := _with_place(pending, those, now):
            return free
        left = left or those
    return left  # all are full, as far as is known: they say so themselves


def count(pending: Pending) -> int:
    """Return how many members a request has to find full before it waits, or fails."""
    takers = sum(member.takes_overflow for rank in pending.group.candidates_after(pending.placement) for member in rank)
    return len(pending.group.candidates(pending.placement)) + (0 if pending.anchor else takers)


def news_by(group: Group, retry: Retry | None, *, is_exclusive: bool) -> float:
    """Return until when a request with a key waits for others to tell which requests have lost a member; in the past if not."""
    is_cautious = is_exclusive or (retry is not None and retry.members_lost_max == 1)
    return group.lost_at + NEWS_S if is_cautious else -math.inf


def keyed(pending: Pending, now: float, rng: Rng) -> Member | None:
    """Return the member that the key of a request chooses; None if all were tried."""
    if not pending.tried:
        return pending.group.keyed_member(pending.anchor, pending.placement)
    members = untried(pending, now)
    return choose(pending, members, rng)[0] if members else None


def choose(pending: Pending, members: list[Member], rng: Rng) -> tuple[Member, Member | None]:
    """Choose one of some members for a request: by its key, or by their load, see :func:`choose_near`."""
    levels = pending.group.order(members, pending.placement)
    return (first_of(levels[0], slot_of(pending.anchor)), None) if pending.anchor else choose_near(levels, rng)


def linked(pending: Pending, having: Member) -> list[Member]:
    """Return the members that a request may go to at once, in place of one to which there is no link yet."""
    tried = pending.tried or ()
    return [
        other
        for other in pending.group.candidates(pending.placement)
        if other is not having and other.is_ready and not other.peer.is_congested and other not in tried
    ]


def seconds(pending: Pending, member: Member) -> list[Member]:
    """Return the members that may be given a request, too, while the one that has it is silent. Nothing goes over for that."""
    group, size = pending.group, len(pending.payload)
    having = [member, *(each for each, _since in pending.also or ()), *(pending.tried or ())]
    beside = group.candidates(pending.placement)
    if member.rank and group.higher:
        beside = [*beside, *(each for rank in group.higher for each in rank if each.rank == member.rank)]
    others = [other for other in beside if other not in having and other.is_ready and other.peer.has_room_for(size)]
    return by_rank(others)[0] if others and group.higher else others


def having_place(room: Room, pending: Pending) -> list[Member]:
    """Return the members that take the first request in a line, as far as is known: those of the lowest rank with a place.

    Of these, those whose link has room: a link that is full for a moment is no reason to go over.
    """
    group, placement, _line = room.key
    having = _below_limit(group.candidates(placement))
    if not having and group.spills and not pending.anchor:
        for rank in group.candidates_after(placement):
            if having := _below_limit([member for member in rank if member.takes_overflow]):
                break
    size = len(pending.payload)
    return [member for member in having if member.peer.has_room_for(size)]


def _with_place(pending: Pending, members: list[Member], now: float) -> list[Member]:
    """Return those that are not known to be full. For a key load does not count, and of places for tunnels nothing is known."""
    if pending.anchor or pending.offer is not None:
        return members
    return [member for member in members if not member.is_known_full(now)]


def _are_absent(pending: Pending) -> bool:
    """Tell whether those that did not take a request are as good as gone: none of them is a member, or can be reached."""
    return pending.rejected in (0, Rejection.NOT_A_MEMBER) and pending.lost is None and pending.failure is None


def _are_full(pending: Pending) -> bool:
    """Tell whether those that did not take a request had no place for it. What chooses by a key stays with its rank."""
    if pending.anchor or pending.failure is not None or pending.rejected == Rejection.EXPIRED:
        return False
    return pending.rejected in (Rejection.OVERLOADED, Rejection.NO_TUNNELS) or pending.lost is None


def _below_limit(members: list[Member]) -> list[Member]:
    return [member for member in members if member.in_flight + 1 <= member.limit]
