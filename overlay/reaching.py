"""Getting a link to a node, whoever of the two can dial; and a way for those that can have none.

A node behind a firewall or an address translator can dial, but not be dialled. So who cannot dial a node asks it through the
ring to dial back (connection reversal, RFC 5128 section 3.2). If neither can dial the other, their packets go through the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from overlay.errors import InfoError
from overlay.events import ConnectFailed, PacketReceived
from overlay.messages import NodeInfo
from overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from overlay.contacts import ContactFailed, Contacts
    from overlay.counters import Counters
    from overlay.events import Event
    from overlay.ids import NodeId
    from overlay.pastry import Pastry

PACKET_BYTES_MAX: Final = 256 * 1024
"""What goes through the ring in one piece. Too small: large messages between nodes that cannot dial each other fail. Too large:
they hold up everybody's control messages on the way."""

WANTED_MAX: Final = 1024
"""Nodes that a link is wanted to at once; beyond it the oldest has failed."""

DIAL_BACK_S: Final = 2.0
"""How long a node that was asked to dial back may take. Too small: distant ones are taken for unreachable. Too large: what is
for them waits as long before it takes the way through the ring."""

# The first byte of what is sent through the ring. Messages of groups are msgpack arrays, and begin with none of these.
PACKET: Final = b"\x00"
DIAL_BACK: Final = b"\x01"


class Reaching:
    """Connect to nodes, and carry packets of the owner through the ring."""

    def __init__(self, local: NodeInfo, ring: Pastry, contacts: Contacts, counters: Counters) -> None:
        self.events: list[Event] = []
        self._local = local
        self._ring = ring
        self._contacts = contacts
        self._counters = counters
        # Whom the owner wants a link to; those that were asked to dial back have a deadline.
        self._wanted: dict[NodeId, NodeInfo] = {}
        self._deadlines: DeadlineTable[NodeId] = DeadlineTable()

    def __len__(self) -> int:
        return len(self._wanted)

    def connect(self, info: NodeInfo, now: float) -> None:
        """Get a link to a node, or report `ConnectFailed`."""
        if info.id in self._wanted or info.id == self._local.id:
            return
        if len(self._wanted) >= WANTED_MAX:
            self._fail(next(iter(self._wanted)))
        self._wanted[info.id] = info
        self._contacts.connect(info, now)

    def send(self, info: NodeInfo, payload: bytes, now: float) -> None:
        """Send a packet to a node that there can be no link to."""
        if len(payload) > PACKET_BYTES_MAX:
            raise InfoError(f"a packet of {len(payload)} bytes: send at most {PACKET_BYTES_MAX} through the ring")
        # Without its addresses: it is not dialled once more for each packet.
        self._ring.send(NodeInfo(info.id, ()), PACKET + payload, now)

    def contact_failed(self, failure: ContactFailed, *, is_dead: bool, now: float) -> None:
        """Handle that a node cannot be dialled."""
        peer = failure.info.id
        if peer not in self._wanted or peer in self._deadlines:
            return
        if failure.is_overflow and failure.undelivered:
            return  # It is being dialled; only for a message there was no room.
        if failure.is_overflow or is_dead or not self._local.addresses or not self._ring.is_active:
            self._fail(peer)
            return
        self._deadlines.set(peer, now + DIAL_BACK_S)
        self._ring.send(NodeInfo(peer, ()), DIAL_BACK, now)

    def link_opened(self, peer: NodeId) -> None:
        """Handle a new link."""
        if self._wanted.pop(peer, None) is not None:
            self._deadlines.cancel(peer)

    def peer_dead(self, peer: NodeId) -> None:
        """Handle that nobody will answer."""
        if peer in self._wanted:
            self._fail(peer)

    def received(self, source: NodeInfo, payload: bytes, now: float) -> bool:
        """Handle what came through the ring; return False if it is for somebody else."""
        if payload[:1] == PACKET:
            self.events.append(PacketReceived(source, payload[1:]))
        elif payload[:1] == DIAL_BACK:
            self._contacts.connect(source, now)
        else:
            return False
        return True

    def undeliverable(self, peer: NodeId, payload: bytes) -> bool:
        """Handle that the ring gave something up; return False if it is somebody else's."""
        if payload[:1] == PACKET:
            self._counters.packets_undeliverable += 1
        elif payload[:1] == DIAL_BACK:
            self.peer_dead(peer)
        else:
            return False
        return True

    def handle_timeout(self, now: float) -> None:
        """Give up on those that did not dial back; harmless if early."""
        for peer in self._deadlines.expired(now):
            self._fail(peer)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        return self._deadlines.deadline()

    def _fail(self, peer: NodeId) -> None:
        del self._wanted[peer]
        self._deadlines.cancel(peer)
        self.events.append(ConnectFailed(peer))
