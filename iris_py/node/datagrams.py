"""The datagrams of a node: encryption and decryption, and the hosts of other networks.

Datagrams of other networks reveal the hosts of their nodes, which helps people to find their own nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_security import AuthenticationError, DatagramOpener, DatagramSealer

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_security import Identity, Keyring

#: Hosts of other networks' nodes that are remembered; beyond this bound the longest silent one is forgotten.
HOSTS_MAX = 16
#: Time for which a host is remembered (seconds). Too small: it is forgotten between its beacons, sent every 3 s; too large: it
#: may be gone.
REMEMBERED_S = 60.0


class OtherNetworks:
    """The hosts of other networks, in the order of their last datagrams."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}

    def heard(self, host: str, now: float) -> None:
        """Record a host of another network."""
        self._heard_at.pop(host, None)  # to the end of the order
        self._heard_at[host] = now
        if len(self._heard_at) > HOSTS_MAX:
            del self._heard_at[next(iter(self._heard_at))]

    def hosts(self, now: float) -> tuple[str, ...]:
        """Return the hosts heard within ``REMEMBERED_S``."""
        return tuple(host for host, heard_at in self._heard_at.items() if now - heard_at < REMEMBERED_S)


class Datagrams:
    """Encrypts and decrypts datagrams.

    Attributes:
        other_networks: The hosts of other networks.
    """

    def __init__(self, identity: Identity, keyring: Keyring, count_drop: Callable[[str], object]) -> None:
        self.other_networks = OtherNetworks()
        self._identity = identity
        self._sealers: dict[bytes, DatagramSealer] = {}  # by generation: no counter is reused when a generation returns
        self._opener = DatagramOpener(keyring)
        self._count_drop = count_drop
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """Use a new keyring."""
        primary = keyring.primary
        if primary.key_id not in self._sealers:
            self._sealers[primary.key_id] = DatagramSealer(primary, self._identity)
        self._sealer = self._sealers[primary.key_id]
        self._opener.rekey(keyring)

    def seal(self, datagrams: list[tuple[tuple[str, int] | None, bytes]]) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Encrypt datagrams, each with its destination; None is the multicast group."""
        return [(to, self._sealer.seal(data)) for to, data in datagrams]

    def open(self, datagram: bytes, source: tuple[str, int], now: float) -> tuple[NodeId, bytes] | None:
        """Return a datagram's sender and payload; None for a datagram that is forged or repeated."""
        try:
            sender, payload = self._opener.open(datagram)
        except AuthenticationError:
            self._count_drop("datagram")
            if self._opener.is_foreign(datagram):
                self.other_networks.heard(source[0], now)
            return None
        return NodeId(sender), payload
