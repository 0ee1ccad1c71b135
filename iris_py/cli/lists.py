"""The commands that list parts of a network: `iris nodes`, `iris clusters`, `iris topics`, `iris members --stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.network import QueryOptions, complain_of, exit_code_of, measure
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Column, Output
from iris_py.cli.request import MembersSummary
from iris_py.observe.node_name import short_id
from iris_py.overview.clusters import CLUSTER_PARTS, ClusterLine, MemberStatsLine, cluster_lines, member_line, members_text
from iris_py.overview.generations import short_generations
from iris_py.overview.groups import GROUP_PARTS, GroupLine, group_lines, patterns_text
from iris_py.overview.nodes import NodeLine, generations_differ, node_line
from iris_py.overview.pair import AskedSummary, share_of, summary_of
from iris_py.overview.topic_table import (
    INTEREST_PARTS,
    TableLine,
    TokenLine,
    say_table,
    say_tokens,
    say_versions,
    table_line,
    token_lines,
)
from iris_py.overview.topics import TopicLine, topic_lines, way_of
from iris_py.overview.units import format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import NodeReports
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import AnyLine, Lines

__all__ = ["CLUSTER_COLUMNS", "LINES", "clusters", "member_stats", "nodes", "topics"]


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "nodes": (NodeLine, AskedSummary),
    "clusters": (ClusterLine, AskedSummary),
    "topics": (TopicLine, GroupLine, TokenLine, TableLine, AskedSummary),
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
_GROUP_COLUMNS: Final = (
    Column[GroupLine]("group", lambda line: line.name),
    Column[GroupLine]("patterns", lambda line: patterns_text(line), rank=2),
    Column[GroupLine]("members", lambda line: format_count(line.members), is_number=True),
    Column[GroupLine]("given/s", lambda line: format_count(line.given_per_s), is_number=True),
    Column[GroupLine]("given", lambda line: format_count(line.given), is_number=True, rank=3),
    Column[GroupLine]("taken", lambda line: format_count(line.taken), is_number=True, rank=1),
    Column[GroupLine]("outstanding", lambda line: format_count(line.outstanding), is_number=True),
    Column[GroupLine]("lost", lambda line: format_count(line.lost), is_number=True),
    Column[GroupLine]("full", lambda line: format_count(line.full), is_number=True),
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
    async with settings.visit() as node:
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
    async with settings.visit() as node:
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
    """List the subscribed patterns, the groups, the first tokens and the table (`iris topics`); return the exit code."""
    output = Output(as_json=as_json)
    async with settings.visit() as node:
        network = node.network
        pairs, found = await measure(node, *GROUP_PARTS, *INTEREST_PARTS, query=query)
        own = node.statistics().interest
    lines, share = topic_lines(pairs, found, pattern, sort), share_of(pairs, found)
    tokens, table = token_lines(pairs, share, pattern), table_line(pairs, share, own)
    groups = group_lines(pairs, share, pattern)
    output.table(lines[:limit], _TOPIC_COLUMNS)
    if groups:
        output.sentence("groups:")
        output.table(groups[:limit], _GROUP_COLUMNS)
    if len(groups) > limit:
        complain(f"these are {limit} of {len(groups)} groups: --limit shows more.")
    output.lines([(line, None) for line in tokens[:limit]])
    output.line(table)
    output.labelled("tokens", say_tokens(tokens))
    output.labelled("table", say_table(table, pairs))
    if differ := say_versions(found.reports):
        complain(f"{differ}. See `iris doctor`.")
    return _end(output, found, len(lines), limit, network)


async def member_stats(settings: Settings, cluster: str, *, query: QueryOptions, as_json: bool) -> int:
    """List the members of a cluster with their load (`iris members --stats`); return the exit code."""
    async with settings.visit() as node:
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
