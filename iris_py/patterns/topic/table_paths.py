"""The paths of the tables of interest: in which table an entry is, and in which tables the entries of a topic are.

A table with too many entries is split into 16 child tables (docs/design.md 8.13). A path has a byte for each level below the
top table: the way of the split (by stem or by tag) in the upper half, and the 4 bits that select the child in the lower half.
Each level of a way uses the next 4 bits of the stem or tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.splits import BY_STEM, BY_TAG
from iris_py.patterns.topic.shapes import WILD_STEM, can_match, is_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.groups.splits import TableSplit
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import Entry, EntryHasher

#: The path of the top table.
TOP: Final = b""
#: Levels of child tables; splits of tables below are ignored. Too small: the tables of more than 16^8 entries grow beyond their
#: bound. Too large: hostile members make publishers look up that many tables for one topic.
DEPTH_MAX: Final = 8

_CHILD_BITS: Final = 4
_CHILD_MASK: Final = (1 << _CHILD_BITS) - 1
_HASH_BITS: Final = 64


def child_path(path: bytes, way: int, value: int) -> bytes:
    """Return the path of the child table for a stem or tag.

    Args:
        path: The path of the table that is split.
        way: ``BY_STEM`` or ``BY_TAG``.
        value: The stem or the tag.
    """
    level = sum(1 for each in path if each >> _CHILD_BITS == way)
    bits = value >> (_HASH_BITS - _CHILD_BITS * (level + 1)) & _CHILD_MASK
    return path + bytes([way << _CHILD_BITS | bits])


def place_of(entry: Entry, split_of: Callable[[bytes], TableSplit]) -> bytes:
    """Return the path of the last known table on the way of an entry: there it is claimed.

    Args:
        entry: The entry.
        split_of: Returns the split of the table with a path, as far as it is known.
    """
    path = TOP
    while entry.stem != WILD_STEM and len(path) < DEPTH_MAX:
        split = split_of(path)
        if split.ways & BY_STEM:
            path = child_path(path, BY_STEM, entry.stem)
        elif split.ways & BY_TAG and entry.shape in split.shapes:
            path = child_path(path, BY_TAG, entry.tag)
        else:
            break
    return path


class TopicWay:
    """The way of a topic through the tables.

    Args:
        tokens: The tokens of the topic.
        hasher: The hash functions of the network.
    """

    __slots__ = ("_hasher", "_stem", "_tokens")

    def __init__(self, tokens: Tokens, hasher: EntryHasher) -> None:
        self._tokens = tokens
        self._hasher = hasher
        self._stem = hasher.stem(tokens[0])

    def children(self, path: bytes, split: TableSplit) -> set[bytes]:
        """Return the paths of the child tables that may have entries for the topic.

        Args:
            path: The path of the table that is split.
            split: Its split.
        """
        found: set[bytes] = set()
        if len(path) >= DEPTH_MAX:
            return found
        if split.ways & BY_STEM:
            found.add(child_path(path, BY_STEM, self._stem))
        if split.ways & BY_TAG:
            count = len(self._tokens)
            shapes = [shape for shape in split.shapes if can_match(shape, count) and is_entry(self._stem, shape)]
            found |= {child_path(path, BY_TAG, self._hasher.tag(shape, self._tokens)) for shape in shapes}
        return found
