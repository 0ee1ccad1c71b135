"""Watch a dispatch: counts that tasks add to an accumulator, and a listener that tells them as they grow.

A task counts for itself and adds its counts once, when it ends. Spark takes them of tasks that end well: what a task has
counted that failed or was cancelled is in no sum, as with every accumulator.
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


__all__ = ["DispatchMetrics"]

logger = logging.getLogger("spark_connector")


class DispatchMetrics:
    """Sees what dispatches do: give it to :func:`dispatch` as ``metrics=``, and read :attr:`counts` afterwards, or meanwhile.

    One for each dispatch tells them apart; one for several adds them up. Counts are those of tasks that have ended well: each
    micro-batch adds to them, each action does, and a task that Spark runs again counts again.

    Args:
        spark: The session; not one of Spark Connect, which has no accumulators.

    Raises:
        ConfigurationError: The session has no accumulators.
    """

    def __init__(self, spark: SparkSession) -> None:
        try:
            context = spark.sparkContext
        except Exception as exc:
            raise ConfigurationError(
                f"spark={spark!r}: DispatchMetrics needs the accumulators of a SparkContext, and this has none: "
                f"{type(exc).__qualname__}. "
                "Under Spark Connect, leave out metrics=."
            ) from None
        self._accumulator: Accumulator[DispatchCounts] = context.accumulator(DispatchCounts(), _parameter())

    @property
    def counts(self) -> DispatchCounts:
        """The counts so far."""
        return self._accumulator.value

    def listener(
        self, report: Callable[[StreamingQueryProgress, DispatchCounts], object] | None = None, *, query: str | None = None
    ) -> StreamingQueryListener:
        """Return what tells the counts of each micro-batch: ``spark.streams.addListener(metrics.listener())``.

        Args:
            report: Called with the progress of the query, and with what was counted since the one before; in a thread of Spark.
                By default it is one line of the log, at level INFO.
            query: The name of the query, as of ``queryName()``; by default every one of the session is told. Queries that share
                these metrics share the counts.
        """
        return _listener(self, report or _log, query)


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
