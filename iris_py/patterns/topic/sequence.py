"""Publications of other clouds: each once, in order, and with an honest gap, whichever way they come (docs/design.md 15.33).

Theory of operation. A publication of another cloud has an *origin*, the node that published it, a *stream*, and a *number* that
grows within both. Numbers are not contiguous on the way, for nobody sends what nobody wants; so a number that is missing says
nothing, and what was lost is told beside it. Several *paths* may bring the same stream: gateways that both believe to be in
charge, or one that was slow. In one path everything is in order, and each message says how much that path has missed of the
stream in all. :class:`Fence` stands where paths meet, before the application; :class:`GapBook` and :class:`MissedTotals` are
for a hop, which has one way in at a time.

Every table is bounded, and who forgets something says so: what is heard first from then on may be what was forgotten, and has a
gap.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Streams that are known at once; of more, those that were longest silent are forgotten. Too small: one that is forgotten may
#: be delivered twice where paths overlap, and all new ones begin with a gap. Too large: memory that a hostile cloud can take,
#: some 200 bytes for each.
STREAMS_MAX: Final = 8192
#: Streams times the paths that each came by. Too small: a path that is forgotten, and goes on, shows a gap where there may be
#: none. Too large: as above. Two for each stream, for a path is seldom changed.
PATHS_MAX: Final = 2 * STREAMS_MAX


class MissedTotals:
    """Sums of what a hop has missed of each stream. They never shrink: a total that was forgotten goes on above all of them."""

    def __init__(self) -> None:
        self._totals: OrderedDict[bytes, int] = OrderedDict()
        self._floor = 0

    def add(self, origin: bytes, stream: bytes, missed: int) -> int:
        """Note that so many more were missed; returns how many in all."""
        totals, key = self._totals, origin + stream
        total = totals.get(key, self._floor) + missed
        forgotten = _put(totals, key, total, STREAMS_MAX)
        if forgotten is not None and forgotten > self._floor:
            self._floor = forgotten
        return total


class Fence:
    """One subscriber to streams of other clouds: it takes what is above the last number of its stream, and nothing else."""

    def __init__(self) -> None:
        self._lasts: OrderedDict[bytes, int] = OrderedDict()
        self._totals: OrderedDict[tuple[bytes, Hashable], int] = OrderedDict()  # by path: what it had missed
        self._has_forgotten = False

    def take(self, origin: bytes, stream: bytes, path: Hashable, number: int, count: int, missed: int) -> tuple[int, int]:
        """Take publications of one stream with numbers that follow one another.

        Args:
            origin: The node that published them.
            stream: The group that it published them under.
            path: The way that they came: within one, everything is in order.
            number: The number of the first.
            count: How many they are, at least one.
            missed: How many of the stream were lost on that path in all, up to the first; it never shrinks.

        Returns:
            How many of them, the first ones, were late or repeated and are to be dropped; and the gap before the rest: at least
            as many as the subscriber misses between the last one that it took and the first of the rest, if it knows the path,
            and otherwise 1 unless they follow one another.
        """
        key = origin + stream
        known = self._totals.get((key, path))
        _put(self._totals, (key, path), missed, PATHS_MAX)
        last = self._lasts.get(key)
        if last is None:
            late, gap = 0, int(self._has_forgotten)
        else:
            late = min(count, max(0, last + 1 - number))
            if late == count:
                self._lasts.move_to_end(key)
                return late, 0
            lost = 1 if known is None or missed < known else missed - known
            gap = min(lost, number + late - last - 1)
        if _put(self._lasts, key, number + count - 1, STREAMS_MAX) is not None:
            self._has_forgotten = True
        return late, gap


class _Passed:
    """A stream, as far as a hop knows it."""

    __slots__ = ("last", "owed", "upstream")

    def __init__(self, upstream: int) -> None:
        self.last = -1
        self.owed = 0
        self.upstream = upstream  # the one that it came from last


class GapBook:
    """The gaps of what one hop passes on, where it drops some of it, and where what it gets may come from another place."""

    def __init__(self) -> None:
        self._streams: OrderedDict[bytes, _Passed] = OrderedDict()
        self._upstream = 0
        self._has_forgotten = False

    def change_upstream(self) -> None:
        """Note that everything comes another way from now on: of each stream something may have been lost between both."""
        self._upstream += 1

    def owe(self, origin: bytes, stream: bytes, count: int) -> None:
        """Note that some of a stream are not passed on: dropped ones, and the gaps of what nobody behind this hop wants."""
        self._find(origin + stream).owed += count

    def pass_on(self, origin: bytes, stream: bytes, number: int, count: int, gap: int) -> int:
        """Pass on publications of one stream with numbers that follow one another.

        Args:
            origin: The node that published them.
            stream: The group that it published them under.
            number: The number of the first.
            count: How many they are, at least one.
            gap: How many were lost before the first, as it came.

        Returns:
            The gap to pass on: with what is owed, and 1 at least if it is the first one from a new upstream, and its number is
            not the next one.
        """
        passed = self._find(origin + stream)
        gap, passed.owed = gap + passed.owed, 0
        if passed.upstream != self._upstream:
            passed.upstream = self._upstream
            if number > passed.last + 1 and not gap:
                gap = 1
        passed.last = max(passed.last, number + count - 1)
        return gap

    def _find(self, key: bytes) -> _Passed:
        streams = self._streams
        passed = streams.get(key)
        if passed is None:
            passed = _Passed(self._upstream)
            passed.owed = int(self._has_forgotten)
            if _put(streams, key, passed, STREAMS_MAX) is not None:
                self._has_forgotten = True
        else:
            streams.move_to_end(key)
        return passed


def _put(table: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> Value | None:
    """Set an entry, as the one that was used last; returns the one that was forgotten for it, if there is one."""
    is_full = key not in table and len(table) >= most
    forgotten = table.popitem(last=False)[1] if is_full else None
    table[key] = value
    table.move_to_end(key)
    return forgotten
