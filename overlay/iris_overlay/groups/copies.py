"""Copies of directories at neighbours of their root, which updates them; a copy becomes the directory when the root dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.directory import Directory, next_epoch
from iris_overlay.groups.entries import apply, split
from iris_overlay.groups.messages import (
    COPY_MEMBERS_MAX,
    COPY_REMOVED_MAX,
    TABLE_PART_BYTES_MAX,
    WATCHERS_MAX,
    Copy,
    EntryRow,
    TableCopy,
)
from iris_overlay.groups.splits import unpack_split
from iris_overlay.groups.table_directory import TableDirectory
from iris_overlay.groups.table_parts import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.groups.messages import AnyCopy
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The number of copies of a directory, at neighbours of the root. If the root and both neighbours die at once the directory is
#: lost: when each of 1,000 nodes dies with 1 % probability, one directory in 10^6, and renewals restore it. Too large: each
#: further copy costs a message per change.
COPIES: Final = 2

#: The largest number of directories at a node, and of copies: 100 MiB of small ones. Too small: more registrations are refused
#: and counted; too large: memory.
GROUPS_MAX: Final = 65_536

#: The largest number of received copies with missing parts. A neighbour sends its copies one after another, and repeats those
#: that found no room. Too small: takeovers take longer; too large: memory.
PARTS_MAX: Final = 256


def copy_parts(directory: Directory, watchers: Iterable[NodeInfo], version: int | None = None) -> list[AnyCopy]:
    """Split a whole directory into `Copy` messages, or a table into `TableCopy` messages.

    Args:
        directory: The directory.
        watchers: Its watchers.
        version: None for a directory of the local node; for a copy passed on, its highest version.
    """
    if isinstance(directory, TableDirectory):
        return list(_table_copy_parts(directory, list(watchers), version))
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


def _table_copy_parts(directory: TableDirectory, watching: list[NodeInfo], version: int | None) -> list[TableCopy]:
    removed = [(node, stamp) for node, (stamp, _) in directory.tombstones.items()]
    members = directory.members.values()
    rows = ((each.record, EntryRow(each.record.info.id, 0, each.record.stamp, each.entries)) for each in members)
    chunks = cut(rows, TABLE_PART_BYTES_MAX)
    count = max(len(chunks), -(-len(watching) // COPY_MEMBERS_MAX), -(-len(removed) // COPY_REMOVED_MAX))
    return [
        TableCopy(
            directory.group,
            0,
            directory.version if version is None else version,
            part == 0,
            part == count - 1,
            chunks[part].members if part < len(chunks) else [],
            removed[part * COPY_REMOVED_MAX : (part + 1) * COPY_REMOVED_MAX],
            watching[part * COPY_MEMBERS_MAX : (part + 1) * COPY_MEMBERS_MAX],
            [],
            version is not None,
            chunks[part].rows if part < len(chunks) else [],
            b"" if part else directory.promotions.since(0),
            b"" if part else directory.splits.known().pack(),
        )
        for part in range(count)
    ]


class HeldCopy:
    """The copy of another root's directory, held by the local node."""

    __slots__ = ("directory", "expires", "floor", "is_mixed", "owner", "passed_to", "watchers")

    def __init__(self, directory: Directory, watchers: dict[NodeId, NodeInfo], owner: NodeId, expires: float) -> None:
        self.directory = directory
        self.watchers = watchers
        self.owner = owner
        self.expires = expires
        # The highest version of any root merged into this copy; a directory made of it begins above.
        self.floor = 0
        # Whether the copy contains more than its owner sent, so that the owner's next whole copy is merged rather than
        # replacing it.
        self.is_mixed = False
        # The new root to which it was sent after the owner lost that role.
        self.passed_to: NodeId | None = None

    def can_apply(self, message: AnyCopy) -> bool:
        """Return whether the entries here are those to which a change of a table applies."""
        if isinstance(message, Copy):
            return True
        return all(row.base in (0, self._stamp_of(row.node)) or row.stamp <= self._stamp_of(row.node) for row in message.rows)

    def _stamp_of(self, node: NodeId) -> int:
        """Return the highest stamp known of a node."""
        member = self.directory.members.get(node)
        return self.directory.tombstones.get(node, (0, 0.0))[0] if member is None else member.record.stamp

    def apply(self, message: AnyCopy, expires: float) -> int:
        """Apply a part of a copy, or a change. Return the number of watchers left out beyond WATCHERS_MAX."""
        directory = self.directory
        for node, stamp in message.removed:
            if stamp:
                directory.remove(node, stamp, expires)
            else:  # it expired at the owner, and may come back
                directory.discard(node)
        if isinstance(message, TableCopy):
            self._apply_rows(message, expires)
        else:
            for record in message.members:
                directory.register(record, expires)
        for node in message.unwatched:
            self.watchers.pop(node, None)
        self.expires = expires
        return self._watch(message.watchers)

    def _apply_rows(self, message: TableCopy, expires: float) -> None:
        directory = self.directory
        assert isinstance(directory, TableDirectory)
        if message.promoted:
            directory.promotions.add(split(message.promoted), directory.version)
        directory.splits.add(unpack_split(message.split), directory.version)
        records = {record.info.id: record for record in message.members}
        for row in message.rows:
            record, member = records.get(row.node), directory.members.get(row.node)
            if record is None:
                directory.extend(row.node, row.stamp, row.added)
            elif row.base == 0 or member is None:
                directory.register(record, expires, row.added)
            else:
                directory.register(record, expires, apply(member.entries, row.added, row.removed))

    def parts(self) -> list[AnyCopy]:
        """Return the `Copy` messages for passing the copy on to another node."""
        return copy_parts(self.directory, self.watchers.values(), max(self.floor, self.directory.version))

    def count(self) -> int:
        """Return the number of entries: members, tombstones and watchers."""
        return len(self.directory.members) + len(self.directory.tombstones) + len(self.watchers)

    def merge(self, other: HeldCopy) -> None:
        """Merge the entries of another copy into this copy."""
        for node, (stamp, expires) in other.directory.tombstones.items():
            self.directory.remove(node, stamp, expires)
        for member in other.directory.members.values():
            self.directory.register(member.record, member.expires, member.entries)
        if isinstance(self.directory, TableDirectory) and isinstance(other.directory, TableDirectory):
            self.directory.promotions.add(split(other.directory.promotions.since(0)), self.directory.version)
            self.directory.splits.add(other.directory.splits.known(), self.directory.version)
        self._watch(other.watchers.values())
        self.floor = max(self.floor, other.floor, other.directory.version)

    def _watch(self, infos: Iterable[NodeInfo]) -> int:
        """Add watchers up to WATCHERS_MAX. Return the number left out; these watchers ask the next root themselves."""
        left_out = 0
        for info in infos:
            if info.id in self.watchers or len(self.watchers) < WATCHERS_MAX:
                self.watchers[info.id] = info
            else:
                left_out += 1
        return left_out


class Copies:
    """The copies of other roots' directories held by a node."""

    __slots__ = ("_expiry_s", "_parts", "held", "refused")

    def __init__(self, expiry_s: float) -> None:
        self._expiry_s = expiry_s
        self.held: dict[GroupId, HeldCopy] = {}
        # Watchers and copies refused for lack of space, for the owner to count.
        self.refused = 0
        # Copies with missing parts, by group and sender, because parts of two senders may alternate.
        self._parts: dict[tuple[GroupId, NodeId], HeldCopy] = {}

    def __len__(self) -> int:
        return len(self.held) + len(self._parts)

    def receive(self, source: NodeId, message: AnyCopy, now: float) -> tuple[int | None, bool]:
        """Apply a change to a copy, or one part of a whole copy.

        Returns:
            The version to acknowledge (None if more parts follow, 0 to request the whole copy), and whether the copy now has
            more entries than its sender sent.
        """
        group, expires = message.group, now + self._expiry_s
        held = self.held.get(group)
        if message.base:
            if held is None or held.owner != source or held.directory.version != message.base or not held.can_apply(message):
                return 0, False
            self.refused += held.apply(message, expires)
            held.directory.version = message.version
            return message.version, False
        has_room = len(self._parts) < PARTS_MAX and (held is not None or len(self) < GROUPS_MAX)
        if message.is_first and (has_room or (group, source) in self._parts):
            directory = TableDirectory(group, 0) if isinstance(message, TableCopy) else Directory(group, 0)
            self._parts[group, source] = HeldCopy(directory, {}, source, expires)
        part = self._parts.get((group, source))
        if part is None or isinstance(part.directory, TableDirectory) != isinstance(message, TableCopy):
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
            # The old root did not hand over, or two roots existed, or one part came from a forwarded copy. Keep the entries of
            # both until newer ones replace them.
            part.merge(held)
            part.is_mixed = part.count() > count
            if held.owner == source:
                version = max(version, held.directory.version)
        part.directory.version = version
        self.held[group] = part
        return message.version, part.count() > count

    def _add(self, part: HeldCopy, version: int) -> None:
        """Add a neighbour's copy of another root's directory, without replacing the neighbour's own directory."""
        part.floor = version
        held = self.held.setdefault(part.directory.group, part)
        if held is part:  # version 0: changes of the neighbour's own directory do not apply to it
            held.is_mixed = True
            return
        count, own_version = held.count(), held.directory.version
        held.merge(part)
        held.directory.version = own_version  # the owner's changes continue from there
        held.expires = max(held.expires, part.expires)
        held.is_mixed = held.is_mixed or held.count() > count

    def keep(self, own: HeldCopy) -> None:
        """Keep a directory as a copy after its handover; without room drop it, because other nodes have copies."""
        group = own.directory.group
        held = self.held.get(group)
        if held is None and len(self) >= GROUPS_MAX:
            self.refused += 1
        elif held is None:
            self.held[group] = own
        elif held.owner != own.owner:  # else the new root has already sent its copy
            held.merge(own)
            held.is_mixed = True

    def expire(self, now: float) -> None:
        """Forget copies that their owners no longer update."""
        for group in [group for group, held in self.held.items() if held.expires <= now]:
            del self.held[group]
        for key in [key for key, part in self._parts.items() if part.expires <= now]:
            del self._parts[key]

    def drop(self, group: GroupId, owner: NodeId) -> None:
        """Delete a copy that its owner no longer updates; keep a mixed copy, which has entries unknown to the owner."""
        held = self.held.get(group)
        if held is not None and held.owner == owner and not held.is_mixed:
            del self.held[group]
