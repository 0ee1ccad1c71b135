"""The clouds in `iris top`: what gateways tell, what of it is a fault, and the table."""

from __future__ import annotations

from typing import Any

import pytest

from iris_py.cli.top.header import say_head
from iris_py.cli.top.sheets import TablePlace, next_place, rows_of, sheet_of
from iris_py.overview.clouds import CloudLine, cloud_faults, cloud_lines, has_gateways
from iris_py.overview.pair import Pair
from iris_py.overview.readings import Readings
from tests.unit.iris_py.overview.faked import found, id_of, older, report


def state(
    number: int, *, is_up: bool, trips: tuple[float | None, ...] = (), error: str = "", **outcomes: int
) -> dict[str, Any]:
    """Return the state of a gateway with one cloud, as it tells it."""
    cloud = {
        "is_up": is_up,
        "bundles": [{"round_trip_s": trip, "is_suspect": False, "gateway": "ab"} for trip in trips],
        "dials": [{"address": "10.0.0.2:7450", "error": error, "is_up": False, "failures": 1}],
        "accounts": {"rules": [{"requests": {"done": 5, **outcomes}}, {"requests": {"timeout": 1}}]},
    }
    return {"node": id_of(number), "name": "us", "clouds": {"eu": cloud}}


def test_each_gateway_has_a_line_with_round_trip_and_failures() -> None:
    (line,) = cloud_lines([state(1, is_up=True, trips=(0.2, 1.2, None), unavailable=3)])
    assert line == CloudLine(
        cloud="eu",
        gateway=id_of(1),
        is_up=True,
        lines=3,
        round_trip_s=0.2,
        failed={"unavailable": 3, "timeout": 1},
        trouble="",
    )


def test_a_cloud_that_no_gateway_reaches_is_told_from_one_that_some_reach() -> None:
    down, up = state(1, is_up=False, error="connection refused"), state(2, is_up=True, trips=(0.2,))
    assert cloud_faults(cloud_lines([down])) == ["cloud eu: no gateway reaches it (10.0.0.2:7450: connection refused)"]
    assert cloud_faults(cloud_lines([down, up])) == [
        "cloud eu: 1 of 2 gateways do not reach it (10.0.0.2:7450: connection refused)"
    ]
    assert cloud_faults(cloud_lines([up])) == []


@pytest.mark.parametrize("told", [{}, {"clouds": 1}, {"node": 3}, {"node": "x", "clouds": {"eu": {"bundles": "none"}}}])
def test_what_a_gateway_tells_wrongly_is_left_out(told: dict[str, Any]) -> None:
    assert cloud_lines([told]) == []
    assert len(cloud_lines([told, state(1, is_up=True)])) == 1


def test_the_head_names_a_cloud_that_is_gone_and_the_table_shows_its_gateways() -> None:
    answers = found(report(1, clusters={"iris.gateway": 0}))
    gathering = Readings()
    gathering.take(answers, 0.0, is_search=True)
    gathering.take(older(answers, 1.0), 1.0, is_search=False)
    gathering.clouds = cloud_lines([state(1, is_up=False, trips=(1.2,), error="timed out", unavailable=1234)])
    head = say_head(gathering, "test", 1.0, 1.0, is_paused=False, width=80)
    line = "cloud eu: no gateway reaches it (10.0.0.2:7450: timed out)"
    assert head.plain.splitlines()[-1] == line
    assert any("red" in str(span.style) and line in head.plain[span.start : span.end] for span in head.spans)
    sheet, (row,) = sheet_of(TablePlace("clouds")), rows_of(TablePlace("clouds"), gathering)
    cells = {each.title: each.text(row) for each in sheet.fields}
    assert (cells["cloud"], cells["state"], cells["address"], cells["round trip"]) == ("eu", "DOWN", "127.0.0.1:4001", "1.2 s")
    assert cells["failed"] == "1,234 unavailable, 1 timeout"
    assert sheet.mark(row) == "bad"
    assert next_place(row) == TablePlace("node", id_of(1))


def test_gateways_are_asked_only_where_there_are_some() -> None:
    one, other = report(1, clusters={"iris.gateway": 0}), report(2, clusters={"work": 0})
    assert has_gateways([Pair(other, other), Pair(one, one)])
    assert not has_gateways([Pair(other, other)])
