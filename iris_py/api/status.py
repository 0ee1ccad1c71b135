"""The state of a node: statistics, recent events and health.

Health tells whether a node is ready for work, and if not, why (docs/design.md 16.3). The status names are those of gRPC's
health checking, known to load balancers. Load never makes a node unready: a full member rejects requests, and callers try other
members at once. If all members are full, removing a member makes matters worse.
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
    from collections.abc import AsyncIterator, Collection, Container, Iterator

    from iris_py.api.membership import Membership
    from iris_py.api.seeds import Seeds
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.queries import Desk
    from iris_py.observe.statistics import Statistics

__all__ = ["Health", "health_of"]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, or of its membership in a cluster."""

    status: Literal["SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]
    """``SERVING`` if ready for work; ``SERVICE_UNKNOWN`` for a cluster without this node."""
    reasons: tuple[str, ...] = ()
    """The reasons for not being ready, as sentences without full stop."""
    notes: tuple[str, ...] = ()
    """Faults that do not make the node unready, likewise: for a gateway, unreachable clouds."""

    @property
    def is_ready(self) -> bool:
        """Whether the node is ready for work."""
        return self.status == "SERVING"


def health_of(
    memberships: Collection[Membership],
    untold: Container[bytes],
    seeds: Seeds,
    cluster: str | None,
    *,
    is_closing: bool,
    is_joined: bool,
    is_alone: bool,
) -> Health:
    """Return the health of a node.

    Args:
        memberships: The memberships of the node.
        untold: Joined groups that other nodes may not know of yet.
        seeds: The seeds of the node.
        cluster: A cluster; None for the whole node.
        is_closing: Whether the node leaves, or has left.
        is_joined: Whether the node has its place in the ring.
        is_alone: Whether the node knows no other node.
    """
    reasons = []
    if is_closing:
        reasons.append("the node is leaving")
    elif not is_joined:
        reasons.append("the node has no place in the ring yet")
    elif is_alone and seeds.is_unknown:
        unreached = "; ".join(f"{address} {reason}" for address, reason in seeds.unreached.items())
        reasons.append(f"no other node is reached, although seeds are set: {unreached}")
    own = [each for each in memberships if not _is_of_gateway(each)]
    asked = own if cluster is None else [each for each in own if each.cluster == cluster]
    reasons += _reasons(asked, untold)
    if cluster is not None and not asked:
        return Health(status="SERVICE_UNKNOWN", reasons=(*reasons, f"this node does not serve {cluster!r}"))
    return Health(status="NOT_SERVING", reasons=tuple(reasons)) if reasons else Health(status="SERVING")


def _reasons(memberships: Collection[Membership], untold: Container[bytes]) -> Iterator[str]:
    names = dict.fromkeys(each.cluster for each in memberships)
    leaving = {each.cluster for each in memberships if each.is_leaving}
    joining = {each.cluster for each in memberships if each._registration.group.id in untold}
    for name in names:
        if name in leaving:
            yield f"it is leaving {name!r}"
        elif name in joining:
            yield f"not every node knows yet that it serves {name!r}"


def _is_of_gateway(membership: Membership) -> bool:
    """Tell whether a membership serves another cloud: a gateway leaves and joins as that cloud comes and goes."""
    return membership.cluster.startswith(RESERVED_NAMES) or membership._registration.rank > 0


class Observing(Publishing):
    """The part of a node for statistics and events."""

    _desk: Desk

    def statistics(self) -> Statistics:
        """Return the statistics of the node since its start: counters, gauges and histograms.

        Counters never fall. Gauges are read when this is called, which takes some tenths of a millisecond. docs/statistics.md
        describes the tree; ``msgspec.json.encode`` writes it as JSON.
        """
        self._check_loop()
        now = self._loop.time()
        process = ProcessStatistics() if self._is_simulated else read_process(self._driver.lateness, now)
        questions = self._desk.statistics()
        retransmissions = self._driver.retransmissions()
        return statistics_of(
            self._core, self._subscriptions, process, questions, self._runtime.started_at, now, retransmissions=retransmissions
        )

    def recent_events(self, since: int = 0) -> tuple[EventRecord, ...]:
        """Return the events of this node after a given number, the oldest first.

        The node keeps 512 events. docs/statistics.md lists their kinds.

        Args:
            since: The number of the last known event; 0 for all kept events.
        """
        self._check_loop()
        return self._core.journal.since(since)

    def events(self, since: int | None = None) -> AsyncIterator[EventRecord]:
        """Iterate over new events of this node, until the node is closed: ``async for event in node.events()``.

        A reader more than 512 events behind misses events, visible as a gap in the numbers.

        Args:
            since: The number of the last known event: the iteration begins with the kept events after it. None: only events
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
                journal.on_noted = self._handle_room  # woken also by the end of the node
                await self._wait_for_room()
