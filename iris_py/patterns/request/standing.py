"""Requests that may have stood in front of this node while it stood still (docs/design.md 6.3).

What a process finds in its sockets when it goes on, after it was stopped or its event loop was blocked, may be from long ago:
the caller has given up, and heard ``MemberLost``. Nobody knows from the request itself. So it stands until the peer has
answered a question that was asked since; when the link turns out to have ended, it is forgotten, and was not executed. What
comes behind it on the link, as its cancellation does, is heard meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_py.link.link import Link
    from iris_py.peers.message import PeerMessage

#: Payload that stands, of all peers together. Beyond it the requests of the peer are begun all the same: it sends for longer
#: than anybody who had given up could. As much as the buffers of a few links hold.
STANDING_BYTES_MAX = 64 * 1024 * 1024
#: Counted for each request besides its payload.
REQUEST_BYTES = 256


class StandingRequests:
    """The requests that may be stale, by link."""

    def __init__(self) -> None:
        self._by_link: dict[Link, dict[int, tuple[PeerMessage, float]]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_link.values()))

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more."""
        return self._bytes >= STANDING_BYTES_MAX

    def add(self, link: Link, message: PeerMessage, now: float) -> None:
        """Let a message stand that was read now."""
        self.cancel(link, message.id)  # of two with one id, which only a liar sends, the last stands
        self._by_link.setdefault(link, {})[message.id] = (message, now)
        self._bytes += REQUEST_BYTES + len(message.payload)

    def cancel(self, link: Link, message_id: int) -> bool:
        """The caller gave up; returns whether the message stood, and is forgotten now."""
        found = self._by_link.get(link, {}).pop(message_id, None)
        if found is None:
            return False
        self._bytes -= REQUEST_BYTES + len(found[0].payload)
        return True

    def take(self, link: Link) -> list[tuple[PeerMessage, float]]:
        """Take what stands of a link, in order: the messages, and when each was read (seconds)."""
        messages = list(self._by_link.pop(link, {}).values())
        self._bytes -= sum(REQUEST_BYTES + len(message.payload) for message, _arrived_at in messages)
        return messages
