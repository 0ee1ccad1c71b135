"""One node without input or output: links, overlay and patterns put together.

The owner (:mod:`iris_py.net.driver`) gives it what happened and takes what is to be done, in this order, until nothing moves:
:meth:`NodeCore.flush`, :meth:`NodeCore.links_to_flush` (write each one's ``data_to_send``), :meth:`NodeCore.datagrams_to_send`,
:meth:`NodeCore.outcomes_received`, :meth:`NodeCore.events_received`; then it arms one timer for :meth:`NodeCore.deadline`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_py import packets
from iris_py.errors import IrisError, MessageTooLarge
from iris_py.group import BODY_BYTES, Group, Member, Peer
from iris_py.lanes import CONTROL, MULTICAST, UNICAST
from iris_py.link import CloseReason, Link, LinkClosed, LinkConfig
from iris_py.patterns.request import Requester
from iris_py.patterns.service import Registration, Service, ServiceEvent
from iris_py.peers import DialFailed, DialSucceeded, PeerClosed, PeerDrained, PeerOpened, Peers
from overlay.config import OverlayConfig
from overlay.events import Departed, DialRequested, GroupJoined, GroupLeft, ProtocolViolated, Settled, ViewChanged
from overlay.overlay import Overlay
from overlay.timers import DeadlineTable
from security import AuthenticationError, DatagramOpener, DatagramSealer, ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.link import Packet
    from overlay.config import Rng
    from overlay.ids import NodeId
    from overlay.messages import NodeInfo
    from security import Keyring

#: Names that the application used and that nothing is registered under are forgotten beyond this number, the longest unused
#: first. Each costs a few KiB; forgetting one in use costs deriving its keys again.
GROUPS_MAX = 2048


@dataclass(slots=True)
class DialRefused:
    """Somebody answers at the address, but could not be authenticated."""

    address: str
    reason: str


@dataclass(slots=True)
class RoomMade:
    """A link that was congested has room again, or is gone: who waited for room may try again."""


@dataclass(slots=True)
class ViewKnown:
    """The first view of a group has arrived."""

    group: Group


NodeEvent: TypeAlias = (
    DialRequested | DialRefused | Settled | GroupJoined | GroupLeft | Departed | RoomMade | ViewKnown | ServiceEvent
)


class NodeCore:
    """The protocol of one node.

    Args:
        info: The node itself, with the addresses it listens on.
        keyring: The secrets of the network.
        rng: Randomness for choices and jitter; nothing secret depends on it.
        entropy: Randomness for keys.
        link_config: Times and bounds of links.
        overlay_config: Times and bounds of the overlay.

    Attributes:
        drops: What was dropped, by reason.
    """

    def __init__(
        self,
        info: NodeInfo,
        keyring: Keyring,
        *,
        rng: Rng,
        entropy: Callable[[int], bytes],
        link_config: LinkConfig | None = None,
        overlay_config: OverlayConfig | None = None,
    ) -> None:
        self.info = info
        self.drops: dict[str, int] = {}
        self.peers = Peers(info, keyring, entropy, link_config or LinkConfig())
        self.overlay = Overlay(info, overlay_config or OverlayConfig(), rng)
        self.requester = Requester(rng, lambda: len(self.overlay.peers()))
        self.service = Service()
        self._keyring = keyring
        self._local = Peer(info, None)
        self._groups: dict[bytes, Group] = {}
        self._groups_by_name: dict[str, Group] = {}
        self._last_epoch = 0
        self._datagram_sealer = DatagramSealer(keyring.primary, info.id)
        self._datagram_opener = DatagramOpener(keyring)
        self._touched: dict[Link, None] = {}
        self._open_channels: dict[tuple[Group, NodeId], None] = {}
        self._open_casts: dict[Group, None] = {}
        self._link_deadlines: DeadlineTable[Link] = DeadlineTable()
        # Links and overlay change their deadlines only when something rare happens; a request must not pay for asking.
        self._rare_deadline: float | None = None
        self._rare_deadline_changed = True
        self._events: list[NodeEvent] = []
        self._receive = [self._receive_unknown] * packets.KINDS
        self._receive[packets.REQUEST] = self._receive_request
        self._receive[packets.REPLY] = self._receive_reply
        self._receive[packets.FAILURE] = self._receive_failure
        self._receive[packets.REJECTION] = self._receive_rejection
        self._receive[packets.CANCEL] = self._receive_cancel
        self._receive[packets.BROADCAST] = self._receive_broadcast

    # -- commands of the application

    def group(self, cluster: str, now: float) -> Group:
        """Return what is known of a cluster; its view is watched from now on.

        Raises:
            ValueError: The name is empty or too long.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        group = self._groups_by_name.get(cluster)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._forget_idle_group(now)
            # No epoch is used twice, so a group that is forgotten and made again never repeats a nonce.
            self._last_epoch += 1
            group = Group(cluster, self._keyring.cluster(cluster), self.info.id, self._last_epoch)
            self.overlay.watch_group(group.id, now)
            self._groups_by_name[cluster] = self._groups[group.id] = group
            self._advance(now)
        group.last_used = now
        return group

    def request(self, cluster: str, payload: bytes, timeout_s: float, idempotent: bool, token: object, now: float) -> int:
        """Start a request; see :class:`~iris_py.patterns.request.Requester`.

        Raises:
            MessageTooLarge: The payload is over ``MAX_MESSAGE_BYTES``.
            ValueError: The name is empty or too long.
        """
        check_size(payload)
        return self.requester.request(self.group(cluster, now), payload, timeout_s, idempotent, token, now)

    def broadcast(self, cluster: str, payload: bytes, now: float) -> int | None:
        """Send a message to every member; returns how many that is. Sealed once, however many they are.

        Returns None, and sends nothing, while a link to one of them has no room or the view is not yet known: after
        :class:`RoomMade` or :class:`ViewKnown` it may go.

        Raises:
            MessageTooLarge: The payload is over ``MAX_MESSAGE_BYTES``.
            ValueError: The name is empty or too long.
        """
        check_size(payload)
        group = self.group(cluster, now)
        members = group.members
        if members is None or any(member.peer.is_congested for member in members):
            return None
        if not members:
            return 0
        group.sequence += 1
        if self.service.serves(group):
            self.service.receive_broadcast(group, self._local, group.sequence, payload)
        if len(members) > 1 or members[0].peer is not self._local:
            if group.cast_bytes and group.cast_bytes + len(payload) > BODY_BYTES:
                self._seal_cast(group)
            group.cast_parts += (
                packets.MESSAGE.pack(packets.BROADCAST, 0, 0, len(payload), group.sequence, 0),
                payload,
            )
            group.cast_bytes += packets.MESSAGE_BYTES + len(payload)
            self._open_casts[group] = None
        return len(members)

    def join(self, registration: Registration, now: float) -> bool:
        """Take part in a cluster; returns whether ``GroupJoined`` will follow (not for a further registration of the same).

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
        """
        # Since the registration was made, its group may have been forgotten.
        registration.group = group = self.group(registration.group.name, now)
        if not self.service.is_member(group):
            self.overlay.join_group(group.id, group.keys.proof(self.info.id), now)
        is_first = self.service.register(registration)
        self._advance(now)
        return is_first

    def leave(self, registration: Registration, now: float) -> bool:
        """Begin to leave; returns whether ``GroupLeft`` will follow, before which requests are still served."""
        if not self.service.leave(registration):
            return False
        self.overlay.leave_group(registration.group.id, now)
        self._advance(now)
        return True

    def depart(self, now: float) -> None:
        """Tell everybody that this node leaves the network; ``Departed`` follows."""
        self.overlay.leave(now)
        self._advance(now)

    def close_links(self, now: float) -> None:
        """Close every link, after what is queued on it."""
        for link in self.peers.links():
            link.close(CloseReason.LEAVING, now)
            self._handle_link(link, now)

    # -- what happened

    def start(self, now: float, seeds: Sequence[str], remembered: Sequence[str], *, beacons: bool, complete: bool) -> None:
        """Begin to look for others; see :meth:`overlay.overlay.Overlay.start`."""
        self.overlay.start(now, seeds, remembered, beacons, complete)
        self._advance(now)

    def dialled(self, address: str, now: float) -> Link:
        """A connection to an address was made; returns its link."""
        link = self.peers.dialled(address, now)
        self._handle_link(link, now)
        return link

    def dial_failed(self, address: str, now: float) -> None:
        """No connection to an address could be made."""
        self.overlay.dial_failed(address, now)
        self._advance(now)

    def accepted(self, now: float) -> Link | None:
        """A connection was accepted; returns its link, or None if there are too many strangers."""
        evicted = self.peers.evict_stranger()
        if evicted is not None:
            self._handle_link(evicted, now)
        link = self.peers.accepted(now)
        if link is not None:
            self._handle_link(link, now)
        return link

    def link_received(self, link: Link, now: float) -> None:
        """Bytes were given to the link: handle what came of them. The hot path."""
        if link.has_events():
            self._handle_link(link, now)
        else:
            self._receive_packets(link, link.packets_received(), now)
        if link.has_output():
            self._touched[link] = None

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """A datagram came, from whomever."""
        try:
            _sender, payload = self._datagram_opener.open(data)
        except AuthenticationError:
            self.count_drop("datagram")
            return
        self.overlay.receive_datagram(payload, source, now)
        self._advance(now)

    def handle_timeout(self, now: float) -> None:
        """Do what is due; harmless if early."""
        for link in self._link_deadlines.expired(now):
            link.handle_timeout(now)
            self._handle_link(link, now)
        self.requester.handle_timeout(now)
        self.overlay.handle_timeout(now)
        self._advance(now)

    # -- what is to be done

    def flush(self, now: float) -> None:
        """Turn everything that the patterns want to send into packets on links."""
        while True:
            outgoing = self.requester.messages_to_send()
            outgoing += self.service.messages_to_send()
            if not outgoing:
                break
            for group, peer, kind, request_id, argument, payload in outgoing:
                if peer is self._local:
                    self._receive[kind](group, peer, request_id, argument, payload, now)
                else:
                    self._gather(group, peer, kind, request_id, argument, payload)
        if self._open_channels:
            channels, self._open_channels = self._open_channels, {}
            for group, peer_id in channels:
                self._seal(group, peer_id)
        if self._open_casts:
            casts, self._open_casts = self._open_casts, {}
            for group in casts:
                self._seal_cast(group)

    def links_to_flush(self) -> list[Link]:
        """Take the links that may have something to write."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Take the datagrams to send, sealed; None is the multicast group."""
        if not self._rare_deadline_changed:  # nothing has moved in the overlay
            return []
        return [(to, self._datagram_sealer.seal(data)) for to, data in self.overlay.datagrams_to_send()]

    def outcomes_received(self) -> list[tuple[object, bytes | IrisError]]:
        """Take the outcomes of requests: (token, reply or error)."""
        return self.requester.outcomes_received()

    def events_received(self) -> list[NodeEvent]:
        """Take what happened, in order."""
        events, self._events = self._events, []
        events += self.service.events_received()
        return events

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        if self._rare_deadline_changed:
            self._rare_deadline_changed = False
            self._rare_deadline = _earlier(self._link_deadlines.deadline(), self.overlay.deadline())
        return _earlier(self.requester.deadline(), self._rare_deadline)

    def count_drop(self, reason: str) -> int:
        """Count something that was dropped; returns how often that happened."""
        count = self.drops[reason] = self.drops.get(reason, 0) + 1
        return count

    # -- links

    def _handle_link(self, link: Link, now: float) -> None:
        """Handle what a link has to say: an opening before its packets, its end after them."""
        packets_received = link.packets_received()
        while link.has_events():  # to confirm a link opens it
            for event in link.events_received():
                if isinstance(event, LinkClosed) and packets_received:
                    self._receive_packets(link, packets_received, now)
                    packets_received = []
                self.peers.handle_event(link, event, now)
                self._advance(now)
        if packets_received:
            self._receive_packets(link, packets_received, now)
        deadline = link.deadline()
        if deadline is None:
            self._link_deadlines.cancel(link)
        else:
            self._link_deadlines.set(link, deadline)
        self._rare_deadline_changed = True
        self._touched[link] = None

    def _receive_packets(self, link: Link, received: list[Packet], now: float) -> None:
        peer = self.peers.peer_of(link)
        if peer is None:
            return
        for kind, group_id, nonce, sealed in received:
            if kind == CONTROL:
                self.overlay.receive_message(peer.id, group_id, now)
                self._advance(now)
                continue
            group = self._groups.get(group_id)
            if group is None:
                self.count_drop("unknown_group")
                continue
            try:
                if kind == UNICAST:
                    body = group.open_unicast(peer.id, nonce, sealed)
                else:
                    body = group.open_multicast(peer.id, nonce, sealed)
            except ReplayError:
                self.count_drop("replayed")
            except AuthenticationError:
                self.count_drop("unauthentic")
            else:
                self._receive_body(group, peer, body, now)

    def _receive_body(self, group: Group, peer: Peer, body: bytes, now: float) -> None:
        offset, end, unpack, receive = 0, len(body), packets.MESSAGE.unpack_from, self._receive
        while end - offset >= packets.MESSAGE_BYTES:
            kind, _flags, headers, length, message_id, argument = unpack(body, offset)
            start = offset + packets.MESSAGE_BYTES + headers
            offset = start + length
            if offset > end:
                break
            if kind < packets.KINDS:
                receive[kind](group, peer, message_id, argument, body[start:offset], now)
            else:
                self.count_drop("unknown_kind")
        if offset != end:
            self.count_drop("malformed")

    # -- messages

    def _receive_request(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.service.receive_request(group, peer, message_id, argument, payload, now)

    def _receive_reply(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.requester.receive_reply(peer, message_id, payload, now)

    def _receive_failure(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.requester.receive_failure(peer, message_id, payload)

    def _receive_rejection(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.requester.receive_rejection(peer, message_id, argument, now)

    def _receive_cancel(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.service.receive_cancel(peer, message_id)

    def _receive_broadcast(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        if not self.service.serves(group):
            self.count_drop("broadcast_to_no_member")
        self.service.receive_broadcast(group, peer, message_id, payload)

    def _receive_unknown(self, group: Group, peer: Peer, message_id: int, argument: int, payload: bytes, now: float) -> None:
        self.count_drop("unknown_kind")

    # -- sending

    def _gather(self, group: Group, peer: Peer, kind: int, message_id: int, argument: int, payload: bytes) -> None:
        if peer.link is None:  # the channel may belong to the next link of that node already
            self.count_drop("peer_gone")
            return
        channel = group.channel(peer)
        size = packets.MESSAGE_BYTES + len(payload)
        if channel.parts_bytes and channel.parts_bytes + size > BODY_BYTES:
            self._seal(group, peer.id)
        channel.parts += (packets.MESSAGE.pack(kind, 0, 0, len(payload), message_id, argument), payload)
        channel.parts_bytes += size
        self._open_channels[group, peer.id] = None

    def _seal(self, group: Group, peer_id: NodeId) -> None:
        channel = group.channels.get(peer_id)
        if channel is None or not channel.parts:
            return
        link = channel.peer.link
        if link is None:
            channel.parts, channel.parts_bytes = [], 0
            self.count_drop("peer_gone")
            return
        nonce, sealed = group.seal(channel)
        link.send_packet(UNICAST, group.id, nonce, sealed)
        self._touched[link] = None

    def _seal_cast(self, group: Group) -> None:
        """Seal the gathered broadcasts once, for every member of the view."""
        if not group.cast_parts:
            return
        nonce, sealed = group.seal_cast()
        for member in group.members or ():
            link = member.peer.link
            if link is not None:
                link.send_packet(MULTICAST, group.id, nonce, sealed)
                self._touched[link] = None

    # -- overlay

    def _advance(self, now: float) -> None:
        """Carry events between links and overlay until nothing moves."""
        self._rare_deadline_changed = True
        moved = True
        while moved:
            moved = False
            for peers_event in self.peers.events_received():
                moved = True
                self._handle_peers_event(peers_event, now)
            for peer_id, message in self.overlay.messages_to_send():
                peer = self.peers.find(peer_id)
                if peer is not None and peer.link is not None:
                    peer.link.send_control(message)
                    self._touched[peer.link] = None
            for event in self.overlay.events_received():
                moved = True
                if isinstance(event, ViewChanged):
                    self._handle_view(event, now)
                elif isinstance(event, ProtocolViolated):
                    self._break_link(event.peer, event.reason, now)
                elif isinstance(event, DialRequested | Settled | GroupJoined | GroupLeft | Departed):
                    self._events.append(event)

    def _handle_peers_event(
        self, event: PeerOpened | PeerClosed | PeerDrained | DialSucceeded | DialFailed, now: float
    ) -> None:
        if isinstance(event, PeerOpened):
            self.overlay.link_opened(event.peer.info, now)
        elif isinstance(event, PeerClosed):
            self._touched[event.link] = None  # one that was replaced has nothing more to say, and is closed
            self._link_deadlines.cancel(event.link)
            self._handle_peer_closed(event.peer, now)
        elif isinstance(event, PeerDrained):
            self.requester.view_changed(now)
            self._events.append(RoomMade())
        elif isinstance(event, DialSucceeded):
            self.overlay.dial_succeeded(event.address, event.id, now)
        else:
            self.overlay.dial_failed(event.address, now)
            if event.refused:
                self._events.append(DialRefused(event.address, event.reason))

    def _handle_peer_closed(self, peer: Peer, now: float) -> None:
        self.overlay.link_lost(peer.id, now)
        self._advance(now)  # the views change first: a retry must not choose the lost member
        for group in self._groups.values():
            group.forget_peer(peer.id)
        self.requester.peer_lost(peer, now)
        self.service.peer_lost(peer)
        self._events.append(RoomMade())

    def _handle_view(self, event: ViewChanged, now: float) -> None:
        group = self._groups.get(event.group)
        if group is None:
            return
        known = {member.peer.id: member for member in group.members or ()}
        members = []
        for id_, group_member in event.members.items():
            peer = self._local if id_ == self.info.id else self.peers.find(id_)
            if peer is None:
                continue
            member = known.get(id_)
            if member is None or member.peer is not peer:
                if not group.keys.verify_proof(id_, group_member.attributes):
                    self.count_drop("unproven_member")
                    continue
                member = Member(peer)
            members.append(member)
        if group.members is None:
            self._events.append(ViewKnown(group))
        self._seal_cast(group)  # what was broadcast before the change goes to those who were there
        group.members = members
        self.requester.view_changed(now)

    def _break_link(self, peer_id: NodeId, reason: str, now: float) -> None:
        peer = self.peers.find(peer_id)
        if peer is not None and peer.link is not None:
            peer.link.abort(reason)
            self._handle_link(peer.link, now)

    # --

    def _forget_idle_group(self, now: float) -> None:
        pending = self.requester.groups_pending()
        idle = [group for group in self._groups.values() if not self.service.serves(group) and group not in pending]
        if idle:
            oldest = min(idle, key=lambda group: group.last_used)
            self._last_epoch = max(self._last_epoch, oldest.epoch)
            del self._groups[oldest.id], self._groups_by_name[oldest.name]
            self.overlay.unwatch_group(oldest.id, now)


def check_size(payload: bytes) -> None:
    """Refuse a payload over ``MAX_MESSAGE_BYTES``.

    Raises:
        MessageTooLarge: It is.
    """
    if len(payload) > packets.MAX_MESSAGE_BYTES:
        raise MessageTooLarge(len(payload), packets.MAX_MESSAGE_BYTES)


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
