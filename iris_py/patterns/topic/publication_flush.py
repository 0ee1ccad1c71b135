"""The question to publishers for everything published so far (docs/design.md 15.76).

A subscriber sends FETCH with ``FLUSH``. The publisher answers with FETCHED, in a body behind all of its publications to the
subscriber. When the answer comes, no earlier publication is under way any more: each has come or is missing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.patterns.topic.queue import PublicationsFlushed
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.flows import FLUSH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.incoming_flows import IncomingFlows
    from iris_py.patterns.topic.queue import TopicEvent
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer

#: The ids of these questions begin here, above those about missed messages.
FLUSH_IDS: Final = 1 << 63


class PublicationFlush:
    """The open question of one node to its publishers. A new question replaces an open one.

    Args:
        outbound: Sends the questions.
        flows: The flows from the publishers.
        events: Gets ``PublicationsFlushed``, behind the events of all earlier publications.
    """

    def __init__(self, outbound: Outbound, flows: IncomingFlows[Callable[[float], None]], events: list[TopicEvent]) -> None:
        self._outbound = outbound
        self._flows = flows
        self._events = events
        self._number = FLUSH_IDS
        self._asked: set[NodeId] = set()  # publishers without an answer

    def ask(self, group: Group, publishers: Iterable[Peer], now: float) -> None:
        """Ask publishers; ``PublicationsFlushed`` follows when all have answered.

        Args:
            group: The group of the realm.
            publishers: The publishers; at most ``incoming_flows.PUBLISHERS_MAX``.
        """
        self._number = number = FLUSH_IDS | (self._number + 1 & FLUSH_IDS - 1)
        self._asked.clear()
        for peer in publishers:
            self._asked.add(peer.id)
            self._outbound.gather(PeerMessage(group, peer, packets.FETCH, number, FLUSH, b""), now)
        self._look()

    def receive(self, message: PeerMessage, now: float) -> bool:
        """Handle a publisher's answer; return False if the question is not open."""
        publisher = message.peer.id
        if message.id != self._number or publisher not in self._asked:
            return False
        flow = self._flows.find(publisher)
        if flow is not None and flow.is_held:
            self._flows.hold(flow, partial(self._note, message.id, publisher), 0, now)
        else:
            self._note(message.id, publisher, now)
        return True

    def _note(self, number: int, publisher: NodeId, _now: float) -> None:
        """Note that all earlier publications of a publisher were handed out."""
        if number == self._number and publisher in self._asked:
            self._asked.remove(publisher)
            self._look()

    def _look(self) -> None:
        if not self._asked:
            self._events.append(PublicationsFlushed())
            self._outbound.has_events = True
