"""The cloud links of one neighbour that were lost and not replaced, for operators of the dialled gateway.

A dialling gateway knows the number of wanted links, and sees failed dials. A dialled gateway knows only its past links. A
restarted gateway has a new id, so the first link from a new gateway replaces the link lost first.
"""

from __future__ import annotations

from typing import Any, Final

#: Remembered lost links; beyond, the oldest is forgotten. Too small: the list is incomplete for a cloud with many gateways; too
#: large: a neighbour that reconnects with ever new ids costs memory.
LOST_MAX: Final = 16
#: Lifetime (seconds) of an entry. Too small: the loss is forgotten before an operator looks; too large: a gateway taken out of
#: service by force is missed for this long.
LOST_S: Final = 3600.0


class LostLines:
    """The lost cloud links of one neighbour (other cloud), as shown to operators."""

    def __init__(self) -> None:
        self._lost: dict[bytes, tuple[str, str, float]] = {}  # by gateway: its address, the reason, and the time

    def add(self, gateway: bytes, address: str, reason: str, now: float) -> None:
        """Remember a lost link."""
        self._lost.pop(gateway, None)
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[gateway] = address, reason, now

    def found(self, gateway: bytes, *, is_new: bool) -> None:
        """Forget the lost link that a new link replaces.

        Args:
            gateway: The peer gateway of the new link.
            is_new: Whether the gateway has no other link.
        """
        if self._lost.pop(gateway, None) is None and is_new and self._lost:
            del self._lost[next(iter(self._lost))]

    def status(self, now: float) -> list[dict[str, Any]]:
        """Return the lost links as plain values, the oldest loss first."""
        return [
            {"gateway": gateway.hex(), "address": address, "reason": reason, "s_ago": now - at}
            for gateway, (address, reason, at) in self._lost.items()
            if now - at <= LOST_S
        ]
