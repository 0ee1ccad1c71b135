"""Handing directories on: a node that leaves, or is the root no more, gives them to the next root.

A directory is never left to a node that is joining: as long as that one is not active it may be told nothing, and nobody asks
it for what it holds. So it acknowledges a directory that was handed over to it when it is active, and until then who handed it
over keeps it, and its copies, and does not leave.

Turn a copy into a directory, or into a part of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.copies import GROUPS_MAX
from iris_overlay.groups.directory import Outcome, is_accusation
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.messages import VIEW_MAX, Accused, Copied
from iris_overlay.ids import is_nearer, position

if TYPE_CHECKING:
    from iris_overlay.groups.copies import Copies, HeldCopy
    from iris_overlay.groups.directory import Directory
    from iris_overlay.groups.io import Outbox, Ring
    from iris_overlay.groups.messages import Copy
    from iris_overlay.groups.root import GroupRoot
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.messages import NodeInfo

#: For so long a member that another root had declared dead may say that it lives, when two directories become one. Too small:
#: the living are missing from views for a moment. Too large: the dead stay in views for as long.
ANSWER_S: Final = 1.0


def revive(held: HeldCopy, expires: float) -> Directory:
    """Return the directory of a copy whose owner is gone, in a new epoch.

    Args:
        held: The copy.
        expires: When members expire who do not renew: the owner did not tell of every renewal.
    """
    for member in held.directory.members.values():
        member.expires = expires
    held.directory.begin_epoch(held.floor)
    return held.directory


def knows_better(directory: Directory, told: Directory) -> bool:
    """Return whether the directory of a small group says something that another one of the same group does not."""
    if len(directory.members) > VIEW_MAX:
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


def merge(root: GroupRoot, held: HeldCopy, expires: float, outbox: Outbox) -> bool:
    """Put what a copy knows into a directory. Return whether a new epoch began, so that everybody is told everything.

    Who is a member in one and dead in the other, as after a split, is asked: it says so itself if it lives. Until it has had
    the time for that it stays what it is here; but a root that stood still believes the other one.
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
        if root.register(member.record, member.expires) is Outcome.ACCUSED:
            node = member.record.info.id
            doubtful[node] = directory.tombstones[node][0]
    for node, stamp in doubtful.items():
        outbox.route(node, Accused(node, stamp))
    watchers = root.followers.members[FollowerKind.WATCHER]
    new = [info for info in held.watchers.values() if info.id not in watchers]
    for node in held.watchers:
        if node in watchers:
            watchers[node].attempts = 0  # It was silent here, as if cut off, but not there.
    floor = max(held.floor, held.directory.version)
    is_new_epoch = directory.version != before or bool(new) or floor >= before
    if is_new_epoch:
        root.begin_epoch(floor)
    for info in new:
        root.watch(info, 0, 0, expires, None)
    return is_new_epoch


class Passing:
    """Pass on copies, and acknowledge directories that were handed over too early."""

    __slots__ = ("_copies", "_is_active", "_outbox", "_owed", "_place", "_ring")

    def __init__(self, local: NodeInfo, copies: Copies, ring: Ring, outbox: Outbox) -> None:
        self._place = position(local.id)
        self._copies = copies
        self._ring = ring
        self._outbox = outbox
        self._is_active = False
        # Whose directories wait for their acknowledgement, and the versions; at most GROUPS_MAX. Beyond, they come again.
        self._owed: dict[GroupId, tuple[NodeInfo, int]] = {}

    def activate(self) -> list[GroupId]:
        """Handle that the local node answers for keys; return of which groups it was given the directory before."""
        self._is_active = True
        return list(self._owed)

    def is_early(self, source: NodeInfo, message: Copy, version: int) -> bool:
        """Return whether a directory was handed over that cannot be answered for yet: it is acknowledged by `settle`.

        Args:
            source: Who sent it.
            message: Its last part.
            version: What to acknowledge; 0 if it could not be applied.
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
        """Acknowledge a directory that came early: it has become one here by now, or another node is nearer still."""
        source, version = self._owed.pop(group)
        if group in self._copies.held:
            self.pass_on(group, source)
        self._outbox.send(source, Copied(group, version))

    def pass_on(self, group: GroupId, source: NodeInfo) -> bool:
        """Pass a copy on if another node than its sender is the root. Return whether that is so.

        When rings merge, the nearest node that the sender knew to hand over to need not be the root.
        """
        key, nearest = position(group), self._ring.replicas(group, 1)
        if not nearest or not is_nearer(key, position(nearest[0].id), position(source.id)):
            return False
        self._outbox.send_all(nearest[0], self._copies.held[group].parts())
        return True

    def complete(self, group: GroupId, source: NodeInfo) -> None:
        """Tell the sender of a copy what else is here: it became the root without having been told by the old one."""
        self._outbox.send_all(source, self._copies.held[group].parts())

    def pass_on_orphans(self) -> None:
        """Pass on copies that no root keeps up to date: while rings merged, their owner gave them to one that was none."""
        for group, held in self._copies.held.items():
            key = position(group)
            for info in self._ring.replicas(group, 1):
                if info.id != held.passed_to and is_nearer(key, position(info.id), position(held.owner)):
                    held.passed_to = info.id
                    self._outbox.send_all(info, held.parts())

    def peer_dead(self, peer: NodeId) -> None:
        """Give what a dead node kept to its heirs."""
        for group in [group for group, (source, _) in self._owed.items() if source.id == peer]:
            del self._owed[group]
        for group, held in self._copies.held.items():
            if held.owner == peer and not self._ring.is_root(group):
                # The heir has a copy too, unless it came just now. In doubt it hears twice.
                for heir in self._ring.replicas(group, 1):
                    self._outbox.send_all(heir, held.parts())
