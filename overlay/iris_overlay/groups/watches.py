"""The node as a watcher: the membership views of the groups to which it sends.

A watch is requested through the ring and answered at once. From then on the root updates the view, and the watcher renews the
watch directly at the root. Views and changes are acknowledged, because joining members wait for the acknowledgements.

A watched table (table_view.py) is asked for, renewed and given up in the same way. Its views come in parts, and the owner gets
the changes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import TooManyGroupsError
from iris_overlay.events import GroupMember, ViewChanged
from iris_overlay.groups.messages import BATCH_MAX, VIEW_MAX, Doubt, Told, Unwatch, Watch, WatchTable, user_part
from iris_overlay.groups.table_view import TableView
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import TableChanged
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.messages import Change, MemberRecord, TablePart, View
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The time for which a member found dead by this node is left out of a view if the root disagrees: by its end the ring has
#: decided. It is extended while no root answers. Too small: dead members come back for a moment. Too large: a member that was
#: only cut off from here is missing, although all others reach it.
MASK_S: Final = 3.0

#: The delay before this node asks again for a view that is older than the view of another root: two rings merge, and the older
#: root may win, which believes that it has told everything. Too small: the rings are still merging. Too large: the view remains
#: that of half a network.
TWO_ROOTS_S: Final = 5.0

#: The time for which a view with far fewer members than another root reported is not accepted, and then requested again. A node
#: that was cut off alone returns as the root of an empty directory, and gets the right one within a round trip or two. Too
#: small: requests fail although members exist. Too large: after a partition the members of the other side are shown longer.
BELIEVE_S: Final = 1.0


#: The largest number of members left out at once in one group; beyond it the first one is shown again, if a root reports it.
#: Too small: when many die together, some come back for a moment. Too large: memory, because departures count too.
MASKED_MAX: Final = 2 * VIEW_MAX

#: The time between questions to a root if neither the root nor this node has an address: no broken link shows the root's death.
#: Too small: messages. Too large: views are out of date for that time.
HIDDEN_ASKED_S: Final = 5.0


class _GroupWatch:
    __slots__ = (
        "answered_at",
        "ask_again_at",
        "attempts",
        "believe_at",
        "gone",
        "is_watched",
        "masked",
        "members",
        "permit",
        "root",
        "size",
        "table",
        "version",
    )

    def __init__(self, permit: bytes, table: TableView | None) -> None:
        self.permit = permit
        # None for a group that is no table; else with the same members.
        self.table = table
        # 0 before the first view
        self.version = 0
        self.size = 0
        self.members: dict[NodeId, MemberRecord] = {}
        self.root: NodeInfo | None = None
        self.is_watched = True
        self.answered_at = 0.0
        self.attempts = 0
        # The time to ask again despite an answer, because it contained less than another root's.
        self.ask_again_at: float | None = None
        # The time from which a much smaller view is accepted; None if none came.
        self.believe_at: float | None = None
        # Members found dead by this node: their stamps, and the end of their omission, regardless of the root's reports.
        self.masked: dict[NodeId, tuple[int, float]] = {}
        # The stamps of recently departed members, and their expiry: reports of their deaths may come later.
        self.gone: dict[NodeId, tuple[int, float]] = {}


class Watches:
    """Keep the membership views of watched groups."""

    __slots__ = (
        "_changed",
        "_config",
        "_is_active",
        "_local",
        "_masks",
        "_outbox",
        "_renew_at",
        "_resend",
        "_rng",
        "_signer",
        "groups",
        "stamp",
    )

    def __init__(self, local: NodeInfo, config: GroupConfig, rng: Rng, outbox: Outbox, signer: Signer) -> None:
        self.groups: dict[GroupId, _GroupWatch] = {}
        # The stamp of the local node's memberships.
        self.stamp = 0
        self._local = local
        self._config = config
        self._rng = rng
        self._outbox = outbox
        self._signer = signer
        self._is_active = False
        # Groups with a view unknown to the owner. Many changes between two turns make one event.
        self._changed: dict[GroupId, None] = {}
        self._resend: DeadlineTable[GroupId] = DeadlineTable()
        self._masks: DeadlineTable[GroupId] = DeadlineTable()
        self._renew_at: float | None = None

    def activate(self, now: float) -> None:
        """Send the questions for views that waited until the ring was active."""
        self._is_active = True
        self.ask_all(now)

    def watch(self, group: GroupId, now: float, *, is_table: bool = False) -> None:
        """Keep the membership view of a group, or a table, from now on, and report it first and after every change.

        Raises:
            TooManyGroupsError: Too many groups are watched.
        """
        if group in self.groups:
            return
        if len(self.groups) >= self._config.groups_watched_max:
            raise TooManyGroupsError(self._config.groups_watched_max, "watches")
        permit = self._signer.permit(group, user_part(self._local.id))
        watch = self.groups[group] = _GroupWatch(permit, TableView() if is_table else None)
        if self._renew_at is None:
            self._renew_at = self._next_renewal(now)
        self._ask(group, watch, now)

    def use(self, group: GroupId, now: float) -> None:
        """Request a membership view again if it is old and the root reports no changes; harmless for other groups."""
        watch = self.groups.get(group)
        if watch is None or watch.is_watched or watch.answered_at + self._config.watch_refresh_s > now:
            return
        watch.answered_at = now  # ask once, regardless of the outcome
        self._ask(group, watch, now)

    def unwatch(self, group: GroupId) -> None:
        """Stop reporting the membership view of a group."""
        watch = self.groups.pop(group, None)
        if watch is None:
            return
        self._changed.pop(group, None)
        self._resend.cancel(group)
        self._masks.cancel(group)
        if watch.root is not None and watch.is_watched:
            self._outbox.send(watch.root, Unwatch(self._local.id, [group]))
        elif self._is_active and watch.root is None:
            # An earlier question or its answer may still be in transit.
            self._outbox.route(group, Unwatch(self._local.id, [group]))
        if not self.groups:
            self._renew_at = None

    def view(self, message: View, now: float) -> None:
        """Take a whole membership view from a root. Ask again instead if it is outdated or suspiciously small."""
        watch = self.groups.get(message.group)
        if watch is None:
            if message.is_watched:
                self._outbox.send(message.root, Unwatch(self._local.id, [message.group]))
            return
        if watch.table is not None or not self._is_acceptable(watch, message, now):
            return
        members = {record.info.id: record for record in message.members[: self._config.view_members_max]}
        is_same = members == watch.members and message.size == watch.size and message.is_watched == watch.is_watched
        if not is_same or watch.version == 0:
            self._changed[message.group] = None
        if message.size <= self._config.view_members_max:
            self._note_gone(watch, [node for node in watch.members if node not in members], now)
        self._take_view(watch, message, members, now)

    def part(self, source: NodeInfo, message: TablePart, now: float) -> bool:
        """Take a part of a table, or of its changes. Return False, and take nothing, if the parts exceed a bound."""
        watch = self.groups.get(message.group)
        if watch is None:
            if message.is_watched:
                self._outbox.send(source, Unwatch(self._local.id, [message.group]))
            return True
        table = watch.table
        if table is None:
            return True
        is_root = watch.root is not None and watch.root.id == message.root.id
        parts = (table.parts if is_root else table.other_parts).add(message)
        if parts is None:
            return True
        if message.base:
            return self._change_table(watch, table, parts, now)
        if not self._is_acceptable(watch, message, now):
            return True
        if message.checksum and not table.confirm(message):
            self._outbox.send(message.root, Told(message.group, 0))
            return True
        # The answer to a later question counts as it is, for the stamps may be those of a liar.
        is_final = watch.ask_again_at is not None and now >= watch.ask_again_at
        if not message.checksum and not table.replace(parts, keeps_later=not is_final):
            return False
        if not message.checksum and table.has_later and watch.ask_again_at is None:
            watch.ask_again_at = now + TWO_ROOTS_S
        self._note_gone(watch, [node for node in watch.members if node not in table.members], now)
        self._changed[message.group] = None
        self._take_view(watch, message, table.members, now)
        return True

    def _change_table(self, watch: _GroupWatch, table: TableView, parts: Sequence[TablePart], now: float) -> bool:
        message = parts[0]
        if watch.root is None or watch.root.id != message.root.id:
            return True
        is_possible = True
        is_lacking = message.base != watch.version < message.version
        if message.base == watch.version:
            self._note_gone(watch, [node for part in parts for node in part.removed], now)
            is_possible = table.change(parts)
            if is_possible:
                self._changed[message.group] = None
                watch.version, watch.size, watch.members = message.version, message.size, table.members
                watch.is_watched = message.is_watched
            else:
                watch.version = 0  # the root and this node disagree: the acknowledgement asks for everything
        self._answered(message.group, watch, message.root, now, is_lacking=is_lacking)
        return is_possible

    def _is_acceptable(self, watch: _GroupWatch, message: View | TablePart, now: float) -> bool:
        """Return whether to take a whole view; ask again instead if it is outdated or suspiciously small."""
        is_root = watch.root is None or watch.root.id == message.root.id
        if message.version < watch.version + (not is_root) and watch.root is not None:
            # One of two roots has lost its role without noticing, or a later view took another path and overtook this one, so
            # that the root does not know the state here. Ask through the ring.
            self._resend.set(message.group, now + self._config.repair_jitter_s * self._rng.random())
            return False
        if self._is_doubtful(watch, message) and (watch.believe_at is None or now < watch.believe_at):
            if watch.believe_at is None:
                watch.believe_at = now + BELIEVE_S
            self._resend.set(message.group, watch.believe_at)
            return False
        return True

    def _take_view(
        self, watch: _GroupWatch, message: View | TablePart, members: dict[NodeId, MemberRecord], now: float
    ) -> None:
        if message.version < watch.version and watch.ask_again_at is None:
            watch.ask_again_at = now + TWO_ROOTS_S
        watch.version, watch.size, watch.members = message.version, message.size, members
        watch.is_watched = message.is_watched
        for node in watch.masked:
            if self._is_masked(watch, node):
                # The root told before may have died with it.
                self._outbox.send(message.root, Doubt(message.group, node))
        self._answered(message.group, watch, message.root, now)

    def change(self, source: NodeInfo, message: Change, now: float) -> bool:
        """Apply changes to a view. Return False, and apply none, if the view would exceed its size limit."""
        watch = self.groups.get(message.group)
        if watch is None:
            self._outbox.send(source, Unwatch(self._local.id, [message.group]))
            return True
        if watch.table is not None or watch.root is None or watch.root.id != source.id:
            return True
        changed = {*watch.members, *(record.info.id for record in message.members)}.difference(message.removed)
        is_possible = len(changed) <= self._config.view_members_max
        is_applied = message.base == watch.version and is_possible
        if is_applied:
            if message.members or message.removed or message.size != watch.size:
                self._changed[message.group] = None
            self._note_gone(watch, message.removed, now)
            for node in message.removed:
                watch.members.pop(node, None)
            for record in message.members:
                watch.members[record.info.id] = record
            watch.version, watch.size = message.version, message.size
        # Version 0 asks for everything. A late change is known already.
        self._answered(message.group, watch, source, now, is_lacking=not is_applied and watch.version < message.version)
        return is_possible

    def forgotten(self, source: NodeId, group: GroupId, now: float) -> None:
        """Ask for a view again, because its root does not know the local node as a watcher."""
        watch = self.groups.get(group)
        if watch is not None and watch.root is not None and watch.root.id == source:
            watch.root = None
            self._ask(group, watch, now)

    def moved(self, group: GroupId, source: NodeId, now: float) -> None:
        """Ask the present root for a view after a former root's reply that it is not the root."""
        watch = self.groups.get(group)
        if watch is not None and watch.root is not None and watch.root.id == source:
            watch.root = None
            self._ask(group, watch, now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Leave a dead node out of views, report it to the roots as unreachable, and replace it as a root."""
        for group, watch in self.groups.items():
            record = watch.members.get(peer)
            if record is None and peer in watch.gone:
                # A root after a standstill may report it again.
                self._mask(watch, peer, watch.gone.pop(peer)[0], now)
                self._masks.set(group, min(until for _, until in watch.masked.values()))
            elif record is not None and (peer not in watch.masked or record.stamp > watch.masked[peer][0]):
                self._mask(watch, peer, record.stamp, now)
                self._masks.set(group, min(until for _, until in watch.masked.values()))
                if watch.root is not None and watch.root.id == peer and all(node in watch.masked for node in watch.members):
                    # No known member is left, but the dead root may have known more: ask the next root first, because a missing
                    # answer does not mean an empty group.
                    self._masks.set(group, now + BELIEVE_S)
                else:
                    self._note_changed(group, watch, [peer])
                if watch.root is None:
                    self._outbox.route(group, Doubt(group, peer))
                elif watch.root.id != peer:
                    self._outbox.send(watch.root, Doubt(group, peer))
        self.lose_root(peer, now)

    def lose_root(self, peer: NodeId, now: float) -> None:
        """Ask for the present root of each group with a dead or unreachable root."""
        for group, watch in self.groups.items():
            if watch.root is not None and watch.root.id == peer:
                watch.root = None
                self._resend.set(group, now + self._config.repair_jitter_s * self._rng.random())

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Ask for views again after a root's link broke: messages may be lost, and the root may take this node for dead."""
        for group, watch in self.groups.items():
            if watch.root is not None and watch.root.id == peer:
                self._resend.set(group, now + self._config.repair_jitter_s * self._rng.random())

    def ask_all(self, now: float) -> None:
        """Ask for the views without a known root, and renew the watches at known roots."""
        batches: dict[NodeId, tuple[NodeInfo, list[tuple[GroupId, int, bytes]]]] = {}
        for group, watch in self.groups.items():
            if watch.root is None or not watch.is_watched:
                self._ask(group, watch, now)
            elif watch.table is not None:
                self._outbox.send(watch.root, WatchTable(self._local, self.stamp, group, watch.version, watch.permit))
                self._expect(group, watch, now)
            else:
                batches.setdefault(watch.root.id, (watch.root, []))[1].append((group, watch.version, watch.permit))
                self._expect(group, watch, now)
        for root, items in batches.values():
            for start in range(0, len(items), BATCH_MAX):
                self._outbox.send(root, Watch(self._local, self.stamp, items[start : start + BATCH_MAX]))

    def handle_timeout(self, now: float) -> None:
        """Ask again for unanswered views, renew watches, and show left-out members again after their time."""
        for group in self._resend.expired(now):
            watch = self.groups.get(group)
            if watch is not None:
                watch.root = None
                self._ask(group, watch, now)
        for group in self._masks.expired(now):
            watch = self.groups.get(group)
            if watch is not None and watch.masked:
                self._unmask(group, watch, now)
        if self._renew_at is not None and now >= self._renew_at:
            self._renew_at = self._next_renewal(now)
            self.ask_all(now)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        if self._renew_at is None:
            return None
        deadlines = (self._resend.deadline(), self._masks.deadline(), self._renew_at)
        return min([deadline for deadline in deadlines if deadline is not None])

    def views_changed(self) -> list[ViewChanged]:
        """Remove and return the views changed since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        tables: dict[GroupId, None] = {}
        events = []
        for group in changed:
            watch = self.groups[group]
            if watch.table is not None:
                tables[group] = None
            elif watch.version:
                events.append(self._event(group, watch))
        self._changed = tables
        return events

    def tables_changed(self) -> list[TableChanged]:
        """Remove and return the changes of tables since the last call."""
        events = []
        for group in [group for group in self._changed if self.groups[group].table is not None]:
            del self._changed[group]
            watch = self.groups[group]
            if watch.table is not None:
                masked = [node for node in watch.masked if self._is_masked(watch, node)]
                event = watch.table.event(group, masked, is_watched=watch.is_watched)
                if event is not None:
                    events.append(event)
        return events

    def lacks(self, group: GroupId, node: NodeId) -> bool:
        """Return whether a node is missing in the view of a group of which all members are known."""
        watch = self.groups.get(group)
        if watch is None or watch.version == 0 or node in watch.members:
            return False
        return watch.table is not None or watch.size <= self._config.view_members_max

    def is_table(self, group: GroupId) -> bool | None:
        """Return whether a watched group is a table; None if it is not watched."""
        watch = self.groups.get(group)
        return None if watch is None else watch.table is not None

    def root_of(self, group: GroupId) -> NodeInfo | None:
        """Return the root of a watched group; None if unknown."""
        watch = self.groups.get(group)
        return None if watch is None else watch.root

    def roots(self) -> list[NodeInfo]:
        """Return the known roots of the watched groups."""
        return [watch.root for watch in self.groups.values() if watch.root is not None]

    def needs(self, peer: NodeId) -> bool:
        """Return whether a node is the root of a watched group."""
        return any(watch.root is not None and watch.root.id == peer and watch.is_watched for watch in self.groups.values())

    def _event(self, group: GroupId, watch: _GroupWatch) -> ViewChanged:
        masked = {node for node in watch.masked if self._is_masked(watch, node)}
        members = {
            node: GroupMember(record.info, record.attributes) for node, record in watch.members.items() if node not in masked
        }
        size = len(members) if watch.size <= self._config.view_members_max else watch.size - len(masked)
        return ViewChanged(group, members, size, watch.is_watched)

    def _unmask(self, group: GroupId, watch: _GroupWatch, now: float) -> None:
        """Show left-out members again after their time, unless no present root has been told of their deaths."""
        if watch.root is None:  # the view here may be older than their deaths
            watch.masked = {node: (stamp, max(until, now + BELIEVE_S)) for node, (stamp, until) in watch.masked.items()}
        self._note_changed(group, watch, watch.masked)
        watch.masked = {node: mask for node, mask in watch.masked.items() if mask[1] > now}
        if watch.masked:
            self._masks.set(group, min(until for _, until in watch.masked.values()))

    def _note_changed(self, group: GroupId, watch: _GroupWatch, nodes: Iterable[NodeId]) -> None:
        """Report a group again, because members are left out, or are so no longer."""
        self._changed[group] = None
        if watch.table is not None:
            for node in nodes:
                watch.table.note(node)

    @staticmethod
    def _mask(watch: _GroupWatch, peer: NodeId, stamp: int, now: float) -> None:
        """Leave a member found dead by the local node out of the view for MASK_S."""
        if peer not in watch.masked and len(watch.masked) >= MASKED_MAX:
            del watch.masked[next(iter(watch.masked))]
        watch.masked[peer] = (stamp, now + MASK_S)

    @staticmethod
    def _note_gone(watch: _GroupWatch, nodes: Iterable[NodeId], now: float) -> None:
        """Remember the stamps of departing members for MASK_S, at most as many as a view has."""
        watch.gone = {node: gone for node, gone in watch.gone.items() if gone[1] > now}
        for node in nodes:
            record = watch.members.get(node)
            if record is not None and len(watch.gone) < VIEW_MAX:
                watch.gone[node] = (record.stamp, now + MASK_S)

    @staticmethod
    def _is_doubtful(watch: _GroupWatch, message: View | TablePart) -> bool:
        """Return whether a view is much smaller than the present one, perhaps because its root was alone until now."""
        is_root = watch.root is not None and watch.root.id == message.root.id
        return not is_root and 2 * message.size < watch.size

    @staticmethod
    def _is_masked(watch: _GroupWatch, node: NodeId) -> bool:
        """Return whether a member is still the incarnation that died: a new registration is a sign of life."""
        record = watch.members.get(node)
        return record is not None and record.stamp <= watch.masked[node][0]

    def _answered(self, group: GroupId, watch: _GroupWatch, root: NodeInfo, now: float, *, is_lacking: bool = False) -> None:
        watch.root = root
        watch.believe_at = None
        watch.attempts = 0
        watch.answered_at = now
        if watch.ask_again_at is not None and now >= watch.ask_again_at:
            watch.ask_again_at = None  # this is the answer, or that of a later question
        if watch.ask_again_at is not None:
            self._resend.set(group, watch.ask_again_at)
        elif not (root.addresses or self._local.addresses):
            self._resend.set(group, now + HIDDEN_ASKED_S)
        else:
            self._resend.cancel(group)
        if watch.is_watched:
            self._outbox.send(root, Told(group, 0 if is_lacking else watch.version))

    def _ask(self, group: GroupId, watch: _GroupWatch, now: float) -> None:
        if not self._is_active:
            return
        # Version 0: the present root sends everything. A renewal with a higher version makes a root begin an epoch above it.
        if watch.table is None:
            self._outbox.route(group, Watch(self._local, self.stamp, [(group, 0, watch.permit)]))
        elif watch.root is None or watch.is_watched:
            self._outbox.route(group, WatchTable(self._local, self.stamp, group, 0, watch.permit, watch.version > 0))
        else:  # it sends the changes alone
            self._outbox.send(watch.root, WatchTable(self._local, self.stamp, group, watch.version, watch.permit))
        self._expect(group, watch, now)

    def _expect(self, group: GroupId, watch: _GroupWatch, now: float) -> None:
        self._resend.set(group, now + self._config.resend_after_s(watch.attempts))
        watch.attempts = min(watch.attempts + 1, 16)

    def _next_renewal(self, now: float) -> float:
        return now + self._config.renew_s * (0.9 + 0.2 * self._rng.random())
