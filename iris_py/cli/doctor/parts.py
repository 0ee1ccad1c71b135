"""The check for a network in parts, as far as one part can tell: nodes of other hosts that died together and stay away."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from iris_py.cli.doctor.check import Finding, fault, ok, show_ago, show_node, skipped
from iris_py.cli.doctor.connected import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.doctor.check import Subject
    from iris_py.cli.doctor.surroundings import Death, Peer

#: Deaths within this are one (seconds): a silent node is found dead within 3 s by its neighbours, and a little later by others
#: that know it. Too small: one cut is taken for several; too large: nodes that died one by one are taken for a part.
TOGETHER_S: Final = 15.0
#: The part of the network, the dead among it, that has to have died together. Too small: a host with many nodes that goes down
#: is taken for a cut; too large: a site that is cut off is not told.
SHARE_MIN: Final = 0.2
#: And so many nodes at least: of one that is silent nobody can tell whether it lives.
TOGETHER_MIN: Final = 2
NAMED_MAX: Final = 3


async def parts(subject: Subject) -> Finding:
    """Look for nodes that died together: either they have, or something parts the network, and they live in another part."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    found = await subject.surroundings.deaths()
    if not found.asked:
        return skipped("no node tells which others it has found dead")
    away = _of_silent_hosts(found.deaths, reached.peers)
    together = max(_bursts(away), key=len, default=())
    size = max(reached.network_size, len(reached.peers) + 1)
    if len(together) < TOGETHER_MIN or len(together) < SHARE_MIN * (size + len(together)):
        if away:
            return ok(f"{len(away)} node{'s' * (len(away) != 1)} on other hosts died within the last hour, and not together")
        return ok("no host is missed")
    named = ", ".join(show_node(death) for death in together[:NAMED_MAX])
    more = f" and {len(together) - NAMED_MAX} more" if len(together) > NAMED_MAX else ""
    within_s = max(1.0, together[-1].s_ago - together[0].s_ago)
    cause = (
        f"{len(together)} nodes fell silent within {within_s:.0f} s, {show_ago(together[0].s_ago)}, and are not back: "
        f"{named}{more}{_zone(together, reached.peers)}. About {size} nodes are left here. Those machines are down, or "
        "something parts the network and they go on without these"
    )
    advice = (
        "Run `iris doctor` on one of those machines. If nodes live there, look at routes and firewalls between: parts become "
        "one network again by themselves within a minute after they reach each other."
    )
    host = _host(together[0].address)
    return fault(cause, advice, *((f"ping -c 3 {shlex.quote(host)}",) if host else ()), "iris nodes")


def _of_silent_hosts(deaths: Sequence[Death], peers: Sequence[Peer]) -> list[Death]:
    """Return the deaths on hosts where no node lives: what else dies there was a process, and is not cut off."""
    living = {_host(peer.address) for peer in peers}
    return [death for death in deaths if _host(death.address) not in living]


def _bursts(deaths: Sequence[Death]) -> list[Sequence[Death]]:
    """Return the deaths that were together, by the latest of each group; the given ones are ordered by their time."""
    return [
        [other for other in deaths[place:] if other.s_ago <= death.s_ago + TOGETHER_S] for place, death in enumerate(deaths)
    ]


def _zone(together: Sequence[Death], peers: Sequence[Peer]) -> str:
    """Say that it is a whole zone, if it is."""
    zones = {death.zone for death in together}
    if len(zones) != 1 or zones == {""} or zones & {peer.zone for peer in peers}:
        return ""
    return f", all nodes of the zone {zones.pop()!r}"


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
