"""The datagrams of a node: sealed on their way out, opened on their way in.

The hosts where nodes of other networks were heard, for people who look for their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_security import AuthenticationError, DatagramOpener, DatagramSealer

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_security import Identity, Keyring

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


class Datagrams:
    """Seals and opens datagrams.

    Args:
        identity: This node.
        keyring: The secrets of the network.
        count_drop: Counts what is dropped, by reason.

    Attributes:
        other_networks: The hosts of other networks that were heard.
    """

    def __init__(self, identity: Identity, keyring: Keyring, count_drop: Callable[[str], object]) -> None:
        self.other_networks = OtherNetworks()
        self._identity = identity
        self._sealers: dict[bytes, DatagramSealer] = {}  # by generation: no counter is used twice when one comes back
        self._opener = DatagramOpener(keyring)
        self._count_drop = count_drop
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """Use other secrets from now on."""
        primary = keyring.primary
        if primary.key_id not in self._sealers:
            self._sealers[primary.key_id] = DatagramSealer(primary, self._identity)
        self._sealer = self._sealers[primary.key_id]
        self._opener.rekey(keyring)

    def seal(self, datagrams: list[tuple[tuple[str, int] | None, bytes]]) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Return datagrams as they travel, each with where it goes; None is the multicast group."""
        return [(to, self._sealer.seal(data)) for to, data in datagrams]

    def open(self, datagram: bytes, source: tuple[str, int], now: float) -> tuple[NodeId, bytes] | None:
        """Return who has sent a datagram, and what; None if it is not authentic, or came before."""
        try:
            sender, payload = self._opener.open(datagram)
        except AuthenticationError:
            self._count_drop("datagram")
            if self._opener.is_foreign(datagram):
                self.other_networks.heard(source[0], now)
            return None
        return NodeId(sender), payload
