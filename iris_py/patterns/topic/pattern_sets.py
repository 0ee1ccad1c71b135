"""Sets of topic patterns: the union of subscribers' patterns, and fewer patterns that cover many (docs/design.md 15.72)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator


def intersection(one: Tokens, other: Tokens) -> Tokens | None:
    """Return the pattern of the topics that match both patterns; None if no topic does."""
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
    """Tell whether the first pattern matches every topic of the second."""
    return intersection(wide, narrow) == narrow


def reduced(patterns: Iterable[Tokens], limit: int, kind: Callable[[Tokens], Hashable] = tuple) -> set[Tokens]:
    """Return patterns of at most ``limit`` kinds that match all topics of the given patterns, and few others.

    Beyond the limit, the patterns with the longest common prefix are replaced by the prefix and ``>``, the group of most kinds
    first. The unwanted topics let through lie close to wanted ones.

    Args:
        limit: The largest number of kinds, at least 1.
        kind: Returns the kind of a pattern. By default every pattern is a kind of its own, so the limit counts patterns.
    """
    left = set(patterns)
    kinds = Counter(map(kind, left))
    if len(kinds) <= limit:
        return left
    deepest = max(map(len, left)) - 1
    for length in range(deepest, -1, -1):
        below: dict[Tokens, list[Tokens]] = {}
        for pattern in left:
            prefix = pattern[:length]
            if len(pattern) > length and ANY_TOKEN not in prefix and ANY_REST not in prefix:
                below.setdefault(prefix, []).append(pattern)
        order = sorted((-len(set(map(kind, its))), prefix) for prefix, its in below.items())
        for count, prefix in order:
            if len(kinds) <= limit:
                return left
            if count < -1:
                its = below[prefix]
                wide = (*prefix, ANY_REST)
                left.difference_update(its)
                left.add(wide)
                kinds[kind(wide)] += 1
                for gone in map(kind, its):
                    kinds[gone] -= 1
                    if not kinds[gone]:
                        del kinds[gone]
    return left


class Wanted:
    """The topic patterns in use, with the number of users of each pattern."""

    def __init__(self) -> None:
        self._counts: dict[Tokens, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Tokens]:
        return iter(self._counts)

    def add(self, pattern: Tokens) -> bool:
        """Add one user of a pattern; return whether the user is the first."""
        count = self._counts[pattern] = self._counts.get(pattern, 0) + 1
        return count == 1

    def remove(self, pattern: Tokens) -> bool:
        """Remove one user of a pattern; return whether the user was the last."""
        self._counts[pattern] -= 1
        if self._counts[pattern]:
            return False
        del self._counts[pattern]
        return True
