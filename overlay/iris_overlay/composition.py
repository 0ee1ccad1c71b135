"""The parts of an overlay put together: what one puts out is carried to the one that it concerns, until nothing moves.

`Pastry` is the ring, `GroupLayer` what is kept in it, `Liveness` knows who lives, `Contacts` gets links to those that somebody
here has messages for, `Dialler` and `Discovery` find the network and other parts of it. They do not know each other.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.counters import Counters
from iris_overlay.events import (
    Departed,
    LinkReleased,
    ProtocolViolated,
    Settled,
    ViewChanged,
)
from iris_overlay.groups.io import HandoverDone, RouteTo, SendTo
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo, check_info
from iris_overlay.peers.contacts import ContactFailed, Contacts
from iris_overlay.peers.dial_back import Reaching
from iris_overlay.peers.dialling import Dialler
from iris_overlay.peers.dials import Dials
from iris_overlay.peers.discovery import Discovery, Stranger
from iris_overlay.peers.liveness import Liveness
from iris_overlay.ring.events import (
    Activated,
    Delivered,
    HandoverWanted,
    LeavesChanged,
    LeavesDoubted,
    PeerAnswered,
    PeerLeft,
    PeerSilent,
    PeerViolated,
    Received,
    Undeliverable,
)
from iris_overlay.ring.pastry import Pastry

if TYPE_CHECKING:
    from iris_overlay.config import OverlayConfig, Rng
    from iris_overlay.events import Event
    from iris_overlay.groups.io import GroupOutput
    from iris_overlay.ids import GroupId
    from iris_overlay.peers.contacts import ContactEvent
    from iris_overlay.ring.events import PastryEvent

CONTACTS_ENOUGH: Final = 3
"""A node that is in no ring yet dials nobody else while it has so many links: one of them lets it join."""

TO_MERGE_MAX: Final = 64
"""Nodes that were found, and whose links are about to open. Beyond it the oldest is forgotten: it is found again."""

DIALS_MAX: Final = 512
"""Dials remembered as under way. More than the bounds of dialler and contacts allow, unless links open that the other side
dialled; beyond it the oldest is forgotten: at worst an address is dialled twice at once."""


class Composition:
    """The parts of one node's overlay, and what flows between them.

    Attributes:
        counters: What was dropped, by reason.
    """

    def __init__(self, local: NodeInfo, config: OverlayConfig, rng: Rng) -> None:
        """Create the overlay of a node.

        Args:
            local: The node itself, with the addresses it listens on: for links, and the same for datagrams.
            config: The constants.
            rng: A source of randomness for jitter and sampling; nothing secret depends on it.

        Raises:
            InfoError: No peer would accept this node.
        """
        check_info(local)
        self.counters = Counters()
        self._local = local
        self._config = config
        self._is_started = False
        self._is_leaving = False
        self._is_settled = False
        # When the owner was to come at the latest, as it was told; and when it last came too late.
        self._due = inf
        self._resumed_at = -inf
        self._links: dict[NodeId, NodeInfo] = {}
        self._violators: dict[NodeId, None] = {}
        self._to_merge: dict[NodeId, None] = {}
        self._dials = Dials()
        self._messages: list[tuple[NodeId, bytes]] = []
        self._events: list[Event] = []
        self._views: dict[GroupId, ViewChanged] = {}
        self._ring = ring = Pastry(local, config.ring, rng)
        self._groups = GroupLayer(local, config.groups, rng, ring, self.counters)
        self._contacts = Contacts(local, config.contacts)
        self._reaching = Reaching(local, ring, self._contacts, self.counters)
        self._dialler = Dialler(local, config, rng, self.counters, self._is_known)
        self._discovery = Discovery(local, config, rng, self._dialler, self.counters, self._is_stranger)
        self._liveness = Liveness(local, config, rng, ring, self._groups, self._contacts, self._dialler)

    def _is_known(self, node: NodeId) -> bool:
        return node in self._links or self._ring.find(node) is not None

    def _is_stranger(self, node: NodeId) -> Stranger:
        if self._is_known(node):
            return Stranger.KNOWN
        return Stranger.NEIGHBOUR if not self._ring.is_active or self._ring.admits(node) else Stranger.FAR

    def _peers_count(self) -> int:
        return self._ring.size_estimate() - 1 if self._ring.is_active else 0

    def _violate(self, peer: NodeId, reason: str) -> None:
        """Have the link to a peer closed. What came through the ring from elsewhere has no link that could be closed."""
        if peer in self._links and peer not in self._violators:
            self._violators[peer] = None
            self._events.append(ProtocolViolated(peer, reason))

    def _settle(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._discovery.settle()
            self._events.append(Settled())

    def _notice_stall(self, now: float) -> None:
        """Handle that this process stood still, if so, before whatever came meanwhile is.

        A message or the timer comes first, that depends on the event loop; and either may put the deadlines off that show it.
        """
        if now - max(self._due, self._resumed_at) > self._config.stall_s:
            self._resumed_at = now
            self._ring.resume(now)
            self._groups.resume(now)

    def _finish_turn(self, now: float) -> None:
        """Carry what the parts put out until nothing moves."""
        self._due = inf  # until the owner asks again
        if self._dialler.found:
            self._merge_with_found(now)
        moved = True
        while moved:
            moved = False
            for event in self._ring.events_received():
                moved = True
                self._handle_ring(event, now)
            for output in self._groups.outputs_to_send():
                moved = True
                self._send_group(output, now)
            for info, data in self._ring.messages_to_send():
                moved = True
                self._contacts.send(info, data, now)
            for contact_event in self._contacts.events_received():
                moved = True
                self._handle_contact(contact_event, now)
            for verdict in self._liveness.detector.events_received():
                moved = True
                self._liveness.handle_detector(verdict, now)
            for group_event in self._groups.events_received():
                moved = True
                self._handle_group(group_event, now)
            if self._is_started and not self._ring.is_active and not self._is_leaving:
                moved |= self._maybe_start_alone(now)
        self._messages += self._contacts.messages_to_send()
        self._take_events()
        self._request_dials(now)

    def _maybe_start_alone(self, now: float) -> bool:
        if not self._discovery.should_start_alone(has_link=bool(self._links), is_linking=bool(self._to_merge)):
            return False
        self._ring.start_alone(now)
        for info in self._links.values():
            self._ring.merge_with(info, now)
        return True

    def _take_events(self) -> None:
        for part in (self._liveness, self._reaching):
            if part.events:
                self._events += part.events
                part.events = []

    def _request_dials(self, now: float) -> None:
        is_searching = not self._ring.is_active
        if not is_searching or len(self._links) < CONTACTS_ENOUGH:
            self._dialler.request_dials(now, self._config.search_dials_max if is_searching else self._config.dials_max)
        self._events += self._dials.begin((*self._dialler.requests, *self._contacts.requests_to_dial()), now)
        self._dialler.requests.clear()

    def _merge_with_found(self, now: float) -> None:
        found, self._dialler.found = self._dialler.found, []
        for node in found:
            info = self._links.get(node)
            if info is None:
                if len(self._to_merge) >= TO_MERGE_MAX:
                    del self._to_merge[next(iter(self._to_merge))]
                self._to_merge[node] = None
            elif self._ring.is_active:
                self._ring.merge_with(info, now)

    def _handle_ring(self, event: PastryEvent, now: float) -> None:
        groups = self._groups
        if isinstance(event, Delivered):
            groups.delivered(event.key, event.payload, event.source, event.path, now)
        elif isinstance(event, Received):
            if not self._reaching.received(event.source, event.payload, now):
                groups.received(event.source, event.payload, now)
        elif isinstance(event, LeavesChanged):
            groups.leaves_changed(event.added, event.removed, now)
            self._liveness.refresh(now)
            self._liveness.leaves_added(event.added, now)
        elif isinstance(event, HandoverWanted):
            groups.handover_wanted(event.to, now)
        elif isinstance(event, Undeliverable):
            if not self._reaching.undeliverable(NodeId(event.key), event.payload):
                groups.undeliverable(event.key, event.payload, now)
        elif isinstance(event, Activated):
            groups.activated(now)
            self._liveness.refresh(now)
            self._settle()
        elif isinstance(event, PeerLeft):
            self._liveness.left(event.peer, now)
        elif isinstance(event, LeavesDoubted):
            self._liveness.detector.look_at(event.leaves, event.witness, now)
        elif isinstance(event, PeerAnswered):
            if not self._liveness.is_buried(event.peer):  # else it may have come from the dead: the ring takes its time
                self._liveness.heard_from(event.peer, now)
        elif isinstance(event, PeerSilent):
            self._liveness.bury(event.info, now, is_silent=True)
        elif isinstance(event, PeerViolated):
            self.counters.messages_invalid += 1
            self._violate(event.peer, event.reason)

    def _send_group(self, output: GroupOutput, now: float) -> None:
        if isinstance(output, RouteTo):
            self._ring.route(output.key, output.payload, now)
        elif isinstance(output, SendTo):
            self._ring.send(output.info, output.payload, now)
        elif isinstance(output, HandoverDone):
            self._ring.handover_done(output.to, now)
        else:
            self._ring.answer(output.path, output.payload, now)

    def _handle_contact(self, event: ContactEvent, now: float) -> None:
        if isinstance(event, ContactFailed):
            peer = event.info.id
            is_dead = event.is_refused and self._liveness.refused(event.info, now)
            self._reaching.contact_failed(event, is_dead=is_dead, now=now)
            if event.is_overflow:
                self._ring.give_back(peer, event.undelivered, now)
            else:
                self._ring.contact_failed(peer, event.undelivered, now)
        elif isinstance(event, LinkReleased) and not self._needs_link(event.peer):
            self._events.append(event)

    def _needs_link(self, peer: NodeId) -> bool:
        return self._ring.is_leaf(peer) or not self._ring.is_active or self._groups.needs(peer)

    def _handle_group(self, event: Event, now: float) -> None:
        if isinstance(event, ViewChanged):
            self._views.pop(event.group, None)
            self._views[event.group] = event
        elif isinstance(event, Departed):
            self._ring.leave(now)
            self._events.append(event)
        elif isinstance(event, ProtocolViolated):
            self._violate(event.peer, event.reason)
        else:
            self._events.append(event)
