"""The exchange between the links of a node, its overlay, and the patterns that send over both.

A link reports an identified peer or its end, the overlay reports dead peers and changed membership views. Each report may cause
reports of the other: the end of a link changes the views, and a dead peer ends its link. :meth:`Exchange.advance` passes them
on until none is left. What concerns the owner alone is collected in :attr:`Exchange.events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.events import (
    Cast,
    CastsTaken,
    ClaimConfirmed,
    Claimed,
    ConnectFailed,
    EntriesPromoted,
    GroupJoined,
    GroupLeft,
    LinkReleased,
    PacketReceived,
    PeerDied,
    PeerSuspected,
    ProtocolViolated,
    SplitTold,
    TableChanged,
    TableFull,
    ViewChanged,
)
from iris_overlay.node_info import NodeInfo
from iris_overlay.timers import DeadlineTable
from iris_py.link.events import LinkClosed, LinkVerified, PeerIdentified
from iris_py.node.events import DialAnswered, DialBroken, DialRefused
from iris_py.node.groups import Views
from iris_py.node.spare_links import SpareLinks
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer_table import DialSucceeded, PeerClosed, PeerDrained, PeerOpened, StrangerRefused
from iris_py.peers.rotation import GenerationsSigned, RotationHeard, RotationMissed

if TYPE_CHECKING:
    from iris_overlay.events import Event
    from iris_overlay.ids import NodeId
    from iris_overlay.overlay import Overlay
    from iris_py.link.link import Link, Packet
    from iris_py.node.events import NodeEvent
    from iris_py.node.inbound import Inbound
    from iris_py.node.patterns import Patterns
    from iris_py.observe.journal import Journal
    from iris_py.peers.group import Groups
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.peers.peer_table import Peers, PeersEvent

#: Time after a stall for which a broken link does not count as a lost peer, which may have ended the link meanwhile (seconds).
#: Too small: living members count as lost with their requests; too large: a death shortly after a stall does not count.
RESUMING_S = 5.0

_TopicEvent: TypeAlias = TableChanged | Claimed | ClaimConfirmed | SplitTold | TableFull | EntriesPromoted | CastsTaken
_TOPIC_EVENTS: Final = (TableChanged, Claimed, ClaimConfirmed, SplitTold, TableFull, EntriesPromoted, CastsTaken)


class Exchange:
    """Passes reports between the links, the overlay and the patterns of a node.

    Args:
        local: The node itself.
        peers: Its links.
        overlay: Its overlay.
        groups: The groups in use.
        outbound: Sends to peers.
        inbound: Receives from peers.
        patterns: The patterns, which send to the members of groups.
        journal: Keeps the last events.

    Attributes:
        events: The events for the owner, to be taken by the owner.
        link_deadlines: The deadlines of the links.
        has_new_deadline: Whether the deadline of a link or of the overlay may have changed; the owner resets it.
    """

    def __init__(
        self,
        local: Peer,
        peers: Peers,
        overlay: Overlay,
        groups: Groups,
        outbound: Outbound,
        inbound: Inbound,
        patterns: Patterns,
        journal: Journal,
    ) -> None:
        self._local = local
        self._peers = peers
        self._overlay = overlay
        self._groups = groups
        self._outbound = outbound
        self._inbound = inbound
        self._patterns = patterns
        self._journal = journal
        self._spare_links = SpareLinks(peers, overlay, patterns.service)
        self._views = Views(local.info.zone, groups.by_id, self.peer_of, outbound, patterns, journal)
        self.link_deadlines: DeadlineTable[Link] = DeadlineTable()
        self.has_new_deadline = True
        self.events: list[NodeEvent] = []

    def make_room(self, now: float) -> None:
        """Try waiting messages again: a link has drained, or a peer is no longer congested."""
        self._patterns.view_changed(now)
        self.events.append(RoomMade())

    # -- links

    def handle_link(self, link: Link, now: float) -> None:
        """Handle the output of a link in order: opening, packets, end."""
        packets_received = link.packets_received()
        while link.events:  # confirming a link opens it
            for event in link.events_received():
                if isinstance(event, LinkClosed | LinkVerified) and packets_received:
                    self.receive_packets(link, packets_received, now)
                    packets_received = []
                if isinstance(event, LinkVerified):
                    self._inbound.link_verified(link, now)
                    continue
                if not isinstance(event, PeerIdentified) or self._has_place(link, event.node_id, now):
                    self._peers.handle_event(link, event, now)
                self.advance(now)
        if packets_received:
            self.receive_packets(link, packets_received, now)
        if (deadline := link.deadline()) is None:
            self.link_deadlines.cancel(link)
        else:
            self.link_deadlines.set(link, deadline)
        self.has_new_deadline = True
        self._outbound.touched[link] = None

    def receive_packets(self, link: Link, received: list[Packet], now: float) -> None:
        """Handle packets of a link; those of an unidentified peer are dropped. The hot path."""
        if (peer := self._peers.peer_of(link)) is not None:
            self._inbound.receive_packets(link, peer, received, now)

    def receive_control(self, peer_id: NodeId, message: bytes, now: float) -> None:
        """Handle an overlay message of a peer."""
        self._overlay.receive_message(peer_id, message, now)
        self.advance(now)

    def _has_place(self, link: Link, node_id: bytes, now: float) -> bool:
        """Tell whether an identified peer may have a link; another link may be closed for it."""
        is_admitted, closed = self._spare_links.admit(link, node_id, now)
        if closed is not None:
            self.handle_link(closed, now)
        return is_admitted

    # -- overlay

    def advance(self, now: float) -> None:
        """Exchange events between links and overlay until none is left."""
        self.has_new_deadline = True
        moved = True
        while moved:
            moved = False
            for peers_event in self._peers.events_received():
                moved = True
                self._handle_peers_event(peers_event, now)
            for peer_id, message in self._overlay.messages_to_send():
                if (peer := self._peers.find(peer_id)) is not None:
                    self._outbound.send_control(peer, message, now)
            for event in self._overlay.events_received():
                moved = True
                self.handle_overlay_event(event, now)

    def handle_overlay_event(self, event: Event, now: float) -> None:
        """Act on an event of the overlay, or keep it for the owner."""
        if isinstance(event, ViewChanged):
            if self._groups.is_of_entry(event.group):
                self._patterns.use_pubsub().publisher.view_changed(event, now)
            elif (known := self._views.take(event, now)) is not None:
                self.events.append(known)
        elif isinstance(event, Cast):
            if event.source != self._local.id:  # its own registrations have it already
                self._inbound.receive_cast(event.group, self._peers.peer(NodeInfo(event.source, ())), event.payload, now)
        elif isinstance(event, PacketReceived):
            self._receive_routed(event, now)
        elif isinstance(event, ConnectFailed):
            if (peer := self._peers.known(event.peer)) is not None:
                self._outbound.connect_failed(peer, now)
                self._open_shares(now)  # through the ring
        elif isinstance(event, LinkReleased):
            if (released := self._spare_links.release(event.peer, now)) is not None:
                self.handle_link(released, now)
        elif isinstance(event, PeerSuspected):
            self._journal.note_at(now, "suspected", event.peer.hex(), node=self._peers.known_nodes.find(event.peer))
        elif isinstance(event, PeerDied):
            self._handle_death(event.peer, event.reason, now)
        elif isinstance(event, ProtocolViolated):
            self.break_link(event.peer, event.reason, now)
        elif isinstance(event, GroupJoined | GroupLeft) and self._groups.is_of_entry(event.group):
            if isinstance(event, GroupJoined):
                self._patterns.use_pubsub().joined(event.group, now)
        elif isinstance(event, _TOPIC_EVENTS):
            self._handle_topic_event(event, now)
        elif not self._outbound.is_closed:  # a closing node does not dial
            self.events.append(event)

    def _handle_topic_event(self, event: _TopicEvent, now: float) -> None:
        pubsub = self._patterns.use_pubsub()
        if isinstance(event, TableChanged):
            pubsub.table_changed(event, self.peer_of, now)
        elif isinstance(event, Claimed):
            pubsub.claimed(event, now)
        elif isinstance(event, ClaimConfirmed):
            pubsub.claim_confirmed(event, now)
        elif isinstance(event, SplitTold):
            pubsub.split(event, now)
        elif isinstance(event, TableFull):
            pubsub.full(event, now)
        elif isinstance(event, EntriesPromoted):
            pubsub.promoted(event, now)
        else:
            pubsub.publisher.casts_taken(event.group, now)

    def _open_shares(self, now: float) -> None:
        if self._patterns.pubsub is not None:
            self._patterns.pubsub.publisher.shares.peer_opened(now)

    def _handle_peers_event(self, event: PeersEvent, now: float) -> None:
        if isinstance(event, PeerOpened):
            self._overlay.link_opened(event.peer.info, now)
            self._outbound.peer_opened(event.peer, now)
            self._open_shares(now)
        elif isinstance(event, PeerClosed):
            self._inbound.link_closed(event.link)
            self._outbound.touched[event.link] = None  # a replaced link has no more output and must be closed
            self.link_deadlines.cancel(event.link)
            self._handle_peer_closed(event, now)
        elif isinstance(event, PeerDrained):
            self.make_room(now)
        elif isinstance(event, DialSucceeded):
            self._overlay.dial_succeeded(event.address, event.id, now)
            self.events.append(DialAnswered(event.address))
        elif isinstance(event, StrangerRefused | GenerationsSigned | RotationMissed | RotationHeard):
            self.events.append(event)
        else:
            self._overlay.dial_failed(event.address, now, is_broken=event.broken)
            refused = DialRefused(event.address, event.reason, event.broken)
            self.events.append(refused if event.refused else DialBroken(event.address, event.reason))

    def _handle_peer_closed(self, event: PeerClosed, now: float) -> None:
        peer = event.peer
        self._overlay.link_lost(peer.id, now, is_closed=event.clean or event.released)
        self.advance(now)  # the views change first: a retry must not choose a member that has left
        for group in self._groups.by_id.values():
            group.forget_peer(peer.id)
        unsent = self._outbound.unsent(peer)
        if event.released:  # no answers are due on this link; those of a survey down a tree take another
            self._patterns.peer_released(peer, now, unsent)
        else:
            has_stalled = now - self._overlay.resumed_at < RESUMING_S  # then the peers ended the links that break now
            self._patterns.peer_lost(peer, now, unsent, is_broken=event.broken, is_silent=has_stalled or event.is_silent)
        if self._patterns.tunnels is not None:
            self._patterns.tunnels.link_closed(event.link, event.reason)
        self._outbound.peer_closed(peer, now, is_clean=event.clean)
        self.make_room(now)  # the peer is no longer congested

    def _handle_death(self, peer_id: NodeId, reason: str, now: float) -> None:
        self._journal.note_at(now, "died", peer_id.hex(), node=self._peers.known_nodes.find(peer_id), detail=reason)
        if (peer := self._peers.known(peer_id)) is None:
            return
        self._outbound.peer_died(peer)
        if self._patterns.tunnels is not None:
            self._patterns.tunnels.peer_died(peer)
        if peer.link is not None:
            self.break_link(peer_id, "the peer is dead", now)
        else:  # it may have been reached through the ring
            self._patterns.peer_lost(peer, now, self._outbound.unsent(peer))

    def _receive_routed(self, event: PacketReceived, now: float) -> None:
        # A relayed packet must not change the addresses of a known peer.
        peer = self._peers.known(event.source.id) or self._peers.peer(event.source)
        if self._inbound.receive_routed(peer, event.payload, now) and peer.link is None:
            peer.is_routed, peer.is_dead = True, False  # it has no link to this node, so answers go through the ring too
        for info, packet in self._inbound.packets_to_route():
            self._overlay.send(info, packet, now)

    def peer_of(self, info: NodeInfo) -> Peer:
        """Return the peer of a node; the local peer for the local node."""
        return self._local if info.id == self._local.id else self._peers.peer(info)

    def break_link(self, peer_id: NodeId, reason: str, now: float) -> None:
        """Break the link to a peer, if the peer has a link."""
        if (peer := self._peers.find(peer_id)) is not None and peer.link is not None:
            peer.link.abort(reason)
            self.handle_link(peer.link, now)
