"""The tunnels of a node: opening at the caller and at the member, transports, end (docs/design.md section 11).

A tunnel is opened like a request: the caller's :class:`~iris_py.patterns.request.requester.Requester` gives a TUNNEL_OPEN to a
member, and to another after a rejection or loss. The member answers with TUNNEL_ACCEPT. The handler starts when the caller's
first chunk proves the use of the tunnel, so a failed opening was surely not executed.

A tunnel uses the link of the opening and breaks with the link. Between two nodes without a link it uses the ring
(:mod:`iris_py.patterns.tunnel.ring_transport`). The tunnels of a link take turns, a chunk each, while the link has room. Unsent
data waits at its end, uses the tunnel's own credit, and delays no other tunnel.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.link.lanes import TUNNEL, TUNNEL_SEALED
from iris_py.link.link import NO_LINK
from iris_py.link.pacing import CHUNK_BYTES_MAX
from iris_py.observe.counts import count_in
from iris_py.patterns.tunnel.duplex import Failure, Way, bounded_window
from iris_py.patterns.tunnel.end import FROM_MEMBER, OPEN, TunnelEnd, TunnelOffer, TunnelTerms, make_handshake, prologue_of
from iris_py.patterns.tunnel.ring_transport import HEADER, LINGER_S, LINGERING_MAX, RingWay
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_security import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from iris_overlay.node_info import NodeInfo
    from iris_py.link.link import Link
    from iris_py.patterns.request.requester import Requester
    from iris_py.patterns.request.service import RequestService
    from iris_py.patterns.tunnel.duplex import Piece
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: The data before the handshake message in a TUNNEL_ACCEPT: the member's window, and the id of the tunnel's link; ``NO_LINK``
#: for the ring.
_ACCEPT = struct.Struct(">Q8s")
_ID = struct.Struct(">Q")


class TunnelOpened(msgspec.Struct):
    """A member has accepted the requested tunnel with this token."""

    token: object
    end: TunnelEnd


class TunnelStarted(msgspec.Struct):
    """The owner must run the registration's handler for this end of a tunnel."""

    end: TunnelEnd


class TunnelChanged(msgspec.Struct):
    """Data or credit arrived, or the tunnel ended."""

    end: TunnelEnd


TunnelEvent: TypeAlias = TunnelOpened | TunnelStarted | TunnelChanged


class TunnelCounts:
    """Counters of a node's tunnels.

    Attributes:
        opened: Tunnels opened here.
        served: Tunnels given to handlers here.
        ended: Cleanly ended tunnels, in both roles (caller and member).
        broken: Broken tunnels, by kind of failure.
        credit_waits: Waits for credit, in tunnels that are over.
        sent_bytes: Bytes and charges sent through tunnels that are over.
        received_bytes: Bytes and charges received through tunnels that are over.
    """

    __slots__ = ("broken", "credit_waits", "ended", "opened", "received_bytes", "sent_bytes", "served")

    def __init__(self) -> None:
        self.opened = 0
        self.served = 0
        self.ended = 0
        self.broken: dict[str, int] = {}
        self.credit_waits = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    def end(self, end: TunnelEnd) -> None:
        """Count a tunnel that is over or broken."""
        self.credit_waits += end.credit_waits
        self.sent_bytes += end.written
        self.received_bytes += end.received
        if end.failure is None:
            self.ended += 1
        else:
            count_in(self.broken, end.failure.kind)


class LinkWay(Way[TunnelEnd]):
    """The transport of tunnels over a link."""

    def __init__(self, ready_ways: dict[Way[TunnelEnd], None], link: Link) -> None:
        super().__init__(ready_ways)
        self.link = link
        self.ends: dict[TunnelEnd, None] = {}


class Tunnels:
    """The tunnels of a node, opened here or served here: openings, transports and ends.

    Args:
        entropy: The source of ephemeral keys.
        requester: Finds members for tunnels opened here.

    Attributes:
        has_new_deadline: Whether :meth:`deadline` may have changed; the owner resets it.
        counts: Counters of tunnels.
    """

    def __init__(
        self,
        local: NodeInfo,
        entropy: Callable[[int], bytes],
        requester: Requester,
        service: RequestService,
        count_drop: Callable[[str], object],
    ) -> None:
        self.has_new_deadline = False
        self.counts = TunnelCounts()
        self._local = local
        self._entropy = entropy
        self._requester = requester
        self._service = service
        self._count_drop = count_drop
        self._ends: dict[tuple[Peer, int], TunnelEnd] = {}  # by the id on the peer's chunks
        self._live: dict[TunnelEnd, None] = {}  # not ended
        self._running: dict[TunnelEnd, None] = {}  # with a running handler
        self._lingering: dict[TunnelEnd, None] = {}  # ended, with a transport through the ring that still repeats packets
        self._ready_ways: dict[Way[TunnelEnd], None] = {}
        self._within: Way[TunnelEnd] = Way(self._ready_ways)  # from this node to itself
        self._links: dict[Link, LinkWay] = {}
        self._deadlines: DeadlineTable[TunnelEnd] = DeadlineTable()
        self._changed: dict[TunnelEnd, None] = {}
        self._reported: dict[TunnelEnd, None] = {}  # reported ends, which may have ended since
        self._out: list[PeerMessage] = []
        self._routed: list[tuple[NodeInfo, bytes]] = []
        self._events: list[TunnelEvent] = []

    def __len__(self) -> int:
        return len(self._ends)

    # -- commands

    def offer(self, group: Group, window_bytes: int, headers: Headers = NO_HEADERS) -> TunnelOffer:
        """Return the offer for a tunnel to a cluster."""
        return TunnelOffer(group, window_bytes, self._local, self._entropy, headers)

    def close(self) -> None:
        """Break every tunnel of a closing node."""
        for end in list(self._live):
            end.fail(
                Failure("this node was closed", kind="closed"), is_told=True, type="NodeClosed", text="the node was closed"
            )

    def ends(self) -> Collection[TunnelEnd]:
        """Return the live ends."""
        return self._live.keys()

    def groups(self) -> set[Group]:
        """Return the groups with a tunnel."""
        return {end.group for end in self._live}

    # -- openings

    def receive_open(
        self,
        group: Group,
        peer: Peer,
        tunnel_id: int,
        time_left_ms: int,
        payload: bytes,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Accept or reject a tunnel that a caller opens to this node as a member."""
        registration = self._service.admit_tunnel(group)
        link = peer.link
        if link is not None and not link.is_open:
            registration = packets.Rejection.NOT_A_MEMBER
        if isinstance(registration, packets.Rejection):
            argument = packets.encode_answer(0, registration)
            self._out.append(PeerMessage(group, peer, packets.REJECTION, tunnel_id, argument))
            return
        if len(payload) < OPEN.size or tunnel_id >= FROM_MEMBER:
            self._count_drop("malformed")
            return
        if (peer, tunnel_id) in self._ends:
            self._count_drop("repeated_tunnel")
            return
        (window_bytes,) = OPEN.unpack_from(payload)
        prologue = prologue_of(group, peer.id, self._local.id, tunnel_id)
        handshake = make_handshake(group, prologue, self._entropy, initiator=False)
        try:
            handshake.read_message(payload[OPEN.size :])
        except AuthenticationError:
            self._count_drop("unauthentic")
            return
        answer = _ACCEPT.pack(registration.window_bytes, link.id if link is not None else NO_LINK) + handshake.write_message()
        terms = TunnelTerms(
            group=group,
            peer=peer,
            keys=handshake.split(),
            window_bytes=registration.window_bytes,
            credit_bytes=bounded_window(window_bytes),
            headers=headers,
        )
        way = self._way_to(peer, now)
        end = TunnelEnd(tunnel_id | FROM_MEMBER, terms, way=way, changed=self._changed, registration=registration)
        self._service.tunnel_begun(registration)
        self._add(tunnel_id, end)
        self._schedule(end, now + time_left_ms / 1000)
        self._out.append(PeerMessage(group, peer, packets.TUNNEL_ACCEPT, tunnel_id, 0, answer))

    def receive_accept(self, group: Group, peer: Peer, tunnel_id: int, payload: bytes, now: float) -> None:
        """Handle a member's TUNNEL_ACCEPT."""
        offer = self._requester.offer_of(peer, tunnel_id)
        if offer is None:
            return
        if len(payload) < _ACCEPT.size:
            self._count_drop("malformed")
            return
        window_bytes, link_id = _ACCEPT.unpack_from(payload)
        link = peer.link
        if (link.id if link is not None and link.is_open else NO_LINK) != link_id:
            # Its link is gone, or only one side knows it, so the tunnel cannot work.
            self._requester.give_back(tunnel_id, peer, now, is_tried=False)
            return
        assert offer.handshake is not None
        try:
            offer.handshake.read_message(payload[_ACCEPT.size :])
        except AuthenticationError:  # a repetition, or a faulty member
            self._count_drop("unauthentic")
            self._requester.give_back(tunnel_id, peer, now, is_tried=True)
            return
        token = self._requester.take_offer(peer, tunnel_id, now)
        terms = TunnelTerms(
            group=group,
            peer=peer,
            keys=offer.handshake.split(),
            window_bytes=offer.window_bytes,
            credit_bytes=bounded_window(window_bytes),
            headers=offer.headers,
        )
        end = TunnelEnd(tunnel_id, terms, way=self._way_to(peer, now), changed=self._changed)
        self._add(tunnel_id | FROM_MEMBER, end)
        if link is not None:
            link.begin_tunnel()
        end.confirm()
        if isinstance(end.way, RingWay):
            self._schedule(end, end.way.deadline())
        self.counts.opened += 1
        self._events.append(TunnelOpened(token, end))

    def receive_cancel(self, peer: Peer, tunnel_id: int) -> bool:
        """Handle a caller's CANCEL of an unused offer; return whether the tunnel is known."""
        end = self._ends.get((peer, tunnel_id))
        if end is None or end.is_confirmed:
            return False
        end.fail(Failure("the caller gave up", kind="cancelled"), is_told=False)
        self._retire(end)
        return True

    def handler_done(self, end: TunnelEnd) -> None:
        """Handle the return of a started handler."""
        if self._running.pop(end, end) is None and end not in self._live:
            assert end.registration is not None
            self._service.tunnel_over(end.registration)

    # -- chunks

    def receive_chunk(self, link: Link, peer: Peer, tunnel_id: bytes, data: Piece, start: int, stop: int) -> None:
        """Handle a chunk that came over a link and that only the record has encrypted.

        Both sides must have proved on this link to hold the key of the cluster, and the peer to hold those of the tunnel.
        """
        end = self._end_at_link(peer, tunnel_id)
        if end is None:
            return
        if end.is_confirmed and end.group.id in link.shared:
            end.receive_frames(data, start, stop)
        else:
            self._refuse_chunk(end)

    def receive_sealed(self, peer: Peer, tunnel_id: bytes, sealed: bytes | memoryview) -> None:
        """Handle a chunk that came over a link and is encrypted under the keys of its tunnel."""
        end = self._end_at_link(peer, tunnel_id)
        if end is None:
            return
        was_confirmed = end.is_confirmed
        try:
            end.receive_sealed(sealed)
        except AuthenticationError:
            self._refuse_chunk(end)
        if not was_confirmed:
            self._handle_confirmed(end)

    def receive_routed(self, peer: Peer, packet: bytes, now: float) -> None:
        """Handle a packet that came through the ring."""
        if len(packet) < HEADER.size:
            self._count_drop("malformed")
            return
        _kind, tunnel_id, number, expected = HEADER.unpack_from(packet)
        end = self._ends.get((peer, tunnel_id))
        if end is None or not isinstance(end.way, RingWay):
            self._count_drop("unknown_tunnel")
            return
        was_confirmed = end.is_confirmed
        if not end.way.receive(number, expected, packet[HEADER.size :], now):
            self._count_drop("unauthentic")
        if end.is_confirmed:
            if not was_confirmed:
                self._handle_confirmed(end)
            self._ready_ways[end.way] = None
            self._schedule(end, end.way.deadline())

    def link_closed(self, link: Link, reason: str) -> None:
        """Break the tunnels of an ended link."""
        way = self._links.get(link)
        for end in list(way.ends) if way is not None else ():
            end.fail(Failure(f"the link to the other side ended: {reason}", kind="link"), is_told=False)
            self._retire(end)

    def peer_died(self, peer: Peer) -> None:
        """Break the tunnels through the ring to a dead peer."""
        for end in [end for end in self._live if end.peer is peer and isinstance(end.way, RingWay)]:
            end.fail(Failure("the other side is dead", kind="death"), is_told=False)
            self._retire(end)

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines; harmless if early."""
        for end in self._deadlines.expired(now):
            way = end.way
            if end in self._live and not end.is_confirmed:
                end.fail(
                    Failure("the caller did not take the offer", kind="untaken"),
                    is_told=True,
                    type="TimeoutError",
                    text="too late",
                )
            elif isinstance(way, RingWay):
                if way.linger_until is not None and now >= way.linger_until:
                    self._forget(end)
                    continue
                way.handle_timeout(now)
                if end.failure is not None and end in self._live and not end.is_ready:
                    self._retire(end)
                    continue
                self._ready_ways[way] = None
                self._schedule(end, way.deadline())

    # -- out

    @property
    def has_work(self) -> bool:
        """Whether a transport has room and a chunk to send, or an event waits to be reported."""
        return bool(self._out or self._ready_ways or self._changed or self._reported or self._events)

    @property
    def has_events(self) -> bool:
        """Whether an event waits to be reported."""
        return bool(self._changed or self._events)

    def is_ready_for(self, link: Link) -> bool:
        """Tell whether a link has room and a tunnel has a chunk for it."""
        way = self._links.get(link)
        return way is not None and bool(way.ready) and link.chunk_room > 0

    def messages_to_send(self) -> list[PeerMessage]:
        """Take the messages to send, in order."""
        out, self._out = self._out, []
        return out

    def fill(self, now: float) -> list[Link]:
        """Give chunks to the transports with room; return the links that got chunks."""
        filled: list[Link] = []
        for way in list(self._ready_ways):
            if isinstance(way, LinkWay):
                if self._fill_link(way, now):
                    filled.append(way.link)
                if way.ready:
                    continue
            elif isinstance(way, RingWay):
                self._fill_ring(way, now)
            else:
                self._carry_within(way, now)
            self._ready_ways.pop(way, None)
        for end in (*self._changed, *self._reported):
            self._maybe_retire(end, now)
        self._reported.clear()
        return filled

    def packets_to_route(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the packets for the ring."""
        routed, self._routed = self._routed, []
        return routed

    def events_received(self) -> list[TunnelEvent]:
        """Take the events, in order."""
        events, self._events = self._events, []
        events += map(TunnelChanged, self._changed)
        self._reported |= self._changed
        self._changed.clear()
        return events

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    # --

    def _end_at_link(self, peer: Peer, tunnel_id: bytes) -> TunnelEnd | None:
        """Return the end of a chunk that came over a link; None, counted, for an unknown tunnel."""
        end = self._ends.get((peer, *_ID.unpack(tunnel_id))) if len(tunnel_id) == _ID.size else None
        if end is None or isinstance(end.way, RingWay):
            self._count_drop("unknown_tunnel")  # usually the tunnel ended while the chunk was in transit
            return None
        return end

    def _refuse_chunk(self, end: TunnelEnd) -> None:
        self._count_drop("unauthentic")
        end.fail(Failure("a chunk could not be authenticated", kind="unauthentic"), is_told=True, type="AuthenticationError")

    def _schedule(self, end: TunnelEnd, deadline: float | None) -> None:
        self.has_new_deadline = True
        if deadline is None:
            self._deadlines.cancel(end)
        else:
            self._deadlines.set(end, deadline)

    def _add(self, chunks_id: int, end: TunnelEnd) -> None:
        self._ends[end.peer, chunks_id] = end
        self._live[end] = None
        end.peer.awaited += 1
        if isinstance(end.way, LinkWay):
            end.way.ends[end] = None
        elif isinstance(end.way, RingWay):
            end.way.end = end

    def _way_to(self, peer: Peer, now: float) -> Way[TunnelEnd]:
        link = peer.link
        if peer.is_local:
            return self._within
        if link is None:
            return RingWay(self._ready_ways, now)
        way = self._links.get(link)
        if way is None:
            way = self._links[link] = LinkWay(self._ready_ways, link)
        return way

    def _handle_confirmed(self, end: TunnelEnd) -> None:
        """Start the handler after the caller's first chunk, which proves the use of the tunnel."""
        if end in self._live:
            self._schedule(end, None)
            self._running[end] = None
            if isinstance(end.way, LinkWay):
                end.way.link.begin_tunnel()
            self.counts.served += 1
            self._events.append(TunnelStarted(end))

    def _fill_link(self, way: LinkWay, now: float) -> bool:
        link, ready = way.link, way.ready
        if not link.chunk_room:
            return False
        while ready and (chunk_bytes := link.chunk_room):
            end, chunk, size = way.take_turn(chunk_bytes)
            if end.has_proved and end.group.id in link.shared:
                link.send_tunnel(TUNNEL, _ID.pack(end.id), chunk, size, now)
            else:
                sealed = end.seal(chunk)
                link.send_tunnel(TUNNEL_SEALED, _ID.pack(end.id), (sealed,), len(sealed), now)
            if not end.is_ready:
                self._maybe_retire(end, now)
        return True

    def _fill_ring(self, way: RingWay, now: float) -> None:
        end = way.end
        if end not in self._live and way.linger_until is None:
            return  # it was forgotten
        self._routed += [(end.peer.info, packet) for packet in way.packets_to_send(now)]
        self._maybe_retire(end, now)
        if end.is_confirmed or way.linger_until is not None:
            self._schedule(end, way.deadline())

    def _carry_within(self, way: Way[TunnelEnd], now: float) -> None:
        while way.ready:
            end = next(iter(way.ready))
            del way.ready[end]
            sealed, other = end.seal(end.next_chunk(CHUNK_BYTES_MAX)), self._ends.get((end.peer, end.id))
            if end.is_ready:
                way.ready[end] = None
            if other is not None:
                was_confirmed = other.is_confirmed
                other.receive_sealed(sealed)
                if not was_confirmed:
                    self._handle_confirmed(other)
            self._maybe_retire(end, now)

    def _maybe_retire(self, end: TunnelEnd, now: float) -> None:
        if end.is_finished and end in self._live:
            if isinstance(end.way, RingWay):
                end.way.linger_until = now + LINGER_S
                if len(self._lingering) >= LINGERING_MAX:
                    self._forget(next(iter(self._lingering)))
                self._lingering[end] = None
            self._retire(end)

    def _retire(self, end: TunnelEnd) -> None:
        """Release the resources of an end that is over or broken."""
        if self._live.pop(end, end) is not None:
            return
        end.peer.awaited -= 1
        self.counts.end(end)
        if end.registration is not None and end not in self._running:
            self._service.tunnel_over(end.registration)
        if not isinstance(end.way, RingWay) or end.way.linger_until is None:
            self._forget(end)

    def _forget(self, end: TunnelEnd) -> None:
        way = end.way
        self._lingering.pop(end, None)
        self._ends.pop((end.peer, end.id ^ FROM_MEMBER), None)
        self._schedule(end, None)
        way.ready.pop(end, None)
        if not way.ready:
            self._ready_ways.pop(way, None)
        if isinstance(way, LinkWay):
            way.ends.pop(end, None)
            if not way.ends:
                self._links.pop(way.link, None)
