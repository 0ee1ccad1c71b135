"""Queries to many nodes from a shell: shared by `iris nodes`, `clusters`, `topics`, `members --stats` and `top`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Line
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py import Node, NodeName, NodeReport, NodeReports
    from iris_py.observe.histogram import HistogramStatistics
    from iris_py.observe.reports import Estimate

__all__ = [
    "AskedSummary",
    "Pair",
    "QueryOptions",
    "complain_of",
    "exit_code_of",
    "format_bytes",
    "format_count",
    "format_estimate",
    "format_seconds",
    "measure",
    "quantile_between",
    "rounded",
    "summary_of",
]

#: Maximum number of silent nodes that are named.
NAMED_MAX: Final = 5


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """The nodes that a command queries, and the times of its queries."""

    is_every: bool = False
    """Whether to query every node of a large network, too (`--all`)."""
    sample: int = NODES_SAMPLED
    """Number of nodes in a sample of a large network."""
    interval_s: float = 0.0
    """Seconds between two queries, for rates of counters; with 0 nodes are queried once, without rates."""
    timeout_s: float = ASK_TIMEOUT_S
    """Timeout of each query, in seconds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two reports of the same node, at different times."""

    first: NodeReport
    last: NodeReport

    def per_s(self, read: Callable[[NodeReport], float]) -> float:
        """Return the growth of a counter between both reports, per second by the clock of the node; 0 for a single report."""
        elapsed_s = self.last.about.uptime_s - self.first.about.uptime_s
        return max(0.0, read(self.last) - read(self.first)) / elapsed_s if elapsed_s > 0.0 else 0.0


async def measure(
    node: Node,
    *parts: str,
    query: QueryOptions,
    cluster: str = "",
    nodes: Sequence[NodeName] | None = None,
) -> tuple[list[Pair], NodeReports]:
    """Query nodes twice, for rates of counters.

    Args:
        node: The querying node.
        parts: As for :meth:`iris_py.Node.ask_nodes`.
        query: The interval and timeout of the queries, and the nodes without ``nodes``.
        cluster: The only cluster to include.
        nodes: The nodes to query; None for all, or a sample.

    Returns:
        The report pairs of nodes that answered the second query, and the outcomes of all nodes.
    """
    timeout_s = query.timeout_s
    first = await node.ask_nodes(
        *parts, cluster=cluster, nodes=nodes, every=query.is_every, sample=query.sample, timeout=timeout_s
    )
    if query.interval_s <= 0.0 or not first.reports:
        return [Pair(report, report) for report in first.reports], first
    await asyncio.sleep(query.interval_s)
    again = await node.ask_nodes(*parts, cluster=cluster, nodes=[report.node for report in first.reports], timeout=timeout_s)
    before = {report.node.id: report for report in first.reports}
    both = msgspec.structs.replace(
        first,
        reports=again.reports,
        missing=(*first.missing, *again.missing),
        refused=(*first.refused, *again.refused),
    )
    return [Pair(before[report.node.id], report) for report in again.reports], both


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


def complain_of(found: NodeReports, *, shown: int = 0, total: int = 0) -> None:
    """Report on standard error the nodes without an answer, and the number of lines not shown."""
    if total > shown:
        complain(f"these are {shown} of {total}: --limit shows more.")
    if found.is_sample:
        complain(
            f"these are from {len(found.reports)} of about {found.size.nodes:,.0f} nodes, drawn by chance: numbers are "
            "estimates. --all queries every node."
        )
    if found.missing:
        complain(f"{len(found.reports)} of {found.asked} nodes answered, missing: {_names(found.missing)}")
    if found.refused:
        complain(f"{len(found.refused)} nodes refuse queries, or get too many: {_names(found.refused)}")
    if not found.is_whole:
        complain("a part of the ring did not answer, so there may be nodes that were not found. Try again.")


def exit_code_of(found: NodeReports, network: str) -> ExitCode:
    """Return the exit code of a command that queried nodes. A network without other nodes is reported on standard error."""
    if found.reports:
        return ExitCode.OK
    if found.asked:
        return ExitCode.TIMEOUT
    complain(f"no other node found in the network {network!r}. Start one with `iris node`, or name one with --seed.")
    return ExitCode.NO_MEMBERS


def format_seconds(duration_s: float | None) -> str:
    """Return a duration as text, with three digits and a unit; empty for None."""
    if duration_s is None:
        return ""
    if duration_s == float("inf"):
        return "> 8 s"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if duration_s >= size:
            return f"{duration_s / size:.1f} {unit}"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if duration_s >= size * 0.9995:  # shown as a whole unit with three digits
            return f"{duration_s / size:.3g} {unit}"
    return f"{duration_s * 1e6:.3g} us"


def rounded(duration_s: float | None) -> float | None:
    """Round a duration to whole microseconds, as ``--json`` prints durations."""
    return None if duration_s is None else round(duration_s, 6)


def format_count(count: float) -> str:
    """Return a number as text; ``?`` for an infinite or invalid number from a node."""
    if not isfinite(count):
        return "?"
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:.1f}"


def format_bytes(count: float) -> str:
    """Return a number of bytes as text."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def format_estimate(estimate: Estimate, unit: str = "") -> str:
    """Return a sum as text; for an estimate, with the error in percent."""
    text = f"{format_count(estimate.total)}{unit}"
    if not estimate.error:
        return text
    share = estimate.error / estimate.total if estimate.total else float("inf")
    return f"{text} +- {share:.0%}" if share <= 10 else f"about {text}"


def quantile_between(first: HistogramStatistics, last: HistogramStatistics, share: float) -> float | None:
    """Return a quantile of the durations counted between two reports (seconds).

    If none was counted between the reports, return the quantile of all durations; None without any.
    """
    before = (*first.counts, *([0] * (len(last.counts) - len(first.counts))))
    counts = tuple(max(0, late - early) for early, late in zip(before, last.counts, strict=False))
    grown = type(last)(counts, max(0.0, last.sum_s - first.sum_s))
    return (grown if grown.count else last).quantile_s(share)


def _names(nodes: Sequence[NodeName]) -> str:
    named = ", ".join(node.short for node in nodes[:NAMED_MAX])
    return named if len(nodes) <= NAMED_MAX else f"{named}, ... ({len(nodes)} in all)"
