"""Failures as callers meet them: what is counted, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from iris_py.cli.top.header import say_head
from iris_py.cli.top.sheets import TablePlace, rows_of, sheet_of
from iris_py.observe.statistics import SecurityStatistics
from iris_py.overview.caller_failures import (
    RECENT_S,
    Met,
    RecentFailures,
    failure_lines,
    met_by,
    say_met,
    say_rates,
    unserved_clusters,
)
from iris_py.overview.clusters import cluster_lines
from iris_py.overview.pair import Pair
from iris_py.overview.readings import Readings
from iris_py.overview.totals import totals_of
from iris_py.overview.units import format_seconds
from tests.unit.iris_py.overview.faked import asker, found, report

if TYPE_CHECKING:
    from iris_py import NodeReport

EVERY_ERROR = {
    "NoMembers": "no members",
    "CloudUnavailable": "unavailable",
    "RequestTimeout": "timed out",
    "MemberLost": "member lost",
    "TooManyMembersLost": "members lost",
    "Overloaded": "overloaded",
    "NotExported": "not exported",
    "NotConnected": "not connected",
    "RemoteError": "handler raised",
    "Novel": "Novel",
}


def pair(before: int, after: int, error: str = "NoMembers", **how: Any) -> Pair:
    """Return two answers, two seconds apart, of a node whose requests to nosuch have failed so often."""
    return Pair(asker(1, {"nosuch": {error: before}}, **how), asker(1, {"nosuch": {error: after}}, uptime_s=102.0, **how))


@pytest.mark.parametrize(("error", "said"), EVERY_ERROR.items())
def test_each_error_has_the_name_of_its_cluster_its_rate_and_its_sum(error: str, said: str) -> None:
    (line,) = failure_lines([pair(10, 30, error, members=1)], 1.0)
    assert (line.cluster, line.use, line.error, line.per_s, line.total, line.callers) == ("nosuch", "request", error, 10, 30, 1)
    assert say_rates([line], {}) == [f"nosuch: 10/s {said}"]
    assert failure_lines([pair(10, 30, error)], 2.0)[0].per_s == 20, "each node of a sample stands for two"
    assert totals_of([pair(10, 30, error)], found(report(1))).errors_per_s.total == 10


def test_the_end_of_a_program_is_no_failure() -> None:
    assert met_by(asker(1, {"work": {"NodeClosed": 3}})) == {}


def test_a_cloud_that_is_gone_is_said_once_by_the_name_that_was_asked_for() -> None:
    told = asker(
        1, {"iris.gateway.eu": {"NoMembers": 7}, "iris.gateway.asia": {"NoMembers": 1}}, far={"db@eu": {"CloudUnavailable": 7}}
    )
    assert met_by(told) == {Met("db@eu", "request", "CloudUnavailable"): 7, Met("iris.gateway.asia", "request", "NoMembers"): 1}
    (line,) = [line for line in cluster_lines([Pair(told, told)], found(told), "name") if line.name == "db@eu"]
    assert not line.is_unserved


def test_tunnels_that_could_not_be_opened_are_failures() -> None:
    told = asker(1, {"work": {}}, unopened={"work": {"Overloaded": 2}}, members=1)
    assert say_met(met_by(told), {}) == ["work: 2 tunnels overloaded"]


def test_a_cluster_is_unserved_while_nodes_ask_it_and_none_of_them_knows_a_member() -> None:
    assert unserved_clusters([pair(1, 2)]) == {"nosuch": 0}
    assert unserved_clusters([pair(2, 2)]) == {}, "nobody asks now"
    assert unserved_clusters([pair(2, 2, waiting=3)]) == {"nosuch": 3}
    assert unserved_clusters([pair(1, 2, members=1)]) == {}
    knows = Pair(asker(2, {"nosuch": {}}, members=1), asker(2, {"nosuch": {}}, members=1, uptime_s=102.0))
    assert unserved_clusters([pair(1, 2), knows]) == {}, "one of the callers knows a member"
    assert say_met({}, {"nosuch": 3}) == ["nosuch: no member, 3 waiting"]
    assert say_met({Met("nosuch", "request", "NoMembers"): 4}, {"nosuch": 0}) == ["nosuch: 4 no members"]
    (line,) = cluster_lines([pair(2, 2, waiting=3)], found(report(1)), "name")
    assert (line.is_unserved, line.waiting) == (True, 3)


def test_the_most_frequent_failure_comes_first() -> None:
    met = {Met("a", "request", "RequestTimeout"): 1, Met("b", "request", "NoMembers"): 5, Met("a", "request", "MemberLost"): 2}
    assert say_met(met, {}) == ["b: 5 no members", "a: 2 member lost, 1 timed out"]


def test_a_failure_stays_for_a_minute_and_is_counted_once() -> None:
    recent = RecentFailures()
    first, then = asker(1, {"nosuch": {"NoMembers": 10}}), asker(1, {"nosuch": {"NoMembers": 14}}, uptime_s=101.0)
    recent.take(None, first, 0.0)
    assert not recent.all(), "what an old node counted before may be long ago"
    recent.take(first, then, 1.0)
    recent.take(then, then, 1.2)
    assert recent.all() == {Met("nosuch", "request", "NoMembers"): 4}
    recent.take(None, asker(2, {"nosuch": {"NoMembers": 3}}, uptime_s=2.0), 2.0)
    assert recent.all() == {Met("nosuch", "request", "NoMembers"): 7}, "all that a young node counted is recent"
    recent.forget(1.0 + RECENT_S)
    assert recent.all() == {Met("nosuch", "request", "NoMembers"): 7}
    recent.forget(1.5 + RECENT_S)
    assert recent.all() == {Met("nosuch", "request", "NoMembers"): 3}
    recent.forget(3.0 + RECENT_S)
    assert not recent.all()


def test_the_head_of_top_says_failures_in_red_with_the_name_and_the_row_says_why() -> None:
    gathering = Readings()
    both = pair(10, 30)
    gathering.take(found(both.first, report(2, clusters={"work": 0})), 0.0, is_search=True)
    gathering.take(found(both.last, report(2, uptime_s=12.0, clusters={"work": 0})), 2.0, is_search=False)
    head = say_head(gathering, "test", 2.0, 1.0, is_paused=False, width=80)
    line = "failed in the last minute:  nosuch: 20 no members"
    assert head.plain.splitlines()[-1] == line
    assert any("red" in str(span.style) and line in head.plain[span.start : span.end] for span in head.spans)
    assert "10 errors/s" in head.plain
    sheet = sheet_of(TablePlace("clusters"))
    rows = {row.name: row for row in rows_of(TablePlace("clusters"), gathering)}
    cells = {each.title: each.text(rows["nosuch"]) for each in sheet.fields}
    assert (cells["members"], cells["errors/s"], cells["error"]) == ("0", "10", "no members")
    assert (sheet.mark(rows["nosuch"]), sheet.mark(rows["work"])) == ("bad", "")


def test_a_network_without_failures_has_no_line_about_them() -> None:
    gathering = Readings()
    first = found(report(1, clusters={"work": 0}))
    gathering.take(first, 0.0, is_search=True)
    gathering.take(found(report(1, uptime_s=12.0, clusters={"work": 0})), 2.0, is_search=False)
    assert "failed in" not in say_head(gathering, "test", 2.0, 1.0, is_paused=False, width=80).plain


def test_names_from_other_nodes_steer_no_terminal() -> None:
    evil = "\x1b[2Jno"
    assert all(said.isprintable() for said in say_met({Met(evil, "request", evil): 1}, {evil: 1}))


@pytest.mark.parametrize(
    ("duration_s", "said"),
    [
        (1.2, "1.2 s"),
        (0.9999, "1 s"),
        (0.9994, "999 ms"),
        (0.00099999, "1 ms"),
        (1.0, "1 s"),
        (0.000412, "412 us"),
        (12.34, "12.3 s"),
    ],
)
def test_durations_have_the_unit_that_suits_them(duration_s: float, said: str) -> None:
    assert format_seconds(duration_s) == said


@pytest.mark.parametrize(("uptime_s", "is_named"), [(30.0, True), (3.0, False)])
def test_the_head_names_nodes_that_are_gone_unless_they_were_those_of_commands(uptime_s: float, is_named: bool) -> None:
    gathering = Readings()
    gathering.take(found(report(1), report(2, uptime_s=uptime_s)), 0.0, is_search=True)
    gathering.take(found(report(1, uptime_s=12.0), report(2, uptime_s=uptime_s + 2.0)), 2.0, is_search=False)
    gathering.take(found(report(1, uptime_s=20.0)), 10.0, is_search=True)
    head = say_head(gathering, "test", 10.0, 1.0, is_paused=False, width=80).plain
    assert ("gone: 00000002" in head) is is_named


def holding(number: int, uptime_s: float, *accepted: str) -> NodeReport:
    """Return the answer of a node that accepts further generations of the secret."""
    told = report(number, uptime_s=uptime_s)
    security = SecurityStatistics(primary="971b49bc00000000", accepted=accepted)
    return msgspec.structs.replace(told, statistics=msgspec.structs.replace(told.statistics, security=security))


@pytest.mark.parametrize("has_missed", [True, False])
def test_the_head_names_the_node_that_missed_a_step_of_a_rotation(has_missed: bool) -> None:
    new = "6a21c1b100000000"
    gathering = Readings()
    for at in (0.0, 2.0):
        answers = found(holding(1, 10.0 + at, new), holding(2, 10.0 + at, new), holding(3, 10.0 + at, *[new][has_missed:]))
        gathering.take(answers, at, is_search=not at)
    head = say_head(gathering, "test", 2.0, 1.0, is_paused=False, width=80).plain
    assert ("secret differs  127.0.0.1:4003: 971b49bc  2 other nodes: 971b49bc+1" in head) is has_missed
    assert ("secret differs" in head) is has_missed
    rows = rows_of(TablePlace("nodes"), gathering)
    (secret,) = [each for each in sheet_of(TablePlace("nodes")).fields if each.title == "secret"]
    assert [secret.text(row) for row in rows] == ["971b49bc+1", "971b49bc+1", "971b49bc" if has_missed else "971b49bc+1"]
