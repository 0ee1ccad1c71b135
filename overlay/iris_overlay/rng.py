"""The source of randomness that owners pass in: nothing draws from a source of its own."""

from __future__ import annotations

from typing import Protocol


class Rng(Protocol):
    """Draw random numbers. `random.Random` fits; production passes the system's source, simulations a seeded one."""

    def random(self) -> float:
        """Draw from [0, 1)."""

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""

    def randrange(self, stop: int, /) -> int:
        """Draw from 0, ..., stop - 1."""
