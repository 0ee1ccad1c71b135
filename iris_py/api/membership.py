"""One handler under one cluster name."""

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
    """One handler under one cluster name, as :meth:`Node.join` returns it.

    The underscored attributes are for :class:`~iris_py.api.node.Node` alone.
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
        self._occasion = ""  # of leaving, for the log, where it is no wish of the program
        self._settled: asyncio.Future[None] = self._loop.create_future()  # nothing runs but what waits for an end itself

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
        """Leave without failing a request: tell everybody, finish what runs, then go. Harmless if it was left before.

        Requests that wait here go to other members, or are finished too if there is none. Within a handler it returns when all
        others have finished; the request that asked is answered, and then the cluster is left.

        Args:
            timeout: Seconds after which handlers that still run are cancelled, and what waits is turned away.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        if self._leaving is None or not self._leaving.done():
            self._check_loop()
        await wait_until_ended(self._begin_leaving(timeout), self._settled)

    _end = leave

    def _begin_leaving(self, timeout: float) -> asyncio.Future[None]:
        """Begin to leave, unless that has begun; returns what is done at the end."""
        if self._leaving is None:
            self._leaving = self._loop.create_task(self._leave(self, timeout))
        return self._leaving
