"""HKDF-SHA256 (RFC 5869), the one way in which this package makes a key out of another."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

#: AES-256 keys, Noise pre-shared keys and HMAC-SHA256 keys all have this size.
KEY_BYTES = 32


def hkdf(secret: bytes, *, info: bytes, salt: bytes = b"", length: int = KEY_BYTES) -> bytes:
    """Derive a key from a secret, extract and expand.

    Every use has an info of its own (RFC 5869 section 3.2), so a key derived for one purpose says nothing about the others.

    Args:
        secret: The input keying material.
        info: What the derived key is for.
        salt: What the secret is bound to; empty stands for 32 zero bytes (RFC 5869 section 2.2).
        length: The size of the derived key.
    """
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
