"""The promoted entries of a table: those of so many nodes that a group of their own serves them better.

A promotion is for ever. So two diverged directories of a table are merged by taking the promotions of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.entries import ENTRY_BYTES, count, is_fixed, split

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The number of nodes beyond which an entry is promoted. Too small: publications are signed and pass a tree of nodes, where
#: direct copies are faster. Too large: a publisher sends that many copies of each publication.
PROMOTED_NODES: Final = 256

#: The largest number of promoted entries of one table; further ones stay direct. Too small: as a larger PROMOTED_NODES. Too
#: large: a hostile member has every node join that many groups.
PROMOTED_MAX: Final = 1024

#: The largest size of the packed promoted entries of one table.
PROMOTED_BYTES_MAX: Final = PROMOTED_MAX * ENTRY_BYTES


class Promotions:
    """The promoted entries of a table, each with the version of the table from which it is promoted."""

    __slots__ = ("_versions",)

    def __init__(self) -> None:
        self._versions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, entries: Iterable[bytes], version: int) -> list[bytes]:
        """Promote entries, up to PROMOTED_MAX in all; return the new ones.

        Args:
            entries: Packed entries, one each.
            version: The version of the table that says so.
        """
        added = []
        for entry in entries:
            if entry not in self._versions and len(self._versions) < PROMOTED_MAX:
                self._versions[entry] = version
                added.append(entry)
        return added

    def missing(self, packed: bytes) -> list[bytes]:
        """Return the packed entries that are not promoted, one each."""
        return [entry for entry in split(packed) if entry not in self._versions] if packed else []

    def since(self, version: int) -> bytes:
        """Return the entries promoted after a version, packed; all of them after version 0."""
        # The promotions of an incomplete copy have version 0, too.
        entries = (entry for entry, promoted in self._versions.items() if promoted > version or not version)
        return b"".join(sorted(entries))

    def among(self, packed: bytes) -> bytes:
        """Return the packed entries that are promoted."""
        return b"".join(entry for entry in split(packed) if entry in self._versions) if self._versions else b""


class EntryCounts:
    """The number of nodes with each entry of a table, at its root.

    Attributes:
        total: The number of all entries.
    """

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self.total = 0

    def distinct(self) -> Iterable[bytes]:
        """Return the entries, each once."""
        return self._counts

    def change(self, added: bytes, removed: bytes) -> list[bytes]:
        """Count changed entries of one node; return the added ones that more than PROMOTED_NODES nodes have.

        Fixed entries are not counted.
        """
        counts = self._counts
        self.total += count(added) - count(removed)
        for entry in split(removed):
            if is_fixed(entry):
                continue
            left = counts.get(entry, 0) - 1
            if left > 0:
                counts[entry] = left
            else:
                counts.pop(entry, None)
        many = []
        for entry in split(added):
            if is_fixed(entry):
                continue
            nodes = counts[entry] = counts.get(entry, 0) + 1
            if nodes > PROMOTED_NODES:
                many.append(entry)
        return many
