"""The ciphers of records and their sizes: full tags and 96-bit nonces (NIST SP 800-38D, section 5.2; RFC 8439).

AES-256-GCM is the choice for processors with AES instructions, which is nearly all of them. ChaCha20-Poly1305 is several times
as fast on the others. Both offer at least 128 bits of security, so a link chooses by speed alone.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

NONCE_BYTES = 12
TAG_BYTES = 16

Cipher: TypeAlias = AESGCM | ChaCha20Poly1305


class Suite(enum.IntEnum):
    """The ciphers for the records of a link, with their numbers on the wire."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2

    def cipher(self, key: bytes) -> Cipher:
        """Return the cipher with a key of 32 bytes."""
        return AESGCM(key) if self is Suite.AES_256_GCM else ChaCha20Poly1305(key)
