"""Requests held before their execution, because their callers may already have given up (docs/design.md 6.3).

``StandingRequests`` holds requests that may have waited unread while the node stood still, with the process stopped or the
event loop blocked. A request does not reveal the wait. So the request is held until the peer answers a question asked since
then; if the link turns out to have ended, the request is dropped unexecuted. Later messages on the link, such as the
cancellation, are handled meanwhile.

``RoutedRequests`` holds requests that came through the ring, where any node may have delayed them. The request carries the
caller's time left and the send time by the source's clock. The receiver knows the highest possible age once the source has told
its clock (:mod:`iris_py.peers.clocks`). Until then the request is held, and also if it seems too late, because the clock's
question may have been slow. A request past the deadline, or without an answer from the source, is dropped.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iris_py.peers.clocks import NONCE_BYTES, Clocks, read
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.decrypted_message import PeerMessage
    from iris_py.peers.peer import Peer

#: Payload bytes held, of all peers together. Beyond this bound the peer's requests are started: a caller that had given up
#: could not have sent for so long. The buffers of a few links hold this many bytes.
STANDING_BYTES_MAX = 64 * 1024 * 1024
#: Bytes counted for each request besides its payload.
REQUEST_BYTES = 256


class StandingRequests:
    """Requests that may have waited unread while this node stood still, held by link until the peer gives a sign."""

    def __init__(self) -> None:
        self._by_link: dict[Link, dict[int, tuple[PeerMessage, float]]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_link.values()))

    @property
    def is_full(self) -> bool:
        """Whether the held requests have reached ``STANDING_BYTES_MAX``."""
        return self._bytes >= STANDING_BYTES_MAX

    def add(self, link: Link, message: PeerMessage, now: float) -> None:
        """Hold a request that was just read from a link."""
        self.cancel(link, message.id)  # honest callers never repeat an id; the last one counts
        self._by_link.setdefault(link, {})[message.id] = (message, now)
        self._bytes += REQUEST_BYTES + len(message.payload)

    def cancel(self, link: Link, message_id: int) -> bool:
        """Drop a cancelled message; return whether it was held."""
        found = self._by_link.get(link, {}).pop(message_id, None)
        if found is None:
            return False
        self._bytes -= REQUEST_BYTES + len(found[0].payload)
        return True

    def take(self, link: Link) -> list[tuple[PeerMessage, float]]:
        """Take the held messages of a link, in order, with the time each was read (seconds)."""
        messages = list(self._by_link.pop(link, {}).values())
        self._bytes -= sum(REQUEST_BYTES + len(message.payload) for message, _arrived_at in messages)
        return messages


#: Requests held, of all sources together; further ones are dropped, and counted. Too small: of many new callers at once, some
#: have to ask again. Too large: memory.
ROUTED_MAX = 1024
#: Bytes of the payloads and headers of all held requests.
ROUTED_BYTES_MAX = 16 * 1024 * 1024
#: Longest time for which a request is held (seconds), if its caller waits that long. A question takes a round trip, and longer
#: while the ring finds its way around a dead node. Too large: silent sources occupy the places of others.
ROUTED_S_MAX = 5.0

_QUESTION = struct.Struct(f">B{NONCE_BYTES}s")
_ANSWER = struct.Struct(f">B{NONCE_BYTES}sQ")


class RoutedRequests:
    """The requests that came through the ring, until their age is known.

    Args:
        clocks: The known clocks of their sources.
        begin: Starts a request that is in time.
    """

    def __init__(
        self, clocks: Clocks, begin: Callable[[PeerMessage, float], None], count_drop: Callable[[str], object]
    ) -> None:
        self._clocks = clocks
        self._begin = begin
        self._count_drop = count_drop
        # By source id and message id: the message, its send time by the source's clock (ms), and the time until which it is
        # held.
        self._standing: dict[NodeId, dict[int, tuple[PeerMessage, int, float]]] = {}
        self._count = self._bytes = 0
        self._out: list[tuple[NodeInfo, bytes]] = []

    def __len__(self) -> int:
        return self._count

    def receive(self, message: PeerMessage, sent_at: int, now: float) -> None:
        """Handle a request or survey: start it, hold it, or drop it.

        Args:
            sent_at: Its send time by the source's clock (milliseconds).
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
        """Drop a cancelled message; return whether it was held."""
        return self._take(peer.id, message_id) is not None

    def receive_question(self, peer: Peer, payload: bytes, now: float) -> None:
        """Answer a node's question with this node's clock."""
        if len(payload) != _QUESTION.size:
            self._count_drop("malformed")
            return
        _kind, nonce = _QUESTION.unpack(payload)
        told = read(now, is_rounded_up=True)
        self._out.append((peer.info, _ANSWER.pack(packets.CLOCK_ANSWER, nonce, told)))

    def receive_answer(self, peer: Peer, payload: bytes, now: float) -> None:
        """Record a node's clock, and start held requests within their time."""
        if len(payload) != _ANSWER.size:
            self._count_drop("malformed")
            return
        _kind, nonce, told = _ANSWER.unpack(payload)
        if not self._clocks.told(peer.id, nonce, told):
            return  # a repeated answer, or from the wrong node
        for message_id in list(self._standing.get(peer.id, ())):
            taken = self._take(peer.id, message_id)
            assert taken is not None
            message, sent_at, stands_until = taken
            age = self._clocks.age_of(peer.id, sent_at, now)
            if age is not None and age < message.argument:
                message.argument -= age
                self._begin(message, now)
            elif self._clocks.is_awaited(peer.id):  # a later question may show that it is younger
                self._keep(message, sent_at, stands_until)
            else:
                self._count_drop("request_without_caller")

    def handle_timeout(self, now: float) -> None:
        """Drop the requests held too long; harmless if early or late."""
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
        self._take(message.peer.id, message.id)  # a repetition
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
