"""The datagrams of a node: encryption and decryption, and the hosts of other networks.

Probes between two nodes with a link are encrypted under keys of the link, and carry no signature. All other datagrams are
signed (docs/design.md 5.9).

Datagrams of other networks reveal the hosts of their nodes, which helps people to find their own nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.detector.messages import is_detector_message
from iris_overlay.ids import NodeId
from iris_security import AuthenticationError, DatagramOpener, DatagramSealer
from iris_security.link_datagrams import sender_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.link.link import Link
    from iris_security import Identity, Keyring

#: Hosts of other networks' nodes that are remembered; beyond this bound the longest silent one is forgotten.
HOSTS_MAX = 16
#: Addresses whose nodes are remembered: those from which linked nodes have sent datagrams. Beyond this bound, the one that was
#: learned first is forgotten. Too small: probes are signed although a link exists; too large: memory, some 200 bytes each.
ADDRESSES_MAX = 4096
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

    Args:
        find_link: Returns the link to a node, None without a link.

    Attributes:
        other_networks: The hosts of other networks.
    """

    def __init__(
        self,
        identity: Identity,
        keyring: Keyring,
        find_link: Callable[[NodeId], Link | None],
        count_drop: Callable[[str], object],
    ) -> None:
        self.other_networks = OtherNetworks()
        self._identity = identity
        self._find_link = find_link
        self._nodes: dict[tuple[str, int], NodeId] = {}  # by the address of their last datagram, while they had a link
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
        return [(to, self._seal(to, data)) for to, data in datagrams]

    def open(self, datagram: bytes, source: tuple[str, int], now: float) -> tuple[NodeId, bytes] | None:
        """Return a datagram's sender and payload; None for a datagram that is forged or repeated."""
        if (claimed := sender_of(datagram)) is not None:
            return self._open_linked(NodeId(claimed), datagram, source)
        try:
            opened, payload = self._opener.open(datagram)
        except AuthenticationError:
            self._count_drop("datagram")
            if self._opener.is_foreign(datagram):
                self.other_networks.heard(source[0], now)
            return None
        sender = NodeId(opened)
        if self._find_link(sender) is None:
            self._nodes.pop(source, None)  # the address of another node before
        elif self._nodes.get(source) != sender:
            self._learn(source, sender)
        return sender, payload

    def _seal(self, to: tuple[str, int] | None, data: bytes) -> bytes:
        """Encrypt a datagram: under the keys of the link to its receiver if it is a probe and that is possible, else signed."""
        if to is not None and (node := self._nodes.get(to)) is not None and is_detector_message(data):
            link = self._find_link(node)
            if link is None:
                del self._nodes[to]
            elif link.is_open and link.datagrams is not None and link.datagrams.may_seal():
                return link.datagrams.seal(self._identity.node_id, data)
        return self._sealer.seal(data)

    def _open_linked(self, sender: NodeId, datagram: bytes, source: tuple[str, int]) -> tuple[NodeId, bytes] | None:
        """Return the sender and payload of a probe of a node with a link; None if it is forged, repeated, or has no link."""
        link = self._find_link(sender)
        try:
            if link is None or link.datagrams is None:
                raise AuthenticationError
            payload = link.datagrams.open(datagram)
        except AuthenticationError:
            self._count_drop("datagram")
            return None
        if self._nodes.get(source) != sender:
            self._learn(source, sender)
        return sender, payload

    def _learn(self, source: tuple[str, int], sender: NodeId) -> None:
        self._nodes.pop(source, None)  # to the end of the order
        self._nodes[source] = sender
        if len(self._nodes) > ADDRESSES_MAX:
            del self._nodes[next(iter(self._nodes))]
