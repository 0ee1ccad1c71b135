"""Messages to undialable nodes: back along a recorded path, or through the ring to their id.

An undialable node opens links itself, at least to its leaves. So a link message for it is **relayed**: routed to its id, where
a neighbour has a link. The source signs the message, so no node on the way can speak for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_overlay.errors import MessageError
from iris_overlay.node_info import NodeInfo
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
    from iris_overlay.ring.routing import Router
    from iris_overlay.ring.state import Ring

#: The link messages that may come through the ring.
RelayedMessage: TypeAlias = LeafProbe | LeafAck | Direct | JoinAnswer | Leaving


class Relaying:
    """Carry link messages to nodes without a link: through the ring, or back along a recorded path."""

    __slots__ = ("_ring", "_router")

    def __init__(self, ring: Ring, router: Router) -> None:
        self._ring = ring
        self._router = router

    def send(self, peer: NodeInfo, payload: bytes, now: float) -> None:
        """Send a payload of the layer above over a link if one exists or may open, else through the ring."""
        data = self._ring.encode_direct(payload)
        if peer.addresses or peer.id in self._ring.links:
            self._ring.tell_bytes(peer, data)
        else:
            self.relay(peer.id, data, now)

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
        """Pass a returning message one step further along its path."""
        path = message.path
        self._ring.tell(self._node_before(path), msgspec.structs.replace(message, path=path[:-1]))

    def _node_before(self, path: tuple[NodeId, ...]) -> NodeInfo:
        return self._ring.find(path[-1]) or NodeInfo(path[-1], ())

    def send_another_way(self, peer: NodeId, data: bytes, now: float) -> bool:
        """Send an undeliverable link message another way, except kinds that their sender repeats.

        Returns:
            Whether the message is a probe, which has its own repetitions.
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
        """Return a link message from the ring with its source; None for a forbidden kind or a wrong sender.

        Args:
            data: The message.
            source: The authenticated sender; after a broken path back, the last node on it.
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
        # All other kinds concern a link, and must not nest.
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
