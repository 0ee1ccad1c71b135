"""Broadcasts: one message to every member of a cluster, encrypted once (docs/design.md section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.patterns.request.service import RequestService
    from iris_py.peers.decrypted_message import PeerMessage
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers


class Broadcaster:
    """The broadcasts of a node, in both directions.

    Args:
        outbound: Sends messages to other members.
        service: Holds the handlers of this node.
    """

    def __init__(self, outbound: Outbound, service: RequestService, local: Peer, count_drop: Callable[[str], object]) -> None:
        self._outbound = outbound
        self._service = service
        self._local = local
        self._count_drop = count_drop

    def broadcast(self, group: Group, payload: bytes, now: float, headers: Headers) -> int | None:
        """Send a message to every ordinary member, encrypted once; return the number of members.

        The node sends it directly to a small group's members, and down the tree of a large group. Returns None without sending
        while a member's link is congested or the membership view is unknown; retry after ``RoomMade`` or ``ViewKnown``.
        """
        if group.members is None:
            return None
        members = group.targets
        if group.is_cast(now):
            count = group.size
            if self._outbound.is_control_full():
                return None
        else:
            count = len(members)
            for member in members:
                if member.peer.is_congested:
                    return None
        if not count:
            return 0
        group.sequence += 1
        group.counts.broadcasts += 1
        if self._service.serves(group):
            self._service.receive_broadcast(group, self._local, group.sequence, payload, headers)
        if count > 1 or not members or members[0].peer is not self._local:
            head = headers.encoded
            start = packets.MESSAGE.pack(packets.BROADCAST, 0, len(head), len(payload), group.sequence, 0) + head
            self._outbound.add_broadcast(group, start, payload, now)
        return count

    def receive(self, message: PeerMessage, _now: float) -> None:
        """Hand another node's broadcast to the handlers, unless a later broadcast of that node has arrived."""
        group, peer = message.group, message.peer
        if not self._service.serves(group):
            self._count_drop("broadcast_to_no_member")
        elif group.is_late(peer.id, message.id):
            self._count_drop("late_broadcast")
        else:
            self._service.receive_broadcast(group, peer, message.id, message.payload, message.headers)
