"""The groups of subscribers that share messages, for `iris topics` and `iris top`.

A publisher gives each message to one member of a group, and counts it. So the numbers of messages are sums over publishers. The
members are known to every publisher, and to the members themselves.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.observe.statistics import ShareStatistics
from iris_py.overview.pair import sum_up
from iris_py.overview.topics import overlaps
from iris_py.overview.units import format_count, format_counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.reports import NodeReport
    from iris_py.overview.pair import Pair

__all__ = ["GROUP_PARTS", "GroupLine", "group_lines", "patterns_text", "say_groups"]

#: The statistics requested from nodes for these lines.
GROUP_PARTS: Final = ("shares", "subscriptions")
#: Maximum number of patterns in the line of a group. Too small: the pattern in question may be missing; too large: a program
#: with invented patterns floods the output.
PATTERNS_MAX: Final = 16
#: Maximum number of patterns in a cell of a table.
PATTERNS_SHOWN: Final = 2

_NO_SHARE: Final = ShareStatistics()


class GroupLine(Line, tag="group", kw_only=True):
    """A group of subscribers that share messages, over all nodes that answered; in a sample, an estimate over all nodes."""

    name: str
    """The name of the group; 13 hexadecimal digits while the publishers do not know the name."""
    patterns: list[str]
    """The patterns of the members that answered, at most 16."""
    members: float
    """Number of members: the nodes with a subscription in the group, or the most that a publisher knows."""
    publishers: float
    """Number of nodes that have given messages to the group."""
    given_per_s: float
    """Messages given to members per second."""
    given: float
    """Messages given to members since the start of the publishers: taken, outstanding and lost ones."""
    taken: float
    """Messages that members have taken, or dropped by their own policy."""
    outstanding: float
    """Messages given and not taken now."""
    lost: float
    """Messages that members had not taken when they were lost: an upper bound."""
    full: float
    """Times that no member had room for the messages of a publisher."""


def group_lines(pairs: list[Pair], share: float, wanted: str | None = None) -> list[GroupLine]:
    """Return a line for each group, the most given messages first.

    A group that only publishers know, and to which none has given a message, is left out: its members did not answer, and its
    name is unknown.

    Args:
        pairs: Two answers of each node.
        share: The number of nodes represented by an answer.
        wanted: A pattern; only groups with a pattern that overlaps with it, and groups without a known pattern.
    """
    patterns: dict[str, set[str]] = {}
    for pair in pairs:
        for name, counts in pair.last.statistics.shares.items():
            if counts.given:  # a publisher learns the name of a group after the first messages
                patterns.setdefault(name, set())
        for each in pair.last.statistics.subscriptions:
            if each.group:
                patterns.setdefault(each.group, set()).add(each.pattern)
    lines = [
        _group_line(name, sorted(known), pairs, share)
        for name, known in patterns.items()
        if wanted is None or not known or any(overlaps(pattern, wanted) for pattern in known)
    ]
    return sorted(lines, key=lambda line: (-line.given_per_s, -line.given, line.name))


def _group_line(name: str, patterns: list[str], pairs: list[Pair], share: float) -> GroupLine:
    def counts(report: NodeReport) -> ShareStatistics:
        return report.statistics.shares.get(name, _NO_SHARE)

    def is_member(report: NodeReport) -> bool:
        return any(each.group == name for each in report.statistics.subscriptions)

    estimate = partial(sum_up, pairs, share)
    known = max((counts(pair.last).members for pair in pairs), default=0)
    return GroupLine(
        name=name,
        patterns=patterns[:PATTERNS_MAX],
        members=max(float(known), estimate(lambda pair: is_member(pair.last))),
        publishers=estimate(lambda pair: counts(pair.last).given > 0),
        given_per_s=estimate(lambda pair: pair.per_s(lambda report: counts(report).given)),
        given=estimate(lambda pair: counts(pair.last).given),
        taken=estimate(lambda pair: counts(pair.last).taken),
        outstanding=estimate(lambda pair: counts(pair.last).outstanding),
        lost=estimate(lambda pair: counts(pair.last).lost),
        full=estimate(lambda pair: counts(pair.last).full),
    )


def patterns_text(line: GroupLine) -> str:
    """Return the first patterns of a group as text, with the number of the others."""
    more = len(line.patterns) - PATTERNS_SHOWN
    return ", ".join(line.patterns[:PATTERNS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def say_groups(lines: Sequence[GroupLine]) -> list[str]:
    """Return a text about each group, with problems only if there are some."""
    said = []
    for line in lines:
        parts = [format_counted(line.members, "member"), f"{format_count(line.given_per_s)}/s given"]
        parts += [f"{format_count(line.outstanding)} outstanding"] if line.outstanding else []
        parts += [f"{format_count(line.lost)} lost"] if line.lost else []
        parts += [f"{format_count(line.full)} times full"] if line.full else []
        said.append(f"{one_line(line.name)}: {', '.join(parts)}")
    return said
