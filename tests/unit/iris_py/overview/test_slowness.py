"""Slow members, as `iris doctor` and `iris top` judge them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_py.cli.top.header import say_head
from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.statistics import ClusterStatistics, ServiceStatistics
from iris_py.overview.pair import Pair
from iris_py.overview.readings import Readings
from iris_py.overview.slowness import find_slow, handler_s, say_slow, slow_lines
from tests.unit.iris_py.overview.faked import found, report

if TYPE_CHECKING:
    from iris_py import NodeReport


def member(number: int, newest_s: float | None, *, cluster: str = "work", gateway: int | None = None) -> NodeReport:
    """Return the answer of a member whose last requests took so long; None if it has answered none."""
    told = report(number)
    service = ServiceStatistics(handlers=1, newest=0 if newest_s is None else 9, newest_s=newest_s or 0.0)
    clusters = {cluster: ClusterStatistics(service=service)}
    if gateway is not None:
        clusters["iris.gateway"] = ClusterStatistics(service=ServiceStatistics(handlers=gateway))
    return msgspec.structs.replace(told, statistics=msgspec.structs.replace(told.statistics, clusters=clusters))


def lines(*reports: NodeReport) -> list[str]:
    return say_slow(slow_lines(Pair(each, each) for each in reports))


@pytest.mark.parametrize(
    ("times", "slow"),
    [
        ({}, None),
        ({"a": 9.0}, None),
        ({"a": 9.0, "b": None}, None),
        ({"a": 0.001, "b": 0.001, "c": 2.0}, "c"),
        ({"a": 0.5, "b": 0.6, "c": 2.0}, None),
        ({"a": 0.4, "b": 0.4, "c": 2.0}, "c"),
        ({"a": 0.0001, "b": 0.0001, "c": 0.019}, None),
        ({"a": None, "b": 0.0001, "c": 0.02}, "c"),
        ({"a": 2.0, "b": 2.0}, None),
    ],
)
def test_a_member_is_slow_beside_the_middle_of_the_others(times: dict[str, float | None], slow: str | None) -> None:
    judged = find_slow(times)
    assert (None if judged is None else judged.member) == slow


def test_the_last_requests_count_and_the_median_of_all_where_a_node_tells_no_last_ones() -> None:
    many, few = (HistogramStatistics((0,) * 20 + (count,), 1.0 * count) for count in (5, 4))
    assert handler_s(ServiceStatistics(newest=3, newest_s=0.25, handling=many)) == 0.25
    assert handler_s(ServiceStatistics(handling=many)) == many.quantile_s(0.5)
    assert handler_s(ServiceStatistics(handling=few)) is None


def test_a_slow_member_is_said_with_its_cluster_address_name_and_both_times() -> None:
    slow = member(3, 2.0)
    slow = msgspec.structs.replace(slow, node=msgspec.structs.replace(slow.node, address="10.0.0.3:7400", name="b2"))
    (line,) = slow_lines(Pair(each, each) for each in (member(1, 0.001), member(2, 0.001), slow))
    assert (line.cluster, line.id, line.name, line.handler_s, line.others_s) == ("work", slow.node.id, "b2", 2.0, 0.001)
    assert say_slow([line]) == ["work: 10.0.0.3:7400 (b2) takes 2 s where others take 1 ms"]


def test_clusters_are_judged_apart_and_gateways_not_at_all() -> None:
    work = [member(number, 0.001) for number in (1, 2)]
    assert lines(*work, member(3, 2.0, cluster="other")) == []
    assert lines(*work, member(3, 2.0, gateway=1)) == [], "a gateway stands in for a cluster that is far away"
    assert len(lines(*work, member(3, 2.0, gateway=0))) == 1


def test_the_head_of_top_names_the_slow_member_in_red() -> None:
    gathering = Readings()
    told = [member(1, 0.001), member(2, 0.001), member(3, 2.0)]
    gathering.take(found(*told), 0.0, is_search=True)
    later = [
        msgspec.structs.replace(each, about=msgspec.structs.replace(each.about, uptime_s=each.about.uptime_s + 2.0))
        for each in told
    ]
    gathering.take(found(*later), 2.0, is_search=False)
    head = say_head(gathering, "test", 2.0, 1.0, is_paused=False, width=120)
    (said,) = lines(*told)
    line = f"slow:  {said}"
    assert head.plain.splitlines()[-1] == line
    assert any("red" in str(span.style) and line in head.plain[span.start : span.end] for span in head.spans)
