"""The nodes that have left or died, as reported by other nodes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from iris_py.json_lines import Line
from iris_py.observe.departures import DEPARTURES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_py.observe.departures import Departure
    from iris_py.observe.reports import NodeReport, NodeReports

__all__ = ["GoneLine", "gone_lines", "known_since"]


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


class _Said(NamedTuple):
    """A node's report that another node has left or died."""

    unix_s: float
    departure: Departure


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
