"""The metrics of the program itself beside those of its node."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from iris_py.metrics.prometheus import BYTES_MAX, SERIES_MAX, ProgramCollector, ProgramFamily, merge_families, program_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    registry = CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    return registry


class Failing:
    def collect(self) -> Iterator[Metric]:
        raise ZeroDivisionError


def names() -> list[str]:
    return [family.name for family in program_families()]


def test_a_program_without_the_client_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "prometheus_client")
    assert names() == []


def test_values_are_texts_and_beginnings_are_left_out(registry: CollectorRegistry) -> None:
    Counter("asked", "Questions.", ["by"], registry=registry).labels("a").inc(2)
    Gauge("room", "Left.", registry=registry).set(float("inf"))
    Gauge("jobs_created", "It is called so.", registry=registry)
    Counter("iris_of_the_node", "It is there.", registry=registry)
    assert list(program_families()) == [
        ProgramFamily("asked", "counter", "Questions.", [("asked_total", {"by": "a"}, "2.0")]),
        ProgramFamily("room", "gauge", "Left.", [("room", {}, "inf")]),
        ProgramFamily("jobs_created", "gauge", "It is called so.", [("jobs_created", {}, "0.0")]),
    ]
    assert [metric.name for metric in ProgramCollector().collect()] == ["asked", "room", "jobs_created"]


def test_more_series_than_anybody_reads_are_cut(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    users = Gauge("users", "One for each.", ["user"], registry=registry)
    for number in range(SERIES_MAX):
        users.labels(str(number))
    Gauge("last", "It is too much.", registry=registry)
    with caplog.at_level(logging.WARNING):
        assert names() == ["users"]
    assert f"more than {SERIES_MAX} series or {BYTES_MAX} bytes of metrics: last and later metrics are not shown" in caplog.text


def test_labels_that_a_supervisor_would_not_take_are_cut(registry: CollectorRegistry) -> None:
    Gauge("first", "It is small.", registry=registry)
    Gauge("long", "Its label is not.", ["text"], registry=registry).labels("x" * BYTES_MAX)
    assert names() == ["first"]


def test_a_collector_that_fails_ends_them(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    Gauge("first", "It works.", registry=registry)
    registry.register(Failing())
    with caplog.at_level(logging.ERROR):
        assert names() == ["first"]
    assert "a collector of the program failed" in caplog.text


def test_workers_are_told_apart() -> None:
    one = ProgramFamily("asked", "counter", "Questions.", [("asked_total", {"worker": "w"}, "1.0")])
    older = ProgramFamily("asked", "gauge", "Questions.", [("asked", {}, "9.0")])
    (metric,) = merge_families({"1": [one], "2": [one], "3": [older]})
    shown = [(sample.labels, sample.value) for sample in metric.samples]
    assert shown == [({"exported_worker": "w", "worker": number}, 1.0) for number in ("1", "2")]
