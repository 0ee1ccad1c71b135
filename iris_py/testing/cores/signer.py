"""Signatures for simulations: they cost nothing, and what is wrongly signed shows all the same."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from iris_overlay.ring.messages import Returned, Routed, signed_part

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId

SignedMessage = TypeVar("SignedMessage", Routed, Returned)


class NamedSigner:
    """Signs with the id of a node and a checksum; implements :class:`iris_overlay.environment.Signer`.

    Anybody could forge that. In a simulation nobody does, but a message that is signed by the wrong node, or not at all, is
    refused as in earnest.

    Args:
        local: The node that signs.
    """

    def __init__(self, local: NodeId) -> None:
        self._local = local

    def sign(self, data: bytes) -> bytes:
        """Return the signature of the node."""
        return self._local + zlib.crc32(data).to_bytes(4, "big")

    def verify(self, node: NodeId, data: bytes, signature: bytes) -> bool:
        """Return whether a signature is that of a node."""
        return signature == node + zlib.crc32(data).to_bytes(4, "big")

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return the permit of a group, whose keys every node has."""
        return group + zlib.crc32(data).to_bytes(4, "big")

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Return whether a permit is that of a group."""
        return permit == group + zlib.crc32(data).to_bytes(4, "big")


def signed(message: SignedMessage) -> SignedMessage:
    """Return a message of the ring as its source would have signed it."""
    return msgspec.structs.replace(message, signature=NamedSigner(message.source.id).sign(signed_part(message)))


class TrustingSigner(NamedSigner):
    """Needs no permits, and makes none: for tests that make messages of groups by hand."""

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return nothing."""
        return b""

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Return that it is."""
        return True
