"""Links that may be closed: those that nothing has used for a while, and how a node that has enough makes room for another one.

Nothing that is under way is given up for a newcomer, for whoever holds the secret may come as often as it likes. It is turned
away instead, and reached through the ring; but a neighbour in the ring is not, for the ring would break (docs/design.md 3.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.ids import NodeId
from iris_py.link.events import CloseReason

if TYPE_CHECKING:
    from iris_overlay.overlay import Overlay
    from iris_py.link.link import Link
    from iris_py.patterns.request.service import Service
    from iris_py.peers.peer import Peer
    from iris_py.peers.peers import Peers

#: A link on which packets moved within this time (seconds) is not closed, though the overlay does not need it. Too small: a
#: conversation with pauses dials again and again. Too large: descriptors.
LINK_IDLE_S: Final = 30.0
#: The same where another peer waits for the place. Too small: a conversation with pauses loses its link between two messages to
#: any newcomer, as often as there is one; too large: newcomers of a crowd that is gone find no place.
CROWDED_IDLE_S: Final = 2.0


class SpareLinks:
    """Finds the links that a node can do without.

    Args:
        peers: The links.
        overlay: Knows which of them the ring and the groups need.
        service: Knows to whom an answer is due.
    """

    def __init__(self, peers: Peers, overlay: Overlay, service: Service) -> None:
        self._peers = peers
        self._overlay = overlay
        self._service = service

    def release(self, peer_id: NodeId, now: float) -> Link | None:
        """Close the link to a peer that the overlay does not need, unless something uses it or did so a moment ago.

        Returns:
            The link that was closed, to be handled.
        """
        peer = self._peers.find(peer_id)
        return self._close(peer, now) if peer is not None and _is_unused(peer, now - LINK_IDLE_S) else None

    def admit(self, link: Link, node_id: bytes, now: float) -> tuple[bool, Link | None]:
        """Find a place for a peer that has just been identified, or turn it away.

        The host with the most links gives one up: the one that is unused the longest, and not needed.

        Returns:
            Whether there is a place, and the link that was closed for it, to be handled.
        """
        peer_id = NodeId(node_id)
        if not self._peers.is_crowded_for(peer_id):
            return True, None
        # One that is being closed still has its place, until its peer has said that it gives up, too.
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
        """Close the link to a peer, unless something is due on it."""
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
