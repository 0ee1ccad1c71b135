"""The clusters of a network with their load, and the members of a cluster."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.federation.names import CLOUD_MARK
from iris_py.json_lines import Line
from iris_py.observe.histogram import add_up
from iris_py.observe.statistics import ClusterStatistics, FarStatistics, ServiceStatistics
from iris_py.overview.caller_failures import FailureLine, failure_lines, unserved_clusters
from iris_py.overview.pair import Pair, quantile_between, share_of, sort_lines, sum_up
from iris_py.overview.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = ["CLUSTER_PARTS", "ClusterLine", "MemberStatsLine", "cluster_lines", "member_line", "members_text"]

_NOTHING: Final = ServiceStatistics()
_NO_CLUSTER: Final = ClusterStatistics()
_NOTHING_FAR: Final = FarStatistics()
#: The statistics requested from nodes for the lines of clusters.
CLUSTER_PARTS: Final = ("clusters", "far_requests")


class ClusterLine(Line, tag="cluster", kw_only=True):
    """A cluster, over all nodes that answered; in a sample, an estimate over all nodes."""

    name: str
    """The name, with the alias of its cloud for another cloud; `#` and a group id for a cluster with an unknown secret."""
    members: float
    """Number of members; 0 for a cluster of another cloud, whose members are not counted here."""
    requests_per_s: float
    """Requests executed by members, per second; for a cluster of another cloud, replies to its callers."""
    failed_per_s: float
    """Requests failed by an exception of the handler, per second."""
    errors_per_s: float
    """Requests and tunnels of all callers that ended with an error, per second."""
    error: str
    """The class of the callers' most frequent error; empty without errors."""
    waiting: float
    """Requests waiting at their callers now: for a member, for a link, or for room at a member."""
    is_unserved: bool
    """Whether nodes call the cluster without knowing a member."""
    running: float
    """Requests running in handlers now."""
    queued: float
    """Requests waiting for a handler now."""
    rejected: float
    """Requests refused by members since their start."""
    p99_s: float | None
    """99th percentile of the handlers' time, in seconds; None without requests. For a cluster of another cloud, the waiting
    time of callers.
    """
    tunnels_open: float
    """Tunnels open at members now."""
    tunnels_max: float
    """Maximum number of open tunnels."""
    tunnel_holders: dict[str, int]
    """The numbers of tunnels opened by nodes, by id; of every member the 8 largest."""


class MemberStatsLine(Line, tag="member-stats", kw_only=True):
    """A member of a cluster, with its own report of the load."""

    id: str
    """The node id."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    zone: str
    """The zone of the node."""
    queued: int
    """Requests waiting for a handler now."""
    running: int
    """Requests running in handlers now."""
    concurrency: int
    """Maximum number of running requests."""
    requests_per_s: float
    """Requests executed per second."""
    p99_s: float | None
    """99th percentile of the handlers' time, in seconds; None without requests."""
    failed: int
    """Requests failed by an exception of the handler."""
    rejected: int
    """Requests refused."""
    weight: float
    """Share of the load, relative to other members."""
    round_trip_s: float
    """Round-trip time of the query, in seconds."""


def members_text(line: ClusterLine) -> str:
    """Return the number of members as text; empty for a cluster of another cloud."""
    return "" if CLOUD_MARK in line.name else format_count(line.members)


def cluster_lines(pairs: list[Pair], found: NodeReports, sort: str) -> list[ClusterLine]:
    """Return a line for each cluster with members or callers, sorted by the field ``sort``."""
    held: dict[str, list[Pair]] = {}
    far: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name in pair.last.statistics.clusters:
            held.setdefault(name, []).append(pair)
        for name in pair.last.statistics.far_requests:
            if CLOUD_MARK in name:  # the sum beyond the bound has no name
                far.setdefault(name, []).append(pair)
    share = share_of(pairs, found)
    errors: dict[str, list[FailureLine]] = {}
    for failure in failure_lines(pairs, share):
        if failure.per_s:
            errors.setdefault(failure.cluster, []).append(failure)
    unserved = unserved_clusters(pairs)
    lines = [
        _cluster_line(name, held[name], share, errors.get(name, ()), is_unserved=name in unserved) for name in sorted(held)
    ]
    lines += [_far_line(name, far[name], share, errors.get(name, ())) for name in sorted(far)]
    return sort_lines(lines, sort)


def _cluster_line(
    name: str, pairs: list[Pair], share: float, errors: Sequence[FailureLine], *, is_unserved: bool
) -> ClusterLine:
    """Add up the reports of all nodes about a cluster."""

    def service(report: NodeReport) -> ServiceStatistics:
        return report.statistics.clusters.get(name, _NO_CLUSTER).service or _NOTHING

    before = add_up(service(pair.first).handling for pair in pairs)
    after = add_up(service(pair.last).handling for pair in pairs)
    estimate = partial(sum_up, pairs, share)
    holders: Counter[str] = Counter()
    for pair in pairs:
        holders.update(service(pair.last).tunnel_holders)
    return ClusterLine(
        name=name,
        members=estimate(lambda pair: service(pair.last).handlers > 0),
        requests_per_s=estimate(lambda pair: pair.per_s(lambda report: service(report).executed)),
        failed_per_s=estimate(lambda pair: pair.per_s(lambda report: service(report).failed)),
        errors_per_s=round(sum([each.per_s for each in errors], 0.0), 3),
        error=errors[0].error if errors else "",
        waiting=estimate(lambda pair: pair.last.statistics.clusters[name].requests.waiting),
        is_unserved=is_unserved,
        running=estimate(lambda pair: service(pair.last).running),
        queued=estimate(lambda pair: service(pair.last).queued_messages),
        rejected=estimate(lambda pair: sum(service(pair.last).rejected.values())),
        p99_s=quantile_between(before, after, 0.99),
        tunnels_open=estimate(lambda pair: service(pair.last).tunnels_open),
        tunnels_max=estimate(lambda pair: service(pair.last).tunnels_max),
        tunnel_holders=dict(holders.most_common()),
    )


def _far_line(name: str, pairs: list[Pair], share: float, errors: Sequence[FailureLine]) -> ClusterLine:
    """Add up the callers' reports about a cluster of another cloud."""

    def far(report: NodeReport) -> FarStatistics:
        return report.statistics.far_requests.get(name, _NOTHING_FAR)

    before = add_up(far(pair.first).round_trip for pair in pairs)
    after = add_up(far(pair.last).round_trip for pair in pairs)
    estimate = partial(sum_up, pairs, share)
    return ClusterLine(
        name=name,
        members=0.0,
        requests_per_s=estimate(lambda pair: pair.per_s(lambda report: far(report).replied)),
        failed_per_s=estimate(lambda pair: pair.per_s(lambda report: far(report).errors.get("RemoteError", 0))),
        errors_per_s=round(sum([each.per_s for each in errors], 0.0), 3),
        error=errors[0].error if errors else "",
        waiting=estimate(lambda pair: far(pair.last).waiting),
        is_unserved=False,
        running=0.0,
        queued=0.0,
        rejected=0.0,
        p99_s=quantile_between(before, after, 0.99),
        tunnels_open=0.0,
        tunnels_max=0.0,
        tunnel_holders={},
    )


def member_line(pair: Pair, cluster: str = "") -> MemberStatsLine:
    """Convert two reports of a member.

    Args:
        pair: Two answers of the member.
        cluster: The name of the cluster in the reports; empty if the reports have only one cluster.
    """

    def service_of(report: NodeReport) -> ServiceStatistics:
        clusters = report.statistics.clusters
        found = clusters.get(cluster, _NO_CLUSTER) if cluster else next(iter(clusters.values()), _NO_CLUSTER)
        return found.service or _NOTHING

    (service, before) = (service_of(pair.last), service_of(pair.first))
    node = pair.last.node
    return MemberStatsLine(
        id=node.id,
        name=node.name,
        address=node.address,
        zone=node.zone,
        queued=service.queued_messages,
        running=service.running,
        concurrency=service.concurrency,
        requests_per_s=round(pair.per_s(lambda report: service_of(report).executed), 3),
        p99_s=quantile_between(before.handling, service.handling, 0.99),
        failed=service.failed,
        rejected=sum(service.rejected.values()),
        weight=service.weight,
        round_trip_s=round(pair.last.round_trip_s, 6),
    )
