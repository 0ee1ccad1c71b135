"""Totals over all nodes of a network: the first line of `iris top --json`, and the top of its screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.json_lines import Line
from iris_py.observe.histogram import add_up
from iris_py.observe.reports import Estimate, Size, sum_of
from iris_py.overview.caller_failures import met_by
from iris_py.overview.pair import quantile_between
from iris_py.overview.units import format_estimate, format_seconds, rounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.observe.reports import NodeReport, NodeReports
    from iris_py.overview.pair import Pair

__all__ = ["TotalsLine", "describe_totals", "total_parts", "totals_of"]

#: Drops caused by nodes of other networks, which are left out of the total.
FOREIGN: Final = frozenset({"datagram", "refused_connection"})


class TotalsLine(Line, tag="totals", kw_only=True):
    """Totals over all nodes, with error bounds valid in 19 of 20 cases; 0 for an exact total."""

    nodes: Estimate
    """Number of nodes, without the node of this command."""
    requests_per_s: Estimate
    """Requests executed by members, per second."""
    failed_per_s: Estimate
    """Requests failed by an exception of the handler, per second."""
    errors_per_s: Estimate
    """Requests and tunnels of all callers that ended with an error, per second: no members, a timeout, a failed handler ..."""
    messages_per_s: Estimate
    """Messages delivered to subscriptions, per second."""
    queued: Estimate
    """Requests and messages waiting now."""
    dropped: Estimate
    """Messages of all kinds dropped by nodes since their start, without messages from other networks."""
    dropped_per_s: Estimate
    """Messages dropped per second."""
    links: Estimate
    """Open links, each counted at both ends."""
    cpu: Estimate
    """Processors used by the processes of the nodes now."""
    resident_bytes: Estimate
    """Memory used by the processes of the nodes now."""
    p50_s: float | None
    """Median of the handlers' time, in seconds; None without requests."""
    p99_s: float | None
    """99th percentile of the handlers' time."""


def totals_of(pairs: list[Pair], found: NodeReports) -> TotalsLine:
    """Return the totals over all nodes; in a sample, estimates with error bounds."""
    size = found.size if found.is_sample else Size(float(len(pairs)))

    def total(read: Callable[[Pair], float]) -> Estimate:
        estimate = sum_of([float(read(pair)) for pair in pairs], size)
        return Estimate(round(estimate.total, 3), round(estimate.error, 3))

    before = add_up(pair.first.statistics.histograms.handling for pair in pairs)
    after = add_up(pair.last.statistics.histograms.handling for pair in pairs)
    return TotalsLine(
        nodes=Estimate(round(found.size.nodes, 1), round(2 * found.size.deviation * found.size.nodes, 1)),
        requests_per_s=total(lambda pair: pair.per_s(lambda report: report.statistics.executed)),
        failed_per_s=total(lambda pair: pair.per_s(_failed)),
        errors_per_s=total(lambda pair: pair.per_s(lambda report: sum(met_by(report).values()))),
        messages_per_s=total(
            lambda pair: pair.per_s(lambda report: sum(each.delivered for each in report.statistics.subscriptions))
        ),
        queued=total(lambda pair: _queued(pair.last)),
        dropped=total(lambda pair: _dropped(pair.last)),
        dropped_per_s=total(lambda pair: pair.per_s(_dropped)),
        links=total(lambda pair: pair.last.about.links),
        cpu=total(lambda pair: pair.per_s(lambda report: report.statistics.process.cpu_s)),
        resident_bytes=total(lambda pair: pair.last.statistics.process.resident_bytes),
        p50_s=rounded(quantile_between(before, after, 0.5)),
        p99_s=rounded(quantile_between(before, after, 0.99)),
    )


def total_parts(totals: TotalsLine) -> list[str]:
    """Return the totals as short texts, the most important first."""
    parts = [
        f"{format_estimate(totals.requests_per_s)} requests/s",
        f"{format_estimate(totals.failed_per_s)} failed/s",
        f"{format_estimate(totals.errors_per_s)} errors/s",
        f"{format_estimate(totals.dropped_per_s)} dropped/s",
        f"p50 {format_seconds(totals.p50_s) or '-'}",
        f"p99 {format_seconds(totals.p99_s) or '-'}",
        f"{format_estimate(totals.messages_per_s)} messages/s",
        f"{format_estimate(totals.queued)} queued",
        f"{format_estimate(totals.dropped)} dropped",
        f"{format_estimate(totals.links)} links",
    ]
    if totals.resident_bytes.total:  # systems that do not report memory do not report processors either
        memory = Estimate(totals.resident_bytes.total / 2**20, totals.resident_bytes.error / 2**20)
        parts += [f"{format_estimate(totals.cpu)} processors", f"{format_estimate(memory)} MiB"]
    return parts


def describe_totals(totals: TotalsLine, found: NodeReports) -> str:
    """Return the totals as two lines of text."""
    parts = total_parts(totals)
    first = [f"{len(found.reports)} of {format_estimate(totals.nodes)} nodes", *parts[:6]]
    return "  ".join(first) + "\n" + "  ".join(parts[6:])


def _failed(report: NodeReport) -> int:
    return sum(each.service.failed for each in report.statistics.clusters.values() if each.service is not None)


def _queued(report: NodeReport) -> int:
    statistics = report.statistics
    requests = sum(each.service.queued_messages for each in statistics.clusters.values() if each.service is not None)
    return requests + sum(each.queued_messages for each in statistics.subscriptions)


def _dropped(report: NodeReport) -> int:
    return sum(count for reason, count in report.statistics.drops.items() if reason not in FOREIGN)
