"""Ed25519 signatures (RFC 8032) that carry their public key, for ids of nodes and groups, which are hashes of keys.

A signature is `public key:32 || Ed25519(b"iris " || label || 0x00 || data):64`. Each purpose has its own label, so
signatures are not valid for other purposes.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from iris_security.errors import AuthenticationError

#: A private key of Ed25519 (RFC 8032 section 5.1.5).
SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
#: A public key and an Ed25519 signature.
SIGNATURE_BYTES = PUBLIC_KEY_BYTES + 64


class SigningKey:
    """An Ed25519 key pair for signatures that carry their public key.

    Attributes:
        public_key: The public key, `PUBLIC_KEY_BYTES`.
    """

    __slots__ = ("_sign", "public_key")

    def __init__(self, seed: bytes) -> None:
        """Make the key pair from a seed.

        Args:
            seed: The private key, `SEED_BYTES`.

        Raises:
            ValueError: The seed has the wrong size.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a key for signatures is made of {SEED_BYTES} bytes, not {len(seed)}")
        private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = private.public_key().public_bytes_raw()
        self._sign = private.sign

    def sign(self, label: bytes, data: bytes) -> bytes:
        """Return a signature of `data`, of `SIGNATURE_BYTES` bytes, that is valid only for the purpose named by the label."""
        return self.public_key + self._sign(_labelled(label, data))


def verify(label: bytes, data: bytes, signature: bytes) -> bytes:
    """Verify a signature and return the public key that made it.

    Args:
        label: The label of the expected purpose.
        data: The signed data.
        signature: The signature as received.

    Raises:
        AuthenticationError: The signature is not valid for this label and data.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise AuthenticationError
    public_key = signature[:PUBLIC_KEY_BYTES]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature[PUBLIC_KEY_BYTES:], _labelled(label, data))
    except (InvalidSignature, ValueError):  # a ValueError: the bytes are no public key
        raise AuthenticationError from None
    return public_key


def _labelled(label: bytes, data: bytes) -> bytes:
    return b"iris " + label + b"\x00" + data
