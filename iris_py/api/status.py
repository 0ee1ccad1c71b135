"""The state of a node for operators and balancers: statistics, recent events and their log lines, and health.

Health tells whether a node is ready for work, and if not, why (docs/design.md 16.3). The status names are those of gRPC's
health checking, known to load balancers. Load never makes a node unready: a full member rejects requests, and callers try other
members at once. If all members are full, removing a member makes matters worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from iris_py.federation.names import RESERVED_NAMES
from iris_py.logs import EventLogger
from iris_py.net.process import read_process
from iris_py.node.snapshot import statistics_of
from iris_py.observe.statistics import ProcessStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping

    from iris_py.api.membership import Memberships
    from iris_py.api.runtime import Runtime
    from iris_py.api.seeds import Seeds
    from iris_py.api.server import Server
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.statistics import QuestionStatistics, Statistics
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.topic.queue import SubscriptionQueue

__all__ = ["Health", "Observation"]

logger = EventLogger("iris_py")


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, or of its membership in a cluster."""

    status: Literal["SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]
    """``SERVING`` if ready for work; ``SERVICE_UNKNOWN`` for a cluster without this node."""
    reasons: tuple[str, ...] = ()
    """The reasons for not being ready, as sentences without full stop."""
    notes: tuple[str, ...] = ()
    """Faults that do not make the node unready, as sentences without full stop: for a gateway, unreachable clouds."""

    @property
    def is_ready(self) -> bool:
        """Whether the status is ``SERVING``: the node is ready for work."""
        return self.status == "SERVING"


class Observation:
    """Reads the state of one node: statistics, recent events and health.

    Args:
        runtime: The node.
        memberships: The memberships of the node.
        subscriptions: Returns the subscriptions of the node.
        questions: Returns how many questions of other nodes were answered and refused.
        seeds: The seeds of the node.
    """

    def __init__(
        self,
        runtime: Runtime,
        memberships: Memberships,
        subscriptions: Callable[[], Collection[SubscriptionQueue]],
        questions: Callable[[], QuestionStatistics],
        seeds: Seeds,
    ) -> None:
        self._runtime = runtime
        self._core, self._driver = runtime.core, runtime.driver
        self._memberships = memberships
        self._subscriptions = subscriptions
        self._questions = questions
        self._seeds = seeds

    def statistics(self) -> Statistics:
        """Return the statistics of the node, as :meth:`iris_py.Node.statistics` describes."""
        runtime = self._runtime
        runtime.check_loop()
        now = runtime.loop.time()
        return statistics_of(
            self._core,
            self._subscriptions(),
            ProcessStatistics() if runtime.is_simulated else read_process(self._driver.lateness, now),
            self._questions(),
            runtime.started_at,
            now,
            retransmissions=self._driver.retransmissions(),
        )

    def recent_events(self, since: int) -> tuple[EventRecord, ...]:
        """Return the kept events after a number, as :meth:`iris_py.Node.recent_events` describes."""
        self._runtime.check_loop()
        return self._core.journal.since(since)

    def events(self, since: int | None) -> AsyncIterator[EventRecord]:
        """Iterate over new events, as :meth:`iris_py.Node.events` describes."""
        self._runtime.check_loop()
        return self._follow(self._core.journal.last if since is None else since)

    async def _follow(self, last: int) -> AsyncIterator[EventRecord]:
        runtime, journal = self._runtime, self._core.journal
        while True:
            runtime.check_loop()
            for event in journal.since(last):
                last = event.number
                yield event
            if runtime.closing is not None:
                return
            if journal.last <= last:
                journal.on_noted = runtime.handle_room  # woken also by the end of the node
                await runtime.wait_for_room()

    def health(self, cluster: str | None) -> Health:
        """Return the health of the node, as :meth:`iris_py.Node.health` describes."""
        runtime, overlay, servers = self._runtime, self._core.overlay, self._memberships.servers
        runtime.check_loop()
        reasons = []
        if runtime.closing is not None or self._driver.is_closed:
            reasons.append("the node is leaving")
        elif not overlay.is_active():
            reasons.append("the node has no place in the ring yet")
        elif not overlay.peers() and self._seeds.is_unknown:
            unreached = "; ".join(f"{address} {reason}" for address, reason in self._seeds.unreached.items())
            reasons.append(f"no other node is reached, although seeds are set: {unreached}")
        own = {each: server for each, server in servers.items() if not _is_of_gateway(each)}
        if cluster is not None:
            own = {each: server for each, server in own.items() if each.group.name == cluster}
        reasons += self._reasons(own)
        if cluster is not None and not own:
            return Health(status="SERVICE_UNKNOWN", reasons=(*reasons, f"this node does not serve {cluster!r}"))
        return Health(status="NOT_SERVING", reasons=tuple(reasons)) if reasons else Health(status="SERVING")

    def _reasons(self, servers: Mapping[Registration, Server]) -> Iterator[str]:
        """Yield the reasons why memberships are not ready: the node is joining or leaving a cluster."""
        leaving = {each.group.name for each, server in servers.items() if server.leaving is not None}
        joining = {each.group.name for each in servers if each.group.id in self._runtime.joins}
        for name in dict.fromkeys(each.group.name for each in servers):
            if name in leaving:
                yield f"it is leaving {name!r}"
            elif name in joining:
                yield f"not every node knows yet that it serves {name!r}"


def _is_of_gateway(registration: Registration) -> bool:
    """Tell whether a registration is a gateway's for another cloud: its end while the cloud is unreachable is no fault."""
    return registration.group.name.startswith(RESERVED_NAMES) or registration.rank > 0
