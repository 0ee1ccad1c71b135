"""Queries to many nodes from a shell: shared by `iris nodes`, `clusters`, `topics`, `members --stats` and `top`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.outcome import ExitCode, complain
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED
from iris_py.overview.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import Node, NodeName, NodeReports

__all__ = ["QueryOptions", "complain_of", "exit_code_of", "measure"]

#: Maximum number of silent nodes that are named.
NAMED_MAX: Final = 5


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


def _names(nodes: Sequence[NodeName]) -> str:
    named = ", ".join(node.short for node in nodes[:NAMED_MAX])
    return named if len(nodes) <= NAMED_MAX else f"{named}, ... ({len(nodes)} in all)"
