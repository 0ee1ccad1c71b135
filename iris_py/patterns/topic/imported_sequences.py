"""Publications of other clouds: deliver each once, in order, with correct gaps, over any path (docs/design.md 15.33).

A publication of another cloud has an *origin* (the publishing node), a *sequence* (the rule that it crossed by), and a
*number*, which increases within origin and sequence. Gateways skip unwanted publications, so a missing number does not mean a
loss; losses are reported separately. Several *paths* may bring the same sequence: two gateways that both believe to be in
charge, or a slow gateway. Within a path all messages are in order, and each carries the total number the path has missed of the
sequence. :class:`Fence` merges the paths ahead of the application. :class:`GapBook` and :class:`MissedTotals` serve a relay,
which has one incoming path at a time.

A loss whose size nobody knows counts as ``UNKNOWN_GAP``, more than any hole in the numbers. The fence never reports more than
the numbers that are missing. So its gap is exact where all losses were counted, and otherwise an upper bound: never too small.

All tables are bounded. After forgetting an entry, a table reports an unknown gap for every unknown sequence, which may be the
forgotten one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar

from iris_py.wire.imported import UNKNOWN_GAP

if TYPE_CHECKING:
    from collections.abc import Hashable

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Known sequences; beyond this bound the longest silent one is forgotten. Too small: a forgotten sequence may be delivered
#: twice where paths overlap, and all new sequences begin with an unknown gap. Too large: memory that a hostile cloud can take,
#: some 200 bytes for each.
SEQUENCES_MAX: Final = 8192
#: Known paths of all sequences. Too small: a forgotten path that continues shows a gap that is too large. Too large: as above.
#: Two for each sequence, because paths seldom change.
PATHS_MAX: Final = 2 * SEQUENCES_MAX


class MissedTotals:
    """Totals of a relay's missed messages, by sequence. They never decrease: a forgotten total continues above all others."""

    def __init__(self) -> None:
        self._totals: OrderedDict[bytes, int] = OrderedDict()
        self._floor = 0

    def add(self, origin: bytes, sequence: bytes, missed: int) -> int:
        """Add missed messages to a sequence; return its total."""
        totals, key = self._totals, origin + sequence
        total = totals.get(key, self._floor) + missed
        forgotten = _put(totals, key, total, SEQUENCES_MAX)
        if forgotten is not None and forgotten > self._floor:
            self._floor = forgotten
        return total


class Fence:
    """A subscriber's filter for sequences of other clouds: accepts only increasing numbers per sequence."""

    def __init__(self) -> None:
        self._lasts: OrderedDict[bytes, int] = OrderedDict()
        self._totals: OrderedDict[tuple[bytes, Hashable], int] = OrderedDict()  # missed messages, by path
        self._has_forgotten = False

    def take(
        self, origin: bytes, sequence: bytes, path: Hashable, number: int, count: int, missed: int
    ) -> tuple[int, int | None]:
        """Filter publications of one sequence with consecutive numbers.

        Args:
            origin: The publishing node.
            sequence: A sequence of its publications.
            path: Their path; all messages of a path are in order.
            number: The number of the first.
            count: The number of publications, at least one.
            missed: Total number of the sequence's messages lost on that path, up to the first publication; never decreases.

        Returns:
            The number of publications to drop from the start, as late or repeated; and the gap before the rest, at least the
            number of messages missed since the last accepted one. On a known path the gap is what the path has lost; on a new
            path it is the number of missing numbers. None if the sequence was perhaps forgotten, so that the gap is unknown.
        """
        key = origin + sequence
        late: int
        gap: int | None
        known = self._totals.get((key, path))
        _put(self._totals, (key, path), missed, PATHS_MAX)
        last = self._lasts.get(key)
        if last is None:
            late, gap = 0, None if self._has_forgotten else 0
        else:
            late = min(count, max(0, last + 1 - number))
            if late == count:
                self._lasts.move_to_end(key)
                return late, 0
            lost = UNKNOWN_GAP if known is None or missed < known else missed - known
            gap = min(lost, number + late - last - 1)
        if _put(self._lasts, key, number + count - 1, SEQUENCES_MAX) is not None:
            self._has_forgotten = True
        return late, gap


class _Passed:
    """The state of a sequence at a relay."""

    __slots__ = ("last", "owed", "upstream")

    def __init__(self, upstream: int) -> None:
        self.last = -1
        self.owed = 0
        self.upstream = upstream  # the upstream of its last message


class GapBook:
    """The gaps of a relay's forwarded sequences, including drops and changes of the upstream."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[bytes, _Passed] = OrderedDict()
        self._upstream = 0
        self._has_forgotten = False

    def change_upstream(self) -> None:
        """Handle a change of the upstream: each sequence may have lost all messages between the two."""
        self._upstream += 1

    def owe(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Add messages that are not forwarded to a sequence's gap: dropped ones, and gaps before unwanted ones."""
        self._find(origin + sequence).owed += count

    def pass_on(self, origin: bytes, sequence: bytes, number: int, count: int, gap: int) -> int:
        """Forward publications of one sequence with consecutive numbers.

        Args:
            origin: The publishing node.
            sequence: A sequence of its publications.
            number: The number of the first.
            count: The number of publications, at least one.
            gap: The received gap before the first.

        Returns:
            The gap to forward: the received gap plus the owed one. The received gap of a sequence's first message from a new
            upstream is the number of missing numbers.
        """
        passed = self._find(origin + sequence)
        if passed.upstream != self._upstream:
            passed.upstream = self._upstream
            gap = max(0, number - passed.last - 1)
        gap, passed.owed = gap + passed.owed, 0
        passed.last = max(passed.last, number + count - 1)
        return gap

    def last_number(self, key: bytes) -> int:
        """Return the last forwarded number of a sequence, given by origin and sequence; -1 if unknown."""
        passed = self._sequences.get(key)
        return -1 if passed is None else passed.last

    def last_numbers(self) -> list[tuple[bytes, int]]:
        """Return the last forwarded numbers of at most ``SEQUENCES_MAX`` sequences, by origin and sequence."""
        return [(key, passed.last) for key, passed in self._sequences.items() if passed.last >= 0]

    def _find(self, key: bytes) -> _Passed:
        sequences = self._sequences
        passed = sequences.get(key)
        if passed is None:
            passed = _Passed(self._upstream)
            passed.owed = UNKNOWN_GAP if self._has_forgotten else 0
            if _put(sequences, key, passed, SEQUENCES_MAX) is not None:
                self._has_forgotten = True
        else:
            sequences.move_to_end(key)
        return passed


def _put(table: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> Value | None:
    """Set an entry as the most recently used; return the evicted value, or None."""
    is_full = key not in table and len(table) >= most
    forgotten = table.popitem(last=False)[1] if is_full else None
    table[key] = value
    table.move_to_end(key)
    return forgotten
