"""The entries of shared subscriptions in the table of interest (docs/design.md 8.14).

A *share* is the part of a node in a group, for a pattern. Entries of the table have 20 bytes, and a share needs more: the
tag of the pattern, the tag of the group, and the weight. A share takes rows of three kinds, which the overlay stores like
other entries. A node has a row once:

```
first token   0:u64 | 1 10 0...                                  | stem:u64
pattern       0:u64 | 1 00 0...               shape:22           | tag of the pattern:u64
share         0:u64 | 1 01 blocks:1 weight:10 group:18 (high)    | tag of the pattern:32 (high)  group:32 (low)
```

A publisher looks under its topic's first token whether any group listens there. Then it hashes the topic under each shape of a
pattern row, as it does for plain entries, and finds nodes. The share rows of such a node say for which groups, with which
weight. So it finds all groups without their names. The first field is 0, so a table that is split keeps these rows
(:mod:`iris_overlay.groups.entries`). They are never promoted, and never widened: a message that its receiver cannot use would
be lost for the group.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from iris_overlay.groups.entries import ENTRY_BYTES, FIXED, SHAPE_AT, is_fixed, pack, split, unpack
from iris_py.patterns.topic.shapes import WILD_STEM, is_entry
from iris_py.peers.member import WEIGHT_MAX, WEIGHT_MIN
from iris_py.wire.shares import GROUP_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import EntryHasher

#: Bits of the tag of a group.
GROUP_BITS: Final = 50

_KIND_SHIFT: Final = 29
_PATTERN, _SHARE, _STEM = 0, 1, 2
_BLOCKS: Final = 1 << 28
_WEIGHT_SHIFT: Final = 18
_WEIGHT_MASK: Final = 0x3FF
_SHAPE_MASK: Final = (1 << 22) - 1
_HIGH_MASK: Final = (1 << _WEIGHT_SHIFT) - 1
_LOW_BITS: Final = 32
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
#: Weights travel as logarithms: steps of 0.9 %, and 1 is exact.
_WEIGHT_STEPS: Final = 250


class StemRow(NamedTuple):
    """Some group of the node listens under a first token."""

    stem: int


class PatternRow(NamedTuple):
    """Some group of the node listens to a pattern."""

    shape: int
    tag: int


class ShareRow(NamedTuple):
    """A group of the node listens to a pattern."""

    pattern: int
    """The high 32 bits of the pattern's tag, which identify it among those of the node."""
    group: int
    """The tag of the group."""
    weight: float
    blocks: bool
    """Whether publishers wait for the node when all members of the group are full."""


Row: TypeAlias = StemRow | PatternRow | ShareRow


def check_group(name: object) -> None:
    """Check the name of a group.

    Raises:
        ValueError: The name is invalid; the text suggests a correction.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"group={name!r} is no name. Give the group a non-empty name, as in group='billing'.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the group {name!r} is not valid Unicode. Leave the surrogates out.") from None
    if size > GROUP_BYTES_MAX:
        raise ValueError(
            f"the name of a group has at most {GROUP_BYTES_MAX} bytes in UTF-8, but this one has {size}. Choose a shorter one."
        )
    if "\0" in name:
        raise ValueError(f"the group {name!r} has the character U+0000. Leave it out.")
    if "@" in name:
        raise ValueError(f"the group {name!r} has an '@'. Groups belong to one cloud: leave the alias out.")
    if name.startswith("iris."):
        raise ValueError(f"the group {name!r} begins with 'iris.', which is reserved. Choose another name.")


def group_tag(key: bytes, name: str) -> int:
    """Return the tag of a group.

    Args:
        key: The key of the hashes of the network, 32 bytes.
        name: The name of the group.
    """
    digest = blake2b(name.encode(), digest_size=8, key=key, person=b"iris group").digest()
    return int.from_bytes(digest, "big") >> 64 - GROUP_BITS


def share_entries(hasher: EntryHasher, shares: Iterable[tuple[Tokens, int, float, bool]]) -> bytes:
    """Return the packed rows of the shares of a node.

    Args:
        hasher: The hash functions of the network.
        shares: Patterns, tags of the group, weights, and whether publishers wait; without repeated pairs of pattern and group.
    """
    rows: set[tuple[int, int, int]] = set()
    for pattern, group, weight, blocks in shares:
        stem, shape, tag = hasher.entry(pattern)
        if stem != WILD_STEM:
            rows.add((WILD_STEM, FIXED | _STEM << _KIND_SHIFT, stem))
        rows.add((WILD_STEM, FIXED | _PATTERN << _KIND_SHIFT | shape, tag))
        fields = (_BLOCKS if blocks else 0) | encode_weight(weight) << _WEIGHT_SHIFT | group >> _LOW_BITS
        link = tag >> _LOW_BITS << _LOW_BITS | group & _LOW_MASK
        rows.add((WILD_STEM, FIXED | _SHARE << _KIND_SHIFT | fields, link))
    return pack(rows)


def has_shares(packed: bytes) -> bool:
    """Tell whether some of a node's packed entries are rows of shares."""
    return max(packed[SHAPE_AT::ENTRY_BYTES], default=0) >= FIXED >> 24


def split_shares(packed: bytes) -> tuple[bytes, list[Row | None]]:
    """Split packed entries of a node into plain entries, and the rows of shares; None for an invalid row."""
    if not has_shares(packed):
        return packed, []
    entries = split(packed)
    plain = [entry for entry in entries if not is_fixed(entry)]
    rows = [_row(*fields) for entry in entries if is_fixed(entry) for fields in unpack(entry)]
    return b"".join(plain), rows


def without_shares(packed: bytes) -> bytes:
    """Return the packed entries of a node without the rows of shares."""
    return b"".join([entry for entry in split(packed) if not is_fixed(entry)]) if has_shares(packed) else packed


def encode_weight(weight: float) -> int:
    """Return the weight in 10 bits; a weight out of bounds becomes the nearest bound."""
    return round(math.log10(min(WEIGHT_MAX, max(WEIGHT_MIN, weight)) / WEIGHT_MIN) * _WEIGHT_STEPS)


def decode_weight(code: int) -> float:
    """Return the weight of 10 bits."""
    return min(WEIGHT_MAX, WEIGHT_MIN * math.pow(10.0, code / _WEIGHT_STEPS))


def _row(stem: int, shape: int, tag: int) -> Row | None:
    kind = (shape & ~FIXED) >> _KIND_SHIFT
    fields = shape & (1 << _KIND_SHIFT) - 1
    if stem != WILD_STEM:
        return None
    if kind == _STEM:
        return StemRow(tag) if tag and not fields else None
    if kind == _PATTERN:
        is_valid = fields <= _SHAPE_MASK and is_entry(fields & 1, fields)  # a literal first token has a stem
        return PatternRow(fields, tag) if is_valid else None
    if kind != _SHARE:
        return None
    group = (fields & _HIGH_MASK) << _LOW_BITS | tag & _LOW_MASK
    weight = decode_weight(fields >> _WEIGHT_SHIFT & _WEIGHT_MASK)
    return ShareRow(tag >> _LOW_BITS, group, weight, bool(fields & _BLOCKS))
