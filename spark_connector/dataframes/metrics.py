"""Metrics of a dispatch: counts, added by tasks to an accumulator, and a listener for reports per micro-batch.

A task adds its counts once, at the end. Spark accepts the counts only of tasks that succeed: the counts of a failed or
cancelled task are lost, as with every accumulator.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from iris_py import ConfigurationError
from spark_connector.dataframes.counts import DispatchCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress


__all__ = ["DispatchMetrics", "accumulator_of"]

logger = logging.getLogger("spark_connector")


class DispatchMetrics:
    """Counts the requests of dispatches: pass it to :func:`dispatch` as ``metrics=``, and read :attr:`counts` at any time.

    Use one object per dispatch, or a common object for the sum of several dispatches. Only tasks that succeed are counted.
    Micro-batches and actions add to the counts, and repeated tasks count again.

    Args:
        spark: The session. A session of Spark Connect has no accumulators.

    Raises:
        ConfigurationError: The session has no accumulators.
    """

    def __init__(self, spark: SparkSession) -> None:
        try:
            context = spark.sparkContext
        except Exception as exc:
            raise ConfigurationError(
                f"spark={spark!r}: DispatchMetrics needs the accumulators of a SparkContext, but this has none: "
                f"{type(exc).__qualname__}. Under Spark Connect, leave out metrics=."
            ) from None
        self._accumulator: Accumulator[DispatchCounts] = context.accumulator(DispatchCounts(), _parameter())

    @property
    def counts(self) -> DispatchCounts:
        """The counts so far."""
        return self._accumulator.value

    def listener(
        self, report: Callable[[StreamingQueryProgress, DispatchCounts], object] | None = None, *, query: str | None = None
    ) -> StreamingQueryListener:
        """Return a listener for the counts of each micro-batch: ``spark.streams.addListener(metrics.listener())``.

        Args:
            report: Called in a thread of Spark with the query's progress and the counts since the previous report. By default a
                line of the log, at level INFO.
            query: The name of the query, as set by ``queryName()``; by default all queries of the session are reported. Queries
                with common metrics share the counts.
        """
        return _listener(self, report or _log, query)


def accumulator_of(metrics: DispatchMetrics | None) -> Accumulator[DispatchCounts] | None:
    """Return the accumulator to which tasks add their counts; None without metrics.

    Raises:
        ConfigurationError: ``metrics`` is not a ``DispatchMetrics``.
    """
    if metrics is None:
        return None
    if not isinstance(metrics, DispatchMetrics):
        raise ConfigurationError(f"metrics={metrics!r} must be a spark_connector.DispatchMetrics.")
    return metrics._accumulator


def _parameter() -> Any:  # noqa: ANN401 - PySpark is not imported before it is needed
    from spark_connector.dataframes.listener import COUNTS

    return COUNTS


def _listener(
    metrics: DispatchMetrics, report: Callable[[StreamingQueryProgress, DispatchCounts], object], query: str | None
) -> StreamingQueryListener:
    from spark_connector.dataframes.listener import ProgressListener

    return ProgressListener(lambda: metrics.counts, report, query)


def _log(progress: StreamingQueryProgress, counts: DispatchCounts) -> None:
    logger.info("query %s, micro-batch %d: %s", progress.name or progress.id, progress.batchId, counts)
