"""Memory of nodes that are gone, for a while, so that hearsay does not bring them back.

Suppression of duplicates: messages that arrived before are recognized by source and number.

Not by a window below the highest number of a source: a source numbers what it sends to all roots together, so at one root a
number far below the highest may well be new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

#: Arrivals remembered, 10 MB at the most; the oldest is forgotten first. At 1,000 a second that is a minute.
ARRIVALS_MAX: Final = 65536

#: How long. All attempts of `PastryConfig.route_attempts` take less than half of it.
REMEMBERED_S: Final = 60.0


class Arrivals:
    """Remember what arrived lately."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        # In the order of arrival.
        self._times: dict[tuple[NodeId, int], float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, arrival: tuple[NodeId, int]) -> bool:
        return arrival in self._times

    def is_new(self, source: NodeId, number: int, now: float) -> bool:
        """Return whether a number of a source arrives for the first time, and remember it."""
        key = (source, number)
        times = self._times
        if key in times:
            return False
        self.purge(now)
        if len(times) >= ARRIVALS_MAX:
            del times[next(iter(times))]
        times[key] = now
        return True

    def purge(self, now: float) -> None:
        """Forget what arrived long ago."""
        times = self._times
        while times:
            key = next(iter(times))
            if now - times[key] <= REMEMBERED_S:
                return
            del times[key]


#: Nodes remembered; the oldest is forgotten first, and then at worst tried once more.
DEPARTED_MAX: Final = 512

#: Until when nodes that left for good are remembered: ids are not used again.
NEVER: Final = float("inf")


class DepartedNodes:
    """Remember nodes until a time."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[NodeId, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._until

    def add(self, node: NodeId, until: float) -> None:
        """Remember a node, at least until a time."""
        until = max(until, self._until.pop(node, until))
        if len(self._until) >= DEPARTED_MAX:
            del self._until[next(iter(self._until))]
        self._until[node] = until

    def has(self, node: NodeId, now: float) -> bool:
        """Return whether a node is remembered still."""
        until = self._until.get(node)
        if until is None:
            return False
        if until > now:
            return True
        del self._until[node]
        return False

    def has_left(self, node: NodeId) -> bool:
        """Return whether a node is gone for good."""
        return self._until.get(node) == NEVER

    def discard(self, node: NodeId) -> None:
        """Forget a node."""
        self._until.pop(node, None)

    def clear(self) -> None:
        """Forget all but those that left for good."""
        self._until = {node: until for node, until in self._until.items() if until == NEVER}
