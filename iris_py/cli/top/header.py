"""The lines above the table of `iris top`: the state of the network, and the title of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from iris_py.logs import one_line
from iris_py.overview.caller_failures import say_met, unserved_clusters
from iris_py.overview.clouds import cloud_faults
from iris_py.overview.generations import GenerationsHolder, holdings_of, short_generations
from iris_py.overview.groups import group_lines, say_groups
from iris_py.overview.pair import share_of
from iris_py.overview.slowness import say_slow, slow_lines
from iris_py.overview.topic_table import say_table, say_versions, table_line
from iris_py.overview.totals import total_parts, totals_of
from iris_py.overview.units import format_count, format_estimate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import NodeReport
    from iris_py.cli.top.sheets import Arranged, TablePlace
    from iris_py.overview.readings import NodeReading, Readings

__all__ = ["say_head", "say_place"]

#: Maximum number of silent and of departed nodes that are named.
NAMED_MAX: Final = 3
#: A departed node that ran for less time (seconds) may belong to a command, and is not named. Too small: each command is
#: named; too large: a service that restarts repeatedly is not named.
VISITOR_S: Final = 10.0
#: The age of a reading is shown if it exceeds the interval by this time (seconds).
LATE_S: Final = 2.0
_GAP: Final = "  "
#: Maximum number of lines for totals. The most important come first, so a narrow terminal omits the last.
_LINES_MAX: Final = 2


def say_head(gathering: Readings, network: str, now: float, interval_s: float, *, is_paused: bool, width: int) -> Text:
    """Return the lines at the top of the screen: number of answers, missing nodes, totals, and failures.

    Args:
        gathering: The state of the network.
        network: The name of the network.
        now: The time (seconds).
        interval_s: Seconds between two readings.
        is_paused: Whether reading is paused.
        width: Characters in a line.
    """
    rhythm = "PAUSED" if is_paused else f"every {max(interval_s, gathering.interval_min_s):g} s"
    head = Text.assemble(("iris top", "bold"), _GAP, one_line(network), _GAP, overflow="fold")
    view = gathering.view
    if view is None:
        return head.append(f"{rhythm}\n").append(_waiting(gathering, network))
    found, totals = view.found, totals_of(view.pairs, view.found)
    of = format_estimate(totals.nodes) if found.is_sample else format_count(found.asked)
    head.append(f"{len(found.reports)} of {of} nodes {'drawn' if found.is_sample else 'answered'}")
    if found.is_sample:
        head.append(f"{_GAP}SAMPLE: sums are estimates", "yellow")
    head.append(_GAP)
    head.append(rhythm, "yellow" if is_paused else "")
    age_s = now - view.at
    if not is_paused and age_s > interval_s + LATE_S:
        head.append(f"{_GAP}{format_seconds(round(age_s))} ago", "yellow")
    silent = [*found.missing, *found.refused]
    if silent:
        head.append(f"{_GAP}missing: {_first([node.short for node in silent])}", "red")
    gone = [seen.node.short for seen in view.seen if seen.state == "gone" and _has_stayed(seen)]
    if gone:
        head.append(f"{_GAP}gone: {_first(gone)}", "yellow")
    if not found.is_whole:
        head.append(f"{_GAP}a part of the ring is silent", "red")
    head.append("\n")
    if not found.reports:
        return head.append(_gone(gathering, now), "red")
    head.append("\n".join(_lines(total_parts(totals), width)))
    if differ := _say_generations(found.reports):
        head.append("\n")
        head.append(differ[:width], "yellow")
    if differ := say_versions(found.reports):
        head.append("\n")
        head.append(differ[:width], "bold red")
    faults = cloud_faults(gathering.clouds)
    if faults:
        head.append("\n")
        head.append(_GAP.join(faults)[:width], "bold red")
    failures = say_met(gathering.failures.all(), unserved_clusters(view.pairs))
    if failures:
        head.append("\n")
        head.append("\n".join(_lines([f"failed in the last minute:  {failures[0]}", *failures[1:]], width)), "bold red")
    if slow := say_slow(slow_lines(view.pairs)):
        head.append("\n")
        head.append(f"slow:  {_GAP.join(slow)}"[:width], "bold red")
    return head


def say_place(trail: Sequence[TablePlace], arranged: Arranged[Any] | None, words: str, gathering: Readings, now: float) -> str:
    """Return the line above the table: the title, the number of rows, and the filter."""
    said = [" > ".join(place.title for place in trail)]
    if arranged is not None:
        shown = len(arranged.rows)
        rows = f"{shown:,} of {arranged.total:,}" if shown < arranged.total else f"{shown:,}"
        said.append(f"{rows} row{'s' * (arranged.total != 1)}")
    if words:
        said.append(f"with {one_line(words)!r}")
    detail, place, view = gathering.detail, trail[-1], gathering.view
    if place.kind == "topics" and view is not None:
        share = share_of(view.pairs, view.found)
        said += say_table(table_line(view.pairs, share), view.pairs)
        said += say_groups(group_lines(view.pairs, share))
    if place.kind == "node" and detail is not None and detail.node.id == place.name and detail.state != "answers":
        said.append(f"NO ANSWER for {format_seconds(round(now - detail.since))}")
    return _GAP.join(said)


def _say_generations(reports: Sequence[NodeReport]) -> str:
    """Return a text about the nodes by generation of the secret, the smallest group first; empty if all hold the same."""
    holders = (GenerationsHolder.of(report.node.address or report.node.short, report.statistics.security) for report in reports)
    holdings = holdings_of(holders)
    if len(holdings) < 2:
        return ""
    said = []
    for number, holding in enumerate(holdings):
        count = len(holding.nodes)
        nodes = _first(holding.nodes) if number else f"{count} other node{'s' * (count != 1)}"
        said.append(f"{nodes}: {one_line(short_generations(holding.seals, holding.accepts))}")
    return f"secret differs{_GAP}{_GAP.join(reversed(said))}"


def _has_stayed(seen: NodeReading) -> bool:
    """Return whether a node ran longer than the node of a command does."""
    return seen.pair is not None and seen.pair.last.about.uptime_s >= VISITOR_S


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(map(one_line, names[:NAMED_MAX]))}{more}"


def _lines(parts: Sequence[str], width: int) -> list[str]:
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(_GAP) + len(part) <= width:
            lines[-1] += _GAP + part
        elif len(lines) < _LINES_MAX:
            lines.append(part)
        else:
            break
    return lines


def _waiting(gathering: Readings, network: str) -> str:
    if gathering.is_warming:
        return "Waiting for the second answers, which rates need ..."
    return f"Looking for nodes of the network {one_line(network)!r} ..."


def _gone(gathering: Readings, now: float) -> str:
    if gathering.answered_at is None:
        return "No other node is found. Start one with `iris node`, or name one with --seed. Looking again."
    ago = format_seconds(round(now - gathering.answered_at))
    return f"No node has answered for {ago}: the network is gone, or this machine is cut off from it. Trying again."
