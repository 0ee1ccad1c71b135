"""The overlay of one node: the only class that its owner uses."""

from __future__ import annotations


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overlay.messages import NodeInfo
    from overlay.ids import GroupId, NodeId
    from overlay.events import Event
    from overlay.config import OverlayConfig, Rng
    from collections.abc import Sequence


class Overlay:
    """Find the other nodes of the network, and know who takes part in which group.

    The owner opens and breaks links, and moves bytes; the overlay decides. After any input or command, the owner applies the
    outputs
    in this order, and repeats while something moved:

    1. `messages_to_send`: write each to the link of its peer, in order, control lane. A message for a peer without link is
       dropped.
    2. `datagrams_to_send`: seal and send; losing them does no harm.
    3. `events_received`: in the order given. Within one batch, requests and news of peers (`DialRequested`, `PeerJoined`,
       `PeerLost`, `ProtocolViolated`) come first, then the views (`ViewChanged`, one per group however much changed), then
       what completed (`Settled`, `GroupJoined`, `GroupLeft`, `Departed`): who acts on a completion sees the views that
       belong to it.
    4. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Messages go before events because a completion means that the acknowledgement of others was received, never that ours was
    sent.

    Nothing from a peer raises. Errors of the owner raise before any state changes.
    """

    def __init__(self, local: NodeInfo, config: OverlayConfig, rng: Rng) -> None:
        """Create the overlay of a node.

        Args:
            local: The node itself, with the addresses it listens on.
            config: The constants.
            rng: A source of randomness for jitter and sampling; nothing secret depends on it.

        Raises:
            InfoError: No peer would accept this node.
        """
        raise NotImplementedError

    def start(
        self, now: float, seeds: Sequence[str], remembered: Sequence[str], beacons: bool, remembered_is_complete: bool = False
    ) -> None:
        """Begin to look for others.

        Args:
            now: Monotonic seconds.
            seeds: Addresses to dial now and for ever.
            remembered: Addresses to dial now; given up after a while.
            beacons: Whether datagrams can be sent and received.
            remembered_is_complete: Whether `remembered` surely names every node that lives, so that beacons need no waiting.

        Raises:
            AddressError: A seed is no ``host:port``.
            StateError: It was started before.
        """

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle a new authenticated link, whoever dialled; harmless if there was one to that peer already.

        Call it when messages to the peer will go through the new link from now on: the peer is told everything again.
        """

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Handle that the last link to a peer has ended, cleanly or not; harmless if the peer is unknown."""

    def dial_failed(self, address: str, now: float) -> None:
        """Handle that a requested dial failed."""

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Handle that a requested dial reached a node, whichever it is: the local one, one with a link already, or a new one.

        For a new one call `link_opened` as well, before or after.
        """

    def receive_message(self, peer: NodeId, data: bytes, now: float) -> None:
        """Handle a link message of a peer."""

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Handle an authentic datagram."""

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Become a member, or change the attributes of the membership. `GroupJoined` follows.

        Raises:
            InfoError: The group id has the wrong size, or the attributes are too large.
            TooManyGroupsError: The node is in GROUPS_PER_NODE_MAX groups already.
            StateError: The node is leaving.
        """

    def leave_group(self, group: GroupId, now: float) -> None:
        """Stop being a member. `GroupLeft` follows, also when the node was none."""

    def watch_group(self, group: GroupId, now: float) -> None:
        """Ask for `ViewChanged` of a group: now and after every change. Harmless if watched already.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node watches `groups_watched_max` groups already.
        """

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching a group; harmless if it is not watched."""

    def leave(self, now: float) -> None:
        """Tell everybody that this node goes. `Departed` follows. Harmless when called again."""

    def peers(self) -> list[NodeInfo]:
        """Return the live peers, for display."""
        raise NotImplementedError

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Take the link messages to send."""
        raise NotImplementedError

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Take the datagrams to send; None is the multicast group."""
        raise NotImplementedError

    def events_received(self) -> list[Event]:
        """Take what happened."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        raise NotImplementedError
