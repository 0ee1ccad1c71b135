"""The status of a process over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for who gives it work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.api.health import Health
from iris_py.api.opening import Closable, Opening
from iris_py.metrics.collector import NodeCollector
from iris_py.metrics.endpoint import StatusEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from iris_py.api.node import Node

__all__ = ["DEFAULT_LISTEN", "StatusServer", "serve_status"]

#: Where the status is served unless something else is said: the port that OpenTelemetry has for Prometheus, on loopback, for
#: nobody is asked for a name or a password.
DEFAULT_LISTEN: Final = "127.0.0.1:9464"


class StatusServer(Closable):
    """Serves the status of a process; :func:`serve_status` makes one.

    It may listen before there is a node, and while one leaves: it says so.

    Args:
        registry: Whose metrics ``/metrics`` shows; by default those of the node alone.

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
        """Where it listens, ``host:port``."""
        return self._endpoint.address

    async def listen(self, listen: str) -> None:
        """Listen at an address.

        Args:
            listen: As of :func:`serve_status`.

        Raises:
            ConfigurationError: It cannot be listened there.
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
        """Serve the status of a node from now on.

        Args:
            node: The node.
            collectors: Further metrics.
            reasons: Returns why the process is to be given no work, besides what the node says itself.
            notes: Returns what does not work and is no such reason.
        """
        node._check_loop()
        self._node, self._reasons, self._notes = node, reasons, notes
        for collector in (NodeCollector(node), *collectors):
            self.registry.register(collector)
            self._collectors.append(collector)

    async def close(self) -> None:
        """Serve it no more; an answer that is under way has a second. Harmless if repeated."""
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
        """Return what ``/readyz`` says.

        Args:
            cluster: The name of a cluster that is asked about; None for the whole process.
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
        """Refuse to be used outside of the event loop of the node that it shows."""
        if self._node is not None:
            self._node._check_loop()

    async def _metrics(self) -> bytes:
        return await self._endpoint.metrics()

    async def _alive(self) -> Health:
        # The loop has turned, or nobody would be here.
        is_over = self._node is not None and self._node._driver.is_closed
        return Health(status="NOT_SERVING", reasons=("the node has ended",)) if is_over else Health(status="SERVING")

    async def _ready(self, cluster: str | None) -> Health:
        return self.health(cluster)


def serve_status(
    node: Node, listen: str = DEFAULT_LISTEN, *, registry: CollectorRegistry | None = None
) -> Opening[StatusServer]:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` of a node over HTTP.

    With ``await`` it goes on until the node has been closed, so that it says meanwhile that the node is leaving; with
    ``async with`` until the end of the block. There is no encryption and no password: whoever reaches the address reads how
    much passes, and the names of clusters.

    Args:
        node: The node.
        listen: ``host:port``, or a port of loopback; 0 takes a free one: see :attr:`StatusServer.address`.
        registry: What ``/metrics`` shows besides; by default the metrics of the node alone.

    Raises:
        ConfigurationError: It cannot be listened there, or a package is missing, and the error names it.
        NodeClosed: The node was closed.
    """
    node._check_open()
    return Opening(_serve(node, listen, registry))


async def _serve(node: Node, listen: str, registry: CollectorRegistry | None) -> StatusServer:
    node._check_open()  # again: an Opening may be awaited much later than it was made
    server = StatusServer(registry)
    await server.listen(listen)
    server.show(node)
    node._companions.append(server.close)
    return server
