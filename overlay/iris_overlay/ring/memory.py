"""Memory of departed nodes and of received messages.

`DepartedNodes` keeps hearsay from reviving dead nodes for a while. `Arrivals` detects repeated messages by source and number. A
window below the highest number would not work: a source numbers its messages to all roots together, so at a single root a
number far below the highest may be new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

#: The largest number of remembered arrivals, a minute's worth at 1,000 messages a second; beyond it the oldest is forgotten.
#: Too small: a repeated message is delivered twice; too large: memory, 10 MB now.
ARRIVALS_MAX: Final = 65536

#: The time to remember arrivals. All attempts of `PastryConfig.route_attempts` take less than half of it.
REMEMBERED_S: Final = 60.0


class Arrivals:
    """The recently received routed messages, by source and number, to detect repetitions."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        # In order of arrival.
        self._times: dict[tuple[NodeId, int], float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, arrival: tuple[NodeId, int]) -> bool:
        return arrival in self._times

    def is_new(self, source: NodeId, number: int, now: float) -> bool:
        """Remember the number of a message from a source; return whether it is new."""
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
        """Forget arrivals older than REMEMBERED_S."""
        times = self._times
        while times:
            key = next(iter(times))
            if now - times[key] <= REMEMBERED_S:
                return
            del times[key]


#: The largest number of remembered nodes; beyond it the oldest is forgotten, and at worst tried once more.
DEPARTED_MAX: Final = 512

#: The expiry of nodes that left for good: their ids are not used again.
NEVER: Final = float("inf")


class DepartedNodes:
    """Dead, departed or undialable nodes, each remembered until a time."""

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
        """Return whether a node is still remembered."""
        until = self._until.get(node)
        if until is None:
            return False
        if until > now:
            return True
        del self._until[node]
        return False

    def has_left(self, node: NodeId) -> bool:
        """Return whether a node has left for good."""
        return self._until.get(node) == NEVER

    def discard(self, node: NodeId) -> None:
        """Forget a node."""
        self._until.pop(node, None)

    def clear(self) -> None:
        """Forget all nodes except those that left for good."""
        self._until = {node: until for node, until in self._until.items() if until == NEVER}
