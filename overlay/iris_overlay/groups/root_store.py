"""The node as a root: the directories of its groups, and copies of its neighbours' directories.

A directory lives at the root of its group, and moves when the ring makes another node the root. A message for another root's
group is answered with `Moved`, and the sender repeats it through the ring; an accusation is passed on. When a neighbour becomes
the root, this node sends it the directory, and keeps the directory until the neighbour has acknowledged; the rest here is a
copy. When the local node becomes the root of a group with a copy here, the copy becomes the directory in a new epoch, and all
watchers are told. A directory that meets another one is merged into it. So after any split and any number of takeovers, all
entries end at one node.

**Empty is not unknown.** A new root without entries for a group may have new neighbours too. Before the root reports an empty
group, it sends the neighbours their copies, and waits for the acknowledgements: the neighbours send their own entries first.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from iris_overlay.groups.claim_rates import ClaimRates
from iris_overlay.groups.copies import COPIES, GROUPS_MAX, Copies, HeldCopy
from iris_overlay.groups.directory import (
    EPOCHS_COPIED_MAX,
    INCARNATIONS_BELIEVED,
    Directory,
    Outcome,
    accusation_of,
    is_believable,
)
from iris_overlay.groups.followers import ATTEMPTS_WAITED_MAX, Follower, FollowerKind, RootTimer
from iris_overlay.groups.handover import ANSWER_S, Passing, knows_better, merge, revive
from iris_overlay.groups.messages import (
    BATCH_MAX,
    PROBED_MEMBERS_MAX,
    SAMPLE_MAX,
    STAMP_SHIFT,
    Accuse,
    Accused,
    Applied,
    CastDown,
    CastTaken,
    CastUp,
    Check,
    Claim,
    Copied,
    Drop,
    Forgotten,
    Later,
    Look,
    MemberRecord,
    Moved,
    Reclaim,
    Register,
    Seen,
    Split,
    TableCopy,
    Unregister,
    Unwatch,
    Watch,
    WatchTable,
    member_part,
    user_part,
)
from iris_overlay.groups.root import GroupRoot
from iris_overlay.groups.sequences import SOURCES_MAX, Sequences
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.groups.table_root import TableRoot
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import Counters
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import GroupRing, Outbox, Path
    from iris_overlay.groups.messages import AnyCopy
    from iris_overlay.node_info import NodeInfo

#: The shortest time between checks of a member through the ring. Less than the ring's repair takes would not help.
CHECK_S: Final = 0.5

#: The time after which a doubted member is checked again. The receiver of the first question may have died with it, or not
#: known of its death yet.
RECHECK_S: Final = 4.0

#: The time for which a node that was declared dead is told of it at each sweep: the node may have stood still, and its accusers
#: may be gone.
ACCUSED_S: Final = 35.0

#: The delay after a change of the ring until copies with a former root as owner are passed on. Too small: the root is new, and
#: about to replace them. Too large: entries of merging rings are missing for that time.
ORPHANS_S: Final = 1.0

#: The delay after a takeover or merge until the members are checked through the ring, because a copy may miss departures. Too
#: small: merging rings are still separate, and nodes of the other one look dead. Too large: dead members stay in views for that
#: time.
REVIEW_S: Final = 4.0

#: The time after a change of the ring during which a root without a directory asks its neighbours before it answers. Too small:
#: entries of dead and departed nodes are still in transit, and live members are not found. Too large: in a network at rest an
#: empty group costs a second round trip.
UNSURE_S: Final = 5.0

#: The time after a node's death during which a copy may still list it as a watcher: a new root tells it, but does not wait for
#: it. Too small: joins and leaves last a second after a root was killed with others. Too large: a watcher declared dead by
#: mistake may miss a new member.
DIED_S: Final = 10.0

#: The largest number of deaths remembered for `DIED_S`. Too small: more deaths within that time cost a second of waiting; too
#: large: memory.
DIED_MAX: Final = 256

#: The time for which a root after a standstill asks its copies for newer entries before it answers. Too small: the copies are
#: still being dialled, and dead members are reported. Too large: if a copy died meanwhile, live members are not found for that
#: time.
WOKEN_S: Final = 0.5

_NOBODY: Final = NodeId(b"")
_NO_GROUP: Final = GroupId(b"")


class Roots:
    """A node as the root of groups: keep their directories, and copies of other roots' directories."""

    __slots__ = (
        "_applied",
        "_changed_at",
        "_claim_rates",
        "_config",
        "_counters",
        "_died",
        "_dirty",
        "_local",
        "_misdirected",
        "_orders",
        "_outbox",
        "_passing",
        "_refresh_at",
        "_ring",
        "_rng",
        "_signer",
        "_sweep_at",
        "_timers",
        "_woken_at",
        "copies",
        "moved",
        "roots",
    )

    def __init__(
        self,
        local: NodeInfo,
        config: GroupConfig,
        rng: Rng,
        ring: GroupRing,
        outbox: Outbox,
        counters: Counters,
        signer: Signer,
    ) -> None:
        self.roots: dict[GroupId, GroupRoot] = {}
        self.copies = Copies(config.expiry_s)
        # Directories handed over, with their new roots, for the owner to take.
        self.moved: list[tuple[GroupId, NodeInfo]] = []
        self._passing = Passing(local, self.copies, ring, outbox)
        self._changed_at = float("-inf")
        self._died: dict[NodeId, float] = {}
        self._woken_at = float("-inf")
        self._local = local
        self._config = config
        self._rng = rng
        self._ring = ring
        self._outbox = outbox
        self._counters = counters
        self._signer = signer
        # Groups with messages to send at the end of the turn.
        self._dirty: dict[GroupId, None] = {}
        # Acknowledgements of this turn.
        self._applied: dict[NodeId, tuple[NodeInfo, list[tuple[GroupId, int, int, bool]]]] = {}
        # Nodes that took this node for the root in this turn, with the groups.
        self._misdirected: dict[NodeId, tuple[NodeInfo, list[GroupId]]] = {}
        self._timers: DeadlineTable[tuple[RootTimer | FollowerKind, GroupId, NodeId]] = DeadlineTable()
        self._claim_rates = ClaimRates()
        self._orders: Sequences[CastUp] = Sequences(config.reorder_s, SOURCES_MAX)
        self._sweep_at: float | None = None
        self._refresh_at = 0.0

    # Messages. A node that took this node for the root is told so (`Moved`).

    def register(self, message: Register, now: float) -> None:
        """Add or renew members; acknowledge a registration once all followers know."""
        for item in message.items:
            record = MemberRecord(message.info, item.attributes, item.stamp, item.permit, item.since)
            if not self._may_register(item.group, record):
                self._counters.permits_invalid += 1
                continue
            root = self._root_for(item.group, message.info, now)
            if root is None:
                continue
            outcome = root.register(record, now + self._config.expiry_s)
            self._answer(root, record, outcome, now)
            if outcome is Outcome.CHANGED and root.latest is not None and item.since < root.latest.since:
                self._outbox.send(message.info, Later(item.group, root.latest))

    def claim(self, message: Claim, now: float) -> None:
        """Add, change or renew a member of a table; ask it for all of its entries if the claim does not apply here.

        A claim of a node that claims too much is dropped before any work for it. An honest node keeps to the rate itself.
        """
        if message.info.id != self._local.id and not self._claim_rates.take(message, now):
            self._counters.claims_refused += 1
            return
        record = MemberRecord(message.info, message.attributes, message.stamp, message.permit)
        if not self._may_register(message.group, record):
            self._counters.permits_invalid += 1
            return
        root = self._root_for(message.group, message.info, now, is_table=True)
        if isinstance(root, TableRoot):
            outcome = root.claim(message, record, now + self._config.expiry_s)
            if outcome is Outcome.INCOMPLETE:
                self._outbox.send(message.info, Reclaim(message.group, message.stamp))
            else:
                self._answer(root, record, outcome, now)

    def unregister(self, message: Unregister, now: float) -> None:
        """Remove members after they left; acknowledge an unregistration once all followers know."""
        for group, stamp in message.items:
            root = self._root_for(group, message.info, now, is_table=None)
            if root is not None:
                root.remove(message.info.id, stamp, now + self._config.expiry_s)
                self._wait(root, message.info, stamp, root.directory.version, now)

    def accuse(self, message: Accuse, now: float) -> None:
        """Remove a member reported as dead, and tell the member, which can refute; pass a report for another root on."""
        if not self._ring.is_root(message.group):
            self._outbox.route(message.group, message)
            return
        root = self._root_here(message.group, now, is_table=None, is_creating=False)
        if root is None:
            return
        stamp = message.stamp
        if stamp >> STAMP_SHIFT >= INCARNATIONS_BELIEVED:
            member = root.directory.members.get(message.node)
            if member is None:
                return
            # An improbable incarnation: the member would not believe it either, and could never come back.
            stamp = min(stamp, member.record.stamp)
        if root.accuse(message.node, stamp, now + self._config.expiry_s):
            watcher = root.followers.members[FollowerKind.WATCHER].get(message.node)
            if watcher is not None and 0 < watcher.stamp <= accusation_of(stamp):
                root.remove_watcher(message.node)
            self._outbox.route(message.node, Accused(message.node, accusation_of(stamp)))
        self._dirty[message.group] = None

    def doubt(self, group: GroupId, node: NodeId, now: float) -> None:
        """Ask the ring whether an unreachable member lives."""
        root = self.roots.get(group)
        if root is not None and node in root.directory.members and (RootTimer.CHECK, group, node) not in self._timers:
            self._timers.set((RootTimer.CHECK, group, node), now + CHECK_S)  # all users of the member may doubt it at once
            if (RootTimer.RECHECK, group, node) not in self._timers:
                self._timers.set((RootTimer.RECHECK, group, node), now + RECHECK_S)
            self._look_for(root, node)

    def doubt_everywhere(self, node: NodeId, now: float) -> None:
        """Check the life of a node unreachable from here, for each of its groups."""
        for group in self.roots:
            self.doubt(group, node, now)

    def watch(self, message: Watch, path: Path | None, now: float) -> None:
        """Add or renew watchers and answer with membership views; without room, answer once and report no changes."""
        for group, version, permit in message.items:
            if not self._may_use(group, message.info.id, permit):
                self._counters.permits_invalid += 1
                continue
            root = self._root_for(group, message.info, now)
            expires = now + self._config.expiry_s
            # A node without an address opens the link itself: without a link nothing would show the watcher that its root is
            # gone.
            way = path if self._local.addresses else None
            if root is not None and not root.watch(message.info, message.stamp, version, expires, way):
                if path is None:
                    self._outbox.send(message.info, root.view_unwatched())
                else:
                    self._outbox.answer(path, root.view_unwatched())

    def watch_table(self, message: WatchTable, path: Path | None, now: float) -> None:
        """Add or renew a watcher of a table, as `watch` for other groups."""
        if not self._may_use(message.group, message.info.id, message.permit):
            self._counters.permits_invalid += 1
            return
        root = self._root_for(message.group, message.info, now, is_table=True)
        way = path if self._local.addresses else None
        if not isinstance(root, TableRoot):
            return
        expires = now + self._config.expiry_s
        if not root.watch(message.info, message.stamp, message.version, expires, way, has_view=message.has_table):
            parts = root.parts_unwatched(message.version)
            if path is None or len(parts) > 1:
                self._outbox.send_all(message.info, parts)
            else:
                self._outbox.answer(path, parts[0])

    def look(self, message: Look, path: Path | None) -> None:
        """Answer a node that doubts the root of a group with the members known here."""
        if not self._signer.is_permitted(message.group, user_part(message.info.id), message.permit):
            self._counters.permits_invalid += 1
            return
        known = next((each.members for each in self._directories(message.group) if each.members), {})
        records = [member.record for member in islice(known.values(), SAMPLE_MAX)]
        answer = Seen(message.group, message.number, records)
        if path is None:
            self._outbox.send(message.info, answer)
        else:
            self._outbox.answer(path, answer)

    def unwatch(self, message: Unwatch) -> None:
        """Remove a watcher from groups."""
        for group in message.groups:
            root = self.roots.get(group)
            if root is not None:
                root.remove_watcher(message.node)
                self._dirty[group] = None

    def cast(self, message: CastUp, now: float) -> None:
        """Send a multicast down the tree, in the order of its source; answer `Later` to a source with a slow clock."""
        if not self._may_use(message.group, message.info.id, message.permit):
            self._counters.permits_invalid += 1
            return
        root = self._root_for(message.group, message.info, now)
        if root is None:
            return
        if root.latest is not None and message.at < root.latest.since:
            self._outbox.send(message.info, Later(message.group, root.latest))
            return
        key = (message.group, message.info.id)
        if not self._orders.is_new(key, message.sequence):
            self._outbox.send(message.info, CastTaken(message.group, message.sequence))  # the first acknowledgement was lost
        self._send_down(root, self._orders.accept(key, message.sequence, message, now, message.base), now)

    def acknowledge(self, kind: FollowerKind, group: GroupId, source: NodeInfo, version: int, now: float) -> None:
        """Note the version acknowledged by a follower; tell a watcher that is unknown here to ask again (`Forgotten`)."""
        root, node = self.roots.get(group), source.id
        if kind is FollowerKind.WATCHER and (root is None or node not in root.followers.members[kind]):
            self._outbox.send(source, Forgotten(group))
        if root is None:
            return
        if root.successor is not None and kind is FollowerKind.COPY and root.successor.info.id == node:
            self._finish_handover(root, version, now)
            return
        if root.acknowledge(kind, node, version):
            self._timers.cancel((kind, group, node))
        self._dirty[group] = None

    def copy(self, source: NodeInfo, message: AnyCopy, now: float) -> None:
        """Keep a received copy of a directory; at the root, make the copy the directory or merge the two. Acknowledge last."""
        has_room = message.group in self.roots or len(self.roots) < GROUPS_MAX
        if not (has_room and is_believable(message.version, EPOCHS_COPIED_MAX)):
            self._counters.registrations_refused += 1
            return
        if not all(self._is_member(message.group, record) for record in message.members):
            self._counters.permits_invalid += 1
            return
        if not self._is_of_kind(message):
            self._counters.kinds_invalid += 1
            return
        version, is_more = self.copies.receive(source.id, message, now)
        self._count_refused()
        if version is not None and not self._passing.is_early(source, message, version):
            if version and self._ring.is_root(message.group):
                root, told = self.roots.get(message.group), self.copies.held[message.group].directory
                is_behind = root is not None and not message.is_passed_on and knows_better(root.directory, told)
                self._take_over(message.group, now)
                if root is not None and is_behind:
                    # The sender was the root, stood still, and is back before this ring knows that it is the nearest.
                    self._outbox.send_all(source, root.copy_parts(is_passed_on=True))
            elif version and (is_more or not message.base):
                is_passed = self._passing.pass_on(message.group, source)
                if is_more and not (is_passed and message.is_passed_on):
                    # Even if another node is nearer: that node may be dead, and the sender knows.
                    self._passing.complete(message.group, source)
                self._look_for_orphans(now)
            if not message.is_passed_on:
                # Acknowledge last: a root with acknowledged copies has all entries from here.
                self._outbox.send(source, Copied(message.group, version))
        self._start_sweeping(now)

    def _look_for_orphans(self, now: float) -> None:
        key = (RootTimer.ORPHANS, _NO_GROUP, _NOBODY)
        if self.copies.held and key not in self._timers:
            self._timers.set(key, now + ORPHANS_S)

    # The ring

    def activate(self, now: float) -> None:
        """Take over the directories received before the local node was active, and acknowledge them."""
        early = self._passing.activate()
        self.ring_changed(now)
        for group in early:
            self._passing.settle(group)

    def ring_changed(self, now: float) -> None:
        """Take over directories, hand others over, and place copies, according to the present ring."""
        self._changed_at = now
        self._take_over_all(now)
        for root in list(self.roots.values()):
            self._place(root, now)
        self._look_for_orphans(now)

    def resume(self, now: float) -> None:
        """Ask the copies for newer entries after a standstill of this process: another node may be the root by now."""
        self._woken_at = now
        for group, root in self.roots.items():
            if root.successor is None:
                root.ask_copies()
                self._timers.set((RootTimer.UNSURE, group, _NOBODY), now + WOKEN_S)
                self._dirty[group] = None

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Remove a dead node as a follower of directories. As a member it is removed after the ring confirms the death."""
        self._died.pop(peer, None)
        if len(self._died) >= DIED_MAX:
            del self._died[next(iter(self._died))]
        self._died[peer] = now
        for group, root in self.roots.items():
            if peer in root.followers.members[FollowerKind.WATCHER]:
                root.remove_watcher(peer)
                self._dirty[group] = None
                self._outbox.route(peer, Forgotten(group))  # a live watcher asks again
            if root.followers.remove(FollowerKind.COPY, peer) is not None or peer in root.directory.members:
                self._dirty[group] = None
        self.doubt_everywhere(peer, now)
        self._passing.peer_dead(peer)

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Repeat unacknowledged messages to the peer of a broken link."""
        for group, root in self.roots.items():
            if root.successor is not None and root.successor.info.id == peer:
                self._timers.set((RootTimer.HANDOVER, group, _NOBODY), now)
            elif root.link_lost(peer):
                self._dirty[group] = None

    # Time

    def handle_timeout(self, now: float) -> None:
        """Repeat unacknowledged messages, end waits beyond their time limit, and forget expired entries."""
        for kind, group, node in self._timers.expired(now):
            if kind is RootTimer.ORPHANS:
                self._passing.pass_on_orphans()
                continue
            root = self.roots.get(group)
            if root is None:
                continue
            self._dirty[group] = None
            if kind is RootTimer.HANDOVER:
                self._place(root, now)
            elif kind is RootTimer.UNSURE:
                root.is_sure = True
            elif kind is RootTimer.ACCUSED:
                root.believe_accusations()
            elif kind is RootTimer.RIVAL and root.answer_rival(now + self._config.expiry_s, now):
                self._announce(root, now)
            elif kind is RootTimer.REVIEW and len(root.directory.members) <= PROBED_MEMBERS_MAX:
                for member in list(root.directory.members):
                    self.doubt(group, member, now)
            elif kind is RootTimer.RECHECK and node in root.directory.members:
                self._look_for(root, node)
            elif isinstance(kind, FollowerKind) and root.note_silence(kind, node):
                self.doubt(group, node, now)
        for (group, _), ready in self._orders.expired(now):
            root = self.roots.get(group)
            if root is not None:
                self._dirty[group] = None
                self._send_down(root, ready, now)
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep(now)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        if self._sweep_at is None:  # no state at all
            return None
        deadlines = (self._timers.deadline(), self._orders.deadline(), self._sweep_at)
        return min([deadline for deadline in deadlines if deadline is not None])

    def flush(self, now: float) -> None:
        """Send the messages that became due in this turn to followers, members and misdirected senders."""
        dirty, self._dirty = self._dirty, {}
        for group in dirty:
            root = self.roots.get(group)
            if root is None:
                continue
            self._cancel_timers(root)
            if root.successor is not None:
                continue
            for kind, follower in root.flush():
                self._timers.set((kind, group, follower.info.id), now + self._config.resend_after_s(follower.attempts))
            root.release_casts(now, self._config.replay_s)
            self._counters.casts_hurried += root.hurried
            root.hurried = 0
            if root.held:
                self._timers.set((RootTimer.HELD, group, _NOBODY), root.held[0].deadline)
            done, late = root.followers.completed(now)
            self._counters.changes_unconfirmed += late
            for pending in done:
                self._apply(root, pending.info, pending.stamp)
            if root.followers.pendings:
                self._timers.set((RootTimer.PENDING, group, _NOBODY), next(iter(root.followers.pendings.values())).deadline)
        misdirected, self._misdirected = self._misdirected, {}
        for info, groups in misdirected.values():
            for start in range(0, len(groups), BATCH_MAX):
                self._outbox.send(info, Moved(groups[start : start + BATCH_MAX]))
        applied, self._applied = self._applied, {}
        for info, items in applied.values():
            for start in range(0, len(items), BATCH_MAX):
                self._outbox.send(info, Applied(self._local, items[start : start + BATCH_MAX]))

    # Queries

    def is_settled(self) -> bool:
        """Return whether all awaited followers are up to date and no work waits, so that the node may leave."""
        return not any(root.successor or root.followers.is_awaited or root.held for root in self.roots.values())

    def needs(self, peer: NodeId) -> bool:
        """Return whether to keep the link to a node: a follower of a directory here, or a member whose death to notice."""
        return any(root.needs(peer) for root in self.roots.values())

    # Inside

    def _is_of_kind(self, message: AnyCopy) -> bool:
        """Return whether a copy is a table exactly if the directory here is. A directory that no permit fixed gives way."""
        root, held = self.roots.get(message.group), self.copies.held.get(message.group)
        is_table = isinstance(message, TableCopy)
        if root is not None and isinstance(root, TableRoot) != is_table:
            if root.is_fixed or not message.members:
                return False
            self._abandon(root)
        if held is not None and isinstance(held.directory, TableDirectory) != is_table:
            if held.directory.members or not message.members:
                return False
            del self.copies.held[message.group]
        return True

    def _answer(self, root: GroupRoot, record: MemberRecord, outcome: Outcome, now: float) -> None:
        """Acknowledge a registration once all followers know, or tell a live node that it was declared dead."""
        node = record.info.id
        if outcome is Outcome.ACCUSED:
            self._outbox.send(record.info, Accused(node, root.directory.tombstones[node][0]))
        elif outcome is Outcome.FULL:
            self._counters.registrations_refused += 1
        elif outcome is not Outcome.OUTDATED:
            self._wait(root, record.info, record.stamp, root.directory.members[node].version, now)

    def _is_member(self, group: GroupId, record: MemberRecord) -> bool:
        """Return whether a record has a valid permit; records already here were verified before."""
        for directory in self._directories(group):
            member = directory.members.get(record.info.id)
            if member is not None and _promise(member.record) == _promise(record):
                return True
        return self._signer.is_permitted(group, member_part(record, record.info.id), record.permit)

    def _may_register(self, group: GroupId, record: MemberRecord) -> bool:
        """Return whether a record's sender may register; true also for the local node, and for groups of other roots."""
        return record.info.id == self._local.id or not self._ring.is_root(group) or self._is_member(group, record)

    def _may_use(self, group: GroupId, node: NodeId, permit: bytes) -> bool:
        """Return whether a node may watch a group or send to it; true also for known nodes, and for groups of other roots."""
        if node == self._local.id or not self._ring.is_root(group):
            return True
        root = self.roots.get(group)
        is_known = root is not None and (node in root.directory.members or node in root.followers.members[FollowerKind.WATCHER])
        return is_known or self._signer.is_permitted(group, user_part(node), permit)

    def _directories(self, group: GroupId) -> list[Directory]:
        root, held = self.roots.get(group), self.copies.held.get(group)
        return [kept.directory for kept in (root, held) if kept is not None]

    def _look_for(self, root: GroupRoot, node: NodeId) -> None:
        """Ask the ring whether a member lives: after its death the node nearest to the id reports the death."""
        directory = root.directory
        self._outbox.route(node, Check(self._local, Accuse(node, directory.members[node].record.stamp, directory.group)))

    def _root_for(self, group: GroupId, asker: NodeInfo, now: float, *, is_table: bool | None = False) -> GroupRoot | None:
        """Return a directory, marked as changed. If another node is the root, return None and tell the sender (`Moved`).

        Args:
            group: The group.
            asker: The sender of a message with a permit.
            now: Monotonic seconds.
            is_table: The kind of the group in the message; None if the message has none. The first kind counts, and messages of
                the other kind are dropped and counted.
        """
        if self._ring.is_root(group):
            return self._root_here(group, now, is_table=is_table)
        self._misdirected.setdefault(asker.id, (asker, []))[1].append(group)
        return None

    def _root_here(self, group: GroupId, now: float, *, is_table: bool | None, is_creating: bool = True) -> GroupRoot | None:
        """Return the directory of a group, as its root, marked as changed; create it if allowed, else return None."""
        if group in self.copies.held:
            self._take_over(group, now)
        root = self.roots.get(group)
        if root is not None and is_table not in (None, isinstance(root, TableRoot)):
            if root.is_fixed:
                self._counters.kinds_invalid += 1
                return None
            self._abandon(root)
            root = None
        if root is None:
            if not is_creating:
                return None
            if len(self.roots) >= GROUPS_MAX:
                self._counters.registrations_refused += 1
                return None
            root = self._add(TableDirectory(group, 1) if is_table else Directory(group, 1), now)
        elif root.successor is not None:
            self._place(root, now)
        root.is_fixed |= is_table is not None
        self._dirty[group] = None
        return root

    def _abandon(self, root: GroupRoot) -> None:
        """Forget a directory that no node needs, and its copies."""
        for node in list(root.followers.members[FollowerKind.WATCHER]):
            root.remove_watcher(node)
        for info in root.set_copies(()):
            self._outbox.send(info, Drop(root.directory.group))
        self._cancel_timers(root)
        del self.roots[root.directory.group]

    def _add(self, directory: Directory, now: float) -> GroupRoot:
        parts = (self._local, self._rng, self._outbox)
        root = (
            TableRoot(directory, *parts, entries_max=self._config.table_entries_max)
            if isinstance(directory, TableDirectory)
            else GroupRoot(directory, *parts, view_members_max=self._config.view_members_max)
        )
        self.roots[directory.group] = root
        root.set_copies(self._ring.replicas(directory.group, COPIES))
        if now < (self._woken_at if directory.members else max(self._changed_at, self._woken_at)) + UNSURE_S:
            root.is_sure = False
            self._timers.set((RootTimer.UNSURE, directory.group, _NOBODY), now + self._config.told_timeout_s)
        self._dirty[directory.group] = None
        self._start_sweeping(now)
        return root

    def _take_over_all(self, now: float) -> None:
        for group in [group for group in self.copies.held if self._ring.is_root(group)]:
            self._take_over(group, now)

    def _take_over(self, group: GroupId, now: float) -> None:
        """Turn a copy into the directory, or merge it into an existing directory."""
        held = self.copies.held.pop(group)
        expires = now + self._config.expiry_s
        root = self.roots.get(group)
        if root is None:
            root = self._add(revive(held, now + 2 * self._config.renew_s), now)
            for info in held.watchers.values():
                root.watch(info, 0, 0, expires, None, has_view=True)
                watcher = root.followers.members[FollowerKind.WATCHER].get(info.id)
                if watcher is not None and now - self._died.get(info.id, float("-inf")) < DIED_S:
                    watcher.attempts = ATTEMPTS_WAITED_MAX  # it is told, but not waited for
            self._announce(root, now)
            return
        if merge(root, held, expires, self._outbox, now):
            self._announce(root, now)
        elif (answer_at := root.answer_at()) is not None:
            self._timers.set((RootTimer.RIVAL, group, _NOBODY), answer_at)
        if root.accused and (key := (RootTimer.ACCUSED, group, _NOBODY)) not in self._timers:
            self._timers.set(key, now + ANSWER_S)
        self._dirty[group] = None
        if root.successor is not None:
            self._place(root, now)

    def _announce(self, root: GroupRoot, now: float) -> None:
        """Tell the members of a small group the root of the new epoch: root and members then notice a death on the other side.

        Members of a large group learn the new root at their renewals, because a link to every member would be too expensive.
        """
        group, members = root.directory.group, root.directory.members
        root.followers.wait_anew(root.directory.version)
        # By then half of a large group may have been accused.
        self._timers.set((RootTimer.REVIEW, group, _NOBODY), now + REVIEW_S)
        if len(members) <= PROBED_MEMBERS_MAX:
            for member in members.values():
                self._wait(root, member.record.info, member.record.stamp, member.version, now)

    def _place(self, root: GroupRoot, now: float) -> None:
        """Keep a directory and its copies at the nodes chosen by the ring: here, or after a handover at a new root."""
        group = root.directory.group
        self._dirty[group] = None
        nearest = self._ring.replicas(group, COPIES)
        if self._ring.is_root(group) or not nearest:
            if root.successor is not None:
                # Back again: the other node may have received changes since.
                root.successor = None
                self._timers.cancel((RootTimer.HANDOVER, group, _NOBODY))
                root.begin_epoch()
            for info in root.set_copies(nearest):
                self._outbox.send(info, Drop(group))
            return
        target = nearest[0]
        successor = root.successor
        if successor is not None and successor.info.id == target.id and (RootTimer.HANDOVER, group, _NOBODY) in self._timers:
            return
        root.successor = Follower(target, 0.0)
        root.successor.sent = root.directory.version
        # Waiting nodes ask again, at the new root.
        root.followers.pendings.clear()
        self._outbox.send_all(target, root.copy_parts())
        self._timers.set((RootTimer.HANDOVER, group, _NOBODY), now + self._config.resend_s)

    def _finish_handover(self, root: GroupRoot, version: int, now: float) -> None:
        successor = root.successor
        assert successor is not None
        if version != successor.sent:
            return  # it is sent again
        group = root.directory.group
        self._timers.cancel((RootTimer.HANDOVER, group, _NOBODY))
        for kind in FollowerKind:
            for node in root.followers.members[kind]:
                self._timers.cancel((kind, group, node))
        for node in root.directory.members:
            self._timers.cancel((RootTimer.CHECK, group, node))
            self._timers.cancel((RootTimer.RECHECK, group, node))
        for info in {info.id: info for _, info, _ in root.held}.values():
            self._outbox.send(info, Moved([group]))  # the sources still have the untaken multicasts
        del self.roots[group]
        self.moved.append((group, successor.info))
        for info in root.set_copies(()):
            if info.id != successor.info.id:
                self._outbox.send(info, Drop(group))
        watchers = {node: watcher.info for node, watcher in root.followers.members[FollowerKind.WATCHER].items()}
        self.copies.keep(HeldCopy(root.directory, watchers, successor.info.id, now + self._config.expiry_s))
        self._count_refused()

    def _count_refused(self) -> None:
        self._counters.registrations_refused += self.copies.refused
        self.copies.refused = 0

    def _wait(self, root: GroupRoot, info: NodeInfo, stamp: int, version: int, now: float) -> None:
        """Acknowledge a registration or unregistration when all followers know it."""
        if not root.followers.unsettled:
            self._apply(root, info, stamp)
            return
        hurried = root.followers.wait(info, stamp, version, now + self._config.told_timeout_s)
        if hurried is not None:
            self._counters.changes_unconfirmed += 1
            self._apply(root, hurried.info, hurried.stamp)

    def _apply(self, root: GroupRoot, info: NodeInfo, stamp: int) -> None:
        directory = root.directory
        item = (directory.group, stamp, len(directory.members), info.id in directory.members)
        self._applied.setdefault(info.id, (info, []))[1].append(item)
        if isinstance(root, TableRoot) and (told := root.known_split()).ways:
            self._outbox.send(info, Split(directory.group, told.pack()))

    def _send_down(self, root: GroupRoot, messages: list[CastUp], now: float) -> None:
        for message in messages:
            base = min(message.sequence, self._orders.since((message.group, message.info.id)))
            signed = (message.payload, message.signature, message.at)
            cast = CastDown(message.group, message.info.id, message.sequence, False, base, *signed)
            root.cast(message.info, cast, now, self._config.told_timeout_s)

    def _cancel_timers(self, root: GroupRoot) -> None:
        """Cancel the timers of former members and followers, because these can come and go at a high rate."""
        group, members, followers = root.directory.group, root.directory.members, root.followers
        for kind, node in followers.removed:
            if node not in followers.members[kind]:
                self._timers.cancel((kind, group, node))
        for node in root.gone:
            if node not in members:
                self._timers.cancel((RootTimer.CHECK, group, node))
                self._timers.cancel((RootTimer.RECHECK, group, node))
        followers.removed.clear()
        root.gone.clear()

    def _start_sweeping(self, now: float) -> None:
        if self._sweep_at is None:
            self._sweep_at, self._refresh_at = now + self._config.sweep_s, now + self._config.renew_s

    def _sweep(self, now: float) -> None:
        self.copies.expire(now)
        if is_refresh := now >= self._refresh_at:
            self._refresh_at = now + self._config.renew_s
        for group, root in list(self.roots.items()):
            root.expire(now)
            root.repeat_accusations(now + self._config.expiry_s - ACCUSED_S)
            self._dirty[group] = None
            self._place(root, now)
            if root.successor is None and is_refresh:
                root.refresh_copies()
            directory = root.directory
            if not (directory.members or directory.tombstones or root.followers.members[FollowerKind.WATCHER] or root.held):
                self._abandon(root)
        self._orders.forget_idle(now - self._config.renew_s)
        self._take_over_all(now)
        is_used = self.roots or len(self.copies) or len(self._orders)
        self._sweep_at = now + self._config.sweep_s * (0.9 + 0.2 * self._rng.random()) if is_used else None


def _promise(record: MemberRecord) -> tuple[int, int, bytes, bytes]:
    return record.stamp, record.since, record.attributes, record.permit
