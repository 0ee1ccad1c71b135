"""Signatures, as the overlay sees them: how they are made is the business of its owner (docs/design.md 2.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId

#: Room for the key and the signature of any scheme of today that is not made against quantum computers.
SIGNATURE_BYTES_MAX: Final = 128


class Signer(Protocol):
    """Sign for the local node and for groups whose keys it has, and tell whether others have signed something."""

    def sign(self, data: bytes, /) -> bytes:
        """Return the signature of the local node, at most SIGNATURE_BYTES_MAX. Nobody can make it who is not this node."""

    def verify(self, node: NodeId, data: bytes, signature: bytes, /) -> bool:
        """Return whether a signature of some data is that of a node. Nothing raises."""

    def permit(self, group: GroupId, data: bytes, /) -> bytes:
        """Return the permit of a group for some data, at most SIGNATURE_BYTES_MAX; nothing if the node lacks its keys."""

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes, /) -> bool:
        """Return whether a permit of some data was made with the keys of a group. Nothing raises."""
