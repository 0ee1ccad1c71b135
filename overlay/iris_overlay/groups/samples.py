"""Deal samples of a large group to its watchers, so that every member is in about as many samples as every other.

Requesters choose among the members of their sample alone, so a member that is in more samples gets more requests. The next
members are always those that are in the fewest samples, in random order: like cards dealt round after round from a shuffled
deck, but members and watchers may come and go meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from iris_overlay.ids import NodeId
    from iris_overlay.rng import Rng


class Dealer:
    """Count in how many samples each member is."""

    __slots__ = ("_buckets", "_places", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        # Who is in how many samples. Invariant: _places[node] = (uses, index) exactly when _buckets[uses][index] is node.
        self._buckets: list[list[NodeId]] = [[]]
        self._places: dict[NodeId, tuple[int, int]] = {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self._places

    def uses(self, node: NodeId) -> int:
        """Return in how many samples a member is."""
        return self._places[node][0]

    def uses_min(self) -> int:
        """Return in how many samples the least used member is."""
        return next((uses for uses, bucket in enumerate(self._buckets) if bucket), 0)

    def add(self, node: NodeId) -> None:
        """Add a member that is in no sample."""
        self._put(node, 0)

    def remove(self, node: NodeId) -> None:
        """Remove a member."""
        self._take(node)

    def deal(self, count: int, excluded: Container[NodeId] = ()) -> list[NodeId]:
        """Choose members for a sample, the least used first; fewer than `count` if there are no more."""
        chosen: list[NodeId] = []
        for bucket in self._buckets:
            if len(chosen) == count:
                break
            # A partial Fisher-Yates shuffle of the bucket: it visits each node once, in random order.
            size = len(bucket)
            for end in range(size, 0, -1):
                index = self._rng.randrange(end)
                self._swap(bucket, index, end - 1)
                node = bucket[end - 1]
                if node not in excluded:
                    chosen.append(node)
                    if len(chosen) == count:
                        break
        for node in chosen:
            uses = self._take(node)
            self._put(node, uses + 1)
        return chosen

    def release(self, node: NodeId) -> None:
        """Handle that a sample lost a member; harmless if the group did too."""
        if node in self._places:
            uses = self._take(node)
            self._put(node, max(0, uses - 1))

    def _put(self, node: NodeId, uses: int) -> None:
        while len(self._buckets) <= uses:
            self._buckets.append([])
        self._places[node] = (uses, len(self._buckets[uses]))
        self._buckets[uses].append(node)

    def _take(self, node: NodeId) -> int:
        uses, index = self._places[node]
        bucket = self._buckets[uses]
        self._swap(bucket, index, len(bucket) - 1)
        bucket.pop()
        del self._places[node]
        while len(self._buckets) > 1 and not self._buckets[-1]:
            self._buckets.pop()
        return uses

    def _swap(self, bucket: list[NodeId], a: int, b: int) -> None:
        if a != b:
            bucket[a], bucket[b] = bucket[b], bucket[a]
            self._places[bucket[a]] = (self._places[bucket[a]][0], a)
            self._places[bucket[b]] = (self._places[bucket[b]][0], b)
