"""The metrics of a node for Prometheus: read when it asks, and nothing is kept for it.

The statistics of a node for whatever thread asks: they belong to its event loop.

The metrics that a program keeps itself, in the registry of the client library: ``prometheus_client.REGISTRY``.

They are shown beside those of its node. Whoever has none of its own has not imported the library, and nothing is shown.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.logs import EventLogger
from iris_py.metrics.families import BUCKETS, Families, Histogram
from iris_py.observe.histogram import upper_s
from iris_py.sync import Node as SyncNode

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

#: Series of a program that are shown. Too small: some of its metrics are missing; too large: workers of `iris serve` send more
#: than their supervisor takes, and Prometheus keeps a series for every user, path and mistake that was made a label.
SERIES_MAX: Final = 5_000
#: The same in bytes, as JSON: labels may be of any length, and a supervisor does not listen any more to a worker whose message
#: is longer than it takes (4 MiB, with the metrics of the node).
BYTES_MAX: Final = 2 * 1024 * 1024
#: The label of a program that is called as the one that tells its workers apart, as Prometheus renames such labels itself.
_RENAMED: Final = {"worker": "exported_worker"}
#: Those of a node that the program has registered itself: they are there already.
_OF_NODE: Final = "iris_"


class ProgramFamily(NamedTuple):
    """A metric of a program with its series."""

    name: str
    """The name."""
    kind: str
    """The kind, as the client library calls it."""
    help: str
    """Its meaning."""
    samples: list[tuple[str, dict[str, str], str]]
    """The name, the labels and the value of each line. The value is a text: JSON has no infinity."""


def program_families() -> Iterator[ProgramFamily]:
    """Return what the program has registered, one metric after the other; nothing if it does not use the client library.

    A collector of the program that fails ends it, and is logged.
    """
    client: Any = sys.modules.get("prometheus_client")
    if client is None:
        return
    left, left_bytes = SERIES_MAX, BYTES_MAX
    try:
        for metric in client.REGISTRY.collect():
            if metric.name.startswith(_OF_NODE):
                continue
            # When each series began is a metric of its own in the text that Prometheus reads, and of no use to it.
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
                    "the program has more than %d series or %d bytes of its own: %s and later metrics are not shown",
                    SERIES_MAX,
                    BYTES_MAX,
                    metric.name,
                )
                return
            yield family
    except Exception as exc:  # whatever it does
        logger.error("metrics_failed", "a collector of the program failed: its metrics are not shown", error=exc)


def merge_families(by_worker: Mapping[str, Iterable[ProgramFamily]]) -> Iterator[Metric]:
    """Make one metric of those of the same name, each series with the number of its worker.

    Args:
        by_worker: The metrics of each worker. One that has another kind elsewhere is left out there: its files are older.
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
    """Collects what a program has registered itself, for the registry of its node."""

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now, one after the other."""
        for family in program_families():
            metric = _metric_of(family)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, float(value))
            yield metric


def _metric_of(family: ProgramFamily) -> Metric:
    from prometheus_client.core import Metric

    return Metric(family.name, family.help, family.kind)


#: How long (seconds) another thread waits for the event loop of the node; then it gets what was read last. Too small: a busy
#: loop shows old figures; too large: a scrape takes as long as what it is to warn of.
WAIT_S: Final = 1.0


def inner_node(node: Node | SyncNode) -> Node:
    """Return the node in its event loop: of one of :mod:`iris_py.sync` what is behind it."""
    return node._inner if isinstance(node, SyncNode) else node


class NodeReader:
    """Reads the statistics of a node.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        self._node = inner_node(node)
        self._last: Statistics | None = None
        self._lock = threading.Lock()  # of several other threads one asks

    def read(self) -> Statistics | None:
        """Return the statistics now, from another thread at the latest after ``WAIT_S`` those that were read last.

        Returns:
            None if there are none yet: the event loop of the node has stood still since it was made known.
        """
        loop = self._node._loop
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
        """In the loop of the node."""
        if asked.set_running_or_notify_cancel():
            asked.set_result(self._node.statistics())


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
