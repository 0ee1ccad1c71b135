"""Probes of the links to another cloud, for diagnosis (`iris doctor databases@eu`).

A probe executes nothing in the other cloud: each link carries an echo, and the gateways there report the member count of an
exported cluster, with the same messages as for stand-ins (docs/design.md 15.64).
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

#: How long (seconds) a count is kept and updated. Too small: the count is gone before a caller reads it over a slow link; too
#: large: the other cloud watches clusters of no interest here.
KEPT_S: Final = 15.0
#: Names watched at a time; for further names only the links are probed. Too small: several operators at once see no counts; too
#: large: any insider can make the other cloud watch as many clusters.
NAMES_MAX: Final = 32


class GatewayProbes:
    """The probes of a gateway: echoes over the cloud links, and member counts asked of other clouds."""

    def __init__(self, core: FederationCore, stand_ins: StandIns, driver: Driver) -> None:
        self._core = core
        self._stand_ins = stand_ins
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._told: dict[tuple[str, str], dict[Bundle, int | None]] = {}  # by cloud and exported name; None before the report
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def probe(self, name: str) -> None:
        """Probe the links to the cloud of a name, and watch its member count; without a name, probe all links."""
        now = self._loop.time()
        if not name:
            for alias in self._core.lines.neighbours:
                self._core.probe(alias, now)
        else:
            try:
                there, alias = split(name)
            except ValueError:
                return  # the explanation reports the mistake
            self._core.probe(alias, now)
            self._watch(alias, there, now)
        self._driver.wake()

    def handle_count(self, event: CountTold) -> bool:
        """Store a reported member count; return whether a probe had asked for the count."""
        told = self._told.get((event.alias, event.name))
        if told is None or event.bundle not in told:
            return False
        told[event.bundle] = event.members
        return True

    def members(self, alias: str, name: str) -> dict[Bundle, int | None]:
        """Return the member count of another cloud's cluster by bundle; None before the report."""
        neighbour = self._core.lines.neighbours.get(alias)
        told = self._told.get((alias, name), {})
        found: dict[Bundle, int | None] = {}
        for bundle in () if neighbour is None else neighbour.bundles.values():
            members = told.get(bundle)
            found[bundle] = self._stand_ins.members_told(bundle, name) if members is None else members
        return found

    def forget(self, bundle: Bundle) -> None:
        """Forget the counts reported over a bundle (connections to one gateway) that has ended."""
        for told in self._told.values():
            told.pop(bundle, None)

    def abort(self) -> None:
        """End all probes at once."""
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
            # Watch again, for a new report: the last one may belong to an earlier catalogue.
            if self._core.watch(bundle, name, now, is_on=True):
                told[bundle] = None
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = self._loop.call_later(KEPT_S, self._unwatch, key)

    def _unwatch(self, key: tuple[str, str]) -> None:
        """Stop watching the member count of a cluster, unless stand-ins need the count."""
        del self._timers[key]
        now, name = self._loop.time(), key[1]
        for bundle in self._told.pop(key):
            if not self._stand_ins.watches(bundle, name):
                self._core.watch(bundle, name, now, is_on=False)
        self._driver.wake()
