"""Messages that wait for a link to a peer, in order and bounded.

Messages wait unencrypted, because they may still go through the ring or to another member. Broadcasts wait encrypted, because
their bytes are the same for every member.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_py.link.lanes import UNICAST
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers

#: With more bytes held, the peer is congested: senders wait or choose another member, as with a link's queue.
HELD_BYTES_HIGH = 1024 * 1024
#: With more bytes held, no further messages are held. Only a burst within one turn, which does not see the congestion, reaches
#: this bound.
HELD_BYTES_MAX = 64 * 1024 * 1024
#: Bytes counted for each entry besides its payload: its overhead.
ENTRY_BYTES = 128


class WaitingMessage(msgspec.Struct):
    """A message, encrypted packet or overlay message to one peer that waits for a link."""

    held_at: float
    packet: int
    """UNICAST for an unencrypted message, MULTICAST for an encrypted broadcast, CONTROL for an overlay message."""
    group: Any
    """The group of the message, opaque here; None for an overlay message."""
    kind: int = 0
    id: int = 0
    argument: int = 0
    payload: bytes = b""
    """The payload of a message, the encrypted body, or the overlay message."""
    nonce: bytes = b""
    """The nonce of an encrypted body."""
    headers: Headers = NO_HEADERS
    """The headers of a message."""

    @property
    def size(self) -> int:
        """Size in bytes, payload and headers."""
        return len(self.payload) + len(self.headers.encoded)

    @property
    def is_request(self) -> bool:
        """Whether the entry is a request, survey or tunnel request, with an outcome to report."""
        return self.packet == UNICAST and self.kind in packets.AWAITED

    def argument_at(self, now: float) -> int:
        """Return the argument at the time of sending: for requests the caller's time left."""
        if not self.is_request:
            return self.argument
        return max(1, self.argument - int((now - self.held_at) * 1000))

    @property
    def fits_ring(self) -> bool:
        """Whether the message is small enough to travel through the ring instead of a link."""
        return packets.ROUTED_OVERHEAD_BYTES + self.size <= packets.ROUTED_BYTES_MAX


class HeldMessages:
    """The messages to one peer that wait for a link, in order.

    Attributes:
        since: Arrival of the first message (seconds).
        bytes: Total size.
        requests: This node's requests among them, by id.
    """

    __slots__ = ("_entries", "_serial", "bytes", "requests", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.bytes = 0
        self.requests: dict[int, int] = {}  # id -> key in _entries
        self._entries: dict[int, WaitingMessage] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, waiting: WaitingMessage) -> bool:
        """Tell whether another message may be added within ``HELD_BYTES_MAX``. The first message always may."""
        return not self._entries or self.bytes + ENTRY_BYTES + waiting.size <= HELD_BYTES_MAX

    def add(self, waiting: WaitingMessage) -> None:
        """Append a message."""
        self._serial += 1
        self._entries[self._serial] = waiting
        self.bytes += ENTRY_BYTES + waiting.size
        if waiting.is_request:
            self.requests[waiting.id] = self._serial

    def remove_request(self, request_id: int) -> bool:
        """Remove a request; return whether it was held."""
        key = self.requests.pop(request_id, None)
        if key is None:
            return False
        self.bytes -= ENTRY_BYTES + self._entries.pop(key).size
        return True

    def request(self, request_id: int) -> WaitingMessage:
        """Return a held request."""
        return self._entries[self.requests[request_id]]

    def overdue(self, before: float) -> list[int]:
        """Return the ids of the requests held since ``before`` or longer."""
        return [id_ for id_, key in self.requests.items() if self._entries[key].held_at <= before]

    def take(self) -> list[WaitingMessage]:
        """Take all messages, in order."""
        entries, self._entries = list(self._entries.values()), {}
        self.requests.clear()
        self.bytes = 0
        return entries

    def take_control(self) -> list[WaitingMessage]:
        """Take the overlay messages, in order."""
        control = {key: entry for key, entry in self._entries.items() if entry.group is None}
        for key, entry in control.items():
            del self._entries[key]
            self.bytes -= ENTRY_BYTES + entry.size
        return list(control.values())
