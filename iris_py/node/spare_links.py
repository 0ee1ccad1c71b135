"""Unused links that may be closed, and room for new peers (docs/design.md 3.9).

A newcomer never displaces a link in use, because a holder of the secret may return as often as it likes. Without room the
newcomer is rejected and reached through the ring. A reserve (``LEAF_LINKS_SHARE``) admits ring neighbours, because the ring
would break without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.ids import NodeId
from iris_py.link.events import CloseReason

if TYPE_CHECKING:
    from iris_overlay.overlay import Overlay
    from iris_py.link.link import Link
    from iris_py.patterns.request.service import RequestService
    from iris_py.peers.peer import Peer
    from iris_py.peers.peer_table import Peers

#: A link with packets within this time (seconds) stays open, though the overlay does not need it. Too small: a conversation
#: with pauses dials again and again. Too large: descriptors.
LINK_IDLE_S: Final = 30.0
#: The idle time (seconds) up to which a link stays open while another peer waits for room. Too small: any newcomer ends a
#: conversation with pauses between two messages; too large: after a crowd has left, newcomers find no room.
CROWDED_IDLE_S: Final = 2.0


class SpareLinks:
    """Finds the links that a node can close.

    Args:
        peers: The links.
        overlay: Knows the links that the ring and the groups need.
        service: Knows the peers that await an answer.
    """

    def __init__(self, peers: Peers, overlay: Overlay, service: RequestService) -> None:
        self._peers = peers
        self._overlay = overlay
        self._service = service

    def release(self, peer_id: NodeId, now: float) -> Link | None:
        """Close a link not needed by the overlay, unless in use or used within ``LINK_IDLE_S``.

        Returns:
            The closed link, to be handled.
        """
        peer = self._peers.find(peer_id)
        return self._close(peer, now) if peer is not None and _is_unused(peer, now - LINK_IDLE_S) else None

    def admit(self, link: Link, node_id: bytes, now: float) -> tuple[bool, Link | None]:
        """Make room for a newly identified peer, or reject it.

        The host with the most links gives up its longest unused link that is not needed.

        Returns:
            Whether there is room, and the closed link, to be handled.
        """
        peer_id = NodeId(node_id)
        if not self._peers.is_crowded_for(peer_id):
            return True, None
        # A closing link occupies its place until its peer agrees.
        if not self._peers.is_crowded_for(peer_id, is_leaf=True):
            closed = self._close_longest_unused(now)
            if closed is not None or self._overlay.wants_link(peer_id):
                return True, closed
        self._peers.turn_away(link, now)
        return False, None

    def _close_longest_unused(self, now: float) -> Link | None:
        for peers in self._peers.hosts():
            unused = [peer for peer in peers if _is_unused(peer, now - CROWDED_IDLE_S)]
            for peer in sorted(unused, key=_last_use):
                closed = None if self._overlay.needs_link(peer.id) else self._close(peer, now)
                if closed is not None:
                    return closed
        return None

    def _close(self, peer: Peer, now: float) -> Link | None:
        """Close the link to a peer, unless an answer is due on it."""
        link = peer.link
        if link is None or peer.awaited or peer.held is not None or self._service.owes(peer):
            return None
        link.close(CloseReason.IDLE, now)
        return link


def _is_unused(peer: Peer, moment: float) -> bool:
    return peer.link is not None and peer.link.is_unused_since(moment)


def _last_use(peer: Peer) -> float:
    assert peer.link is not None
    return peer.link.active_at
