"""The hosts where nodes of other networks were heard, for people who look for their own."""

from __future__ import annotations

#: Hosts of nodes of other networks that are remembered, for people; of more, the one that was silent for longest is forgotten.
HOSTS_MAX = 16
#: How long (seconds). Too small: a beacon of theirs is missed, of which there is one in 3 s; too large: they may be gone.
REMEMBERED_S = 60.0


class OtherNetworks:
    """The hosts of other networks, those heard last at the end."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}

    def heard(self, host: str, now: float) -> None:
        """Note that a node of another network was heard."""
        self._heard_at.pop(host, None)  # to the end of the order
        self._heard_at[host] = now
        if len(self._heard_at) > HOSTS_MAX:
            del self._heard_at[next(iter(self._heard_at))]

    def hosts(self, now: float) -> tuple[str, ...]:
        """Return the hosts that were heard lately."""
        return tuple(host for host, heard_at in self._heard_at.items() if now - heard_at < REMEMBERED_S)
