"""What a node sends to peers without a link: it is held, goes through the ring, goes to somebody else, or is given up.

See :mod:`iris_py.peers.outbound`, which has the rest, for the theory of operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.timers import DeadlineTable
from iris_py.link.lanes import CONTROL, MULTICAST, UNICAST
from iris_py.peers.group import BODY_BYTES
from iris_py.peers.waiting import HELD_BYTES_HIGH, Held, Waiting
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import GroupId
    from iris_overlay.messages import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.group import Channel, Group
    from iris_py.peers.peer import Peer

#: How long a request waits for a link before a member that has one is given it instead. Too small: a dial across an ocean,
#: three round trips, is not awaited; too large: the dead and the unreachable cost their callers that much.
HELD_S = 0.5
#: When something that waits is given up although the overlay has not said that no link can be had. It tries to dial, and then
#: to be dialled, each for seconds.
HELD_S_MAX = 15.0
#: How often a link is asked for to a peer that is reached through the ring, or that is merely to be prepared. Too small: dials
#: to nowhere; too large: what could go straight goes round.
CONNECT_RETRY_S = 5.0


class Returned:
    """A request that was surely not sent, to be given to another member."""

    __slots__ = ("id", "is_tried", "peer")

    def __init__(self, id: int, peer: Peer, is_tried: bool) -> None:  # noqa: A002
        self.id = id
        self.peer = peer
        self.is_tried = is_tried  # whether that member is not to be tried again


class OutboundBase:
    """The sending side of a node, as far as there is no link.

    Args:
        count_drop: Counts what is dropped, by reason.

    Attributes:
        has_news: Whether :meth:`links_woken` and the other outputs hold anything.
        has_room: Whether a peer that was congested is not any more; the owner takes it back.
        is_closed: Whether the node ends.
    """

    def __init__(self, count_drop: Callable[[str], object]) -> None:
        self.has_news = False
        self.has_room = False
        self.is_closed = False
        self._count_drop = count_drop
        self._open_routes: dict[tuple[Group, Peer], Channel] = {}
        self._reviews: DeadlineTable[Peer] = DeadlineTable()  # of those that something is held for
        self._woken: list[Link] = []
        self._wanted: list[NodeInfo] = []
        self._routed: list[tuple[NodeInfo, bytes]] = []
        self._routed_requests: list[int] = []
        self._returned: list[Returned] = []
        self._casts: list[tuple[GroupId, bytes]] = []

    # -- what became of the peer

    def peer_closed(self, peer: Peer, now: float, *, is_clean: bool) -> None:
        """The link is gone: ask for another one if something waits for it."""
        held = peer.held
        if held is None:
            return
        if not is_clean:  # what came before it was lost with the link: the overlay begins anew
            for _waiting in held.take_control():
                self._count_drop("control_on_lost_link")
            self._update(peer)
        if peer.held is not None:
            self._want(peer, now, is_urgent=True)

    def connect_failed(self, peer: Peer, now: float) -> None:
        """No link can be had: use the ring."""
        if peer.link is not None:
            return
        peer.connect_after = now + CONNECT_RETRY_S
        if peer.is_dead:
            self.peer_died(peer)
            return
        peer.is_routed = True
        for waiting in self._take(peer):
            if waiting.packet != CONTROL and waiting.fits_ring:
                self._route(peer, waiting)
            else:
                self._give_up(peer, waiting, "unreachable")

    def peer_died(self, peer: Peer) -> None:
        """The peer is dead: nothing reaches it."""
        peer.is_routed, peer.is_dead = False, True
        for waiting in self._take(peer):
            self._give_up(peer, waiting, "peer_died")

    def member_removed(self, group: Group, peer: Peer) -> None:
        """The peer is no member any more: its requests go to another one."""
        held = peer.held
        if held is None:
            return
        for request_id in [id_ for id_ in held.requests if held.request(id_).group is group]:
            self.withdraw(peer, request_id)
            self._return(peer, request_id, is_tried=True)

    def withdraw(self, peer: Peer, request_id: int) -> bool:
        """Do not send a request; returns whether it was held."""
        held = peer.held
        if held is None or not held.remove_request(request_id):
            return False
        self._update(peer)
        return True

    def overdue(self, now: float) -> list[tuple[Peer, int]]:
        """Return the requests that have waited for long, for the owner to find another member and :meth:`withdraw` them."""
        requests: list[tuple[Peer, int]] = []
        for peer in self._reviews.expired(now):
            held = peer.held
            assert held is not None
            if now >= held.since + HELD_S_MAX and peer.link is None:
                self.connect_failed(peer, now)
                continue
            self._reviews.set(peer, now + HELD_S)
            # Rounded otherwise than the deadline, the newest would wait for twice as long.
            requests += [(peer, request_id) for request_id in held.overdue(now - 0.99 * HELD_S)]
        return requests

    def close(self) -> None:
        """The node ends: whatever is held or comes from now on is dropped, unless there is an open link for it."""
        self.is_closed = True
        for peer in self._reviews.expired(float("inf")):
            for waiting in self._take(peer):
                self._give_up(peer, waiting, "node_closed")

    # -- out

    def deadline(self) -> float | None:
        """Return when to ask for :meth:`overdue`."""
        return self._reviews.deadline()

    def links_woken(self) -> list[Link]:
        """Take the links whose deadline has changed."""
        woken, self._woken = self._woken, []
        return woken

    def links_wanted(self) -> list[NodeInfo]:
        """Take the nodes that a link is to be asked for to."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def packets_to_route(self) -> tuple[list[tuple[NodeInfo, bytes]], list[int]]:
        """Take the packets for the ring, and the ids of the requests in them."""
        routed, self._routed = self._routed, []
        requests, self._routed_requests = self._routed_requests, []
        return routed, requests

    def unsent(self, peer: Peer) -> set[int]:
        """Return the requests for a peer that wait, or that the owner is about to take back."""
        returned = {returned.id for returned in self._returned if returned.peer is peer}
        return returned.union(peer.held.requests) if peer.held is not None else returned

    def requests_returned(self) -> list[Returned]:
        """Take the requests that were surely not sent."""
        returned, self._returned = self._returned, []
        return returned

    def casts_to_send(self) -> list[tuple[GroupId, bytes]]:
        """Take what is to be cast."""
        to_send, self._casts = self._casts, []
        return to_send

    # -- for Outbound

    def _wake(self, link: Link, now: float) -> None:
        link.wake(now)
        self._woken.append(link)
        self.has_news = True

    def _send_without_link(self, peer: Peer, waiting: Waiting, now: float) -> None:
        if self.is_closed:
            self._give_up(peer, waiting, "node_closed")
            return
        if waiting.packet == UNICAST and waiting.kind == packets.CANCEL:
            if self.withdraw(peer, waiting.id):
                return  # it was never sent
            if not peer.is_routed:
                self._count_drop("peer_gone")  # it cancels what it was asked when its link is gone
                return
        if peer.is_routed and peer.link is None and waiting.fits_ring:
            self._route(peer, waiting)
            self._want(peer, now)
        else:
            self._hold(peer, waiting, now)

    def _hold(self, peer: Peer, waiting: Waiting, now: float) -> None:
        held = peer.held
        if held is None:
            held = peer.held = Held(now)
            self._reviews.set(peer, now + HELD_S)
            self.has_news = True
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
            self.has_news = True

    def _route(self, peer: Peer, waiting: Waiting) -> None:
        """Send something that fits through the ring."""
        self.has_news = True
        group: Group = waiting.group
        if waiting.packet == MULTICAST:
            packet = packets.encode_routed(MULTICAST, group.id, waiting.nonce, waiting.payload)
            self._routed.append((peer.info, packet))
            return
        channel = self._open_routes.get((group, peer))
        if channel is not None and channel.parts_bytes + waiting.size > BODY_BYTES:
            self._seal_route(self._open_routes.pop((group, peer)))
            channel = None
        if channel is None:
            channel = self._open_routes[group, peer] = group.new_channel(peer)
        head, payload = waiting.headers.encoded, waiting.payload
        start = packets.MESSAGE.pack(waiting.kind, 0, len(head), len(payload), waiting.id, waiting.argument) + head
        channel.parts += (start, payload)
        channel.parts_bytes += len(start) + len(payload)
        if waiting.is_request:
            self._routed_requests.append(waiting.id)

    def _seal_route(self, channel: Channel) -> None:
        nonce, sealed = channel.group.seal(channel)
        self._routed.append((channel.peer.info, packets.encode_routed(UNICAST, channel.group.id, nonce, sealed)))
        self.has_news = True

    def _take(self, peer: Peer) -> list[Waiting]:
        held = peer.held
        if held is None:
            return []
        entries = held.take()
        self._update(peer)
        return entries

    def _update(self, peer: Peer) -> None:
        """Less is held for a peer than before."""
        held = peer.held
        assert held is not None
        if not held:
            peer.held = None
            self._reviews.cancel(peer)
        if peer.is_full and held.bytes <= HELD_BYTES_HIGH // 4:
            peer.is_full = False
            self.has_room = self.has_news = True

    def _give_up(self, peer: Peer, waiting: Waiting, reason: str, *, is_tried: bool = True) -> None:
        if waiting.is_request and not self.is_closed:
            self._return(peer, waiting.id, is_tried=is_tried)
        else:
            self._count_drop(reason)

    def _return(self, peer: Peer, request_id: int, *, is_tried: bool) -> None:
        self._returned.append(Returned(request_id, peer, is_tried))
        self.has_news = True
