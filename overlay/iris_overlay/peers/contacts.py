"""Links on demand: messages to a peer without a link wait while the peer is dialled.

In a large network a node has links to few of its known nodes. Senders need not care: their messages wait here, in order and
bounded, while the peer's addresses are dialled one after the other. The messages leave when the link opens. If no address can
be reached, the messages are returned and can take another way. Unneeded idle links are released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from iris_overlay.events import DialRequested, LinkReleased
from iris_overlay.node_info import NodeInfo
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.config import ContactsConfig
    from iris_overlay.peers.hearsay import Hearsay
    from iris_overlay.peers.vantage import Vantage

#: The largest number of addresses that pause at a time; beyond it the longest pause ends early. Too small: with that number of
#: failed dials within `ContactsConfig.address_rest_s` some address is dialled too soon; too large: memory.
ADDRESSES_RESTING_MAX: Final = 1024

#: The largest number of unreachable peers that pause; beyond it the longest pauses end early. Too small: with that number of
#: failed dials within `ContactsConfig.rest_s` some peer is dialled too soon; too large: memory.
RESTING_MAX: Final = 1024


class ContactFailed(msgspec.Struct, frozen=True):
    """Report that no link to a peer can be opened. The peer may live and have links to other nodes."""

    info: NodeInfo
    """The peer."""
    undelivered: list[bytes]
    """The waiting messages, in order."""
    is_refused: bool = False
    """Whether all of the peer's addresses refused the dial."""
    is_overflow: bool = False
    """Whether too many messages wait already, or waited too long for a running dial. This says nothing about the peer."""


ContactEvent: TypeAlias = ContactFailed | LinkReleased


class _DialledPeer(msgspec.Struct):
    """A peer that is being dialled. Invariant: position <= len(addresses)."""

    info: NodeInfo
    addresses: list[str]
    messages: list[bytes] = []
    position: int = 0
    dialled: str | None = None
    """The address being dialled, or with a link about to open."""
    is_refused: bool = True
    """Whether all addresses so far refused the dial."""
    is_again: bool = False
    """Whether the address is dialled for the second time, now or soon."""
    is_late: bool = False
    """Whether messages no longer wait for the peer."""


class Contacts:
    """Links on demand: pass messages to open links, and dial peers without a link.

    After any call take `messages_to_send`, `requests_to_dial` and `events_received`, and schedule `handle_timeout` at
    `deadline`. The owner reports the outcome of every dial, and every link, dialled by either side.
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
        "_requests",
        "_resting",
        "_resting_addresses",
        "_timeouts",
        "_turn",
        "_vantage",
        "_waiting",
    )

    def __init__(self, local: NodeInfo, config: ContactsConfig, vantage: Vantage, hearsay: Hearsay) -> None:
        """Create the contacts, without any peer.

        Args:
            local: The node itself.
            config: The constants.
            vantage: Orders the addresses of a peer.
            hearsay: Bounds the dials of unproven addresses.
        """
        self._local = local
        self._config = config
        self._vantage = vantage
        self._hearsay = hearsay
        self._waiting: dict[NodeId, _DialledPeer] = {}
        self._turn: dict[NodeId, None] = {}  # peers waiting for a free dial
        self._dialling: dict[str, dict[NodeId, None]] = {}
        self._timeouts: DeadlineTable[NodeId] = DeadlineTable()
        self._again: DeadlineTable[NodeId] = DeadlineTable()  # peers to dial a second time
        self._patience: DeadlineTable[NodeId] = DeadlineTable()  # peers with waiting messages
        self._resting: DeadlineTable[NodeId] = DeadlineTable()
        # Addresses that reached no node or another one, and the end of their pause; in order of that end.
        self._resting_addresses: dict[str, float] = {}
        self._last_used: dict[NodeId, float] = {}  # for every open link
        self._idle: DeadlineTable[NodeId] = DeadlineTable()
        self._messages: list[tuple[NodeId, bytes]] = []
        self._requests: list[DialRequested] = []
        self._events: list[ContactEvent] = []

    # Commands

    def send(self, peer: NodeInfo, message: bytes, now: float) -> None:
        """Send a message over the link to a peer, now or when it opens; return the message if none opens."""
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
        """Open a link to a peer, or report `ContactFailed`; harmless if the link exists or the peer is being dialled."""
        if peer.id in self._last_used or peer.id in self._waiting:
            return
        if self._begin(peer) is None:
            self._events.append(ContactFailed(peer, [], is_overflow=self._is_full))
            return
        self._dial(now)

    # Inputs

    def heard_from(self, peer: NodeId, now: float) -> None:
        """Note that a peer uses its link, which is therefore not idle."""
        if peer in self._last_used:
            self._last_used[peer] = now

    def link_opened(self, peer: NodeId, now: float) -> None:
        """Send the messages that wait for a peer over its new link, dialled by either side."""
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
        """Note the end of a link; harmless without one."""
        if self._last_used.pop(peer, None) is not None:
            self._idle.cancel(peer)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Note the node reached at an address; for other nodes expected there, dial their next address."""
        self._hearsay.reach(peer, address, now)
        for node in list(self._dialling.get(address, ())):
            if node != peer:
                self._let_rest(address, now)
                self._try_next(node, now, is_refused=True)  # Another process has that port now.
        self._dial(now)

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Dial the next address of the peers concerned by a failed dial, or the same again if the connection broke."""
        for node in list(self._dialling.get(address, ())):
            waiting = self._waiting[node]
            if is_broken and not waiting.is_again:
                self._end_dial(node, waiting)
                waiting.is_again = True
                self._again.set(node, now + self._config.again_s)
            else:
                self._let_rest(address, now)
                if is_refused and self._hearsay.reached_at(node) == address:
                    # The peer was reached at this address before, so its other addresses do not matter.
                    waiting.is_refused = True
                    waiting.position = len(waiting.addresses) - 1
                self._try_next(node, now, is_refused=is_refused)
        self._dial(now)

    def dial_rested(self, address: str, now: float) -> None:
        """Dial the peers at an address that rests again later; peers that a dial has reached there, at once."""
        for node in list(self._dialling.get(address, ())):
            self._end_dial(node, self._waiting[node])
            if self._hearsay.is_proven(node, address):
                self._turn[node] = None
            else:
                self._let_rest(address, now)
                self._again.set(node, now + self._config.address_rest_s)
        self._dial(now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Stop dialling a dead peer, and return its waiting messages."""
        waiting = self._waiting.get(peer)
        if waiting is not None:
            self._fail(peer, waiting, now)
            self._dial(now)

    def handle_timeout(self, now: float) -> None:
        """Give up slow dials, return messages that waited too long, and release idle links; harmless if early."""
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
                # Report once: the owner may use the link itself, so check it again after the same time.
                self._idle.set(node, now + self._config.link_idle_s)
                self._events.append(LinkReleased(node))
        self._dial(now)

    # Outputs

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Remove and return the messages for open links."""
        messages, self._messages = self._messages, []
        return messages

    def requests_to_dial(self) -> list[DialRequested]:
        """Remove and return the dials to make."""
        requests, self._requests = self._requests, []
        return requests

    def events_received(self) -> list[ContactEvent]:
        """Remove and return the events for the owner."""
        events, self._events = self._events, []
        return events

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        tables = (self._timeouts, self._again, self._patience, self._idle, self._resting)
        deadlines = [table.deadline() for table in tables]
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    @property
    def waiting_count(self) -> int:
        """The number of peers that are being dialled, or wait for a dial."""
        return len(self._waiting)

    def has_reached(self, peer: NodeId) -> bool:
        """Return whether a dial from here has reached a peer before, which proves its address right."""
        return self._hearsay.reached_at(peer) is not None

    # The components

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._config.waiting_peers_max

    def _begin(self, peer: NodeInfo) -> _DialledPeer | None:
        if peer.id in self._resting or self._is_full:
            return None
        self._hearsay.note(peer.id)
        own = self._local.addresses
        addresses = [address for address in self._vantage.order(peer) if address not in own]
        if not addresses:
            return None
        waiting = self._waiting[peer.id] = _DialledPeer(peer, addresses)
        self._turn[peer.id] = None
        return waiting

    def _dial(self, now: float) -> None:
        """Start the waiting dials for which there is room, in the order of the requests."""
        while self._turn:
            node = next(iter(self._turn))
            waiting = self._waiting[node]
            address = waiting.addresses[waiting.position]
            rests_until = self._resting_addresses.get(address, now)
            is_proven = self._hearsay.is_proven(node, address)
            if rests_until > now and not (is_proven or self._hearsay.has_met(node)):
                # The peer may be made up: many made-up peers at one address cost only a dial now and then.
                self._again.set(node, rests_until)
                del self._turn[node]
                continue
            dialling = self._dialling.get(address)
            if dialling is None:
                if len(self._dialling) >= self._config.dials_max:
                    return
                if not (is_proven or self._hearsay.charge(node, now)):
                    self._fail(node, waiting, now)
                    continue
                dialling = self._dialling[address] = {}
                self._requests.append(DialRequested(address, node, is_proven))
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

    def _fail(self, node: NodeId, waiting: _DialledPeer, now: float) -> None:
        self._forget(node, waiting)
        if len(self._resting) >= RESTING_MAX:
            self._resting.expired(self._resting.deadline() or now)
        self._resting.set(node, now + self._config.rest_s)
        is_refused = waiting.is_refused and waiting.position == len(waiting.addresses)
        self._events.append(ContactFailed(waiting.info, waiting.messages, is_refused))

    def _forget(self, node: NodeId, waiting: _DialledPeer) -> None:
        del self._waiting[node]
        self._again.cancel(node)
        self._patience.cancel(node)
        self._turn.pop(node, None)
        self._end_dial(node, waiting)

    def _end_dial(self, node: NodeId, waiting: _DialledPeer) -> None:
        self._timeouts.cancel(node)
        if waiting.dialled is not None:
            dialling = self._dialling[waiting.dialled]
            del dialling[node]
            if not dialling:
                del self._dialling[waiting.dialled]
            waiting.dialled = None
