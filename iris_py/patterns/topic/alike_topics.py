"""A cache for topics that no pattern tells apart (docs/design.md 8.2).

The receivers of a topic depend on the first token, on the number of tokens, and on the tokens read by patterns. With ``t.>``
alone, all topics of three tokens under ``t`` have the same receivers; with ``t.*.eu`` besides, only topics with the same third
token do. A result for one topic is found for all topics alike.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from iris_py.patterns.topic.names import Tokens

Value = TypeVar("Value")


class _AlikeValues(Generic[Value]):
    """The values for the topics with one first token, and one number of tokens.

    Attributes:
        bits: The positions of the deciding tokens.
        select: Selects the deciding tokens of a topic.
        values: The values, by the deciding tokens; empty while all tokens decide.
        only: The only value, while the first token alone decides.
    """

    __slots__ = ("bits", "only", "select", "values")

    def __init__(self) -> None:
        self.bits = 0
        self.select: Callable[[Tokens], Hashable]
        self.values: dict[Hashable, Value] = {}
        self.only: Value | None = None


class AlikeTopics(Generic[Value]):
    """Values for topics; topics with equal deciding tokens share a value.

    Args:
        values_max: The largest number of values; beyond it, all are forgotten.
    """

    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._by_token: dict[str, dict[int, _AlikeValues[Value]]] = {}  # by the first token and the number of tokens
        self._size = 0  # of the inner dictionaries, and of the values

    def find(self, tokens: Tokens) -> Value | None:
        """Return the value for a topic; None if unknown. The hot path."""
        try:  # faster than get(), because nearly all are known
            alike = self._by_token[tokens[0]][len(tokens)]
        except KeyError:
            return None
        return alike.only or alike.values.get(alike.select(tokens))

    def add(self, tokens: Tokens, bits: int, value: Value) -> None:
        """Remember the value for a topic, unless all tokens decide.

        Args:
            tokens: The tokens of the topic.
            bits: The positions of the deciding tokens, as bits: a topic with the same first token, as many tokens, and the same
                tokens at the positions has an equal value. The first token always decides.
            value: The value, which is true.
        """
        if self._size >= self._values_max:
            self.clear()
        by_count = self._by_token.setdefault(tokens[0], {})
        alike = by_count.get(len(tokens))
        if alike is None:
            alike = by_count[len(tokens)] = _AlikeValues()
            self._size += 1
        every = (1 << len(tokens)) - 1
        bits = (bits | alike.bits | 1) & every
        if bits != alike.bits:  # the values of other topics may depend on fewer tokens
            self._size -= len(alike.values)
            alike.values.clear()
            alike.bits = bits
            alike.select = itemgetter(*[position for position in range(len(tokens)) if bits >> position & 1])
        if bits != every or len(tokens) == 1:
            alike.values[alike.select(tokens)] = value
            self._size += 1
        alike.only = value if bits == 1 else None

    def forget(self, token: str) -> None:
        """Forget the values for topics with a first token."""
        alikes = self._by_token.pop(token, {}).values()
        self._size -= sum([1 + len(alike.values) for alike in alikes])

    def clear(self) -> None:
        """Forget all values."""
        self._by_token.clear()
        self._size = 0
