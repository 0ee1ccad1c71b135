"""The metrics of a node for Prometheus: read when it asks, and nothing is kept for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.metrics.families import BUCKETS, Families, Histogram
from iris_py.metrics.reading import NodeReader, inner_node
from iris_py.observe.histogram import upper_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from iris_py.api.node import Node
    from iris_py.metrics.families import Family
    from iris_py.sync import Node as SyncNode

__all__ = ["NodeCollector", "make_metric"]

_BOUNDS = (*(repr(upper_s(bucket)) for bucket in BUCKETS), "+Inf")


class NodeCollector:
    """Collects the metrics of a node, for a registry of ``prometheus_client``: ``REGISTRY.register(NodeCollector(node))``.

    It may be asked in any thread. Then the event loop of the node has a second to answer; otherwise what it last said counts.
    A registry takes one node: two would have the same series. docs/metrics.md has the names.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.

    Raises:
        ConfigurationError: prometheus-client is not installed.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        try:
            import prometheus_client  # noqa: F401 - so that the error comes here
        except ImportError as exc:
            raise ConfigurationError(f"metrics for Prometheus need {exc.name}. Run: {install_command('metrics')}") from exc
        self._reader = NodeReader(node)
        self._families = Families(inner_node(node).name)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now, one after the other."""
        statistics = self._reader.read()
        if statistics is not None:
            yield from map(make_metric, self._families.collect(statistics))


def make_metric(family: Family) -> Metric:
    """Return a metric as the client library writes it.

    Args:
        family: The metric.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in family.samples:
            if isinstance(value, Histogram):
                histogram.add_metric(labels, list(zip(_BOUNDS, value.counts, strict=True)), value.sum_s)
        return histogram
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        if not isinstance(value, Histogram):
            metric.add_metric(labels, value)
    return metric
