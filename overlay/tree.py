"""The tree of a group: a heap of fan-out FANOUT_MAX in an array, so that it is never deeper than it must be.

Members are numbered as they come. The children of the root are the first FANOUT_MAX, the children of number i are the
numbers from (i + 1) * FANOUT_MAX on. A newcomer gets the next number: it becomes a child of the inner node with room that is nearest to
the root. For one that is lost the last one, a leaf, takes its number. So a change concerns three nodes at most, inner nodes are
those who have been there longest, and they are likely to stay longest (Castro et al. 2002 balance Scribe's trees by pushing down instead;
here the root knows all members anyway).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overlay.group_messages import FANOUT_MAX

if TYPE_CHECKING:
    from overlay.ids import NodeId


class Tree:
    """Number the members of a group."""

    __slots__ = ("_numbers", "_order")

    def __init__(self) -> None:
        # Invariant: _order[_numbers[node]] is node, for all nodes.
        self._order: list[NodeId] = []
        self._numbers: dict[NodeId, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._numbers

    def children(self, node: NodeId | None) -> list[NodeId]:
        """Return the children of a node, None for the root."""
        number = -1 if node is None else self._numbers.get(node, len(self._order))
        first = (number + 1) * FANOUT_MAX
        return self._order[first : first + FANOUT_MAX]

    def parent(self, node: NodeId) -> NodeId | None:
        """Return the parent of a node, None for the root."""
        number = self._numbers[node] // FANOUT_MAX - 1
        return None if number < 0 else self._order[number]

    def inner_nodes(self) -> list[NodeId]:
        """Return the nodes that have children."""
        return self._order[: max(0, -(-len(self._order) // FANOUT_MAX) - 1)]

    def depth(self, node: NodeId) -> int:
        """Return how many hops a node is away from the root."""
        depth, number = 1, self._numbers[node]
        while number >= FANOUT_MAX:
            number = number // FANOUT_MAX - 1
            depth += 1
        return depth

    def add(self, node: NodeId) -> list[NodeId]:
        """Add a node that is not in the tree; return the inner nodes whose children changed."""
        self._numbers[node] = len(self._order)
        self._order.append(node)
        parent = self.parent(node)
        return [] if parent is None else [parent]

    def remove(self, node: NodeId) -> tuple[list[NodeId], NodeId | None]:
        """Remove a node.

        Returns:
            The inner nodes whose children changed, and who took its place, None for nobody.
        """
        parent, last_parent = self.parent(node), self.parent(self._order[-1])
        number = self._numbers.pop(node)
        last = self._order.pop()
        moved = None
        if last != node:
            moved = last
            self._order[number] = last
            self._numbers[last] = number
        concerned = dict.fromkeys(inner for inner in (parent, last_parent) if inner is not None and inner != node)
        if moved is not None and self.children(moved):
            concerned[moved] = None
        return list(concerned), moved
