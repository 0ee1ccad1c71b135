"""The root of one group: keep the directory and tell the followers, once per turn (root_store.py calls it)."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from iris_overlay.groups.copies import copy_parts
from iris_overlay.groups.directory import EPOCHS_CLAIMED_MAX, Outcome, accusation_of, is_accusation, is_believable
from iris_overlay.groups.followers import ATTEMPTS_MAX, Follower, FollowerKind, Followers
from iris_overlay.groups.messages import (
    COPY_MEMBERS_MAX,
    SAMPLE_MAX,
    VIEW_MAX,
    WATCHERS_MAX,
    Accused,
    CastDown,
    CastTaken,
    Change,
    Children,
    Copy,
    MemberRecord,
    View,
)
from iris_overlay.groups.tree import Dealer, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.environment import Rng
    from iris_overlay.groups.directory import Directory
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.messages import AnyCopy, GroupMessage
    from iris_overlay.groups.rival import Rival
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

#: Watchers of a sample are told a new size at once if it changed by one part in this number, else at the next sweep, because
#: each change can cost 256 messages. Too small: wrong sizes; too large: messages.
SIZE_DRIFT: Final = 32

#: The largest number of recent multicasts of a group, kept for repetition. Too small: multicasts sent through a dying inner
#: node may be lost; too large: memory.
RECENT_MAX: Final = 64

#: The bound of the total payload of recent multicasts (bytes).
RECENT_BYTES_MAX: Final = 4 * 1024 * 1024

#: The largest number of multicasts that wait until the inner nodes of the tree know their children; a silent inner node delays
#: each by a second. Beyond it the oldest goes down the present tree. Too small: a multicast during a change of the tree misses
#: a part of it. Too large: memory, while a source sends as fast as its links allow.
HELD_MAX: Final = 1024

#: The bound of the total payload of waiting multicasts (bytes).
HELD_BYTES_MAX: Final = 64 * 1024 * 1024


class HeldCast(NamedTuple):
    """A multicast that waits until the inner nodes of the tree know their children."""

    deadline: float
    source: NodeInfo
    cast: CastDown


class GroupRoot:
    """The root of one group: keep the directory, tell followers of changes, and send multicasts down the tree."""

    __slots__ = (
        "_dealer",
        "_held_bytes",
        "_local",
        "_outbox",
        "_recent",
        "_recent_bytes",
        "_replays",
        "_rng",
        "_size_told",
        "_view_members_max",
        "_watcher_log",
        "accused",
        "directory",
        "followers",
        "gone",
        "held",
        "hurried",
        "is_fixed",
        "is_sure",
        "latest",
        "rival",
        "successor",
        "tree",
    )

    def __init__(
        self, directory: Directory, local: NodeInfo, rng: Rng, outbox: Outbox, *, view_members_max: int = VIEW_MAX
    ) -> None:
        self.directory = directory
        self.followers = Followers()
        self.tree = Tree()
        # Members declared dead by another root and asked for a sign of life: the stamps and expiry of their tombstones.
        self.accused: dict[NodeId, tuple[int, float]] = {}
        self.held: deque[HeldCast] = deque()
        # The number of multicasts sent before their time, for the owner to count.
        self.hurried = 0
        # Former members, for the owner to cancel their timers.
        self.gone: list[NodeId] = []
        # The record with the latest joining time of all past and present members, by their own clocks.
        records = (member.record for member in directory.members.values())
        self.latest: MemberRecord | None = max(records, key=lambda record: record.since, default=None)
        # Whether the neighbours were asked about the group. Until then, no watcher is answered.
        self.is_sure = True
        # Whether a message with a permit fixed the kind of the group: a table, or not. A copy without members has no permit.
        self.is_fixed = bool(directory.members)
        # The receiver of a running handover, during which the directory is not used.
        self.successor: Follower | None = None
        # Another root of the group, if one was ever heard of.
        self.rival: Rival | None = None
        self._local = local
        self._rng = rng
        self._outbox = outbox
        # Present exactly while the members are too many for one view.
        self._dealer: Dealer | None = None
        self._size_told = 0
        self._view_members_max = view_members_max
        self._watcher_log: deque[tuple[int, NodeId]] = deque(maxlen=WATCHERS_MAX)
        self._recent: deque[tuple[float, CastDown]] = deque()
        self._recent_bytes = 0
        self._held_bytes = 0
        self._replays: dict[NodeId, None] = {}
        for node in directory.members:
            self._enter(node)
        for node in self.tree.inner_nodes():
            self._touch_parent(node)
        self._fit_mode()

    # Members

    def register(self, record: MemberRecord, expires: float, entries: bytes = b"") -> Outcome:
        """Add or renew a member, and make messages to the followers due; the entries are those of a table."""
        node = record.info.id
        is_new = node not in self.directory.members
        outcome = self.directory.register(record, expires, entries)
        if outcome is Outcome.CHANGED:
            if self.latest is None or record.since > self.latest.since:
                self.latest = record
            if is_new:
                self._enter(node)
            else:
                self._describe(node)
            self._changed()
        return outcome

    def remove(self, node: NodeId, stamp: int, expires: float) -> bool:
        """Remove a member that left or died. Return whether it was a member."""
        if not self.directory.remove(node, stamp, expires):
            return False
        self._exit(node)
        self._changed()
        return True

    def accuse(self, node: NodeId, stamp: int, expires: float) -> bool:
        """Remove a member reported as dead in the incarnation of a stamp. Return whether it was a member."""
        return self.remove(node, accusation_of(stamp), expires)

    def believe_accusations(self) -> None:
        """Remove the members that another root declared dead and that gave no sign of life."""
        accused, self.accused = self.accused, {}
        for node, (stamp, expires) in accused.items():
            self.remove(node, stamp, expires)

    def expire(self, now: float) -> None:
        """Remove members and watchers past their expiry, and tell the watchers a changed size of the group."""
        expired = self.directory.expire(now)
        for node in expired:
            self._exit(node)
        for node in [node for node, watcher in self.followers.members[FollowerKind.WATCHER].items() if watcher.expires <= now]:
            self.remove_watcher(node)
        if expired:
            self._changed()
        if len(self.directory.members) != self._size_told:
            self._tell_size()

    def repeat_accusations(self, since: float) -> None:
        """Tell nodes again that they were declared dead, if their tombstones expire after a time."""
        for node, (stamp, expires) in self.directory.tombstones.items():
            if expires > since and is_accusation(stamp):
                self._outbox.route(node, Accused(node, stamp))

    def begin_epoch(self, above: int = 0) -> None:
        """Begin a new epoch, and make a message with everything due to each follower."""
        self.directory.begin_epoch(above)
        self._watcher_log.clear()
        for kind in (FollowerKind.WATCHER, FollowerKind.COPY):
            for follower in self.followers.members[kind].values():
                self.followers.forget_told(kind, follower, self.directory.version)
        for node in list(self.tree.inner_nodes()):
            self._touch_parent(node, is_new_epoch=True)

    def answer_at(self) -> float | None:
        """Return the time to answer another root; None without a waiting answer.

        A follower of the other root accepts no version of this one that is not higher.
        """
        rival = self.rival
        if rival is None or not (rival.watchers or rival.version >= self.directory.version):
            return None
        return rival.ready_at

    def answer_rival(self, expires: float, now: float, *, is_news: bool = False) -> bool:
        """Begin an epoch above the versions of another root, with its watchers. Return whether the epoch began.

        Args:
            expires: The expiry of its watchers without renewal.
            now: Monotonic seconds.
            is_news: Whether the directory has changes from the other root: then the epoch begins in any case.
        """
        rival = self.rival
        if rival is None or not (is_news or (self.answer_at() is not None and rival.may_answer(now))):
            return False
        self.begin_epoch(rival.version)
        watchers, rival.watchers = rival.watchers, {}
        for info in watchers.values():
            if info.id not in self.followers.members[FollowerKind.WATCHER]:
                self.watch(info, 0, 0, expires, None, has_view=True)
        return True

    # Watchers

    def watch(
        self,
        info: NodeInfo,
        stamp: int,
        version: int,
        expires: float,
        path: tuple[NodeId, ...] | None,
        *,
        has_view: bool = False,
    ) -> bool:
        """Add a watcher, or renew and answer it. Return whether there was room.

        Args:
            info: The watcher.
            stamp: Its highest stamp; 0 if unknown.
            version: The version that it has from this root; 0 for none.
            expires: The expiry without renewal.
            path: The way of its question; None for an answer over a link.
            has_view: Whether it has a view of an earlier root.
        """
        watchers = self.followers.members[FollowerKind.WATCHER]
        watcher = watchers.get(info.id)
        if version > self.directory.version:
            if is_believable(version, EPOCHS_CLAIMED_MAX):
                self.begin_epoch(version)
            else:
                version = 0  # it is told everything; an honest watcher asks again, as after a restart of the root
        if watcher is None:
            if len(watchers) >= WATCHERS_MAX:
                return False
            watcher = watchers[info.id] = Follower(info, expires)
            self._log_watcher(info.id)
        watcher.info, watcher.stamp, watcher.expires = info, max(stamp, watcher.stamp), expires
        if version == 0 or version != watcher.told:
            watcher.path = path
            watcher.has_view = has_view
            self.followers.forget_told(FollowerKind.WATCHER, watcher, self.directory.version)
        else:
            if watcher.sample is not None:
                self._rebalance(watcher)
            self.followers.touch(FollowerKind.WATCHER, watcher, self.directory.version)
        return True

    def remove_watcher(self, node: NodeId) -> None:
        """Remove a watcher; harmless if unknown."""
        watcher = self.followers.remove(FollowerKind.WATCHER, node)
        if watcher is not None:
            self._release_sample(watcher)
            self._log_watcher(node)

    def view_unwatched(self) -> View:
        """Return a membership view for a node that finds no room as a watcher, and so gets no changes."""
        members = self.directory.members
        nodes = list(members)
        if len(nodes) > self._view_members_max:
            count = min(SAMPLE_MAX, self._view_members_max)
            for index in range(count):
                other = index + self._rng.randrange(len(nodes) - index)
                nodes[index], nodes[other] = nodes[other], nodes[index]
            del nodes[count:]
        records = self.directory.records(nodes)
        return View(self._local, self.directory.group, self.directory.version, len(members), False, records)

    # Copies

    def set_copies(self, infos: Iterable[NodeInfo]) -> list[NodeInfo]:
        """Keep copies at the given nodes. Return the nodes with former copies, which have to drop them."""
        wanted = {info.id: info for info in infos}
        copies = self.followers.members[FollowerKind.COPY]
        dropped = [copy.info for node, copy in copies.items() if node not in wanted]
        for info in dropped:
            self.followers.remove(FollowerKind.COPY, info.id)
        for node, info in wanted.items():
            if node not in copies:
                copies[node] = Follower(info, 0.0)
                self.followers.touch(FollowerKind.COPY, copies[node], self.directory.version)
        return dropped

    def refresh_copies(self) -> None:
        """Make a message to every copy due, to keep unchanged copies from expiring."""
        for copy in self.followers.members[FollowerKind.COPY].values():
            self.followers.touch(FollowerKind.COPY, copy, self.directory.version)

    def ask_copies(self) -> None:
        """Answer no watcher until the keepers of copies acknowledge; a keeper that became the root sends its entries first."""
        self.is_sure = False
        self.directory.version += 1
        for copy in self.followers.members[FollowerKind.COPY].values():
            self.followers.touch(FollowerKind.COPY, copy, self.directory.version)

    def copy_parts(self, *, is_passed_on: bool = False) -> list[AnyCopy]:
        """Return the whole directory as `Copy` messages, on request as a copy passed on for the receiver to merge."""
        watchers = [watcher.info for watcher in self.followers.members[FollowerKind.WATCHER].values()]
        return copy_parts(self.directory, watchers, self.directory.version if is_passed_on else None)

    # Casts

    def cast(self, source: NodeInfo, cast: CastDown, now: float, wait_s: float) -> None:
        """Queue a multicast for the tree: it is sent once the inner nodes know their children, at the latest after ``wait_s``.

        If too many multicasts or bytes are held, the oldest is sent at once, and counted in `hurried`.
        """
        self.held.append(HeldCast(now + wait_s, source, cast))
        self._held_bytes += len(cast.payload)
        while len(self.held) > HELD_MAX or self._held_bytes > HELD_BYTES_MAX:
            self.hurried += 1
            self._release_first(now)

    def release_casts(self, now: float, replay_s: float) -> None:
        """Send multicasts down the tree after their wait; first repeat older multicasts to nodes moved in the tree."""
        self._forget_recent(now - replay_s)
        unsettled = self.followers.unsettled
        for node in [node for node in self._replays if (FollowerKind.PARENT, node) not in unsettled]:
            del self._replays[node]
            member = self.directory.members.get(node)
            if member is not None:
                repeated = [structs.replace(cast, is_replay=True) for _, cast in self._recent]
                self._outbox.send_all(member.record.info, repeated)
        while self.held and (not self.followers.unsettled_parents or self.held[0].deadline <= now):
            self._release_first(now)

    def needs(self, peer: NodeId) -> bool:
        """Return whether to keep the link to a node: a follower, or a child of the root in the tree."""
        if any(peer in followers for followers in self.followers.members):
            return True
        return peer in self.tree and self.tree.parent(peer) is None and peer in self.directory.members

    # Telling

    def acknowledge(self, kind: FollowerKind, node: NodeId, version: int) -> bool:
        """Note the version acknowledged by a follower. Return whether it has taken all that was sent to it."""
        follower = self.followers.acknowledge(kind, node, version)
        if follower is None:
            return False
        if kind is FollowerKind.PARENT and follower.told >= follower.wants and not self.tree.children(node):
            self.followers.remove(kind, node)  # it knows that it is no longer an inner node
        return not follower.is_in_transit

    def note_silence(self, kind: FollowerKind, node: NodeId) -> bool:
        """Repeat a message without an acknowledgement, or give a silent watcher up. Return False if none is missing."""
        follower = self.followers.members[kind].get(node)
        if follower is None or not follower.is_in_transit:
            return False
        follower.attempts += 1
        if kind is FollowerKind.WATCHER and follower.attempts >= ATTEMPTS_MAX:
            self.remove_watcher(node)
        else:
            self.followers.forget_told(kind, follower, max(follower.wants, self.directory.version))
        return True

    def link_lost(self, node: NodeId) -> bool:
        """Repeat unacknowledged messages to the peer of a broken link. Return False if all were acknowledged."""
        is_untold = False
        for kind in FollowerKind:
            follower = self.followers.members[kind].get(node)
            if follower is not None and follower.is_in_transit:
                self.followers.forget_told(kind, follower, max(follower.wants, self.directory.version))
                is_untold = True
        return is_untold

    def flush(self) -> list[tuple[FollowerKind, Follower]]:
        """Send the messages that are due; return the followers they went to."""
        due, self.followers.due = self.followers.due, {}
        told: list[tuple[FollowerKind, Follower]] = []
        self.is_sure = self.is_sure or not any(kind is FollowerKind.COPY for kind, _ in self.followers.unsettled)
        for (kind, node), follower in due.items():
            if kind is FollowerKind.WATCHER and not self.is_sure:
                self.followers.due[kind, node] = follower
                continue
            if follower.is_in_transit:
                continue  # its acknowledgement makes it due again
            if not self._has_turn(kind, follower):
                self.followers.due[kind, node] = follower
                continue
            for message in self._messages(kind, follower):
                if follower.path is not None:
                    self._outbox.answer(follower.path, message)
                else:
                    self._outbox.send(follower.info, message)
            follower.path = None
            follower.sent = self.directory.version
            follower.wants = max(follower.wants, follower.told)
            follower.is_stale = False
            told.append((kind, follower))
        return told

    def _has_turn(self, kind: FollowerKind, follower: Follower) -> bool:
        """Return whether to send a due message now; an acknowledgement of another follower gives the next turn."""
        return True

    def _messages(self, kind: FollowerKind, follower: Follower) -> list[GroupMessage]:
        if kind is FollowerKind.WATCHER:
            return self._views(follower)
        if kind is FollowerKind.COPY:
            return self._copy(follower)
        members = self.directory.members
        children = [members[node].record.info for node in self.tree.children(follower.info.id)]
        return [Children(self._local, self.directory.group, self.directory.version, children)]

    def _views(self, watcher: Follower) -> list[GroupMessage]:
        return [self._view(watcher)]

    def _view(self, watcher: Follower) -> View | Change:
        directory, size = self.directory, len(self.directory.members)
        if not watcher.is_stale:
            if watcher.sample is not None:
                return Change(directory.group, watcher.told, directory.version, size, [], [])
            changed = directory.changed_since(watcher.told)
            if changed is not None:
                records = directory.records(changed)
                removed = [node for node in changed if node not in directory.members]
                return Change(directory.group, watcher.told, directory.version, size, records, removed)
        if self._dealer is None:
            nodes = list(directory.members)
        else:
            if watcher.sample is None:
                watcher.sample = dict.fromkeys(self._dealer.deal(min(SAMPLE_MAX, self._view_members_max)))
            nodes = list(watcher.sample)
        return View(self._local, directory.group, directory.version, size, True, directory.records(nodes))

    def _copy(self, copy: Follower) -> list[GroupMessage]:
        directory = self.directory
        changed = None if copy.is_stale else directory.changed_since(copy.told)
        watched = self._watched_since(copy.told)
        if changed is None or watched is None or len(changed) > COPY_MEMBERS_MAX:
            return list(self.copy_parts())
        watchers = self.followers.members[FollowerKind.WATCHER]
        return [
            Copy(
                directory.group,
                copy.told,
                directory.version,
                True,
                True,
                directory.records(changed),
                directory.removals(changed),
                [watchers[node].info for node in watched if node in watchers],
                [node for node in watched if node not in watchers],
            )
        ]

    # Inside

    def _watched_since(self, version: int) -> dict[NodeId, None] | None:
        """Return the nodes that began or ended to watch after a version; None if too many for one message, or not known."""
        if len(self._watcher_log) == WATCHERS_MAX and self._watcher_log[0][0] > version + 1:
            return None
        watched = dict.fromkeys(node for logged, node in self._watcher_log if logged > version)
        return watched if len(watched) <= COPY_MEMBERS_MAX else None

    def _enter(self, node: NodeId) -> None:
        if node != self._local.id:  # the root passes multicasts to itself
            for parent in self.tree.add(node):
                self._touch_parent(parent)
        if self._dealer is not None:
            self._dealer.add(node)

    def _describe(self, node: NodeId) -> None:
        """Tell the watchers and tree neighbours of a member about its new attributes or addresses."""
        for watcher in self.followers.members[FollowerKind.WATCHER].values():
            if watcher.sample is not None and node in watcher.sample:
                watcher.is_stale = True
                self.followers.touch(FollowerKind.WATCHER, watcher, self.directory.version)
        if node in self.tree:
            # A member declared dead may have lost its state, and its parent may have given it up.
            parent = self.tree.parent(node)
            for inner in (node, parent):
                if inner is not None and self.tree.children(inner):
                    self._touch_parent(inner)

    def _exit(self, node: NodeId) -> None:
        self.gone.append(node)
        self.accused.pop(node, None)
        self.followers.remove(FollowerKind.PARENT, node)
        if node in self.tree:
            concerned, moved = self.tree.remove(node)
            for parent in concerned:
                self._touch_parent(parent)
            if moved is not None:
                self._replays[moved] = None
        self._replays.pop(node, None)
        if self._dealer is None:
            return
        self._dealer.remove(node)
        for watcher in self.followers.members[FollowerKind.WATCHER].values():
            if watcher.sample is not None and node in watcher.sample:
                del watcher.sample[node]
                watcher.sample.update(dict.fromkeys(self._dealer.deal(1, watcher.sample)))
                watcher.is_stale = True
                self.followers.touch(FollowerKind.WATCHER, watcher, self.directory.version)

    def _changed(self) -> None:
        """Make messages to the followers due after a change of the directory."""
        version = self.directory.version
        for copy in self.followers.members[FollowerKind.COPY].values():
            self.followers.touch(FollowerKind.COPY, copy, version)
        is_flip = self._fit_mode()
        size = len(self.directory.members)
        if self._dealer is None or is_flip or abs(size - self._size_told) * SIZE_DRIFT > self._size_told:
            self._tell_size()

    def _tell_size(self) -> None:
        self._size_told = len(self.directory.members)
        for watcher in self.followers.members[FollowerKind.WATCHER].values():
            self.followers.touch(FollowerKind.WATCHER, watcher, self.directory.version)

    def _fit_mode(self) -> bool:
        """Switch between whole views and samples as needed. Return whether it switched."""
        if (self._dealer is not None) == (len(self.directory.members) > self._view_members_max):
            return False
        self._dealer = Dealer(self._rng) if self._dealer is None else None
        if self._dealer is not None:
            for node in self.directory.members:
                self._dealer.add(node)
        for watcher in self.followers.members[FollowerKind.WATCHER].values():
            watcher.sample = None
            watcher.is_stale = True
        return True

    def _touch_parent(self, node: NodeId, *, is_new_epoch: bool = False) -> None:
        if node not in self.directory.members:
            return  # it leaves in the same turn
        parents = self.followers.members[FollowerKind.PARENT]
        if node not in parents:
            parents[node] = Follower(self.directory.members[node].record.info, 0.0)
        parent = parents[node]
        if is_new_epoch:
            self.followers.forget_told(FollowerKind.PARENT, parent, self.directory.version)
        else:
            self.followers.touch(FollowerKind.PARENT, parent, self.directory.version)

    def _log_watcher(self, node: NodeId) -> None:
        self.directory.version += 1
        self._watcher_log.append((self.directory.version, node))
        for copy in self.followers.members[FollowerKind.COPY].values():
            self.followers.touch(FollowerKind.COPY, copy, self.directory.version)

    def _release_sample(self, watcher: Follower) -> None:
        if self._dealer is not None and watcher.sample is not None:
            for node in watcher.sample:
                self._dealer.release(node)

    def _rebalance(self, watcher: Follower) -> None:
        """Replace members that are in more samples than others, because late members are in no sample yet."""
        assert self._dealer is not None
        assert watcher.sample is not None
        for node in [node for node in watcher.sample if self._dealer.uses(node) > self._dealer.uses_min() + 1]:
            new = self._dealer.deal(1, watcher.sample)
            if not new or self._dealer.uses(new[0]) > self._dealer.uses(node):
                for other in new:
                    self._dealer.release(other)
                break
            del watcher.sample[node]
            self._dealer.release(node)
            watcher.sample[new[0]] = None
            watcher.is_stale = True

    def _release_first(self, now: float) -> None:
        """Send the oldest waiting multicast down the tree."""
        _, source, cast = self.held.popleft()
        self._held_bytes -= len(cast.payload)
        members = self.directory.members
        for node in self.tree.children(None):
            self._outbox.send(members[node].record.info, cast)
        if self._local.id in members:
            self._outbox.send(self._local, cast)
        self._recent.append((now, cast))
        self._recent_bytes += len(cast.payload)
        self._forget_recent(-inf)
        self._outbox.send(source, CastTaken(cast.group, cast.sequence))

    def _forget_recent(self, before: float) -> None:
        recent = self._recent
        while recent and (recent[0][0] < before or len(recent) > RECENT_MAX or self._recent_bytes > RECENT_BYTES_MAX):
            self._recent_bytes -= len(recent.popleft()[1].payload)
