"""Signatures for simulations: cheap, but wrong signatures are still detected."""

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

    The signatures are forgeable, but simulated nodes do not forge. A message with a missing or another node's signature is
    refused, as in a real network.
    """

    def __init__(self, local: NodeId) -> None:
        self._local = local

    def sign(self, data: bytes) -> bytes:
        """Return the signature of the node."""
        return self._local + zlib.crc32(data).to_bytes(4, "big")

    def verify(self, node: NodeId, data: bytes, signature: bytes) -> bool:
        """Return whether a signature is a node's."""
        return signature == node + zlib.crc32(data).to_bytes(4, "big")

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return the permit of a group, whose keys every node has."""
        return group + zlib.crc32(data).to_bytes(4, "big")

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Return whether a permit is a group's."""
        return permit == group + zlib.crc32(data).to_bytes(4, "big")


def signed(message: SignedMessage) -> SignedMessage:
    """Sign a message of the ring as its source."""
    return msgspec.structs.replace(message, signature=NamedSigner(message.source.id).sign(signed_part(message)))


class TrustingSigner(NamedSigner):
    """A signer that makes empty permits and accepts any permit, for tests that build group messages by hand."""

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return an empty permit."""
        return b""

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Return True: any permit is valid."""
        return True
