"""The entries that stand for the subscriptions of a node in the table of interest (docs/design.md 8.2).

Subscriptions with one pattern share an entry. Beyond the bounds of a node, wider entries stand for several patterns
(:func:`~iris_py.patterns.topic.shapes.widen`), and the node drops what none of its subscriptions matches.

Counted subscriptions (docs/design.md 8.17) have entries of their own, which never become wider: publishers count the matches of
exactly this pattern.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN
from iris_py.patterns.topic.pattern_sets import reduced
from iris_py.patterns.topic.shapes import ENTRIES_MAX, NODE_SHAPES_MAX, shape_of, widen
from iris_py.wire.packets import NODE_COUNTED_MAX

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import Entry, EntryHasher

#: Entries that a node keeps in a table, however full. Too small: a lying root makes nodes receive most topics. Too large: a
#: table that cannot be split, of many nodes with few entries each, stays full.
WIDENED_MIN: Final = 16


class OwnEntry:
    """An entry of this node.

    Attributes:
        pattern: The tokens of its pattern.
        key: Its number on this node, equal in every generation of the secret.
        hashed: The entry in the table of each generation, by the id of the table.
        users: The patterns of the subscriptions that it stands for.
        is_counted: Whether publishers count its matches.
    """

    __slots__ = ("hashed", "is_counted", "key", "pattern", "users")

    def __init__(self, pattern: Tokens, key: int, *, is_counted: bool = False) -> None:
        self.pattern = pattern
        self.key = key
        self.is_counted = is_counted
        self.hashed: dict[bytes, Entry] = {}
        self.users: dict[Tokens, None] = {}

    def hash(self, table: bytes, hasher: EntryHasher) -> Entry:
        """Make the entry for the table of one generation, and return it."""
        entry = self.hashed[table] = hasher.entry(self.pattern, is_counted=self.is_counted)
        return entry


class OwnInterest:
    """The patterns of a node's subscriptions, and its entries.

    Attributes:
        entries: The entries that are not counted, by pattern.
        counted: The counted entries, by pattern.
    """

    def __init__(self) -> None:
        self.entries: dict[Tokens, OwnEntry] = {}
        self.counted: dict[Tokens, OwnEntry] = {}
        self._counted_users: Counter[Tokens] = Counter()  # number of counted subscriptions
        self._counts: dict[Tokens, int] = {}  # of subscriptions, by pattern
        self._shapes: dict[str, Counter[int]] = {}  # number of entries, by first token and shape
        self._covers: dict[Tokens, OwnEntry] = {}  # the entry of each pattern
        self._last_key = 0
        # With this number of patterns or fewer, wide entries are replaced by exact ones. 0 without wide entries.
        self._narrow_at = 0

    def all_entries(self) -> list[OwnEntry]:
        """Return the entries, with the counted ones."""
        return [*self.entries.values(), *self.counted.values()]

    def counts(self) -> dict[str, int]:
        """Return the number of entries by first token; ``*`` stands for any wildcard."""
        counts = Counter({token: shapes.total() for token, shapes in self._shapes.items()})
        counts.update(map(_first, self.counted))
        return dict(counts)

    def entry_of(self, pattern: Tokens, *, is_counted: bool = False) -> OwnEntry:
        """Return the entry that stands for the pattern of a subscription."""
        return self.counted[pattern] if is_counted else self._covers[pattern]

    def add(self, pattern: Tokens, *, is_counted: bool = False) -> tuple[list[OwnEntry], list[OwnEntry]]:
        """Add a subscription; return the new entries, and those that are no longer needed.

        Raises:
            ValueError: The node has too many counted patterns; it did not add the subscription.
        """
        if is_counted:
            return self._add_counted(pattern)
        count = self._counts.get(pattern, 0)
        self._counts[pattern] = count + 1
        if count:
            return [], []
        entry = self._find(pattern)
        if entry is not None:
            self._cover(pattern, entry)
            return [], []
        if self._has_room(pattern):
            entry = self._new_entry(pattern)
            self._cover(pattern, entry)
            return [entry], []
        return self._make_room()

    def widen(self, patterns: set[Tokens], entries_max: int) -> tuple[list[OwnEntry], list[OwnEntry]]:
        """Use fewer entries for some; return the new ones, and those that are no longer needed.

        Args:
            patterns: The patterns of the entries.
            entries_max: Their number afterwards, at most; at least ``WIDENED_MIN`` counts.
        """
        few = reduced(patterns, max(entries_max, WIDENED_MIN))
        self._narrow_at = max(1, self._narrow_at, len(self._counts) // 2)
        return self._replace(widen((self.entries.keys() - patterns) | few))

    def remove(self, pattern: Tokens, *, is_counted: bool = False) -> tuple[list[OwnEntry], list[OwnEntry]]:
        """Remove a subscription; return the new entries, and those that are no longer needed."""
        if is_counted:
            self._counted_users[pattern] -= 1
            if self._counted_users[pattern]:
                return [], []
            del self._counted_users[pattern]
            return [], [self.counted.pop(pattern)]
        self._counts[pattern] -= 1
        if self._counts[pattern]:
            return [], []
        del self._counts[pattern]
        entry = self._covers.pop(pattern)
        del entry.users[pattern]
        if len(self._counts) <= self._narrow_at:
            wanted = widen(self._counts)
            self._narrow_at = 0 if wanted == self._counts.keys() else len(self._counts) // 2
            return self._replace(wanted)
        if entry.users:
            return [], []
        self._end_entry(entry)
        return [], [entry]

    # --

    def _add_counted(self, pattern: Tokens) -> tuple[list[OwnEntry], list[OwnEntry]]:
        entry = self.counted.get(pattern)
        if entry is None and len(self.counted) >= NODE_COUNTED_MAX:
            raise ValueError(f"this node has {NODE_COUNTED_MAX} counted patterns, the most that publishers count for a node.")
        self._counted_users[pattern] += 1
        if entry is not None:
            return [], []
        self._last_key += 1
        entry = self.counted[pattern] = OwnEntry(pattern, self._last_key, is_counted=True)
        if len(self.entries) + len(self.counted) <= ENTRIES_MAX:
            return [entry], []
        added, ended = self._make_room()
        return [entry, *added], ended

    def _make_room(self) -> tuple[list[OwnEntry], list[OwnEntry]]:
        """Replace entries by wider ones; some room is left, so that not every further subscription changes all entries."""
        self._narrow_at = len(self._counts) // 2
        return self._replace(widen(self._counts, ENTRIES_MAX * 3 // 4, NODE_SHAPES_MAX * 3 // 4))

    def _find(self, pattern: Tokens) -> OwnEntry | None:
        """Return an entry that stands for a pattern, if any: of the pattern itself, or of a beginning and ``>``."""
        entry = self.entries.get(pattern)
        if entry is None and self._narrow_at:
            beginnings = (pattern[:length] for length in range(len(pattern) - 1, -1, -1))
            entry = next((found for each in beginnings if (found := self.entries.get((*each, ANY_REST)))), None)
        return entry

    def _has_room(self, pattern: Tokens) -> bool:
        shapes = self._shapes.get(_first(pattern))
        return len(self.entries) + len(self.counted) < ENTRIES_MAX and (
            shapes is None or len(shapes) < NODE_SHAPES_MAX or shape_of(pattern) in shapes
        )

    def _cover(self, pattern: Tokens, entry: OwnEntry) -> None:
        self._covers[pattern] = entry
        entry.users[pattern] = None

    def _new_entry(self, pattern: Tokens) -> OwnEntry:
        self._last_key += 1
        entry = self.entries[pattern] = OwnEntry(pattern, self._last_key)
        first = _first(pattern)
        shapes = self._shapes.get(first)
        if shapes is None:
            shapes = self._shapes[first] = Counter()
        shapes[shape_of(pattern)] += 1
        return entry

    def _end_entry(self, entry: OwnEntry) -> None:
        del self.entries[entry.pattern]
        first, shape = _first(entry.pattern), shape_of(entry.pattern)
        shapes = self._shapes[first]
        shapes[shape] -= 1
        if not shapes[shape]:
            del shapes[shape]
            if not shapes:
                del self._shapes[first]

    def _replace(self, wanted: set[Tokens]) -> tuple[list[OwnEntry], list[OwnEntry]]:
        """Use the entries of other patterns; return the new ones, and those that are no longer needed."""
        ended = [entry for pattern, entry in self.entries.items() if pattern not in wanted]
        for entry in ended:
            self._end_entry(entry)
        added = [self._new_entry(pattern) for pattern in sorted(wanted) if pattern not in self.entries]
        for entry in self.entries.values():
            entry.users.clear()
        for pattern in self._counts:
            entry_found = self._find(pattern)
            assert entry_found is not None
            self._cover(pattern, entry_found)
        return added, ended


def _first(pattern: Tokens) -> str:
    """Return the first token of a pattern; ``*`` for any wildcard."""
    return ANY_TOKEN if pattern[0] == ANY_REST else pattern[0]
