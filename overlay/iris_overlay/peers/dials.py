"""The dials under way: the search and the contacts share one to the same address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.events import DialRequested

#: After so long a dial that the owner never reported on is requested again. More than every time-out of a dial.
DIAL_FORGOTTEN_S: Final = 15.0

#: Dials remembered; more than both may have under way. Beyond it the oldest is forgotten, and then at worst requested twice.
DIALS_MAX: Final = 512


class Dials:
    """Remember which dials were requested, and when."""

    __slots__ = ("_requested_at",)

    def __init__(self) -> None:
        self._requested_at: dict[str, float] = {}  # The oldest first.

    def __len__(self) -> int:
        return len(self._requested_at)

    def begin(self, requests: Iterable[DialRequested], now: float) -> list[DialRequested]:
        """Return those of some requests that are not under way already."""
        requested_at = self._requested_at
        while requested_at and now - next(iter(requested_at.values())) > DIAL_FORGOTTEN_S:
            del requested_at[next(iter(requested_at))]
        fresh = []
        for request in requests:
            if request.address not in requested_at:
                if len(requested_at) >= DIALS_MAX:
                    del requested_at[next(iter(requested_at))]
                requested_at[request.address] = now
                fresh.append(request)
        return fresh

    def end(self, address: str) -> None:
        """Handle that the owner reported on a dial."""
        self._requested_at.pop(address, None)
