"""The source of randomness that owners pass in: nothing draws from a source of its own.

The time of day, for what nodes tell each other of times: everything else goes by monotonic seconds.

Signatures, as the overlay sees them: how they are made is the business of its owner (docs/design.md 2.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId

#: Room for the key and the signature of any scheme of today that is not made against quantum computers.
SIGNATURE_BYTES_MAX: Final = 128


class Signer(Protocol):
    """Sign for the local node and for groups whose keys it has, and tell whether others have signed something."""

    def sign(self, data: bytes, /) -> bytes:
        """Return the signature of the local node, at most SIGNATURE_BYTES_MAX. Nobody can make it who is not this node."""

    def verify(self, node: NodeId, data: bytes, signature: bytes, /) -> bool:
        """Return whether a signature of some data is that of a node. Nothing raises."""

    def permit(self, group: GroupId, data: bytes, /) -> bytes:
        """Return the permit of a group for some data, at most SIGNATURE_BYTES_MAX; nothing if the node lacks its keys."""

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes, /) -> bool:
        """Return whether a permit of some data was made with the keys of a group. Nothing raises."""


class WallClock:
    """Tell the time of day that belongs to a monotonic time.

    The two are compared once, at the start of the node. So the time of day never goes back, and it goes wrong as the monotonic
    clock does: nothing may rely on it for more than to tell old from new.
    """

    __slots__ = ("_offset_s",)

    def __init__(self) -> None:
        self._offset_s = 0.0

    def set(self, now: float, unix_s: float) -> None:
        """Handle that it is so many seconds after 1970 at a monotonic time."""
        self._offset_s = unix_s - now

    def unix_ms(self, now: float) -> int:
        """Return the milliseconds since 1970, at least 0."""
        return max(0, int((now + self._offset_s) * 1000))


class Rng(Protocol):
    """Draw random numbers. `random.Random` fits; production passes the system's source, simulations a seeded one."""

    def random(self) -> float:
        """Draw from [0, 1)."""

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""

    def randrange(self, stop: int, /) -> int:
        """Draw from 0, ..., stop - 1."""
