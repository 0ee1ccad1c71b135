"""Bounds the wildcards of a NATS client: each of its messages looks along every shape of pattern (docs/design.md 18.7).

The shape of a pattern says how many tokens it has, and where its wildcards are. Without a bound, 8,192 patterns of 14 tokens
that are ``a`` or ``*`` make the look-up of a single message take milliseconds. And publishers of the whole network try all
shapes that begin with the same token (:mod:`iris_py.patterns.topic.shapes`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens

__all__ = ["SHAPES_MAX", "WILD_MAX", "PatternShapes"]

#: Shapes of a client's patterns with wildcards, for each first token. Too small: a program with many forms of patterns loses
#: subscriptions; too large: two clients exhaust the shapes of a node (`iris_py.patterns.topic.shapes.NODE_SHAPES_MAX`).
SHAPES_MAX: Final = 8
#: Subscriptions of a client that begin with a wildcard. Too small: a program that watches many kinds of messages loses
#: subscriptions; too large: each message of anybody is written as often for one client.
WILD_MAX: Final = 64

_WILDCARDS: Final = frozenset((ANY_TOKEN, ANY_REST))
_Shape: TypeAlias = tuple[int, ...]


class PatternShapes:
    """The shapes of a client's patterns. Patterns without a wildcard do not count."""

    def __init__(self) -> None:
        self._wild = 0
        self._by_first: dict[str, Counter[_Shape]] = {}

    def has_room(self, pattern: Tokens) -> bool:
        """Return whether there is room for a pattern."""
        shape = _shape_of(pattern)
        if not shape:
            return True
        first = _first_of(pattern)
        if first == ANY_TOKEN and self._wild >= WILD_MAX:
            return False
        shapes = self._by_first.get(first)
        return shapes is None or len(shapes) < SHAPES_MAX or shape in shapes

    def add(self, pattern: Tokens) -> None:
        """Count a pattern."""
        shape = _shape_of(pattern)
        if shape:
            first = _first_of(pattern)
            self._wild += first == ANY_TOKEN
            self._by_first.setdefault(first, Counter())[shape] += 1

    def remove(self, pattern: Tokens) -> None:
        """Count a pattern no longer."""
        shape = _shape_of(pattern)
        if shape:
            first = _first_of(pattern)
            self._wild -= first == ANY_TOKEN
            shapes = self._by_first[first]
            shapes[shape] -= 1
            if not shapes[shape]:
                del shapes[shape]
                if not shapes:
                    del self._by_first[first]

    def clear(self) -> None:
        """Count no pattern any longer."""
        self._wild = 0
        self._by_first.clear()


def _shape_of(pattern: Tokens) -> _Shape:
    """Return the number of tokens and the places of the wildcards, the one of ``>`` negative; empty without a wildcard."""
    if _WILDCARDS.isdisjoint(pattern):
        return ()
    places = (~place if token == ANY_REST else place for place, token in enumerate(pattern) if token in _WILDCARDS)
    return (len(pattern), *places)


def _first_of(pattern: Tokens) -> str:
    return ANY_TOKEN if pattern[0] in _WILDCARDS else pattern[0]
