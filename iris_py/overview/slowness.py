"""Slow members: members whose handlers are much slower than those of other members, for `iris doctor` and `iris top`.

Callers avoid a slow member after a few requests, so totals and percentiles soon look normal again. The latest requests of each
member still show the slowness.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_seconds, rounded
from iris_py.wire.names import GATEWAYS, RESERVED_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_py.observe.node_name import NodeName
    from iris_py.observe.statistics import ServiceStatistics
    from iris_py.overview.pair import Pair

__all__ = ["SLOW_TIMES", "SlowLine", "SlowMember", "find_slow", "handler_s", "say_slow", "slow_lines"]

#: A member is slow if its handler takes at least this multiple of the median, and at least SLOW_S (seconds).
SLOW_TIMES: Final = 5.0
SLOW_S: Final = 0.02
#: Minimum number of requests for a meaningful median, for a node that does not report its latest ones.
TIMED_MIN: Final = 5

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class SlowMember(Generic[Member]):
    """The slowest member of a cluster, its time, and the time of the others."""

    member: Member
    takes_s: float
    """The execution time of the slow member's handlers (seconds)."""
    others_s: float
    """The median over the other members (seconds)."""


class SlowLine(Line, tag="slow", kw_only=True):
    """A member whose handlers are much slower than those of the other members. Callers avoid the member."""

    cluster: str
    """The cluster."""
    id: str
    """The node id of the member: 32 hexadecimal digits."""
    name: str
    """The label of the node; empty if it has none."""
    address: str
    """The `host:port` on which the node listens."""
    handler_s: float | None
    """Recent time of the handler, in seconds: the median of the last requests, or the shortest of fewer than 5."""
    others_s: float | None
    """The median of this time over the other members, in seconds."""


def find_slow(times: Mapping[Member, float | None]) -> SlowMember[Member] | None:
    """Return the slowest member if it is much slower than the others; None otherwise.

    Args:
        times: The recent time of each member's handler (seconds); None without requests.
    """
    known = {member: time for member, time in times.items() if time is not None}
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda each: known[each])
    others_s = median(time for member, time in known.items() if member is not slowest)
    is_slow = known[slowest] >= max(SLOW_S, SLOW_TIMES * others_s)
    return SlowMember(slowest, known[slowest], others_s) if is_slow else None


def handler_s(service: ServiceStatistics) -> float | None:
    """Return the recent execution time of a member's handlers (seconds); None with too few requests."""
    if service.newest:
        return service.newest_s
    # A node of an older version does not report recent times.
    return service.handling.quantile_s(0.5) if service.handling.count >= TIMED_MIN else None


def slow_lines(pairs: Iterable[Pair]) -> list[SlowLine]:
    """Return a line for each cluster's slow member, by the last reports of nodes.

    Gateways are excluded, because the time of a stand-in for members of another cloud includes the way there.
    """
    times: dict[str, dict[NodeName, float | None]] = {}
    for pair in pairs:
        clusters = pair.last.statistics.clusters
        if (gateway := clusters.get(GATEWAYS)) is not None and gateway.service is not None and gateway.service.handlers:
            continue
        for name, cluster in clusters.items():
            if cluster.service is not None and cluster.service.handlers and not name.startswith(RESERVED_NAMES):
                times.setdefault(name, {})[pair.last.node] = handler_s(cluster.service)
    return [
        SlowLine(
            cluster=name,
            id=slow.member.id,
            name=slow.member.name,
            address=slow.member.address,
            handler_s=rounded(slow.takes_s),
            others_s=rounded(slow.others_s),
        )
        for name in sorted(times)
        if (slow := find_slow(times[name])) is not None
    ]


def say_slow(lines: Sequence[SlowLine]) -> list[str]:
    """Return a text about each slow member."""
    return [
        f"{one_line(line.cluster)}: {line.address or line.id[:8]}{f' ({one_line(line.name)})' if line.name else ''} takes "
        f"{format_seconds(line.handler_s)} where others take {format_seconds(line.others_s)}"
        for line in lines
    ]
