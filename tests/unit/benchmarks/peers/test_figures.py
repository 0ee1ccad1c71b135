"""Tests of the figures: medians, spreads, ratios to Iris, and which peer is the best."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness import Sample
from benchmarks.peers.figures import Figures
from benchmarks.peers.system import Kind


def figures_of(values: dict[str, list[float]], unit: str = "/s", notes: dict[str, str] | None = None) -> Figures:
    figures = Figures()
    for system, runs in values.items():
        for value in runs:
            figures.add("stream", "1 KiB", system, [Sample("received", value, unit, (notes or {}).get(system, ""))])
    return figures


def test_a_value_is_the_median_of_the_rounds_with_its_spread() -> None:
    figures = figures_of({"iris": [3.0, 1.0, 2.0], "pyzmq": [8.0, 2.0, 4.0]})
    (workload,) = figures.as_json([("stream", "caption")])
    (row,) = workload["rows"]
    iris, pyzmq = row["cells"]
    assert (iris["median"], iris["min"], iris["max"], iris["runs"]) == (2.0, 1.0, 3.0, [3.0, 1.0, 2.0])
    assert (pyzmq["median"], pyzmq["min"], pyzmq["max"]) == (4.0, 2.0, 8.0)


def test_ratios_are_those_of_the_medians() -> None:
    (row,) = figures_of({"iris": [3.0, 1.0, 2.0], "pyzmq": [8.0, 2.0, 4.0]}).rows("stream")
    assert row.ratio("pyzmq") == 2.0
    assert row.ratio("iris") == 1.0
    assert row.ratio("zenoh") is None


@pytest.mark.parametrize(("unit", "best"), [("/s", "zenoh"), ("MB/s", "zenoh"), ("us", "pyzmq"), ("us/message", "pyzmq")])
def test_of_rates_more_is_better_and_of_times_and_costs_less(unit: str, best: str) -> None:
    (row,) = figures_of({"iris": [2.0], "pyzmq": [1.0], "zenoh": [3.0], "tcp": [99.0]}, unit).rows("stream")
    assert row.best_of(Kind.PEER) == best
    assert row.best_of(Kind.LIMIT) == "tcp"


def test_a_peer_that_lost_messages_is_not_the_best() -> None:
    (row,) = figures_of({"iris": [2.0], "pyzmq": [1.0], "nats": [3.0]}, notes={"nats": "lost 5 of 10"}).rows("stream")
    assert row.best_of(Kind.PEER) == "pyzmq"
    assert row.cells["nats"].notes == ["lost 5 of 10"]


def test_another_note_does_not_take_a_peer_out() -> None:
    (row,) = figures_of({"iris": [2.0], "pyzmq": [1.0], "nats": [3.0]}, notes={"nats": "dropped 5 of 10"}).rows("stream")
    assert row.best_of(Kind.PEER) == "nats"


def test_a_ratio_is_not_compared_again() -> None:
    (row,) = figures_of({"iris": [2.0], "pyzmq": [1.0]}, unit="").rows("stream")
    assert row.best_of(Kind.PEER) is None
    assert row.ratio("pyzmq") is None


def test_the_ratio_to_the_best_peer_is_that_of_iris() -> None:
    (workload,) = figures_of({"iris": [2.0], "pyzmq": [4.0], "tcp": [8.0]}).as_json([("stream", "")])
    (row,) = workload["rows"]
    assert (row["best_peer"], row["iris_to_best_peer"], row["iris_to_limit"]) == ("pyzmq", 0.5, 0.25)


def test_without_iris_there_are_no_ratios() -> None:
    (workload,) = figures_of({"pyzmq": [4.0]}).as_json([("stream", "")])
    (row,) = workload["rows"]
    assert row["cells"][0]["to_iris"] is row["iris_to_best_peer"] is None


def test_what_is_missing_is_said_with_its_reason() -> None:
    figures = Figures()
    figures.explain("stream", "1 KiB", "nats", "not installed: nats-server")
    text = json.dumps(figures.as_json([("stream", ""), ("request", "")]))
    stream, request = json.loads(text)
    assert stream["missing"] == [{"case": "1 KiB", "system": "nats", "reason": "not installed: nats-server"}]
    assert request["missing"] == []
