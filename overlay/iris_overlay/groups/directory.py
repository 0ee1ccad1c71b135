"""The directory of one group: members, tombstones of former members, and recent changes.

All entries are soft state. Of two entries for a membership the one with the higher stamp is right, in any order of arrival and
through any copies. So diverged directories are merged by applying the entries of both.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from iris_overlay.groups.messages import SEQUENCE_MASK, STAMP_SHIFT, MemberRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.ids import GroupId, NodeId

#: The largest number of members of a group: about 50 MiB at the root. Too small: more registrations stay unacknowledged, and
#: are tried again later; too large: memory.
MEMBERS_MAX: Final = 100_000

#: The largest number of tombstones (remembered former members) of a group. Too small: the oldest is forgotten, and a late
#: registration of that node would count; too large: memory.
TOMBSTONES_MAX: Final = 8192

#: The number of changes kept in a directory's log. Too small: a follower (a node that is told of changes) that missed more is
#: sent the whole directory; too large: memory.
LOG_MAX: Final = 256


#: The limit of credible epochs claimed by watchers. A root begins its epoch above a watcher's claim, and without a limit one
#: lie would bring the directory to its last version. A thousand new roots a second reach the limit after 12 days.
EPOCHS_CLAIMED_MAX: Final = 1 << 30

#: The limit of epochs in copies: a node that takes a copy over needs a next epoch. Only a liar can bring a directory there; it
#: then has no copies, and starts afresh when its root is gone.
EPOCHS_COPIED_MAX: Final = (1 << 31) - 2


#: The limit of credible incarnations in accusations; beyond it only a member's present incarnation can be accused. Without a
#: limit one lie would bring a member to its last incarnation, and leave a tombstone above all possible registrations. Members
#: count by one: a thousand a second reach the limit after 12 days.
INCARNATIONS_BELIEVED: Final = 1 << 30


class Outcome(Enum):
    """The result of a registration.

    OUTDATED: a newer entry exists. ACCUSED: the node was declared dead. FULL: no room. INCOMPLETE: a claim of a table does not
    apply to the entries here.
    """

    CHANGED = "changed"
    RENEWED = "renewed"
    OUTDATED = "outdated"
    ACCUSED = "accused"
    FULL = "full"
    INCOMPLETE = "incomplete"


class DirectoryMember:
    """A member in a directory: its record, expiry and version; in a table also its packed entries."""

    __slots__ = ("entries", "expires", "record", "version")

    def __init__(self, record: MemberRecord, expires: float, version: int, entries: bytes = b"") -> None:
        self.entries = entries
        self.record = record
        self.expires = expires
        # The version of this registration.
        self.version = version


def accusation_of(stamp: int) -> int:
    """Return the stamp of an accusation (a report of death): the highest stamp in the incarnation of a registration."""
    return stamp | SEQUENCE_MASK


def is_accusation(stamp: int) -> bool:
    """Return whether the stamp of a tombstone comes from an accusation (a report of death) rather than a leave."""
    return stamp & SEQUENCE_MASK == SEQUENCE_MASK


def next_epoch(version: int) -> int:
    """Return the first version of the epoch after that of a version."""
    return ((version >> STAMP_SHIFT) + 1) << STAMP_SHIFT


def is_believable(version: int, epochs: int) -> bool:
    """Return whether the epoch of a claimed version is below a limit."""
    return version >> STAMP_SHIFT < epochs


class Directory:
    """The directory of a group, or a copy of it: members, tombstones of former members, and a log of recent changes."""

    __slots__ = ("_log", "group", "members", "tombstones", "version")

    def __init__(self, group: GroupId, version: int) -> None:
        self.group = group
        self.version = version
        self.members: dict[NodeId, DirectoryMember] = {}
        # Stamp and expiry. Invariant: a member's stamp is above that of its tombstone.
        self.tombstones: dict[NodeId, tuple[int, float]] = {}
        self._log: deque[tuple[int, NodeId]] = deque(maxlen=LOG_MAX)

    def register(self, record: MemberRecord, expires: float, entries: bytes = b"") -> Outcome:
        """Add or renew a member, unless a newer entry for the node exists; the entries are those of a table."""
        node = record.info.id
        tombstone = self.tombstones.get(node)
        if tombstone is not None:
            if record.stamp <= tombstone[0]:
                return Outcome.ACCUSED if is_accusation(tombstone[0]) else Outcome.OUTDATED
            del self.tombstones[node]
        member = self.members.get(node)
        if member is None:
            if len(self.members) >= MEMBERS_MAX:
                return Outcome.FULL
            self.version += 1
            self.members[node] = DirectoryMember(record, expires, self.version, entries)
        elif record.stamp < member.record.stamp:
            return Outcome.OUTDATED
        elif record.stamp == member.record.stamp:
            member.expires = max(expires, member.expires)
            return Outcome.RENEWED
        else:
            self.version += 1
            member.record, member.expires, member.version = record, expires, self.version
            member.entries = entries
        self._log.append((self.version, node))
        return Outcome.CHANGED

    def remove(self, node: NodeId, stamp: int, expires: float) -> bool:
        """End all registrations of a node up to a stamp. Return True if this removed a member."""
        tombstone = self.tombstones.get(node)
        member = self.members.get(node)
        if member is not None and member.record.stamp > stamp:
            return False
        if tombstone is None or tombstone[0] < stamp:
            if tombstone is None and len(self.tombstones) >= TOMBSTONES_MAX:
                del self.tombstones[next(iter(self.tombstones))]
            self.tombstones[node] = (stamp, expires)
        if member is None:
            return False
        self._delete(node)
        return True

    def discard(self, node: NodeId) -> None:
        """Remove a member from a copy without a trace, because the member expired at the owner; harmless if unknown."""
        self.members.pop(node, None)

    def expire(self, now: float) -> list[NodeId]:
        """Remove entries past their expiry; return the members among them."""
        for node in [node for node, (_, expires) in self.tombstones.items() if expires <= now]:
            del self.tombstones[node]
        expired = [node for node, member in self.members.items() if member.expires <= now]
        for node in expired:
            self._delete(node)
        return expired

    def begin_epoch(self, above: int = 0) -> None:
        """Raise the version to a new epoch, beyond `above` too. So every follower has to be sent the whole directory."""
        self.version = next_epoch(max(self.version, above))
        self._log.clear()
        for member in self.members.values():
            member.version = self.version

    def changed_since(self, version: int) -> list[NodeId] | None:
        """Return the nodes added, removed or changed after a version; None if the log does not reach back to it."""
        if version == self.version:
            return []
        if version >> STAMP_SHIFT != self.version >> STAMP_SHIFT or version > self.version:
            return None
        if len(self._log) == LOG_MAX and self._log[0][0] > version + 1:
            return None
        changed: dict[NodeId, None] = {}
        for logged, node in reversed(self._log):
            if logged <= version:
                break
            changed[node] = None
        return list(changed)

    def records(self, nodes: Iterable[NodeId]) -> list[MemberRecord]:
        """Return the records of the nodes that are members."""
        members = self.members
        return [members[node].record for node in nodes if node in members]

    def removals(self, nodes: Iterable[NodeId]) -> list[tuple[NodeId, int]]:
        """Return the nodes that are no members, with the stamps of their tombstones; 0 without a tombstone."""
        return [(node, self.tombstones.get(node, (0, 0.0))[0]) for node in nodes if node not in self.members]

    def _delete(self, node: NodeId) -> None:
        del self.members[node]
        self.version += 1
        self._log.append((self.version, node))
