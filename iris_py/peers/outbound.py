"""The sending side of a node: messages are collected, encrypted, and sent over a link, through the ring, or later.

Messages to a peer with an open link are collected until the flush and leave together: the hot path. The link's record encrypts
them if both ends have proved to hold the group's key, otherwise the group's key does. Messages to a peer without a link are
held (:mod:`iris_py.peers.waiting_messages`), and a link is requested. The outcomes of a held message:

* The link opens: the message leaves, in order.
* The message becomes pointless: the request ended, its member left or died, or the node closes.
* The wait is long: a request goes to a member with a link, if any.
* No link is possible: a message that fits goes through the ring, a larger request goes to another member, any other message is
  dropped.

While a peer is reached through the ring, a link is requested again from time to time.

After every call, while :attr:`Outbound.has_events` is set, the owner takes the outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.link.lanes import CONTROL, MULTICAST, UNICAST
from iris_py.peers import clocks
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import BODY_BYTES, PeerChannel
from iris_py.peers.waiting_messages import HELD_BYTES_HIGH, HeldMessages, WaitingMessage
from iris_py.wire import cast_pieces, packets
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.decrypted_message import Multicast
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

#: Time a request waits for a link before it is given to a member with a link. Too small: does not cover a dial across an ocean,
#: three round trips; too large: dead and unreachable members delay their callers that long.
HELD_S = 0.5
#: Time after which a held message is given up although the overlay has not reported a failed connection. The overlay tries to
#: dial and then to be dialled, each for seconds.
HELD_S_MAX = 15.0
#: Interval between requests of a link to one peer, while the peer is reached through the ring or only may be needed. Too small:
#: futile dials; too large: messages take the detour through the ring for long.
CONNECT_RETRY_S = 5.0


class RoomMade(msgspec.Struct):
    """A congested link has room again, or has ended: blocked operations may be retried."""


class ReturnedRequest:
    """A request that was surely not sent, to be given to another member."""

    __slots__ = ("id", "is_tried", "peer")

    def __init__(self, id: int, peer: Peer, is_tried: bool) -> None:  # noqa: A002
        self.id = id
        self.peer = peer
        self.is_tried = is_tried  # whether not to try this member again


class Outbound:
    """The sending side of a node: collects messages to other nodes, encrypts them, and queues them on links.

    Args:
        local: The node itself, excluded as a receiver.

    Attributes:
        touched: Links that may have data to write.
        has_events: Whether :meth:`links_woken` or another output holds entries.
        has_room: Whether a peer is no longer congested; the owner resets it.
        before_flush: Functions of patterns that gather messages: the next flush calls each once, with the time.
        is_closed: Whether the node is closing.
    """

    def __init__(self, local: Peer, count_drop: Callable[[str], object]) -> None:
        self.has_events = False
        self.has_room = False
        self.is_closed = False
        self.before_flush: dict[Callable[[float], None], None] = {}
        self._count_drop = count_drop
        self._open_routes: dict[tuple[Group, Peer], PeerChannel] = {}
        self._reviews: DeadlineTable[Peer] = DeadlineTable()  # peers with held messages
        self._woken: list[Link] = []
        self._wanted: list[NodeInfo] = []
        self._routed: list[tuple[NodeInfo, bytes]] = []
        self._routed_requests: list[int] = []
        self._returned: list[ReturnedRequest] = []
        self._casts: list[tuple[GroupId, bytes]] = []
        self.touched: dict[Link, None] = {}
        self._local = local
        self._open_channels: dict[tuple[Group, NodeId], None] = {}
        self._open_broadcasts: dict[Group, None] = {}
        self._full_links: dict[Link, None] = {}

    @property
    def has_output(self) -> bool:
        """Whether :meth:`seal` has messages to encrypt, or the owner has outputs to take."""
        return bool(self._open_channels or self._open_broadcasts or self.before_flush or self._open_routes or self.has_events)

    # -- the hot path

    def gather_all(self, outgoing: list[PeerMessage], now: float) -> list[PeerMessage]:
        """Collect messages to other nodes for the next flush, in order; return the messages to this node itself."""
        if len(outgoing) == 1 and self._send_alone(outgoing[0], now):
            return []
        local: list[PeerMessage] = []
        group: Group | None = None  # of the previous message, if it went into this channel
        peer: Peer | None = None
        channel: PeerChannel | None = None
        pack, overhead = packets.MESSAGE.pack, packets.MESSAGE_BYTES
        for message in outgoing:
            to, head, payload = message.peer, message.headers.encoded, message.payload
            size = overhead + len(head) + len(payload)
            if channel is not None and to is peer and message.group is group and channel.parts_bytes + size <= BODY_BYTES:
                start = pack(message.kind, 0, len(head), len(payload), message.id, message.argument) + head
                channel.parts += (start, payload)
                channel.parts_bytes += size
            elif to is self._local:
                local.append(message)
            else:
                self.gather(message, now)
                group, peer = message.group, to
                channel = group.channels.get(to.id)
                if channel is None or channel.peer is not to or not channel.parts:
                    channel = None
        return local

    def _send_alone(self, message: PeerMessage, now: float) -> bool:
        """Queue the only message of a flush on its link, without a channel; return False if the message has to be collected."""
        group, link, payload, head = message.group, message.peer.link, message.payload, message.headers.encoded
        size = packets.MESSAGE_BYTES + len(head) + len(payload)
        if (
            link is None
            or not link.is_open
            or group.id not in link.shared
            or size > BODY_BYTES
            or self._open_channels
            or self.before_flush
        ):
            return False
        if now >= link.clock_due:
            link.tell_clock(now)
        start = packets.MESSAGE.pack(message.kind, 0, len(head), len(payload), message.id, message.argument) + head
        link.send_body(group.id, [start, payload], size, is_ordered=False)
        self.touched[link] = None
        if link.is_quiet:
            self._wake(link, now)
        return True

    def gather(self, message: PeerMessage, now: float) -> None:
        """Collect a message to another node for the next flush, or hold it if the node has no open link."""
        group, peer, payload, head = message.group, message.peer, message.payload, message.headers.encoded
        link = peer.link
        if link is None or not link.is_open:
            self._send_without_link(peer, _let_wait(message, now), now)
            return
        channel = group.channels.get(peer.id)
        if channel is None or channel.peer is not peer:
            channel = group.channel(peer)
        size = packets.MESSAGE_BYTES + len(head) + len(payload)
        if channel.parts_bytes + size > BODY_BYTES:
            if channel.parts_bytes:
                self._seal(group, peer.id, now)
            if size > BODY_BYTES and link.congested and message.kind in packets.REQUESTS:
                # A turn can bring more large requests than a link may queue. Another member takes this one, or it waits for
                # room.
                self._return(peer, message.id, is_tried=False)
                return
        if not channel.parts:
            self._open_channels[group, peer.id] = None
        start = packets.MESSAGE.pack(message.kind, 0, len(head), len(payload), message.id, message.argument) + head
        channel.parts += (start, payload)
        channel.parts_bytes += size

    def seal(self, now: float) -> None:
        """Encrypt the collected messages (the flush): queue them on the links, or for the ring."""
        if self.before_flush:
            gathering, self.before_flush = self.before_flush, {}
            for send in gathering:
                send(now)
        if self._open_channels:
            channels, self._open_channels = self._open_channels, {}
            for group, peer_id in channels:
                self._seal(group, peer_id, now)
        if self._open_broadcasts:
            self.seal_all_broadcasts(now)
        if self._open_routes:
            routes, self._open_routes = self._open_routes, {}
            for channel in routes.values():
                self._seal_route(channel, now)

    def _seal(self, group: Group, peer_id: NodeId, now: float) -> None:
        channel = group.channels.get(peer_id)
        if channel is None or not channel.parts:
            return
        link = channel.peer.link
        if link is None or not link.is_open:
            self._hold_gathered(channel, now)
            return
        if now >= link.clock_due:
            link.tell_clock(now)
        if group.id in link.shared:
            messages, size = channel.take()
            link.send_body(group.id, messages, size, is_ordered=False)
        else:
            link.proofs.offer(group.keys)
            link.send_packet(UNICAST, group.id, *group.seal(channel))
        self.touched[link] = None
        if link.is_quiet:
            self._wake(link, now)

    # -- broadcasts

    def add_broadcast(self, group: Group, header: bytes, payload: bytes, now: float) -> None:
        """Collect a message to all targets of a group until the next flush.

        Args:
            header: The encoded message before its payload.
        """
        if group.broadcast_bytes and group.broadcast_bytes + len(header) + len(payload) > BODY_BYTES:
            self.seal_broadcasts(group, now)
        group.broadcast_parts += (header, payload)
        group.broadcast_bytes += len(header) + len(payload)
        self._open_broadcasts[group] = None

    def seal_all_broadcasts(self, now: float) -> None:
        """Encrypt the collected broadcasts of every group."""
        broadcasts, self._open_broadcasts = self._open_broadcasts, {}
        for group in broadcasts:
            self.seal_broadcasts(group, now)

    def seal_broadcasts(self, group: Group, now: float) -> None:
        """Encrypt the collected broadcasts of a group once, for all members, or for the multicast tree of a large group."""
        if not group.broadcast_parts:
            return
        body, size = group.take_broadcasts()
        if group.is_cast(now):
            self.cast(group, b"".join(body))
            return
        peers = [member.peer for member in group.targets if member.peer is not self._local]
        unlinked = self._send_to_all(group, peers, body, size, now)
        if unlinked:
            nonce, sealed = group.seal_multicast(b"".join(body))
            for peer in unlinked:
                self._send_without_link(peer, WaitingMessage(now, MULTICAST, group, payload=sealed, nonce=nonce), now)

    # -- publications

    def send_body(
        self, group: Group, peer: Peer, body: list[bytes], size: int, now: float, *, passes_large: bool = False
    ) -> None:
        """Queue a body for one peer, in order behind earlier bodies. For a peer without an open link, hold the body.

        Args:
            body: The body, in parts.
            size: Its size.
            passes_large: Whether the interactive lane of the link takes a body over 64 KiB.
        """
        link = peer.link
        if link is None or not link.is_open:
            nonce, sealed = group.seal_for(peer, b"".join(body))
            self._send_without_link(peer, WaitingMessage(now, MULTICAST, group, payload=sealed, nonce=nonce), now)
            return
        if now >= link.clock_due:
            link.tell_clock(now)
        if group.id in link.shared:
            link.send_body(group.id, body, size, is_ordered=True, passes_large=passes_large)
        else:
            link.proofs.offer(group.keys)
            link.send_packet(MULTICAST, group.id, *group.seal_for(peer, b"".join(body)))  # MULTICAST packets keep their order
        self.touch(link, now)

    # -- surveys

    def send_multicast(self, multicast: Multicast, now: float) -> None:
        """Send a message to several peers. For a peer without an open link, hold the message."""
        group, peers, head, payload = multicast.group, multicast.peers, multicast.headers.encoded, multicast.payload
        self.seal_broadcasts(group, now)  # keep the order of sending
        start = packets.MESSAGE.pack(multicast.kind, 0, len(head), len(payload), multicast.id, multicast.argument) + head
        if peers is None:
            self.cast(group, start + payload)
            return
        for peer in self._send_to_all(group, peers, [start, payload], len(start) + len(payload), now):
            self._send_without_link(peer, _let_wait(multicast.to(peer), now), now)

    def _send_to_all(self, group: Group, peers: Sequence[Peer], body: list[bytes], size: int, now: float) -> list[Peer]:
        """Queue a body on the link of each peer; return the peers without an open link.

        It is joined and encrypted at most once.
        """
        if len(peers) > 1:
            body = [b"".join(body)]
        packet: tuple[bytes, bytes] | None = None
        unlinked: list[Peer] = []
        for peer in peers:
            link = peer.link
            if link is None or not link.is_open:
                unlinked.append(peer)
                continue
            if now >= link.clock_due:
                link.tell_clock(now)
            if group.id in link.shared:
                link.send_body(group.id, body, size, is_ordered=True)
            else:
                link.proofs.offer(group.keys)
                packet = packet or group.seal_multicast(b"".join(body))
                link.send_packet(MULTICAST, group.id, *packet)
            self.touched[link] = None
            if link.is_quiet:  # as `touch`, without the call
                self._wake(link, now)
        return unlinked

    def cast(self, group: Group, body: bytes) -> None:
        """Encrypt a body, and send it down the tree of a group."""
        nonce, sealed = group.seal_multicast(body, is_cast=True)
        self._casts += [(group.id, piece) for piece in cast_pieces.cut(nonce, sealed)]
        self.has_events = True

    def touch(self, link: Link, now: float) -> None:
        """Note that a link has data to write."""
        self.touched[link] = None
        if link.is_quiet:
            self._wake(link, now)

    # -- commands

    def send_control(self, peer: Peer, message: bytes, now: float) -> None:
        """Send an overlay message (of the ring or its groups) over the peer's link.

        If the link closes as idle, the message waits for the next link; if it ends otherwise, the message is lost.
        """
        link = peer.link
        if link is None:
            return
        if link.is_open:
            link.send_control(message)
            self.touched[link] = None
            if link.congested:
                self._full_links[link] = None
        elif link.is_idle_end and not self.is_closed:
            self._hold(peer, WaitingMessage(now, CONTROL, None, payload=message), now)

    def ask_flush(self, peer: Peer, number: bytes) -> None:
        """Ask a peer for an answer behind all ordered messages in the queue of the peer's link, if open."""
        link = peer.link
        if link is not None:
            link.ask_flush(number)
            self.touched[link] = None

    def is_control_full(self) -> bool:
        """Tell whether a link is congested since overlay messages (mainly multicasts) were sent over it."""
        self._full_links = {link: None for link in self._full_links if link.congested}
        return bool(self._full_links)

    def connect(self, peers: list[Peer], now: float) -> None:
        """Request links to peers that will probably get requests; harmless if repeated."""
        for peer in peers:
            if peer.link is None:
                self._want(peer, now)

    def peer_opened(self, peer: Peer, now: float) -> None:
        """Send the held messages over the peer's new link, in order."""
        peer.is_routed = peer.is_dead = False
        peer.connect_after = 0.0
        link = peer.link
        assert link is not None
        for waiting in self._take(peer):
            if waiting.packet == CONTROL:
                link.send_control(waiting.payload)
            elif waiting.packet == MULTICAST:
                assert waiting.group is not None
                link.send_packet(MULTICAST, waiting.group.id, waiting.nonce, waiting.payload)
            else:
                assert waiting.group is not None
                kind, id_, argument, payload = waiting.kind, waiting.id, waiting.argument_at(now), waiting.payload
                self.gather(PeerMessage(waiting.group, peer, kind, id_, argument, payload, waiting.headers), now)
        self.touched[link] = None
        if link.queued_bytes and link.is_quiet:
            self._wake(link, now)

    # --

    def _hold_gathered(self, channel: PeerChannel, now: float) -> None:
        """Hold the collected messages of a channel, because its link ended before they were encrypted."""
        parts, _size = channel.take()
        for start, payload in zip(parts[::2], parts[1::2], strict=True):
            kind, _flags, size, _length, message_id, argument = packets.MESSAGE.unpack_from(start)
            headers = Headers(start[packets.MESSAGE_BYTES :]) if size else NO_HEADERS
            message = PeerMessage(channel.group, channel.peer, kind, message_id, argument, payload, headers)
            self._send_without_link(channel.peer, _let_wait(message, now), now)

    # -- events of the peer

    def peer_closed(self, peer: Peer, now: float, *, is_clean: bool) -> None:
        """Handle the end of a peer's link; request another link if messages wait for one."""
        if self._full_links:
            self.is_control_full()  # removes this link
        held = peer.held
        if held is None:
            return
        if not is_clean:  # earlier overlay messages were lost with the link, so the overlay starts anew
            for _waiting in held.take_control():
                self._count_drop("control_on_lost_link")
            self._update(peer)
        if peer.held is not None:
            self._want(peer, now, is_urgent=True)

    def connect_failed(self, peer: Peer, now: float) -> None:
        """Handle a peer that cannot be connected: send held messages of suitable size through the ring; give up larger ones."""
        if peer.link is not None:
            return
        peer.connect_after = now + CONNECT_RETRY_S
        if peer.is_dead:
            self.peer_died(peer)
            return
        peer.is_routed = True
        for waiting in self._take(peer):
            if waiting.packet != CONTROL and waiting.fits_ring:
                self._route(peer, waiting, now)
            else:
                self._give_up(peer, waiting, "unreachable")

    def peer_died(self, peer: Peer) -> None:
        """Handle the death of a peer: give up its held messages; requests go to other members."""
        peer.is_routed, peer.is_dead = False, True
        for waiting in self._take(peer):
            self._give_up(peer, waiting, "peer_died")

    def member_removed(self, group: Group, peer: Peer) -> None:
        """Handle the end of a peer's membership: its held requests for the group go to another member."""
        held = peer.held
        if held is None:
            return
        for request_id in [id_ for id_ in held.requests if held.request(id_).group is group]:
            self.withdraw(peer, request_id)
            self._return(peer, request_id, is_tried=True)

    def withdraw(self, peer: Peer, request_id: int) -> bool:
        """Withdraw a request that waits for a link; return whether it was waiting."""
        held = peer.held
        if held is None or not held.remove_request(request_id):
            return False
        self._update(peer)
        return True

    def overdue(self, now: float) -> list[tuple[Peer, int]]:
        """Return the requests that have waited long for a link. The owner finds other members and calls :meth:`withdraw`."""
        requests: list[tuple[Peer, int]] = []
        for peer in self._reviews.expired(now):
            held = peer.held
            assert held is not None
            if now >= held.since + HELD_S_MAX and peer.link is None:
                self.connect_failed(peer, now)
                continue
            self._reviews.set(peer, now + HELD_S)
            # A threshold rounded unlike the deadline would make the newest request wait twice as long.
            requests += [(peer, request_id) for request_id in held.overdue(now - 0.99 * HELD_S)]
        return requests

    def close(self) -> None:
        """Close the sending side: drop the held messages, and from now on every message to a peer without an open link."""
        self.is_closed = True
        for peer in self._reviews.expired(float("inf")):
            for waiting in self._take(peer):
                self._give_up(peer, waiting, "node_closed")

    # -- out

    def deadline(self) -> float | None:
        """Return the time of the next call of :meth:`overdue`."""
        return self._reviews.deadline()

    def links_woken(self) -> list[Link]:
        """Take the links whose deadline has changed."""
        woken, self._woken = self._woken, []
        return woken

    def links_wanted(self) -> list[NodeInfo]:
        """Take the descriptions of the nodes to which links should be opened."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def packets_to_route(self) -> tuple[list[tuple[NodeInfo, bytes]], list[int]]:
        """Take the packets for the ring, and the ids of the requests in them."""
        routed, self._routed = self._routed, []
        requests, self._routed_requests = self._routed_requests, []
        return routed, requests

    def unsent(self, peer: Peer) -> set[int]:
        """Return the ids of the requests for a peer that wait for a link, or that :meth:`requests_returned` will return."""
        returned = {returned.id for returned in self._returned if returned.peer is peer}
        return returned.union(peer.held.requests) if peer.held is not None else returned

    def requests_returned(self) -> list[ReturnedRequest]:
        """Take the requests that were surely not sent."""
        returned, self._returned = self._returned, []
        return returned

    def casts_to_send(self) -> list[tuple[GroupId, bytes]]:
        """Take the pieces of broadcasts the overlay is to multicast, each with its group."""
        to_send, self._casts = self._casts, []
        return to_send

    # -- for Outbound

    def _wake(self, link: Link, now: float) -> None:
        link.wake(now)
        self._woken.append(link)
        self.has_events = True

    def _send_without_link(self, peer: Peer, waiting: WaitingMessage, now: float) -> None:
        if self.is_closed:
            self._give_up(peer, waiting, "node_closed")
            return
        if waiting.packet == UNICAST and waiting.kind == packets.CANCEL:
            if self.withdraw(peer, waiting.id):
                return  # it was never sent
            if not peer.is_routed:
                self._count_drop("peer_gone")  # the peer cancels requests itself when their link ends
                return
        if peer.is_routed and peer.link is None and waiting.fits_ring:
            self._route(peer, waiting, now)
            self._want(peer, now)
        else:
            self._hold(peer, waiting, now)

    def _hold(self, peer: Peer, waiting: WaitingMessage, now: float) -> None:
        held = peer.held
        if held is None:
            held = peer.held = HeldMessages(now)
            self._reviews.set(peer, now + HELD_S)
            self.has_events = True
            if peer.link is None:
                self._want(peer, now, is_urgent=True)
        if not held.has_room(waiting):
            self._give_up(peer, waiting, "held_full", is_tried=False)
            return
        held.add(waiting)
        peer.is_full = held.bytes > HELD_BYTES_HIGH

    def _want(self, peer: Peer, now: float, *, is_urgent: bool = False) -> None:
        if is_urgent or now >= peer.connect_after:
            peer.connect_after = now + CONNECT_RETRY_S
            self._wanted.append(peer.info)
            self.has_events = True

    def _route(self, peer: Peer, waiting: WaitingMessage, now: float) -> None:
        """Queue a message for the ring, which must be small enough."""
        self.has_events = True
        group: Group = waiting.group
        if waiting.packet == MULTICAST:
            packet = packets.encode_routed(MULTICAST, group.id, waiting.nonce, waiting.payload, clocks.read(now))
            self._routed.append((peer.info, packet))
            return
        channel = self._open_routes.get((group, peer))
        if channel is not None and channel.parts_bytes + waiting.size > BODY_BYTES:
            self._seal_route(self._open_routes.pop((group, peer)), now)
            channel = None
        if channel is None:
            channel = self._open_routes[group, peer] = group.new_channel(peer)
        head, payload = waiting.headers.encoded, waiting.payload
        start = packets.MESSAGE.pack(waiting.kind, 0, len(head), len(payload), waiting.id, waiting.argument_at(now)) + head
        channel.parts += (start, payload)
        channel.parts_bytes += len(start) + len(payload)
        if waiting.is_request:
            self._routed_requests.append(waiting.id)

    def _seal_route(self, channel: PeerChannel, now: float) -> None:
        nonce, sealed = channel.group.seal(channel)
        packet = packets.encode_routed(UNICAST, channel.group.id, nonce, sealed, clocks.read(now))
        self._routed.append((channel.peer.info, packet))
        self.has_events = True

    def _take(self, peer: Peer) -> list[WaitingMessage]:
        held = peer.held
        if held is None:
            return []
        entries = held.take()
        self._update(peer)
        return entries

    def _update(self, peer: Peer) -> None:
        """Update a peer after some of its held messages were removed: whether messages wait, and whether it is congested."""
        held = peer.held
        assert held is not None
        if not held:
            peer.held = None
            self._reviews.cancel(peer)
        if peer.is_full and held.bytes <= HELD_BYTES_HIGH // 4:
            peer.is_full = False
            self.has_room = self.has_events = True

    def _give_up(self, peer: Peer, waiting: WaitingMessage, reason: str, *, is_tried: bool = True) -> None:
        if waiting.is_request and not self.is_closed:
            self._return(peer, waiting.id, is_tried=is_tried)
        else:
            self._count_drop(reason)

    def _return(self, peer: Peer, request_id: int, *, is_tried: bool) -> None:
        self._returned.append(ReturnedRequest(request_id, peer, is_tried))
        self.has_events = True


def _let_wait(message: PeerMessage, now: float) -> WaitingMessage:
    """Return the entry for a message that waits for a link."""
    group, kind, payload = message.group, message.kind, message.payload
    return WaitingMessage(now, UNICAST, group, kind, message.id, message.argument, payload, headers=message.headers)
