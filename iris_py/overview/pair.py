"""Two reports of a node at different times, the sums over all nodes, and the summary of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_py.json_lines import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.json_lines import AnyLine
    from iris_py.observe.histogram import HistogramStatistics
    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = ["AskedSummary", "Pair", "quantile_between", "share_of", "sort_lines", "sum_up", "summary_of"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two reports of the same node, at different times."""

    first: NodeReport
    last: NodeReport

    def per_s(self, read: Callable[[NodeReport], float]) -> float:
        """Return the growth of a counter between both reports, per second by the clock of the node; 0 for a single report."""
        elapsed_s = self.last.about.uptime_s - self.first.about.uptime_s
        return max(0.0, read(self.last) - read(self.first)) / elapsed_s if elapsed_s > 0.0 else 0.0


class AskedSummary(Line, tag="summary", kw_only=True):
    """The end of a list made from nodes' answers: which nodes answered, and whether the list is complete."""

    shown: int
    """Number of lines printed before this one."""
    total: int
    """Number of all lines; `--limit` omits the rest."""
    asked: int
    """Number of nodes queried."""
    answered: int
    """Number of nodes that answered."""
    missing: list[str]
    """The ids of nodes that did not answer."""
    refused: list[str]
    """The ids of nodes that refused."""
    nodes: float
    """Number of other nodes in the network, exact or estimated."""
    is_sample: bool
    """Whether a fair sample was queried, and numbers are estimates."""
    is_whole: bool
    """Whether the ring was walked without a gap, so that no node was missed."""


def summary_of(found: NodeReports, *, shown: int, total: int) -> AskedSummary:
    """Return the summary line of a query to several nodes."""
    return AskedSummary(
        shown=shown,
        total=total,
        asked=found.asked,
        answered=len(found.reports),
        missing=[each.id for each in found.missing],
        refused=[each.id for each in found.refused],
        nodes=round(found.size.nodes, 1),
        is_sample=found.is_sample,
        is_whole=found.is_whole,
    )


def quantile_between(first: HistogramStatistics, last: HistogramStatistics, share: float) -> float | None:
    """Return a quantile of the durations counted between two reports (seconds).

    If none was counted between the reports, return the quantile of all durations; None without any.
    """
    before = (*first.counts, *([0] * (len(last.counts) - len(first.counts))))
    counts = tuple(max(0, late - early) for early, late in zip(before, last.counts, strict=False))
    grown = type(last)(counts, max(0.0, last.sum_s - first.sum_s))
    return (grown if grown.count else last).quantile_s(share)


def share_of(pairs: list[Pair], found: NodeReports) -> float:
    """Return the number of nodes represented by an answer: 1, or more in a sample."""
    return found.size.nodes / len(pairs) if found.is_sample and pairs else 1.0


def sum_up(pairs: list[Pair], share: float, read: Callable[[Pair], float]) -> float:
    """Return the sum of a number over all nodes: over those that answered, times the nodes represented by an answer."""
    return round(sum(read(pair) for pair in pairs) * share, 3)


def sort_lines(lines: list[AnyLine], sort: str) -> list[AnyLine]:
    """Sort lines by a field, the largest first; by name they are sorted already."""
    if sort not in ("name", "pattern"):
        lines.sort(key=lambda line: -getattr(line, sort))
    return lines
