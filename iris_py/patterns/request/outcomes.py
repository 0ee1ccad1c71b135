"""The errors of failed requests, by cause (docs/design.md section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.errors import (
    IrisError,
    MemberLost,
    NoMembers,
    Overloaded,
    RemoteError,
    RequestTimeout,
    TooManyMembersLost,
)
from iris_py.wire import packets

if TYPE_CHECKING:
    from iris_py.patterns.request.pending import Pending
    from iris_py.peers.peer import Peer


def of_nobody(pending: Pending, nodes: int) -> NoMembers:
    """Return the error for a request without any possible member.

    Args:
        nodes: Number of other known nodes, for the text.
    """
    group, placement = pending.group, pending.placement
    if placement is None or not placement.require:
        return NoMembers(group.name, nodes)
    return NoMembers(group.name, nodes, placement.require, len(group.targets) - len(group.candidates(placement)))


def of_no_taker(pending: Pending, nodes: int) -> IrisError:
    """Return the error for a request that every member rejected."""
    group = pending.group
    if pending.rejected == packets.Rejection.OVERLOADED:
        if pending.lost is not None:
            return _member_lost(group.name, pending.lost.peer)
        return Overloaded(group.name, pending.tried_count)
    if pending.rejected == packets.Rejection.EXPIRED:
        return RequestTimeout(group.name, pending.timeout_s, None)
    if pending.rejected == packets.Rejection.NO_TUNNELS:
        return NoMembers(group.name, nodes, without_tunnels=pending.tried_count)
    return of_nobody(pending, nodes)


def of_loss(pending: Pending) -> MemberLost:
    """Return the error for a request with a lost member; for a lost stand-in, the error names the gateway."""
    if pending.retry is not None and not pending.may_lose(1):
        return TooManyMembersLost(pending.group.name, [member.hex() for member in pending.losses])
    assert pending.member is not None
    peer = pending.member.peer
    if pending.member.rank:
        return MemberLost(pending.group.name, "", gateway=peer.name, node_name=peer.label)
    return _member_lost(pending.group.name, peer)


def of_lost_and_nobody(pending: Pending, nodes: int) -> IrisError:
    """Return the error for a request without remaining members: ``MemberLost`` if a member may have executed it."""
    if pending.lost is None:
        return of_nobody(pending, nodes)
    return _member_lost(pending.group.name, pending.lost.peer)


def of_attempts(pending: Pending, now: float) -> RequestTimeout:
    """Return the error for a request whose last permitted attempt timed out."""
    assert pending.member is not None
    waited_s = round(now - pending.deadline + pending.timeout_s, 3)
    return RequestTimeout(pending.group.name, waited_s, pending.member.peer.name, node_name=pending.member.peer.label)


def of_timeout(pending: Pending, nodes: int) -> IrisError:
    """Return the error for a request that has timed out."""
    group = pending.group
    if pending.failure is not None and pending.member is None:
        return pending.failure
    last = pending.member or pending.lost
    if last is not None:
        return RequestTimeout(group.name, pending.timeout_s, last.peer.name, node_name=last.peer.label)
    if pending.rejected == packets.Rejection.OVERLOADED:
        return Overloaded(group.name, pending.tried_count)
    if (group.members is not None or group.is_doubted) and not group.candidates(pending.placement):
        return of_nobody(pending, nodes)
    return RequestTimeout(group.name, pending.timeout_s, None)


def of_failure(pending: Pending, peer: Peer, payload: bytes) -> RemoteError | TooManyMembersLost:
    """Return the error for a handler's failure, or for losses that a stand-in reports."""
    type_, text = packets.decode_failure(payload)
    if pending.member is not None and pending.member.rank and type_ == TooManyMembersLost.__name__:
        return TooManyMembersLost(pending.group.name, text.split(","))
    return RemoteError(pending.group.name, peer.name, type_, text, node_name=peer.label)


def _member_lost(cluster: str, peer: Peer) -> MemberLost:
    return MemberLost(cluster, peer.name, node_name=peer.label)
