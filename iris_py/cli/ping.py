"""The command `iris ping`: the round-trip times of nodes, ping by ping."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

import iris_py
from iris_py.api.lifecycle import parts_of
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.errors import ConfigurationError, NoMembers
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_seconds, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import Node, NodeName
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "find_targets", "ping"]

#: Minimum and maximum digits of a node id on the command line; fewer than all must identify one node.
_ID_DIGITS_MIN: Final = 4
_ID_DIGITS: Final = 32
#: The ways of a ping, in the order of the output.
_WAYS: Final = ("link", "udp", "ring")


class PingLine(Line, tag="ping", kw_only=True):
    """A ping of a node, and the round-trip times."""

    number: int
    """The number of the ping, from 1."""
    id: str
    """The node id."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The address of the node."""
    way: str
    """`link` if a link to the node was open, otherwise `ring`."""
    round_trip_s: float | None
    """Round-trip time, in seconds; None without an answer."""
    udp_s: float | UnsetType | None = UNSET
    """With `--udp`: round-trip time of a datagram; None without an answer, or if the node has no numeric address."""
    ring_s: float | UnsetType | None = UNSET
    """With `--udp`: round-trip time through the ring; None without an answer."""


class WayFigures(msgspec.Struct, kw_only=True):
    """The statistics of the pings on one way, with times in seconds; None without answers."""

    way: str
    """`link`, `udp` or `ring`."""
    sent: int
    lost: int
    min_s: float | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


class PingSummary(Line, tag="summary", kw_only=True):
    """The statistics of all pings, with times in seconds; None without answers."""

    sent: int
    lost: int
    min_s: float | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None
    ways: list[WayFigures] | UnsetType = UNSET
    """With `--udp`: the statistics of each way."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"ping": (PingLine, PingSummary)}


async def ping(
    settings: Settings,
    target: str,
    *,
    count: int,
    interval_s: float,
    timeout_s: float,
    has_udp: bool = False,
    as_json: bool,
) -> int:
    """Ping nodes one after the other, and print the round-trip times. The nodes answer without a handler."""
    output = Output(as_json=as_json)
    taken: list[float | None] = []
    ways: dict[str, list[float | None]] = {}
    async with settings.visit() as node:
        targets = await find_targets(node, target, timeout_s)
        for number in range(1, count + 1):
            asked = targets[(number - 1) % len(targets)]
            started = asyncio.get_running_loop().time()
            linked = {link.peer for link in node.statistics().links.each}
            way = "link" if asked.id in linked else "ring"
            found = await node.ask_nodes(nodes=[asked], timeout=timeout_s)
            took_s = found.reports[0].round_trip_s if found.reports else None
            taken.append(took_s)
            name = found.reports[0].node.name if found.reports else asked.name
            line = PingLine(number=number, id=asked.id, name=name, address=asked.address, way=way, round_trip_s=rounded(took_s))
            took = {way: took_s}
            if has_udp:
                took |= await _compare(node, asked, timeout_s)
                line.udp_s, line.ring_s = rounded(took.get("udp")), rounded(took["ring"])
            for each, seconds in took.items():
                ways.setdefault(each, []).append(seconds)
            shown = "  ".join(f"{each} {_said(took[each])}" for each in _WAYS if each in took)
            output.line(line, f"{number:>3}  {asked.id[:8]}  {name or '-'}  {one_line(asked.address) or '-'}  {shown}")
            if number < count:
                await asyncio.sleep(max(0.0, started + interval_s - asyncio.get_running_loop().time()))
    if has_udp:
        figures = [WayFigures(way=way, **_figures(ways[way])) for way in _WAYS if way in ways]
        text = "\n".join(f"{each.way:<4}  {_describe(each)}" for each in figures)
        output.line(PingSummary(**_figures(taken), ways=figures), text)
    else:
        summary = PingSummary(**_figures(taken))
        output.line(summary, _describe(summary))
    return ExitCode.FAULT if any(None in each for each in ways.values()) else ExitCode.OK


async def _compare(node: Node, asked: NodeName, timeout_s: float) -> dict[str, float | None]:
    """Ping a node through the ring and then by UDP, because concurrent pings delay each other."""
    took: dict[str, float | None] = {"ring": None}
    # The root of its id is the node itself: query and answer pass through the ring.
    route = await parts_of(node).introspection.find_route_of_key(
        bytes.fromhex(asked.id), asyncio.get_running_loop().time() + timeout_s
    )
    if route is not None and route.root.id == asked.id:
        took["ring"] = route.round_trip_s
        asked = route.root  # with the address, which an id on the command line lacks
    if asked.address:
        with suppress(ConfigurationError):  # a node with only host names is sent no datagrams
            took["udp"] = await parts_of(node).introspection.echo(asked, timeout_s)
    return took


async def find_targets(node: Node, target: str, timeout_s: float) -> list[NodeName]:
    """Return the nodes denoted by a word on the command line: the members of a cluster, or a node by id or address."""
    is_id = _ID_DIGITS_MIN <= len(target) <= _ID_DIGITS and all(digit in "0123456789abcdef" for digit in target.lower())
    if len(target) == _ID_DIGITS and is_id:
        return [iris_py.NodeName(target.lower())]
    if ":" not in target:
        members = [iris_py.NodeName(each.id, each.address, each.zone, each.name) for each in await node.members(target)]
        if members:
            return members
        if not is_id:
            raise NoMembers(target, node.network_size - 1)
    found = await node.ask_nodes(timeout=timeout_s)
    everybody = [report.node for report in found.reports] + list(found.missing) + list(found.refused)
    meant = [each for each in everybody if each.address == target or (is_id and each.id.startswith(target.lower()))]
    if len(meant) > 1:
        raise ConfigurationError(f"{len(meant)} nodes have an id that begins with {target!r}. Give more digits of it.")
    if not meant:
        raise ConfigurationError(
            f"there is no node {target!r} in the network {node.network!r}, and no cluster has this name. `iris nodes` and "
            "`iris clusters` list nodes and clusters."
        )
    return meant


def _figures(taken: Sequence[float | None]) -> dict[str, Any]:
    """Return the statistics of round-trip times: the fields shared by `PingSummary` and `WayFigures`."""
    seconds = [each for each in taken if each is not None]
    hundredths = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {
        "sent": len(taken),
        "lost": len(taken) - len(seconds),
        "min_s": rounded(min(seconds, default=None)),
        "p50_s": rounded(hundredths[49]) if seconds else None,
        "p99_s": rounded(hundredths[98]) if seconds else None,
        "max_s": rounded(max(seconds, default=None)),
    }


def _describe(summary: PingSummary | WayFigures) -> str:
    text = f"{summary.sent} sent, {summary.lost} lost ({summary.lost / summary.sent:.0%})"
    if summary.min_s is None:
        return text
    named = {"min": summary.min_s, "p50": summary.p50_s, "p99": summary.p99_s, "max": summary.max_s}
    return f"{text}, " + ", ".join(f"{name} {format_seconds(value)}" for name, value in named.items())


def _said(took_s: float | None) -> str:
    return "no answer" if took_s is None else format_seconds(took_s)
