"""The membership of a node in a cluster, with its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.arguments import check_time
from iris_py.api.draining import wait_until_ended
from iris_py.api.loops import LoopBound
from iris_py.api.opening import Closable
from iris_py.defaults import DRAIN_TIMEOUT_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from iris_py.api.server import Server
    from iris_py.patterns.request.registration import Registration


class Membership(LoopBound, Closable):
    """The membership of a node in a cluster with one handler, as returned by :meth:`Node.join`.

    The underscored attributes are for :class:`~iris_py.api.node.Node` only.
    """

    _what = "membership"

    def __init__(
        self,
        registration: Registration,
        server: Server,
        leave: Callable[[Membership, float], Coroutine[object, object, None]],
    ) -> None:
        super().__init__()
        self._registration = registration
        self._server = server
        self._leave = leave
        self._leaving: asyncio.Future[None] | None = None
        self._occasion = ""  # the reason for leaving, for the log, unless the program left
        self._settled: asyncio.Future[None] = self._loop.create_future()  # done when only calls that wait for an end remain

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._registration.group.name

    @property
    def is_leaving(self) -> bool:
        """Whether it leaves, or has left."""
        return self._leaving is not None

    def __repr__(self) -> str:
        return f"<Membership in {self.cluster!r}>"

    async def leave(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Leave without failing a request: tell all nodes, finish running requests, then go. Harmless if repeated.

        Waiting requests go to other members, or are finished here if no other member exists. Within a handler, this returns
        when all other handlers have finished; the calling request is answered before the cluster is left.

        Args:
            timeout: Seconds after which running handlers are cancelled and waiting requests rejected.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        if self._leaving is None or not self._leaving.done():
            self._check_loop()
        await wait_until_ended(self._begin_leaving(timeout), self._settled)

    _end = leave

    def _begin_leaving(self, timeout: float) -> asyncio.Future[None]:
        """Begin to leave, unless that has begun; returns a future that is done at the end."""
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave(self, timeout))
        return self._leaving
