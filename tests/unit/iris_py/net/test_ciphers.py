"""Which cipher a machine prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_py.net import process
from iris_security import Suite
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from iris_security.aead import Cipher


@pytest.mark.parametrize(
    ("aes_s", "chacha_s", "fastest"),
    [
        (1e-6, 1e-5, Suite.AES_256_GCM),
        (1.4e-5, 1e-5, Suite.AES_256_GCM),  # as quick, but for noise
        (1e-4, 1e-5, Suite.CHACHA20_POLY1305),
    ],
)
def test_chacha_is_preferred_where_aes_is_slow(
    monkeypatch: pytest.MonkeyPatch, aes_s: float, chacha_s: float, fastest: Suite
) -> None:
    def measure(cipher: Cipher) -> float:
        return aes_s if isinstance(cipher, type(Suite.AES_256_GCM.cipher(bytes(32)))) else chacha_s

    monkeypatch.setattr(process, "_measure", measure)
    assert process.fastest_suite.__wrapped__() is fastest


def test_what_is_measured_is_the_quickest_of_a_few() -> None:
    sealed: list[bytes] = []

    class Counting:
        """Notes the nonces."""

        def encrypt(self, nonce: bytes, _data: bytes, _associated: None) -> bytes:
            sealed.append(nonce)
            return b""

    assert process._measure(Counting()) >= 0.0  # type: ignore[arg-type]
    assert len(set(sealed)) == len(sealed) > 1
    assert all(len(nonce) == NONCE_BYTES for nonce in sealed)
