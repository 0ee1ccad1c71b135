"""Failures as callers of clusters see them: the errors of their requests and tunnels, by cluster.

Members count executed and refused requests. A cluster without members, a cloud without a gateway and an unanswered request
appear in no member's count, and only in the statistics of the calling nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from iris_py.federation.names import CLOUD_MARK, GATEWAYS
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_py.observe.reports import NodeReport
    from iris_py.overview.pair import Pair

__all__ = ["FailureLine", "Met", "RecentFailures", "failure_lines", "met_by", "say_met", "say_rates", "unserved_clusters"]

#: How long a failure stays in the head of `iris top` (seconds). Too small: a timeout every ten seconds flickers; too large: a
#: problem solved long ago still appears.
RECENT_S: Final = 60.0
#: Errors that are no failures of the network: the calling program has ended.
_NO_FAILURES: Final = frozenset({"NodeClosed"})
#: Short texts for errors, by class. Errors of other classes are shown by the name of the class.
_WORDS: Final = {
    "CloudUnavailable": "unavailable",
    "MemberLost": "member lost",
    "NoMembers": "no members",
    "NotConnected": "not connected",
    "NotExported": "not exported",
    "Overloaded": "overloaded",
    "RemoteError": "handler raised",
    "RequestTimeout": "timed out",
    "TooManyMembersLost": "members lost",
}


class FailureLine(Line, tag="failure", kw_only=True):
    """An error of a cluster's callers, over all nodes that answered; in a sample, an estimate over all nodes."""

    cluster: str
    """The cluster, with the alias of its cloud for another cloud."""
    use: Literal["request", "tunnel"]
    """Whether a request or a tunnel failed."""
    error: str
    """The class of the error, as in `NoMembers`."""
    per_s: float
    """Occurrences per second."""
    total: float
    """Occurrences since the start of the callers."""
    callers: float
    """Number of nodes with this error."""


class Met(NamedTuple):
    """A kind of error at the callers of a cluster: cluster, use, and class of the error."""

    cluster: str
    use: Literal["request", "tunnel"]
    error: str
    """The class of the error."""


def word_of(error: str) -> str:
    """Return the short text for the class of an error."""
    return _WORDS.get(error, one_line(error))


def met_by(report: NodeReport) -> dict[Met, int]:
    """Return the numbers of errors of a node's requests and tunnels since the start of the node."""
    statistics = report.statistics
    found: dict[Met, int] = {}
    clouds: set[str] = set()
    for name, far in statistics.far_requests.items():
        _add(found, name, far.errors, far.unopened)
        if far.errors or far.unopened:
            clouds.add(name.rpartition(CLOUD_MARK)[2])
    for name, cluster in statistics.clusters.items():
        gateways, _, cloud = name.rpartition(".")
        if gateways == GATEWAYS and cloud in clouds:
            continue  # the route of the requests counted above
        _add(found, name, cluster.requests.errors, cluster.unopened)
    return found


def _add(found: dict[Met, int], cluster: str, errors: Mapping[str, int], unopened: Mapping[str, int]) -> None:
    for error, count in errors.items():
        if error not in _NO_FAILURES:
            found[Met(cluster, "request", error)] = count
    for error, count in unopened.items():
        if error not in _NO_FAILURES:
            found[Met(cluster, "tunnel", error)] = count


def failure_lines(pairs: Sequence[Pair], share: float, wanted: Sequence[str] = ()) -> list[FailureLine]:
    """Return a line for each error of callers, the most frequent first.

    Args:
        pairs: Two answers of each node.
        share: Number of nodes represented by an answer.
        wanted: The clusters to include; empty for all.
    """
    per_s: dict[Met, float] = {}
    total: Counter[Met] = Counter()
    callers: Counter[Met] = Counter()
    for pair in pairs:
        before = met_by(pair.first)
        elapsed_s = pair.last.about.uptime_s - pair.first.about.uptime_s
        for met, count in met_by(pair.last).items():
            total[met] += count
            callers[met] += 1
            if elapsed_s > 0.0:
                per_s[met] = per_s.get(met, 0.0) + max(0, count - before.get(met, 0)) / elapsed_s
    lines = [
        FailureLine(
            cluster=met.cluster,
            use=met.use,
            error=met.error,
            per_s=round(per_s.get(met, 0.0) * share, 3),
            total=round(total[met] * share, 1),
            callers=round(callers[met] * share, 1),
        )
        for met in total
        if not wanted or met.cluster in wanted
    ]
    return sorted(lines, key=lambda line: (-line.per_s, -line.total, line.cluster, line.use, line.error))


def unserved_clusters(pairs: Iterable[Pair]) -> dict[str, int]:
    """Return the clusters called by nodes without knowing a member, with the number of waiting requests.

    A node calls a cluster if it sent requests between its two answers, or has waiting requests.
    """
    waiting: dict[str, int] = {}
    served: set[str] = set()
    for pair in pairs:
        before = pair.first.statistics.clusters
        for name, cluster in pair.last.statistics.clusters.items():
            if cluster.members or (cluster.service is not None and cluster.service.handlers):
                served.add(name)
                continue
            sent = before[name].requests.sent if name in before else 0
            if cluster.requests.waiting or cluster.requests.sent > sent:
                waiting[name] = waiting.get(name, 0) + cluster.requests.waiting
    return {name: waiting[name] for name in sorted(waiting) if name not in served and not name.startswith(f"{GATEWAYS}.")}


class RecentFailures:
    """The errors that callers got in the last minute, from successive reports of nodes."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Counter[Met]]] = deque()

    def take(self, before: NodeReport | None, report: NodeReport, now: float) -> None:
        """Add the growth of errors between two reports of a node.

        Args:
            before: The previous report of the node; None for the first.
            report: The report.
            now: The time (seconds).
        """
        if before is None:
            # For a node younger than the remembered time, such as the node of a command, all failures are recent.
            known = {} if report.about.uptime_s <= RECENT_S else met_by(report)
        elif report.about.uptime_s > before.about.uptime_s:
            known = met_by(before)
        else:
            return  # the same numbers again
        grown = {met: more for met, count in met_by(report).items() if (more := count - known.get(met, 0)) > 0}
        if grown:
            if not self._readings or self._readings[-1][0] < now:
                self._readings.append((now, Counter()))
            self._readings[-1][1].update(grown)

    def forget(self, now: float) -> None:
        """Remove the failures older than `RECENT_S`."""
        while self._readings and now - self._readings[0][0] > RECENT_S:
            self._readings.popleft()

    def all(self) -> Counter[Met]:
        """Return the number of each error in the last minute."""
        sums: Counter[Met] = Counter()
        for _at, met in self._readings:
            sums.update(met)
        return sums


def say_met(met: Mapping[Met, int], unserved: Mapping[str, int]) -> list[str]:
    """Return numbers of errors as a text for each cluster, the most frequent first.

    Args:
        met: The number of each error.
        unserved: The called clusters without a member, with the number of waiting requests.
    """
    return _say({each: format_count(count) for each, count in met.items()}, met, unserved)


def say_rates(lines: Sequence[FailureLine], unserved: Mapping[str, int]) -> list[str]:
    """Return errors per second as a text for each cluster, the most frequent first."""
    rates = {Met(line.cluster, line.use, line.error): line.per_s for line in lines if line.per_s}
    return _say({each: f"{format_count(rate)}/s" for each, rate in rates.items()}, rates, unserved)


def _say(texts: Mapping[Met, str], numbers: Mapping[Met, float], unserved: Mapping[str, int]) -> list[str]:
    sums: dict[str, float] = dict.fromkeys(unserved, 0.0)
    said: dict[str, list[str]] = {name: [] for name in unserved}
    for met in sorted(numbers, key=lambda each: -numbers[each]):
        sums[met.cluster] = sums.get(met.cluster, 0.0) + numbers[met]
        tunnels = "tunnels " if met.use == "tunnel" else ""
        said.setdefault(met.cluster, []).append(f"{texts[met]} {tunnels}{word_of(met.error)}")
    for name, waiting in unserved.items():
        if not any(met.cluster == name and met.error == "NoMembers" for met in numbers):
            said[name].insert(0, "no member")
        if waiting:
            said[name].append(f"{format_count(waiting)} waiting")
    return [f"{one_line(name)}: {', '.join(said[name])}" for name in sorted(said, key=lambda name: (-sums[name], name))]
