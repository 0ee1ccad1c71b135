"""The overlay of one node: the only class that its owner uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overlay.counters import Counters
from overlay.dialling import Dialler, parse_address
from overlay.discovery import Discovery
from overlay.errors import InfoError, MessageError, StateError, TooManyGroupsError
from overlay.events import Settled
from overlay.groups import Directory
from overlay.membership import PeerTable
from overlay.messages import (
    GROUPS_PER_NODE_MAX,
    WELCOME_PEERS_MAX,
    Welcome,
    check_info,
    check_membership,
    decode_message,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overlay.config import OverlayConfig, Rng
    from overlay.events import Event
    from overlay.ids import GroupId, NodeId
    from overlay.messages import NodeInfo


class Overlay:
    """Find the other nodes of the network, and know who takes part in which group.

    The owner opens and breaks links, and moves bytes; the overlay decides. After any input or command, the owner applies the
    outputs in this order, and repeats while something moved:

    1. `messages_to_send`: write each to the link of its peer, in order, in the control lane. Drop those for a peer that has no
       link any more.
    2. `datagrams_to_send`: seal and send; losing them does no harm.
    3. `events_received`: in the order given. Within one batch, requests and news of peers (`DialRequested`, `PeerJoined`,
       `PeerLost`, `ProtocolViolated`) come first, then the views (`ViewChanged`, one per group however much changed), then
       what completed (`Settled`, `GroupJoined`, `GroupLeft`, `Departed`): who acts on a completion sees the views that
       belong to it.
    4. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Messages go before events because events make the owner close links: after `Departed`, the last acknowledgements have to be
    out before that.

    Nothing from a peer raises. Errors of the owner raise before any state changes.

    Attributes:
        counters: What was dropped, by reason.
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
        check_info(local)
        if not 0 < config.peers_max <= WELCOME_PEERS_MAX:
            raise InfoError(f"peers_max is {config.peers_max}: choose 1 to {WELCOME_PEERS_MAX}, as many as a Welcome can name")
        self.counters = Counters()
        self._local = local
        self._config = config
        self._is_started = False
        self._directory = Directory(config.groups_watched_max)
        self._table = PeerTable(local, config, rng, self._directory, self.counters)
        self._dialler = Dialler(local, config, rng, self.counters)
        self._discovery = Discovery(local, config, rng, self._dialler, self.counters)

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
        if self._is_started or self._table.is_leaving:
            raise StateError("an overlay is started once, before it leaves: create another one")
        if len(seeds) > self._config.seeds_max:
            raise InfoError(f"{len(seeds)} seeds: pass at most {self._config.seeds_max}, a few that usually run are enough")
        for address in seeds:
            parse_address(address)
        self._is_started = True
        self._discovery.start(now, seeds, remembered, beacons=beacons, is_complete=remembered_is_complete)
        self._finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle a new authenticated link, whoever dialled; harmless if there was one to that peer already.

        Call it when messages to the peer will go through the new link from now on: the peer is told everything again.
        """
        if info.id == self._local.id:
            self._table.violate(info.id, "a link to the local node itself", now)
            return
        try:
            check_info(info)
        except InfoError as exc:
            # Passed on in a Welcome, it would make others close their links to us.
            self._table.violate(info.id, str(exc), now)
            return
        if self._table.open(info, now):
            self._dialler.link_opened(info.id, now)
        self._finish_turn(now)

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Handle that the last link to a peer has ended, cleanly or not; harmless if the peer is unknown."""
        lost = self._table.close(peer, now)
        if lost is not None:
            self._dialler.link_lost(lost.info, now, is_departed=lost.is_leaving, is_violator=lost.is_violator)
        else:
            self._dialler.stop_awaiting(peer)  # A dial succeeded, and the link broke before it was open.
        self._finish_turn(now)

    def dial_failed(self, address: str, now: float) -> None:
        """Handle that a requested dial failed."""
        self._dialler.dial_failed(address, now)
        self._finish_turn(now)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Handle that a requested dial reached a node, whichever it is: the local one, one with a link already, or a new one.

        For a new one call `link_opened` as well, before or after.
        """
        self._dialler.dial_succeeded(address, peer, now)
        self._finish_turn(now)

    def receive_message(self, peer: NodeId, data: bytes, now: float) -> None:
        """Handle a link message of a peer."""
        known = self._table.peers.get(peer)
        if known is None or known.is_violator:
            self.counters.messages_unexpected += 1
            return
        try:
            message = decode_message(data)
        except MessageError as exc:
            self._table.violate(peer, str(exc), now)
            return
        for info in self._table.receive_message(peer, message, now):
            self._dialler.add_peer(info, now, now)
        if isinstance(message, Welcome):
            # Only now: the peers that it names are part of the search.
            self._dialler.stop_awaiting(peer)
        self._finish_turn(now)

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Handle an authentic datagram."""
        self._discovery.receive_datagram(data, source, now, len(self._table.peers))
        self._finish_turn(now)

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""
        self._dialler.handle_timeout(now)
        self._discovery.handle_timeout(now, len(self._table.peers))
        self._table.handle_timeout(now)
        self._finish_turn(now)

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Become a member, or change the attributes of the membership. `GroupJoined` follows.

        Raises:
            InfoError: The group id has the wrong size, or the attributes are too large.
            TooManyGroupsError: The node is in GROUPS_PER_NODE_MAX groups already.
            StateError: The node is leaving.
        """
        if self._table.is_leaving:
            raise StateError("the node is leaving")
        check_membership(group, attributes)
        if not self._directory.has_room(self._local.id, group):
            raise TooManyGroupsError(GROUPS_PER_NODE_MAX, "joins")
        self._table.join_group(group, attributes, now)

    def leave_group(self, group: GroupId, now: float) -> None:
        """Stop being a member. `GroupLeft` follows, also when the node was none."""
        self._table.leave_group(group, now)

    def watch_group(self, group: GroupId, now: float) -> None:
        """Ask for `ViewChanged` of a group: now and after every change. Harmless if watched already.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node watches `groups_watched_max` groups already.
        """
        check_membership(group)
        self._directory.watch(group)

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching a group; harmless if it is not watched."""
        self._directory.unwatch(group)

    def leave(self, now: float) -> None:
        """Tell everybody that this node goes. `Departed` follows. Harmless when called again."""
        if self._table.is_leaving:
            return
        if self._discovery.stop():
            self._end_search(now)
        self._table.leave(now)

    def peers(self) -> list[NodeInfo]:
        """Return the live peers, for display."""
        return [peer.info for peer in self._table.peers.values() if not peer.is_leaving]

    def table_sizes(self) -> dict[str, int]:
        """Return how many entries the tables have that grow with the network, by name: for metrics and tests."""
        return {
            "peers": len(self._table.peers),
            "candidates": len(self._dialler),
            "departed": self._dialler.departed_count,
            "commands": self._table.commands_count,
            "answers": self._discovery.answers_count,
        }

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Take the link messages to send."""
        return self._table.messages_to_send()

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Take the datagrams to send; None is the multicast group."""
        datagrams, self._discovery.datagrams = self._discovery.datagrams, []
        return datagrams

    def events_received(self) -> list[Event]:
        """Take what happened."""
        table = self._table
        events: list[Event] = [*table.events, *self._dialler.requests, *self._directory.views_changed(), *table.completions]
        table.events.clear()
        self._dialler.requests.clear()
        table.completions.clear()
        return events

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        deadlines = (self._dialler.deadline(), self._discovery.deadline(), self._table.deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _finish_turn(self, now: float) -> None:
        self._dialler.request_dials(now)
        if self._discovery.maybe_settle(now, len(self._table.peers)):
            self._end_search(now)

    def _end_search(self, now: float) -> None:
        self._table.completions.append(Settled())
        self._table.release(now)
