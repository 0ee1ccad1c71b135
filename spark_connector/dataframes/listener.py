"""Subclasses of PySpark's classes for :mod:`spark_connector.dataframes.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.accumulators import AccumulatorParam
from pyspark.sql.streaming.listener import StreamingQueryListener

from iris_py.connector import EventLogger
from spark_connector.dataframes.counts import DispatchCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

__all__ = ["COUNTS", "ProgressListener"]

logger = EventLogger("spark_connector")


class CountsParam(AccumulatorParam[DispatchCounts]):
    """Tells Spark how to add the counts of tasks, for the accumulator of :class:`DispatchMetrics`."""

    def zero(self, value: DispatchCounts) -> DispatchCounts:
        """Return the counts with which a task starts: all zero."""
        return DispatchCounts()

    def addInPlace(self, value1: DispatchCounts, value2: DispatchCounts) -> DispatchCounts:
        """Return the sum of both counts."""
        return value1 + value2


COUNTS: Final = CountsParam()


class ProgressListener(StreamingQueryListener):
    """Reports the counts of a dispatch after each micro-batch of a streaming query.

    Args:
        count: Returns the counts so far.
        report: Called with the progress and the counts.
        query: The name of the query; None for all.
    """

    def __init__(
        self,
        count: Callable[[], DispatchCounts],
        report: Callable[[StreamingQueryProgress, DispatchCounts], object],
        query: str | None,
    ) -> None:
        self._count = count
        self._report = report
        self._query = query
        self._before = count()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the counts since the previous micro-batch. Log an exception of ``report``, because Spark would hide it."""
        if self._query is not None and event.progress.name != self._query:
            return
        counts = self._count()
        since, self._before = counts - self._before, counts
        try:
            self._report(event.progress, since)
        except Exception as exc:
            logger.error("report_failed", "the report of a listener of dispatches failed", error=exc)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""
