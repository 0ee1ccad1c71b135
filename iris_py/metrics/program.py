"""The metrics that a program keeps itself, in the registry of the client library: ``prometheus_client.REGISTRY``.

They are shown beside those of its node. Whoever has none of its own has not imported the library, and nothing is shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

__all__ = ["ProgramCollector", "ProgramFamily", "merge_families", "program_families"]

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
