"""Tests of iris_py/wire/fingerprint.py."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from iris_py.wire.fingerprint import FINGERPRINT_BYTES, Fingerprinter


def test_it_is_the_beginning_of_a_gmac() -> None:
    """Made anew from its parts: who tries again with another release has to get the same one."""
    key = hashlib.sha256(b"iris fingerprint\x00purpose").digest()[:16]
    for content in (b"", b"a", bytes(range(256)) * 100):
        cipher = Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()
        cipher.authenticate_additional_data(content)
        cipher.finalize()
        assert Fingerprinter("purpose").fingerprint(content) == cipher.tag[:FINGERPRINT_BYTES]


def test_contents_and_purposes_have_different_ones() -> None:
    contents = [b"", b"\x00", bytes(16), bytes(17), b"a", b"b", b"a" * 1_000_000, b"a" * 999_999 + b"b"]
    found = {Fingerprinter(purpose).fingerprint(content) for purpose in ("one", "two") for content in contents}
    assert len(found) == 2 * len(contents)
