"""Handover of directories to the next root, and merges of copies into directories.

A node that leaves or loses the role of a root sends its directories to the next root. A joining node may miss updates, and gets
no questions. So a joining node acknowledges a directory only after its activation. Until then the sender keeps the directory
and its copies, and does not leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.copies import GROUPS_MAX
from iris_overlay.groups.directory import Outcome, is_accusation
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.messages import PROBED_MEMBERS_MAX, Accused, Copied
from iris_overlay.groups.rival import Rival
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.ids import is_nearer, position

if TYPE_CHECKING:
    from iris_overlay.groups.copies import Copies, HeldCopy
    from iris_overlay.groups.directory import Directory
    from iris_overlay.groups.io import GroupRing, Outbox
    from iris_overlay.groups.messages import AnyCopy
    from iris_overlay.groups.root import GroupRoot
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The time for a member declared dead by another root to show that it lives, when two directories are merged. Too small: live
#: members are missing from membership views for a moment. Too large: dead ones stay in views for that time.
ANSWER_S: Final = 1.0


def revive(held: HeldCopy, expires: float) -> Directory:
    """Turn a copy into a directory of this node, in a new epoch.

    Args:
        held: The copy.
        expires: The expiry of members that do not renew; the owner of the copy did not report every renewal.
    """
    for member in held.directory.members.values():
        member.expires = expires
    held.directory.begin_epoch(held.floor)
    return held.directory


def knows_better(directory: Directory, told: Directory) -> bool:
    """Return whether a directory has changes unknown to another directory of the same group; False for a large group."""
    if len(directory.members) > PROBED_MEMBERS_MAX:
        return False
    if any(
        node in told.members and told.members[node].record.stamp <= stamp for node, (stamp, _) in directory.tombstones.items()
    ):
        return True
    none = (-1, 0.0)
    return any(
        (node not in told.members or told.members[node].record.stamp < member.record.stamp)
        and told.tombstones.get(node, none)[0] < member.record.stamp
        for node, member in directory.members.items()
    )


def merge(root: GroupRoot, held: HeldCopy, expires: float, outbox: Outbox, now: float) -> bool:
    """Merge a copy into a directory. Return whether a new epoch began, in which all followers are sent everything again.

    New members begin an epoch at once; a higher version and new watchers, at the rate of `Rival`.

    A member that lives in one and is dead in the other, as after a split of the ring, is asked for a sign of life. Until it
    answers, or its time has passed, the state in the directory remains; but a root after a standstill accepts the state in the
    copy.
    """
    directory = root.directory
    before = directory.version
    doubtful: dict[NodeId, int] = {}
    for node, (stamp, tombstone_expires) in held.directory.tombstones.items():
        member = directory.members.get(node)
        is_doubtful = member is not None and member.record.stamp <= stamp and is_accusation(stamp)
        if is_doubtful:
            doubtful[node] = stamp
        if is_doubtful and root.is_sure:
            root.accused[node] = (stamp, tombstone_expires)
        else:
            root.remove(node, stamp, tombstone_expires)
    for member in held.directory.members.values():
        if root.register(member.record, member.expires, member.entries) is Outcome.ACCUSED:
            node = member.record.info.id
            doubtful[node] = directory.tombstones[node][0]
    if isinstance(directory, TableDirectory) and isinstance(held.directory, TableDirectory):
        directory.promote(held.directory.promotions.since(0))
        directory.split(held.directory.splits.known())
    for node, stamp in doubtful.items():
        outbox.route(node, Accused(node, stamp))
    watchers = root.followers.members[FollowerKind.WATCHER]
    new = [info for info in held.watchers.values() if info.id not in watchers]
    for node in held.watchers:
        if node in watchers:
            watchers[node].attempts = 0  # It was silent as if cut off from here, but not from the copy's owner.
    if root.rival is None:
        root.rival = Rival()
    root.rival.hear(max(held.floor, held.directory.version), new)
    return root.answer_rival(expires, now, is_news=directory.version != before)


class Passing:
    """Pass copies on to the root of their group, and acknowledge directories received before the local node was active."""

    __slots__ = ("_copies", "_is_active", "_outbox", "_owed", "_place", "_ring")

    def __init__(self, local: NodeInfo, copies: Copies, ring: GroupRing, outbox: Outbox) -> None:
        self._place = position(local.id)
        self._copies = copies
        self._ring = ring
        self._outbox = outbox
        self._is_active = False
        # Senders and versions of unacknowledged directories; at most GROUPS_MAX, and more are sent again.
        self._owed: dict[GroupId, tuple[NodeInfo, int]] = {}

    def activate(self) -> list[GroupId]:
        """Note that the local node is active; return the groups with a directory received before."""
        self._is_active = True
        return list(self._owed)

    def is_early(self, source: NodeInfo, message: AnyCopy, version: int) -> bool:
        """Return whether a directory was handed over before this node was active; `settle` acknowledges it later.

        Args:
            source: The sender.
            message: The last part.
            version: The version to acknowledge; 0 if it could not be applied.
        """
        is_handover = not (self._is_active or message.base or message.is_passed_on) and version > 0
        if is_handover and is_nearer(position(message.group), self._place, position(source.id)):
            if message.group in self._owed or len(self._owed) < GROUPS_MAX:
                self._owed[message.group] = (source, version)
            else:
                self._copies.refused += 1
            return True
        return False

    def settle(self, group: GroupId) -> None:
        """Acknowledge a directory handed over before activation: it is in use here by now, or passed on to a nearer node."""
        source, version = self._owed.pop(group)
        if group in self._copies.held:
            self.pass_on(group, source)
        self._outbox.send(source, Copied(group, version))

    def pass_on(self, group: GroupId, source: NodeInfo) -> bool:
        """Pass a copy on if another node than its sender is the root. Return whether it was passed on.

        While rings merge, the nearest node known to the sender may not be the root.
        """
        key, nearest = position(group), self._ring.replicas(group, 1)
        if not nearest or not is_nearer(key, position(nearest[0].id), position(source.id)):
            return False
        self._outbox.send_all(nearest[0], self._copies.held[group].parts())
        return True

    def complete(self, group: GroupId, source: NodeInfo) -> None:
        """Send the entries held here to the sender of a copy, which became the root without a handover and lacks some."""
        self._outbox.send_all(source, self._copies.held[group].parts())

    def pass_on_orphans(self) -> None:
        """Pass on copies without updates: while rings merged, their owner gave them to a node that was not the root."""
        for group, held in self._copies.held.items():
            key = position(group)
            for info in self._ring.replicas(group, 1):
                if info.id != held.passed_to and is_nearer(key, position(info.id), position(held.owner)):
                    held.passed_to = info.id
                    self._outbox.send_all(info, held.parts())

    def peer_dead(self, peer: NodeId) -> None:
        """Send the copies of a dead root's directories to the next roots."""
        for group in [group for group, (source, _) in self._owed.items() if source.id == peer]:
            del self._owed[group]
        for group, held in self._copies.held.items():
            if held.owner == peer and not self._ring.is_root(group):
                # The heir has a copy too, unless it is new. If in doubt it gets two.
                for heir in self._ring.replicas(group, 1):
                    self._outbox.send_all(heir, held.parts())
