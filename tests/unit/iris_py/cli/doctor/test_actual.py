"""The answers of nodes, as the checks see them."""

from __future__ import annotations

import pytest

from iris_py.cli.doctor.actual import member_of, status_of
from iris_py.cli.doctor.surroundings import ClusterMember, NodeStatus
from iris_py.observe.answers import About
from iris_py.observe.histogram import Histogram
from iris_py.observe.reports import NodeName, NodeReport
from iris_py.observe.statistics import (
    BroadcastStatistics,
    ClusterStatistics,
    ProcessStatistics,
    ServiceStatistics,
    Statistics,
)

NAME = NodeName("ab" * 16, "10.0.0.2:7400")


def report(statistics: Statistics, about: About | None = None) -> NodeReport:
    return NodeReport(node=NAME, about=about or About(), statistics=statistics, round_trip_s=0.01)


def serving(executed: int, rejected: int, dropped: int, *, handled: int = 0) -> NodeReport:
    """Return what a member says of its cluster; its handler takes 10 ms."""
    handling = Histogram()
    handling.recent += [0.010] * handled
    service = ServiceStatistics(
        handlers=1,
        executed=executed,
        failed=2,
        rejected={"overloaded": rejected},
        running=3,
        concurrency=4,
        queued_messages=5,
        queue_messages=6,
        handling=handling.show(),
    )
    cluster = ClusterStatistics(service=service, broadcasts=BroadcastStatistics(dropped=dropped))
    return report(Statistics(clusters={"#of a secret of its own": cluster}))


@pytest.mark.parametrize(
    ("clock", "offset_s"), [(1000.0, 0.0), (1003.0, 0.0), (1050.0, 46.0), (900.0, -100.0), (0.0, None)], ids=str
)
def test_a_clock_is_right_if_it_may_have_been_read_while_it_was_asked(clock: float, offset_s: float | None) -> None:
    assert status_of(report(Statistics(), About(unix_s=clock)), 1000.0, 1004.0).clock_offset_s == offset_s


def test_what_a_node_says_of_its_process() -> None:
    process = ProcessStatistics(loop_lateness_s=0.3, descriptors=40, descriptors_max=1024)
    found = status_of(report(Statistics(process=process), About(version="0.1.0", unix_s=1.0)), 1.0, 1.0)
    assert found == NodeStatus(NAME.id, NAME.address, "0.1.0", 0.0, 0.3, 40, 1024)


def test_what_has_grown_is_told_and_not_what_was_there_before() -> None:
    found = member_of(serving(20, 9, 7, handled=10), serving(10, 5, 7))
    assert found is not None
    assert (found.rejected_lately, found.dropped_lately) == (4, 0)
    assert found.handler_s == pytest.approx(0.010, rel=1.0)
    assert (found.executed, found.failed, found.running, found.concurrency) == (20, 2, 3, 4)
    assert (found.queued, found.queue_max) == (5, 6)


def test_a_handler_that_has_answered_little_has_no_time() -> None:
    found = member_of(serving(2, 0, 0, handled=2), None)
    assert found == ClusterMember(NAME.id, NAME.address, 5, 6, 3, 4, 2, 2, None)


def test_a_node_that_is_no_member_any_more_says_nothing() -> None:
    assert member_of(report(Statistics()), None) is None
    assert member_of(report(Statistics(clusters={"databases": ClusterStatistics()})), None) is None
