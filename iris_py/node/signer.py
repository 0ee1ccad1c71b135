"""The identity of a node, as the overlay wants it: for messages that pass other nodes on their way (docs/design.md 2.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_security import AuthenticationError, Purpose, verify_signature

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_security import Identity


class OverlaySigner:
    """Implements :class:`iris_overlay.signing.Signer`.

    Args:
        identity: This node.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def sign(self, data: bytes) -> bytes:
        """Return the signature of this node."""
        return self._identity.sign(Purpose.OVERLAY, data)

    def verify(self, node: NodeId, data: bytes, signature: bytes) -> bool:
        """Tell whether a signature is that of a node."""
        try:
            return verify_signature(Purpose.OVERLAY, data, signature) == node
        except AuthenticationError:
            return False
