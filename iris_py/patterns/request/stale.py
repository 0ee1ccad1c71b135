"""Requests that came through the ring, where any node on the way may have held them up (docs/design.md 6.3).

A request says how much time its caller has left, which is true when it is sent. Through the ring it also says when that was,
by the clock of its source, and the receiver knows how old it is at most once the source has told its clock
(:mod:`iris_py.peers.clocks`). Until then the request stands; so does one that seems too late, for the question by which the
clock is known may have been slow. A request whose time is over is dropped, and so is one whose source does not answer in time.

Requests that may have stood in front of this node while it stood still (docs/design.md 6.3).

What a process finds in its sockets when it goes on, after it was stopped or its event loop was blocked, may be from long ago:
the caller has given up, and heard ``MemberLost``. Nobody knows from the request itself. So it stands until the peer has
answered a question that was asked since; when the link turns out to have ended, it is forgotten, and was not executed. What
comes behind it on the link, as its cancellation does, is heard meanwhile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.peers.clocks import NONCE_BYTES, Clocks, read
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.message import PeerMessage
    from iris_py.peers.peer import Peer

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


#: Requests that stand, of all sources together; further ones are dropped, and counted. Too small: many callers that are new at
#: once have to ask again. Too large: memory.
ROUTED_MAX = 1024
#: Their payload and headers.
ROUTED_BYTES_MAX = 16 * 1024 * 1024
#: How long one stands (seconds), if its caller waits for that long. A question takes a round trip, longer while the ring finds
#: its way around a dead node. Too large: sources that do not answer keep the places of others.
ROUTED_S_MAX = 5.0

_QUESTION = struct.Struct(f">B{NONCE_BYTES}s")
_ANSWER = struct.Struct(f">B{NONCE_BYTES}sQ")


class RoutedRequests:
    """The requests that came through the ring, until their age is known.

    Args:
        clocks: What is known of the clocks of their sources.
        begin: Takes a request that is in time, with the time that is left.
        count_drop: Counts what is dropped, by reason.
    """

    def __init__(
        self, clocks: Clocks, begin: Callable[[PeerMessage, float], None], count_drop: Callable[[str], object]
    ) -> None:
        self._clocks = clocks
        self._begin = begin
        self._count_drop = count_drop
        # Of each source by id: the message, when it was sent by the clock of its source (ms), and until when it may stand.
        self._standing: dict[NodeId, dict[int, tuple[PeerMessage, int, float]]] = {}
        self._count = self._bytes = 0
        self._out: list[tuple[NodeInfo, bytes]] = []

    def __len__(self) -> int:
        return self._count

    def receive(self, message: PeerMessage, sent_at: int, now: float) -> None:
        """Take a request or survey: begin it, let it stand, or drop it.

        Args:
            message: The message.
            sent_at: When it was sent, by the clock of its source (milliseconds).
            now: The time.
        """
        clocks, peer = self._clocks, message.peer
        age = clocks.age_of(peer.id, sent_at, now)
        if (age is None or clocks.is_doubtful(peer.id, age, now)) and not clocks.is_asked(peer.id, now):
            self._out.append((peer.info, _QUESTION.pack(packets.CLOCK_QUESTION, clocks.ask(peer.id, now))))
        if age is not None and age < message.argument:
            message.argument -= age
            self._begin(message, now)
        elif clocks.is_awaited(peer.id):
            self._let_stand(message, sent_at, now)
        else:
            self._count_drop("request_without_caller")

    def cancel(self, peer: Peer, message_id: int) -> bool:
        """The caller gave up; returns whether the message stood, and is forgotten now."""
        return self._take(peer.id, message_id) is not None

    def receive_question(self, peer: Peer, payload: bytes, now: float) -> None:
        """Tell a node this node's clock."""
        if len(payload) != _QUESTION.size:
            self._count_drop("malformed")
            return
        _kind, nonce = _QUESTION.unpack(payload)
        told = read(now, is_rounded_up=True)
        self._out.append((peer.info, _ANSWER.pack(packets.CLOCK_ANSWER, nonce, told)))

    def receive_answer(self, peer: Peer, payload: bytes, now: float) -> None:
        """Take the clock of a node, and begin what stood for it and is in time."""
        if len(payload) != _ANSWER.size:
            self._count_drop("malformed")
            return
        _kind, nonce, told = _ANSWER.unpack(payload)
        if not self._clocks.told(peer.id, nonce, told):
            return  # it comes twice, or for the wrong node
        for message_id in list(self._standing.get(peer.id, ())):
            taken = self._take(peer.id, message_id)
            assert taken is not None
            message, sent_at, stands_until = taken
            age = self._clocks.age_of(peer.id, sent_at, now)
            if age is not None and age < message.argument:
                message.argument -= age
                self._begin(message, now)
            elif self._clocks.is_awaited(peer.id):  # a later question may show it younger
                self._keep(message, sent_at, stands_until)
            else:
                self._count_drop("request_without_caller")

    def handle_timeout(self, now: float) -> None:
        """Drop what has stood for too long; harmless if early, and late, for nothing begins by itself."""
        if not self._standing:
            return
        for source, messages in list(self._standing.items()):
            for message_id in [id_ for id_, (_message, _sent_at, until) in messages.items() if until <= now]:
                self._take(source, message_id)
                self._count_drop("request_without_caller")

    def packets_to_route(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the questions and answers to send through the ring."""
        out, self._out = self._out, []
        return out

    # --

    def _let_stand(self, message: PeerMessage, sent_at: int, now: float) -> None:
        size = len(message.payload) + len(message.headers.encoded)
        self.handle_timeout(now)
        self._take(message.peer.id, message.id)  # the same again
        if self._count >= ROUTED_MAX or self._bytes + size > ROUTED_BYTES_MAX:
            self._count_drop("standing_full")
            return
        self._keep(message, sent_at, now + min(message.argument / 1000, ROUTED_S_MAX))

    def _keep(self, message: PeerMessage, sent_at: int, stands_until: float) -> None:
        self._standing.setdefault(message.peer.id, {})[message.id] = (message, sent_at, stands_until)
        self._count += 1
        self._bytes += len(message.payload) + len(message.headers.encoded)

    def _take(self, source: NodeId, message_id: int) -> tuple[PeerMessage, int, float] | None:
        messages = self._standing.get(source)
        taken = None if messages is None else messages.pop(message_id, None)
        if messages is None or taken is None:
            return None
        if not messages:
            del self._standing[source]
        self._count -= 1
        self._bytes -= len(taken[0].payload) + len(taken[0].headers.encoded)
        return taken
