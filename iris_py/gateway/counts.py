"""The member counts reported to neighbours, for exported clusters of the local cloud (docs/design.md 15.64).

A neighbour whose gateways stand in for a cluster needs to know whether the cluster is served. Only ordinary members count, not
stand-ins for a third cloud: a neighbour's requests do not reach them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import WatchChanged
    from iris_py.gateway.port import GatewayPort
    from iris_py.net.driver import Driver

logger = EventLogger("iris_py.federation")

#: The period (seconds) of counting members. Too small: each name costs a microsecond or so; too large: requests go to a cloud
#: whose members have left.
INTERVAL_S: Final = 0.25
#: Names watched by one neighbour: as many as a neighbour can have rules. Too large: the gateway watches a cluster for each.
NAMES_MAX: Final = 1024
#: Names watched by all neighbours together: half of a node's watches, so that their requests have the other half.
ALL_NAMES_MAX: Final = 2048


@dataclass(slots=True, eq=False)
class _WatchedName:
    """One exported cluster whose member count a neighbour's gateways watch."""

    name: str
    """The local cluster."""
    told: dict[Bundle, int | None] = field(default_factory=dict)
    """The watching bundles with the last reported count; None before the first report."""


class Counts:
    """Counts the members of exported clusters at a gateway, and reports the counts to neighbours that watch them."""

    def __init__(self, port: GatewayPort, core: FederationCore, driver: Driver) -> None:
        self._port = port
        self._core = core
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._watched: dict[tuple[str, str], _WatchedName] = {}  # by neighbour and exported name
        self._task: asyncio.Task[None] | None = None

    def handle_watch(self, event: WatchChanged) -> None:
        """Start or stop watching a cluster for a neighbour."""
        alias = event.bundle.alias
        key = alias, event.outside
        watched = self._watched.get(key)
        if not event.is_on:
            if watched is not None:
                self._drop(key, event.bundle)
            return
        if watched is None:
            if not self._has_room(alias):
                self._core.note_refused(alias, event.outside, "watch", "too many names are watched")
                return
            watched = self._watched[key] = _WatchedName(event.name)
        watched.name = event.name
        watched.told[event.bundle] = None  # report again in any case: the peer may have forgotten the count
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())

    def forget(self, bundle: Bundle) -> None:
        """End the watches of a bundle (connections to a neighbour's gateway) that has ended."""
        for key in [key for key, watched in self._watched.items() if bundle in watched.told]:
            self._drop(key, bundle)

    def clear(self) -> None:
        """Stop all reports after a change of rules: neighbours ask again when they get the new catalogue."""
        self._watched.clear()

    def abort(self) -> None:
        """Stop all reports at once, without a message to the neighbours."""
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()

    # --

    def _has_room(self, alias: str) -> bool:
        its = sum(watcher == alias for watcher, _outside in self._watched)
        return its < NAMES_MAX and len(self._watched) < ALL_NAMES_MAX

    def _drop(self, key: tuple[str, str], bundle: Bundle) -> None:
        watched = self._watched[key]
        watched.told.pop(bundle, None)
        if not watched.told:
            del self._watched[key]

    async def _run(self) -> None:
        while self._watched:
            self._look()
            await asyncio.sleep(INTERVAL_S)

    def _look(self) -> None:
        """Count the members of all watched clusters, and report the changed counts."""
        now = self._loop.time()
        for (_alias, outside), watched in self._watched.items():
            members = self._count(watched.name, now)
            for bundle, told in watched.told.items():
                if members is not None and members != told:
                    watched.told[bundle] = members
                    self._core.tell_count(bundle, outside, members, now)
        self._driver.wake()

    def _count(self, name: str, now: float) -> int | None:
        """Return the number of ordinary members, approximate for a large cluster; None while unknown."""
        try:
            group = self._port.watch(name, now)
        except ConfigurationError as exc:
            logger.debug("members_uncounted", "the members of %r cannot be counted: %s", name, exc, name=name)
            return None
        if group.members is None:
            return None
        return len(group.targets) and max(len(group.targets), group.size - sum(map(len, group.higher)))
