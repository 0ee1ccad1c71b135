"""A fuzzer that sees nothing of the code: seeds with a few bytes changed, and random bytes. The same ones for the same seed."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.target import Target

#: Of what is all random: longer inputs say no more, and take longer.
RANDOM_BYTES_MAX = 400
CHANGES_MAX = 4


def inputs(target: Target, count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield so many inputs for a target: its seeds, then what comes of them, and others.

    Args:
        target: The target.
        count: How many.
        seed: Other ones for another seed.
    """
    rng = random.Random(zlib.crc32(target.name.encode()) + seed)
    for number in range(count):
        if number < len(target.seeds):
            yield target.seeds[number]
        elif target.seeds and rng.random() < 0.5:
            yield _changed(bytearray(rng.choice(target.seeds)), rng)[: target.bytes_max]
        else:
            yield rng.randbytes(rng.randrange(min(target.bytes_max, RANDOM_BYTES_MAX) + 1))


def _changed(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, CHANGES_MAX)):
        at = rng.randrange(len(data) + 1)
        choice = rng.randrange(4)
        if choice == 0:
            data[at:at] = rng.randbytes(rng.randint(1, 4))
        elif choice == 1:
            del data[at : at + rng.randint(1, 4)]
        else:
            data[at : at + 1] = rng.randbytes(1)
    return bytes(data)
