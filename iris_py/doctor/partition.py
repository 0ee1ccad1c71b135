"""The check of `iris doctor` for a partitioned network, from the view of a part: nodes of other hosts died together."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from iris_py.doctor.check import Finding, fault, ok, show_ago, show_node, skipped
from iris_py.doctor.connectivity import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import Death, ProbedPeer

#: Deaths within this time count as together (seconds): neighbours detect a silent node within 3 s, other nodes a little later.
#: Too small: one cut counts as several; too large: nodes that died one by one count as a part.
TOGETHER_S: Final = 15.0
#: Minimum fraction of the network, including the dead, that died together. Too small: the loss of a host with many nodes counts
#: as a cut; too large: a cut-off site is not reported.
SHARE_MIN: Final = 0.2
#: Minimum number of nodes that died together. A single silent node is no sign of a partition.
TOGETHER_MIN: Final = 2
NAMED_MAX: Final = 3


async def parts(subject: Subject) -> Finding:
    """Check for nodes that died together: perhaps they live in another part of a partitioned network."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    found = await subject.surroundings.deaths()
    if not found.asked:
        return skipped("no node reports which nodes it has found dead")
    away = _of_silent_hosts(found.deaths, reached.peers)
    together = max(_bursts(away), key=len, default=())
    size = max(reached.network_size, len(reached.peers) + 1)
    if len(together) < TOGETHER_MIN or len(together) < SHARE_MIN * (size + len(together)):
        if away:
            return ok(f"{len(away)} node{'s' * (len(away) != 1)} on other hosts died within the last hour, but not together")
        return ok("no host is missing")
    named = ", ".join(show_node(death) for death in together[:NAMED_MAX])
    more = f" and {len(together) - NAMED_MAX} more" if len(together) > NAMED_MAX else ""
    within_s = max(1.0, together[-1].s_ago - together[0].s_ago)
    cause = (
        f"{len(together)} nodes fell silent within {within_s:.0f} s, {show_ago(together[0].s_ago)}, and are not back: "
        f"{named}{more}{_zone(together, reached.peers)}. About {size} nodes are left here. Those machines are down, or the "
        "network is partitioned and they run without this part"
    )
    advice = (
        "Run `iris doctor` on one of those machines. If nodes are alive there, check the routes and firewalls between the "
        "parts. The parts join by themselves within a minute once they can reach each other."
    )
    host = _host(together[0].address)
    return fault(cause, advice, *((f"ping -c 3 {shlex.quote(host)}",) if host else ()), "iris nodes")


def _of_silent_hosts(deaths: Sequence[Death], peers: Sequence[ProbedPeer]) -> list[Death]:
    """Return the deaths on hosts without a live node. Elsewhere only a process died, and the host is not cut off."""
    living = {_host(peer.address) for peer in peers}
    return [death for death in deaths if _host(death.address) not in living]


def _bursts(deaths: Sequence[Death]) -> list[Sequence[Death]]:
    """Return, for each death, the group of deaths up to `TOGETHER_S` earlier, including the death. The input begins with the
    latest.
    """
    return [
        [other for other in deaths[place:] if other.s_ago <= death.s_ago + TOGETHER_S] for place, death in enumerate(deaths)
    ]


def _zone(together: Sequence[Death], peers: Sequence[ProbedPeer]) -> str:
    """Return a text if the dead nodes were all nodes of a zone; empty otherwise."""
    zones = {death.zone for death in together}
    if len(zones) != 1 or zones == {""} or zones & {peer.zone for peer in peers}:
        return ""
    return f", all nodes of the zone {zones.pop()!r}"


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
