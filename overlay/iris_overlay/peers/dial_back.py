"""Getting a link to a node, whoever of the two can dial; and a way for those that can have none.

A node behind a firewall or an address translator can dial, but not be dialled. So who cannot dial a node, or has waited for
`REVERSAL_DELAY_S`, asks it through the ring to dial back (connection reversal, RFC 5128 section 3.2): firewalls swallow dials
rather than refuse them, and a dial takes seconds to fail. If neither can dial the other, their packets go through the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.errors import InfoError
from iris_overlay.events import ConnectFailed, PacketReceived
from iris_overlay.messages import NodeInfo
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.counters import Counters
    from iris_overlay.events import Event
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.contacts import ContactFailed, Contacts
    from iris_overlay.ring.pastry import Pastry

#: What goes through the ring in one piece. Too small: large messages between nodes that cannot dial each other fail. Too large:
#: they hold up everybody's control messages on the way.
PACKET_BYTES_MAX: Final = 256 * 1024

#: Nodes that a link is wanted to at once; beyond it the oldest has failed.
WANTED_MAX: Final = 1024

#: How long a dial may take before the node is asked to dial back meanwhile. Too small: under load both dial, and one of two
#: links is thrown away. Too large: the first message to a node behind a firewall waits as long.
REVERSAL_DELAY_S: Final = 0.5

#: How long a node that was asked to dial back may take. Too small: distant ones are taken for unreachable. Too large: what is
#: for them waits as long before it takes the way through the ring.
DIAL_BACK_S: Final = 2.0

# The first byte of what is sent through the ring. Messages of groups are msgpack arrays, and begin with none of these.
PACKET: Final = b"\x00"
DIAL_BACK: Final = b"\x01"


class _Wanted(msgspec.Struct):
    """A node that the owner wants a link to."""

    info: NodeInfo
    is_dialled: bool = True
    """Whether a dial from here may still lead there."""
    is_asked: bool = False
    """Whether it was asked to dial back."""


class Reaching:
    """Connect to nodes, and carry packets of the owner through the ring."""

    def __init__(self, local: NodeInfo, ring: Pastry, contacts: Contacts, counters: Counters) -> None:
        self.events: list[Event] = []
        self._local = local
        self._ring = ring
        self._contacts = contacts
        self._counters = counters
        self._wanted: dict[NodeId, _Wanted] = {}
        # When to ask for a dial back; then, until when that may take.
        self._deadlines: DeadlineTable[NodeId] = DeadlineTable()

    def __len__(self) -> int:
        return len(self._wanted)

    def connect(self, info: NodeInfo, now: float) -> None:
        """Get a link to a node, or report `ConnectFailed`."""
        if info.id in self._wanted or info.id == self._local.id:
            return
        if len(self._wanted) >= WANTED_MAX:
            self._fail(next(iter(self._wanted)))
        self._wanted[info.id] = _Wanted(info)
        self._deadlines.set(info.id, now + REVERSAL_DELAY_S)
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
        wanted = self._wanted.get(peer)
        if wanted is None or (failure.is_overflow and failure.undelivered):
            return  # It is being dialled; only for a message there was no room.
        wanted.is_dialled = False
        if wanted.is_asked:
            is_hopeless = is_dead or peer not in self._deadlines
        else:
            is_hopeless = is_dead or failure.is_overflow or not self._ask_back(wanted, now)
        if is_hopeless:
            self._fail(peer)

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
            self._deadlines.cancel(peer)
            wanted = self._wanted.get(peer)
            if wanted is not None and not wanted.is_dialled:
                self._fail(peer)
        else:
            return False
        return True

    def handle_timeout(self, now: float) -> None:
        """Ask those to dial back that a dial has not reached yet, and give up on those that did not; harmless if early."""
        for peer in self._deadlines.expired(now):
            wanted = self._wanted[peer]
            if not wanted.is_asked:
                self._ask_back(wanted, now)
            elif not wanted.is_dialled:
                self._fail(peer)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        return self._deadlines.deadline()

    def _ask_back(self, wanted: _Wanted, now: float) -> bool:
        """Ask a node to dial back; return False if that is of no use."""
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
