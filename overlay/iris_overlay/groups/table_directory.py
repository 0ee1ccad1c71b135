"""The directory of a table: a directory whose members have entries, and a log of the changes of the entries."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_overlay.groups.directory import Directory, Outcome
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX, apply, apply_exactly, checksum, compose, count, diff
from iris_overlay.groups.messages import STAMP_SHIFT
from iris_overlay.groups.promotions import EntryCounts, Promotions
from iris_overlay.groups.splits import SplitChoice, SplitLog
from iris_overlay.groups.table_parts import ROW_BYTES, record_bytes

if TYPE_CHECKING:
    from iris_overlay.groups.directory import DirectoryMember
    from iris_overlay.groups.messages import Claim, MemberRecord
    from iris_overlay.groups.splits import TableSplit
    from iris_overlay.ids import GroupId, NodeId

#: The largest size of the records and entries of a table, as `TablePart` messages. Too small: claims are refused. Too large: a
#: view has more than `TABLE_PARTS_MAX` parts, and takes memory at the root, its copies and its watchers.
TABLE_BYTES_MAX: Final = 24 * 1024 * 1024

#: The number of changes kept in a table's log. Too small: a watcher that missed more is sent the whole table. Too large: memory
#: of about 400 bytes for each change.
TABLE_LOG_MAX: Final = 4096

#: The largest size of the entries in a table's log. Too small: as for `TABLE_LOG_MAX`. Too large: memory at each root.
TABLE_LOG_BYTES_MAX: Final = 1024 * 1024


class TableChange(NamedTuple):
    """The net change of a member since a version."""

    base: int
    """The member's stamp at that version; 0 if it was no member."""
    is_new: bool
    """Whether the receiver needs the record: the member is new, or its info or attributes changed."""
    added: bytes
    """Packed entries; if the node is no member, without meaning."""
    removed: bytes
    """Packed entries; likewise."""


class TableDirectory(Directory):
    """The directory of a table, or a copy of it.

    Attributes:
        size_bytes: The size of its records and entries as `TablePart` messages.
        promotions: The promoted entries.
        splits: Its split.
        promoted: The entries promoted by `count_entries` or `promote` since the owner emptied the list.
    """

    __slots__ = ("_changes", "_choice", "_counts", "_floor", "_log_bytes", "promoted", "promotions", "size_bytes", "splits")

    def __init__(self, group: GroupId, version: int) -> None:
        super().__init__(group, version)
        self.size_bytes = 0
        self.promotions = Promotions()
        self.splits = SplitLog()
        self.promoted: list[bytes] = []
        self._choice: SplitChoice | None = None  # likewise
        self._counts: EntryCounts | None = None  # none of a copy
        # The changes after the version _floor: for each the version after it.
        self._changes: deque[tuple[int, NodeId, TableChange]] = deque()
        self._floor = version
        self._log_bytes = 0

    def claim(self, claim: Claim, record: MemberRecord, expires: float) -> Outcome:
        """Add, change or renew a member by its claim, unless a newer entry for the node exists.

        Args:
            claim: The claim.
            record: The record of the member, with the stamp of the claim.
            expires: The expiry without renewal.

        Returns:
            INCOMPLETE if the claim does not apply to the entries here, or leads to others than the member has.
        """
        node, member = record.info.id, self.members.get(record.info.id)
        entries: bytes | None = None
        exact: tuple[bytes, bytes] | None = None
        if member is not None and member.record.stamp == claim.stamp:
            entries = member.entries
        elif claim.base == 0:
            entries = claim.added
        elif member is not None and member.record.stamp == claim.base:
            entries, added, removed = apply_exactly(member.entries, claim.added, claim.removed)
            exact = added, removed
        if entries is not None and count(entries) == claim.count and checksum(entries) == claim.checksum:
            return self.register(record, expires, entries, exact)
        tombstone = self.tombstones.get(node)
        if tombstone is not None and record.stamp <= tombstone[0]:
            return self.register(record, expires)  # which refuses it, and says why
        is_outdated = member is not None and record.stamp < member.record.stamp
        return Outcome.OUTDATED if is_outdated else Outcome.INCOMPLETE

    def register(
        self, record: MemberRecord, expires: float, entries: bytes = b"", exact: tuple[bytes, bytes] | None = None
    ) -> Outcome:
        """Add or renew a member with all of its entries, unless a newer entry for the node exists.

        Args:
            record: The member.
            expires: The expiry without renewal.
            entries: The packed entries.
            exact: The added and removed ones, if known; to find them takes milliseconds for a member with many entries.
        """
        member = self.members.get(record.info.id)
        before = None if member is None else (member.record, member.entries)
        growth = _member_bytes(record, entries) - (0 if before is None else _member_bytes(*before))
        if len(entries) > ENTRIES_BYTES_MAX or (growth > 0 and self.size_bytes + growth > TABLE_BYTES_MAX):
            return Outcome.FULL
        outcome = super().register(record, expires, entries)
        if outcome is Outcome.CHANGED:
            self.size_bytes += growth
            if before is None:
                self._note(record.info.id, TableChange(0, True, entries, b""))
            else:
                is_new = (before[0].info, before[0].attributes) != (record.info, record.attributes)
                self._note(record.info.id, TableChange(before[0].stamp, is_new, *(exact or diff(before[1], entries))))
        return outcome

    def count_entries(self, entries_max: int) -> None:
        """Promote the entries of many nodes, and split a table with too many entries: this is the table of the root.

        Args:
            entries_max: The number of entries beyond which the table is split.
        """
        self._counts, self._choice = EntryCounts(), SplitChoice(entries_max)
        for member in self.members.values():
            self._count(member.entries, b"")

    def promote(self, entries: bytes) -> bool:
        """Promote packed entries, in a version of their own; return whether some were not promoted before."""
        missing = self.promotions.missing(entries)
        if not missing:
            return False
        self.version += 1
        self._promote_many(missing)
        return True

    @property
    def entry_count(self) -> int:
        """The number of all entries, in the table of the root."""
        return 0 if self._counts is None else self._counts.total

    def split(self, told: TableSplit) -> bool:
        """Split the table as another root did, in a version of its own; return whether the split changed."""
        if not told.ways or not self.splits.add(told, self.version + 1):
            return False
        self.version += 1
        return True

    def extend(self, node: NodeId, stamp: int, added: bytes) -> None:
        """Add further entries to a member of a copy that arrives in several parts; harmless if another stamp is here."""
        member = self.members.get(node)
        if member is None or member.record.stamp != stamp:
            return
        entries = apply(member.entries, added)
        growth = len(entries) - len(member.entries)
        if len(entries) <= ENTRIES_BYTES_MAX and self.size_bytes + growth <= TABLE_BYTES_MAX:
            member.entries = entries
            self.size_bytes += growth

    def discard(self, node: NodeId) -> None:
        """Remove a member from a copy without a trace, because the member expired at the owner; harmless if unknown."""
        member = self.members.pop(node, None)
        if member is not None:
            self.size_bytes -= _member_bytes(member.record, member.entries)

    def begin_epoch(self, above: int = 0) -> None:
        """Raise the version to a new epoch, beyond `above` too. So every follower has to be sent the whole table."""
        super().begin_epoch(above)
        self._changes.clear()
        self._log_bytes = 0
        self._floor = self.version

    def changes_since(self, version: int) -> dict[NodeId, TableChange] | None:
        """Return the net changes of the nodes added, removed or changed after a version, the last change first.

        Returns:
            None if the log does not reach back to the version.
        """
        if version >> STAMP_SHIFT != self.version >> STAMP_SHIFT or not self._floor <= version <= self.version:
            return None
        net: dict[NodeId, TableChange] = {}
        for logged, node, change in reversed(self._changes):
            if logged <= version:
                break
            later = net.get(node)
            if later is not None:
                entries = compose((change.added, change.removed), (later.added, later.removed))
                change = TableChange(change.base, change.is_new or later.is_new, *entries)
            net[node] = change
        return net

    def _delete(self, node: NodeId) -> None:
        member: DirectoryMember = self.members[node]
        self.size_bytes -= _member_bytes(member.record, member.entries)
        super()._delete(node)
        self._note(node, TableChange(member.record.stamp, False, b"", member.entries))

    def _promote_many(self, entries: list[bytes]) -> None:
        """Promote entries in the present version."""
        if entries:
            self.promoted += self.promotions.add(entries, self.version)

    def _count(self, added: bytes, removed: bytes) -> None:
        """Count a change; promote entries and split the table in the present version."""
        if self._counts is None or self._choice is None:
            return
        self._promote_many(self._counts.change(added, removed))
        if self.splits:
            self.splits.add_shapes(added, self.version)
        else:
            chosen = self._choice.choose(self._counts.total, self._counts.distinct())
            self.splits.add(chosen, self.version)

    def _note(self, node: NodeId, change: TableChange) -> None:
        self._count(change.added, change.removed)
        self._changes.append((self.version, node, change))
        self._log_bytes += len(change.added) + len(change.removed)
        while len(self._changes) > TABLE_LOG_MAX or self._log_bytes > TABLE_LOG_BYTES_MAX:
            self._floor, _, oldest = self._changes.popleft()
            self._log_bytes -= len(oldest.added) + len(oldest.removed)


def _member_bytes(record: MemberRecord, entries: bytes) -> int:
    return record_bytes(record) + ROW_BYTES + len(entries)
