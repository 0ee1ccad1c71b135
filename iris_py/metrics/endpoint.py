"""The paths of the status of a process over HTTP, whoever knows it: a node, or the supervisor of several."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.net.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from iris_py.api.health import Health
    from iris_py.net.http import Answer, Question

__all__ = ["StatusEndpoint", "parse_listen"]

#: Lines of metrics that are written in one turn of the event loop, for some 5 us each. Too small: a scrape takes long on a busy
#: node; too large: requests wait meanwhile.
LINES_PER_TURN: Final = 64

_JSON: Final = "application/json"
_PATHS: Final = "/metrics, /healthz and /readyz are here\n"


async def _nothing() -> None:
    """Do nothing."""


class StatusEndpoint:
    """Answers ``/metrics``, ``/healthz`` and ``/readyz``.

    Args:
        registry: Whose metrics ``/metrics`` shows; None for a new one.
        alive: Returns what ``/healthz`` says.
        ready: Returns what ``/readyz`` says, of a cluster or, with None, of the whole process.
        refresh: Is awaited before metrics are gathered: collectors cannot wait for anything themselves.

    Attributes:
        registry: The registry.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        *,
        alive: Callable[[], Awaitable[Health]],
        ready: Callable[[str | None], Awaitable[Health]],
        refresh: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry

            from iris_py.net.http import HttpServer
        except ImportError as exc:
            raise ConfigurationError(f"serving metrics and health needs {exc.name}. Run: {install_command('metrics')}") from exc
        self.registry: CollectorRegistry = CollectorRegistry() if registry is None else registry
        self._server = HttpServer(self._answer)
        self._alive, self._ready, self._refresh = alive, ready, refresh
        self._scrape: asyncio.Task[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        return self._server.address

    async def listen(self, listen: str) -> None:
        """Listen at an address.

        Args:
            listen: ``host:port``, or a port of loopback.

        Raises:
            ConfigurationError: It cannot be listened there.
        """
        host, port = parse_listen(listen)
        try:
            await self._server.listen(host, port)
        except OSError as exc:
            raise ConfigurationError(
                f"cannot serve metrics and health at {listen}: {exc.strerror or exc}. Choose another address."
            ) from exc

    async def close(self) -> None:
        """Listen no more; an answer that is under way has a second. Harmless if repeated."""
        await self._server.close()
        self.abort()

    def abort(self) -> None:
        """End at once."""
        self._server.abort()
        if self._scrape is not None:
            self._scrape.cancel()

    async def metrics(self) -> bytes:
        """Return the metrics as text; whoever asks while they are gathered gets the same."""
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.create_task(self._gather())
        return await asyncio.shield(self._scrape)

    # --

    async def _answer(self, question: Question) -> Answer:
        from iris_py.net.http import Answer

        if question.path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST

            return Answer(HTTPStatus.OK, await self.metrics(), CONTENT_TYPE_LATEST)
        if question.path == "/healthz":
            health = await self._alive()
        elif question.path == "/readyz":
            health = await self._ready(question.query.get("cluster"))
        else:
            return Answer(HTTPStatus.NOT_FOUND, _PATHS.encode())
        status = HTTPStatus.OK if health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(status, msgspec.json.encode(health) + b"\n", _JSON)

    async def _gather(self) -> bytes:
        """Write the metrics, with a turn of the event loop after each: all of them would hold up the process for too long."""
        await self._refresh()
        parts = []
        for metric in self.registry.collect():
            await asyncio.sleep(0)
            for part in _write(metric):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts)


def _write(metric: Metric) -> Iterator[bytes]:
    """Write a metric, so many lines at a time that it holds up nobody."""
    from prometheus_client import generate_latest

    samples = metric.samples
    for start in range(0, max(len(samples), 1), LINES_PER_TURN):
        metric.samples = samples[start : start + LINES_PER_TURN]
        text = generate_latest(_One(metric))
        yield text if start == 0 else text.split(b"\n", 2)[2]  # its type and its meaning are said once


class _One:
    """A collector of one metric: the client library writes whole registries.

    Args:
        metric: The metric.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def parse_listen(text: str) -> tuple[str, int]:
    """Split an address to listen at; a port alone is one of loopback.

    Raises:
        ConfigurationError: It is none.
    """
    return parse_address(f"127.0.0.1:{text}" if text.isdecimal() else text, "the address for metrics and health")
