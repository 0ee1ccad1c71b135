"""The text of the metrics of a registry, in Prometheus' format, written with turns of the event loop in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["MetricsText"]

#: Lines of metrics written in one turn of the event loop, some 5 us each. Too small: a scrape takes long on a busy node; too
#: large: requests wait for this time.
LINES_PER_TURN: Final = 64


class MetricsText:
    """Writes the metrics of a registry.

    Args:
        registry: The registry.
        refresh: Awaited before the metrics are collected, for values that a collector could not wait for; None for nothing.
    """

    def __init__(self, registry: CollectorRegistry, refresh: Callable[[], Awaitable[None]] | None = None) -> None:
        self._registry = registry
        self._refresh = refresh
        self._scrape: asyncio.Task[bytes] | None = None

    @property
    def media_type(self) -> str:
        """The media type of the text."""
        from prometheus_client import CONTENT_TYPE_LATEST

        return CONTENT_TYPE_LATEST

    async def read(self) -> bytes:
        """Return the text; concurrent callers share one result."""
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.create_task(self._gather())
        return await asyncio.shield(self._scrape)

    def abort(self) -> None:
        """End a result that is being written. Harmless if repeated."""
        if self._scrape is not None:
            self._scrape.cancel()

    async def _gather(self) -> bytes:
        """Write the text, with a turn of the event loop after each part.

        Writing all at once would block the process for too long.
        """
        if self._refresh is not None:
            await self._refresh()
        parts = []
        for metric in self._registry.collect():
            await asyncio.sleep(0)
            for part in _write(metric):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts)


def _write(metric: Metric) -> Iterator[bytes]:
    """Write a metric, a few lines at a time."""
    from prometheus_client import generate_latest

    samples = metric.samples
    for start in range(0, max(len(samples), 1), LINES_PER_TURN):
        metric.samples = samples[start : start + LINES_PER_TURN]
        text = generate_latest(_One(metric))
        yield text if start == 0 else text.split(b"\n", 2)[2]  # type and help only once


class _One:
    """A registry with a single metric, because the client library can only write whole registries.

    Args:
        metric: The metric.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric
