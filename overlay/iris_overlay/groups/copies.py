"""Copies of directories whose root is a neighbour: kept up to date by it, and taken over when it dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.directory import Directory, next_epoch
from iris_overlay.groups.messages import COPY_MEMBERS_MAX, COPY_REMOVED_MAX, WATCHERS_MAX, Copy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.messages import NodeInfo

#: Neighbours that keep a copy of a directory. With all three dying at once it is lost: when each of 1,000 nodes dies with 1 %
#: probability, one in 10^6, and renewals bring it back. Each more costs a message per change.
COPIES: Final = 2

#: Directories of a node, and copies as many: 100 MiB of small ones. Beyond, registrations are refused and counted.
GROUPS_MAX: Final = 65_536

#: Copies of which some parts have arrived. Neighbours send theirs one after another; beyond it they come again later.
PARTS_MAX: Final = 256


def copy_parts(directory: Directory, watchers: Iterable[NodeInfo], version: int | None = None) -> list[Copy]:
    """Return the messages that carry a whole directory.

    Args:
        directory: The directory.
        watchers: Its watchers.
        version: None for a directory of the local node; else the highest version of all that is in a copy that it passes on.
    """
    records = [member.record for member in directory.members.values()]
    removed = [(node, stamp) for node, (stamp, _) in directory.tombstones.items()]
    watching = list(watchers)
    most = max(len(records), len(watching))
    count = max(1, -(-most // COPY_MEMBERS_MAX), -(-len(removed) // COPY_REMOVED_MAX))
    return [
        Copy(
            directory.group,
            0,
            directory.version if version is None else version,
            part == 0,
            part == count - 1,
            records[part * COPY_MEMBERS_MAX : (part + 1) * COPY_MEMBERS_MAX],
            removed[part * COPY_REMOVED_MAX : (part + 1) * COPY_REMOVED_MAX],
            watching[part * COPY_MEMBERS_MAX : (part + 1) * COPY_MEMBERS_MAX],
            [],
            version is not None,
        )
        for part in range(count)
    ]


class HeldCopy:
    """Hold a directory of another root."""

    __slots__ = ("directory", "expires", "floor", "is_mixed", "owner", "passed_to", "watchers")

    def __init__(self, directory: Directory, watchers: dict[NodeId, NodeInfo], owner: NodeId, expires: float) -> None:
        self.directory = directory
        self.watchers = watchers
        self.owner = owner
        self.expires = expires
        # The highest version of any root that this copy has something of: who takes it over begins above.
        self.floor = 0
        # Whether it says more than its owner did: what comes from there does not replace it.
        self.is_mixed = False
        # Who was sent it lately, for its owner is not the root any more.
        self.passed_to: NodeId | None = None

    def apply(self, message: Copy, expires: float) -> int:
        """Apply a part of a copy, or a change. Return how many watchers were left out, for no root has so many."""
        directory = self.directory
        for node, stamp in message.removed:
            if stamp:
                directory.remove(node, stamp, expires)
            else:  # It expired at the owner. Nothing forbids it to come back.
                directory.members.pop(node, None)
        for record in message.members:
            directory.register(record, expires)
        for node in message.unwatched:
            self.watchers.pop(node, None)
        self.expires = expires
        return self._watch(message.watchers)

    def parts(self) -> list[Copy]:
        """Return the messages that pass it on."""
        return copy_parts(self.directory, self.watchers.values(), max(self.floor, self.directory.version))

    def count(self) -> int:
        """Return how much this copy says."""
        return len(self.directory.members) + len(self.directory.tombstones) + len(self.watchers)

    def merge(self, other: HeldCopy) -> None:
        """Take over what another copy knows."""
        for node, (stamp, expires) in other.directory.tombstones.items():
            self.directory.remove(node, stamp, expires)
        for member in other.directory.members.values():
            self.directory.register(member.record, member.expires)
        self._watch(other.watchers.values())
        self.floor = max(self.floor, other.floor, other.directory.version)

    def _watch(self, infos: Iterable[NodeInfo]) -> int:
        """Note watchers, as many as a root has. Return how many were left out: they ask the next root themselves."""
        left_out = 0
        for info in infos:
            if info.id in self.watchers or len(self.watchers) < WATCHERS_MAX:
                self.watchers[info.id] = info
            else:
                left_out += 1
        return left_out


class Copies:
    """Hold the copies of a node."""

    __slots__ = ("_expiry_s", "_parts", "held", "refused")

    def __init__(self, expiry_s: float) -> None:
        self._expiry_s = expiry_s
        self.held: dict[GroupId, HeldCopy] = {}
        # Watchers and copies that there was no room for: for the owner to count.
        self.refused = 0
        # Copies of which some parts have arrived, by group and sender: parts of two senders may alternate.
        self._parts: dict[tuple[GroupId, NodeId], HeldCopy] = {}

    def __len__(self) -> int:
        return len(self.held) + len(self._parts)

    def receive(self, source: NodeId, message: Copy, now: float) -> tuple[int | None, bool]:
        """Apply a message.

        Returns:
            The version to acknowledge, None if more parts follow; and whether the copy now holds more than what was sent.
        """
        group, expires = message.group, now + self._expiry_s
        held = self.held.get(group)
        if message.base:
            if held is None or held.owner != source or held.directory.version != message.base:
                return 0, False
            self.refused += held.apply(message, expires)
            held.directory.version = message.version
            return message.version, False
        has_room = len(self._parts) < PARTS_MAX and (held is not None or len(self) < GROUPS_MAX)
        if message.is_first and (has_room or (group, source) in self._parts):
            self._parts[group, source] = HeldCopy(Directory(group, 0), {}, source, expires)
        part = self._parts.get((group, source))
        if part is None:
            return (0 if message.is_last else None), False
        self.refused += part.apply(message, expires)
        if not message.is_last:
            return None, False
        del self._parts[group, source]
        count = part.count()
        version = message.version
        if message.is_passed_on:
            self._add(part, version)
            return version, self.held[group].count() > count
        is_sequel = held is not None and held.directory.version <= version < next_epoch(held.directory.version)
        if held is not None and (held.owner != source or held.is_mixed or not is_sequel):
            # The old root did not hand over, or there were two, or one of both is what the owner passed on of another root.
            # What each was told is true until somebody knows better.
            part.merge(held)
            part.is_mixed = part.count() > count
            if held.owner == source:
                version = max(version, held.directory.version)
        part.directory.version = version
        self.held[group] = part
        return message.version, part.count() > count

    def _add(self, part: HeldCopy, version: int) -> None:
        """Add what a neighbour holds of another root. Its own directory may be here too: neither replaces the other."""
        part.floor = version
        held = self.held.setdefault(part.directory.group, part)
        if held is part:  # Version 0: no change of the neighbour's own directory is meant for it.
            held.is_mixed = True
            return
        count, own_version = held.count(), held.directory.version
        held.merge(part)
        held.directory.version = own_version  # Its owner goes on from there.
        held.expires = max(held.expires, part.expires)
        held.is_mixed = held.is_mixed or held.count() > count

    def keep(self, own: HeldCopy) -> None:
        """Keep what is left of a directory that was handed over. Without room the new root and its neighbours have it."""
        group = own.directory.group
        held = self.held.get(group)
        if held is None and len(self) >= GROUPS_MAX:
            self.refused += 1
        elif held is None:
            self.held[group] = own
        elif held.owner != own.owner:  # Else the new root has sent its copy already.
            held.merge(own)
            held.is_mixed = True

    def expire(self, now: float) -> None:
        """Forget copies that their owners do not keep up to date."""
        for group in [group for group, held in self.held.items() if held.expires <= now]:
            del self.held[group]
        for key in [key for key, part in self._parts.items() if part.expires <= now]:
            del self._parts[key]

    def drop(self, group: GroupId, owner: NodeId) -> None:
        """Handle that the owner keeps its copies elsewhere. What it did not know stays: it was no root, or is gone with it."""
        held = self.held.get(group)
        if held is not None and held.owner == owner and not held.is_mixed:
            del self.held[group]
