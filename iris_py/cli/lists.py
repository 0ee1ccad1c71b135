"""The commands that list parts of a network: `iris nodes`, `iris clusters`, `iris topics`, `iris members --stats`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.caller_failures import FailureLine, failure_lines, unserved_clusters
from iris_py.cli.command_node import visit
from iris_py.cli.generations import GenerationsHolder, describe_holdings, holdings_of, short_generations
from iris_py.cli.network import (
    AskedSummary,
    Pair,
    QueryOptions,
    complain_of,
    exit_code_of,
    format_count,
    format_seconds,
    measure,
    quantile_between,
    summary_of,
)
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import AnyLine, Column, Line, Output, short_id
from iris_py.cli.request import MembersSummary
from iris_py.cli.topic_table import (
    INTEREST_PARTS,
    TableLine,
    TokenLine,
    say_table,
    say_tokens,
    say_versions,
    table_line,
    token_lines,
)
from iris_py.federation.names import CLOUD_MARK
from iris_py.observe.histogram import add_up
from iris_py.observe.statistics import ClusterStatistics, FarStatistics, ServiceStatistics, SubscriptionStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py import NodeReport, NodeReports
    from iris_py.cli.output import Lines
    from iris_py.cli.settings import Settings

__all__ = [
    "CLUSTER_COLUMNS",
    "CLUSTER_PARTS",
    "LINES",
    "ClusterLine",
    "MemberStatsLine",
    "TopicLine",
    "cluster_lines",
    "clusters",
    "generations_differ",
    "member_line",
    "member_stats",
    "members_text",
    "node_line",
    "nodes",
    "share_of",
    "topic_lines",
    "topics",
    "way_of",
]

_NOTHING: Final = ServiceStatistics()
_NO_CLUSTER: Final = ClusterStatistics()
_NOTHING_FAR: Final = FarStatistics()
#: The statistics requested from nodes for the lines of clusters.
CLUSTER_PARTS: Final = ("clusters", "far_requests")


class NodeLine(Line, tag="node", kw_only=True):
    """A node of the network, by its own report."""

    id: str
    """The node id: 32 hexadecimal digits."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    zone: str
    """The zone of the node."""
    version: str
    """The version of Iris."""
    uptime_s: float
    """Age of the node, in seconds."""
    unix_s: float
    """Clock of the node at its answer: seconds since 1970."""
    links: int
    """Number of open links."""
    clusters: int
    """Number of clusters served."""
    subscriptions: int
    """Number of open subscriptions."""
    seals: str
    """The id of the secret's generation used to encrypt: 16 hexadecimal digits; empty if the node does not report it."""
    accepts: list[str]
    """The ids of the accepted generations."""
    round_trip_s: float
    """Round-trip time of the query, in seconds."""


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


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "nodes": (NodeLine, AskedSummary),
    "clusters": (ClusterLine, AskedSummary),
    "topics": (TopicLine, TokenLine, TableLine, AskedSummary),
    "members": (MemberStatsLine,),
}

_NODE_COLUMNS: Final = (
    Column[NodeLine]("id", lambda line: short_id(line.id)),
    Column[NodeLine]("name", lambda line: line.name),
    Column[NodeLine]("address", lambda line: line.address),
    Column[NodeLine]("zone", lambda line: line.zone),
    Column[NodeLine]("version", lambda line: line.version, rank=1),
    Column[NodeLine]("uptime", lambda line: format_seconds(line.uptime_s), is_number=True),
    Column[NodeLine]("links", lambda line: str(line.links), is_number=True, rank=2),
    Column[NodeLine]("secret", lambda line: short_generations(line.seals, line.accepts)),
    Column[NodeLine]("rtt", lambda line: format_seconds(line.round_trip_s), is_number=True),
)
CLUSTER_COLUMNS: Final = (
    Column[ClusterLine]("cluster", lambda line: line.name),
    Column[ClusterLine]("members", lambda line: members_text(line), is_number=True),
    Column[ClusterLine]("requests/s", lambda line: format_count(line.requests_per_s), is_number=True),
    Column[ClusterLine]("failed/s", lambda line: format_count(line.failed_per_s), is_number=True, rank=2),
    Column[ClusterLine]("errors/s", lambda line: format_count(line.errors_per_s), is_number=True),
    Column[ClusterLine]("running", lambda line: format_count(line.running), is_number=True),
    Column[ClusterLine]("queued", lambda line: format_count(line.queued), is_number=True),
    Column[ClusterLine]("rejected", lambda line: format_count(line.rejected), is_number=True, rank=1),
    Column[ClusterLine]("p99", lambda line: format_seconds(line.p99_s), is_number=True),
)
_TOPIC_COLUMNS: Final = (
    Column[TopicLine]("pattern", lambda line: line.pattern),
    Column[TopicLine]("subscriptions", lambda line: format_count(line.subscriptions), is_number=True),
    Column[TopicLine]("messages/s", lambda line: format_count(line.delivered_per_s), is_number=True),
    Column[TopicLine]("dropped", lambda line: format_count(line.dropped), is_number=True),
    Column[TopicLine]("queued", lambda line: format_count(line.queued), is_number=True),
    Column[TopicLine]("oldest", lambda line: format_seconds(line.oldest_s) if line.oldest_s else "", is_number=True, rank=1),
    Column[TopicLine]("way", lambda line: way_of(line), rank=2),
)
_MEMBER_COLUMNS: Final = (
    Column[MemberStatsLine]("member", lambda line: short_id(line.id)),
    Column[MemberStatsLine]("name", lambda line: line.name),
    Column[MemberStatsLine]("zone", lambda line: line.zone, rank=2),
    Column[MemberStatsLine]("queued", lambda line: str(line.queued), is_number=True),
    Column[MemberStatsLine]("running", lambda line: f"{line.running}/{line.concurrency}", is_number=True),
    Column[MemberStatsLine]("asked/s", lambda line: format_count(line.requests_per_s), is_number=True),
    Column[MemberStatsLine]("p99", lambda line: format_seconds(line.p99_s), is_number=True),
    Column[MemberStatsLine]("failed", lambda line: str(line.failed), is_number=True),
    Column[MemberStatsLine]("rejected", lambda line: str(line.rejected), is_number=True),
    Column[MemberStatsLine]("weight", lambda line: f"{line.weight:g}", is_number=True, rank=1),
)


async def nodes(settings: Settings, *, zone: str | None, query: QueryOptions, limit: int, as_json: bool) -> int:
    """List the nodes of the network by their own reports (`iris nodes`); return the exit code."""
    async with visit(settings) as node:
        network = node.network
        found = await node.ask_nodes("security", every=query.is_every, sample=query.sample, timeout=query.timeout_s)
    lines = [node_line(report) for report in found.reports if zone is None or _is_in(report.node.zone, zone)]
    lines.sort(key=lambda line: (line.zone, line.address, line.id))
    code = _print(Output(as_json=as_json), lines, _NODE_COLUMNS, found, limit, network)
    if said := generations_differ(lines):
        complain(f"{said}. See `iris doctor`.")
    return code


async def clusters(settings: Settings, *, sort: str, query: QueryOptions, limit: int, as_json: bool) -> int:
    """List the clusters of the network with their load (`iris clusters`); return the exit code."""
    async with visit(settings) as node:
        network = node.network
        pairs, found = await measure(node, *CLUSTER_PARTS, query=query)
    return _print(Output(as_json=as_json), cluster_lines(pairs, found, sort), CLUSTER_COLUMNS, found, limit, network)


async def topics(
    settings: Settings,
    pattern: str | None,
    *,
    sort: str,
    query: QueryOptions,
    limit: int,
    as_json: bool,
) -> int:
    """List the subscribed patterns, the first tokens of topics and the table (`iris topics`); return the exit code."""
    output = Output(as_json=as_json)
    async with visit(settings) as node:
        network = node.network
        pairs, found = await measure(node, "subscriptions", *INTEREST_PARTS, query=query)
        own = node.statistics().interest
    lines, share = topic_lines(pairs, found, pattern, sort), share_of(pairs, found)
    tokens, table = token_lines(pairs, share, pattern), table_line(pairs, share, own)
    output.table(lines[:limit], _TOPIC_COLUMNS)
    output.lines([(line, None) for line in tokens[:limit]])
    output.line(table)
    output.labelled("tokens", say_tokens(tokens))
    output.labelled("table", say_table(table, pairs))
    if differ := say_versions(found.reports):
        complain(f"{differ}. See `iris doctor`.")
    return _end(output, found, len(lines), limit, network)


async def member_stats(settings: Settings, cluster: str, *, query: QueryOptions, as_json: bool) -> int:
    """List the members of a cluster with their load (`iris members --stats`); return the exit code."""
    async with visit(settings) as node:
        view, network = node.members(cluster), node.network
        members = [iris_py.NodeName(member.id, member.address, member.zone, member.name) for member in await view]
        total = view.total
        pairs, found = await measure(node, "clusters", query=query, cluster=cluster, nodes=members)
        seeds = node.unreached_seeds()
    lines = sorted((member_line(pair) for pair in pairs), key=lambda line: (line.zone, line.address, line.id))
    output = Output(as_json=as_json)
    output.table(lines, _MEMBER_COLUMNS)
    output.line(MembersSummary(network=network, cluster=cluster, shown=len(lines), total=total, unreached_seeds=dict(seeds)))
    if total > len(members):
        complain(f"these are {len(members)} of {total} members of {cluster!r}: a node sees only a sample of a large cluster.")
    complain_of(found)
    if not members:
        complain(f"nobody serves {cluster!r}. Start a member with `iris join`, or list the clusters with `iris clusters`.")
        return ExitCode.NO_MEMBERS
    return ExitCode.OK if lines else ExitCode.TIMEOUT


def generations_differ(lines: Sequence[NodeLine]) -> str:
    """Return a sentence about nodes with different generations of the secret; empty if all nodes hold the same."""
    holdings = holdings_of(
        GenerationsHolder(line.address or short_id(line.id), line.seals, tuple(line.accepts)) for line in lines
    )
    return f"nodes hold different generations of the secret: {describe_holdings(holdings)}" if len(holdings) > 1 else ""


def node_line(report: NodeReport) -> NodeLine:
    """Convert the report of a node."""
    node, about, security = report.node, report.about, report.statistics.security
    return NodeLine(
        id=node.id,
        name=node.name,
        address=node.address,
        zone=node.zone,
        version=about.version,
        uptime_s=round(about.uptime_s, 3),
        unix_s=round(about.unix_s, 3),
        links=about.links,
        clusters=about.clusters,
        subscriptions=about.subscriptions,
        seals=security.primary,
        accepts=list(security.accepted),
        round_trip_s=round(report.round_trip_s, 6),
    )


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
    return _sorted(lines, sort)


def _cluster_line(
    name: str, pairs: list[Pair], share: float, errors: Sequence[FailureLine], *, is_unserved: bool
) -> ClusterLine:
    """Add up the reports of all nodes about a cluster."""

    def service(report: NodeReport) -> ServiceStatistics:
        return report.statistics.clusters.get(name, _NO_CLUSTER).service or _NOTHING

    before = add_up(service(pair.first).handling for pair in pairs)
    after = add_up(service(pair.last).handling for pair in pairs)
    estimate = partial(_estimate, pairs, share)
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
    estimate = partial(_estimate, pairs, share)
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


def topic_lines(pairs: list[Pair], found: NodeReports, wanted: str | None, sort: str) -> list[TopicLine]:
    """Return a line for each subscribed pattern that overlaps with ``wanted``, sorted by the field ``sort``."""
    held: dict[str, list[Pair]] = {}
    for pair in pairs:
        for pattern in {each.pattern for each in pair.last.statistics.subscriptions}:
            held.setdefault(pattern, []).append(pair)
    meant = sorted(pattern for pattern in held if wanted is None or overlaps(pattern, wanted))
    share = share_of(pairs, found)
    return _sorted([_topic_line(pattern, held[pattern], share) for pattern in meant], sort)


def _topic_line(pattern: str, pairs: list[Pair], share: float) -> TopicLine:
    """Add up the reports of all subscribers to a pattern."""

    def mine(report: NodeReport) -> list[SubscriptionStatistics]:
        return [each for each in report.statistics.subscriptions if each.pattern == pattern]

    estimate = partial(_estimate, pairs, share)
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


def share_of(pairs: list[Pair], found: NodeReports) -> float:
    """Return the number of nodes represented by an answer: 1, or more in a sample."""
    return found.size.nodes / len(pairs) if found.is_sample and pairs else 1.0


def _estimate(pairs: list[Pair], share: float, read: Callable[[Pair], float]) -> float:
    return round(sum(read(pair) for pair in pairs) * share, 3)


def _sorted(lines: list[AnyLine], sort: str) -> list[AnyLine]:
    if sort not in ("name", "pattern"):
        lines.sort(key=lambda line: -getattr(line, sort))
    return lines


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


def _is_in(zone: str, wanted: str) -> bool:
    return zone == wanted or zone.startswith(wanted + "/")


def _print(
    output: Output,
    lines: Sequence[AnyLine],
    columns: Sequence[Column[AnyLine]],
    found: NodeReports,
    limit: int,
    network: str,
) -> int:
    output.table(lines[:limit], columns)
    return _end(output, found, len(lines), limit, network)


def _end(output: Output, found: NodeReports, total: int, limit: int, network: str) -> int:
    """Print the summary of a list, and return the exit code."""
    shown = min(limit, total)
    output.line(summary_of(found, shown=shown, total=total))
    complain_of(found, shown=shown, total=total)
    return exit_code_of(found, network)
