"""Messages that wait for a link to a peer, in order and bounded.

Messages wait unsealed, for they may still go another way: through the ring, or to another member. Broadcasts wait sealed, for
their bytes are the same for every member.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_py.link.lanes import UNICAST
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

#: Above this the peer is congested: who sends to it waits or chooses another member. As for a link's queue.
HELD_BYTES_HIGH = 1024 * 1024
#: Beyond this nothing more is held. Only what one turn sends at once, and so does not see the congestion, gets that far.
HELD_BYTES_MAX = 64 * 1024 * 1024
#: Counted for each entry besides its payload: what it costs to hold nothing.
ENTRY_BYTES = 128


class Waiting(msgspec.Struct):
    """One message, sealed packet, or message of the overlay that waits."""

    held_at: float
    packet: int
    """UNICAST for a message that is to be sealed, MULTICAST for one that is, CONTROL for one of the overlay."""
    group: Any
    """The group that it is sent under, which is opaque here; None for the overlay's."""
    kind: int = 0
    id: int = 0
    argument: int = 0
    payload: bytes = b""
    """Of a message; or the sealed body, or the overlay's message."""
    nonce: bytes = b""
    """Of a sealed body."""
    headers: Headers = NO_HEADERS
    """Of a message."""

    @property
    def size(self) -> int:
        """How many bytes it is."""
        return len(self.payload) + len(self.headers.encoded)

    @property
    def is_request(self) -> bool:
        """Whether it is a request or survey of this node, or asks for a tunnel: what becomes of it is to be known."""
        return self.packet == UNICAST and self.kind in packets.AWAITED

    def argument_at(self, now: float) -> int:
        """Return the argument of a message that is sent now: of a request the time that its caller has left."""
        if not self.is_request:
            return self.argument
        return max(1, self.argument - int((now - self.held_at) * 1000))

    @property
    def fits_ring(self) -> bool:
        """Whether it is small enough for the way through the ring."""
        return packets.ROUTED_OVERHEAD_BYTES + self.size <= packets.ROUTED_BYTES_MAX


class Held:
    """The messages that wait for one peer.

    Attributes:
        since: When the first of it came (seconds).
        bytes: How much it is.
        requests: The requests of this node among it, by their id.
    """

    __slots__ = ("_entries", "_serial", "bytes", "requests", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.bytes = 0
        self.requests: dict[int, int] = {}  # id -> key in _entries
        self._entries: dict[int, Waiting] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, waiting: Waiting) -> bool:
        """Tell whether one more may be added: the first always."""
        return not self._entries or self.bytes + ENTRY_BYTES + waiting.size <= HELD_BYTES_MAX

    def add(self, waiting: Waiting) -> None:
        """Put it behind the others."""
        self._serial += 1
        self._entries[self._serial] = waiting
        self.bytes += ENTRY_BYTES + waiting.size
        if waiting.is_request:
            self.requests[waiting.id] = self._serial

    def remove_request(self, request_id: int) -> bool:
        """Forget a request; returns whether it was there."""
        key = self.requests.pop(request_id, None)
        if key is None:
            return False
        self.bytes -= ENTRY_BYTES + self._entries.pop(key).size
        return True

    def request(self, request_id: int) -> Waiting:
        """Return a request that is there."""
        return self._entries[self.requests[request_id]]

    def overdue(self, before: float) -> list[int]:
        """Return the ids of the requests that have waited since before some time."""
        return [id_ for id_, key in self.requests.items() if self._entries[key].held_at <= before]

    def take(self) -> list[Waiting]:
        """Take everything, in order."""
        entries, self._entries = list(self._entries.values()), {}
        self.requests.clear()
        self.bytes = 0
        return entries

    def take_control(self) -> list[Waiting]:
        """Take the overlay's messages, in order."""
        control = {key: entry for key, entry in self._entries.items() if entry.group is None}
        for key, entry in control.items():
            del self._entries[key]
            self.bytes -= ENTRY_BYTES + entry.size
        return list(control.values())
