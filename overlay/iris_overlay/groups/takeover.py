"""Turn a copy into a directory, or into a part of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.directory import Outcome, is_accusation
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.messages import VIEW_MAX, Accused

if TYPE_CHECKING:
    from iris_overlay.groups.copies import HeldCopy
    from iris_overlay.groups.directory import Directory
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.root import GroupRoot
    from iris_overlay.ids import NodeId

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
