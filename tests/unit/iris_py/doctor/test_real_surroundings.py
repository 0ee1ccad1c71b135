"""The answers of nodes, as the checks see them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs

from iris_py.cli.settings import Settings
from iris_py.doctor.network_surroundings import member_of, status_of
from iris_py.doctor.real_surroundings import Actual
from iris_py.doctor.surroundings import ClusterMember, Gateways, NodeStatus
from iris_py.federation.calls import encode_outcome
from iris_py.observe.histogram import Histogram
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import About
from iris_py.observe.reports import NodeReport
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


def test_a_handler_of_an_older_version_that_has_answered_little_has_no_time() -> None:
    found = member_of(serving(2, 0, 0, handled=2), None)
    assert found == ClusterMember(NAME.id, NAME.address, 5, 6, 3, 4, 2, 2, None)


def change_service(told: NodeReport, **values: object) -> NodeReport:
    [(name, cluster)] = told.statistics.clusters.items()
    assert cluster.service is not None
    changed = structs.replace(cluster, service=structs.replace(cluster.service, **values))
    return report(Statistics(clusters={name: changed}))


def test_what_a_handler_takes_of_late_counts_and_not_what_it_took_before() -> None:
    found = member_of(change_service(serving(1000, 0, 0, handled=1000), newest=9, newest_s=0.5), None)
    assert found is not None
    assert found.handler_s == 0.5


@pytest.mark.parametrize(
    ("executed", "handled", "held"),
    [(20, 10, 3), (21, 10, 0), (20, 11, 0), (21, 11, 0)],
    ids=["held", "begun", "ended", "both"],
)
def test_requests_are_held_while_none_begins_and_none_ends(executed: int, handled: int, held: int) -> None:
    found = member_of(serving(executed, 0, 0, handled=handled), serving(20, 0, 0, handled=10))
    assert found is not None
    assert (found.held_lately, found.handled_lately) == (held, handled - 10)
    first = member_of(serving(20, 0, 0, handled=10), None)
    assert first is not None
    assert first.held_lately == 0, "it was seen once"


def test_tunnels_and_who_has_them() -> None:
    told = change_service(serving(1, 0, 0), tunnels_open=7, tunnels_max=8, tunnel_holders={"aa": 5, "bb": 2})
    found = member_of(told, None)
    assert found is not None
    assert (found.tunnels, found.tunnels_max, found.tunnel_holders) == (7, 8, (("aa", 5), ("bb", 2)))


def test_a_node_that_is_no_member_any_more_says_nothing() -> None:
    assert member_of(report(Statistics()), None) is None
    assert member_of(report(Statistics(clusters={"databases": ClusterStatistics()})), None) is None


def test_answers_of_gateways_that_are_malformed_count_as_missing() -> None:
    class Network:
        """Gateways of which one lies."""

        async def begin(self, cluster: str, _call: bytes, *_rest: object) -> SimpleNamespace:
            assert cluster == "iris.gateway"
            good = {"node": "aa", "clouds": {"eu": {"is_up": True}}, "of a newer version": [1]}
            said = [msgspec.msgpack.encode(each) for each in (good, {"node": 7}, {"node": "x", "clouds": [1]}, 5)]
            payloads = [encode_outcome(each) for each in (*said, b"\xc1", b"\x91" * 5000)]
            return SimpleNamespace(replies=[SimpleNamespace(payload=each) for each in payloads], missing_count=1)

    async def main() -> Gateways:
        actual = Actual(Settings())
        prober = asyncio.get_running_loop().create_future()
        prober.set_result(SimpleNamespace(_parts=SimpleNamespace(surveys=Network())))
        actual._asked["prober"] = prober
        return await actual.gateways()

    found = asyncio.run(main())
    assert [gateway.node for gateway in found.gateways] == ["aa"]
    assert found.gateways[0].clouds["eu"].is_up
    assert found.missing == 6
