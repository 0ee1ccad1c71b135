"""A message that a pattern gives the node to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: (group, peer, kind, id, argument, payload, headers)
Outgoing: TypeAlias = tuple["Group", "Peer", int, int, int, bytes, "Headers"]
