"""The listener of the web door: an ASGI app over HTTP/1.1, inside a running event loop (docs/design.md 17.20)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.doors.limits import ConnectionCounts
from iris_py.logs import EventLogger
from iris_py.net.acceptor import Acceptor
from iris_py.servers.accepted import descriptors_for, listen_at
from iris_py.servers.tls import Certificate, establish
from iris_py.servers.web.connection import Timeouts, WebConnection, WebConnections

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from iris_py.doors.settings import WebLimits, WebSettings
    from iris_py.net.acceptor import AcceptedSocket
    from iris_py.servers.accepted import ConnectionFigures

__all__ = ["WebListener"]

logger = EventLogger("iris_py.servers")

#: Time (seconds) for tasks of the app to end after they are cancelled. Too small: their cleanup is cut; too large: a task that
#: ignores its end delays the end of the door.
CANCEL_S: Final = 1.0


class WebListener:
    """Serves an ASGI 3 app at an address, with TLS if the settings name a certificate.

    The listener uses the running event loop, sets no signal handlers, and knows no lifespan events. Each scope has in its
    ``extensions`` the function ``iris.admitted``. The app calls the function when a request has shown a valid token: the
    connection then no longer counts for its address. The object ``iris.writer`` is a
    :class:`~iris_py.servers.web.topic_streams.ContentWriter` for chunked answers.

    Args:
        app: The app.
        settings: The settings of the door: the address, the certificate, the proxies and the limits.
        timeouts: The times of a connection.

    Raises:
        ConfigurationError: A file of the certificate is missing or wrong.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings, *, timeouts: Timeouts | None = None) -> None:
        self._settings = settings
        self._timeouts = timeouts or Timeouts()
        self._certificate: Certificate | None = None
        if settings.certificate_file:
            self._certificate = Certificate(settings.certificate_file, settings.key_file)
        limits = settings.limits
        self._descriptors = descriptors_for(limits.connections)
        counts = ConnectionCounts(
            min(limits.connections, self._descriptors), limits.connections_per_address, settings.behind_proxy
        )
        self._connections = WebConnections(app, limits.body_bytes, self._timeouts, counts)
        self._acceptor = Acceptor(self._accept)

    @property
    def address(self) -> str:
        """The listening address, ``host:port``; empty before `listen`."""
        return self._acceptor.address

    @property
    def figures(self) -> ConnectionFigures:
        """The present figures of connections, for metrics."""
        return self._connections.figures

    def reload_certificate(self) -> None:
        """Read the certificate again, for new connections. Without TLS nothing happens.

        Raises:
            ConfigurationError: A file is missing or wrong. The previous certificate stays in use.
        """
        if self._certificate is not None:
            self._certificate.reload()

    def apply(self, limits: WebLimits) -> None:
        """Use other limits for new connections and requests. Connections beyond a smaller number stay open."""
        counts = self._connections.counts
        counts.connections_max = min(limits.connections, self._descriptors)
        counts.per_address_max = limits.connections_per_address
        self._connections.body_bytes_max = limits.body_bytes

    async def listen(self) -> None:
        """Listen at the address of the settings.

        Raises:
            ConfigurationError: The address is taken, or not of this machine.
        """
        await listen_at(self._acceptor, self._settings.listen)

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop listening, and end all connections. Harmless if repeated.

        Idle connections end at once, others after their present answer. The app ends its event streams by itself. A cancelled
        call ends everything at once.

        Args:
            drain_s: The time for requests under way (seconds), after which they are aborted.
        """
        connections = self._connections
        self._acceptor.close()
        connections.begin_close()
        try:
            async with asyncio.timeout(drain_s):
                await connections.wait_until_done()
        except TimeoutError:
            logger.info("door_cut", "the door closes with %d connections open", connections.counts.total)
        finally:
            connections.abort()
        tasks = connections.tasks
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)

    def _accept(self, accepted: AcceptedSocket, address: str) -> None:
        times = self._timeouts
        self._connections.accept(
            accepted,
            address,
            lambda place: establish(
                accepted,
                lambda: WebConnection(self._connections, place),
                self._certificate,
                handshake_s=times.head_s,
                shutdown_s=times.end_s,
            ),
        )
