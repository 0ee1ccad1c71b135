"""The description of a node, by itself or by others."""

from __future__ import annotations

from typing import Final

import msgspec

#: Digits of an id in a table. Too small: two nodes of a large network look alike; too large: no room for other columns.
ID_DIGITS: Final = 8


class NodeName(msgspec.Struct, frozen=True):
    """A node, as described by others."""

    id: str
    """The node id: 32 hexadecimal digits."""
    address: str = ""
    """Its listening ``host:port``; empty if it cannot be dialled."""
    zone: str = ""
    """The zone it claims."""
    name: str = ""
    """The label; empty for none, or if unknown here. A label proves nothing: two nodes may have the same one, and any node can
    take any.
    """

    @property
    def short(self) -> str:
        """The first digits of the id, and the label if known: for texts for people."""
        return short_name(self.id, self.name)


def short_name(node_id: str, name: str) -> str:
    """Return the first eight digits of a node id, with the label in brackets if known."""
    return f"{node_id[:8]} ({name})" if name else node_id[:8]


def short_id(node_id: str) -> str:
    """Return the first digits of a node's id, as tables show them."""
    return node_id[:ID_DIGITS]
