"""The metrics of a node for OpenTelemetry: read when a reader collects, with no state in between.

OpenTelemetry has no observable histograms (opentelemetry-specification#2713). So histograms of Iris are exported as their count
and sum, and as quantiles since the last collection.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_py import __version__
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.metrics.families import BUCKETS, Families, HistogramValue
from iris_py.metrics.prometheus import NodeReader, inner_node
from iris_py.observe.histogram import upper_s
from iris_py.observe.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from iris_py.api.node import Node
    from iris_py.metrics.families import Family
    from iris_py.sync import Node as SyncNode

__all__ = ["observe_node"]

#: The exported quantiles of durations.
QUANTILES: Final = (0.5, 0.9, 0.99)
#: Time for which one reading of a node serves all instruments (seconds). Too small: each of some seventy instruments reads the
#: node; too large: a reader that collects more often gets no new values.
READING_S: Final = 0.25

_UNITS: Final = {"seconds": "s", "bytes": "By"}


def observe_node(node: Node | SyncNode, provider: MeterProvider | None = None) -> None:
    """Export the metrics of a node to OpenTelemetry, from now on and until the process ends.

    The metrics are those of Prometheus: ``iris_requests_total`` is ``iris.requests``, with the same attributes. Durations, as
    ``iris.request_seconds``, have quantiles (attribute ``quantile``), ``iris.request_seconds.count`` and ``.sum``. A process
    can export one node to a provider: the series of two would be the same.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.
        provider: Makes the instruments; by default the provider set up by the program.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError as exc:
        raise ConfigurationError(f"metrics for OpenTelemetry need it. Run: {install_command('otel')}") from exc
    meter = (provider or metrics.get_meter_provider()).get_meter("iris_py", __version__)
    sheet = _LastReading(node)
    for family in Families().collect(Statistics()):
        name = family.name.removesuffix("_total").replace("_", ".", 1)
        unit = _UNITS.get(name.rpartition("_")[2], "1")
        observe = partial(sheet.observe, family.name)
        if family.kind == "counter":
            meter.create_observable_counter(name, [observe(_values)], unit, family.help)
        elif family.kind == "gauge":
            meter.create_observable_gauge(name, [observe(_values)], unit, family.help)
        else:
            meter.create_observable_gauge(name, [observe(sheet.quantiles)], unit, family.help)
            meter.create_observable_counter(f"{name}.count", [observe(_counts)], "1", family.help)
            meter.create_observable_counter(f"{name}.sum", [observe(_sums)], unit, family.help)


class _LastReading:
    """The last two readings of a node's metrics, for all instruments.

    Args:
        node: The node.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        self._reader = NodeReader(node)
        self._families = Families(inner_node(node).name)
        self._read_at = float("-inf")
        self._now: Mapping[str, Family] = {}
        self._before: Mapping[str, Family] = {}
        self._lock = threading.Lock()  # each reader has its own thread

    def observe(
        self, name: str, show: Callable[[Family], Iterator[tuple[float, dict[str, str | float]]]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the callback of an OpenTelemetry instrument, which reads one metric of the node.

        Args:
            name: The name of the metric (family).
            show: Returns the metric's values with their attributes.
        """
        from opentelemetry.metrics import Observation

        def call(_options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                self._look()
                family = self._now.get(name)
                return [] if family is None else [Observation(value, attributes) for value, attributes in show(family)]

        return call

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._read_at < READING_S:
            return
        statistics = self._reader.read()
        if statistics is not None:
            self._before, self._now = self._now, {each.name: each for each in self._families.collect(statistics)}
        self._read_at = now

    def quantiles(self, family: Family) -> Iterator[tuple[float, dict[str, str | float]]]:
        """Return the quantiles of the durations since the previous reading. A series without new durations has none."""
        before = dict(self._before[family.name].samples) if family.name in self._before else {}
        for labels, value in family.samples:
            earlier = before.get(labels)
            if isinstance(value, HistogramValue):
                known = earlier.counts if isinstance(earlier, HistogramValue) else (0.0,) * len(value.counts)
                passed = [one - other for one, other in zip(value.counts, known, strict=True)]
                if passed[-1] > 0:
                    for quantile in QUANTILES:
                        yield _quantile(passed, quantile), _attributes(family, labels) | {"quantile": quantile}


def _quantile(counts: list[float], quantile: float) -> float:
    """Return the upper bound of the bucket with the quantile, in seconds; for the last bucket, its lower bound."""
    wanted = quantile * counts[-1]
    return next(
        (upper_s(bucket) for bucket, count in zip(BUCKETS, counts, strict=False) if count >= wanted), upper_s(BUCKETS[-1])
    )


def _attributes(family: Family, labels: tuple[str, ...]) -> dict[str, str | float]:
    return dict(zip(family.labels, labels, strict=True))


def _values(family: Family) -> Iterator[tuple[float, dict[str, str | float]]]:
    return ((value, _attributes(family, labels)) for labels, value in family.samples if not isinstance(value, HistogramValue))


def _counts(family: Family) -> Iterator[tuple[float, dict[str, str | float]]]:
    return (
        (value.counts[-1], _attributes(family, labels)) for labels, value in family.samples if isinstance(value, HistogramValue)
    )


def _sums(family: Family) -> Iterator[tuple[float, dict[str, str | float]]]:
    return ((value.sum_s, _attributes(family, labels)) for labels, value in family.samples if isinstance(value, HistogramValue))
