"""The command `iris topology`: the nodes of a network with their links and clusters, as a tree, as data or as a picture."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.network import complain_of, exit_code_of
from iris_py.cli.outcome import complain
from iris_py.cli.output import Column, Output, make_console
from iris_py.cli.standard_error import tell
from iris_py.errors import ConfigurationError
from iris_py.logs import one_line
from iris_py.observe.node_name import short_id
from iris_py.overview.topology import (
    NO_GROUP,
    TopologyNodeLine,
    TopologySummary,
    counted,
    draw,
    groups_of,
    nodes_of,
    summary_of_topology,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from iris_py.cli.network import QueryOptions
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines
    from iris_py.overview.topology import By

__all__ = ["LINES", "show", "topology"]

#: The lines of `--json`, by command.
LINES: Final[Lines] = {"topology": (TopologyNodeLine, TopologySummary)}


class _Row(msgspec.Struct):
    """A node in the list of one of its groups (a zone or a cluster)."""

    group: str
    node: TopologyNodeLine


_COLUMNS: Final = (
    Column[_Row]("group", lambda row: row.group),
    Column[_Row]("id", lambda row: short_id(row.node.id)),
    Column[_Row]("name", lambda row: row.node.name),
    Column[_Row]("address", lambda row: row.node.address),
    Column[_Row]("links", lambda row: _count_of(row.node), is_number=True, rank=1),
    Column[_Row]("clusters", lambda row: ", ".join(row.node.clusters)),
)


async def topology(
    settings: Settings,
    *,
    by: By,
    svg: Path | None,
    nodes_max: int,
    query: QueryOptions,
    as_json: bool,
) -> int:
    """Show the nodes of the network by zone or cluster, with their links; return the exit code."""
    output = Output(as_json=as_json)
    async with settings.visit() as node:
        network, own = node.network, node.id
        every = query.is_every or node.network_size <= nodes_max
        found = await node.ask_nodes("peers", "clusters", every=every, sample=query.sample, timeout=query.timeout_s)
    nodes = nodes_of(found, own)
    if svg is not None:
        picture, drawn = draw(nodes, found, network=network, by=by, nodes_max=nodes_max, now=datetime.now(UTC))
        _write(svg, picture)
        tell(f"wrote {svg}: {drawn}", event="wrote")
    if as_json:
        output.lines((line, None) for line in nodes)
        output.line(summary_of_topology(nodes, found))
    elif svg is None and nodes:
        show(nodes, output, network=network, by=by, nodes_max=nodes_max)
    complain_of(found)
    return exit_code_of(found, network)


# -- a tree, or rows


def show(nodes: Sequence[TopologyNodeLine], output: Output, *, network: str, by: By, nodes_max: int) -> None:
    """Print the nodes by group: as a tree on a terminal, otherwise as rows. A tree of many nodes shows only the groups."""
    rows = sorted(
        (_Row(group, node) for node in nodes for group in groups_of(node, by) or [NO_GROUP[by]]),
        key=lambda row: (row.group in NO_GROUP.values(), row.group),
    )
    if not output.is_terminal:
        output.table(rows, _COLUMNS)
        return
    from rich.text import Text
    from rich.tree import Tree

    sizes, is_large = Counter(row.group for row in rows), len(nodes) > nodes_max
    tree = Tree(Text(title_of(nodes, network), style="bold"))
    branches: dict[str, Tree] = {}
    for row in rows:
        if row.group not in branches:
            branches[row.group] = tree.add(Text(f"{one_line(row.group)}  {counted(sizes[row.group], 'node')}"))
        if not is_large:
            branches[row.group].add(Text(_branch_of(row, by)))
    make_console().print(tree)
    if is_large:
        complain(f"{len(nodes):,} nodes are more than --max {nodes_max}, so only their {by}s are shown.")


def _branch_of(row: _Row, by: By) -> str:
    node = row.node
    clusters = node.clusters if by == "zone" else [f"zone {node.zone}"] if node.zone else []
    links = f"{_count_of(node)} link{'s' * (_count_of(node) != '1')}"
    words = [node.id[:8], node.name, node.address, links, ", ".join(clusters)]
    return "  ".join(one_line(word) for word in words if word)


def _count_of(node: TopologyNodeLine) -> str:
    return str(len(node.links)) if node.state == "told" else "?"


def _write(path: Path, picture: str) -> None:
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as exc:
        raise ConfigurationError(f"--svg: {path} cannot be written: {exc.strerror}. Correct the path.") from exc
