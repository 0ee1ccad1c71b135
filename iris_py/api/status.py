"""The part of a node that tells how it is: its numbers, and its last events.

Health of a node: whether it is to be given work, and if not, why (docs/design.md 16.3).

The words are those of gRPC's health checking, which balancers and people know. Load never makes a node unready: one that is
full says so to each caller, who asks another member at once; and if all are, taking one away makes it worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from iris_py.api.topic import Publishing
from iris_py.federation.names import RESERVED_NAMES
from iris_py.net.process import read_process
from iris_py.node.snapshot import statistics_of
from iris_py.observe.statistics import ProcessStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator

    from iris_py.api.membership import Membership
    from iris_py.api.seeds import Seeds
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.queries import Desk
    from iris_py.observe.statistics import Statistics

__all__ = ["Health", "health_of"]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, or of its part in one cluster."""

    status: Literal["SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]
    """``SERVING`` if it is to be given work; ``SERVICE_UNKNOWN`` of a cluster that the node has no part in."""
    reasons: tuple[str, ...] = ()
    """Why it is to be given none, each as a sentence without its full stop."""
    notes: tuple[str, ...] = ()
    """Things that do not work and are no reason to give it no work, likewise: of a gateway, clouds that it does not reach."""

    @property
    def is_ready(self) -> bool:
        """Whether it is to be given work."""
        return self.status == "SERVING"


def health_of(
    memberships: Collection[Membership],
    untold: Collection[bytes],
    seeds: Seeds,
    cluster: str | None,
    *,
    is_closing: bool,
    is_joined: bool,
    is_alone: bool,
) -> Health:
    """Judge a node.

    Args:
        memberships: What it takes part in.
        untold: The groups that it has joined, and not everybody knows yet.
        seeds: Who answers at its seeds.
        cluster: The cluster that is asked about; None for the whole node.
        is_closing: Whether it leaves, or has left.
        is_joined: Whether it has its place in the ring.
        is_alone: Whether it knows no other node.
    """
    reasons = []
    if is_closing:
        reasons.append("the node is leaving")
    elif not is_joined:
        reasons.append("the node has no place in the ring yet")
    elif is_alone and seeds.is_unknown:
        unreached = "; ".join(f"{address} {reason}" for address, reason in seeds.unreached.items())
        reasons.append(f"no other node is reached, though there are seeds: {unreached}")
    own = [each for each in memberships if not _is_of_gateway(each)]
    asked = own if cluster is None else [each for each in own if each.cluster == cluster]
    reasons += _reasons(asked, untold)
    if cluster is not None and not asked:
        return Health(status="SERVICE_UNKNOWN", reasons=(*reasons, f"this node has no part in {cluster!r}"))
    return Health(status="NOT_SERVING", reasons=tuple(reasons)) if reasons else Health(status="SERVING")


def _reasons(memberships: Collection[Membership], untold: Collection[bytes]) -> Iterator[str]:
    names = dict.fromkeys(each.cluster for each in memberships)
    leaving = {each.cluster for each in memberships if each.is_leaving}
    joining = {each.cluster for each in memberships if each._registration.group.id in untold}
    for name in names:
        if name in leaving:
            yield f"it is leaving {name!r}"
        elif name in joining:
            yield f"not every node knows yet that it serves {name!r}"


def _is_of_gateway(membership: Membership) -> bool:
    """Tell whether a gateway has joined for another cloud: it leaves again as that comes and goes, and is well itself."""
    return membership.cluster.startswith(RESERVED_NAMES) or membership._registration.rank > 0


class Observing(Publishing):
    """The part of a node that tells how it is."""

    _desk: Desk
    _is_simulated: bool

    def statistics(self) -> Statistics:
        """Return what the node has done since it started, and what there is now: counters, gauges and histograms.

        Counters never fall. What can be read is not counted but read when this is called, which takes some tenths of a
        millisecond. docs/statistics.md describes the tree; ``msgspec.json.encode`` writes it as JSON.
        """
        self._check_loop()
        now = self._loop.time()
        process = ProcessStatistics() if self._is_simulated else read_process(self._driver.lateness, now)
        questions = self._desk.statistics()
        retransmissions = self._driver.retransmissions()
        return statistics_of(
            self._core, self._subscriptions, process, questions, self._started_at, now, retransmissions=retransmissions
        )

    def recent_events(self, since: int = 0) -> tuple[EventRecord, ...]:
        """Return the events of this node after that of a number, the oldest first.

        It keeps 512. docs/statistics.md says which kinds there are.

        Args:
            since: The number of the last one that is known; 0 for all that are kept.
        """
        self._check_loop()
        return self._core.journal.since(since)

    def events(self, since: int | None = None) -> AsyncIterator[EventRecord]:
        """Iterate over the events of this node as they happen, until it is closed: ``async for event in node.events()``.

        Events wait in the node: who is slower than 512 of them misses some, which their numbers show.

        Args:
            since: The number of the last event that is known: those after it that are kept come first. None: only what happens
                from now on.
        """
        self._check_loop()
        return self._follow(self._core.journal.last if since is None else since)

    async def _follow(self, last: int) -> AsyncIterator[EventRecord]:
        journal = self._core.journal
        while True:
            self._check_loop()
            for event in journal.since(last):
                last = event.number
                yield event
            if self._closing is not None:
                return
            if journal.last <= last:
                journal.on_noted = self._handle_room  # as the end of the node does
                await self._wait_for_room()
