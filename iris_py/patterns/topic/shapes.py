"""Interest in topics as numbers: what a subscriber registers for a pattern, in place of its text.

The *shape* of a pattern says how many tokens it has, which of them are literal, and whether ``>`` follows. The *tag* is a keyed
hash of the shape and the literal tokens. The *stem* is a keyed hash of the first token. So nodes without the key learn which
patterns are equal, but no token. A publisher knows the key: it hashes a topic under each shape in use, and looks up the tag
(:mod:`iris_py.patterns.topic.interest`). Packet classifiers call this method tuple space search (Srinivasan, Suri, Varghese:
Packet Classification using Tuple Space Search, SIGCOMM 1999).

```
orders.*.eu.>    3 tokens and a rest; literal: tokens 0 and 2
shape            0000000 | 0       | 00 | 00011 | 1    | 0000000000000101
                 unused    counted   -    count   rest   literal
tag              BLAKE2b-8(shape, "orders.eu")
stem             BLAKE2b-8("orders")
```

An entry with the flag ``counted`` asks publishers to count the matches of the pattern
(:mod:`iris_py.patterns.topic.counted_patterns`). It is another entry than the one without the flag, with a tag of its own.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, TOKENS_MAX, Tokens
from iris_py.patterns.topic.pattern_sets import reduced

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of a packed entry: stem, shape and tag, so sorted bytes have the entries of one stem and shape side by side.
ENTRY = struct.Struct(">QIQ")
#: Entries that one node registers. Too small: a node with many exact subscriptions receives unwanted messages. Too large: one
#: node fills the table of everybody.
ENTRIES_MAX = 16_384
#: Shapes that one node registers under one first token, and that begin with a wildcard. Too small: a program with patterns of
#: many forms receives unwanted messages. Too large: two nodes exhaust the shapes that publishers try
#: (:data:`~iris_py.patterns.topic.interest.SHAPES_MAX`).
NODE_SHAPES_MAX = 16
#: The stem of patterns that begin with a wildcard.
WILD_STEM = 0
#: The flag ``counted`` of a shape. It stands in the highest byte, which is 0 in all other entries, so a publisher finds the few
#: counted ones among many without reading each.
COUNTED = 1 << 24

_HASH_BYTES = 8
_LITERAL_BITS = 16
_REST = 1 << _LITERAL_BITS
_COUNT_SHIFT = _LITERAL_BITS + 1
_COUNTED_BYTE = 8  # the place of the byte with COUNTED in an entry, behind the stem


class Entry(NamedTuple):
    """The interest in the topics of one pattern."""

    stem: int
    """The keyed hash of the first token (64 bits); :data:`WILD_STEM` if that is a wildcard."""
    shape: int
    """The shape of the pattern (22 bits), and the flag :data:`COUNTED`."""
    tag: int
    """The keyed hash of the shape and the literal tokens (64 bits)."""

    def pack(self) -> bytes:
        """Return the entry in 20 bytes."""
        return ENTRY.pack(*self)


def shape_of(pattern: Tokens) -> int:
    """Return the shape of a valid pattern (:func:`~iris_py.patterns.topic.names.parse_pattern`), without a flag."""
    has_rest = pattern[-1] == ANY_REST
    count = len(pattern) - has_rest
    literal = sum(1 << position for position in range(count) if pattern[position] != ANY_TOKEN)
    return count << _COUNT_SHIFT | has_rest << _LITERAL_BITS | literal


def is_entry(stem: int, shape: int) -> bool:
    """Tell whether a pattern can have this stem and this shape. Entries of other nodes are checked with it."""
    shape &= ~COUNTED
    count, has_rest, literal = shape >> _COUNT_SHIFT, bool(shape & _REST), shape & (_REST - 1)
    return (
        1 <= count + has_rest <= TOKENS_MAX
        and literal >> count == 0
        and (stem == WILD_STEM) == (not literal & 1)  # the bit of the first token
    )


def literal_positions(shape: int) -> list[int]:
    """Return the positions of a shape's literal tokens, in order."""
    return [position for position in range(_LITERAL_BITS) if shape >> position & 1]


def is_exact(shape: int) -> bool:
    """Tell whether all tokens of a shape are literal, so that its patterns are topics."""
    return shape & (2 * _REST - 1) == (1 << ((shape & ~COUNTED) >> _COUNT_SHIFT)) - 1


def literal_bits(shapes: Iterable[int], count: int) -> int:
    """Return the positions of the tokens with which patterns of some shapes are compared, as bits.

    Args:
        shapes: The shapes.
        count: The number of tokens of the topic.
    """
    bits = 0
    for shape in shapes:
        if can_match(shape, count):
            bits |= shape & (_REST - 1)
    return bits


def can_match(shape: int, count: int) -> bool:
    """Tell whether a shape matches topics with a number of tokens."""
    length = (shape & ~COUNTED) >> _COUNT_SHIFT
    return count > length if shape & _REST else count == length


def pattern_of(shape: int, topic: Tokens) -> Tokens:
    """Return the pattern with a shape that matches a topic. The shape can match topics with as many tokens."""
    length = (shape & ~COUNTED) >> _COUNT_SHIFT
    tokens = [topic[position] if shape >> position & 1 else ANY_TOKEN for position in range(length)]
    return (*tokens, ANY_REST) if shape & _REST else tuple(tokens)


def counted_entries(packed: bytes) -> list[Entry]:
    """Return the valid entries with the flag :data:`COUNTED` among packed ones, in order."""
    if not packed[_COUNTED_BYTE :: ENTRY.size].strip(b"\0"):
        return []  # the usual case, in 4 ns for each entry
    entries = [Entry(*fields) for fields in ENTRY.iter_unpack(packed)]
    return [each for each in entries if each.shape & COUNTED and is_entry(each.stem, each.shape)]


def widen(patterns: Iterable[Tokens], entries_max: int = ENTRIES_MAX, shapes_max: int = NODE_SHAPES_MAX) -> set[Tokens]:
    """Return the patterns to register for a node, within the bounds of a node.

    The result matches all topics of the given patterns. Beyond a bound, the patterns with the longest common prefix give way to
    the prefix and ``>`` (:func:`~iris_py.patterns.topic.pattern_sets.reduced`). The node drops the additional messages.

    Args:
        patterns: The valid patterns of the node's subscriptions.
        entries_max: The largest number of patterns, at least 1.
        shapes_max: The largest number of shapes under one first token, and of shapes with a wildcard first; at least 1.
    """
    under: defaultdict[str, set[Tokens]] = defaultdict(set)
    for pattern in reduced(patterns, entries_max):
        under[ANY_TOKEN if pattern[0] == ANY_REST else pattern[0]].add(pattern)
    few: set[Tokens] = set()
    for its in under.values():
        few |= reduced(its, shapes_max, shape_of)
    return few


class EntryHasher:
    """The hash functions of the entries of one network.

    Args:
        key: The key of the hashes, 32 bytes, known to all nodes that publish or subscribe.
    """

    __slots__ = ("_stem", "_tag")

    def __init__(self, key: bytes) -> None:
        # Copying a prepared hash is twice as fast as a new one: the key is a block of its own.
        self._stem = blake2b(digest_size=_HASH_BYTES, key=key, person=b"iris stem")
        self._tag = blake2b(digest_size=_HASH_BYTES, key=key, person=b"iris tag")

    def stem(self, token: str) -> int:
        """Return the stem of the patterns and topics with this first token, which is not a wildcard."""
        digest = self._stem.copy()
        digest.update(token.encode())
        return int.from_bytes(digest.digest(), "big") or 1  # 0 is WILD_STEM

    def tag_hash(self, shape: int) -> blake2b:
        """Return the hash of a shape, to be copied, and updated with the literal tokens joined by dots."""
        digest = self._tag.copy()
        digest.update(shape.to_bytes(4, "big"))
        return digest

    def tag(self, shape: int, tokens: Tokens) -> int:
        """Return the tag of the patterns of a shape with the literal tokens of a pattern or topic, which is long enough."""
        digest = self.tag_hash(shape)
        digest.update(".".join([tokens[position] for position in literal_positions(shape)]).encode())
        return int.from_bytes(digest.digest(), "big")

    def entry(self, pattern: Tokens, *, is_counted: bool = False) -> Entry:
        """Return the entry of a valid pattern."""
        shape = shape_of(pattern) | COUNTED * is_counted
        stem = self.stem(pattern[0]) if shape & 1 else WILD_STEM
        return Entry(stem, shape, self.tag(shape, pattern))
