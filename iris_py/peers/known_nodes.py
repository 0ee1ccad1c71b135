"""Names, addresses and zones of the nodes this node has met, by id, kept after their links have ended.

Names are labels for people, never an identity: neither routing nor admission uses them. Two nodes may have the same name, and a
node can copy another's. Displays show the id beside a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

__all__ = ["KNOWN_NODES_MAX", "KnownNodes"]

#: Number of nodes remembered. Too small: the death of a node is reported without its name and address; too large: memory, at
#: most some 500 bytes each.
KNOWN_NODES_MAX: Final = 4096


class KnownNodes:
    """A bounded table of the nodes that had a link, with their latest descriptions."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, NodeName] = {}

    def learn(self, id: NodeId, node: NodeName) -> None:  # noqa: A002
        """Remember a node's description; beyond the bound, forget the node remembered first."""
        self._nodes.pop(id, None)  # to the end of the order
        self._nodes[id] = node
        if len(self._nodes) > KNOWN_NODES_MAX:
            del self._nodes[next(iter(self._nodes))]

    def find(self, id: NodeId) -> NodeName:  # noqa: A002
        """Return the known description of a node; for an unknown node only its id."""
        return self._nodes.get(id) or NodeName(id.hex())
