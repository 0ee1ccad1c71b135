"""The metrics of a node for Prometheus, read at each scrape, with no state in between.

The statistics belong to the node's event loop, and a reader makes them available to any thread. The program's own metrics, from
the registry of the client library (``prometheus_client.REGISTRY``), are exported beside those of its node. A program without
metrics of its own has not imported the library, and nothing is added.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from iris_py.api.runtime import runtime_of
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.logs import EventLogger
from iris_py.metrics.families import BUCKETS, Families, HistogramValue
from iris_py.observe.histogram import upper_s
from iris_py.sync import Node as SyncNode
from iris_py.sync.node import inner_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from iris_py.api.node import Node
    from iris_py.metrics.families import Family
    from iris_py.observe.statistics import Statistics

__all__ = [
    "NodeCollector",
    "NodeReader",
    "ProgramCollector",
    "ProgramFamily",
    "inner_node",
    "make_metric",
    "merge_families",
    "program_families",
]

logger = EventLogger("iris_py")

#: Series of the program's own metrics to export. Too small: some metrics are missing; too large: workers of `iris serve` send
#: more than their supervisor accepts, and Prometheus stores a series for every user, path and mistake in a label.
SERIES_MAX: Final = 5_000
#: The same bound in bytes, as JSON: labels may have any length, and a supervisor ends the connection of a worker whose message
#: is over its limit (4 MiB, with the metrics of the node).
BYTES_MAX: Final = 2 * 1024 * 1024
#: The new name of a program's label that collides with the workers' label, as Prometheus itself renames it.
_RENAMED: Final = {"worker": "exported_worker"}
#: The prefix of a node's metrics. The program may have registered these itself, and they are exported already.
_OF_NODE: Final = "iris_"


class ProgramFamily(NamedTuple):
    """A metric registered by the program itself, with its series."""

    name: str
    """The name."""
    kind: str
    """The kind, by its name in the client library."""
    help: str
    """Its meaning."""
    samples: list[tuple[str, dict[str, str], str]]
    """The name, the labels and the value of each line. The value is a text: JSON has no infinity."""


def program_families() -> Iterator[ProgramFamily]:
    """Yield the metrics the program itself has registered; nothing if it has not imported the client library.

    An exception of one of the program's collectors is logged, and ends the metrics.
    """
    client: Any = sys.modules.get("prometheus_client")
    if client is None:
        return
    left, left_bytes = SERIES_MAX, BYTES_MAX
    try:
        for metric in client.REGISTRY.collect():
            if metric.name.startswith(_OF_NODE):
                continue
            # In Prometheus's text format the start of each series is a metric of its own, without use.
            samples = [
                (each.name, dict(each.labels), repr(float(each.value)))
                for each in metric.samples
                if each.name != f"{metric.name}_created"
            ]
            family = ProgramFamily(metric.name, metric.type, metric.documentation, samples)
            left -= len(samples)
            left_bytes -= len(msgspec.json.encode(family))
            if left < 0 or left_bytes < 0:
                logger.warning(
                    "metrics_cut",
                    "the program itself has more than %d series or %d bytes of metrics: %s and later metrics are not shown",
                    SERIES_MAX,
                    BYTES_MAX,
                    metric.name,
                )
                return
            yield family
    except Exception as exc:  # any exception of a collector
        logger.error("metrics_failed", "a collector of the program failed: its metrics are not shown", error=exc)


def merge_families(by_worker: Mapping[str, Iterable[ProgramFamily]]) -> Iterator[Metric]:
    """Merge the metrics of several workers by name; each series gets a label with the number of its worker.

    Args:
        by_worker: The metrics of each worker. A metric of another kind than in an earlier worker is left out: the workers run
            different versions of the program.
    """
    merged: dict[str, Metric] = {}
    for worker, families in by_worker.items():
        for family in families:
            metric = merged.setdefault(family.name, _metric_of(family))
            if metric.type != family.kind:
                continue
            for name, labels, value in family.samples:
                renamed = {_RENAMED.get(label, label): text for label, text in labels.items()}
                metric.add_sample(name, {**renamed, "worker": worker}, float(value))
    yield from merged.values()


class ProgramCollector:
    """Collects the program's own metrics for the registry of its node; used by ``prometheus_client``."""

    def collect(self) -> Iterator[Metric]:
        """Return the present metrics, one after the other."""
        for family in program_families():
            metric = _metric_of(family)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, float(value))
            yield metric


def _metric_of(family: ProgramFamily) -> Metric:
    from prometheus_client.core import Metric

    return Metric(family.name, family.help, family.kind)


#: How long another thread waits for the node's event loop before it gets the last statistics (seconds). Too small: a busy loop
#: exports old values; too large: a scrape hangs with the loop that it should report.
WAIT_S: Final = 1.0


def inner_node(node: Node | SyncNode) -> Node:
    """Return the node of the asyncio API; for a node of :mod:`iris_py.sync`, the node behind it."""
    return inner_of(node) if isinstance(node, SyncNode) else node


class NodeReader:
    """Reads the statistics of a node, from any thread.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        self._node = inner_node(node)
        self._last: Statistics | None = None
        self._lock = threading.Lock()  # only one of several threads waits for the loop

    def read(self) -> Statistics | None:
        """Return the node's statistics. In another thread, wait up to ``WAIT_S`` for them, and then return the last ones.

        Returns:
            None before the first statistics: the event loop of the node has not run since the start.
        """
        loop = runtime_of(self._node).loop
        try:
            is_inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_inside = False
        if is_inside:
            self._last = self._node.statistics()
            return self._last
        with self._lock:
            asked: concurrent.futures.Future[Statistics] = concurrent.futures.Future()
            try:
                loop.call_soon_threadsafe(self._answer, asked)
                self._last = asked.result(WAIT_S)
            except (RuntimeError, TimeoutError):
                asked.cancel()  # the loop is closed, or stands still
        return self._last

    def _answer(self, asked: concurrent.futures.Future[Statistics]) -> None:
        """Read the statistics into the future. Runs in the node's event loop."""
        if asked.set_running_or_notify_cancel():
            asked.set_result(self._node.statistics())


_BOUNDS = (*(repr(upper_s(bucket)) for bucket in BUCKETS), "+Inf")


class NodeCollector:
    """Collects the metrics of a node, for a registry of ``prometheus_client``: ``REGISTRY.register(NodeCollector(node))``.

    Any thread may collect. The event loop of the node then has a second to answer; later the last values are returned. A
    registry takes one node: two would have the same series. docs/metrics.md has the names.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.

    Raises:
        ConfigurationError: prometheus-client is not installed.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        try:
            import prometheus_client  # noqa: F401 - raises the error here
        except ImportError as exc:
            raise ConfigurationError(f"metrics for Prometheus need {exc.name}. Run: {install_command('metrics')}") from exc
        self._reader = NodeReader(node)
        self._families = Families(inner_node(node).name)

    def collect(self) -> Iterator[Metric]:
        """Return the present metrics, one after the other."""
        statistics = self._reader.read()
        if statistics is not None:
            yield from map(make_metric, self._families.collect(statistics))


def make_metric(family: Family) -> Metric:
    """Convert a metric of a node to a metric of the client library."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in family.samples:
            if isinstance(value, HistogramValue):
                histogram.add_metric(labels, list(zip(_BOUNDS, value.counts, strict=True)), value.sum_s)
        return histogram
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        if not isinstance(value, HistogramValue):
            metric.add_metric(labels, value)
    return metric
