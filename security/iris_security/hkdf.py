"""HKDF-SHA256 (RFC 5869), the only key derivation of this package."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

#: The size of AES-256 keys, Noise pre-shared keys and HMAC-SHA256 keys.
KEY_BYTES = 32


def hkdf(secret: bytes, *, info: bytes, salt: bytes = b"", length: int = KEY_BYTES) -> bytes:
    """Derive a key from a secret (HKDF-SHA256, extract and expand).

    Every use has its own `info` (RFC 5869 section 3.2), so keys of different purposes are independent.

    Args:
        secret: The input keying material.
        info: The purpose of the derived key.
        salt: The context of the secret; empty stands for 32 zero bytes (RFC 5869 section 2.2).
        length: The size of the derived key in bytes.
    """
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
