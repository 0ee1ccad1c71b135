"""The prefix table: a node per prefix of the local id and different next digit (Rowstron and Druschel 2001, section 2.2).

Of several candidates for a place the nearest one is kept: first by zone, then by round-trip time. An entry may be hearsay and
may be dead; its use then costs a detour, and removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.ids import DIGIT_BITS, ID_BITS, is_nearer, position

if TYPE_CHECKING:
    from collections.abc import Container

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

COLUMNS: Final = 1 << DIGIT_BITS

#: The largest number of entries in all; with the leaf set below 150 nodes. A million nodes fill five rows, 75 entries; further
#: rows would repeat the leaf set.
ENTRIES_MAX: Final = 128

#: A new node replaces an entry only below this share of its round-trip time, so that entries do not flap.
IMPROVEMENT: Final = 0.8


def common_zone_parts(a: str, b: str) -> int:
    """Return the number of leading parts shared by two zones: 1 for ``eu-west/a`` and ``eu-west/b``."""
    if a == b:
        return 1 + a.count("/")
    count = 0
    for part_a, part_b in zip(a.split("/"), b.split("/"), strict=False):
        if part_a != part_b:
            break
        count += 1
    return count


class RoutingTable:
    """The routing table of a node: one entry for each shared prefix and next digit, ENTRIES_MAX entries in all.

    The row of an entry is the number of leading id digits that it shares with the local node; the column is its next digit.
    """

    __slots__ = ("_entries", "_local", "_zone")

    def __init__(self, local: int, zone: str = "") -> None:
        self._local = local
        self._zone = zone
        # By row * COLUMNS + column. The time is None until measured.
        self._entries: dict[int, tuple[NodeInfo, float | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, node: NodeId) -> bool:
        entry = self._entries.get(self._place(position(node)))
        return entry is not None and entry[0].id == node

    def get(self, node: NodeId) -> NodeInfo | None:
        """Return the entry of a node, or None."""
        entry = self._entries.get(self._place(position(node)))
        return entry[0] if entry is not None and entry[0].id == node else None

    def consider(self, info: NodeInfo, rtt_s: float | None = None) -> bool:
        """Keep a node if its place is free or has a farther node; return whether it is new."""
        other = position(info.id)
        if other == self._local:
            return False
        place = self._place(other)
        entry = self._entries.get(place)
        if entry is None:
            if len(self._entries) >= ENTRIES_MAX:
                return False
        elif entry[0].id == info.id:
            if rtt_s is not None:
                self._entries[place] = (entry[0], rtt_s)
            return False
        elif not self._is_better(info, rtt_s, *entry):
            return False
        self._entries[place] = (info, rtt_s)
        return True

    def remove(self, node: NodeId) -> bool:
        """Remove a node; return whether it had an entry."""
        place = self._place(position(node))
        entry = self._entries.get(place)
        if entry is None or entry[0].id != node:
            return False
        del self._entries[place]
        return True

    def next_hop(self, key: int) -> NodeInfo | None:
        """Return the entry that shares more digits with the key than the local node does, or None."""
        entry = self._entries.get(self._place(key))
        return None if entry is None else entry[0]

    def detour(self, key: int, excluding: Container[NodeId]) -> NodeInfo | None:
        """Return the nearest entry to a key that is nearer than the local node and shares no fewer digits; or None."""
        least = (ID_BITS - (self._local ^ key).bit_length()) // DIGIT_BITS * COLUMNS
        best, best_place = None, self._local
        for place, (info, _) in self._entries.items():
            # Entries of a lower row share fewer digits with the local node than the key does, hence with the key as well.
            if place >= least and info.id not in excluding:
                other = position(info.id)
                if is_nearer(key, other, best_place):
                    best, best_place = info, other
        return best

    def row(self, row: int) -> list[NodeInfo]:
        """Return the entries that share a given number of leading digits with the local node."""
        first = row * COLUMNS
        return [self._entries[place][0] for place in range(first, first + COLUMNS) if place in self._entries]

    def rows(self) -> int:
        """Return the number of the last row with entries, plus one."""
        return max(self._entries, default=-COLUMNS) // COLUMNS + 1

    def entries(self) -> list[NodeInfo]:
        """Return all entries."""
        return [info for info, _ in self._entries.values()]

    def _place(self, other: int) -> int:
        """Return the place (row and column as one number) of a position; the local node's is beyond the last row."""
        row = (ID_BITS - (self._local ^ other).bit_length()) // DIGIT_BITS
        return row * COLUMNS + ((other >> (ID_BITS - DIGIT_BITS * (row + 1))) & (COLUMNS - 1) if row < 32 else 0)

    def _is_better(self, info: NodeInfo, rtt_s: float | None, present: NodeInfo, present_rtt_s: float | None) -> bool:
        if info.zone != present.zone:
            gain = common_zone_parts(self._zone, info.zone) - common_zone_parts(self._zone, present.zone)
            if gain:
                return gain > 0
        if rtt_s is None or present_rtt_s is None:
            return rtt_s is not None
        return rtt_s < IMPROVEMENT * present_rtt_s
