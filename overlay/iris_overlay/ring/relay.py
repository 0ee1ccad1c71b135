"""Reaching nodes that cannot be dialled: back along a recorded path, or through the ring to their id.

A node that nobody can dial opens links itself, to its leaves at least. So a link message for it is **relayed**: routed to its
id, where its neighbour gives it to the link. Its source signs for it, so nobody on the way can speak for another node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_overlay.errors import MessageError
from iris_overlay.messages import NodeInfo
from iris_overlay.ring.messages import (
    Direct,
    JoinAnswer,
    LeafAck,
    LeafProbe,
    Leaving,
    Returned,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
    signed_part,
)

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.ring.messages import RingMessage
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring

#: What may come through the ring instead of over a link.
RelayedMessage: TypeAlias = LeafProbe | LeafAck | Direct | JoinAnswer | Leaving


class Relaying:
    """Wrap and unwrap link messages."""

    __slots__ = ("_ring", "_router")

    def __init__(self, ring: Ring, router: Router) -> None:
        self._ring = ring
        self._router = router

    def send(self, peer: NodeInfo, message: RingMessage, now: float) -> None:
        """Send a message by a link if there may be one, else through the ring."""
        if peer.addresses or peer.id in self._ring.links:
            self._ring.tell(peer, message)
        else:
            self.relay(peer.id, encode_ring_message(message), now)

    def relay(self, to: NodeId, data: bytes, now: float) -> None:
        """Send a link message to a node through the ring."""
        self._router.originate(RoutedKind.RELAY, to, data, now, tried=(to,))

    def send_back(self, path: tuple[NodeId, ...], data: bytes) -> None:
        """Send a link message of the local node back along a path, to its first node."""
        ring = self._ring
        if len(path) == 1:
            ring.tell_bytes(self._node_before(path), data)
            return
        message = Returned(path, ring.local, data, path[0], self._router.next_number())
        self.pass_back(msgspec.structs.replace(message, signature=ring.signer.sign(signed_part(message))))

    def pass_back(self, message: Returned) -> None:
        """Send what comes back one step further."""
        path = message.path
        self._ring.tell(self._node_before(path), msgspec.structs.replace(message, path=path[:-1]))

    def _node_before(self, path: tuple[NodeId, ...]) -> NodeInfo:
        return self._ring.find(path[-1]) or NodeInfo(path[-1], ())

    def send_another_way(self, peer: NodeId, data: bytes, now: float) -> bool:
        """Send what could not be given to a peer another way, unless its sender asks anew by itself.

        Returns:
            Whether it is a probe, which counts its ways itself.
        """
        message = decode_ring_message(data)
        if isinstance(message, Routed):
            self._router.hop_refused(message.sequence, now)
        elif isinstance(message, Direct | LeafAck):
            self.relay(peer, data, now)
        elif isinstance(message, Returned):
            self.relay(message.to, encode_ring_message(msgspec.structs.replace(message, path=())), now)
        return isinstance(message, LeafProbe)

    def unwrap(self, data: bytes, source: NodeId, now: float) -> tuple[NodeId, RelayedMessage] | None:
        """Return a link message that came through the ring, and its source; None if it is of no kind that may, or another's.

        Args:
            data: The message.
            source: The node that surely sent it: maybe the last one on a way back that was broken.
            now: Monotonic seconds.
        """
        try:
            message = decode_ring_message(data)
            if isinstance(message, Returned) and not message.path and message.to == self._ring.local.id:
                if not self._router.is_genuine(message, now):
                    return None
                source = message.source.id
                message = decode_ring_message(message.payload)
        except MessageError:
            self._ring.counters.messages_invalid += 1
            return None
        # Whatever else there is speaks for a link, and must not nest.
        if isinstance(message, Direct):
            claimed = message.source.id
        elif isinstance(message, LeafProbe | LeafAck | JoinAnswer):
            claimed = message.info.id
        elif isinstance(message, Leaving):
            claimed = source
        else:
            self._ring.counters.messages_invalid += 1
            return None
        if claimed != source:
            self._ring.counters.messages_invalid += 1
            return None
        return source, message
