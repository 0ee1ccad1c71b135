"""The command `iris nodes --gone`: the nodes that have left or died, as reported by other nodes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.cli.command_node import visit
from iris_py.cli.monitor import read_duration
from iris_py.cli.network import complain_of, exit_code_of, summary_of
from iris_py.cli.outcome import complain
from iris_py.cli.output import Column, Line, Output, short_id
from iris_py.observe.departures import DEPARTURES_MAX
from iris_py.peers.balancer import is_in_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_py import NodeReport, NodeReports
    from iris_py.cli.network import QueryOptions
    from iris_py.cli.output import Lines
    from iris_py.cli.settings import Settings
    from iris_py.observe.departures import Departure

__all__ = ["GoneLine", "departed", "gone_lines", "known_since"]

#: Default age of the oldest listed departure (seconds): a day, so that the night is visible in the morning.
SINCE_S: Final = 86_400.0


class GoneLine(Line, tag="gone", kw_only=True):
    """A node that has left or died, as other nodes report."""

    time: datetime
    """Time of the first report, by the clock of this machine, in UTC."""
    id: str
    """The node id: 32 hexadecimal digits."""
    name: str
    """The label of the node; empty if unknown."""
    address: str
    """The `host:port` on which the node listened; empty if unknown."""
    zone: str
    """The zone of the node."""
    how: str
    """`left` if the node said goodbye to any node; otherwise `died`."""
    detail: str
    """The reason, as text, by most reports."""
    is_gateway: bool
    """Whether any report names the node as a gateway to other clouds."""
    said_by: int
    """Number of nodes that report the departure. Other nodes had no link to the node, or started later."""


#: The lines of `--json` with `--gone`.
LINES: Final[Lines] = {"nodes": (GoneLine,)}

_COLUMNS: Final = (
    Column[GoneLine]("when", lambda line: f"{line.time.astimezone():%m-%d %H:%M:%S}"),
    Column[GoneLine]("id", lambda line: short_id(line.id)),
    Column[GoneLine]("name", lambda line: line.name),
    Column[GoneLine]("address", lambda line: line.address),
    Column[GoneLine]("zone", lambda line: line.zone, rank=2),
    Column[GoneLine]("how", lambda line: line.how),
    Column[GoneLine]("said by", lambda line: str(line.said_by), is_number=True),
    Column[GoneLine]("why", lambda line: line.detail, rank=1),
)


class _Said(NamedTuple):
    """A node's report that another node has left or died."""

    unix_s: float
    departure: Departure


async def departed(
    settings: Settings, *, zone: str | None, since: str | None, query: QueryOptions, limit: int, as_json: bool
) -> int:
    """List the nodes that have left or died (`iris nodes --gone`); return the exit code."""
    since_s = SINCE_S if since is None else read_duration(since)
    async with visit(settings) as node:
        network = node.network
        found = await node.ask_nodes("departures", every=query.is_every, sample=query.sample, timeout=query.timeout_s)
    begin = max((report.received_unix_s for report in found.reports), default=0.0) - since_s
    lines = [line for line in gone_lines(found) if line.time.timestamp() >= begin]
    lines = [line for line in lines if zone is None or is_in_zone(line.zone, zone)]
    output, shown = Output(as_json=as_json), lines[-limit:]
    output.table(shown, _COLUMNS)
    output.line(summary_of(found, shown=len(shown), total=len(lines)))
    complain_of(found, shown=len(shown), total=len(lines))
    if not lines and found.reports:
        complain("no node that answered has seen another one leave or die in that time.")
    _complain_of_gaps(found, begin)
    return exit_code_of(found, network)


def gone_lines(found: NodeReports) -> list[GoneLine]:
    """Return the nodes reported as left or dead, the earliest first, without nodes that have answered."""
    here = {report.node.id for report in found.reports}
    said: dict[str, list[_Said]] = {}
    for report in found.reports:
        for each in _departures_of(report):
            if each.departure.node not in here:
                said.setdefault(each.departure.node, []).append(each)
    return sorted((_line_of(each) for each in said.values()), key=lambda line: (line.time, line.id))


def known_since(found: NodeReports) -> float | None:
    """Return the time since which the reports of the nodes that answered are complete (seconds since 1970).

    This is the start of the oldest node, or the oldest remaining departure of a node with overwritten departures. None if no
    node reports departures.
    """
    moments = []
    for report in found.reports:
        if report.departures is None:
            continue
        told = list(_departures_of(report))
        is_full = len(told) >= DEPARTURES_MAX
        moments.append(min(each.unix_s for each in told) if is_full else report.received_unix_s - report.about.now_s)
    return min(moments, default=None)


def _departures_of(report: NodeReport) -> Iterator[_Said]:
    for departure in (report.departures or ())[:DEPARTURES_MAX]:
        yield _Said(report.unix_s_of(departure), departure)


def _line_of(said: Sequence[_Said]) -> GoneLine:
    has_left = [each for each in said if each.departure.kind == "left"]
    counted = has_left or said
    details = Counter(each.departure.detail for each in counted)

    def told(field: str) -> str:
        return next((value for each in said if (value := str(getattr(each.departure, field)))), "")

    return GoneLine(
        time=datetime.fromtimestamp(max(0.0, min(each.unix_s for each in counted)), UTC),
        id=said[0].departure.node,
        name=told("name"),
        address=told("address"),
        zone=told("zone"),
        how="left" if has_left else "died",
        detail=details.most_common(1)[0][0],
        is_gateway=any(each.departure.is_gateway for each in said),
        said_by=len(said),
    )


def _complain_of_gaps(found: NodeReports, begin: float) -> None:
    """Report on standard error that no node remembers the first part of the wanted time."""
    silent = sum(report.departures is None for report in found.reports)
    if silent:
        complain(
            f"{silent} of {len(found.reports)} nodes that answered report no departures: their setting observe prevents it, "
            "or their version has no such reports."
        )
    since = known_since(found)
    if since is not None and since > begin:
        moment = datetime.fromtimestamp(since, UTC).astimezone()
        complain(f"no node that answered has records from before {moment:%Y-%m-%d %H:%M:%S}.")
    if found.is_sample:
        complain(
            "only a sample of the nodes was queried: departures that only other nodes have seen are missing. --all "
            "queries every node."
        )
