"""Probes of the lines, for whoever looks at a way to another cloud (`iris doctor databases@eu`).

A probe executes nothing over there: an echo goes over each line, and the gateways of the other cloud tell how many members a
cluster has that this cloud may use. They tell it to stand-ins anyway, by the same messages (docs/design.md 15.64).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.federation.names import split

if TYPE_CHECKING:
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import CountTold
    from iris_py.gateway.stand_ins import StandIns
    from iris_py.net.driver import Driver

#: How long a count is kept, and its changes are told (seconds). Too small: it is gone before the asker reads it over a slow
#: line; too large: the other cloud watches clusters that nobody here asks for.
KEPT_S: Final = 15.0
#: Names whose members are counted at a time; of any more only the lines are probed. Too small: several operators who look at
#: once see no counts; too large: whoever holds the secret of the network has the other cloud watch so many clusters.
NAMES_MAX: Final = 32


class Probing:
    """The probes of one gateway.

    Args:
        core: What is said to other clouds.
        stand_ins: Who are told counts, too.
        driver: Sends what the core has.
    """

    def __init__(self, core: FederationCore, stand_ins: StandIns, driver: Driver) -> None:
        self._core = core
        self._stand_ins = stand_ins
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._told: dict[tuple[str, str], dict[Bundle, int | None]] = {}  # by cloud and name there; None before it is told
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def probe(self, name: str) -> None:
        """Probe the lines to the cloud of a name, and ask how many members it has there; all lines with an empty name."""
        now = self._loop.time()
        if not name:
            for alias in self._core.lines.neighbours:
                self._core.probe(alias, now)
        else:
            try:
                there, alias = split(name)
            except ValueError:
                return  # the explanation says so
            self._core.probe(alias, now)
            self._watch(alias, there, now)
        self._driver.wake()

    def handle_count(self, event: CountTold) -> bool:
        """A gateway of a neighbour has said how many members a cluster has; returns whether it was asked for that."""
        told = self._told.get((event.alias, event.name))
        if told is None or event.bundle not in told:
            return False
        told[event.bundle] = event.members
        return True

    def members(self, alias: str, name: str) -> dict[Bundle, int | None]:
        """Return the number of members of a cluster of another cloud, by line; None for a line that has not told it yet."""
        neighbour = self._core.lines.neighbours.get(alias)
        told = self._told.get((alias, name), {})
        found: dict[Bundle, int | None] = {}
        for bundle in () if neighbour is None else neighbour.bundles.values():
            members = told.get(bundle)
            found[bundle] = self._stand_ins.members_told(bundle, name) if members is None else members
        return found

    def forget(self, bundle: Bundle) -> None:
        """A line has ended."""
        for told in self._told.values():
            told.pop(bundle, None)

    def abort(self) -> None:
        """End at once."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._told.clear()

    # --

    def _watch(self, alias: str, name: str, now: float) -> None:
        key = alias, name
        neighbour = self._core.lines.neighbours.get(alias)
        if neighbour is None or (key not in self._told and len(self._told) >= NAMES_MAX):
            return
        told = self._told.setdefault(key, {})
        for bundle in neighbour.bundles.values():
            # Asked again, it is told again: what was told before may be of an earlier catalogue.
            if self._core.watch(bundle, name, now, is_on=True):
                told[bundle] = None
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = self._loop.call_later(KEPT_S, self._unwatch, key)

    def _unwatch(self, key: tuple[str, str]) -> None:
        """Ask for no more counts, unless stand-ins want them."""
        del self._timers[key]
        now, name = self._loop.time(), key[1]
        for bundle in self._told.pop(key):
            if not self._stand_ins.watches(bundle, name):
                self._core.watch(bundle, name, now, is_on=False)
        self._driver.wake()
