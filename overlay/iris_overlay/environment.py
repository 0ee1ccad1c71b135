"""The dependencies passed in by the owner of an overlay: randomness, the time of day and signatures.

The overlay draws no random numbers from any other source. The time of day serves only to compare times of different nodes; all
other times are monotonic seconds. The owner chooses the signature scheme (docs/design.md 2.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId

#: Space for the public key and signature of any current scheme that is not quantum-resistant.
SIGNATURE_BYTES_MAX: Final = 128


class Signer(Protocol):
    """Signs for the local node and for groups with known keys, and verifies signatures of others."""

    def sign(self, data: bytes, /) -> bytes:
        """Return the signature of the local node, at most SIGNATURE_BYTES_MAX. No other node can make it."""

    def verify(self, node: NodeId, data: bytes, signature: bytes, /) -> bool:
        """Return whether a signature of `data` is valid for a node. Never raises."""

    def permit(self, group: GroupId, data: bytes, /) -> bytes:
        """Return the permit of a group for `data`, at most SIGNATURE_BYTES_MAX; empty if the node lacks the group's keys."""

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes, /) -> bool:
        """Return whether a permit for `data` was made with the keys of a group. Never raises."""


class WallClock:
    """Converts monotonic time to the time of day.

    The two clocks are compared once, at the start of the node. So the time of day never jumps back, and has the error of the
    monotonic clock: use it only to order old and new.
    """

    __slots__ = ("_offset_s",)

    def __init__(self) -> None:
        self._offset_s = 0.0

    def set(self, now: float, unix_s: float) -> None:
        """Set the time of day at a monotonic time, in seconds since 1970."""
        self._offset_s = unix_s - now

    def unix_ms(self, now: float) -> int:
        """Return the milliseconds since 1970, at least 0."""
        return max(0, int((now + self._offset_s) * 1000))


class Rng(Protocol):
    """A source of random numbers. `random.Random` fits; production passes the system's source, simulations a seeded one."""

    def random(self) -> float:
        """Draw from [0, 1)."""

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""

    def randrange(self, stop: int, /) -> int:
        """Draw from 0, ..., stop - 1."""
