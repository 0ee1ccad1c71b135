"""The last question of a member at the end of a subscription with a group (docs/design.md 8.16).

Publishers confirm the end of a share to the root of the table, and the root tells the member. Messages take another path, the
link of the publisher, and may be slower. Therefore the member then sends FLUSH over all links. FLUSHED comes behind all
earlier messages of the other end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from iris_py.patterns.topic.incoming_flows import ANSWER_S
from iris_py.patterns.topic.queue import SubscriptionEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer

#: The number of a question in FLUSH and FLUSHED.
_NUMBER: Final = struct.Struct(">Q")


class ShareFlush:
    """Delays the end of subscriptions with groups until every linked node has answered or lost the link, or ``ANSWER_S``.

    One question is open at a time. All subscriptions that end meanwhile share the next one.

    Args:
        outbound: Sends the questions.
        linked: Returns the peers with open or closing links. No message is under way from other nodes.
        events: Gets ``SubscriptionEnded``, behind the events of all messages.
    """

    def __init__(self, outbound: Outbound, linked: Callable[[], Iterable[Peer]], events: list[TopicEvent]) -> None:
        self._outbound = outbound
        self._linked = linked
        self._events = events
        self._number = 0
        self._asked: set[NodeId] = set()  # nodes without an answer to the open question
        self._ends_at: float | None = None  # None without an open question
        self._ending: list[SubscriptionQueue] = []  # the subscriptions of the open question
        self._next: list[SubscriptionQueue] = []  # those of the next one

    def end(self, queues: Iterable[SubscriptionQueue], now: float) -> None:
        """End subscriptions: ``SubscriptionEnded`` follows for every subscription."""
        self._next += queues
        if self._ends_at is None and self._next:
            self._ask(now)

    def receive(self, peer: Peer, number: bytes, now: float) -> bool:
        """Handle the answer of a node; return False if the question is not open."""
        if number != _NUMBER.pack(self._number) or peer.id not in self._asked:
            return False
        self.link_ended(peer, now)
        return True

    def link_ended(self, peer: Peer, now: float) -> None:
        """Handle the end of a peer's link: no message is under way on an ended link."""
        if peer.id in self._asked:
            self._asked.remove(peer.id)
            if not self._asked:
                self._finish(now)

    def handle_timeout(self, now: float) -> None:
        """Give up the answers that are late; harmless if early."""
        if self._ends_at is not None and now >= self._ends_at:
            self._finish(now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._ends_at

    # --

    def _ask(self, now: float) -> None:
        self._ending, self._next = self._next, []
        self._number += 1
        self._ends_at = now + ANSWER_S
        self._outbound.has_events = True  # the deadline has changed
        for peer in self._linked():
            self._asked.add(peer.id)
            self._outbound.ask_flush(peer, _NUMBER.pack(self._number))
        if not self._asked:
            self._finish(now)

    def _finish(self, now: float) -> None:
        self._asked.clear()
        self._ends_at = None
        self._events += map(SubscriptionEnded, self._ending)
        self._ending = []
        self._outbound.has_events = True
        if self._next:
            self._ask(now)
