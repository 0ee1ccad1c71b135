"""The memberships of a node in clusters, with their handlers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.api.arguments import check_flag, check_join_options, check_time
from iris_py.api.awaitable_context import AsyncClosable, Opening
from iris_py.api.codec import as_codec
from iris_py.api.handler_calls import LAST_WORDS_S, wait_until_ended
from iris_py.api.hooks import hooks_of
from iris_py.api.info import Members, describe
from iris_py.api.loops import LoopBound
from iris_py.api.runtime import resolve
from iris_py.api.seal import sealed_hooks, unsealed
from iris_py.api.server import Server, ServerType
from iris_py.defaults import (
    DRAIN_TIMEOUT_S,
    HANDLER_QUEUE_BYTES,
    HANDLER_QUEUE_MESSAGES,
    TUNNEL_WINDOW_BYTES,
    TUNNELS,
)
from iris_py.errors import ConfigurationError
from iris_py.federation.names import CLOUD_MARK
from iris_py.logs import EventLogger
from iris_py.patterns.request.registration import Registration

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.codec import AnyCodec
    from iris_py.api.handler import Handler, RequestFunction
    from iris_py.api.hooks import HandlerHooks
    from iris_py.api.info import Member
    from iris_py.api.runtime import Runtime
    from iris_py.api.seal import Sealed
    from iris_py.peers.group import Group

logger = EventLogger("iris_py")

#: If leaving a cluster takes longer (seconds), the reason is logged. Too small: each running request is logged; too large: a
#: user who stops a program cannot tell whether it hangs.
LEAVING_TOLD_S = 1.0


class Membership(LoopBound, AsyncClosable):
    """The membership of a node in a cluster with one handler, as returned by :meth:`Node.join`."""

    _what = "membership"

    def __init__(
        self, registration: Registration, server: Server, leave: Callable[[Registration, float], asyncio.Future[None]]
    ) -> None:
        super().__init__()
        self._registration = registration
        self._server = server
        self._leave = leave

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._registration.group.name

    @property
    def is_leaving(self) -> bool:
        """Whether the node is leaving the cluster, or has left."""
        return self._server.leaving is not None

    def __repr__(self) -> str:
        return f"<Membership in {self.cluster!r}>"

    async def leave(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Leave the cluster without failing a request: tell all nodes, finish running requests, then end. Harmless if repeated.

        Waiting requests go to other members, or are finished here if no other member exists. Within a handler, this returns
        when all other handlers have finished; the calling request is answered before the cluster is left.

        Args:
            timeout: Seconds after which running handlers are cancelled and waiting requests rejected.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        check_time("timeout", timeout)
        if self._server.leaving is None or not self._server.leaving.done():
            self._check_loop()
        await wait_until_ended(self._leave(self._registration, timeout), self._server.settled)

    _end = leave


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The work that a member accepts, and its share of the load: arguments of :meth:`iris_py.Node.join`."""

    concurrency: int | None = None
    queue_messages: int = HANDLER_QUEUE_MESSAGES
    queue_bytes: int = HANDLER_QUEUE_BYTES
    weight: float = 1.0
    tunnels: int = TUNNELS
    tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES


class Memberships:
    """Joins and leaves clusters for one node, and gives views of clusters.

    Args:
        runtime: The node.

    Attributes:
        servers: The runners of the handlers, by registration.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.servers: dict[Registration, Server] = {}
        self._runtime = runtime
        self._core, self._driver, self._loop = runtime.core, runtime.driver, runtime.loop

    # -- joining

    def join(
        self,
        cluster: str,
        handler: Handler[Any, Any] | RequestFunction[Any, Any] | Sealed,
        capacity: Capacity,
        *,
        inline: bool,
        codec: AnyCodec | None,
    ) -> Opening[Membership]:
        """Join a cluster, as :meth:`iris_py.Node.join` describes.

        Args:
            cluster: The name.
            handler: The handler.
            capacity: The work that the member accepts.
            inline: Whether plain functions run in the event loop itself.
            codec: The types of messages.
        """
        runtime = self._runtime
        runtime.check_open()
        runtime.check_own_name(cluster)
        check_flag("inline", inline)
        hooks = hooks_of(unsealed(handler), None if inline else runtime.threads)
        if codec is not None:
            from iris_py.api.coded import coded_hooks  # few handlers have a codec

            hooks = coded_hooks(hooks, as_codec(codec), cluster, self._core.count_drop)
        return self.enlist(cluster, sealed_hooks(handler, hooks, cluster, runtime.entropy), capacity)

    def enlist(
        self,
        cluster: str,
        handler: Handler | RequestFunction | HandlerHooks,
        capacity: Capacity,
        *,
        remembers: bool = True,
        server_type: ServerType = Server,
    ) -> Opening[Membership]:
        """Join any cluster, as :meth:`iris_py.Node.join` does, including those of gateways.

        Args:
            cluster: The name.
            handler: As for :meth:`iris_py.Node.join`, or its hooks.
            capacity: The work that the member accepts.
            remembers: Whether to keep replies for repeated idempotent requests.
            server_type: The class that runs the handler.

        Raises:
            ConfigurationError: The capacity is invalid.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        hooks = hooks_of(handler, self._runtime.threads)
        concurrency = hooks.default_concurrency if capacity.concurrency is None else capacity.concurrency
        check_join_options(
            concurrency=concurrency,
            queue_messages=capacity.queue_messages,
            queue_bytes=capacity.queue_bytes,
            weight=capacity.weight,
            tunnels=capacity.tunnels,
            tunnel_window_bytes=capacity.tunnel_window_bytes,
        )
        registration = Registration(
            self.group(cluster),
            concurrency,
            capacity.queue_messages,
            capacity.queue_bytes,
            capacity.weight,
            remembers=remembers,
        )
        registration.tunnels = capacity.tunnels if hooks.on_tunnel is not None else 0
        registration.window_bytes = capacity.tunnel_window_bytes
        return Opening(self.register(registration, hooks, server_type))

    async def register(self, registration: Registration, hooks: HandlerHooks, server_type: ServerType) -> Membership:
        """Begin to serve a cluster; return when callers and other members know.

        Args:
            registration: The registration, not in use yet.
            hooks: The functions of the handler.
            server_type: The class that runs the handler.

        Raises:
            ConfigurationError: The node cannot join the cluster.
            NodeClosed: The node was closed.
        """
        runtime = self._runtime
        runtime.check_open()  # again: an Opening may be awaited long after it was made
        server = server_type(
            self._core,
            self._driver,
            registration,
            hooks,
            wait_for_room=runtime.wait_for_room,
            tracing=runtime.tracing,
            next_poll=runtime.next_poll,
        )
        membership = Membership(registration, server, self.begin_leaving)
        self.servers[registration] = registration.server = server
        try:
            is_told_later = self._core.join(registration, self._loop.time())
            group_id = registration.group.id
            if is_told_later:
                runtime.joins.expect(group_id)
                self._driver.wake()
            told = runtime.joins.last(group_id)
            if told is not None:  # shielded: a second registration may wait for the same
                await asyncio.shield(told)
        except ConfigurationError:
            del self.servers[registration]
            raise
        except asyncio.CancelledError:
            await membership.leave()
            raise
        return membership

    # -- leaving

    def begin_leaving(self, registration: Registration, timeout: float) -> asyncio.Future[None]:
        """Begin to end a registration, unless already begun; return a future that is done at its end."""
        server = registration.server
        if server.leaving is None:
            server.leaving = self._loop.create_task(self._leave(registration, server, timeout))
        leaving: asyncio.Future[None] = server.leaving
        return leaving

    async def _leave(self, registration: Registration, server: Server, timeout: float) -> None:
        name = registration.group.name
        await self._left(registration)
        self._core.close_registration(registration, self._loop.time())
        self._driver.wake()
        ends_at = self._loop.time() + timeout
        settling = asyncio.ensure_future(server.settle())
        _done, waiting = await asyncio.wait([settling], timeout=min(timeout, LEAVING_TOLD_S))
        if waiting and timeout > LEAVING_TOLD_S:
            logger.warning(
                "leaving_waits",
                "%s waits for %s; all that still run in %.3g s are cancelled",
                f"{server.occasion}: this node" if server.occasion else f"leaving {name!r}",
                registration.describe_work() or "running handlers of broadcasts",
                timeout - LEAVING_TOLD_S,
                about=name,
                cluster=name,
            )
            _done, waiting = await asyncio.wait(waiting, timeout=timeout - LEAVING_TOLD_S)
        if waiting:
            logger.warning(
                "handlers_cancelled",
                "%s still run after %g s and are cancelled",
                f"{server.occasion}: its requests" if server.occasion else f"handlers of {name!r}",
                timeout,
                about=name,
                cluster=name,
            )
            settling.cancel()
            self._core.service.abandon(registration, self._loop.time())
            server.abort_others()
        resolve([server.settled])
        if server.is_waiting:
            await server.finish(max(LAST_WORDS_S, ends_at - self._loop.time()))
        await server.close()
        self.servers.pop(registration, None)

    async def _left(self, registration: Registration) -> None:
        """If a registration is the last of its cluster on this node, tell all nodes that this node leaves the cluster."""
        if self._core.leave(registration, self._loop.time()):
            left = self._runtime.leaves.expect(registration.group.id)
            self._driver.wake()
            await left

    def begin_leaving_all(self, timeout: float) -> list[tuple[asyncio.Future[None], asyncio.Future[None]]]:
        """Begin to leave all clusters; return two futures for each membership: of its end, and of its settled end."""
        return [(self.begin_leaving(each, timeout), server.settled) for each, server in list(self.servers.items())]

    def abort(self, closing: asyncio.Future[None]) -> None:
        """End all handlers at once; ``closing`` is done at the end of the node."""
        for server in self.servers.values():
            server.abort()
            server.leaving = closing

    # -- views

    def members(self, cluster: str) -> Members:
        """Return the live view of a cluster's members, as :meth:`iris_py.Node.members` describes."""
        self._runtime.check_open()
        if isinstance(cluster, str) and CLOUD_MARK in cluster:
            raise ConfigurationError(
                f"another cloud does not tell which nodes are the members of {cluster!r}. Query them with "
                f"node.survey({cluster!r}, ...)."
            )
        self._runtime.check_own_name(cluster)
        return self.view(cluster)

    def view(self, cluster: str) -> Members:
        """Return the live view of any cluster's members, including clusters of gateways."""
        self.group(cluster)
        return Members(
            cluster, lambda: self._look(cluster), lambda: self._view_known(cluster), lambda: self._count_members(cluster)
        )

    def group(self, cluster: str) -> Group:
        """Return the group (the nodes of a cluster in the overlay), which this node watches from now on."""
        return self._core.group(cluster, self._loop.time())

    def _look(self, cluster: str) -> tuple[Member, ...]:
        self._runtime.check_loop()
        if self._runtime.closing is not None:
            return ()
        members = self.group(cluster).members or ()
        return tuple(
            describe(member.peer.info, member.failed, is_stand_in=member.rank > 0, name=member.peer.label) for member in members
        )

    def _count_members(self, cluster: str) -> int:
        self._runtime.check_loop()
        return 0 if self._runtime.closing is not None else self.group(cluster).size

    async def _view_known(self, cluster: str) -> None:
        self._runtime.check_open()
        while self.group(cluster).members is None:
            await self._runtime.wait_for_room()
            self._runtime.check_open()
