"""Answers of nodes that nobody asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py import NodeName, NodeReport, NodeReports, Statistics
from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.queries import About
from iris_py.observe.reports import Size
from iris_py.observe.statistics import (
    ClusterStatistics,
    FarStatistics,
    Histograms,
    LinksStatistics,
    LinkStatistics,
    ProcessStatistics,
    RequestStatistics,
    ServiceStatistics,
    SubscriptionStatistics,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py import EventRecord


def asker(
    number: int,
    errors: Mapping[str, Mapping[str, int]],
    *,
    uptime_s: float = 100.0,
    far: Mapping[str, Mapping[str, int]] | None = None,
    unopened: Mapping[str, Mapping[str, int]] | None = None,
    members: int = 0,
    waiting: int = 0,
) -> NodeReport:
    """Return the answer of a node that asks and serves nothing.

    Args:
        number: The node.
        errors: Errors of its requests by cluster and class. Each request ended with one.
        uptime_s: How old it is.
        far: The same of clusters of other clouds.
        unopened: Errors of its tunnels, by cluster and class.
        members: The members of each cluster, as far as it knows.
        waiting: Requests that wait in each cluster.
    """
    known = report(number, uptime_s=uptime_s)
    clusters = {
        name: ClusterStatistics(
            members=members,
            requests=RequestStatistics(sent=sum(counts.values()) + waiting, errors=counts, waiting=waiting),
            unopened=(unopened or {}).get(name, {}),
        )
        for name, counts in errors.items()
    }
    others = {name: FarStatistics(sent=sum(counts.values()), errors=counts) for name, counts in (far or {}).items()}
    return msgspec.structs.replace(
        known, statistics=msgspec.structs.replace(known.statistics, clusters=clusters, far_requests=others)
    )


def id_of(number: int) -> str:
    """Return the id of a node."""
    return f"{number:08x}" + "0" * 24


def name_of(number: int) -> NodeName:
    """Return a node."""
    return NodeName(id_of(number), f"127.0.0.1:{4000 + number}", f"eu/{number % 2}")


def report(
    number: int,
    *,
    uptime_s: float = 10.0,
    executed: int = 0,
    clusters: Mapping[str, int] | None = None,
    patterns: Mapping[str, int] | None = None,
    peers: Mapping[int, int] | None = None,
    drops: int = 0,
    pages: int = 1,
    events: Sequence[EventRecord] | None = None,
) -> NodeReport:
    """Return the answer of a node.

    Args:
        number: The node.
        uptime_s: How old it is.
        executed: Its requests, all of them.
        clusters: Requests of each cluster that it serves.
        patterns: Messages of each pattern that it subscribes to.
        peers: Bytes sent to each node that it is linked to.
        drops: Messages that it has dropped.
        pages: Pages of the answer.
        events: Its events.
    """
    services = {
        name: ClusterStatistics(members=1, service=ServiceStatistics(handlers=1, executed=count, concurrency=8, weight=1.0))
        for name, count in (clusters or {}).items()
    }
    links = tuple(
        LinkStatistics(peer=id_of(peer), address=name_of(peer).address, zone=name_of(peer).zone, sent_bytes=count)
        for peer, count in (peers or {}).items()
    )
    statistics = Statistics(
        executed=executed,
        uptime_s=uptime_s,
        drops={"full": drops, "datagram": 1000} if drops else {},
        clusters=services,
        subscriptions=tuple(
            SubscriptionStatistics(pattern=pattern, policy="drop_oldest", delivered=count)
            for pattern, count in (patterns or {}).items()
        ),
        links=LinksStatistics(open=len(links), each=links),
        process=ProcessStatistics(cpu_s=uptime_s / 10, resident_bytes=50 << 20),
        histograms=Histograms(handling=HistogramStatistics((0,) * 10 + (executed,), 1.0)) if executed else Histograms(),
    )
    about = About(version="0.1.0", uptime_s=uptime_s, now_s=uptime_s, links=len(links), clusters=len(services))
    return NodeReport(
        node=name_of(number),
        about=about,
        statistics=statistics,
        round_trip_s=0.001,
        pages=pages,
        events=None if events is None else tuple(events),
        received_unix_s=1_700_000_000.0,
    )


def found(
    *reports: NodeReport,
    missing: Sequence[int] = (),
    refused: Sequence[int] = (),
    sample_of: float = 0.0,
    is_whole: bool = True,
) -> NodeReports:
    """Return the answers to a reading; of a sample if it is known of how many nodes."""
    count = len(reports) + len(missing) + len(refused)
    return NodeReports(
        reports=reports,
        missing=tuple(map(name_of, missing)),
        refused=tuple(map(name_of, refused)),
        size=Size(sample_of, 0.05) if sample_of else Size(float(count)),
        is_sample=bool(sample_of),
        is_whole=is_whole,
    )


def older(answers: NodeReports, by_s: float, executed: int = 0) -> NodeReports:
    """Return the answers of the same nodes so much later, when each has executed so many requests more."""
    later = []
    for each in answers.reports:
        statistics = each.statistics
        clusters = {
            name: msgspec.structs.replace(
                known,
                service=msgspec.structs.replace(known.service or ServiceStatistics(), executed=_executed(known) + executed),
            )
            for name, known in statistics.clusters.items()
        }
        uptime_s = each.about.uptime_s + by_s
        later.append(
            msgspec.structs.replace(
                each,
                about=msgspec.structs.replace(each.about, uptime_s=uptime_s, now_s=uptime_s),
                statistics=msgspec.structs.replace(
                    statistics, clusters=clusters, executed=statistics.executed + executed, uptime_s=uptime_s
                ),
            )
        )
    return msgspec.structs.replace(answers, reports=tuple(later))


def _executed(known: ClusterStatistics) -> int:
    return 0 if known.service is None else known.service.executed
