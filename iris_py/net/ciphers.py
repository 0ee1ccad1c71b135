"""The cipher that this machine is quick with (docs/design.md 3.3)."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Final

from iris_security import Suite
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from iris_security.aead import Cipher

#: What is sealed to measure a cipher, so often, and the quickest counts: 0.1 ms in all where both are quick.
_SAMPLE: Final = bytes(16 * 1024)
_TRIES: Final = 5
#: AES-256-GCM is taken unless it takes so many times as long. Too small: noise decides, and of two nodes that could both be
#: quick one asks for the slower cipher; too large: it is used where it is slow.
_MARGIN: Final = 1.5


@functools.cache
def fastest_suite() -> Suite:
    """Return the suite that this machine is quick with; measured once in a process, in less than a millisecond as a rule."""
    times = {suite: _measure(suite.cipher(bytes(32))) for suite in Suite}
    is_slow = times[Suite.AES_256_GCM] > _MARGIN * times[Suite.CHACHA20_POLY1305]
    return Suite.CHACHA20_POLY1305 if is_slow else Suite.AES_256_GCM


def _measure(cipher: Cipher) -> float:
    best = float("inf")
    for number in range(_TRIES):
        begun = time.perf_counter()
        cipher.encrypt(number.to_bytes(NONCE_BYTES, "big"), _SAMPLE, None)
        best = min(best, time.perf_counter() - begun)
    return best
