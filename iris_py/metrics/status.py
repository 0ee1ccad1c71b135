"""The status of a process over HTTP, for Prometheus, load balancers and supervisors.

The paths are ``/metrics`` for Prometheus, and ``/healthz`` and ``/readyz`` for load balancers and supervisors. A node serves
them, or the supervisor of several workers.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.api.awaitable_context import AsyncClosable, Opening
from iris_py.api.runtime import runtime_of
from iris_py.api.status import Health
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.metrics.metrics_text import MetricsText
from iris_py.metrics.prometheus import NodeCollector
from iris_py.net.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from iris_py.api.node import Node
    from iris_py.net.http import HttpResponse, RequestTarget

__all__ = ["DEFAULT_LISTEN", "StatusEndpoint", "StatusServer", "parse_listen", "serve_status"]

_JSON: Final = "application/json"
_PATHS: Final = "the paths are /metrics, /healthz and /readyz\n"


class StatusEndpoint:
    """The HTTP endpoint with ``/metrics``, ``/healthz`` and ``/readyz``, for the status of a node or of several workers.

    Args:
        registry: The registry for ``/metrics``; None for a new one.
        alive: Returns the health for ``/healthz``.
        ready: Returns the health for ``/readyz``, of a cluster or, with None, of the whole process.
        refresh: Awaited before the metrics are collected, for values that a collector could not wait for; None for nothing.

    Attributes:
        registry: The registry.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        *,
        alive: Callable[[], Awaitable[Health]],
        ready: Callable[[str | None], Awaitable[Health]],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry

            from iris_py.net.http import HttpServer
        except ImportError as exc:
            raise ConfigurationError(f"serving metrics and health needs {exc.name}. Run: {install_command('metrics')}") from exc
        self.registry: CollectorRegistry = CollectorRegistry() if registry is None else registry
        self._server = HttpServer(self._answer)
        self._alive, self._ready = alive, ready
        self._text = MetricsText(self.registry, refresh)

    @property
    def address(self) -> str:
        """The listening address, ``host:port``."""
        return self._server.address

    async def listen(self, listen: str) -> None:
        """Listen at an address.

        Args:
            listen: ``host:port``, or a port of loopback.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        host, port = parse_listen(listen)
        try:
            await self._server.listen(host, port)
        except OSError as exc:
            raise ConfigurationError(
                f"cannot serve metrics and health at {listen}: {exc.strerror or exc}. Choose another address."
            ) from exc

    async def close(self) -> None:
        """Stop listening. Answers in progress get one second to end. Harmless if repeated."""
        await self._server.close()
        self.abort()

    def abort(self) -> None:
        """Stop listening, and end all connections at once."""
        self._server.abort()
        self._text.abort()

    async def metrics(self) -> bytes:
        """Return the metrics as text; concurrent callers share one result."""
        return await self._text.read()

    # --

    async def _answer(self, question: RequestTarget) -> HttpResponse:
        from iris_py.net.http import HttpResponse

        if question.path == "/metrics":
            return HttpResponse(HTTPStatus.OK, await self.metrics(), self._text.media_type)
        if question.path == "/healthz":
            health = await self._alive()
        elif question.path == "/readyz":
            health = await self._ready(question.query.get("cluster"))
        else:
            return HttpResponse(HTTPStatus.NOT_FOUND, _PATHS.encode())
        status = HTTPStatus.OK if health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpResponse(status, msgspec.json.encode(health) + b"\n", _JSON)


def parse_listen(text: str) -> tuple[str, int]:
    """Split a listening address; a port alone belongs to loopback.

    Raises:
        ConfigurationError: The address is not valid.
    """
    return parse_address(f"127.0.0.1:{text}" if text.isdecimal() else text, "the address for metrics and health")


#: The default address: OpenTelemetry's port for Prometheus, on loopback only, because the status has no access control.
DEFAULT_LISTEN: Final = "127.0.0.1:9464"


class StatusServer(AsyncClosable):
    """Serves the status of a process; made by :func:`serve_status`.

    The server may listen before the node starts, and while the node leaves: the health then says so.

    Args:
        registry: The registry for ``/metrics``; by default with the metrics of the node only.

    Attributes:
        registry: The registry, for further collectors.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._endpoint = StatusEndpoint(registry, alive=self._alive, ready=self._ready)
        self.registry: CollectorRegistry = self._endpoint.registry
        self._node: Node | None = None
        self._reasons: Callable[[], Iterable[str]] = tuple
        self._notes: Callable[[], Iterable[str]] = tuple
        self._collectors: list[Collector] = []

    @property
    def address(self) -> str:
        """The listening address, ``host:port``."""
        return self._endpoint.address

    async def listen(self, listen: str) -> None:
        """Listen at an address.

        Args:
            listen: As for :func:`serve_status`.

        Raises:
            ConfigurationError: The address cannot be used.
        """
        self._check_loop()
        await self._endpoint.listen(listen)

    def show(
        self,
        node: Node,
        *collectors: Collector,
        reasons: Callable[[], Iterable[str]] = tuple,
        notes: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Serve the status and the metrics of a node from now on.

        Args:
            node: The node.
            collectors: Further metrics.
            reasons: Returns further reasons for not being ready, besides those of the node.
            notes: Returns faults that do not make the process unready.
        """
        runtime_of(node).check_loop()
        self._node, self._reasons, self._notes = node, reasons, notes
        for collector in (NodeCollector(node), *collectors):
            self.registry.register(collector)
            self._collectors.append(collector)

    async def close(self) -> None:
        """Stop serving; a running answer has a second. Harmless if repeated."""
        self._check_loop()
        await self._endpoint.close()
        self.abort()

    _end = close

    def abort(self) -> None:
        """End at once."""
        self._check_loop()
        self._endpoint.abort()
        collectors, self._collectors = self._collectors, []
        for collector in collectors:
            self.registry.unregister(collector)

    def health(self, cluster: str | None = None) -> Health:
        """Return the health for ``/readyz``.

        Args:
            cluster: The name of a cluster; None for the whole process.
        """
        if self._node is None:
            return Health(status="NOT_SERVING", reasons=("the node is starting",))
        health = self._node.health(cluster)
        if not health.is_ready:
            return health
        reasons = tuple(self._reasons())
        notes = tuple(note for note in self._notes() if note not in reasons)
        return Health(status="NOT_SERVING" if reasons else "SERVING", reasons=reasons, notes=notes)

    # --

    def _check_loop(self) -> None:
        """Raise an error for a call from outside of the node's event loop."""
        if self._node is not None:
            runtime_of(self._node).check_loop()

    async def _metrics(self) -> bytes:
        return await self._endpoint.metrics()

    async def _alive(self) -> Health:
        # The loop runs, since it runs this code.
        is_over = self._node is not None and runtime_of(self._node).driver.is_closed
        return Health(status="NOT_SERVING", reasons=("the node has ended",)) if is_over else Health(status="SERVING")

    async def _ready(self, cluster: str | None) -> Health:
        return self.health(cluster)


def serve_status(
    node: Node, listen: str = DEFAULT_LISTEN, *, registry: CollectorRegistry | None = None
) -> Opening[StatusServer]:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` of a node over HTTP.

    With ``await`` the server runs until the node is closed, and reports meanwhile that the node is leaving; with ``async with``
    it runs until the end of the block. There is no encryption and no password: anybody with access to the address can read
    traffic figures and the names of clusters.

    Args:
        node: The node.
        listen: ``host:port``, or a port of loopback; 0 takes a free one: see :attr:`StatusServer.address`.
        registry: A registry with further metrics for ``/metrics``; by default the metrics of the node only.

    Raises:
        ConfigurationError: The address cannot be used, or a package is missing, which the error names.
        NodeClosed: The node was closed.
    """
    runtime_of(node).check_open()
    return Opening(_serve(node, listen, registry))


async def _serve(node: Node, listen: str, registry: CollectorRegistry | None) -> StatusServer:
    runtime_of(node).check_open()  # again: an Opening may be awaited long after it was made
    server = StatusServer(registry)
    await server.listen(listen)
    server.show(node)
    runtime_of(node).companions.append(server.close)
    return server
