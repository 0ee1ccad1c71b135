"""Traces of the path of a request, made without sending the request (docs/observe.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.api.request import check_timeout
from iris_py.observe.reports import Candidate, Trace
from iris_py.peers.balancer import is_less_loaded
from iris_py.peers.member import Placement
from iris_py.settings.values import check_zone

if TYPE_CHECKING:
    from iris_py.api.introspection import Introspection
    from iris_py.api.runtime import Runtime
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer

#: How often to check whether a link has opened, in seconds: a link dialled by the other side causes no event. Too small: checks
#: cost time; too large: a trace is slow.
LOOK_S: Final = 0.05
#: How long a link may take to open (seconds). Too small: the second of two dials, one from each side, does not fit; too large:
#: an unreachable member delays the trace.
LINK_S: Final = 3.0


class Explanation:
    """Traces the paths of requests of one node.

    Args:
        runtime: The node.
        introspection: Asks the ring and the members.
    """

    def __init__(self, runtime: Runtime, introspection: Introspection) -> None:
        self._runtime = runtime
        self._core, self._driver, self._loop = runtime.core, runtime.driver, runtime.loop
        self._introspection = introspection

    async def trace(self, cluster: str, prefer: str | None, require: str | None, timeout: float) -> Trace:
        """Trace the path of a request, as :meth:`iris_py.Node.trace` describes."""
        self._runtime.check_open()
        check_timeout(timeout)
        placement = None
        if prefer is not None or require is not None:
            placement = Placement(check_zone(prefer, "prefer"), check_zone(require, "require"))
        route = await self._introspection.find_route(cluster, timeout)
        group = await self._find_view(cluster, timeout)
        candidates, member = explain(group, placement)
        if member is None:
            return Trace(cluster=cluster, route=route, candidates=candidates)
        peer, started = member.peer, self._introspection.clock()
        way, dial_s = "local" if peer.is_local else "link", None
        if not peer.is_local and not _is_linked(peer):
            is_open = await self._open_link(peer, min(timeout, LINK_S))
            way, dial_s = ("dialled", self._introspection.clock() - started) if is_open else ("ring", None)
        found = await self._introspection.ask_nodes(nodes=[peer.described], timeout=timeout)
        return Trace(
            cluster=cluster,
            route=route,
            candidates=candidates,
            chosen=peer.described,
            way=way,
            dial_s=dial_s,
            answer_s=found.reports[0].round_trip_s if found.reports else None,
        )

    async def _find_view(self, cluster: str, timeout: float) -> Group:
        """Return the group of a cluster, after waiting for its members for at most the timeout."""
        group = self._core.group(cluster, self._loop.time())
        try:
            async with asyncio.timeout(timeout):
                while group.members is None:
                    self._driver.wake()
                    await self._runtime.wait_for_room()
                    self._runtime.check_open()
                    group = self._core.group(cluster, self._loop.time())
        except TimeoutError:
            pass
        return group

    async def _open_link(self, peer: Peer, timeout: float) -> bool:
        """Have a link to a peer opened, and wait for at most the timeout; return whether the link is open."""
        ends_at = self._loop.time() + timeout
        self._core.requester.wanted.append(peer)
        self._driver.wake()
        while not _is_linked(peer) and self._loop.time() < ends_at:
            await asyncio.sleep(LOOK_S)
            self._runtime.check_open()
        return _is_linked(peer)


def explain(group: Group, placement: Placement | None) -> tuple[tuple[Candidate, ...], KnownMember | None]:
    """Return the members of a cluster in the order in which a request considers them, and the member for a request sent now.

    A request draws two of the nearest members at random and takes the less loaded. The returned member wins against all others.
    The function has no random choice and no effects.

    Args:
        group: The cluster.
        placement: The zones and key of the request.
    """
    levels = group.levels if placement is None else group.placed_levels(placement)
    ranked = [dict.fromkeys(level) for level in levels]
    nearest = list(ranked[0]) if ranked else []
    chosen: KnownMember | None = None
    for member in nearest:
        if chosen is None or _is_before(member, chosen):
            chosen = member
    told: list[Candidate] = []
    for number, level in enumerate(ranked):
        told += [_describe(member, _reason(member, chosen, number, len(level))) for member in level]
    considered = {member for level in ranked for member in level}
    for member in group.members or ():
        if member not in considered:
            told.append(_describe(member, _reason_left_out(member, placement)))
    return tuple(told), chosen


def _is_before(one: KnownMember, other: KnownMember) -> bool:
    """Tell whether a request that has drawn two members takes ``one`` rather than ``other``."""
    if one.is_ready is not other.is_ready:
        return one.is_ready
    return is_less_loaded(one, other)


def _reason(member: KnownMember, chosen: KnownMember | None, number: int, count: int) -> str:
    if member is chosen:
        if count == 1:
            return "the only member at this distance"
        return f"the less loaded of two drawn by chance from {count} at this distance"
    if number:
        return "farther away: gets requests only while nearer members are full or take twice as long"
    if chosen is not None and member.is_ready is not chosen.is_ready:
        return "at this distance, but without a link yet"
    return "at this distance: gets its share"


def _reason_left_out(member: KnownMember, placement: Placement | None) -> str:
    if placement is not None and placement.require:
        return f"not in the zone {placement.require}"
    return "a stand-in: gets no requests while a member is present"


def _describe(member: KnownMember, reason: str) -> Candidate:
    expected_s = (member.in_flight * member.cost + 1) * member.service_time_s if member.service_time_s else None
    return Candidate(
        node=member.peer.described,
        distance=member.distance,
        in_flight=member.in_flight,
        expected_s=expected_s,
        is_linked=_is_linked(member.peer),
        rank=member.rank,
        reason=reason,
    )


def _is_linked(peer: Peer) -> bool:
    return peer.link is not None and peer.link.is_open
