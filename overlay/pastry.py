"""The routed ring: the interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overlay.config import Rng
    from overlay.ids import NodeId
    from overlay.messages import NodeInfo
    from overlay.pastry_config import PastryConfig
    from overlay.pastry_events import PastryEvent


class Pastry:
    """Take part in a ring of nodes, and route messages to the node nearest to a key.

    After any input or command the owner applies the outputs, in this order, and repeats while something moved:

    1. `messages_to_send`: give each to the link of its peer, in order; dial if there is none. A node info without addresses
       is known by a link alone: without that, report `contact_failed`.
    2. `events_received`: in the order given.
    3. `deadline`: call `handle_timeout` then; calling it early does no harm.
    """

    def __init__(self, local: NodeInfo, config: PastryConfig, rng: Rng) -> None:
        """Create a node that is in no ring yet."""

    def start_alone(self, now: float) -> None:
        """Begin a ring of one. Active at once."""

    def join_via(self, contact: NodeInfo, now: float) -> None:
        """Join the ring of a node that a link is open to; call it again with another contact at any time. `Activated` follows."""

    def receive(self, peer: NodeId, message: bytes, now: float) -> None:
        """Handle a link message of a peer. Nothing raises: a malformed one becomes `PeerViolated`."""

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle that a link to a peer is open, whoever dialled."""

    def link_closed(self, peer: NodeId, now: float) -> None:
        """Handle that there is no link to a peer any more; that says nothing about its life."""

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Handle that a peer is dead: a restarted process has another id."""

    def peer_left(self, peer: NodeId, now: float) -> None:
        """Handle that a peer left the network in good order."""

    def peer_doubtful(self, peer: NodeId, doubtful: bool, now: float) -> None:
        """Route around a peer, or not any more. It keeps its keys: nobody else delivers them until `peer_dead`."""

    def contact_failed(self, peer: NodeId, undelivered: list[bytes], now: float) -> None:
        """Handle that messages could not be given to a peer; they are sent another way."""

    def rtt_measured(self, peer: NodeId, rtt_s: float, now: float) -> None:
        """Learn how near a peer is."""

    def merge_with(self, contact: NodeInfo, now: float) -> None:
        """Look whether a node that a link is open to is in the same ring, and merge the two rings if it is not."""

    def handover_done(self, to: NodeInfo, now: float) -> None:
        """Handle that what a `HandoverWanted` asked for was sent."""

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""

    def route(self, key: bytes, payload: bytes, now: float, *, exclude_self: bool = False) -> None:
        """Send to the root of a key. `Delivered` follows there, which may be here; `Undeliverable` here when it is given up.

        Args:
            key: ID_BYTES.
            payload: At most PAYLOAD_BYTES_MAX.
            now: Monotonic seconds.
            exclude_self: Deliver at the nearest node other than the local one.
        """

    def send(self, peer: NodeInfo, payload: bytes, now: float) -> None:
        """Send to a node directly; if it cannot be dialled, through the ring. `Received` follows there."""

    def answer(self, path: tuple[NodeId, ...], payload: bytes, now: float) -> None:
        """Send back along the path of a `Delivered`; where that is broken, through the ring. `Received` follows at path[0]."""

    def leave(self, now: float) -> None:
        """Tell the leaf set and everybody who has a link to this node. It is inactive then, and acknowledges nothing."""

    def is_root(self, key: bytes) -> bool:
        """Return whether the local node is active, and the nearest to a key of all nodes it knows to live."""
        raise NotImplementedError

    @property
    def is_active(self) -> bool:
        """Return whether the node is part of a ring."""
        raise NotImplementedError

    def leaves(self) -> list[NodeInfo]:
        """Return the leaf set: the nearest on either side alternately."""
        raise NotImplementedError

    def replicas(self, key: bytes, count: int = 2) -> list[NodeInfo]:
        """Return the leaves nearest to a key, the local node not among them."""
        raise NotImplementedError

    def known(self) -> list[NodeInfo]:
        """Return the leaf set and the table."""
        raise NotImplementedError

    def contact_ids_needed(self) -> list[NodeId]:
        """Return whose life matters, who should be probed and whose links kept: leaf set and table, and whom it awaits."""
        raise NotImplementedError

    def messages_to_send(self) -> list[tuple[NodeInfo, bytes]]:
        """Take the link messages to send."""
        raise NotImplementedError

    def events_received(self) -> list[PastryEvent]:
        """Take what happened."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        raise NotImplementedError
