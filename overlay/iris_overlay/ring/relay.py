"""Reaching nodes that cannot be dialled: back along a recorded path, or through the ring to their id.

A node that nobody can dial opens links itself, to its leaves at least. So a link message for it is **relayed**: routed to its
id, where its neighbour gives it to the link. What may be relayed names its source itself; within a network, whose members
have all shown that they know its secret, that is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
)

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.ring.messages import RingMessage
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring


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

    def send_back(self, path: tuple[NodeId, ...], source: NodeInfo, data: bytes) -> None:
        """Send a link message one step back along a path, towards its first node."""
        via = self._ring.find(path[-1]) or NodeInfo(path[-1], ())
        if len(path) == 1 and source.id == self._ring.local.id:
            self._ring.tell_bytes(via, data)
        else:
            self._ring.tell(via, Returned(path[:-1], source, data))

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
            self.relay(message.path[0] if message.path else peer, message.payload, now)
        return isinstance(message, LeafProbe)

    def unwrap(
        self, data: bytes, relayed_by: NodeId | None
    ) -> tuple[NodeId, LeafProbe | LeafAck | Direct | JoinAnswer | Leaving] | None:
        """Return a link message that came through the ring, and its source; None if it is of no kind that may.

        Args:
            data: The message.
            relayed_by: Who relayed it, if it did not come back along a path.
        """
        try:
            message = decode_ring_message(data)
        except MessageError:
            self._ring.counters.messages_invalid += 1
            return None
        if isinstance(message, Direct):
            return message.source.id, message
        # Whatever else there is speaks for a link, and must not nest.
        if isinstance(message, LeafProbe | LeafAck | JoinAnswer):
            return message.info.id, message
        if isinstance(message, Leaving) and relayed_by is not None:
            return relayed_by, message
        self._ring.counters.messages_invalid += 1
        return None
