"""The identity of a node: a key pair of Ed25519 (RFC 8032) that its process makes at its start, and forgets with its end.

The id of a node is a hash of the public key. So nobody can take the id of another node: what a node signs shows that it is the
node of that id, and nobody has to be asked for the key, which travels with each signature.

What this does not give: whoever is in the network makes as many identities as it likes, and tries keys until an id lies where
it wants it on the ring. An id has 128 bits of the hash. To find a second key for the id of another node takes 2^128 tries; two
keys of one's own with the same id take 2^64, and are of no use to anybody. With a key of low order anybody can sign, but nobody
who makes a key as RFC 8032 says has one.

A signature is `public key:32 || Ed25519(b"iris " || purpose || 0x00 || data):64`. Each purpose has a label of its own, so what
was signed for one is never taken for another.
"""

import enum
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from iris_security.errors import AuthenticationError
from iris_security.keyring import NODE_ID_BYTES

#: A private key of Ed25519 (RFC 8032 section 5.1.5).
IDENTITY_SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
#: A public key, and what it verifies.
SIGNATURE_BYTES = PUBLIC_KEY_BYTES + 64


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
        public_key: `PUBLIC_KEY_BYTES`.
    """

    __slots__ = ("_sign", "node_id", "public_key")

    def __init__(self, seed: bytes) -> None:
        """Make the key pair.

        Args:
            seed: Fresh entropy of `IDENTITY_SEED_BYTES`: the private key.

        Raises:
            ValueError: The seed has the wrong size.
        """
        if len(seed) != IDENTITY_SEED_BYTES:
            raise ValueError(f"an identity is made of {IDENTITY_SEED_BYTES} bytes, not {len(seed)}")
        private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = private.public_key().public_bytes_raw()
        self.node_id = node_id_of(self.public_key)
        self._sign = private.sign

    def __repr__(self) -> str:
        """Show the id, and nothing of the private key."""
        return f"Identity({self.node_id.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse to be pickled: the private key would travel with it."""
        raise TypeError("an Identity is not pickled: its private key never leaves its process")

    def sign(self, purpose: Purpose, data: bytes) -> bytes:
        """Return the signature of some data, `SIGNATURE_BYTES`."""
        return self.public_key + self._sign(_labelled(purpose, data))


def node_id_of(public_key: bytes) -> bytes:
    """Return the id of the node that has a public key."""
    return hashlib.sha256(b"iris node id" + public_key).digest()[:NODE_ID_BYTES]


def verify_signature(purpose: Purpose, data: bytes, signature: bytes) -> bytes:
    """Return the id of the node that made a signature.

    Args:
        purpose: What it has to be for.
        data: What it has to be of.
        signature: As it came.

    Raises:
        AuthenticationError: It is no such signature.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise AuthenticationError
    public_key = signature[:PUBLIC_KEY_BYTES]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature[PUBLIC_KEY_BYTES:], _labelled(purpose, data))
    except (InvalidSignature, ValueError):  # a ValueError: these bytes are no public key
        raise AuthenticationError from None
    return node_id_of(public_key)


def _labelled(purpose: Purpose, data: bytes) -> bytes:
    return b"iris " + purpose.value + b"\x00" + data
