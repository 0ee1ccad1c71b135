"""The nodes that this one has met, by id: their names, addresses and zones, also after their links have ended.

Names are labels for people, never identity. Nothing routes or admits by a name; two nodes may have the same one, and a node can
take that of another one. So whoever shows a name shows the id beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

__all__ = ["KNOWN_NODES_MAX", "KnownNodes"]

#: Nodes that are remembered. Too small: the death of a node is reported without its name and address; too large: memory, at
#: most some 500 bytes each.
KNOWN_NODES_MAX: Final = 4096


class KnownNodes:
    """A bounded table of the nodes that had a link, as each has last described itself."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, NodeName] = {}

    def learn(self, id: NodeId, node: NodeName) -> None:  # noqa: A002
        """Remember a node. Of too many the one that was learnt first is forgotten."""
        self._nodes.pop(id, None)  # to the end of the order
        self._nodes[id] = node
        if len(self._nodes) > KNOWN_NODES_MAX:
            del self._nodes[next(iter(self._nodes))]

    def find(self, id: NodeId) -> NodeName:  # noqa: A002
        """Return what is known of a node: of one that was never met only the id."""
        return self._nodes.get(id) or NodeName(id.hex())
