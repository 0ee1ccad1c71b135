"""The command `iris top`: on a terminal a full screen, refreshed periodically; otherwise printed once."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py.api.cloud.gateways import ask_clouds
from iris_py.api.door_survey import ask_statuses
from iris_py.cli.lists import CLUSTER_COLUMNS
from iris_py.cli.network import QueryOptions, complain_of, exit_code_of, measure
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Output
from iris_py.cli.ping import find_targets
from iris_py.cli.top.sheets import RowOrder, TablePlace
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.overview.caller_failures import FailureLine, Met, failure_lines, say_met, say_rates, unserved_clusters
from iris_py.overview.clouds import CloudLine, cloud_faults, has_gateways
from iris_py.overview.clusters import ClusterLine, cluster_lines
from iris_py.overview.door_loads import DoorLine, DoorReadings, door_lines, say_doors
from iris_py.overview.groups import GroupLine, group_lines, say_groups
from iris_py.overview.load_sources import (
    PublisherLine,
    TunnelsLine,
    publisher_lines,
    say_publishers,
    say_tunnels,
    tunnels_lines,
)
from iris_py.overview.nodes import generations_differ, node_line
from iris_py.overview.pair import AskedSummary, share_of, summary_of
from iris_py.overview.readings import PARTS
from iris_py.overview.slowness import SlowLine, say_slow, slow_lines
from iris_py.overview.topic_table import TableLine, say_table, say_versions, table_line
from iris_py.overview.totals import TotalsLine, describe_totals, totals_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py import Node, NodeName
    from iris_py.cli.settings import Settings
    from iris_py.cli.top.app import TopApp
    from iris_py.json_lines import Lines

__all__ = ["LINES", "top"]

#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "top": (
        TotalsLine,
        FailureLine,
        SlowLine,
        CloudLine,
        PublisherLine,
        TunnelsLine,
        DoorLine,
        GroupLine,
        TableLine,
        ClusterLine,
        AskedSummary,
    )
}

#: Maximum number of failures, slow members, publishers, holders of tunnels, doors and groups in `--json`. Too small: the
#: relevant one may be missing; too large: a program with invented names floods the output.
DETAILS_MAX: Final = 200
#: Terminals that cannot move their cursor.
_DUMB: Final = frozenset({"", "dumb"})
#: The title of the column to sort by on the screen, by the value of `--sort`.
_COLUMNS: Final = {
    "name": "cluster",
    "requests_per_s": "req/s",
    "failed_per_s": "failed/s",
    "errors_per_s": "errors/s",
}


async def top(
    settings: Settings,
    *,
    sort: str,
    cluster: str | None,
    node: str | None,
    is_once: bool,
    query: QueryOptions,
    limit: int,
    as_json: bool,
) -> int:
    """Show the present activity of the network (`iris top`), on the full screen or printed once; return the exit code."""
    if not is_once and not as_json and _has_screen():
        return await _show(settings, sort=sort, cluster=cluster, node=node, query=query)
    output = Output(as_json=as_json)
    async with settings.visit() as own:
        network = own.network
        names = () if cluster is None else (cluster, await _alias(own, cluster, query.timeout_s))
        nodes = None if node is None else [await _find(own, node, query.timeout_s)]
        doors = DoorReadings()
        await _ask_doors(own, doors)
        pairs, found = await measure(own, *PARTS, "topics", "shares", query=query, nodes=nodes)
        if doors.loads and query.interval_s:
            await _ask_doors(own, doors)
        clouds = await ask_clouds(own) if has_gateways(pairs) else []
        own_interest = own.statistics().interest
    totals = totals_of(pairs, found)
    output.line(totals, describe_totals(totals, found))
    failures = failure_lines(pairs, share_of(pairs, found), names)
    unserved = {name: count for name, count in unserved_clusters(pairs).items() if not names or name in names}
    _print_failures(output, failures, unserved)
    slow = [line for line in slow_lines(pairs) if not names or line.cluster in names]
    output.lines([(line, None) for line in slow[:DETAILS_MAX]])
    output.labelled("slow", say_slow(slow), "bold red")
    publishers = publisher_lines(pairs)
    tunnels = [line for line in tunnels_lines(pairs) if not names or line.cluster in names]
    output.lines([(line, None) for line in clouds])
    output.labelled("gateways", cloud_faults(clouds), "bold red")
    output.lines([(line, None) for line in [*publishers[:DETAILS_MAX], *tunnels[:DETAILS_MAX]]])
    output.labelled("publishing", say_publishers(publishers))
    output.labelled("tunnels", say_tunnels(tunnels))
    at_doors = [line for line in door_lines(doors.loads) if nodes is None or line.node == nodes[0].id]
    output.lines([(line, None) for line in at_doors[:DETAILS_MAX]])
    output.labelled("doors", say_doors(at_doors))
    groups = group_lines(pairs, share_of(pairs, found))
    output.lines([(line, None) for line in groups[:DETAILS_MAX]])
    output.labelled("groups", say_groups(groups))
    table = table_line(pairs, share_of(pairs, found), own_interest)
    output.line(table)
    output.labelled("topics", say_table(table, pairs))
    lines = [line for line in cluster_lines(pairs, found, sort) if not names or line.name in names]
    output.table(lines[:limit], CLUSTER_COLUMNS)
    output.line(summary_of(found, shown=min(limit, len(lines)), total=len(lines)))
    if differ := generations_differ([node_line(report) for report in found.reports]):
        complain(f"{differ}. See `iris doctor`.")
    if differ := say_versions(found.reports):
        complain(f"{differ}. See `iris doctor`.")
    complain_of(found, shown=min(limit, len(lines)), total=len(lines))
    if found.reports and names and not lines:
        complain(f"no node that answered serves or uses {cluster!r}. `iris clusters` lists the clusters.")
        return ExitCode.NO_MEMBERS
    return exit_code_of(found, network)


async def _ask_doors(node: Node, doors: DoorReadings) -> None:
    """Take the answers of the doors of the network; from the second time on, they have rates."""
    doors.take(await ask_statuses(node), asyncio.get_running_loop().time())


def _print_failures(output: Output, failures: Sequence[FailureLine], unserved: Mapping[str, int]) -> None:
    """Print the errors of callers between both queries, and then the errors of callers before."""
    output.lines((line, None) for line in failures[:DETAILS_MAX])
    before = {Met(line.cluster, line.use, line.error): round(line.total) for line in failures if not line.per_s}
    output.labelled("failing", say_rates(failures, unserved), "bold red")
    output.labelled("failed before", say_met(before, {}))


def _has_screen() -> bool:
    """Return whether a full screen is possible: input, output and standard error, on which it is drawn, are a terminal."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM", "") not in _DUMB


async def _show(settings: Settings, *, sort: str, cluster: str | None, node: str | None, query: QueryOptions) -> int:
    """Show the full screen until the user ends it."""
    kind = _load_app()
    from iris_py.cli.top.app import FurtherSources  # not needed to print once

    if query.is_every:
        raise ConfigurationError(
            "--all takes a minute in a large network, so the full screen does not support it: add --once, or take a larger "
            "sample with --sample."
        )
    if cluster is not None and node is not None:
        raise ConfigurationError("--cluster and --node both choose the first table. Leave one out.")
    async with settings.visit() as own:
        if cluster is not None:
            start = TablePlace("members", cluster, await _alias(own, cluster, query.timeout_s))
        elif node is not None:
            start = TablePlace("node", (await _find(own, node, query.timeout_s)).id)
        else:
            start = TablePlace("clusters")
        app = kind(
            own.ask_nodes,
            network=own.network,
            start=start,
            order=RowOrder(_COLUMNS.get(sort, sort), is_descending=sort != "name"),
            sample=query.sample,
            interval_s=query.interval_s,
            timeout_s=query.timeout_s,
            further=FurtherSources(partial(ask_clouds, own), partial(ask_statuses, own)),
        )
        return await app.run_to_end()


def _load_app() -> type[TopApp]:
    try:
        from iris_py.cli.top.app import TopApp
    except ImportError as exc:
        raise ConfigurationError(
            f"the full screen needs the extra `tui`, which is not installed ({exc}): {install_command('tui')}. "
            "`iris top --once` needs none."
        ) from exc
    return TopApp


async def _find(node: Node, target: str, timeout_s: float) -> NodeName:
    """Return the only node denoted by a word on the command line."""
    found = await find_targets(node, target, timeout_s)
    if len(found) > 1:
        raise ConfigurationError(f"--node {target!r} matches {len(found)} nodes: give the id of one, or use --cluster.")
    return found[0]


async def _alias(node: Node, cluster: str, timeout_s: float) -> str:
    """Return the name in nodes' reports of a cluster with its own secret; empty if the ring does not report the name."""
    route = await node.find_route(cluster, timeout=timeout_s)
    return "" if route is None else f"#{route.key}"
