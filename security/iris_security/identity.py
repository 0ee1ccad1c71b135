"""The identity of a node: a key pair made at the start of its process and forgotten at the end (docs/design.md 2.7).

The node id is a hash of the public key, so no node can take the id of another. Each signature carries the public key
(signature.py) and so proves the id of the signer without a look-up.

Limits: an insider can make any number of identities, and can try keys until an id has a chosen position on the ring. An id has
128 bits of the hash. Finding a second key for another node's id takes 2^128 tries. Finding two own keys with the same id takes
2^64 tries and is useless. Anybody can sign for a key of low order, but no key made as in RFC 8032 has a low order.
"""

import enum
import hashlib

from iris_security.keyring import NODE_ID_BYTES
from iris_security.signature import SEED_BYTES, SigningKey, verify

IDENTITY_SEED_BYTES = SEED_BYTES


class Purpose(enum.Enum):
    """The purpose of a signature by a node; the value is the label mixed into the signed bytes."""

    INITIATOR = b"link initiator"
    """The hash of a link's whole handshake, signed by the initiator."""
    RESPONDER = b"link responder"
    """The hash of a link's handshake before the payload of the second message, signed by the responder."""
    OVERLAY = b"overlay"
    """A message of the overlay that other nodes forward."""
    DATAGRAM = b"datagram"
    """The header and the payload of a datagram."""


class Identity:
    """The key pair of a node, and its id.

    Attributes:
        node_id: The id, `NODE_ID_BYTES` of SHA-256("iris node id" || public key).
        public_key: The public key, 32 bytes.
    """

    __slots__ = ("_key", "node_id", "public_key")

    def __init__(self, seed: bytes) -> None:
        """Make the key pair and the id from a seed.

        Args:
            seed: The private key: fresh entropy of `IDENTITY_SEED_BYTES`.

        Raises:
            ValueError: The seed has the wrong size.
        """
        self._key = SigningKey(seed)
        self.public_key: bytes = self._key.public_key
        self.node_id: bytes = _node_id_of(self.public_key)

    def __repr__(self) -> str:
        """Show the id without the private key."""
        return f"Identity({self.node_id.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse pickling, which would copy the private key."""
        raise TypeError("an Identity is not pickled: its private key never leaves its process")

    def sign(self, purpose: Purpose, data: bytes) -> bytes:
        """Return this node's signature of `data` for a purpose, `SIGNATURE_BYTES`."""
        return self._key.sign(purpose.value, data)


def verify_signature(purpose: Purpose, data: bytes, signature: bytes) -> bytes:
    """Verify a signature and return the id of the node that made it.

    Args:
        purpose: The expected purpose.
        data: The signed data.
        signature: The signature as received.

    Raises:
        AuthenticationError: The signature is not valid for this purpose and data.
    """
    return _node_id_of(verify(purpose.value, data, signature))


def _node_id_of(public_key: bytes) -> bytes:
    return hashlib.sha256(b"iris node id" + public_key).digest()[:NODE_ID_BYTES]
