"""Tests of iris_py/overview/departed.py: what nodes have seen of those that are gone, merged."""

from __future__ import annotations

from iris_py import NodeName, NodeReport, NodeReports
from iris_py.observe.departures import DEPARTURES_MAX, Departure
from iris_py.observe.queries import About
from iris_py.observe.statistics import Statistics
from iris_py.overview.departed import gone_lines, known_since

NOW = 1_700_000_000.0


def report(name: str, age_s: float, *departures: Departure, tells: bool = True) -> NodeReport:
    """Return the answer of a node that was started so many seconds ago."""
    return NodeReport(
        node=NodeName(name * 32),
        about=About(now_s=age_s),
        statistics=Statistics(),
        round_trip_s=0.0,
        received_unix_s=NOW,
        departures=departures if tells else None,
    )


def gone(name: str, at_s: float, kind: str = "died", detail: str = "it does not answer", label: str = "") -> Departure:
    return Departure(node=name * 32, at_s=at_s, kind=kind, name=label, detail=detail)


def test_what_nodes_say_of_one_that_is_gone_is_one_line() -> None:
    found = NodeReports(
        reports=(
            report("a", 100.0, gone("d", 90.0, label="web-1/orders.py"), gone("e", 50.0, "left", "it leaves")),
            report("b", 1000.0, gone("d", 988.0, detail="nobody listens where it did"), gone("e", 951.0)),
            report("c", 30.0, gone("d", 19.0)),
        )
    )
    first, second = gone_lines(found)
    assert (first.id, first.how, first.detail, first.said_by) == ("e" * 32, "left", "it leaves", 2)
    assert first.time.timestamp() == NOW - 50.0
    assert (second.id, second.how, second.detail, second.said_by) == ("d" * 32, "died", "it does not answer", 3)
    assert (second.name, second.time.timestamp()) == ("web-1/orders.py", NOW - 12.0)


def test_a_node_that_answers_is_not_gone_whatever_others_say() -> None:
    found = NodeReports(reports=(report("a", 10.0, gone("b", 5.0)), report("b", 10.0)))
    assert gone_lines(found) == []


def test_the_past_is_known_as_far_as_the_oldest_history_reaches() -> None:
    assert known_since(NodeReports()) is None
    assert known_since(NodeReports(reports=(report("a", 10.0, tells=False),))) is None
    young, old = report("a", 10.0, gone("d", 1.0)), report("b", 500.0)
    assert known_since(NodeReports(reports=(young, old))) == NOW - 500.0
    full = report("c", 1000.0, *(gone(f"{number:032}"[:1], 900.0 + number / 10) for number in range(DEPARTURES_MAX)))
    assert known_since(NodeReports(reports=(young, full))) == NOW - 100.0
