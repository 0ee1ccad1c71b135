"""The subscribed patterns of a network, with the load of their subscriptions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from iris_py.json_lines import Line
from iris_py.overview.pair import Pair, share_of, sort_lines, sum_up

if TYPE_CHECKING:
    from iris_py.observe.reports import NodeReport, NodeReports
    from iris_py.observe.statistics import SubscriptionStatistics

__all__ = ["TopicLine", "overlaps", "topic_lines", "way_of"]


class TopicLine(Line, tag="topic", kw_only=True):
    """A subscribed pattern, over all nodes that answered; in a sample, an estimate over all nodes."""

    pattern: str
    """The pattern, as it was given."""
    subscriptions: float
    """Number of subscriptions."""
    delivered_per_s: float
    """Messages delivered per second, over all subscriptions."""
    dropped: float
    """Messages dropped since the subscriptions began."""
    queued: float
    """Messages in the queues now."""
    oldest_s: float
    """Waiting time of the oldest queued message, in seconds."""
    is_promoted: bool
    """Whether the pattern is promoted, so that its messages come by multicast."""


def topic_lines(pairs: list[Pair], found: NodeReports, wanted: str | None, sort: str) -> list[TopicLine]:
    """Return a line for each subscribed pattern that overlaps with ``wanted``, sorted by the field ``sort``."""
    held: dict[str, list[Pair]] = {}
    for pair in pairs:
        for pattern in {each.pattern for each in pair.last.statistics.subscriptions}:
            held.setdefault(pattern, []).append(pair)
    meant = sorted(pattern for pattern in held if wanted is None or overlaps(pattern, wanted))
    share = share_of(pairs, found)
    return sort_lines([_topic_line(pattern, held[pattern], share) for pattern in meant], sort)


def _topic_line(pattern: str, pairs: list[Pair], share: float) -> TopicLine:
    """Add up the reports of all subscribers to a pattern."""

    def mine(report: NodeReport) -> list[SubscriptionStatistics]:
        return [each for each in report.statistics.subscriptions if each.pattern == pattern]

    estimate = partial(sum_up, pairs, share)
    return TopicLine(
        pattern=pattern,
        subscriptions=estimate(lambda pair: len(mine(pair.last))),
        delivered_per_s=estimate(lambda pair: pair.per_s(lambda report: sum(each.delivered for each in mine(report)))),
        dropped=estimate(lambda pair: sum(sum(each.dropped.values()) for each in mine(pair.last))),
        queued=estimate(lambda pair: sum(each.queued_messages for each in mine(pair.last))),
        oldest_s=round(max((each.oldest_s for pair in pairs for each in mine(pair.last)), default=0.0), 3),
        is_promoted=any(each.is_promoted for pair in pairs for each in mine(pair.last)),
    )


def way_of(line: TopicLine) -> str:
    """Return how the messages for a pattern come, as text."""
    return "multicast" if line.is_promoted else "direct"


def overlaps(one: str, other: str) -> bool:
    """Return whether some topic matches both patterns."""
    left, right = one.split("."), other.split(".")
    for here, there in zip(left, right, strict=False):
        if ">" in (here, there):
            return True
        if here != there and "*" not in (here, there):
            return False
    return len(left) == len(right)
