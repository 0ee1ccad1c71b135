"""The multicast tree of a group, and the samples of a large group for its watchers.

`Tree` is a heap of fan-out FANOUT_MAX in an array, so its depth is minimal. Each member has a number. The children of the root
are the first FANOUT_MAX numbers; the children of number i begin at (i + 1) * FANOUT_MAX. A new member gets the lowest free
number, as a child of the inner node with room nearest to the root. A lost leaf leaves its number free. A lost inner node is
replaced by the last leaf, so its children keep their place. So a change concerns at most three nodes, and the inner nodes are
the oldest members, which are likely to stay longest. (Scribe builds its trees from the routes, and has to push down children of
overloaded nodes: Castro et al. 2002, section 3. Here the root knows all members anyway.)

`Dealer` puts every member into about as many samples as every other. Callers choose only among the members of their sample, so
a member in more samples would get more requests. The next members are always those in the fewest samples, in random order, as
in dealing a shuffled deck round after round; but members and watchers may come and go meanwhile.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from iris_overlay.groups.messages import FANOUT_MAX

if TYPE_CHECKING:
    from collections.abc import Container

    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId


class Dealer:
    """Choose the members for the samples of a large group's watchers, so that all are in about as many samples."""

    __slots__ = ("_buckets", "_places", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        # The members by number of samples. Invariant: _places[node] = (uses, index) exactly when _buckets[uses][index] is node.
        self._buckets: list[list[NodeId]] = [[]]
        self._places: dict[NodeId, tuple[int, int]] = {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self._places

    def uses(self, node: NodeId) -> int:
        """Return the number of samples of a member."""
        return self._places[node][0]

    def uses_min(self) -> int:
        """Return the number of samples of the least used member."""
        return next((uses for uses, bucket in enumerate(self._buckets) if bucket), 0)

    def add(self, node: NodeId) -> None:
        """Add a member without samples."""
        self._put(node, 0)

    def remove(self, node: NodeId) -> None:
        """Remove a member."""
        self._take(node)

    def deal(self, count: int, excluded: Container[NodeId] = ()) -> list[NodeId]:
        """Choose members for a sample, the least used first; fewer than `count` if no more exist."""
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
        """Note the removal of a member from a sample; harmless for a former member."""
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


class Tree:
    """The multicast tree of a group: a heap of its members, in the order of their numbers."""

    __slots__ = ("_free", "_numbers", "_order")

    def __init__(self) -> None:
        # Invariants: _order[_numbers[node]] is node, for all nodes; the last element is a node; _free holds every free number
        # below the length, and perhaps some above.
        self._order: list[NodeId | None] = []
        self._numbers: dict[NodeId, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._numbers

    def children(self, node: NodeId | None) -> list[NodeId]:
        """Return the children of a node in the tree; None as the node stands for the root."""
        number = -1 if node is None else self._numbers.get(node, len(self._order))
        first = (number + 1) * FANOUT_MAX
        return [child for child in self._order[first : first + FANOUT_MAX] if child is not None]

    def parent(self, node: NodeId) -> NodeId | None:
        """Return the parent of a node in the tree; None stands for the root."""
        return self._parent_of(self._numbers[node])

    def inner_nodes(self) -> list[NodeId]:
        """Return the nodes with children."""
        candidates = self._order[: max(0, -(-len(self._order) // FANOUT_MAX) - 1)]
        return [node for node in candidates if node is not None and self.children(node)]

    def depth(self, node: NodeId) -> int:
        """Return the number of hops from the root to a node."""
        depth, number = 1, self._numbers[node]
        while number >= FANOUT_MAX:
            number = number // FANOUT_MAX - 1
            depth += 1
        return depth

    def add(self, node: NodeId) -> list[NodeId]:
        """Add a new node; return the inner nodes whose children changed."""
        number = len(self._order)
        while self._free:
            free = heappop(self._free)
            if free < number:
                number = free
                break
        if number == len(self._order):
            self._order.append(node)
        else:
            self._order[number] = node
        self._numbers[node] = number
        parent = self._parent_of(number)
        return [] if parent is None else [parent]

    def remove(self, node: NodeId) -> tuple[list[NodeId], NodeId | None]:
        """Remove a node; if it has children, the last leaf of the tree takes its place.

        Returns:
            The inner nodes with changed children, and the replacement of the node, or None.
        """
        number = self._numbers.pop(node)
        concerned: dict[NodeId, None] = {}
        self._note_parent(concerned, number)
        children = self._order[(number + 1) * FANOUT_MAX : (number + 2) * FANOUT_MAX]
        moved: NodeId | None = None
        if any(child is not None for child in children) or 2 * len(self._numbers) < len(self._order):
            # An inner node, or so few nodes left that the tree is higher than necessary.
            moved = self._order[-1]
        if moved is None or moved == node:
            moved = None
            self._order[number] = None
            heappush(self._free, number)
        else:
            self._note_parent(concerned, self._numbers[moved])
            self._order[-1] = None
            self._order[number] = moved
            self._numbers[moved] = number
        while self._order and self._order[-1] is None:
            self._order.pop()
        if moved is not None and self.children(moved):
            concerned[moved] = None
        concerned.pop(node, None)
        return list(concerned), moved

    def _parent_of(self, number: int) -> NodeId | None:
        number = number // FANOUT_MAX - 1
        return None if number < 0 else self._order[number]

    def _note_parent(self, concerned: dict[NodeId, None], number: int) -> None:
        parent = self._parent_of(number)
        if parent is not None:
            concerned[parent] = None
