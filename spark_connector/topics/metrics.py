"""Metrics of topics, in the progress of a streaming query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["SourceMetrics", "source_metrics"]


@dataclass(frozen=True, kw_only=True)
class SourceMetrics:
    """The state of a topic in a streaming query, when the query reported its progress."""

    lag: int
    """Messages that had arrived and waited for a micro-batch."""
    lag_s: float
    """For how long the oldest of them did, in seconds."""
    dropped: int
    """Messages that were dropped as the query was behind, since it was first started."""
    lost: int
    """Messages of micro-batches that were planned and not done."""
    missed: Mapping[str, int]
    """Messages that did not arrive, by the id of their publisher."""


def source_metrics(progress: StreamingQueryProgress | Mapping[str, Any]) -> list[SourceMetrics]:
    """Return what the progress of a streaming query tells of each topic that it reads.

    Args:
        progress: ``query.lastProgress``, or ``event.progress`` of a listener.

    Returns:
        One for each source that is a topic, in the order of the query; other sources are left out.

    Raises:
        TypeError: It is no progress.
    """
    try:
        sources = progress["sources"]
    except (TypeError, KeyError):
        kind = type(progress).__qualname__
        raise TypeError(f"progress is {kind} without sources, and must be the progress of a streaming query.") from None
    metrics = []
    for source in sources:
        try:
            latest = json.loads(source["latestOffset"] or "null")
        except ValueError:
            continue  # that of another format
        if isinstance(latest, dict) and "missedByPublisher" in latest:
            metrics.append(
                SourceMetrics(
                    lag=latest["lag"],
                    lag_s=latest["lagMs"] / 1000,
                    dropped=latest["dropped"],
                    lost=latest["lost"],
                    missed=latest["missedByPublisher"],
                )
            )
    return metrics
