"""Links between nodes of which only one can dial the other, and packets between nodes that cannot have a link.

A node behind a firewall or an address translator can dial, but cannot be dialled. So a node that cannot dial such a peer, or
has waited for `REVERSAL_DELAY_S`, asks the peer through the ring to dial back (connection reversal, RFC 5128 section 3.2). The
delay is short because firewalls drop dials rather than refuse them, and such a dial takes seconds to fail. If neither node can
dial the other, their packets go through the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.errors import InfoError
from iris_overlay.events import ConnectFailed, PacketReceived
from iris_overlay.node_info import NodeInfo
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.events import Counters, Event
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.contacts import ContactFailed, Contacts
    from iris_overlay.ring.pastry import Pastry

#: The largest packet through the ring. Too small: large messages between nodes that cannot dial each other fail. Too large:
#: they delay control messages on the way.
PACKET_BYTES_MAX: Final = 256 * 1024

#: The largest number of nodes with a requested link; beyond it the oldest request fails. Too small: requests fail in a burst;
#: too large: memory.
WANTED_MAX: Final = 1024

#: The time of a dial before the node is also asked to dial back. Too small: under load both nodes dial, and one of two links is
#: discarded. Too large: the first message to a node behind a firewall waits for that time.
REVERSAL_DELAY_S: Final = 0.5

#: The time for a node to dial back. Too small: distant nodes count as unreachable. Too large: their messages wait for that time
#: before they go through the ring.
DIAL_BACK_S: Final = 2.0

# The first bytes of payloads sent through the ring. Messages of groups are msgpack arrays, which begin with other bytes.
PACKET: Final = b"\x00"
DIAL_BACK: Final = b"\x01"


class _WantedLink(msgspec.Struct):
    """A node to which the owner wants a link."""

    info: NodeInfo
    is_dialled: bool = True
    """Whether a dial from here may still succeed."""
    is_asked: bool = False
    """Whether the node was asked to dial back."""


class Reaching:
    """Connect to nodes, which may have to dial back, and carry packets of the owner through the ring."""

    def __init__(self, local: NodeInfo, ring: Pastry, contacts: Contacts, counters: Counters) -> None:
        self.events: list[Event] = []
        self._local = local
        self._ring = ring
        self._contacts = contacts
        self._counters = counters
        self._wanted: dict[NodeId, _WantedLink] = {}
        # The time to ask for a dial back; after that, the end of the wait for it.
        self._deadlines: DeadlineTable[NodeId] = DeadlineTable()

    def __len__(self) -> int:
        return len(self._wanted)

    def connect(self, info: NodeInfo, now: float) -> None:
        """Get a link to a node, or report `ConnectFailed`."""
        if info.id in self._wanted or info.id == self._local.id:
            return
        if len(self._wanted) >= WANTED_MAX:
            self._fail(next(iter(self._wanted)))
        self._wanted[info.id] = _WantedLink(info)
        self._deadlines.set(info.id, now + REVERSAL_DELAY_S)
        self._contacts.connect(info, now)

    def send(self, info: NodeInfo, payload: bytes, now: float) -> None:
        """Send a packet through the ring to a node without a link."""
        if len(payload) > PACKET_BYTES_MAX:
            raise InfoError(f"a packet of {len(payload)} bytes: send at most {PACKET_BYTES_MAX} through the ring")
        # Omit the addresses, so that a packet causes no further dial.
        self._ring.send(NodeInfo(info.id, ()), PACKET + payload, now)

    def contact_failed(self, failure: ContactFailed, *, is_dead: bool, now: float) -> None:
        """Ask a node that cannot be dialled to dial back; if that is hopeless, report `ConnectFailed`."""
        peer = failure.info.id
        wanted = self._wanted.get(peer)
        if wanted is None or (failure.is_overflow and failure.undelivered):
            return  # The dial continues; only a message had no room.
        wanted.is_dialled = False
        if wanted.is_asked:
            is_hopeless = is_dead or peer not in self._deadlines
        else:
            is_hopeless = is_dead or failure.is_overflow or not self._ask_back(wanted, now)
        if is_hopeless:
            self._fail(peer)

    def link_opened(self, peer: NodeId) -> None:
        """End the request for a link to a peer, which is open now."""
        if self._wanted.pop(peer, None) is not None:
            self._deadlines.cancel(peer)

    def peer_dead(self, peer: NodeId) -> None:
        """Report `ConnectFailed` if a link to a dead node was requested."""
        if peer in self._wanted:
            self._fail(peer)

    def received(self, source: NodeInfo, payload: bytes, now: float) -> bool:
        """Take a packet or a request to dial back from the ring; return False for payloads of other components."""
        if payload[:1] == PACKET:
            self.events.append(PacketReceived(source, payload[1:]))
        elif payload[:1] == DIAL_BACK:
            self._contacts.connect(source, now)
        else:
            return False
        return True

    def undeliverable(self, peer: NodeId, payload: bytes) -> bool:
        """Note an undeliverable packet or request to dial back; return False for payloads of other components."""
        if payload[:1] == PACKET:
            self._counters.packets_undeliverable += 1
        elif payload[:1] == DIAL_BACK:
            self._deadlines.cancel(peer)
            wanted = self._wanted.get(peer)
            if wanted is not None and not wanted.is_dialled:
                self._fail(peer)
        else:
            return False
        return True

    def handle_timeout(self, now: float) -> None:
        """Ask unreached nodes to dial back, and give up on nodes that failed to do so; harmless if early."""
        for peer in self._deadlines.expired(now):
            wanted = self._wanted[peer]
            if not wanted.is_asked:
                self._ask_back(wanted, now)
            elif not wanted.is_dialled:
                self._fail(peer)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        return self._deadlines.deadline()

    def _ask_back(self, wanted: _WantedLink, now: float) -> bool:
        """Ask a node to dial back; return False if the local node cannot be dialled either, or is in no ring."""
        if not self._local.addresses or not self._ring.is_active:
            return False
        wanted.is_asked = True
        self._deadlines.set(wanted.info.id, now + DIAL_BACK_S)
        self._ring.send(NodeInfo(wanted.info.id, ()), DIAL_BACK, now)
        return True

    def _fail(self, peer: NodeId) -> None:
        del self._wanted[peer]
        self._deadlines.cancel(peer)
        self.events.append(ConnectFailed(peer))
