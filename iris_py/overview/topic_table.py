"""The table of subscriptions and the first tokens of topics, for `iris topics` and `iris top`.

Every node reports its own view: a subscriber its entries, a publisher the table that it watches, the root the table that it
keeps. So the size of the table is the largest that a node reports, and no sum.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.observe.node_name import short_name
from iris_py.observe.statistics import InterestStatistics, TopicStatistics
from iris_py.overview.units import format_bytes, format_count, format_counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.reports import NodeReport
    from iris_py.overview.pair import Pair

__all__ = [
    "INTEREST_PARTS",
    "TableLine",
    "TokenLine",
    "say_table",
    "say_tokens",
    "say_versions",
    "table_line",
    "token_lines",
]

#: The statistics requested from nodes for these lines.
INTEREST_PARTS: Final = ("interest", "topics", "counts")
#: Maximum number of nodes that are named.
NAMED_MAX: Final = 3
_UNWANTED: Final = "publication_unwanted"
_NO_TOPIC: Final = TopicStatistics()


class TokenLine(Line, tag="token", kw_only=True):
    """The topics with one first token, over all nodes that answered; in a sample, an estimate over all nodes."""

    token: str
    """The first token, as in `news`; `*` for patterns that begin with a wildcard, `_other` for the tokens beyond the bound."""
    entries: float
    """Number of subscribed patterns, counted for each node."""
    published_per_s: float
    """Messages published per second."""
    published: float
    """Messages published since the start of the nodes."""
    received_per_s: float
    """Messages received per second, counted once for each receiving node."""
    received: float
    """Messages received since the start of the nodes."""
    gaps: float
    """Messages missed by subscribers since the start of the nodes."""


class TableLine(Line, tag="table", kw_only=True):
    """The table of subscriptions of the network."""

    entries: int
    """Number of patterns, counted for each node. Promoted patterns leave the table."""
    nodes: int
    """Number of nodes with patterns in the table."""
    promoted: int
    """Number of promoted patterns: more than 256 nodes subscribe, and get messages by multicast."""
    roots: list[str]
    """The ids of the nodes that keep the table, one for each generation of the secret; empty if none of them answered."""
    watchers: float
    """Number of nodes that watch the table, as publishers; in a sample an estimate, as are the further numbers of messages."""
    absent: int
    """The largest number of dead or cut off nodes whose messages a publisher counts for their return."""
    held: float
    """Publications that wait now until their nodes know the receivers."""
    held_bytes: float
    """Bytes of these publications."""
    unwanted_per_s: float
    """Messages per second that reached nodes without a matching subscription."""


def token_lines(pairs: Sequence[Pair], share: float, wanted: str | None = None) -> list[TokenLine]:
    """Return a line for each first token of topics, the most published messages first.

    Args:
        pairs: Two answers of each node.
        share: The number of nodes represented by an answer.
        wanted: A pattern; only its first token, unless that is a wildcard.
    """
    first = (wanted or "*").partition(".")[0]
    shown, is_every = {"*", first}, first in ("*", ">")
    tokens = {token for pair in pairs for token in pair.last.statistics.topics if is_every or token in shown}
    lines = [_token_line(token, pairs, share) for token in sorted(tokens)]
    return sorted(lines, key=lambda line: (-line.published_per_s, -line.received_per_s, -line.entries))


def _token_line(token: str, pairs: Sequence[Pair], share: float) -> TokenLine:
    def topic(report: NodeReport) -> TopicStatistics:
        return report.statistics.topics.get(token, _NO_TOPIC)

    last = [topic(pair.last) for pair in pairs]
    return TokenLine(
        token=token,
        entries=round(share * sum(each.entries for each in last), 3),
        published_per_s=round(share * sum(pair.per_s(lambda report: topic(report).published) for pair in pairs), 3),
        published=round(share * sum(each.published for each in last), 3),
        received_per_s=round(share * sum(pair.per_s(lambda report: topic(report).received) for pair in pairs), 3),
        received=round(share * sum(each.received for each in last), 3),
        gaps=round(share * sum(each.gaps for each in last), 3),
    )


def table_line(pairs: Sequence[Pair], share: float, own: InterestStatistics | None = None) -> TableLine:
    """Return the line of the table.

    Args:
        pairs: Two answers of each node.
        share: The number of nodes represented by an answer.
        own: The numbers of the asking node, which may keep the table.
    """
    seen = [pair.last.statistics.interest for pair in pairs]
    every = seen if own is None else [*seen, own]
    # Tables of several generations of the secret have the same entries.
    kept = [(each.root_entries, each.root_nodes, each.root_promoted) for each in every if each.root_tables]
    views = kept or [(each.watched_entries, each.watched_nodes, each.watched_promoted) for each in every]
    entries, nodes, promoted = max(views, default=(0, 0, 0))

    def unwanted(report: NodeReport) -> int:
        return report.statistics.drops.get(_UNWANTED, 0)

    return TableLine(
        entries=entries,
        nodes=nodes,
        promoted=promoted,
        roots=[pair.last.node.id for pair in pairs if pair.last.statistics.interest.root_tables],
        watchers=round(share * sum(each.watched_tables for each in seen), 3),
        absent=max((each.absent_nodes for each in seen), default=0),
        held=round(share * sum(each.held_messages for each in seen), 3),
        held_bytes=round(share * sum(each.held_bytes for each in seen), 3),
        unwanted_per_s=round(share * sum(pair.per_s(unwanted) for pair in pairs), 3),
    )


def say_tokens(lines: Sequence[TokenLine]) -> list[str]:
    """Return a text about each first token."""
    return [
        f"{one_line(line.token)}: {format_counted(line.entries, 'pattern')}, {format_count(line.published_per_s)}/s published, "
        f"{format_count(line.received_per_s)}/s received, {format_count(line.gaps)} missed"
        for line in lines
    ]


def say_table(line: TableLine, pairs: Sequence[Pair]) -> list[str]:
    """Return texts about the table, empty for a table without patterns; and about publications that do not arrive."""
    said = []
    if line.entries or line.promoted:
        said.append(
            f"{format_counted(line.entries, 'pattern')} of {format_counted(line.nodes, 'node')}, {line.promoted:,} promoted"
        )
        nodes = {pair.last.node.id: pair.last.node for pair in pairs}
        kept = [
            f"{short_name(node.id, one_line(node.name))} at {one_line(node.address)}"
            for node in map(nodes.get, line.roots)
            if node
        ]
        if kept:
            said.append(f"kept by {_first(kept)}")
        said.append(f"watched by {format_counted(line.watchers, 'node')}")
    if line.absent:
        said.append(f"{line.absent:,} absent")
    if line.held:
        said.append(f"{format_count(line.held)} publications held ({format_bytes(line.held_bytes)})")
    if line.unwanted_per_s:
        said.append(f"{format_count(line.unwanted_per_s)} unwanted messages/s")
    return said


def say_versions(reports: Sequence[NodeReport]) -> str:
    """Return a text about nodes whose publications do not reach the others; empty if all have the same version of topics."""
    counts = Counter(report.about.topic_version for report in reports)
    if len(counts) < 2:
        return ""
    newest = max(counts)
    older = [report.node.address or report.node.short for report in reports if report.about.topic_version < newest]
    return f"publications do not pass between versions of topics; older: {one_line(_first(older))}"


def _first(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
