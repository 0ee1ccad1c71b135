"""The command `iris nodes --gone`: the nodes that have left or died, as reported by other nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iris_py.cli.network import complain_of, exit_code_of
from iris_py.cli.options import read_duration
from iris_py.cli.outcome import complain
from iris_py.cli.output import Column, Output
from iris_py.observe.node_name import short_id
from iris_py.overview.departed import GoneLine, gone_lines, known_since
from iris_py.overview.pair import summary_of
from iris_py.peers.balancer import is_in_zone

if TYPE_CHECKING:
    from iris_py import NodeReports
    from iris_py.cli.network import QueryOptions
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "departed"]

#: Default age of the oldest listed departure (seconds): a day, so that the night is visible in the morning.
SINCE_S: Final = 86_400.0


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


async def departed(
    settings: Settings, *, zone: str | None, since: str | None, query: QueryOptions, limit: int, as_json: bool
) -> int:
    """List the nodes that have left or died (`iris nodes --gone`); return the exit code."""
    since_s = SINCE_S if since is None else read_duration(since, "--since")
    async with settings.visit() as node:
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
