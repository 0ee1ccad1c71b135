"""Tables on the wire: cut records and rows of entries into parts of a bounded size, and put the parts together again."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import structs

from iris_overlay.groups.entries import ENTRY_BYTES
from iris_overlay.groups.messages import TABLE_CHECKSUM_BYTES, TABLE_PARTS_MAX, EntryRow, TablePart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.groups.messages import MemberRecord
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

#: The size of a row without entries: an id (18 bytes), two stamps (18), three headers.
ROW_BYTES: Final = 48

#: The size of a record without its parts of variable size: an id (18 bytes), two numbers (18), six headers.
_RECORD_BYTES: Final = 56

#: The size of the header of an address.
_ADDRESS_BYTES: Final = 3


def info_bytes(info: NodeInfo) -> int:
    """Return an upper bound of the encoded size of a node info."""
    addresses = sum(len(address) + _ADDRESS_BYTES for address in info.addresses)
    return _RECORD_BYTES + addresses + len(info.zone)


def record_bytes(record: MemberRecord) -> int:
    """Return an upper bound of the encoded size of a member's record."""
    return info_bytes(record.info) + len(record.attributes) + len(record.permit)


def checksum_of(rows: Iterable[tuple[NodeId, int, bytes]]) -> bytes:
    """Return the checksum of a table; it takes a millisecond for each MiB.

    Args:
        rows: The node, the stamp and the packed entries of each member, in any order. The stamp stands for the record.
    """
    digest = blake2b(digest_size=TABLE_CHECKSUM_BYTES)
    for node, stamp, entries in sorted(rows):
        digest.update(node + stamp.to_bytes(8, "big") + len(entries).to_bytes(4, "big") + entries)
    return digest.digest()


class PartContent:
    """Records and rows that fit into one part.

    Attributes:
        members: The records.
        rows: The rows of entries.
    """

    __slots__ = ("members", "rows")

    def __init__(self) -> None:
        self.members: list[MemberRecord] = []
        self.rows: list[EntryRow] = []


def cut(items: Iterable[tuple[MemberRecord | None, EntryRow]], bytes_max: int) -> list[PartContent]:
    """Cut the changes of members into chunks; a row with more entries than fit into one continues in the next.

    Args:
        items: For each member the record, or None if the receiver knows it, and the row of entries.
        bytes_max: The largest encoded size of a chunk, above that of the largest record with one entry.

    Returns:
        The chunks, at least one.
    """
    chunks, room = [PartContent()], bytes_max
    for record, row in items:
        size = 0 if record is None else record_bytes(record)
        if room < size + ROW_BYTES + ENTRY_BYTES:
            chunks.append(PartContent())
            room = bytes_max
        if record is not None:
            chunks[-1].members.append(record)
            room -= size
        rest = row
        while room < ROW_BYTES + len(rest.added) + len(rest.removed):
            first, rest = _cut_row(rest, room - ROW_BYTES)
            chunks[-1].rows.append(first)
            chunks.append(PartContent())
            room = bytes_max
        chunks[-1].rows.append(rest)
        room -= ROW_BYTES + len(rest.added) + len(rest.removed)
    return chunks


def _cut_row(row: EntryRow, room: int) -> tuple[EntryRow, EntryRow]:
    """Cut a row after as many entries as there is room for (bytes)."""
    room -= room % ENTRY_BYTES
    removed = row.removed[:room]
    added = row.added[: room - len(removed)]
    first = structs.replace(row, added=added, removed=removed)
    rest = EntryRow(row.node, row.stamp, row.stamp, row.added[len(added) :], row.removed[len(removed) :])
    return first, rest


class PartCollection:
    """The received parts of one view or change of a table, in any order."""

    __slots__ = ("_first", "_parts")

    def __init__(self) -> None:
        # The first received part, with the fields that are the same in all.
        self._first: TablePart | None = None
        self._parts: dict[int, TablePart] = {}

    def add(self, part: TablePart) -> list[TablePart] | None:
        """Add a part; return all parts in order once they are complete, else None.

        A part of another view replaces the present parts: the root has sent a later view, or another node is the root.
        """
        if self._first is None or _heading(part) != _heading(self._first):
            self._first, self._parts = part, {}
        self._parts[part.number] = part
        if len(self._parts) < part.parts:
            return None
        parts = [self._parts[number] for number in range(part.parts)]
        self._first, self._parts = None, {}
        return parts

    def __len__(self) -> int:
        assert len(self._parts) <= TABLE_PARTS_MAX
        return len(self._parts)


def _heading(part: TablePart) -> tuple[object, ...]:
    return part.root.id, part.base, part.version, part.size, part.is_watched, part.parts
