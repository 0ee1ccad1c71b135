"""Subscribers that a publisher waits for (docs/design.md 8.5).

A subscriber with a full queue sends PAUSE, again and again, for one of its entries. Until its RESUME, publications wait that
match the entry and are for this subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.timers import DeadlineTable
from iris_py.patterns.topic.interest import WIDE_TAG

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.topic_plans import TopicPlan

#: Time after which a publisher continues unless it is asked again to wait (seconds): the subscriber may be gone. Too small: a
#: stall of the subscriber looks like its end, and it drops messages; too large: publishers wait for dead subscribers.
PAUSE_S: Final = 4.0
#: Remembered pauses, of all entries. Further subscribers are not waited for, and drop messages beyond their queue. Too small:
#: subscribers with policy ``block`` lose messages; too large: memory that a node inside the network can take.
PAUSES_MAX: Final = 16_384


class Pauses:
    """The subscribers that one publisher waits for.

    Attributes:
        by_tag: The nodes, by the tag of the entry.
    """

    def __init__(self) -> None:
        self.by_tag: dict[int, dict[NodeId, None]] = {}
        # Invariant: the same tags and nodes as in `by_tag`, at most PAUSES_MAX.
        self._expiry: DeadlineTable[tuple[int, NodeId]] = DeadlineTable()

    def __bool__(self) -> bool:
        """Tell whether the publisher waits for any subscriber."""
        return bool(self.by_tag)

    def __contains__(self, pause: tuple[int, NodeId]) -> bool:
        """Tell whether the publisher waits for a subscriber, by the tag of an entry and the node."""
        return pause in self._expiry

    @property
    def is_full(self) -> bool:
        """Whether the publisher waits for no further subscriber."""
        return len(self._expiry) >= PAUSES_MAX

    def add(self, tag: int, node: NodeId, now: float) -> None:
        """Wait for a subscriber for ``PAUSE_S``, or for so long again."""
        self.by_tag.setdefault(tag, {})[node] = None
        self._expiry.set((tag, node), now + PAUSE_S)

    def remove(self, tag: int, node: NodeId) -> bool:
        """Wait for a subscriber no longer; return whether the publisher did."""
        if (tag, node) not in self._expiry:
            return False
        self._expiry.cancel((tag, node))
        self._forget(tag, node)
        return True

    def clear(self) -> bool:
        """Wait for no subscriber; return whether the publisher did."""
        pauses = [(tag, node) for tag, nodes in self.by_tag.items() for node in nodes]
        for pause in pauses:
            self.remove(*pause)
        return bool(pauses)

    def is_paused(self, plan: TopicPlan) -> bool:
        """Tell whether the publications to a topic wait."""
        tags = self.by_tag if WIDE_TAG in plan.match.tags else plan.match.tags
        nodes = plan.route.nodes
        casts = [cast.tag for cast in plan.route.casts]  # any member of their groups may be waited for
        return any(node in nodes or tag in casts for tag in tags for node in self.by_tag.get(tag, ()))

    def handle_timeout(self, now: float) -> bool:
        """End the pauses that were not renewed; return whether any has ended. Harmless if early."""
        expired = self._expiry.expired(now)
        for tag, node in expired:
            self._forget(tag, node)
        return bool(expired)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._expiry.deadline()

    def _forget(self, tag: int, node: NodeId) -> None:
        nodes = self.by_tag[tag]
        del nodes[node]
        if not nodes:
            del self.by_tag[tag]
