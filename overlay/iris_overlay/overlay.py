"""The overlay of one node: the only class that its owner uses.

Theory of operation: `composition` has the parts, and carries what one puts out to the one that it concerns. This class
is their face: it hands each input and command to the parts that it is for, and lets everything settle.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from iris_overlay.composition import Composition
from iris_overlay.detector.messages import is_detector_message
from iris_overlay.errors import InfoError, StateError
from iris_overlay.events import (
    Cast,
    Departed,
    GroupJoined,
    GroupLeft,
    PacketReceived,
    ProtocolViolated,
    Settled,
)
from iris_overlay.messages import NodeInfo, check_info
from iris_overlay.peers.dialling import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.events import Event
    from iris_overlay.ids import GroupId, NodeId


class Overlay(Composition):
    """Find the other nodes of the network, know who takes part in which group, and reach them.

    The owner opens and breaks links, and moves bytes; the overlay decides. After any input or command, the owner applies the
    outputs in this order, and repeats while something moved:

    1. `messages_to_send`: write each to the link of its peer, in order, in the control lane. Drop those for a peer that has no
       link any more.
    2. `datagrams_to_send`: seal and send; losing them does no harm.
    3. `events_received`: in the order given. Within one batch, what concerns links comes first, then the views (`ViewChanged`,
       one per group however much changed), then what was received (`Cast`, `PacketReceived`), then what completed (`Settled`,
       `GroupJoined`, `GroupLeft`, `Departed`): who acts on a completion sees the views that belong to it.
    4. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Messages go before events because events make the owner close links: after `Departed`, the last words have to be out before
    that.

    Nothing from a peer raises. Errors of the owner raise before any state changes.

    Attributes:
        counters: What was dropped, by reason.
    """

    # Inputs

    def start(
        self, now: float, seeds: Sequence[str], remembered: Sequence[str], beacons: bool, remembered_is_complete: bool = False
    ) -> None:
        """Begin to look for others.

        Args:
            now: Monotonic seconds.
            seeds: Addresses to dial now and for ever.
            remembered: Addresses to dial now; given up after a while.
            beacons: Whether datagrams by multicast can be sent and received; to single nodes they always can.
            remembered_is_complete: Whether `remembered` surely names every node that lives, so that beacons need no waiting.

        Raises:
            AddressError: A seed is no ``host:port``.
            InfoError: There are more seeds than `OverlayConfig.seeds_max`.
            StateError: It was started before.
        """
        if self._is_started or self._is_leaving:
            raise StateError("an overlay is started once, before it leaves: create another one")
        if len(seeds) > self._config.seeds_max:
            raise InfoError(f"{len(seeds)} seeds: pass at most {self._config.seeds_max}, a few that usually run are enough")
        for address in seeds:
            parse_address(address)
        self._is_started = True
        self._discovery.start(now, seeds, remembered, beacons=beacons, is_complete=remembered_is_complete)
        self._finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Handle a new authenticated link, whoever dialled; harmless if there was one to that peer already."""
        self._notice_stall(now)
        if info.id == self._local.id:
            self._events.append(ProtocolViolated(info.id, "a link to the local node itself"))
            return
        try:
            check_info(info)
        except InfoError as exc:
            # Passed on to others, it would make them close their links to us.
            self.counters.messages_invalid += 1
            self._events.append(ProtocolViolated(info.id, str(exc)))
            return
        peer = info.id
        self._links[peer] = info
        self._violators.pop(peer, None)
        self._liveness.link_opened(peer, now)
        self._contacts.link_opened(peer, now)
        self._reaching.link_opened(peer)
        self._ring.link_opened(info, now)
        # The owner may report the link before the dial: then the dialler was looking for the peer still.
        is_found = self._dialler.forget(peer) or peer in self._to_merge
        if not self._ring.is_active:
            self._ring.join_via(info, now)
        elif is_found:
            self._ring.merge_with(info, now)
        self._to_merge.pop(peer, None)
        self._finish_turn(now)

    def link_lost(self, peer: NodeId, now: float, *, is_closed: bool = False) -> None:
        """Handle that the link to a peer has ended; harmless if there was none.

        Args:
            peer: The peer.
            now: Monotonic seconds.
            is_closed: Whether one of the two closed it in good order: that is no sign of death.
        """
        self._notice_stall(now)
        info = self._links.pop(peer, None)
        is_violator = self._violators.pop(peer, 0) is None
        if info is not None:
            self._contacts.link_lost(peer, now)
            self._ring.link_closed(peer, now)
            self._groups.link_lost(peer, now)
            is_doubtful = not (is_closed or is_violator or self._is_leaving or self._liveness.is_buried(peer))
            if is_doubtful and not self._ring.has_left(peer):
                self._liveness.link_broke(info, now)
        else:
            self._to_merge.pop(peer, None)  # It never was open, and will not be.
        self._finish_turn(now)

    def dial_connected(self, address: str, now: float) -> None:
        """Handle that somebody took the connection of a requested dial: who it is will be known soon."""
        self._discovery.dial_connected(now)

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Handle that a requested dial failed.

        Args:
            address: As it was requested.
            now: Monotonic seconds.
            is_refused: Whether the host says that nobody listens there.
            is_broken: Whether somebody took the connection, which then ended without a word.
        """
        self._dials.end(address)
        self._dialler.dial_failed(address, now)
        self._contacts.dial_failed(address, now, is_refused=is_refused, is_broken=is_broken)
        self._finish_turn(now)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Handle that a requested dial reached a node, whichever it is: the local one, one with a link already, or a new one.

        For a new one call `link_opened` as well, before or after.
        """
        self._dials.end(address)
        self._dialler.dial_succeeded(address, peer, now)
        self._contacts.dial_succeeded(address, peer, now)
        self._finish_turn(now)

    def receive_message(self, peer: NodeId, data: bytes, now: float) -> None:
        """Handle a link message of a peer."""
        if peer not in self._links or peer in self._violators:
            self.counters.messages_unexpected += 1
            return
        self._notice_stall(now)
        self._contacts.heard_from(peer, now)
        self._liveness.heard_from(peer, now)
        self._ring.receive(peer, data, now)
        self._finish_turn(now)

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Handle an authentic datagram."""
        self._notice_stall(now)
        if is_detector_message(data):
            self._liveness.detector.receive_datagram(data, source, now)
        else:
            self._discovery.receive_datagram(data, source, now, self._peers_count())
        self._finish_turn(now)

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""
        self.deadline()
        self._notice_stall(now)
        self._dialler.handle_timeout(now, self.size_estimate())
        self._discovery.handle_timeout(now, self._peers_count())
        self._contacts.handle_timeout(now)
        self._reaching.handle_timeout(now)
        self._liveness.handle_timeout(now)
        self._ring.handle_timeout(now)
        self._groups.handle_timeout(now)
        self._finish_turn(now)

    # Commands

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Become a member, or change the attributes of the membership. `GroupJoined` follows.

        Raises:
            InfoError: The group id has the wrong size, or the attributes are too large.
            TooManyGroupsError: The node is in GROUPS_PER_NODE_MAX groups already.
            StateError: The node is leaving.
        """
        self._groups.join_group(group, attributes, now)
        self._finish_turn(now)

    def leave_group(self, group: GroupId, now: float) -> None:
        """Stop being a member. `GroupLeft` follows, also when the node was none."""
        self._groups.leave_group(group, now)
        self._finish_turn(now)

    def watch_group(self, group: GroupId, now: float) -> None:
        """Ask for `ViewChanged` of a group: when it is known, and after every change. Harmless if watched already.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node watches `GroupConfig.groups_watched_max` groups already.
        """
        self._groups.watch_group(group, now)
        self._finish_turn(now)

    def use_group(self, group: GroupId, now: float) -> None:
        """Say that a member of a watched group is about to be chosen: a view that nobody keeps fresh is asked for again."""
        self._groups.use_group(group, now)
        self._finish_turn(now)

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching a group; harmless if it is not watched."""
        self._groups.unwatch_group(group, now)
        self._views.pop(group, None)
        self._finish_turn(now)

    def cast(self, group: GroupId, payload: bytes, now: float) -> None:
        """Send to all members, the local node too if it is one, down a tree. `Cast` follows at each of them.

        Raises:
            InfoError: The group id has the wrong size, or the payload is larger than CAST_BYTES_MAX.
        """
        self._groups.cast(group, payload, now)
        self._finish_turn(now)

    def connect(self, info: NodeInfo, now: float) -> None:
        """Get a link to a node: dial it, or have it dial this one. `ConnectFailed` follows if neither can.

        If the node is known to be dead, `PeerDied` follows once more.

        Harmless if it is under way. If there is a link already, nothing happens.

        Raises:
            InfoError: There can be no such node.
        """
        check_info(info)
        if info.id not in self._links:
            if self._liveness.wanted(info, now):
                self._reaching.connect(info, now)
            self._finish_turn(now)

    def send(self, info: NodeInfo, payload: bytes, now: float) -> None:
        """Send through the ring to a node that there can be no link to. `PacketReceived` follows there, or nothing.

        Raises:
            InfoError: The payload is larger than PACKET_BYTES_MAX.
        """
        self._reaching.send(info, payload, now)
        self._finish_turn(now)

    def leave(self, now: float) -> None:
        """Leave all groups, tell the neighbours, and go. `Departed` follows. Harmless when called again."""
        if self._is_leaving:
            return
        self._is_leaving = True
        self._discovery.stop()
        self._settle()
        self._groups.leave(now)
        self._finish_turn(now)

    # Queries

    def peers(self) -> list[NodeInfo]:
        """Return the other nodes that this one knows, for display: in a large network not all."""
        known = {info.id: info for info in self._ring.known()}
        return list((known | self._links).values())

    def size_estimate(self) -> int:
        """Return about how many nodes the network has, this one included; exactly while they are few."""
        return self._ring.size_estimate()

    def is_active(self) -> bool:
        """Return whether the node is part of a ring."""
        return self._ring.is_active

    def table_sizes(self) -> dict[str, int]:
        """Return how many entries the tables have that grow with the network, by name: for metrics and tests."""
        return {
            **self._ring.state_sizes(),
            **self._groups.table_sizes(),
            "open_links": len(self._links),
            "dials": len(self._dials),
            "candidates": len(self._dialler),
            "answers": self._discovery.answers_count,
            "wanted": len(self._reaching),
            "waited_for": self._contacts.waiting_count,
        }

    def directory_of(self, group: GroupId) -> dict[NodeId, bytes] | None:
        """Return the members of a group and their attributes if this node is its root: for display and tests."""
        return self._groups.directory_of(group)

    def watchers_of(self, group: GroupId) -> list[NodeId]:
        """Return who is told of the changes of a group if this node is its root: for display and tests."""
        return self._groups.watchers_of(group)

    def leaves(self) -> list[NodeInfo]:
        """Return the leaf set: for display and tests."""
        return self._ring.leaves()

    # Outputs

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Take the link messages to send."""
        messages, self._messages = self._messages, []
        return messages

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Take the datagrams to send; None is the multicast group."""
        datagrams, self._discovery.datagrams = self._discovery.datagrams, []
        datagrams += self._liveness.detector.datagrams_to_send()
        return datagrams

    def events_received(self) -> list[Event]:
        """Take what happened."""
        if not self._events and not self._views:
            return []
        taken, self._events = self._events, []
        views, self._views = self._views, {}
        received = [event for event in taken if isinstance(event, Cast | PacketReceived)]
        completed = [event for event in taken if isinstance(event, _COMPLETIONS)]
        links = [event for event in taken if not isinstance(event, (Cast, PacketReceived, *_COMPLETIONS))]
        return [*links, *views.values(), *received, *completed]

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        deadlines = (
            self._ring.deadline(),
            self._groups.deadline(),
            self._liveness.deadline(),
            self._contacts.deadline(),
            self._dialler.deadline(),
            self._discovery.deadline(),
            self._reaching.deadline(),
        )
        deadline = min((deadline for deadline in deadlines if deadline is not None), default=None)
        self._due = inf if deadline is None else deadline
        return deadline


_COMPLETIONS = (Settled, GroupJoined, GroupLeft, Departed)
