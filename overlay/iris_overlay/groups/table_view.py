"""A watched table as the local node knows it, and as its owner was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import structs

from iris_overlay.events import GroupMember, MemberChange, TableChanged
from iris_overlay.groups.directory import MEMBERS_MAX
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX, apply_exactly, compose, diff, split
from iris_overlay.groups.promotions import PROMOTED_MAX
from iris_overlay.groups.splits import UNSPLIT, unpack_split
from iris_overlay.groups.table_directory import TABLE_BYTES_MAX
from iris_overlay.groups.table_parts import PartCollection, checksum_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from iris_overlay.groups.messages import EntryRow, MemberRecord, TablePart
    from iris_overlay.ids import GroupId, NodeId


#: The exact change of a member's entries: the added and the removed ones.
_EntriesChange: TypeAlias = "tuple[bytes, bytes]"
_NO_CHANGE: Final = b"", b""


class _ChangedMember(NamedTuple):
    """A member after a row of a part."""

    record: MemberRecord
    entries: bytes
    change: _EntriesChange | None
    """The change of the entries; None if unknown."""


class _Shown(NamedTuple):
    """A member as the owner was told."""

    member: GroupMember
    entries: bytes


class TableView:
    """The members of a watched table and their entries, and the changes that the owner does not know yet.

    Attributes:
        members: The records of the members.
        parts: The parts of an incomplete view from the known root.
        promoted: The promoted entries.
        split: The split of the table, with all that any root told.
        has_later: Whether some members kept later entries than those in the last whole table.
        other_parts: The parts of an incomplete view from another node, which may be the next root, or a liar.
    """

    __slots__ = (
        "_changed",
        "_checksum",
        "_entries",
        "_is_known",
        "_size_bytes",
        "_told",
        "_told_size",
        "_told_split",
        "_unreported",
        "has_later",
        "members",
        "other_parts",
        "parts",
        "promoted",
        "split",
    )

    def __init__(self) -> None:
        self.members: dict[NodeId, MemberRecord] = {}
        self.has_later = False
        self.parts = PartCollection()
        self.other_parts = PartCollection()
        # The checksum of members and entries; None after a change.
        self._checksum: bytes | None = None
        # Invariant: the same nodes as in members.
        self._entries: dict[NodeId, bytes] = {}
        self._size_bytes = 0
        # The promoted entries, whichever root called them so; and those among them that the owner does not know yet.
        self.promoted: set[bytes] = set()
        self._unreported: set[bytes] = set()
        self.split = self._told_split = UNSPLIT
        # Whether a root sent the table.
        self._is_known = False
        # With the change of the entries that the owner was told; None if unknown.
        self._changed: dict[NodeId, _EntriesChange | None] = {}
        self._told: dict[NodeId, _Shown] = {}
        # The size and `is_watched` of the last event; None before the first.
        self._told_size: tuple[int, bool] | None = None

    def entries_of(self, node: NodeId) -> bytes:
        """Return the packed entries of a member."""
        return self._entries[node]

    def note(self, node: NodeId) -> None:
        """Tell the owner about a node with the next event, because the node is left out of the table, or is so no longer."""
        self._changed.setdefault(node, _NO_CHANGE)

    def replace(self, parts: Sequence[TablePart], *, keeps_later: bool = False) -> bool:
        """Take a whole table. Return False, and take nothing, if it is none, or exceeds a bound.

        Args:
            parts: The table.
            keeps_later: Whether members keep their known entries if these have a later stamp: the table is that of a root which
                has not heard of them yet. `has_later` tells whether some did.
        """
        table = TableView()
        if not table.change(parts):
            return False
        self.has_later = keeps_later and table._keep_later(self)
        self._checksum = None
        self._changed |= dict.fromkeys((*self.members, *table.members))
        self.members, self._entries, self._size_bytes = table.members, table._entries, table._size_bytes
        self._is_known = True
        self._promote(table.promoted)
        self.split = self.split.united(table.split)
        return True

    def _keep_later(self, known: TableView) -> bool:
        """Take the entries of members with a later stamp from another view, within the bound; return whether there are some."""
        has_later = False
        for node, record in self.members.items():
            before = known.members.get(node)
            if before is None or before.stamp <= record.stamp:
                continue
            growth = len(known.entries_of(node)) - len(self._entries[node])
            if self._size_bytes + growth <= TABLE_BYTES_MAX:
                self.members[node], self._entries[node] = before, known.entries_of(node)
                self._size_bytes += growth
                has_later = True
        return has_later

    def confirm(self, part: TablePart) -> bool:
        """Keep the table as that of another root, which has sent its checksum. Return False if the root has another table."""
        if self._checksum is None:
            self._checksum = checksum_of((node, record.stamp, self._entries[node]) for node, record in self.members.items())
        if part.checksum != self._checksum:
            return False
        self._is_known = True
        self._promote(set(split(part.promoted)))
        self.split = self.split.united(unpack_split(part.split))
        return True

    def change(self, parts: Sequence[TablePart]) -> bool:
        """Apply changes. Return False, and apply none, if they do not apply to this table, or it would exceed a bound."""
        changes: dict[NodeId, _ChangedMember | None] = {node: None for part in parts for node in part.removed}
        for part in parts:
            records = {record.info.id: record for record in part.members}
            for row in part.rows:
                changed = self._changed_by(row, records.pop(row.node, None), changes)
                if changed is None:
                    return False
                changes[row.node] = changed
            if records:
                return False  # an honest root sends a row with each record
        present = {node: len(self._entries.get(node, b"")) for node in changes}
        growth = sum(len(change.entries) for change in changes.values() if change is not None) - sum(present.values())
        count = len(self.members) + sum((change is not None) - (node in self.members) for node, change in changes.items())
        if self._size_bytes + growth > TABLE_BYTES_MAX or count > MEMBERS_MAX:
            return False
        self._checksum = None
        self._promote(set(split(parts[0].promoted)))
        self.split = self.split.united(unpack_split(parts[0].split))
        for node, change in changes.items():
            if change is None:
                self.members.pop(node, None)
                self._entries.pop(node, None)
            else:
                self.members[node], self._entries[node] = change.record, change.entries
            self._changed[node] = _join(self._changed.get(node, _NO_CHANGE), None if change is None else change.change)
        self._size_bytes += growth
        return True

    def _promote(self, entries: set[bytes]) -> None:
        """Note promoted entries, up to the bound of one root, for each of two that may differ."""
        new = entries - self.promoted
        if len(self.promoted) + len(new) <= 2 * PROMOTED_MAX:
            self.promoted |= new
            self._unreported |= new

    def _changed_by(
        self, row: EntryRow, record: MemberRecord | None, changes: dict[NodeId, _ChangedMember | None]
    ) -> _ChangedMember | None:
        """Return the record and entries of a member after a row; None if the row does not apply, or has too many entries."""
        before = changes.get(row.node)
        if row.node not in changes and row.node in self.members:
            before = _ChangedMember(self.members[row.node], self._entries[row.node], _NO_CHANGE)
        if record is None and before is not None:
            record = before.record
        change: _EntriesChange | None = None
        if row.base == 0:
            entries = row.added
        elif before is not None and before.record.stamp == row.base:
            entries, added, removed = apply_exactly(before.entries, row.added, row.removed)
            change = _join(before.change, (added, removed))
        else:
            return None
        if record is None or len(entries) > ENTRIES_BYTES_MAX:
            return None
        record = record if record.stamp == row.stamp else structs.replace(record, stamp=row.stamp)
        return _ChangedMember(record, entries, change)

    def event(self, group: GroupId, masked: Collection[NodeId], *, is_watched: bool) -> TableChanged | None:
        """Return what the owner does not know yet; None if it knows everything, or no root sent the table.

        Args:
            group: The table.
            masked: Members left out, because this node found them dead.
            is_watched: Whether changes will be reported.
        """
        if not self._is_known:
            return None
        changed, self._changed = self._changed, {}
        changes: dict[NodeId, MemberChange] = {}
        removed: list[NodeId] = []
        for node, change in changed.items():
            record, told = self.members.get(node), self._told.get(node)
            if record is None or node in masked:
                if self._told.pop(node, None) is not None:
                    removed.append(node)
                continue
            member, entries = GroupMember(record.info, record.attributes), self._entries[node]
            if told is None:
                changes[node] = MemberChange(member, entries, b"")
            else:
                difference = diff(told.entries, entries) if change is None else change
                if told.member != member or any(difference):
                    changes[node] = MemberChange(None if told.member == member else member, *difference)
            self._told[node] = _Shown(member, entries)
        size = (len(self._told), is_watched)
        promoted, self._unreported = b"".join(sorted(self._unreported)), set()
        is_same = size == self._told_size and self.split == self._told_split
        if is_same and not (changes or removed or promoted):
            return None
        self._told_size, self._told_split = size, self.split
        return TableChanged(group, changes, tuple(removed), *size, promoted, self.split)


def _join(first: _EntriesChange | None, second: _EntriesChange | None) -> _EntriesChange | None:
    """Return the net change of two changes; None if the first or the second change is unknown."""
    return None if first is None or second is None else compose(first, second)
