"""One end of a tunnel between two nodes: a handshake, and the encryption of its chunks (docs/design.md section 11).

The module also makes the offer of a caller to the members it asks for a tunnel: the first message of a handshake (11.2).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_py.patterns.request.pending import RequestOffer
from iris_py.patterns.tunnel.duplex import DuplexEnd
from iris_py.wire.headers import NO_HEADERS
from iris_security import Handshake, RecordOpener, RecordSealer

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.node_info import NodeInfo
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.tunnel.duplex import Piece, Way
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers
    from iris_security import TransportKeys

#: The data before the handshake message: the caller's window.
OPEN = struct.Struct(">Q")
#: Set in the ids on the member's chunks, because each node numbers the tunnels it opens.
FROM_MEMBER = 1 << 63


class TunnelOffer(RequestOffer):
    """The offer of a tunnel to consecutive members.

    Args:
        window_bytes: The caller's window.
        local: The caller.
        entropy: The source of a new key for each member.
        headers: The caller's named values.
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
        """Return the payload of a TUNNEL_OPEN to a member. Only the last member's answer is valid."""
        prologue = prologue_of(self.group, self._local.id, peer.id, tunnel_id)
        self.handshake = make_handshake(self.group, prologue, self._entropy, initiator=True)
        return OPEN.pack(self.window_bytes) + self.handshake.write_message()


def prologue_of(group: Group, caller: bytes, member: bytes, tunnel_id: int) -> bytes:
    """Return the parameters that both sides must agree on; all parts have a fixed size."""
    return b"iris tunnel" + group.id + caller + member + tunnel_id.to_bytes(8, "big")


def make_handshake(group: Group, prologue: bytes, entropy: Callable[[int], bytes], *, initiator: bool) -> Handshake:
    """Return a handshake under the key of a cluster, with a new ephemeral key."""
    psk = group.keys.tunnel_psk()
    return Handshake(initiator=initiator, psk=psk, prologue=prologue, ephemeral_private=entropy(32))


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelTerms:
    """The outcome of a handshake between a caller and a member, as one side sees it."""

    group: Group
    """The cluster to which the tunnel was opened."""
    peer: Peer
    """The node at the other end."""
    keys: TransportKeys = field(repr=False)
    """The keys of both directions."""
    window_bytes: int
    """Bytes the peer may send before this side takes any."""
    credit_bytes: int
    """Bytes this side may send before the peer takes any."""
    headers: Headers = NO_HEADERS
    """The caller's named values."""


class TunnelEnd(DuplexEnd):
    """One end of a tunnel between two nodes, at the caller or at the member.

    Args:
        id: The id on this side's chunks.
        terms: The outcome of the handshake.
        way: The transport of its chunks: a link, or the ring.
        changed: A table to which this end adds itself after a change that its application may wait for.
        registration: The member's handler; None at the caller.

    Attributes:
        is_confirmed: Whether the peer has proved to hold the keys. Until then the member sends nothing.
        has_proved: Whether this side has proved to hold the keys: the member by its acceptance, the caller by a sealed chunk.
    """

    __slots__ = ("_opener", "_sealer", "group", "has_proved", "is_confirmed", "peer", "registration")

    def __init__(
        self,
        id: int,  # noqa: A002
        terms: TunnelTerms,
        *,
        way: Way[TunnelEnd],
        changed: dict[TunnelEnd, None],
        registration: Registration | None = None,
    ) -> None:
        super().__init__(
            id,
            window_bytes=terms.window_bytes,
            credit_bytes=terms.credit_bytes,
            way=way,
            changed=changed,
            headers=terms.headers,
        )
        self.group = terms.group
        self.peer = terms.peer
        self.registration = registration
        self.is_confirmed = registration is None
        self.has_proved = registration is not None
        self._sealer = RecordSealer(terms.keys.send)
        self._opener = RecordOpener(terms.keys.receive)

    def confirm(self) -> None:
        """Prove possession of the keys to the peer, by a first chunk."""
        self.tell_credit()

    def seal(self, chunk: list[Piece]) -> bytes:
        """Encrypt a chunk, given in parts, under the keys of the tunnel."""
        self.has_proved = True
        return self._sealer.seal(b"".join(chunk))

    def receive_sealed(self, sealed: bytes | memoryview) -> None:
        """Handle an encrypted chunk of the peer, in the order of encryption.

        Raises:
            AuthenticationError: The chunk is not the peer's next one. The state is unchanged.
        """
        chunk = self._opener.open(sealed)
        if not self.is_confirmed:
            self.is_confirmed = True
            if self.is_ready:
                self.way.add(self)
        self.receive_frames(chunk, 0, len(chunk))

    def _become_ready(self) -> None:
        self.is_ready = True
        if self.is_confirmed or self._reset is not None:
            self.way.add(self)
