"""The topics of a client in each source of messages: a message comes once, although several patterns match.

A source is a history, or a subscription of the node. A client with patterns in several sources gets a message from the first
source with a matching pattern, and the other sources leave it out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.doors.rights import covers
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, parse_pattern
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.doors.web.histories import Histories, History
    from iris_py.patterns.topic.names import Tokens

__all__ = ["SourceSelection", "TopicSelection", "select_topics"]

WILDCARDS: Final = frozenset((ANY_TOKEN, ANY_REST))
#: Compiled selections. A forgotten one is compiled again.
COMPILED_MAX: Final = 4096


class TopicSelection(NamedTuple):
    """The topics of a client in one source."""

    patterns: tuple[Tokens, ...]
    """The selected topics match at least one of these patterns,"""
    excluded: tuple[Tokens, ...] = ()
    """and none of these."""

    def matcher(self) -> Callable[[str], object]:
        """Return a function whose result is true for selected topics."""
        if not self.excluded and all(WILDCARDS.isdisjoint(tokens) for tokens in self.patterns):
            return frozenset([".".join(tokens) for tokens in self.patterns]).__contains__
        selected, excluded = _compiled(self)
        if excluded is None:
            return selected.fullmatch
        return lambda topic: excluded.fullmatch(topic) is None and selected.fullmatch(topic)


class SourceSelection(NamedTuple):
    """A source, with the topics of a client in it."""

    history: History | None
    """The history; None for a subscription."""
    subscription: str
    """The pattern of the subscription; empty for a history."""
    topics: TopicSelection


def select_topics(patterns: Iterable[str], histories: Histories) -> list[SourceSelection]:
    """Return the sources of a client, histories first.

    Args:
        patterns: The patterns of the client, with ``@cloud`` for topics of another cloud.
        histories: The histories of the door.

    Raises:
        ValueError: A pattern is invalid.
    """
    clouds: dict[str, list[Tokens]] = {}
    for pattern in patterns:
        name, mark, cloud = pattern.partition(CLOUD_MARK)
        if mark and not cloud:
            raise ValueError("a pattern for another cloud ends with the alias of the cloud, as 'clicks.>@eu'")
        clouds.setdefault(cloud, []).append(parse_pattern(name))
    kept: dict[int, tuple[History, list[Tokens]]] = {}
    others: list[tuple[str, Tokens]] = []
    for cloud, tokens in clouds.items():
        for each in _widest(tokens):
            history = None if cloud else histories.covering(each)
            if history is None:
                others.append((cloud, each))
            else:
                kept.setdefault(id(history), (history, []))[1].append(each)
    earlier: dict[str, tuple[Tokens, ...]] = {}
    found: list[SourceSelection] = []
    for history, own in kept.values():
        excluded = earlier.get("", ())
        found.append(SourceSelection(history, "", TopicSelection(tuple(sorted(own)), excluded)))
        earlier[""] = (*excluded, *own)
    for cloud, each in others:
        excluded = earlier.get(cloud, ())
        name = ".".join(each) + (f"{CLOUD_MARK}{cloud}" if cloud else "")
        found.append(SourceSelection(None, name, TopicSelection((each,), excluded)))
        earlier[cloud] = (*excluded, each)
    return found


def _widest(patterns: list[Tokens]) -> list[Tokens]:
    """Return the patterns in a fixed order, without covered ones."""
    distinct = sorted(set(patterns))
    return [each for each in distinct if not any(covers(other, each) for other in distinct if other != each)]


@lru_cache(COMPILED_MAX)
def _compiled(topics: TopicSelection) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    return _expression(topics.patterns), _expression(topics.excluded) if topics.excluded else None


def _expression(patterns: tuple[Tokens, ...]) -> re.Pattern[str]:
    parts = [r"\.".join(map(_expression_of_token, tokens)) for tokens in patterns]
    return re.compile("|".join(parts), re.DOTALL)


def _expression_of_token(token: str) -> str:
    return ".+" if token == ANY_REST else r"[^.]+" if token == ANY_TOKEN else re.escape(token)
