"""The groups of one node: memberships, watches, directories and trees, over a ring.

The ring makes one node the root of each group. The root keeps the directory of the group and tells its followers
(root_store.py). Every node registers its memberships (`memberships`), knows the members of watched groups (`watches`), sends
multicasts (`casts`) and reports the death of neighbours (`death_reports`). These components do not know each other: they put
messages into one outbox. `GroupLayer` carries the messages, and does not encode local ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_overlay.environment import WallClock
from iris_overlay.errors import InfoError, MessageError, StateError, TooManyGroupsError, UnknownMessageError
from iris_overlay.events import Departed, ProtocolViolated
from iris_overlay.groups.casts import Casts
from iris_overlay.groups.death_reports import REPORTERS, DeathReports
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX, ENTRIES_MAX, count, effect, is_packed
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.io import HandoverDone, Outbox
from iris_overlay.groups.memberships import OwnMemberships
from iris_overlay.groups.messages import (
    CAST_BYTES_MAX,
    Accuse,
    Accused,
    Adopted,
    Applied,
    CastDown,
    CastTaken,
    CastUp,
    Change,
    Check,
    Children,
    Claim,
    Copied,
    Copy,
    Doubt,
    Drop,
    Entrust,
    FindRoot,
    Forgotten,
    Full,
    GroupMessage,
    Later,
    Look,
    Moved,
    Promoted,
    Reclaim,
    Register,
    RootFound,
    Seen,
    Split,
    TableCopy,
    TablePart,
    Told,
    Unregister,
    Unwatch,
    View,
    Watch,
    WatchTable,
    decode_group_message,
)
from iris_overlay.groups.root_queries import RootQueries
from iris_overlay.groups.root_store import Roots
from iris_overlay.groups.second_opinions import Looks
from iris_overlay.groups.table_root import TableRoot
from iris_overlay.groups.watches import Watches
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import GROUPS_PER_NODE_MAX, NodeInfo, check_membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import Counters, Event, ViewChanged
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import GroupOutput, GroupRing, Path


class GroupLayer:
    """The groups of one node: join and watch groups, multicast to them, and serve as a root, over a ring.

    After any input or command the owner applies `outputs_to_send` (in order, each to the ring), `events_received` and
    `deadline`, and repeats until no output is left. A batch of events contains first `ProtocolViolated`, then membership views,
    then multicasts, then completions. So the owner handles a completion with current views.

    The owner reports every change to the ring first, because the layer asks the ring. Input from peers never raises; errors of
    the owner raise before any state changes.
    """

    __slots__ = (
        "_casts",
        "_clock",
        "_config",
        "_counters",
        "_death_reports",
        "_departs_at",
        "_finding",
        "_is_active",
        "_is_leaving",
        "_local",
        "_looks",
        "_memberships",
        "_now",
        "_outbox",
        "_outputs",
        "_ring",
        "_roots",
        "_views",
        "_violations",
        "_watches",
    )

    def __init__(
        self, local: NodeInfo, config: GroupConfig, rng: Rng, ring: GroupRing, counters: Counters, signer: Signer
    ) -> None:
        """Create the layer of a node.

        Args:
            local: The node itself.
            config: The constants.
            rng: A source of randomness for jitter and samples; no secret depends on it.
            ring: The ring that the node joins: asked, never changed.
            counters: The counters of drops.
            signer: Signs for the node, and verifies signatures of others.
        """
        self._local = local
        self._config = config
        self._ring = ring
        self._counters = counters
        self._outbox = Outbox()
        self._outputs: list[GroupOutput] = []
        self._violations: list[ProtocolViolated] = []
        self._views: dict[GroupId, ViewChanged] = {}
        self._is_active = False
        self._is_leaving = False
        self._departs_at: float | None = None
        self._now = 0.0
        self._clock = WallClock()
        self._memberships = OwnMemberships(local, config, rng, self._outbox, counters, signer, self._clock)
        self._watches = Watches(local, config, rng, self._outbox, signer)
        self._looks = Looks(local, rng, ring, self._outbox, counters, signer)
        self._casts = Casts(local, config, self._outbox, counters, signer, self._clock)
        self._death_reports = DeathReports(self._outbox)
        self._roots = Roots(local, config, rng, ring, self._outbox, counters, signer)
        self._finding = RootQueries(local, config, ring, self._roots, self._outbox, counters)

    # Inputs

    def start(self, now: float, unix_s: float) -> None:
        """Set the time of day, in seconds since 1970, at a monotonic time, before any join."""
        self._clock.set(now, unix_s)

    def activated(self, now: float) -> None:
        """Send the messages that waited until the ring was active."""
        self._is_active = True
        self._roots.activate(now)
        self._watches.activate(now)
        self._memberships.activate(now)
        self._casts.activate(now)
        self._entrust_groups(now)
        self._finish_turn(now)

    def delivered(
        self, key: bytes, payload: bytes, source: NodeInfo, path: Path, now: float, held: tuple[int, ...] = ()
    ) -> None:
        """Handle a message routed to a key with the local node as its root."""
        message = self._decode(source, payload)
        if message is not None:
            self._finding.held = held if isinstance(message, FindRoot) else ()
            self._handle(message, source, path or (self._local.id,), now)
            self._finish_turn(now)

    def received(self, source: NodeInfo, payload: bytes, now: float) -> None:
        """Handle a message sent to the local node directly or back along a path."""
        message = self._decode(source, payload)
        if message is not None:
            self._handle(message, source, None, now)
            self._finish_turn(now)

    def undeliverable(self, key: bytes, payload: bytes, now: float) -> None:
        """Check the life of a node to which a message was undeliverable, and ask the ring for other roots.

        Important messages are repeated until acknowledged. But the receiver may be dead without a report, if its late messages
        made it look alive.
        """
        self._counters.messages_undeliverable += 1
        peer = NodeId(key)
        self._roots.doubt_everywhere(peer, now)
        self._watches.lose_root(peer, now)
        self._memberships.lose_root(peer, now)
        self._casts.peer_lost(peer, now)
        self._finish_turn(now)

    def leaves_changed(self, added: list[NodeInfo], removed: list[NodeId], now: float) -> None:
        """Move directories, copies and death reporters after a change of the leaf set."""
        for info in added:
            self._death_reports.returned(info)
        self._roots.ring_changed(now)
        self._entrust_groups(now)
        self._finish_turn(now)

    def handover_wanted(self, to: NodeInfo, now: float) -> None:
        """Send directories to their new root; `HandoverDone` follows after them.

        A joining node acknowledges them only when it is active (handover.py).
        """
        self._roots.ring_changed(now)
        self._finish_turn(now)
        self._outputs.append(HandoverDone(to))

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Act on the death or departure of a node, as a member, root or follower; a broken link is neither."""
        self._death_reports.peer_dead(peer, now)
        self._roots.peer_dead(peer, now)
        self._watches.peer_dead(peer, now)
        self._looks.peer_dead(peer, now)
        self._memberships.lose_root(peer, now)
        self._casts.peer_lost(peer, now)
        self._finish_turn(now)

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Repeat messages that a broken link may have lost; the break proves nothing about the peer's life."""
        self._roots.link_lost(peer, now)
        self._watches.link_lost(peer, now)
        self._memberships.link_lost(peer, now)
        self._finish_turn(now)

    def resume(self, now: float) -> None:
        """After a standstill of the process, register again: other nodes may have declared the local node dead."""
        if self._is_active:
            self._roots.resume(now)
            self._memberships.forget_roots()
            self._begin_incarnation(self._memberships.stamp, now)
            self._finish_turn(now)

    def handle_timeout(self, now: float) -> None:
        """Act on the deadlines that have passed; harmless if early."""
        self._roots.handle_timeout(now)
        self._watches.handle_timeout(now)
        self._looks.handle_timeout(now)
        self._memberships.handle_timeout(now)
        self._casts.handle_timeout(now)
        self._death_reports.handle_timeout(now)
        self._finish_turn(now)

    # Commands

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Join a group, or change the attributes of the membership. `GroupJoined` follows.

        Raises:
            InfoError: The group id has the wrong size, or the attributes are too large.
            TooManyGroupsError: The node is already in GROUPS_PER_NODE_MAX groups.
            StateError: The node is leaving, or has claimed entries in the group.
        """
        groups = self._memberships.groups
        self._check_join(group, attributes, is_table=False)
        self._memberships.join(group, attributes, now)
        self._casts.joined(group, groups[group].since)
        self._death_reports.change(self._memberships.stamp, [group], [])
        self._entrust_groups(now)
        self._finish_turn(now)

    def claim(self, group: GroupId, attributes: bytes, added: bytes, removed: bytes, now: float) -> int:
        """Join a table, or change the attributes or entries there. `Claimed` follows.

        Args:
            group: The table.
            attributes: Data of the layer above about the member.
            added: Packed entries (entries.py).
            removed: Packed entries; harmless if the node does not have them.
            now: Monotonic seconds.

        Returns:
            The number of the event, which claims that are sent together share.

        Raises:
            InfoError: The group id has the wrong size, the attributes are too large, the entries are not packed, or the node
                would have more than ENTRIES_MAX.
            TooManyGroupsError: The node is already in GROUPS_PER_NODE_MAX groups.
            StateError: The node is leaving, or is a member of the group without entries.
        """
        self._check_join(group, attributes, is_table=True)
        if not (is_packed(added) and is_packed(removed)):
            raise InfoError("the entries are not packed: use entries.pack")
        if self._memberships.entries_bytes_max(group) + len(added) > ENTRIES_BYTES_MAX and _has_too_many(
            self._memberships.entries_of(group), added, removed
        ):
            raise InfoError(f"a node has at most {ENTRIES_MAX} entries in one table: describe several of them by one")
        is_noted = self.is_gathering(group)
        is_new = group not in self._memberships.groups
        number = self._memberships.claim(group, attributes, added, removed, now)
        if is_new:
            self._death_reports.change(self._memberships.stamp, [group], [])
            self._entrust_groups(now)
        if not is_noted:
            self._finish_turn(now)
        return number

    def is_gathering(self, group: GroupId) -> bool:
        """Return whether the next claim of a table is only noted, and sent with earlier ones: there is no output before."""
        return self._memberships.is_gathering(group)

    def gather_claims(self, until: float) -> None:
        """Send the claims of the local node no earlier than at a time: more will follow, and are sent together."""
        self._memberships.gather_claims(until)

    def leave_group(self, group: GroupId, now: float) -> None:
        """Leave a group or a table. `GroupLeft` follows, even if the node was no member."""
        self._leave_group(group, now)
        self._finish_turn(now)

    def watch_group(self, group: GroupId, now: float, *, is_doubted: bool = False) -> None:
        """Request `ViewChanged`: once the membership view is known, and after every change. Harmless if already watched.

        Args:
            group: The group.
            now: Monotonic seconds.
            is_doubted: Whether a root that reports an empty group is checked with another keeper (holder of a copy) of the
                directory.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node already watches `groups_watched_max` groups.
            StateError: The node watches the group as a table.
        """
        check_membership(group)
        if self._watches.is_table(group):
            raise StateError("the node watches the group as a table")
        self._watches.watch(group, now)
        if is_doubted:
            self._looks.doubt(group)
        self._entrust_groups(now)
        self._finish_turn(now)

    def watch_table(self, group: GroupId, now: float) -> None:
        """Request `TableChanged`: once the table is known, and after every change. Harmless if already watched.

        Raises:
            InfoError: The group id has the wrong size.
            TooManyGroupsError: The node already watches `groups_watched_max` groups.
            StateError: The node watches the group as one without entries.
        """
        check_membership(group)
        if self._watches.is_table(group) is False:
            raise StateError("the node watches the group as one without entries")
        self._watches.watch(group, now, is_table=True)
        self._entrust_groups(now)
        self._finish_turn(now)

    def use_group(self, group: GroupId, now: float) -> None:
        """Announce the use of a watched group: an old membership view without updates is requested again."""
        self._watches.use(group, now)
        self._looks.use(group, now)
        self._finish_turn(now)

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching a group; harmless if not watched."""
        self._watches.unwatch(group)
        self._looks.forget(group)
        self._views.pop(group, None)
        self._entrust_groups(now)
        self._finish_turn(now)

    def cast(self, group: GroupId, payload: bytes, now: float) -> None:
        """Multicast a payload to all members down a tree, including the local node if joined. `Cast` follows at each member.

        Raises:
            InfoError: The group id has the wrong size, or the payload is larger than CAST_BYTES_MAX.
        """
        check_membership(group)
        if len(payload) > CAST_BYTES_MAX:
            raise InfoError(f"a multicast of {len(payload)} bytes exceeds {CAST_BYTES_MAX}: send it in pieces")
        root = self._watches.root_of(group) or self._memberships.root_of(group)
        self._casts.cast(group, payload, root, now)
        self._finish_turn(now)

    def casts_in_flight(self, group: GroupId) -> int:
        """Return the number of own multicasts to a group that no root has taken yet; `CastsTaken` follows when it falls."""
        return self._casts.in_flight(group)

    def find_root(self, key: bytes, number: int, now: float) -> None:
        """Ask the root of a key for its identity; `RootLocated` follows, unless the answer is lost.

        Raises:
            InfoError: The key has the wrong size.
        """
        check_membership(GroupId(key))
        self._finding.ask(key, number)
        self._finish_turn(now)

    def leave(self, now: float) -> None:
        """Leave all groups. `Departed` follows when all peers know, or the time limit passed. A second call does no harm.

        Until it leaves the ring, the node still serves as a root, so the copies of its directories stay up to date.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        self._departs_at = now + self._config.told_timeout_s
        for group in list(self._watches.groups):
            self._watches.unwatch(group)
            self._looks.forget(group)
        for group in list(self._memberships.groups):
            self._leave_group(group, now)
        self._finish_turn(now)

    # Outputs and queries

    def outputs_to_send(self) -> list[GroupOutput]:
        """Remove and return the outputs for the ring."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def events_received(self) -> list[Event]:
        """Remove and return the events for the owner."""
        events: list[Event] = [
            *self._violations,
            *self._views.values(),
            *self._watches.tables_changed(),
            *self._casts.events,
            *self._finding.events,
            *self._memberships.completions,
        ]
        self._violations.clear()
        self._views.clear()
        self._casts.events.clear()
        self._finding.events.clear()
        self._memberships.completions.clear()
        if self._departs_at is not None and (self._now >= self._departs_at or self._is_told()):
            self._departs_at = None
            events.append(Departed())
        return events

    def deadline(self) -> float | None:
        """Return the next time for `handle_timeout`, or None."""
        deadlines = (
            self._roots.deadline(),
            self._watches.deadline(),
            self._looks.deadline(),
            self._memberships.deadline(),
            self._casts.deadline(),
            self._death_reports.deadline(),
            self._departs_at,
        )
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def needs(self, peer: NodeId) -> bool:
        """Return whether to keep the link to a peer, as a root, a follower of a directory here, or a neighbour in a tree."""
        return self._watches.needs(peer) or self._memberships.needs(peer) or self._casts.needs(peer) or self._roots.needs(peer)

    def roots(self) -> list[NodeInfo]:
        """Return the known roots of the node's groups and watched groups."""
        return list({info.id: info for info in (*self._watches.roots(), *self._memberships.roots())}.values())

    def table_sizes(self) -> dict[str, int]:
        """Return the sizes of the tables that grow with the network, by name: for metrics and tests."""
        roots = self._roots
        tables = [root.table for root in roots.roots.values() if isinstance(root, TableRoot)]
        return {
            "directories": len(roots.roots),
            "root_tables": len(tables),
            "root_nodes": sum([len(table.members) for table in tables]),
            "root_entries": sum([count(member.entries) for table in tables for member in table.members.values()]),
            "root_promoted": sum([len(table.promotions) for table in tables]),
            "directory_members": sum(len(root.directory.members) for root in roots.roots.values()),
            "watchers": sum(len(root.followers.members[FollowerKind.WATCHER]) for root in roots.roots.values()),
            "copies": len(roots.copies),
            "copied_members": sum(len(held.directory.members) for held in roots.copies.held.values()),
            "entrusted": len(self._death_reports),
            "casts": len(self._casts),
        }

    def directory_of(self, group: GroupId) -> dict[NodeId, bytes] | None:
        """Return the members of a group and their attributes if its directory is here: for display and tests."""
        root = self._roots.roots.get(group)
        if root is None or root.successor is not None:
            return None
        return {node: member.record.attributes for node, member in root.directory.members.items()}

    def watchers_of(self, group: GroupId) -> list[NodeId]:
        """Return the watchers of a group if its directory is here: for display and tests."""
        root = self._roots.roots.get(group)
        return [] if root is None else list(root.followers.members[FollowerKind.WATCHER])

    def entries_of(self, group: GroupId) -> dict[NodeId, bytes] | None:
        """Return the members of a table and their packed entries if its directory is here: for display and tests."""
        root = self._roots.roots.get(group)
        if not isinstance(root, TableRoot) or root.successor is not None:
            return None
        return {node: member.entries for node, member in root.directory.members.items()}

    # Inside

    def _check_join(self, group: GroupId, attributes: bytes, *, is_table: bool) -> None:
        if self._is_leaving:
            raise StateError("the node is leaving")
        check_membership(group, attributes)
        groups = self._memberships.groups
        if group not in groups and len(groups) >= GROUPS_PER_NODE_MAX:
            raise TooManyGroupsError(GROUPS_PER_NODE_MAX, "joins")
        if group in groups and self._memberships.is_table(group) != is_table:
            raise StateError("the node is a member of the group already, " + ("without" if is_table else "with") + " entries")

    def _decode(self, source: NodeInfo, payload: bytes) -> GroupMessage | None:
        try:
            return decode_group_message(payload)
        except UnknownMessageError:
            self._counters.messages_unknown += 1
            return None
        except MessageError as exc:
            self._counters.messages_invalid += 1
            self._violations.append(ProtocolViolated(source.id, str(exc)))
            return None

    def _handle(self, message: GroupMessage, source: NodeInfo, path: Path | None, now: float) -> None:
        speaker = _SPEAKERS.get(type(message))
        if speaker is not None and speaker(message) != source.id:
            self._counters.messages_invalid += 1
            self._violations.append(ProtocolViolated(source.id, "a message in the name of another node"))
            return
        _HANDLERS[type(message)](self, message, source, path, now)

    def _begin_incarnation(self, stamp: int, now: float) -> None:
        """Register and watch again, in a new incarnation, if the statements up to a stamp no longer count."""
        if self._memberships.accused(stamp, now):
            self._watches.stamp = self._memberships.stamp
            self._entrust_groups(now, is_again=True)
            self._watches.ask_all(now)

    def _leave_group(self, group: GroupId, now: float) -> None:
        was_member = group in self._memberships.groups
        self._memberships.leave(group, now)
        self._casts.left(group)
        if was_member:
            self._death_reports.change(self._memberships.stamp, [], [group])
            self._entrust_groups(now)

    def _entrust_groups(self, now: float, *, is_again: bool = False) -> None:
        groups = self._memberships.groups
        is_needed = self._is_active and (groups or self._watches.groups)
        neighbours = self._ring.replicas(self._local.id, REPORTERS) if is_needed else ()
        if self._death_reports.place(neighbours, groups, self._memberships.stamp, is_again=is_again):
            self._memberships.register_all(now)
            self._watches.ask_all(now)

    def _is_told(self) -> bool:
        return not self._memberships.is_busy and self._roots.is_settled()

    def _finish_turn(self, now: float) -> None:
        """Handle the messages of this node to itself at once, and encode the messages to other nodes."""
        self._now = now
        while True:
            self._roots.flush(now)
            moved, self._roots.moved = self._roots.moved, []
            for group, root in moved:
                self._memberships.root_moved(group, root)
            self._take_views(now)
            outputs, loopback = self._outbox.take(self._local.id, self._ring)
            self._outputs += outputs
            if not loopback:
                return
            for message, path in loopback:
                self._handle(message, self._local, path, now)

    def _take_views(self, now: float) -> None:
        for told in self._watches.views_changed():
            self._views[told.group] = self._looks.judge(told, self._watches.root_of(told.group), now)
        for view in self._looks.views_changed():
            self._views[view.group] = view

    def _look_for_self(self, group: GroupId, now: float) -> None:
        """Register at once if the view of a group lacks the local node: it was declared dead, or registered at an old root."""
        if self._watches.lacks(group, self._local.id) and not self._memberships.is_claiming(group):
            self._memberships.missed(group, now)

    # Messages

    def _handle_accused(self, message: Accused, source: NodeInfo, path: Path | None, now: float) -> None:
        if message.node == self._local.id:
            self._begin_incarnation(message.stamp, now)
        elif path is not None:
            # The ring does not have the node yet: it will become a leaf of the nearest node, this one.
            self._death_reports.keep_accusation(message, now)

    def _handle_applied(self, message: Applied, source: NodeInfo, path: Path | None, now: float) -> None:
        self._memberships.applied(message, now)
        for group, *_ in message.items:
            if group not in self._memberships.groups:
                self._casts.forget(group)

    def _handle_later(self, message: Later, source: NodeInfo, path: Path | None, now: float) -> None:
        self._memberships.later(message, now)
        group = self._memberships.groups.get(message.group)
        if group is not None:
            self._casts.joined(message.group, group.since)
        self._casts.later(message, now)

    def _handle_check(self, message: Check, source: NodeInfo, path: Path | None, now: float) -> None:
        if message.accusation.node != self._local.id and path is not None:
            self._outbox.send(message.root, message.accusation)

    def _handle_view(self, message: View, source: NodeInfo, path: Path | None, now: float) -> None:
        self._watches.view(message, now)
        self._look_for_self(message.group, now)

    def _handle_change(self, message: Change, source: NodeInfo, path: Path | None, now: float) -> None:
        if not self._watches.change(source, message, now):
            self._counters.messages_unexpected += 1
        self._look_for_self(message.group, now)

    def _handle_part(self, message: TablePart, source: NodeInfo, path: Path | None, now: float) -> None:
        if not self._watches.part(source, message, now):
            self._counters.messages_unexpected += 1
        self._look_for_self(message.group, now)

    def _handle_moved(self, message: Moved, source: NodeInfo, path: Path | None, now: float) -> None:
        for group in message.groups:
            self._memberships.moved(group, source.id, now)
            self._watches.moved(group, source.id, now)
            self._casts.moved(group, source.id, now)


#: The claimed sender inside each message, which has to be the authenticated one.
_SPEAKERS: dict[type, Callable[[Any], NodeId]] = {
    Register: lambda message: message.info.id,
    Unregister: lambda message: message.info.id,
    Watch: lambda message: message.info.id,
    Look: lambda message: message.info.id,
    Unwatch: lambda message: message.node,
    CastUp: lambda message: message.info.id,
    Applied: lambda message: message.root.id,
    Check: lambda message: message.root.id,
    View: lambda message: message.root.id,
    Children: lambda message: message.root.id,
    RootFound: lambda message: message.root.id,
    Claim: lambda message: message.info.id,
    WatchTable: lambda message: message.info.id,
    TablePart: lambda message: message.root.id,
}


def _has_too_many(entries: bytes, added: bytes, removed: bytes) -> bool:
    """Return whether packed entries are more than a node may have in a table, after a change."""
    really_added, really_removed = effect(entries, added, removed)
    return len(entries) + len(really_added) - len(really_removed) > ENTRIES_BYTES_MAX


_HANDLERS: dict[type, Callable[..., None]] = {
    Register: lambda layer, message, source, path, now: layer._roots.register(message, now),
    Unregister: lambda layer, message, source, path, now: layer._roots.unregister(message, now),
    Applied: GroupLayer._handle_applied,
    Accused: GroupLayer._handle_accused,
    Entrust: lambda layer, message, source, path, now: layer._death_reports.entrust(source.id, message),
    Accuse: lambda layer, message, source, path, now: layer._roots.accuse(message, now),
    Doubt: lambda layer, message, source, path, now: layer._roots.doubt(message.group, message.node, now),
    Check: GroupLayer._handle_check,
    Watch: lambda layer, message, source, path, now: layer._roots.watch(message, path, now),
    Unwatch: lambda layer, message, source, path, now: layer._roots.unwatch(message),
    Look: lambda layer, message, source, path, now: layer._roots.look(message, path),
    Seen: lambda layer, message, source, path, now: layer._looks.seen(source.id, message, now),
    View: GroupLayer._handle_view,
    Change: GroupLayer._handle_change,
    Told: lambda layer, message, source, path, now: layer._roots.acknowledge(
        FollowerKind.WATCHER, message.group, source, message.version, now
    ),
    Copy: lambda layer, message, source, path, now: layer._roots.copy(source, message, now),
    Copied: lambda layer, message, source, path, now: layer._roots.acknowledge(
        FollowerKind.COPY, message.group, source, message.version, now
    ),
    Drop: lambda layer, message, source, path, now: layer._roots.copies.drop(message.group, source.id),
    Children: lambda layer, message, source, path, now: layer._casts.adopt(message),
    Adopted: lambda layer, message, source, path, now: layer._roots.acknowledge(
        FollowerKind.PARENT, message.group, source, message.version, now
    ),
    CastUp: lambda layer, message, source, path, now: layer._roots.cast(message, now),
    CastTaken: lambda layer, message, source, path, now: layer._casts.taken(message),
    CastDown: lambda layer, message, source, path, now: layer._casts.receive(source, message, now),
    Later: GroupLayer._handle_later,
    Forgotten: lambda layer, message, source, path, now: layer._watches.forgotten(source.id, message.group, now),
    Moved: GroupLayer._handle_moved,
    FindRoot: lambda layer, message, source, path, now: layer._finding.answer(message, path, now),
    RootFound: lambda layer, message, source, path, now: layer._finding.found(message),
    Claim: lambda layer, message, source, path, now: layer._roots.claim(message, now),
    Reclaim: lambda layer, message, source, path, now: layer._memberships.reclaim(source, message, now),
    WatchTable: lambda layer, message, source, path, now: layer._roots.watch_table(message, path, now),
    TablePart: GroupLayer._handle_part,
    TableCopy: lambda layer, message, source, path, now: layer._roots.copy(source, message, now),
    Promoted: lambda layer, message, source, path, now: layer._memberships.promoted(source, message),
    Full: lambda layer, message, source, path, now: layer._memberships.full(source, message),
    Split: lambda layer, message, source, path, now: layer._memberships.split(source, message),
}
