"""The metrics of a node for OpenTelemetry, read by its SDK."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import iris_py
from iris_py.build import commit
from iris_py.metrics import observe_node, otel
from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.statistics import Histograms, Statistics
from tests.unit.iris_py.metrics.test_families import everything


def points(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[Any, ...]], float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple((point.attributes or {}).values())): point.value  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_a_reader_sees_what_prometheus_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "READING_S", 0.0)

    async def main() -> None:
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader])
        async with iris_py.connect(secret=bytes(range(32, 64)), listen="127.0.0.1:0", discovery=False) as node:
            observe_node(node, provider)
            read = await asyncio.to_thread(points, reader)
            assert read["iris.network_nodes", ()] == 1
            assert read["iris.build_info", (iris_py.__version__, commit(), sys.version.split()[0])] == 1
            assert read["iris.probe_seconds.count", ()] == 0
            assert not [name for name, _attributes in read if name == "iris.probe_seconds"], "nothing has passed"
            shown = everything(["a"])
            monkeypatch.setattr(type(node), "statistics", lambda _node: shown)
            read = await asyncio.to_thread(points, reader)
            assert read["iris.requests", ("a", "done")] == 7
            assert read["iris.request_seconds.count", ("a",)] == 50
            assert read["iris.request_seconds.sum", ("a",)] == 1.5
        provider.shutdown()

    iris_py.run(main())


def test_quantiles_are_of_what_has_passed_since_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "READING_S", -1.0)
    looks = iter([(0,) * 7 + (10,), (0,) * 7 + (10,) + (0,) * 8 + (90,), (0,) * 7 + (10,) + (0,) * 8 + (90,)])

    class Node:
        _loop = None
        name = ""

    sheet = otel._LastReading(Node())  # type: ignore[arg-type]
    monkeypatch.setattr(
        sheet._reader,
        "read",
        lambda: Statistics(histograms=Histograms(probe=HistogramStatistics(next(looks), 1.0))),
    )
    shown = []
    for _ in range(3):
        sheet._look()
        shown.append([value for value, _attributes in sheet.quantiles(sheet._now["iris_probe_seconds"])])
    assert shown == [[0.000128] * 3, [0.065536] * 3, []]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(iris_py.ConfigurationError, match="Run: pip install"):
        observe_node(None)  # type: ignore[arg-type]
