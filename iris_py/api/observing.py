"""The part of a node that tells how it is: its numbers, and its last events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.topic import Publishing
from iris_py.net.process import read_process
from iris_py.node.snapshot import statistics_of
from iris_py.observe.statistics import ProcessStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.observe.journal import EventRecord
    from iris_py.observe.queries import Desk
    from iris_py.observe.statistics import Statistics


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
