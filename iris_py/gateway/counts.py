"""The counts that neighbours are told: how many members a cluster of this cloud has that they may use (docs/design.md 15.64).

A neighbour whose gateways stand in for a cluster wants to know whether somebody serves it. Ordinary members alone are counted:
what stands in here for others is nobody for a neighbour, as its requests do not go there either.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import WatchChanged
    from iris_py.net.driver import Driver

logger = EventLogger("iris_py.federation")

#: How often members are counted (seconds). Too small: each look costs a microsecond or so for each name; too large: requests
#: go to a cloud where nobody is any more.
INTERVAL_S: Final = 0.25
#: Names that one neighbour is told of: as many as it can have rules. Too large: each has the gateway watch a cluster.
NAMES_MAX: Final = 1024
#: And all neighbours together: half of what a node watches, so that their requests have the other half.
ALL_NAMES_MAX: Final = 2048


@dataclass(slots=True, eq=False)
class _Watched:
    """One name that a neighbour is told of."""

    name: str
    """The cluster here."""
    told: dict[Bundle, int | None] = field(default_factory=dict)
    """The bundles that want to know, and what was told there last; None for nothing yet."""


class Counts:
    """The counts that the neighbours of one gateway are told.

    Args:
        node: The node of the gateway.
        core: What is said to other clouds.
        driver: Sends what the core has.
    """

    def __init__(self, node: Node, core: FederationCore, driver: Driver) -> None:
        self._node = node
        self._core = core
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._watched: dict[tuple[str, str], _Watched] = {}  # by neighbour and name outside
        self._task: asyncio.Task[None] | None = None

    def handle_watch(self, event: WatchChanged) -> None:
        """A neighbour wants to know, or does not any more, how many members a cluster has."""
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
            watched = self._watched[key] = _Watched(event.name)
        watched.name = event.name
        watched.told[event.bundle] = None  # told again, whatever it was: the other side may have forgotten it
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())

    def forget(self, bundle: Bundle) -> None:
        """A bundle has ended."""
        for key in [key for key, watched in self._watched.items() if bundle in watched.told]:
            self._drop(key, bundle)

    def clear(self) -> None:
        """Tell nobody anything any more: the rules have changed, and who may know asks again when it gets the new catalogue."""
        self._watched.clear()

    def abort(self) -> None:
        """End at once."""
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
        """Tell what has changed."""
        now = self._loop.time()
        for (_alias, outside), watched in self._watched.items():
            members = self._count(watched.name, now)
            for bundle, told in watched.told.items():
                if members is not None and members != told:
                    watched.told[bundle] = members
                    self._core.tell_count(bundle, outside, members, now)
        self._driver.wake()

    def _count(self, name: str, now: float) -> int | None:
        """Return how many ordinary members a cluster has, of a large one about how many; None while that is not known."""
        try:
            group = self._node._core.group_to_ask(name, b"", now)
        except ConfigurationError as exc:
            logger.debug("members_uncounted", "the members of %r cannot be counted: %s", name, exc, name=name)
            return None
        if group.members is None:
            return None
        return len(group.targets) and max(len(group.targets), group.size - sum(map(len, group.higher)))
