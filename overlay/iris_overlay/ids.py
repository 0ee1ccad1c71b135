"""Identifiers of nodes and groups: 128 bits, as in Pastry (Rowstron and Druschel 2001, section 2.1).

On the wire an id is bytes. Inside, an id is an int: a position on a ring of 2 ** 128. Distances and digits of ints cost a tenth
of those of bytes.
"""

from __future__ import annotations

from typing import Final, NewType

#: 128 bits: the ids of any number of real nodes do not collide by chance, and finding a second key for an id is infeasible.
ID_BYTES = 16

ID_BITS: Final = 8 * ID_BYTES

#: The number of positions on the ring of ids.
RING: Final = 1 << ID_BITS

#: The b of Pastry: 16 columns. Smaller digits mean longer routes, larger ones larger tables; 4 is the paper's choice.
DIGIT_BITS: Final = 4

DIGITS: Final = ID_BITS // DIGIT_BITS

_MASK: Final = RING - 1
_HALF: Final = RING >> 1

#: A node: ID_BYTES of the hash of a public key made by its process (docs/design.md 2.7). Ids are never reused, so a departed
#: node stays departed.
NodeId = NewType("NodeId", bytes)

#: A cluster, all topics, or a promoted pattern of topics: ID_BYTES of the hash of a public key derived for its kind and name
#: (docs/design.md 2.3). The overlay never sees the name.
GroupId = NewType("GroupId", bytes)


def position(identifier: bytes) -> int:
    """Return the position of a node or a key on the ring."""
    return int.from_bytes(identifier, "big")


def clockwise(start: int, end: int) -> int:
    """Return the clockwise distance between two positions, in the direction of growing positions."""
    return (end - start) & _MASK


def ring_distance(a: int, b: int) -> int:
    """Return the shorter distance between two positions."""
    distance = (a - b) & _MASK
    return distance if distance <= _HALF else RING - distance


def is_nearer(key: int, a: int, b: int) -> bool:
    """Return whether position a is nearer to the key than b; at equal distances the smaller position is nearer.

    So every key has exactly one root, for all nodes.
    """
    to_a, to_b = ring_distance(key, a), ring_distance(key, b)
    return to_a < to_b or (to_a == to_b and a < b)


def shared_digits(a: int, b: int) -> int:
    """Return the number of common leading digits of two positions."""
    return (ID_BITS - (a ^ b).bit_length()) // DIGIT_BITS


def digit(place: int, row: int) -> int:
    """Return a digit of a position; row 0 is the most significant one."""
    return (place >> (ID_BITS - DIGIT_BITS * (row + 1))) & ((1 << DIGIT_BITS) - 1)
