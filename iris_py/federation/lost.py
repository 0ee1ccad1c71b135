"""The lines of one neighbour that were lost and have not come again, for operators of the side that is dialled.

The side that dials knows how many lines it wants, and sees each dial that fails. The other side knows only which lines it had.
A gateway that restarts has a new id: so the first line from a new gateway takes the place of the line that was lost first.
"""

from __future__ import annotations

from typing import Any, Final

#: Lost lines that are remembered; then the oldest is forgotten. Too small: of a cloud with many gateways not all are told; too
#: large: a neighbour that comes and goes with ever new ids costs memory.
LOST_MAX: Final = 16
#: How long one is remembered (seconds). Too small: nobody looks in time; too large: a gateway that was taken out of service by
#: force is missed for as long.
LOST_S: Final = 3600.0


class LostLines:
    """The lost lines of one neighbour."""

    def __init__(self) -> None:
        self._lost: dict[bytes, tuple[str, str, float]] = {}  # by gateway: its address, the reason, and when

    def add(self, gateway: bytes, address: str, reason: str, now: float) -> None:
        """Remember a line that was lost."""
        self._lost.pop(gateway, None)
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[gateway] = address, reason, now

    def found(self, gateway: bytes, *, is_new: bool) -> None:
        """There is a line to a gateway.

        Args:
            gateway: The gateway.
            is_new: Whether this is the only line to that gateway.
        """
        if self._lost.pop(gateway, None) is None and is_new and self._lost:
            del self._lost[next(iter(self._lost))]

    def status(self, now: float) -> list[dict[str, Any]]:
        """Return the lost lines as plain values, the oldest loss first."""
        return [
            {"gateway": gateway.hex(), "address": address, "reason": reason, "s_ago": now - at}
            for gateway, (address, reason, at) in self._lost.items()
            if now - at <= LOST_S
        ]
