"""The offer of a caller to the members that it asks for a tunnel: the first message of a handshake (docs/design.md 11.2)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.wire.headers import NO_HEADERS
from iris_security import Handshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.messages import NodeInfo
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: What is before the handshake message: the window of the caller.
OPEN = struct.Struct(">Q")
#: Set in the ids that the member's chunks carry: each node counts the tunnels that it opens.
FROM_MEMBER = 1 << 63


class Offer:
    """The offer of one opening to the members that are asked, one after the other.

    Args:
        group: The cluster.
        window_bytes: The caller's window.
        local: The caller.
        entropy: For a fresh key for each member.
        headers: What the caller gives beside it.
    """

    def __init__(
        self,
        group: Group,
        window_bytes: int,
        local: NodeInfo,
        entropy: Callable[[int], bytes],
        headers: Headers = NO_HEADERS,
    ) -> None:
        self.group = group
        self.window_bytes = window_bytes
        self.headers = headers
        self.handshake: Handshake | None = None
        self._local = local
        self._entropy = entropy

    def make(self, peer: Peer, tunnel_id: int) -> bytes:
        """Return the payload of a TUNNEL_OPEN to a member. Only the last member can be answered by."""
        prologue = prologue_of(self.group, self._local.id, peer.id, tunnel_id)
        self.handshake = make_handshake(self.group, prologue, self._entropy, initiator=True)
        return OPEN.pack(self.window_bytes) + self.handshake.write_message()


def prologue_of(group: Group, caller: bytes, member: bytes, tunnel_id: int) -> bytes:
    """Return what both sides have to agree on; all parts have a fixed size."""
    return b"iris tunnel" + group.id + caller + member + tunnel_id.to_bytes(8, "big")


def make_handshake(group: Group, prologue: bytes, entropy: Callable[[int], bytes], *, initiator: bool) -> Handshake:
    """Return a handshake under the key of a cluster, with a fresh ephemeral key."""
    psk = group.keys.tunnel_psk()
    return Handshake(initiator=initiator, psk=psk, prologue=prologue, ephemeral_private=entropy(32))
