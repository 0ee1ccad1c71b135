"""A node, as it describes itself and as others describe it."""

from __future__ import annotations

import msgspec


class NodeName(msgspec.Struct, frozen=True):
    """A node, as others describe it."""

    id: str
    """The node id: 32 hexadecimal digits."""
    address: str = ""
    """Where it listens, ``host:port``; empty if nobody can dial it."""
    zone: str = ""
    """Where it says it is."""
    name: str = ""
    """Its name; empty if it tells none, or this node has not heard it. A label for people: two nodes may have
    the same name, and any node can take any."""

    @property
    def short(self) -> str:
        """The first digits of the id, and the name if one is known: for texts that people read."""
        return short_name(self.id, self.name)


def short_name(node_id: str, name: str) -> str:
    """Return the first eight digits of a node id, with the name of the node in brackets if one is known."""
    return f"{node_id[:8]} ({name})" if name else node_id[:8]
