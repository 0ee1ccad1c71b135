"""Links on demand: messages to peers that there is no link to wait while the peer is dialled.

In a large network a node has links to few of the nodes that it knows. Who sends to another one does not care: here its messages
wait, in order and bounded, while one address of it after the other is dialled; they leave when the link opens, or are given
back when it cannot be reached, so that they can go another way. Links that nobody needs and nothing uses are let go again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from iris_overlay.events import DialRequested, LinkReleased
from iris_overlay.messages import NodeInfo
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.config import ContactsConfig
    from iris_overlay.peers.hearsay import Hearsay
    from iris_overlay.peers.vantage import Vantage

#: Addresses that rest at a time; of more, the one that has rested longest is forgotten. Too small: with as many dials in vain
#: within `ContactsConfig.address_rest_s` some address is dialled again too soon; too large: memory.
ADDRESSES_RESTING_MAX: Final = 1024

#: Peers that could not be reached and rest; of more, those that have rested longest may be dialled again. Too small: with as
#: many dials in vain within `ContactsConfig.rest_s` some peer is dialled again too soon; too large: memory.
RESTING_MAX: Final = 1024

#: Peers that a dial from here has reached, with the address; of more, the one that was reached first is forgotten. Too small:
#: the death of one is left to the detector; too large: memory.
REACHED_MAX: Final = 4096


class ContactFailed(msgspec.Struct, frozen=True):
    """Report that a peer cannot be reached by a link of ours. It may live: others may have a link to it."""

    info: NodeInfo
    """The peer."""
    undelivered: list[bytes]
    """The messages that waited, in order."""
    is_refused: bool = False
    """Whether nobody listens at any of its addresses."""
    is_overflow: bool = False
    """Whether too much waits already, or for too long while the peer is being dialled. That says nothing about the peer."""


ContactEvent: TypeAlias = ContactFailed | LinkReleased


class _Waiting(msgspec.Struct):
    """A peer that is being dialled. Invariant: position <= len(addresses)."""

    info: NodeInfo
    addresses: list[str]
    messages: list[bytes] = []
    position: int = 0
    dialled: str | None = None
    """The address whose dial is under way, or whose link is about to open."""
    is_refused: bool = True
    """Whether nobody listens at the addresses tried so far."""
    is_again: bool = False
    """Whether that address is dialled for the second time, or is about to be."""
    is_late: bool = False
    """Whether messages do not wait for it any more."""


class Contacts:
    """Give messages to links, and see that there are links.

    After any call take `messages_to_send`, `requests_to_dial` and `events_received`, and arrange that `handle_timeout` is
    called at `deadline`. The owner reports every outcome of a dial, and every link, whoever dialled.
    """

    __slots__ = (
        "_again",
        "_config",
        "_dialling",
        "_events",
        "_hearsay",
        "_idle",
        "_last_used",
        "_local",
        "_messages",
        "_patience",
        "_reached",
        "_requests",
        "_resting",
        "_resting_addresses",
        "_timeouts",
        "_turn",
        "_vantage",
        "_waiting",
    )

    def __init__(self, local: NodeInfo, config: ContactsConfig, vantage: Vantage, hearsay: Hearsay) -> None:
        """Know nobody.

        Args:
            local: The node itself.
            config: The constants.
            vantage: Orders the addresses of a peer.
            hearsay: Bounds the dials of peers that were never met.
        """
        self._local = local
        self._config = config
        self._vantage = vantage
        self._hearsay = hearsay
        self._waiting: dict[NodeId, _Waiting] = {}
        self._turn: dict[NodeId, None] = {}  # who waits for a free dial
        self._dialling: dict[str, dict[NodeId, None]] = {}
        self._timeouts: DeadlineTable[NodeId] = DeadlineTable()
        self._again: DeadlineTable[NodeId] = DeadlineTable()  # of those to be dialled once more
        self._patience: DeadlineTable[NodeId] = DeadlineTable()  # of those with messages
        self._resting: DeadlineTable[NodeId] = DeadlineTable()
        # Addresses at which nobody was found, or another node, and until when; in that order.
        self._resting_addresses: dict[str, float] = {}
        self._last_used: dict[NodeId, float] = {}  # of every open link
        self._idle: DeadlineTable[NodeId] = DeadlineTable()
        self._reached: dict[NodeId, str] = {}
        self._messages: list[tuple[NodeId, bytes]] = []
        self._requests: list[DialRequested] = []
        self._events: list[ContactEvent] = []

    # Commands

    def send(self, peer: NodeInfo, message: bytes, now: float) -> None:
        """Send a message over the link to a peer, or as soon as there is one; it comes back if none opens."""
        node = peer.id
        if node in self._last_used:
            self._last_used[node] = now
            self._messages.append((node, message))
            return
        waiting = self._waiting.get(node)
        if waiting is None:
            waiting = self._begin(peer)
            if waiting is None:
                self._events.append(ContactFailed(peer, [message], is_overflow=self._is_full))
                return
        if waiting.is_late:
            self._events.append(ContactFailed(peer, [message], is_overflow=True))
            return
        if not waiting.messages:
            self._patience.set(node, now + self._config.patience_s)
        waiting.messages.append(message)
        if len(waiting.messages) > self._config.waiting_messages_max:
            self._events.append(ContactFailed(peer, [waiting.messages.pop(0)], is_overflow=True))
        self._dial(now)

    def connect(self, peer: NodeInfo, now: float) -> None:
        """Open a link to a peer, or report `ContactFailed`; harmless if there is one, or it is being dialled."""
        if peer.id in self._last_used or peer.id in self._waiting:
            return
        if self._begin(peer) is None:
            self._events.append(ContactFailed(peer, [], is_overflow=self._is_full))
            return
        self._dial(now)

    # Inputs

    def heard_from(self, peer: NodeId, now: float) -> None:
        """Note that the peer uses the link."""
        if peer in self._last_used:
            self._last_used[peer] = now

    def link_opened(self, peer: NodeId, now: float) -> None:
        """Handle a new link, whoever dialled: what waited for it leaves."""
        self._last_used[peer] = now
        self._idle.set(peer, now + self._config.link_idle_s)
        self._resting.cancel(peer)
        self._hearsay.meet(peer, now)
        waiting = self._waiting.get(peer)
        if waiting is not None:
            self._messages.extend((peer, message) for message in waiting.messages)
            self._forget(peer, waiting)
        self._dial(now)

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Handle the end of a link; harmless if there was none."""
        if self._last_used.pop(peer, None) is not None:
            self._idle.cancel(peer)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Handle that a dial reached somebody: a link is about to open, unless it was somebody else."""
        self._reached.pop(peer, None)
        if len(self._reached) >= REACHED_MAX:
            del self._reached[next(iter(self._reached))]
        self._reached[peer] = address
        for node in list(self._dialling.get(address, ())):
            if node != peer:
                self._let_rest(address, now)
                self._try_next(node, now, is_refused=True)  # Another process has that port now.
        self._dial(now)

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Handle that a dial failed: the next address is tried, or once more the same one if the connection broke."""
        for node in list(self._dialling.get(address, ())):
            waiting = self._waiting[node]
            if is_broken and not waiting.is_again:
                self._end_dial(node, waiting)
                waiting.is_again = True
                self._again.set(node, now + self._config.again_s)
            else:
                self._let_rest(address, now)
                if is_refused and self._reached.get(node) == address:
                    # The right one of its addresses, for it was reached there: what the others say is of no interest.
                    waiting.is_refused = True
                    waiting.position = len(waiting.addresses) - 1
                self._try_next(node, now, is_refused=is_refused)
        self._dial(now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Handle that a peer is dead: nothing needs to wait for it."""
        waiting = self._waiting.get(peer)
        if waiting is not None:
            self._fail(peer, waiting, now)
            self._dial(now)

    def handle_timeout(self, now: float) -> None:
        """Give up dials that led nowhere, and let go of idle links; harmless if early."""
        for node in self._timeouts.expired(now):
            self._try_next(node, now, is_refused=False)
        for node in self._again.expired(now):
            self._turn[node] = None
        for node in self._patience.expired(now):
            waiting = self._waiting[node]
            waiting.is_late = True
            messages, waiting.messages = waiting.messages, []
            self._events.append(ContactFailed(waiting.info, messages, is_overflow=True))
        self._resting.expired(now)
        for node in self._idle.expired(now):
            idle_at = self._last_used[node] + self._config.link_idle_s
            if idle_at > now:
                self._idle.set(node, idle_at)
            else:
                # Once: the owner may have a use of its own for it, and then it is looked at again after as long a time.
                self._idle.set(node, now + self._config.link_idle_s)
                self._events.append(LinkReleased(node))
        self._dial(now)

    # Outputs

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Take the messages for open links."""
        messages, self._messages = self._messages, []
        return messages

    def requests_to_dial(self) -> list[DialRequested]:
        """Take the dials to make."""
        requests, self._requests = self._requests, []
        return requests

    def events_received(self) -> list[ContactEvent]:
        """Take what happened."""
        events, self._events = self._events, []
        return events

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        tables = (self._timeouts, self._again, self._patience, self._idle, self._resting)
        deadlines = [table.deadline() for table in tables]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def waiting_count(self) -> int:
        """Return how many peers messages wait for."""
        return len(self._waiting)

    def has_reached(self, peer: NodeId) -> bool:
        """Return whether a dial from here has reached a peer before: its addresses are true, and can be dialled from here."""
        return peer in self._reached

    # The parts

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._config.waiting_peers_max

    def _begin(self, peer: NodeInfo) -> _Waiting | None:
        if peer.id in self._resting or self._is_full:
            return None
        self._hearsay.note(peer.id)
        own = self._local.addresses
        addresses = [address for address in self._vantage.order(peer) if address not in own]
        if not addresses:
            return None
        waiting = self._waiting[peer.id] = _Waiting(peer, addresses)
        self._turn[peer.id] = None
        return waiting

    def _dial(self, now: float) -> None:
        """Start the dials that there is room for, in the order in which they were wanted."""
        while self._turn:
            node = next(iter(self._turn))
            waiting = self._waiting[node]
            address = waiting.addresses[waiting.position]
            rests_until = self._resting_addresses.get(address, now)
            if rests_until > now and not self._hearsay.has_met(node):
                # Whoever named this peer there may have made it up: many of them cost one dial now and then.
                self._again.set(node, rests_until)
                del self._turn[node]
                continue
            dialling = self._dialling.get(address)
            if dialling is None:
                if len(self._dialling) >= self._config.dials_max:
                    return
                if not self._hearsay.charge(node, now):
                    self._fail(node, waiting, now)
                    continue
                dialling = self._dialling[address] = {}
                self._requests.append(DialRequested(address, node))
            dialling[node] = None
            waiting.dialled = address
            del self._turn[node]
            self._timeouts.set(node, now + self._config.dial_timeout_s)

    def _let_rest(self, address: str, now: float) -> None:
        resting = self._resting_addresses
        resting.pop(address, None)
        while resting and (len(resting) >= ADDRESSES_RESTING_MAX or next(iter(resting.values())) <= now):
            del resting[next(iter(resting))]
        resting[address] = now + self._config.address_rest_s

    def _try_next(self, node: NodeId, now: float, *, is_refused: bool) -> None:
        waiting = self._waiting[node]
        self._end_dial(node, waiting)
        waiting.position += 1
        waiting.is_again = False
        waiting.is_refused &= is_refused
        if waiting.position < len(waiting.addresses):
            self._turn[node] = None
        else:
            self._fail(node, waiting, now)

    def _fail(self, node: NodeId, waiting: _Waiting, now: float) -> None:
        self._forget(node, waiting)
        if len(self._resting) >= RESTING_MAX:
            self._resting.expired(self._resting.deadline() or now)
        self._resting.set(node, now + self._config.rest_s)
        is_refused = waiting.is_refused and waiting.position == len(waiting.addresses)
        self._events.append(ContactFailed(waiting.info, waiting.messages, is_refused))

    def _forget(self, node: NodeId, waiting: _Waiting) -> None:
        del self._waiting[node]
        self._again.cancel(node)
        self._patience.cancel(node)
        self._turn.pop(node, None)
        self._end_dial(node, waiting)

    def _end_dial(self, node: NodeId, waiting: _Waiting) -> None:
        self._timeouts.cancel(node)
        if waiting.dialled is not None:
            dialling = self._dialling[waiting.dialled]
            del dialling[node]
            if not dialling:
                del self._dialling[waiting.dialled]
            waiting.dialled = None
