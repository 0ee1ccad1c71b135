"""Sets of patterns of topics: what several want together, and fewer patterns that stand for many (docs/design.md 15.72)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def intersection(one: Tokens, other: Tokens) -> Tokens | None:
    """Return the pattern of the topics that match both of two patterns; None if there are none."""
    both: list[str] = []
    for index in range(max(len(one), len(other))):
        if index >= len(one) or index >= len(other):
            return None
        left, right = one[index], other[index]
        if left == ANY_REST:
            return (*both, *other[index:])
        if right == ANY_REST:
            return (*both, *one[index:])
        if left == ANY_TOKEN:
            both.append(right)
        elif right in (left, ANY_TOKEN):
            both.append(left)
        else:
            return None
    return tuple(both)


def covers(wide: Tokens, narrow: Tokens) -> bool:
    """Tell whether every topic that matches the second pattern matches the first one."""
    return intersection(wide, narrow) == narrow


def reduced(patterns: Iterable[Tokens], limit: int) -> set[Tokens]:
    """Return at most so many patterns that match whatever some patterns match, and as little else as is easy.

    Where they are too many, those with the longest common prefix give way to that prefix and ``>``, the most of them first. So
    what nobody wants is let through only as far as it lies beside what is wanted.

    Args:
        patterns: What is wanted.
        limit: How many patterns there may be, at least 1.
    """
    left = set(patterns)
    if len(left) <= limit:
        return left
    deepest = max(map(len, left)) - 1
    for length in range(deepest, -1, -1):
        below: dict[Tokens, list[Tokens]] = {}
        for pattern in left:
            prefix = pattern[:length]
            if len(pattern) > length and ANY_TOKEN not in prefix and ANY_REST not in prefix:
                below.setdefault(prefix, []).append(pattern)
        for prefix, its in sorted(below.items(), key=lambda entry: (-len(entry[1]), entry[0])):
            if len(left) <= limit:
                return left
            if len(its) > 1:
                left.difference_update(its)
                left.add((*prefix, ANY_REST))
    return left


class Wanted:
    """Patterns that several want, each counted."""

    def __init__(self) -> None:
        self._counts: dict[Tokens, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Tokens]:
        return iter(self._counts)

    def add(self, pattern: Tokens) -> bool:
        """Want a pattern once more; returns whether nobody did before."""
        count = self._counts[pattern] = self._counts.get(pattern, 0) + 1
        return count == 1

    def remove(self, pattern: Tokens) -> bool:
        """Want a pattern once less; returns whether nobody does any more."""
        self._counts[pattern] -= 1
        if self._counts[pattern]:
            return False
        del self._counts[pattern]
        return True
