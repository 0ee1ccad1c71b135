"""One end of a tunnel: a stream of messages whose chunks are sealed end to end (docs/design.md section 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.tunnel.stream import StreamEnd
from iris_py.wire.headers import NO_HEADERS
from iris_security import RecordOpener, RecordSealer

if TYPE_CHECKING:
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.tunnel.stream import Way
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers
    from iris_security import TransportKeys


class TunnelEnd(StreamEnd):
    """One end of a tunnel.

    Args:
        id: What this side's chunks carry.
        group: The cluster that it was opened to.
        peer: Who is at the other end.
        keys: Of the two directions.
        window_bytes: What the peer may send before any of it is taken.
        credit_bytes: What this side may send before the peer has taken any of it.
        way: How its chunks travel: a link, or the ring.
        changed: Where it notes that something changed which the application may wait for.
        registration: The member's handler; None at the caller.
        headers: What the caller gave when it opened it.

    Attributes:
        is_confirmed: Whether the peer has shown that it holds the keys. Until then the member sends nothing.
    """

    __slots__ = ("_opener", "group", "is_confirmed", "peer", "registration")

    def __init__(
        self,
        id: int,  # noqa: A002
        group: Group,
        peer: Peer,
        keys: TransportKeys,
        *,
        window_bytes: int,
        credit_bytes: int,
        way: Way[TunnelEnd],
        changed: dict[TunnelEnd, None],
        registration: Registration | None = None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        super().__init__(id, window_bytes=window_bytes, credit_bytes=credit_bytes, way=way, changed=changed, headers=headers)
        self.group = group
        self.peer = peer
        self.registration = registration
        self.is_confirmed = registration is None
        self._seal = RecordSealer(keys.send).seal
        self._opener = RecordOpener(keys.receive)

    def confirm(self) -> None:
        """Show the peer that this side holds the keys, by a first chunk."""
        self.tell_credit()

    def receive_chunk(self, sealed: bytes | memoryview) -> None:
        """Take a chunk of the peer, in the order in which it was sealed.

        Raises:
            AuthenticationError: It is not the next one of the peer. Nothing has changed.
        """
        chunk = self._opener.open(sealed)
        if not self.is_confirmed:
            self.is_confirmed = True
            if self.is_ready:
                self.way.add(self)
        self.receive_frames(chunk, 0, len(chunk))

    def _become_ready(self) -> None:
        self.is_ready = True
        if self.is_confirmed or self._reset is not None:
            self.way.add(self)
