"""The split of a table with too many entries: which entries belong into other tables, and by which bits.

The root decides it alone, and tells it to watchers, copies and members. Which other tables these are is for the layer above. A
split is for ever. So two diverged directories of a table are merged by taking the splits of both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_overlay.groups.entries import split

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The way of a split by bits of the stem: the table has several stems.
BY_STEM: Final = 1

#: The way of a split by bits of the tag: the table has one stem.
BY_TAG: Final = 2

#: The largest number of shapes that belong into the tables of a split by tag; entries with others stay. Too small: entries of
#: programs with patterns of many forms stay. Too large: a watcher looks for an entry under each shape.
SPLIT_SHAPES_MAX: Final = 64

_SHAPE: Final = struct.Struct(">I")

#: The largest size of a packed split.
SPLIT_BYTES_MAX: Final = 1 + SPLIT_SHAPES_MAX * _SHAPE.size

#: A table whose entries belong into no other tables, and that has this part of its present entries more, is looked at again.
_AGAIN: Final = 16

_STEM_BYTES: Final = 8
_NO_STEM: Final = bytes(_STEM_BYTES)
_TAG_AT: Final = 12


class TableSplit(NamedTuple):
    """The split of a table."""

    ways: int = 0
    """BY_STEM, BY_TAG, both (two separate roots decided differently) or neither."""
    shapes: frozenset[int] = frozenset()
    """The shapes of the entries that belong elsewhere by their tag."""

    def pack(self) -> bytes:
        """Return the split in at most SPLIT_BYTES_MAX; empty for none."""
        return bytes([self.ways]) + b"".join(map(_SHAPE.pack, sorted(self.shapes))) if self.ways else b""

    def united(self, other: TableSplit) -> TableSplit:
        """Return the split with all of two."""
        shapes = self.shapes | other.shapes
        if len(shapes) > SPLIT_SHAPES_MAX:
            shapes = self.shapes | frozenset(sorted(other.shapes - self.shapes)[: SPLIT_SHAPES_MAX - len(self.shapes)])
        return TableSplit(self.ways | other.ways, shapes)


#: The split of a table that is not split.
UNSPLIT: Final = TableSplit()


def unpack_split(packed: bytes) -> TableSplit:
    """Return a packed split."""
    if not packed:
        return UNSPLIT
    return TableSplit(packed[0], frozenset(shape for (shape,) in _SHAPE.iter_unpack(packed[1:])))


def is_split(data: bytes) -> bool:
    """Return whether bytes are a packed split."""
    if not data:
        return True
    if not 0 < data[0] <= BY_STEM | BY_TAG or (len(data) - 1) % _SHAPE.size or len(data) > SPLIT_BYTES_MAX:
        return False
    return unpack_split(data).pack() == data and (data[0] & BY_TAG > 0 or len(data) == 1)


class SplitLog:
    """The split of a table, with the version of the table from which each part of it is known."""

    __slots__ = ("_shapes", "_ways")

    def __init__(self) -> None:
        self._ways: dict[int, int] = {}
        self._shapes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ways)

    def add(self, told: TableSplit, version: int) -> bool:
        """Unite the split with another one; return whether it changed.

        Args:
            told: The other one.
            version: The version of the table that says so.
        """
        ways = [way for way in (BY_STEM, BY_TAG) if told.ways & way and way not in self._ways]
        room = SPLIT_SHAPES_MAX - len(self._shapes)
        shapes = sorted(told.shapes.difference(self._shapes))[:room]
        self._ways.update(dict.fromkeys(ways, version))
        self._shapes.update(dict.fromkeys(shapes, version))
        return bool(ways or shapes)

    def add_shapes(self, packed: bytes, version: int) -> bool:
        """Note the shapes of packed entries that a table split by tag gets; return whether there was a new one."""
        if not packed or BY_TAG not in self._ways:
            return False
        return self.add(TableSplit(BY_TAG, _shapes_of(split(packed))), version)

    def known(self, version: int | None = None) -> TableSplit:
        """Return the split, or as much of it as was known at a version."""
        ways = sum(way for way, since in self._ways.items() if version is None or since <= version)
        shapes = (shape for shape, since in self._shapes.items() if version is None or since <= version)
        return TableSplit(ways, frozenset(shapes) if ways & BY_TAG else frozenset())


class SplitChoice:
    """The choice of a split, at the root of a table.

    Args:
        entries_max: The number of entries beyond which the table is split.
    """

    __slots__ = ("_again_at",)

    def __init__(self, entries_max: int) -> None:
        self._again_at = entries_max

    def choose(self, count: int, distinct: Iterable[bytes]) -> TableSplit:
        """Return the split for a table; none if it is small enough, or a split would move nothing or everything to one place.

        Args:
            count: The number of its entries, those of each member.
            distinct: Its packed entries, one each, each once.
        """
        if count <= self._again_at:
            return UNSPLIT
        movable = [entry for entry in distinct if entry[:_STEM_BYTES] != _NO_STEM]
        if len({entry[:_STEM_BYTES] for entry in movable}) > 1:
            return TableSplit(BY_STEM)
        if len(movable) > 1:
            return UNSPLIT.united(TableSplit(BY_TAG, _shapes_of(movable)))
        self._again_at = count + count // _AGAIN
        return UNSPLIT


def _shapes_of(entries: Iterable[bytes]) -> frozenset[int]:
    """Return the shapes of those entries that have a stem."""
    packed = {entry[_STEM_BYTES:_TAG_AT] for entry in entries if entry[:_STEM_BYTES] != _NO_STEM}
    return frozenset(int.from_bytes(shape, "big") for shape in packed)
