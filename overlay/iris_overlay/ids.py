"""Identifiers of nodes and groups: 128 bits, as in Pastry (Rowstron and Druschel 2001, section 2.1).

On the wire an id is bytes. Inside, it is a position on a ring of 2 ** 128 places: an int, because distances and digits of
ints cost a tenth of those of bytes.
"""

from __future__ import annotations

from typing import Final, NewType

#: 128 bits: ids of as many nodes as will ever run do not collide by chance, and nobody finds a second key for one of them.
ID_BYTES = 16

ID_BITS: Final = 8 * ID_BYTES

#: How many positions there are.
RING: Final = 1 << ID_BITS

#: The b of Pastry: 16 columns. Smaller digits mean longer routes, larger ones larger tables; 4 is the paper's choice.
DIGIT_BITS: Final = 4

DIGITS: Final = ID_BITS // DIGIT_BITS

_MASK: Final = RING - 1
_HALF: Final = RING >> 1

#: A node: ID_BYTES of the hash of a public key that each process makes anew (docs/design.md 2.7). No id is used again, so a
#: departed one stays departed.
NodeId = NewType("NodeId", bytes)

#: A cluster or a topic: a keyed hash of its kind and name (docs/design.md 2.3). The overlay never sees the name.
GroupId = NewType("GroupId", bytes)


def position(identifier: bytes) -> int:
    """Return where on the ring a node or a key is."""
    return int.from_bytes(identifier, "big")


def clockwise(start: int, end: int) -> int:
    """Return how far it is from one position to another in the direction of growing positions."""
    return (end - start) & _MASK


def ring_distance(a: int, b: int) -> int:
    """Return the shorter way round between two positions."""
    distance = (a - b) & _MASK
    return distance if distance <= _HALF else RING - distance


def is_nearer(key: int, a: int, b: int) -> bool:
    """Return whether position a is nearer to the key than b. Of two at the same distance the smaller one is nearer.

    So every key has exactly one root, whoever asks.
    """
    to_a, to_b = ring_distance(key, a), ring_distance(key, b)
    return to_a < to_b or (to_a == to_b and a < b)


def shared_digits(a: int, b: int) -> int:
    """Return how many leading digits two positions have in common."""
    return (ID_BITS - (a ^ b).bit_length()) // DIGIT_BITS


def digit(place: int, row: int) -> int:
    """Return a digit of a position; row 0 is the most significant one."""
    return (place >> (ID_BITS - DIGIT_BITS * (row + 1))) & ((1 << DIGIT_BITS) - 1)
