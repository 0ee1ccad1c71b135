"""The members that a request may be given to, after earlier attempts or with stand-ins (docs/design.md 6.13).

A stand-in relays requests to another cloud, and so gets only requests beyond the capacity of lower ranks. Stand-ins without
overflow get requests while no member of a lower rank exists; stand-ins with overflow also while all of these are full. Load,
distance and zones count among members of the same rank only.

While a member takes overflow, a member that was full some milliseconds ago is not asked again: under load every member would
otherwise reject a request before the stand-in gets it. Answers of a full member free places and so bring requests back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from iris_py.peers.balancer import by_rank, choose_near
from iris_py.peers.keyed_members import first_of, slot_of
from iris_py.wire.packets import Rejection

if TYPE_CHECKING:
    from iris_overlay.environment import Rng
    from iris_py.patterns.request.pending import Pending
    from iris_py.patterns.request.request_queues import Room
    from iris_py.patterns.request.retry import Retry
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember

#: Time for which a full member's number of our requests counts as its limit, where another member takes overflow (seconds). Too
#: small: requests try it in vain before they overflow; too large: requests overflow although it has room again, because places
#: freed by other callers are found only after this time.
FULL_S = 0.05
#: Wait of exclusive requests, and of requests that may lose only one member, after a member is lost (seconds). Meanwhile a
#: caller that lost it with the same request tells the others. Too small: a copy of a request kills a second member; too large:
#: Spark tasks stop that long after each lost member.
NEWS_S = 0.5


def has_full(group: Group, now: float) -> bool:
    """Tell whether a member of the lowest rank was full recently, in a cluster with overflow."""
    return any(member.full_until > now for member in group.lowest)


def note_rejection(pending: Pending, member: KnownMember, reason: int, now: float) -> None:
    """Lower a member's limit after a rejection for lack of a place, while ``in_flight`` still counts the request."""
    if reason not in (Rejection.OVERLOADED, Rejection.NOT_A_MEMBER):
        return
    member.limit = member.in_flight - 1
    if reason == Rejection.OVERLOADED and pending.group.spills and pending.offer is None:  # tunnels have places of their own
        member.full_until = now + FULL_S


def untried(pending: Pending, now: float) -> list[KnownMember]:
    """Return the members of the first usable rank (members, then stand-ins) that have not rejected the request."""
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
    return left  # all known to be full, and then they reject it themselves


def count(pending: Pending) -> int:
    """Return the number of members that must have rejected a request as full before it waits or fails."""
    takers = sum(member.takes_overflow for rank in pending.group.candidates_after(pending.placement) for member in rank)
    return len(pending.group.candidates(pending.placement)) + (0 if pending.anchor else takers)


def news_by(group: Group, retry: Retry | None, *, is_exclusive: bool) -> float:
    """Return the time until which a keyed request waits to hear of lost members; minus infinity for no wait."""
    is_cautious = is_exclusive or (retry is not None and retry.members_lost_max == 1)
    return group.lost_at + NEWS_S if is_cautious else -math.inf


def keyed(pending: Pending, now: float, rng: Rng) -> KnownMember | None:
    """Return the member for a request's key; None if all were tried."""
    if not pending.tried:
        return pending.group.keyed_member(pending.anchor, pending.placement)
    members = untried(pending, now)
    return choose(pending, members, rng)[0] if members else None


def choose(pending: Pending, members: list[KnownMember], rng: Rng) -> tuple[KnownMember, KnownMember | None]:
    """Choose a member for a request: by its key, or by load (:func:`choose_near`)."""
    levels = pending.group.order(members, pending.placement)
    return (first_of(levels[0], slot_of(pending.anchor)), None) if pending.anchor else choose_near(levels, rng)


def linked(pending: Pending, having: KnownMember) -> list[KnownMember]:
    """Return the members with an open link that can get a request in place of a member without one."""
    tried = pending.tried or ()
    return [
        other
        for other in pending.group.candidates(pending.placement)
        if other is not having and other.is_ready and not other.peer.is_congested and other not in tried
    ]


def seconds(pending: Pending, member: KnownMember) -> list[KnownMember]:
    """Return the members that may get a late request as well; none of a higher rank, because silence causes no overflow."""
    group, size = pending.group, len(pending.payload)
    having = [member, *(each for each, _since in pending.also or ()), *(pending.tried or ())]
    beside = group.candidates(pending.placement)
    if member.rank and group.higher:
        beside = [*beside, *(each for rank in group.higher for each in rank if each.rank == member.rank)]
    others = [other for other in beside if other not in having and other.is_ready and other.peer.has_room_for(size)]
    return by_rank(others)[0] if others and group.higher else others


def having_place(room: Room, pending: Pending) -> list[KnownMember]:
    """Return the members with a place for the first request of a queue: those of the lowest rank with a place.

    Members with a congested link are left out: a link that is full for a moment causes no overflow.
    """
    group, placement, _line = room.key
    having = _below_limit(group.candidates(placement))
    if not having and group.spills and not pending.anchor:
        for rank in group.candidates_after(placement):
            if having := _below_limit([member for member in rank if member.takes_overflow]):
                break
    size = len(pending.payload)
    return [member for member in having if member.peer.has_room_for(size)]


def _with_place(pending: Pending, members: list[KnownMember], now: float) -> list[KnownMember]:
    """Return the members not known to be full. Keyed requests ignore load, and places for tunnels are unknown."""
    if pending.anchor or pending.offer is not None:
        return members
    return [member for member in members if not member.is_known_full(now)]


def _are_absent(pending: Pending) -> bool:
    """Tell whether the members that did not take a request are gone: all have left or are unreachable."""
    return pending.rejected in (0, Rejection.NOT_A_MEMBER) and pending.lost is None and pending.failure is None


def _are_full(pending: Pending) -> bool:
    """Tell whether the members that did not take a request were full; False for keyed requests, which never overflow."""
    if pending.anchor or pending.failure is not None or pending.rejected == Rejection.EXPIRED:
        return False
    return pending.rejected in (Rejection.OVERLOADED, Rejection.NO_TUNNELS) or pending.lost is None


def _below_limit(members: list[KnownMember]) -> list[KnownMember]:
    return [member for member in members if member.in_flight + 1 <= member.limit]
