"""The root of one table: tell the followers the changes of entries.

Unlike other groups, a table has no tree, because it has no multicasts; and watchers get all of it, never a sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from iris_overlay.groups.directory import Outcome
from iris_overlay.groups.entries import ENTRIES_MAX, ENTRY_BYTES, count, split
from iris_overlay.groups.followers import ATTEMPTS_WAITED_MAX, FollowerKind
from iris_overlay.groups.messages import (
    COPY_REMOVED_MAX,
    TABLE_CHANGE_BYTES_MAX,
    TABLE_PART_BYTES_MAX,
    TABLE_PARTS_MAX,
    TABLE_REMOVED_MAX,
    VIEW_MAX,
    EntryRow,
    Full,
    Promoted,
    TableCopy,
    TablePart,
)
from iris_overlay.groups.root import GroupRoot
from iris_overlay.groups.splits import SPLIT_BYTES_MAX, unpack_split
from iris_overlay.groups.table_parts import ROW_BYTES, PartContent, checksum_of, cut, info_bytes, record_bytes
from iris_overlay.ids import ID_BYTES

if TYPE_CHECKING:
    from iris_overlay.environment import Rng
    from iris_overlay.groups.followers import Follower
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.messages import Claim, GroupMessage, MemberRecord
    from iris_overlay.groups.splits import TableSplit
    from iris_overlay.groups.table_directory import TableChange, TableDirectory
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

#: The size of a part without its root, records, rows and removed nodes: an id, four numbers, six headers.
_HEADING_BYTES: Final = 128

#: The size of a removed node in a part, with its header.
_REMOVED_BYTES: Final = ID_BYTES + 2


#: The largest number of watchers that get a whole table of several parts at once, as after a takeover; others wait for their
#: acknowledgements. Too small: the last watchers get it after many round trips. Too large: memory, because each link queues a
#: table.
WHOLE_TABLES_MAX: Final = 8

#: The table has so many times the entries of a table that is split, and its members are asked for fewer. Too small: members are
#: asked while entries move. Too large: the table takes memory at the root, its copies and its watchers.
FULL_FACTOR: Final = 4

#: The number of claims after which a member is asked again for fewer entries. Too small: messages. Too large: a lost question
#: leaves the table full.
ASKED_CLAIMS: Final = 64


class TableRoot(GroupRoot):
    """The root of one table: keep the directory, and tell followers of changes."""

    __slots__ = ("_asked", "_asked_claims", "_checksum", "_entries_max", "_parts", "_turns", "table")

    def __init__(
        self, table: TableDirectory, local: NodeInfo, rng: Rng, outbox: Outbox, *, entries_max: int = ENTRIES_MAX
    ) -> None:
        # The directory of the base class.
        self.table = table
        # The parts made in this turn, by the version to which they apply, and by whether they go to watchers.
        self._parts: dict[tuple[int, bool], list[TablePart]] = {}
        # The last part with a checksum.
        self._checksum: TablePart | None = None
        # The number of watchers that may get the whole table in this turn.
        self._turns = 0
        self._entries_max = entries_max
        # The member that was last asked for fewer entries, with the version of them; and the number of claims since.
        self._asked: tuple[NodeId, int] | None = None
        self._asked_claims = 0
        super().__init__(table, local, rng, outbox)
        table.count_entries(entries_max)

    def claim(self, claim: Claim, record: MemberRecord, expires: float) -> Outcome:
        """Add, change or renew a member by its claim, and make messages to the followers due."""
        is_promoting = self.promote(claim.promoted)
        self.split(unpack_split(claim.split))
        outcome = self.table.claim(claim, record, expires)
        if outcome is Outcome.CHANGED:
            self._changed()
            self._tell_promoted(record.info, claim.added)
            self._tell_full()
        elif outcome is Outcome.RENEWED and not is_promoting:
            self._tell_promoted(record.info, self.table.members[record.info.id].entries)
        return outcome

    def promote(self, entries: bytes) -> bool:
        """Promote packed entries, as another root did; return whether some were not promoted before."""
        is_new = self.table.promote(entries)
        if is_new:
            self._changed()
        return is_new

    def split(self, told: TableSplit) -> None:
        """Split the table as another root did."""
        if self.table.split(told):
            self._changed()

    def known_split(self) -> TableSplit:
        """Return as much of the split as all followers have acknowledged, but those that are silent."""
        unsettled = self.followers.unsettled.values()
        told = (follower.told for follower in unsettled if follower.attempts < ATTEMPTS_WAITED_MAX)
        return self.table.splits.known(min(told, default=self.table.version))

    def parts_unwatched(self, version: int) -> list[TablePart]:
        """Return the changes since a version, or else the whole table, for a node that finds no room as a watcher."""
        parts = self._table_parts(version, is_watched=False)
        self._parts.clear()
        return parts

    def begin_epoch(self, above: int = 0) -> None:
        """Begin a new epoch; watchers may have the table already."""
        super().begin_epoch(above)
        for watcher in self.followers.members[FollowerKind.WATCHER].values():
            watcher.has_view = True

    def needs(self, peer: NodeId) -> bool:
        """Return whether to keep the link to a node: a follower, or a member of a small table, which needs it as well."""
        members = self.table.members
        return super().needs(peer) or (peer in members and len(members) <= VIEW_MAX)

    def flush(self) -> list[tuple[FollowerKind, Follower]]:
        """Send the messages that are due; return the followers they went to."""
        watchers = self.followers.members[FollowerKind.WATCHER].values()
        self._tell_holders()
        self._turns = WHOLE_TABLES_MAX - sum(1 for watcher in watchers if watcher.told < 0 <= watcher.sent)
        told = super().flush()
        self._parts.clear()
        return told

    def _tell_full(self) -> None:
        """Ask the member with most entries for fewer if there are far too many; of several the one that changed least lately.

        So the newest member is not asked because others were there first. A member is asked again after its next change, or
        after ASKED_CLAIMS claims.
        """
        if self.table.entry_count <= FULL_FACTOR * self._entries_max:
            return
        member = max(self.table.members.values(), key=lambda each: (len(each.entries), -each.version))
        asked = (member.record.info.id, member.version)
        if asked == self._asked and self._asked_claims < ASKED_CLAIMS:
            self._asked_claims += 1
            return
        self._asked, self._asked_claims = asked, 0
        self._outbox.send(member.record.info, Full(self.table.group, count(member.entries) // 2))

    def _tell_promoted(self, member: NodeInfo, entries: bytes) -> None:
        """Tell a member which of these entries of it are promoted, unless all members will be told in this turn."""
        promoted = self.table.promotions.among(entries)
        if promoted and not self.table.promoted:
            self._outbox.send(member, Promoted(self.table.group, promoted))

    def _tell_holders(self) -> None:
        """Tell the members that have entries promoted in this turn. This reads all entries, but a promotion is rare."""
        promoted, self.table.promoted = frozenset(self.table.promoted), []
        if not promoted:
            return
        for member in self.table.members.values():
            own = promoted.intersection(split(member.entries))
            if own:
                self._outbox.send(member.record.info, Promoted(self.table.group, b"".join(sorted(own))))

    def _has_turn(self, kind: FollowerKind, follower: Follower) -> bool:
        if kind is FollowerKind.WATCHER and follower.is_stale and self._is_large and not follower.has_view:
            self._turns -= 1
            return self._turns >= 0
        return True

    def _views(self, watcher: Follower) -> list[GroupMessage]:
        if watcher.is_stale and watcher.has_view and self._is_large:
            watcher.has_view = False  # if it has another table, it says so, and gets this one
            return [self._checksum_part()]
        parts = self._table_parts(0 if watcher.is_stale else watcher.told, is_watched=True)
        if len(parts) > 1:
            watcher.path = None  # a large table goes over a link, not along the way of the question
        return list(parts)

    @property
    def _is_large(self) -> bool:
        """Whether a whole table takes several parts."""
        return self.table.size_bytes > TABLE_PART_BYTES_MAX

    def _checksum_part(self) -> TablePart:
        """Return the part with the checksum of the table in place of its rows."""
        if self._checksum is None or self._checksum.version != self.table.version:
            rows = ((node, member.record.stamp, member.entries) for node, member in self.table.members.items())
            (part,) = self._parts_of(0, [PartContent()], [], is_watched=True)
            self._checksum = structs.replace(part, checksum=checksum_of(rows))
        return self._checksum

    def _table_parts(self, base: int, *, is_watched: bool) -> list[TablePart]:
        """Return the changes since a version as messages; the whole table if the version is 0 or the changes are too many."""
        parts = self._parts.get((base, is_watched))
        if parts is None:
            parts = self._changed_parts(base, is_watched=is_watched) if base else None
            if parts is None:
                parts = self._whole_parts(is_watched=is_watched)
            self._parts[base, is_watched] = parts
        return parts

    def _changed_parts(self, base: int, *, is_watched: bool) -> list[TablePart] | None:
        changes = self.table.changes_since(base)
        if changes is None:
            return None
        members = self.table.members
        removed = [node for node in changes if node not in members]
        rows = [
            (members[node].record if change.is_new else None, self._row(node, change))
            for node, change in changes.items()
            if node in members
        ]
        chunks = cut(rows, self._room(min(len(removed), TABLE_REMOVED_MAX)))
        if max(len(chunks), -(-len(removed) // TABLE_REMOVED_MAX)) > TABLE_PARTS_MAX:
            return None
        return self._parts_of(base, chunks, removed, is_watched=is_watched)

    def _whole_parts(self, *, is_watched: bool) -> list[TablePart]:
        members = self.table.members.values()
        rows = [(each.record, EntryRow(each.record.info.id, 0, each.record.stamp, each.entries)) for each in members]
        return self._parts_of(0, cut(rows, self._room(0)), [], is_watched=is_watched)

    def _room(self, removed: int) -> int:
        """Return the room for records and rows in a part with a number of removed nodes (bytes)."""
        fixed = _HEADING_BYTES + info_bytes(self._local) + len(self.table.promotions) * ENTRY_BYTES + SPLIT_BYTES_MAX
        return TABLE_PART_BYTES_MAX - fixed - removed * _REMOVED_BYTES

    def _parts_of(self, base: int, chunks: list[PartContent], removed: list[NodeId], *, is_watched: bool) -> list[TablePart]:
        count = max(len(chunks), -(-len(removed) // TABLE_REMOVED_MAX))
        chunks = [*chunks, *(PartContent() for _ in range(count - len(chunks)))]
        promoted, told = self.table.promotions.since(base), self.table.splits.known().pack()
        return [
            TablePart(
                self._local,
                self.table.group,
                base,
                self.table.version,
                len(self.table.members),
                is_watched,
                number,
                count,
                chunk.members,
                chunk.rows,
                removed[number * TABLE_REMOVED_MAX : (number + 1) * TABLE_REMOVED_MAX],
                b"" if number else promoted,
                split=b"" if number else told,
            )
            for number, chunk in enumerate(chunks)
        ]

    def _row(self, node: NodeId, change: TableChange) -> EntryRow:
        """Return the row of a changed member: the change, or all entries if they are fewer."""
        member = self.table.members[node]
        if change.base == 0 or len(change.added) + len(change.removed) > len(member.entries):
            return EntryRow(node, 0, member.record.stamp, member.entries)
        return EntryRow(node, change.base, member.record.stamp, change.added, change.removed)

    def _copy(self, copy: Follower) -> list[GroupMessage]:
        table = self.table
        changes = None if copy.is_stale else table.changes_since(copy.told)
        watched = self._watched_since(copy.told)
        if changes is None or watched is None:
            return list(self.copy_parts())
        rows = [self._row(node, change) for node, change in changes.items() if node in table.members]
        records, removals = table.records(changes), table.removals(changes)
        size = sum(map(record_bytes, records)) + sum(ROW_BYTES + len(row.added) + len(row.removed) for row in rows)
        if size > TABLE_CHANGE_BYTES_MAX or len(removals) > COPY_REMOVED_MAX:
            return list(self.copy_parts())
        watchers = self.followers.members[FollowerKind.WATCHER]
        return [
            TableCopy(
                table.group,
                copy.told,
                table.version,
                True,
                True,
                records,
                removals,
                [watchers[node].info for node in watched if node in watchers],
                [node for node in watched if node not in watchers],
                False,
                rows,
                table.promotions.since(copy.told),
                table.splits.known().pack(),
            )
        ]

    def _enter(self, node: NodeId) -> None:
        """Do nothing: there is no tree."""

    def _describe(self, node: NodeId) -> None:
        """Do nothing: there are neither samples nor a tree."""

    def _exit(self, node: NodeId) -> None:
        self.gone.append(node)
        self.accused.pop(node, None)

    def _fit_mode(self) -> bool:
        return False
