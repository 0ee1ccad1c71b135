"""The overlay of one node. Its owner uses only the class `Overlay`.

`Pastry` is the ring, and `GroupLayer` keeps the directories on it. `Liveness` decides which nodes are alive. `Contacts` opens
links to nodes with waiting messages. `Dialler` and `Discovery` find the network and its other parts. These components do not
know each other: `Overlay` passes inputs and commands to the components concerned, and carries outputs between them until no
output is left.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.detector.events import Alive
from iris_overlay.detector.messages import is_detector_message
from iris_overlay.errors import InfoError, StateError
from iris_overlay.events import (
    Cast,
    CastsTaken,
    Claimed,
    Counters,
    Departed,
    GroupJoined,
    GroupLeft,
    LinkReleased,
    PacketReceived,
    ProtocolViolated,
    Settled,
    TableChanged,
    ViewChanged,
)
from iris_overlay.groups.io import carry
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo, check_info
from iris_overlay.peers.addresses import parse_address
from iris_overlay.peers.contacts import ContactFailed, Contacts
from iris_overlay.peers.dial_back import Reaching
from iris_overlay.peers.dialler import Dialler, RunningDials
from iris_overlay.peers.discovery import Discovery, Familiarity
from iris_overlay.peers.hearsay import Hearsay
from iris_overlay.peers.liveness import Liveness
from iris_overlay.peers.reachability import Reachability, is_echo
from iris_overlay.peers.vantage import Vantage
from iris_overlay.ring.events import (
    Activated,
    Delivered,
    HandoverWanted,
    LeavesChanged,
    LeavesDoubted,
    PeerAnswered,
    PeerLeft,
    PeerSilent,
    PeerViolated,
    Received,
    Undeliverable,
)
from iris_overlay.ring.pastry import Pastry
from iris_overlay.timers import earliest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from ipaddress import IPv4Interface, IPv6Interface

    from iris_overlay.config import OverlayConfig
    from iris_overlay.detector.config import DetectorCounters
    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import Event
    from iris_overlay.ids import GroupId
    from iris_overlay.peers.contacts import ContactEvent
    from iris_overlay.ring.events import PastryEvent
    from iris_overlay.ring.state import PastryCounters
    from iris_overlay.timers import Timed

#: The number of links at which a node without a ring stops dialling, because one of their peers lets it join. Too small: a
#: stuck contact delays the join; too large: a start of many nodes dials needlessly.
CONTACTS_ENOUGH: Final = 3
#: The largest number of found nodes to merge rings with, whose link is about to open. Beyond it, the oldest is forgotten.
TO_MERGE_MAX: Final = 64
_COMPLETIONS: Final = (CastsTaken, Settled, GroupJoined, GroupLeft, Claimed, Departed)


class Overlay:
    """The overlay of one node: find the other nodes of the network, know the members of groups, and reach nodes.

    The owner opens and aborts links, and moves bytes; the overlay decides. After any input or command, the owner applies the
    outputs in this order, and repeats until no output is left:

    1. `messages_to_send`: write each to the link of its peer, in order, in the control lane; without a link, drop it.
    2. `datagrams_to_send`: encrypt and send; losing them does no harm.
    3. `events_received`: in the given order. A batch contains first the events about links, then the membership views
    (`ViewChanged`, one per group) and tables (`TableChanged`), then received messages (`Cast`, `PacketReceived`), then
    completions (`CastsTaken`, `Settled`, `GroupJoined`, `GroupLeft`, `Claimed`, `Departed`). So the owner handles a completion
    with current views.
    4. `deadline`: call `handle_timeout` then; calling it early does no harm.

    Messages precede events, which make the owner close links: the last messages are sent before `Departed` is handled.
    Input from peers never raises. Errors of the owner raise before any state changes.

    Attributes:
        counters: The dropped messages, by reason.
        gather_claims: Sends the claims of the local node no earlier than at a time: more will follow, and are sent together.
    """

    def __init__(self, local: NodeInfo, config: OverlayConfig, rng: Rng, signer: Signer) -> None:
        """Create the overlay of a node.

        Args:
            local: The node itself, with the addresses on which it accepts links and datagrams.
            config: The constants.
            rng: A source of randomness for jitter and sampling; no secret depends on it.
            signer: Signs for the node, and verifies signatures of others.

        Raises:
            InfoError: Every peer would reject this node.
        """
        check_info(local)
        self.counters = Counters()
        self._local = local
        self._config = config
        self._is_started = self._is_leaving = self._is_settled = False
        # The last deadline given to the owner, and the time of the last late call.
        self._due = inf
        self._resumed_at = -inf
        # The deadline without that of `_liveness`: computed once a turn from some thirty, and not after one of the detector.
        self._rest_due: float | None = None
        self._is_rest_known = False
        self._links: dict[NodeId, NodeInfo] = {}
        self._violators: dict[NodeId, None] = {}
        self._to_merge: dict[NodeId, None] = {}
        self._dials = RunningDials()
        self._messages: list[tuple[NodeId, bytes]] = []
        self._events: list[Event] = []
        self._views: dict[GroupId, ViewChanged] = {}
        self._tables: list[TableChanged] = []
        self._ring = ring = Pastry(local, config.ring, rng, signer)
        self._groups = GroupLayer(local, config.groups, rng, ring, self.counters, signer)
        self.gather_claims = self._groups.gather_claims
        self._vantage = vantage = Vantage()
        self._hearsay = hearsay = Hearsay(config.contacts)
        self._contacts = Contacts(local, config.contacts, vantage, hearsay)
        self._reaching = Reaching(local, ring, self._contacts, self.counters)
        self._dialler = Dialler(local, config, rng, self.counters, self._is_known, vantage, hearsay)
        self._discovery = Discovery(local, config, rng, self._dialler, self.counters, self._familiarity_of)
        self._reachability = Reachability(local, ring, self.counters, vantage, hearsay)
        self._liveness = Liveness(local, config, rng, ring, self._groups, self._contacts, self._dialler, vantage)
        parts = (ring, self._groups, self._contacts, self._reaching, self._dialler, self._discovery, self._reachability)
        self._rest: tuple[Timed, ...] = parts

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Use a clock to measure the time within a turn, for `find_root`; without a clock, time stands still within a turn."""
        self._ring.use_clock(clock)

    def settle_vantage(self, interfaces: tuple[IPv4Interface | IPv6Interface, ...], families: Collection[int]) -> None:
        """Set the location of this node, before its start: the node then dials the nearest of a peer's addresses first.

        Args:
            interfaces: The addresses of this machine, with their networks.
            families: 4, 6 or both: the IP versions usable for datagrams.
        """
        self._vantage.settle(interfaces, families)

    # Inputs

    def start(
        self,
        now: float,
        seeds: Sequence[str],
        remembered: Sequence[str],
        beacons: bool,
        remembered_is_complete: bool = False,
        unix_s: float | None = None,
    ) -> None:
        """Begin to search for other nodes.

        Args:
            now: Monotonic seconds.
            seeds: Addresses to dial now and for ever.
            remembered: Addresses to dial now and to give up after a while.
            beacons: Whether multicast datagrams can be sent and received; datagrams to single nodes always can.
            remembered_is_complete: Whether `remembered` certainly names every live node, so that the node need not wait for
                answers to beacons.
            unix_s: Seconds since 1970; default `now`, for nodes that share one clock.

        Raises:
            AddressError: A seed is no ``host:port``.
            InfoError: There are more seeds than `OverlayConfig.seeds_max`.
            StateError: The overlay was started before, or is leaving.
        """
        if self._is_started or self._is_leaving:
            raise StateError("an overlay can start only once, and not after it has left: create another one")
        if len(seeds) > self._config.seeds_max:
            raise InfoError(
                f"{len(seeds)} seeds: pass at most {self._config.seeds_max}; a few nodes that usually run are enough"
            )
        for address in seeds:
            parse_address(address)
        self._is_started = True
        self._groups.start(now, now if unix_s is None else unix_s)
        self._discovery.start(now, seeds, remembered, beacons=beacons, is_complete=remembered_is_complete)
        self._finish_turn(now)

    def link_opened(self, info: NodeInfo, now: float) -> None:
        """Note a new authenticated link, and join or merge rings over it; a second call for the same peer does no harm."""
        self._notice_stall(now)
        if info.id == self._local.id:
            self._events.append(ProtocolViolated(info.id, "a link to the local node itself"))
            return
        try:
            check_info(info)
        except InfoError as exc:
            # Passed on, this info would make other nodes close their links to this node.
            self.counters.messages_invalid += 1
            self._events.append(ProtocolViolated(info.id, str(exc)))
            return
        peer = info.id
        self._links[peer] = info
        self._violators.pop(peer, None)
        self._vantage.link_opened(info)
        self._liveness.link_opened(peer, now)
        self._contacts.link_opened(peer, now)
        self._reaching.link_opened(peer)
        self._ring.link_opened(info, now)
        # The owner may report the link before the dial, while the dialler still searches for the peer.
        is_found = self._dialler.forget(peer) or peer in self._to_merge
        if not self._ring.is_active:
            self._ring.join_via(info, now)
        elif is_found:
            self._ring.merge_with(info, now)
        self._to_merge.pop(peer, None)
        self._finish_turn(now)

    def link_lost(self, peer: NodeId, now: float, *, is_closed: bool = False) -> None:
        """Repeat messages that a broken link may have lost, and check whether its peer lives; harmless without a link.

        Args:
            peer: The peer.
            now: Monotonic seconds.
            is_closed: Whether one side closed the link in good order, which is no sign of death.
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
            self._to_merge.pop(peer, None)  # The link was never open, and will not open.
        self._finish_turn(now)

    def dial_connected(self, address: str, now: float) -> None:
        """Wait longer before starting a ring alone, because a dial was accepted; the node's identity follows."""
        self._discovery.dial_connected(now)

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Note the failure of a requested dial, so that another address is dialled, or the same later.

        Args:
            address: The requested address.
            now: Monotonic seconds.
            is_refused: Whether the host reports that the port has no listener.
            is_broken: Whether the connection was accepted but ended before a node answered.
        """
        self._dials.end(address)
        self._dialler.dial_failed(address, now)
        self._contacts.dial_failed(address, now, is_refused=is_refused, is_broken=is_broken)
        self._reachability.dial_failed(address, now, is_refused=is_refused, is_broken=is_broken)
        self._finish_turn(now)

    def dial_rested(self, address: str, now: float) -> None:
        """Note that a requested dial was not made, so that the same address is dialled later.

        The owner makes no dial of an unproven address whose host, after the look-up of its name, was just dialled under any
        name. A made-up node, or many of them, could otherwise make this node dial one host again and again.
        """
        self.counters.dials_rested += 1
        self._dials.end(address)
        self._dialler.dial_rested(address, now)
        self._contacts.dial_rested(address, now)
        self._reachability.dial_rested(address, now)
        self._finish_turn(now)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Note the node reached by a requested dial, which may be new, known or the local node.

        For a new node call `link_opened` as well, before or after.
        """
        self._dials.end(address)
        self._dialler.dial_succeeded(address, peer, now)
        self._contacts.dial_succeeded(address, peer, now)
        self._reachability.dial_succeeded(address, peer, now)
        self._finish_turn(now)

    def receive_message(self, peer: NodeId, data: bytes, now: float) -> None:
        """Take a link message from a peer; ignore and count it without a link or after a violation."""
        if peer not in self._links or peer in self._violators:
            self.counters.messages_unexpected += 1
            return
        self._notice_stall(now)
        self._contacts.heard_from(peer, now)
        self._liveness.heard_from(peer, now)
        self._hearsay.teller = peer
        self._ring.receive(peer, data, now)
        self._finish_turn(now)
        self._hearsay.teller = None

    def receive_datagram(self, sender: NodeId, data: bytes, source: tuple[str, int], now: float) -> None:
        """Pass a datagram to the failure detector, the echoes or the discovery; call it once per datagram.

        Args:
            sender: The authenticated sender.
            data: The payload.
            source: The apparent source address.
            now: Monotonic seconds.
        """
        self._notice_stall(now)
        if is_detector_message(data):
            self._liveness.detector.receive_datagram(sender, data, source, now)
            self._finish_probes(now)
            return
        if is_echo(data):
            self._reachability.receive_datagram(sender, data, source)
        else:
            self._discovery.receive_datagram(sender, data, source, now, self._peers_count())
        self._finish_turn(now)

    def handle_timeout(self, now: float) -> None:
        """Act on the deadlines that have passed; harmless if early."""
        self.deadline()
        self._notice_stall(now)
        if self._is_rest_known and (self._rest_due is None or self._rest_due > now):
            self._liveness.handle_timeout(now)
            self._finish_probes(now)
            return
        self._dialler.handle_timeout(now, self.size_estimate())
        self._discovery.handle_timeout(now, self._peers_count())
        self._contacts.handle_timeout(now)
        self._reaching.handle_timeout(now)
        self._reachability.handle_timeout(now)
        self._liveness.handle_timeout(now)
        self._ring.handle_timeout(now)
        self._groups.handle_timeout(now)
        self._finish_turn(now)

    # Commands

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Join a group, or change the attributes of the membership. `GroupJoined` follows.

        Raises:
            InfoError: The group id has the wrong size, or the attributes are too large.
            TooManyGroupsError: The node is already in GROUPS_PER_NODE_MAX groups.
            StateError: The node is leaving, or has claimed entries in the group.
        """
        self._groups.join_group(group, attributes, now)
        self._finish_turn(now)

    def claim(self, group: GroupId, attributes: bytes, added: bytes, removed: bytes, now: float) -> int:
        """Join a table (a group whose members register entries), or change the attributes or entries there. `Claimed` follows.

        Claims of a turn, and those made while another is in transit, are sent together.

        Args:
            group: The table. All nodes have to use the group as a table.
            attributes: Data of the layer above about the member.
            added: Packed entries (`groups/entries.py`).
            removed: Packed entries; harmless if the node does not have them.
            now: Monotonic seconds.

        Returns:
            The number of the event.

        Raises:
            InfoError: The group id has the wrong size, or attributes or entries are too large; or the entries are not packed.
            TooManyGroupsError: The node is already in GROUPS_PER_NODE_MAX groups.
            StateError: The node is leaving, or is a member of the group without entries.
        """
        is_noted = self._groups.is_gathering(group)
        number = self._groups.claim(group, attributes, added, removed, now)
        self._finish_turn(now) if not is_noted else None
        return number

    def leave_group(self, group: GroupId, now: float) -> None:
        """Leave a group or a table. `GroupLeft` follows, even if the node was no member."""
        self._groups.leave_group(group, now)
        self._finish_turn(now)

    def watch_group(self, group: GroupId, now: float, *, is_doubted: bool = False) -> None:
        """Request `ViewChanged` of a group: once it is known, and after every change. Harmless if already watched.

        Args:
            group: The group.
            now: Monotonic seconds.
            is_doubted: Whether a root that reports an empty group is checked with another keeper (holder of a copy) of the
                directory: for groups with keys that only some insiders have.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node already watches `GroupConfig.groups_watched_max` groups.
            StateError: The node watches the group as a table.
        """
        self._groups.watch_group(group, now, is_doubted=is_doubted)
        self._finish_turn(now)

    def watch_table(self, group: GroupId, now: float) -> None:
        """Request `TableChanged` of a table: once it is known, and after every change. Harmless if already watched.

        `use_group` and `unwatch_group` serve for tables, too.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node already watches `GroupConfig.groups_watched_max` groups.
            StateError: The node watches the group as one without entries.
        """
        self._groups.watch_table(group, now)
        self._finish_turn(now)

    def use_group(self, group: GroupId, now: float) -> None:
        """Announce the choice of a member of a watched group; a membership view without updates is requested again."""
        self._groups.use_group(group, now)
        self._finish_turn(now)

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching a group; harmless if not watched."""
        self._groups.unwatch_group(group, now)
        self._views.pop(group, None)
        self._tables = [event for event in self._tables if event.group != group]
        self._finish_turn(now)

    def cast(self, group: GroupId, payload: bytes, now: float) -> None:
        """Multicast a payload to all members down a tree, including the local node if joined. `Cast` follows at each member.

        Raises:
            InfoError: The group id has the wrong size, or the payload is larger than CAST_BYTES_MAX.
        """
        self._groups.cast(group, payload, now)
        self._finish_turn(now)

    def connect(self, info: NodeInfo, now: float) -> None:
        """Get a link to a node, dialled by either side. `ConnectFailed` follows if neither dial works.

        If the node is known to be dead, `PeerDied` follows once more. A call during an attempt does no harm. With an open link
        nothing happens.

        Raises:
            InfoError: The node info is not valid.
        """
        check_info(info)
        if info.id not in self._links:
            if self._liveness.wanted(info, now):
                self._reaching.connect(info, now)
            self._finish_turn(now)

    def send(self, info: NodeInfo, payload: bytes, now: float) -> None:
        """Send a packet through the ring to a node without a link. `PacketReceived` follows there, unless it is lost.

        Raises:
            InfoError: The payload is larger than PACKET_BYTES_MAX.
        """
        self._reaching.send(info, payload, now)
        self._finish_turn(now)

    def echo(self, info: NodeInfo, size: int, now: float) -> int | None:
        """Send a node a datagram to return; `EchoReturned` follows, unless the datagram is lost.

        Args:
            info: The node.
            size: Bytes before encryption, 64 to 1,000.
            now: Monotonic seconds.

        Returns:
            The number of the event; None if the node has no numeric address.
        """
        number = self._reachability.echo(info, size)
        self._finish_turn(now)
        return number

    def check_dial(self, peer: NodeId, now: float) -> None:
        """Ask a node to dial this one, linked or not; `DialChecked` follows with the outcomes, unless a message gets lost."""
        self._reachability.check_dial(peer, now)
        self._finish_turn(now)

    def casts_in_flight(self, group: GroupId) -> int:
        """Return the number of own multicasts to a group that no root has taken yet; `CastsTaken` follows when it falls."""
        return self._groups.casts_in_flight(group)

    def find_root(self, key: bytes, number: int, now: float) -> None:
        """Ask the root of a key for its identity, its neighbours and the path of the question, without changing any state.

        `RootLocated` follows, unless the answer is lost. It follows at once if the local node is the root.

        Args:
            key: The id of a group, or any other position on the ring.
            number: A random number below 2^63, so that only nodes on the path can answer.
            now: Monotonic seconds.

        Raises:
            InfoError: The key has the wrong size.
        """
        self._groups.find_root(key, number, now)
        self._finish_turn(now)

    def leave(self, now: float) -> None:
        """Leave all groups, tell the neighbours, and leave the ring. `Departed` follows. A second call does no harm."""
        if self._is_leaving:
            return
        self._is_leaving = True
        self._discovery.stop()
        self._settle()
        self._groups.leave(now)
        self._finish_turn(now)

    # Queries

    def needs_link(self, peer: NodeId) -> bool:
        """Return whether the link to a peer has to stay open, used or not."""
        return self._ring.is_leaf(peer) or not self._ring.is_active or self._groups.needs(peer)

    def wants_link(self, peer: NodeId) -> bool:
        """Return whether the ring would take a peer as a neighbour, given a link."""
        return not self._ring.is_active or self._ring.admits(peer)

    def peers(self) -> list[NodeInfo]:
        """Return the other known nodes, for display; in a large network not all."""
        return list(({info.id: info for info in self._ring.known()} | self._links).values())

    def others(self) -> list[NodeInfo] | None:
        """Return the other nodes of the network; None unless all are known, as in a small network."""
        return self._ring.others()

    def size_estimate(self) -> int:
        """Return the estimated number of nodes in the network, including this one; exact for small networks."""
        return self._ring.size_estimate()

    @property
    def resumed_at(self) -> float:
        """The last time at which this process resumed after a standstill; minus infinity if it never stood still."""
        return self._resumed_at

    def is_active(self) -> bool:
        """Return whether the node is part of a ring."""
        return self._ring.is_active

    def table_sizes(self) -> dict[str, int]:
        """Return the sizes of the tables that grow with the network, by name: for metrics and tests."""
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

    @property
    def ring_counters(self) -> PastryCounters:
        """The counters of dropped and repeated messages of the ring, by reason."""
        return self._ring.counters

    @property
    def detector_counters(self) -> DetectorCounters:
        """The counters of the failure detector."""
        return self._liveness.detector.counters

    @property
    def round_trips(self) -> tuple[list[int], float]:
        """The round trips of probes: a histogram by the binary digits of their microseconds, and the sum."""
        return self._liveness.detector.round_trips

    def directory_of(self, group: GroupId) -> dict[NodeId, bytes] | None:
        """Return the members of a group and their attributes if the local node is the group's root: for display and tests."""
        return self._groups.directory_of(group)

    def entries_of(self, group: GroupId) -> dict[NodeId, bytes] | None:
        """Return the packed entries of a table's members if the local node is its root: for display and tests."""
        return self._groups.entries_of(group)

    def watchers_of(self, group: GroupId) -> list[NodeId]:
        """Return the watchers of a group if the local node is its root: for display and tests."""
        return self._groups.watchers_of(group)

    def leaves(self) -> list[NodeInfo]:
        """Return the leaf set: for display and tests."""
        return self._ring.leaves()

    # Outputs

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Remove and return the link messages to send."""
        messages, self._messages = self._messages, []
        return messages

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Remove and return the datagrams to send; the address None stands for the multicast group."""
        datagrams, self._discovery.datagrams = self._discovery.datagrams, []
        others, self._reachability.datagrams = self._reachability.datagrams, []
        return [*datagrams, *self._liveness.detector.datagrams_to_send(), *others]

    def events_received(self) -> list[Event]:
        """Remove and return the events for the owner."""
        if not (self._events or self._views or self._tables):
            return []
        taken, self._events = self._events, []
        views, self._views = self._views, {}
        tables, self._tables = self._tables, []
        received = [event for event in taken if isinstance(event, Cast | PacketReceived)]
        completed = [event for event in taken if isinstance(event, _COMPLETIONS)]
        links = [event for event in taken if not isinstance(event, (Cast, PacketReceived, *_COMPLETIONS))]
        return [*links, *views.values(), *tables, *received, *completed]

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        if not self._is_rest_known:
            self._rest_due = earliest(self._rest)
            self._is_rest_known = True
        rest, probes = self._rest_due, self._liveness.deadline()
        deadline = rest if probes is None or (rest is not None and rest < probes) else probes
        self._due = inf if deadline is None else deadline
        return deadline

    # The flow between the components

    def _is_known(self, node: NodeId) -> bool:
        return node in self._links or self._ring.find(node) is not None

    def _familiarity_of(self, node: NodeId) -> Familiarity:
        if self._is_known(node):
            return Familiarity.KNOWN
        return Familiarity.NEIGHBOUR if not self._ring.is_active or self._ring.admits(node) else Familiarity.FAR

    def _peers_count(self) -> int:
        return self._ring.size_estimate() - 1 if self._ring.is_active else 0

    def _violate(self, peer: NodeId, reason: str) -> None:
        """Ask the owner to close the link to a peer; ignore a peer without a link: its message came through the ring."""
        if peer in self._links and peer not in self._violators:
            self._violators[peer] = None
            self._events.append(ProtocolViolated(peer, reason))

    def _settle(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._discovery.settle()
            self._events.append(Settled())

    def _notice_stall(self, now: float) -> None:
        """If this call comes late, recover from the standstill of this process before any later input.

        Either a message or the timer comes first after a standstill, and either may move the deadlines that reveal it.
        """
        if now - max(self._due, self._resumed_at) > self._config.stall_s:
            self._resumed_at = now
            self._is_rest_known = False
            self._ring.resume(now)
            self._groups.resume(now)
            self._dialler.resume(now)
            self._discovery.resume(now)

    def _finish_turn(self, now: float) -> None:
        """Pass the outputs of the components between them until none is left."""
        self._due = inf  # until the owner asks for the next deadline
        self._is_rest_known = False
        if self._dialler.found:
            self._merge_with_found(now)
        moved = True
        while moved:
            moved = False
            for event in self._ring.events_received():
                moved = True
                self._handle_ring(event, now)
            for output in self._groups.outputs_to_send():
                moved = True
                carry(output, self._ring, now)
            for info, data in self._ring.messages_to_send():
                moved = True
                self._contacts.send(info, data, now)
            for contact_event in self._contacts.events_received():
                moved = True
                self._handle_contact(contact_event, now)
            for verdict in self._liveness.detector.events_received():
                moved = True
                self._liveness.handle_detector(verdict, now)
            for group_event in self._groups.events_received():
                moved = True
                self._handle_group(group_event, now)
            if self._is_started and not self._ring.is_active and not self._is_leaving:
                moved |= self._maybe_start_alone(now)
        self._messages += self._contacts.messages_to_send()
        self._take_events()
        self._request_dials(now)

    def _finish_probes(self, now: float) -> None:
        """Finish a turn of the failure detector. Pings and answers of living peers concern no other component."""
        self._due = inf  # until the owner asks for the next deadline
        is_alone = self._is_rest_known and not self._liveness.events
        for verdict in self._liveness.detector.events_received():
            self._liveness.handle_detector(verdict, now)
            is_alone = is_alone and isinstance(verdict, Alive)
        if not is_alone:
            self._finish_turn(now)

    def _maybe_start_alone(self, now: float) -> bool:
        if not self._discovery.should_start_alone(has_link=bool(self._links), is_linking=bool(self._to_merge)):
            return False
        self._ring.start_alone(now)
        for info in self._links.values():
            self._ring.merge_with(info, now)
        return True

    def _take_events(self) -> None:
        for part in (self._liveness, self._reaching, self._reachability):
            if part.events:
                self._events += part.events
                part.events = []

    def _request_dials(self, now: float) -> None:
        is_searching = not self._ring.is_active
        if not is_searching or len(self._links) < CONTACTS_ENOUGH:
            self._dialler.request_dials(now, self._config.search_dials_max if is_searching else self._config.dials_max)
        requests = (*self._dialler.requests, *self._contacts.requests_to_dial(), *self._reachability.requests)
        self._events += self._dials.begin(requests, now)
        self._dialler.requests.clear()
        self._reachability.requests.clear()

    def _merge_with_found(self, now: float) -> None:
        found, self._dialler.found = self._dialler.found, []
        for node in found:
            info = self._links.get(node)
            if info is None:
                if len(self._to_merge) >= TO_MERGE_MAX:
                    del self._to_merge[next(iter(self._to_merge))]
                self._to_merge[node] = None
            elif self._ring.is_active:
                self._ring.merge_with(info, now)

    def _handle_ring(self, event: PastryEvent, now: float) -> None:
        groups = self._groups
        if isinstance(event, Delivered):
            groups.delivered(event.key, event.payload, event.source, event.path, now, event.held)
        elif isinstance(event, Received):
            if not any(part.received(event.source, event.payload, now) for part in (self._reaching, self._reachability)):
                groups.received(event.source, event.payload, now)
        elif isinstance(event, LeavesChanged):
            groups.leaves_changed(event.added, event.removed, now)
            self._liveness.refresh(now)
            self._liveness.leaves_added(event.added, now)
        elif isinstance(event, HandoverWanted):
            groups.handover_wanted(event.to, now)
        elif isinstance(event, Undeliverable):
            is_other = self._reachability.undeliverable(event.payload)
            if not is_other and not self._reaching.undeliverable(NodeId(event.key), event.payload):
                groups.undeliverable(event.key, event.payload, now)
        elif isinstance(event, Activated):
            groups.activated(now)
            self._liveness.refresh(now)
            self._settle()
        elif isinstance(event, PeerLeft):
            self._liveness.left(event.peer, now)
        elif isinstance(event, LeavesDoubted):
            self._liveness.detector.look_at(event.leaves, event.witness, now)
        elif isinstance(event, PeerAnswered):
            if not self._liveness.is_buried(event.peer):  # else the answer may predate the death, and the ring waits
                self._liveness.heard_from(event.peer, now)
        elif isinstance(event, PeerSilent):
            self._liveness.bury(event.info, now, is_silent=True)
        elif isinstance(event, PeerViolated):
            self.counters.messages_invalid += 1
            self._violate(event.peer, event.reason)

    def _handle_contact(self, event: ContactEvent, now: float) -> None:
        if isinstance(event, ContactFailed):
            peer = event.info.id
            is_dead = event.is_refused and self._liveness.refused(event.info, now)
            self._reaching.contact_failed(event, is_dead=is_dead, now=now)
            if event.is_overflow:
                self._ring.give_back(peer, event.undelivered, now)
            else:
                self._ring.contact_failed(peer, event.undelivered, now)
        elif isinstance(event, LinkReleased) and not self.needs_link(event.peer):
            self._events.append(event)

    def _handle_group(self, event: Event, now: float) -> None:
        if isinstance(event, ViewChanged):
            self._views.pop(event.group, None)
            self._views[event.group] = event
        elif isinstance(event, TableChanged):
            self._tables.append(event)
        elif isinstance(event, Departed):
            self._ring.leave(now)
            self._events.append(event)
        elif isinstance(event, ProtocolViolated):
            self._violate(event.peer, event.reason)
        else:
            self._events.append(event)
