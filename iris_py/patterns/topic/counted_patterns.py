"""Counted patterns: how many publications of this node matched a pattern, also while nobody subscribed (docs/design.md 8.17).

A subscriber claims an entry with the flag ``counted`` (:data:`~iris_py.patterns.topic.shapes.COUNTED`), and so becomes a
*holder* of the pattern. Publishers with the entry in a watched table count the matches, up to ``IDLE_S`` after the last holder
left. So a later holder, on any node, learns the number of missed messages: in each body with matches, COUNT says the number of
matches before.

A count belongs to the pattern and not to an entry, whose tag changes with the secret. The first topic with a match shows the
tokens of the pattern. With these tokens the publisher finds the tag under the next secret, and the count goes on. Until the
first match a count keeps the former tag.

Publications from other clouds are not counted, because subscribers follow the publisher in the other cloud through any gateway.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_py.patterns.topic.shapes import WILD_STEM, can_match, counted_entries, literal_bits, literal_positions, pattern_of
from iris_py.wire.flows import MatchesBefore
from iris_py.wire.packets import NODE_COUNTED_MAX

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import Entry, EntryHasher

#: Counted patterns of one publisher, with and without holders. Further ones are not counted. Too small: their holders do not
#: learn how much they missed. Too large: memory that a few hundred nodes inside the network can take, some 500 bytes for each.
COUNTED_MAX: Final = 4096
#: Shapes of these patterns. Too small: patterns of many forms are not counted. Too large: each shape costs a publication to a
#: new topic 1 us.
COUNTED_SHAPES_MAX: Final = 16
#: Time for which a count goes on without a holder (seconds). Too small: a query that stops for a night does not learn what it
#: missed. Too large: counts that nobody needs take the place of others.
IDLE_S: Final = 24 * 3600.0

#: Bytes of a node id in a COUNT.
_HOLDER_BYTES: Final = 8


class MatchCount:
    """The count of publications that match a counted pattern.

    Attributes:
        shape: The shape of the pattern, with the flag.
        generation: The generation of the secret for ``stem`` and ``tag``, as a number of this node.
        stem: The stem of the entries.
        tag: The tag of the entries.
        since: The publisher's number when the count began.
        holder: The start of the id of the first holder.
        count: Number of matches since then.
        pattern: The tokens of the pattern; None before the first match.
        holders: Number of nodes with an entry of the pattern.
    """

    __slots__ = ("count", "generation", "holder", "holders", "pattern", "shape", "since", "stem", "tag")

    def __init__(self, generation: int, entry: Entry, since: int, holder: int) -> None:
        self.generation = generation
        self.stem, self.shape, self.tag = entry
        self.since = since
        self.holder = holder
        self.count = 0
        self.pattern: Tokens | None = None
        self.holders = 0


class _CountedShape:
    """The counts of the patterns of one shape in one generation.

    Attributes:
        counts: The counts, by stem and tag. The stem must match, too, because a publisher with a new entry looks again only at
            topics with the stem of the entry.
    """

    __slots__ = ("_copy", "_hasher", "_is_wild", "_positions", "_shape", "counts")

    def __init__(self, shape: int, hasher: EntryHasher) -> None:
        self.counts: dict[tuple[int, int], MatchCount] = {}
        self._hasher = hasher
        self._shape = shape
        self._copy = hasher.tag_hash(shape).copy
        self._positions = literal_positions(shape)
        self._is_wild = 0 not in self._positions

    def match(self, tokens: list[str], stem: int | None) -> MatchCount | None:
        """Return the count of the pattern that matches a topic.

        Args:
            tokens: The tokens of the topic.
            stem: The stem of the topic in this generation; None if unknown.
        """
        if not can_match(self._shape, len(tokens)):
            return None
        digest = self._copy()
        digest.update(".".join([tokens[position] for position in self._positions]).encode())
        if self._is_wild:
            stem = WILD_STEM
        elif stem is None:
            stem = self._hasher.stem(tokens[0])
        return self.counts.get((stem, int.from_bytes(digest.digest(), "big")))


class CountedPatterns:
    """The counts of one publisher."""

    def __init__(self) -> None:
        self._hasher: EntryHasher
        self._generation = 0
        self._shapes: dict[tuple[int, int], _CountedShape] = {}  # by generation and shape; of former ones without matches
        self._size = 0
        self._idle: OrderedDict[MatchCount, float] = OrderedDict()  # counts without holders -> time; the first idle one first

    def __len__(self) -> int:
        """Return the number of counts."""
        return self._size

    def rekey(self, hasher: EntryHasher, now: float) -> None:
        """Use the entries of another generation. All counts are without holders until the publisher knows the table."""
        self._hasher = hasher
        self._generation += 1
        counts = [count for its in self._shapes.values() for count in its.counts.values()]
        for count in sorted(counts, key=lambda count: count.count):  # those with few matches make room first
            count.holders = 0
            self._idle.setdefault(count, now)
            if count.pattern is not None:
                self._remove(count)
                self._use(count, count.pattern)

    def match(self, topic: str, stem: int) -> list[MatchCount]:
        """Return the counts of the patterns that match a topic.

        The result holds until a new entry with this stem, or with :data:`~iris_py.patterns.topic.shapes.WILD_STEM`.

        Args:
            topic: A valid name.
            stem: The stem of the topic.
        """
        tokens = topic.split(".")
        former = [its for (generation, _), its in self._shapes.items() if generation != self._generation]
        for its in former:
            if (count := its.match(tokens, None)) is not None:
                self._adopt(count, pattern_of(count.shape, tuple(tokens)))
        matched = []
        for (generation, _), its in self._shapes.items():
            if generation == self._generation and (count := its.match(tokens, stem)) is not None:
                if count.pattern is None:
                    count.pattern = pattern_of(count.shape, tuple(tokens))
                matched.append(count)
        return matched

    def literal_bits(self, count: int) -> int:
        """Return the positions of the tokens read by :meth:`match` in topics of ``count`` tokens, as bits."""
        return literal_bits([shape for _generation, shape in self._shapes], count)

    def claim(self, node: NodeId, held: dict[MatchCount, int], entries: bytes, number: int) -> list[bytes]:
        """Handle new entries of a node.

        Args:
            node: The node.
            held: The counts of the node, as for :func:`take_counts`; changed here.
            entries: The packed entries.
            number: The number of the last publication.

        Returns:
            The COUNT of each new pattern that had matches, to be sent to the node.
        """
        told = []
        for entry in counted_entries(entries):
            count = self._find(entry)
            if len(held) >= NODE_COUNTED_MAX or (count is None and not self._has_room(entry.shape)):
                continue
            if count is None:
                count = MatchCount(self._generation, entry, number, holder_of(node))
                self._add(count)
            if count in held:
                continue
            count.holders += 1
            self._idle.pop(count, None)
            held[count] = count.count
            if count.count:
                told.append(_encode(count, count.count))
        return told

    def withdraw(self, held: dict[MatchCount, int], entries: bytes, now: float) -> None:
        """Handle withdrawn packed entries of a node with some counts, which change here."""
        for entry in counted_entries(entries):
            count = self._find(entry)
            if count is not None and count in held:
                del held[count]
                count.holders -= 1
                if not count.holders:
                    self._idle[count] = now

    def handle_timeout(self, now: float) -> None:
        """Forget the counts without a holder for ``IDLE_S``; harmless if early."""
        while self._idle and next(iter(self._idle.values())) + IDLE_S <= now:
            self._forget_idle()

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return next(iter(self._idle.values())) + IDLE_S if self._idle else None

    # --

    def _adopt(self, count: MatchCount, pattern: Tokens) -> None:
        """Continue a count of a former generation, at its first match, in the present one."""
        count.pattern = pattern
        self._remove(count)
        other = self._find(self._hasher.entry(pattern, is_counted=True))
        if other is None:
            self._use(count, pattern)
        else:  # a holder claimed the new entry before; without a match it was not told of either count
            other.since, other.holder = count.since, count.holder
            del self._idle[count]

    def _find(self, entry: Entry) -> MatchCount | None:
        its = self._shapes.get((self._generation, entry.shape))
        return None if its is None else its.counts.get((entry.stem, entry.tag))

    def _add(self, count: MatchCount) -> None:
        key = count.generation, count.shape
        its = self._shapes.get(key)
        if its is None:
            its = self._shapes[key] = _CountedShape(count.shape, self._hasher)
        its.counts[count.stem, count.tag] = count
        self._size += 1

    def _remove(self, count: MatchCount) -> None:
        key = count.generation, count.shape
        its = self._shapes[key]
        del its.counts[count.stem, count.tag]
        self._size -= 1
        if not its.counts:
            del self._shapes[key]

    def _use(self, count: MatchCount, pattern: Tokens) -> None:
        """Add a count of a former generation to the present one."""
        count.generation = self._generation
        count.stem, _, count.tag = self._hasher.entry(pattern, is_counted=True)
        self._add(count)

    def _has_room(self, shape: int) -> bool:
        """Tell whether a pattern of a shape may be counted, too. Counts without holders make room."""
        while self._size >= COUNTED_MAX or self._is_shape_too_many(shape):
            if not self._idle:
                return False
            self._forget_idle()
        return True

    def _is_shape_too_many(self, shape: int) -> bool:
        return (self._generation, shape) not in self._shapes and len(self._shapes) >= COUNTED_SHAPES_MAX

    def _forget_idle(self) -> None:
        """Forget the count that is without holders for longest."""
        count, _ = self._idle.popitem(last=False)
        self._remove(count)


def holder_of(node: bytes) -> int:
    """Return the start of a node id, in the form of a COUNT."""
    return int.from_bytes(node[:_HOLDER_BYTES], "big")


def take_counts(held: dict[MatchCount, int]) -> list[bytes]:
    """Return the COUNTs of patterns with matches since the last call, for a body with all of the matches.

    Args:
        held: The counts of the patterns that the receiver of the body holds, and the number of matches at the last call.
    """
    counts = []
    for count, before in held.items():
        if count.count != before:
            counts.append(_encode(count, before))
            held[count] = count.count
    return counts


def skip_counts(held: dict[MatchCount, int]) -> None:
    """Leave out the matches since the last call of :func:`take_counts`, which are not sent to the holder."""
    for count in held:
        held[count] = count.count


def _encode(count: MatchCount, before: int) -> bytes:
    return MatchesBefore(count.tag, count.since, count.holder, before).encode()
