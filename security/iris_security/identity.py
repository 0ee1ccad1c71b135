"""The identity of a node: a key pair that its process makes at its start, and forgets with its end (docs/design.md 2.7).

The id of a node is a hash of the public key. So nobody can take the id of another node: what a node signs shows that it is the
node of that id, and nobody has to be asked for the key, which travels with each signature (signature.py).

What this does not give: whoever is in the network makes as many identities as it likes, and tries keys until an id lies where
it wants it on the ring. An id has 128 bits of the hash. To find a second key for the id of another node takes 2^128 tries; two
keys of one's own with the same id take 2^64, and are of no use to anybody. With a key of low order anybody can sign, but nobody
who makes a key as RFC 8032 says has one.
"""

import enum
import hashlib

from iris_security.keyring import NODE_ID_BYTES
from iris_security.signature import SEED_BYTES, SigningKey, verify

IDENTITY_SEED_BYTES = SEED_BYTES


class Purpose(enum.Enum):
    """Say what a signature is for; the value is its label."""

    INITIATOR = b"link initiator"
    """The hash of the whole handshake of a link, by the node that dialled."""
    RESPONDER = b"link responder"
    """The hash of the handshake of a link before the payload of the second message, by the node that was dialled."""
    OVERLAY = b"overlay"
    """A message of the overlay that passes other nodes on its way."""
    DATAGRAM = b"datagram"
    """The header and the payload of a datagram."""


class Identity:
    """The key pair of a node, and its id.

    Attributes:
        node_id: The id, `NODE_ID_BYTES` of SHA-256("iris node id" || public key).
        public_key: 32 bytes.
    """

    __slots__ = ("_key", "node_id", "public_key")

    def __init__(self, seed: bytes) -> None:
        """Make the key pair.

        Args:
            seed: Fresh entropy of `IDENTITY_SEED_BYTES`: the private key.

        Raises:
            ValueError: The seed has the wrong size.
        """
        self._key = SigningKey(seed)
        self.public_key: bytes = self._key.public_key
        self.node_id: bytes = _node_id_of(self.public_key)

    def __repr__(self) -> str:
        """Show the id, and nothing of the private key."""
        return f"Identity({self.node_id.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse to be pickled: the private key would travel with it."""
        raise TypeError("an Identity is not pickled: its private key never leaves its process")

    def sign(self, purpose: Purpose, data: bytes) -> bytes:
        """Return the signature of some data, `SIGNATURE_BYTES`."""
        return self._key.sign(purpose.value, data)


def verify_signature(purpose: Purpose, data: bytes, signature: bytes) -> bytes:
    """Return the id of the node that made a signature.

    Args:
        purpose: What it has to be for.
        data: What it has to be of.
        signature: As it came.

    Raises:
        AuthenticationError: It is no such signature.
    """
    return _node_id_of(verify(purpose.value, data, signature))


def _node_id_of(public_key: bytes) -> bytes:
    return hashlib.sha256(b"iris node id" + public_key).digest()[:NODE_ID_BYTES]
