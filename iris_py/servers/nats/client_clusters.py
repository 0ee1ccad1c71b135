"""Clusters that NATS clients serve, by queue subscriptions to the name of the cluster (docs/design.md 18.10)."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from iris_py.api.handler import Handler
from iris_py.api.lifecycle import parts_of
from iris_py.api.membership import Capacity
from iris_py.api.runtime import runtime_of
from iris_py.api.server import Server
from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.headers import read_carried
from iris_py.errors import IrisError, NodeClosed
from iris_py.logs import EventLogger
from iris_py.peers.member import WEIGHT_MAX
from iris_py.wire.packets import Rejection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.api.runtime import Runtime
    from iris_py.doors.nats.routes import Routes
    from iris_py.doors.nats.subscription import ClientSubscription, PatternKey
    from iris_py.patterns.request.registration import Execution

__all__ = ["ERROR_CODE", "ERROR_TEXT", "SERVICE_ERROR", "ClientClusters"]

logger = EventLogger("iris_py.servers")

#: Clusters that the clients of a door serve; native callers do not reach further services. Too small: a door has fewer services
#: than programs; too large: a client with very many subscriptions changes the directory of the whole network.
CLUSTERS_MAX: Final = 1024
#: Requests of one cluster that clients of the door have at a time. Too small: many services wait for each other; too large: a
#: slow service gets more than it can answer in time.
CONCURRENCY: Final = 256
#: Time for which the door stays a member without a service (seconds). Too small: services that reconnect change the directory
#: each time; too large: requests come that no client takes.
LINGER_S: Final = 1.0
#: Time for leaving a cluster, and for telling callers another weight (seconds).
LEAVE_S: Final = 2.0
#: Time between two looks at the numbers of services (seconds). Too small: services that come one by one change the directory
#: each time; too large: a new service waits for its share.
WEIGH_S: Final = 1.0
#: The header with the code of an error, as services of NATS tell it, and the header with the text.
ERROR_CODE: Final = "Nats-Service-Error-Code"
ERROR_TEXT: Final = "Nats-Service-Error"
#: The type of the error at native callers. Its text is the code and the text.
SERVICE_ERROR: Final = "NatsServiceError"
_INBOX: Final = "_INBOX"
_INBOX_BYTES: Final = 12


class ClientClusters:
    """The clusters that the clients of a door serve.

    Args:
        node: The node of the door.
        routes: The subscriptions of the clients.
    """

    def __init__(self, node: Node, routes: Routes) -> None:
        self._node = node
        self._routes = routes
        self._served: dict[str, _ServedCluster] = {}
        self._waiting: dict[PatternKey, None] = {}  # for the end of another cluster
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._is_full_told = False
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, key: PatternKey, *, is_wanted: bool) -> None:
        """Serve a cluster from the first queue subscription of its name on, until after the last one.

        Args:
            key: A pattern and a queue group.
            is_wanted: Whether clients have such a subscription.
        """
        if not key.is_service:
            return
        if not is_wanted:
            self._release(key)
            return
        served = self._served.get(key.pattern)
        if served is None and not self._is_leaving:
            if not self._has_room():
                self._waiting[key] = None
                return
            served = self._served[key.pattern] = _ServedCluster(self._node, self._routes, key.pattern)
            self._start(self._join(served))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(WEIGH_S, self._weigh)
        if served is not None:
            served.keys[key] = None

    def leave_alone(self, keys: Sequence[PatternKey]) -> list[asyncio.Task[None]]:
        """Leave the clusters that no other queue group serves; returns the tasks."""
        tasks = []
        for key in keys:
            served = self._served.get(key.pattern)
            if served is None or key not in served.keys:
                continue
            if len(served.keys) == 1:
                tasks.append(self._end(served))
            else:
                del served.keys[key]
        return tasks

    async def leave(self) -> None:
        """Leave all clusters, also those that the door is just joining. Harmless if repeated."""
        self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        for served in list(self._served.values()):
            self._end(served)
        if self._tasks:
            _done, late = await asyncio.wait(self._tasks, timeout=2 * LEAVE_S)
            for task in late:
                task.cancel()

    # --

    def _release(self, key: PatternKey) -> None:
        self._waiting.pop(key, None)
        served = self._served.get(key.pattern)
        if served is not None and key in served.keys:
            del served.keys[key]
            if not served.keys:
                asyncio.get_running_loop().call_later(LINGER_S, self._end_unused, served)

    def _has_room(self) -> bool:
        if len(self._served) < CLUSTERS_MAX:
            return True
        if not self._is_full_told:
            self._is_full_told = True
            logger.warning(
                "door_clusters_full",
                "clients of the door serve %d clusters, and no door serves more: native callers do not reach further services. "
                "Start another door.",
                CLUSTERS_MAX,
            )
        return False

    async def _join(self, served: _ServedCluster) -> None:
        try:
            await served.join()
        except IrisError as exc:
            logger.debug("door_cluster_failed", "the clients cannot serve %r: %s", served.name, exc)
            if self._served.get(served.name) is served:  # not a later one of the name
                del self._served[served.name]

    def _weigh(self) -> None:
        """Give the door the weight of its services in each cluster, now and then."""
        self._timer = asyncio.get_running_loop().call_later(WEIGH_S, self._weigh) if self._served else None
        for served in self._served.values():
            if served.is_weight_wrong:
                self._start(served.weigh())

    def _end_unused(self, served: _ServedCluster) -> None:
        if not served.keys and self._served.get(served.name) is served:
            self._end(served)
            if self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                self.follow(key, is_wanted=True)

    def _end(self, served: _ServedCluster) -> asyncio.Task[None]:
        del self._served[served.name]
        return self._start(served.leave())

    def _start(self, coroutine: Any) -> asyncio.Task[None]:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _ClientHandler(Handler):
    """Stands for the clients, which answer requests alone."""

    async def on_request(self, request: object) -> bytes:
        """Never called: :class:`_ClientServer` gives requests to clients."""
        raise NotImplementedError


class _ServedCluster:
    """A cluster that clients of the door serve.

    Attributes:
        keys: The queue groups of the clients.
        name: The name of the cluster.
    """

    def __init__(self, node: Node, routes: Routes, name: str) -> None:
        self.name = name
        self.keys: dict[PatternKey, None] = {}
        self._node = node
        self._routes = routes
        self._membership: Membership | None = None
        self._is_over = False
        self._server: _ClientServer | None = None
        self._changing = asyncio.Lock()

    async def join(self) -> None:
        """Join the cluster.

        Raises:
            ConfigurationError: The node cannot join.
            NodeClosed: The node was closed.
        """
        memberships = parts_of(self._node).memberships
        server_type = partial(_ClientServer, self)
        capacity = Capacity(concurrency=CONCURRENCY, weight=self._find_weight() or 1.0)
        self._membership = await memberships.enlist(self.name, _ClientHandler(), capacity, server_type=server_type)
        if self._is_over:
            await self.leave()

    async def leave(self) -> None:
        """Leave the cluster, after the requests under way or `LEAVE_S`. Harmless if repeated."""
        self._is_over = True
        async with self._changing:
            membership, self._membership = self._membership, None
            if membership is not None:
                with suppress(NodeClosed):
                    await membership.leave(timeout=LEAVE_S)

    @property
    def is_weight_wrong(self) -> bool:
        """Whether the door has another weight in the cluster than its services."""
        if self._server is None or self._membership is None or self._changing.locked():
            return False
        return self._find_weight() not in (0.0, self._server.weight)

    async def weigh(self) -> None:
        """Tell callers the weight of the services."""
        async with self._changing:
            weight = self._find_weight()
            if self._server is not None and self._membership is not None and weight:
                with suppress(IrisError, TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await self._server.change_weight(weight, runtime_of(self._node))

    def _find_weight(self) -> float:
        """Return the weight of the services: 1 for each."""
        services = sum(self._routes.count_members(key, int(WEIGHT_MAX)) for key in self.keys)
        return min(float(services), WEIGHT_MAX)

    def choose(self) -> ClientSubscription | None:
        """Choose a client, of all queue groups in turn; None without any."""
        for key in list(self.keys):
            subscription = self._routes.choose(key)
            if subscription is not None:
                del self.keys[key]
                self.keys[key] = None
                return subscription
        return None

    def take_server(self, server: _ClientServer) -> None:
        """Take the part that gives requests to clients."""
        self._server = server

    @property
    def routes(self) -> Routes:
        """The subscriptions of the clients."""
        return self._routes


class _ClientServer(Server):
    """Gives the requests of native programs to clients.

    Args:
        served: The cluster.
        args: The arguments of a :class:`Server`; ``options`` are its keyword arguments.
    """

    def __init__(self, served: _ServedCluster, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of a Server
        super().__init__(*args, **options)
        self._served = served
        served.take_server(self)
        self._asked: dict[Execution, _AskedService] = {}

    @property
    def weight(self) -> float:
        """The weight of the door in the cluster."""
        return self._registration.weight

    async def change_weight(self, weight: float, runtime: Runtime) -> None:
        """Change the weight of the door in the cluster; return when callers know.

        Args:
            weight: The weight.
            runtime: The node of the door.

        Raises:
            ConfigurationError: The node is leaving the network.
        """
        registration = self._registration
        if registration.leaving or runtime.closing is not None:
            return
        registration.weight = weight
        self._core.join(registration, self._loop.time())
        told = runtime.joins.expect(registration.group.id)
        runtime.wake()
        await asyncio.shield(told)

    def start(self, executions: Sequence[Execution]) -> None:
        """Give each request to a client; clients answer no surveys."""
        service, now = self._core.service, self._loop.time()
        for execution in executions:
            if execution.surveyed:
                service.decline(execution, now)
            elif (subscription := self._served.choose()) is None:
                service.reject(execution, Rejection.NOT_A_MEMBER, now)
            else:
                self._ask(execution, subscription)
        self._driver.wake()

    def cancel(self, execution: Execution) -> None:
        """Take no reply any more: the caller no longer waits."""
        asked = self._asked.pop(execution, None)
        if asked is not None:
            asked.forget()
            self._core.service.drop(execution, self._loop.time())
            self._driver.wake()

    def abort(self) -> list[asyncio.Task[None]]:
        """Count the clients as lost that have not answered; returns the tasks of a server, which has none."""
        for asked in list(self._asked.values()):
            asked.forget()
            asked.lose()
        return super().abort()

    def answer(self, execution: Execution, delivery: Delivery, header_bytes: int) -> None:
        """Answer a request with the first message of a client.

        Args:
            execution: The request.
            delivery: The message.
            header_bytes: The size of its header block; 0 or less for none.
        """
        del self._asked[execution]
        service, now = self._core.service, self._loop.time()
        headers = _headers_of(delivery.contents[0][: max(0, header_bytes)])
        payload = delivery.payloads[0]
        if ERROR_CODE in headers:
            service.fail_as(execution, SERVICE_ERROR, f"{headers[ERROR_CODE]} {headers.get(ERROR_TEXT, '')}".strip(), now)
        elif len(payload) > self._max_message_bytes:
            service.fail_as(execution, "MessageTooLarge", f"the reply has {len(payload)} bytes", now)
        else:
            service.reply_many(execution.registration, [(execution, bytes(payload))], now)
        self._driver.wake()

    def lose(self, execution: Execution) -> None:
        """Tell the caller that the client has gone."""
        if self._asked.pop(execution, None) is not None:
            self._core.service.reject(execution, Rejection.LOST, self._loop.time())
            self._driver.wake()

    # --

    def _ask(self, execution: Execution, subscription: ClientSubscription) -> None:
        inbox = f"{_INBOX}.{secrets.token_urlsafe(_INBOX_BYTES)}".encode()
        found = read_carried(execution.headers, execution.payload)
        asked = self._asked[execution] = _AskedService(self, execution, inbox)
        routes = self._served.routes
        routes.inboxes.expect(inbox, subscription.client, asked)
        routes.give(subscription, Delivery(subscription.pattern.raw, inbox, found.header_bytes, [found.content]))

    def forget(self, inbox: bytes) -> None:
        """Expect no reply to an inbox any more."""
        self._served.routes.inboxes.forget_asked(inbox)


class _AskedService:
    """A request that a client has."""

    __slots__ = ("_execution", "_inbox", "_server")

    def __init__(self, server: _ClientServer, execution: Execution, inbox: bytes) -> None:
        self._server = server
        self._execution = execution
        self._inbox = inbox

    def answer(self, delivery: Delivery) -> None:
        """Take the client's reply."""
        self._server.answer(self._execution, delivery, delivery.header_bytes)

    def lose(self) -> None:
        """Note that the client has gone."""
        self._server.lose(self._execution)

    def forget(self) -> None:
        """Expect no reply any more."""
        self._server.forget(self._inbox)


def _headers_of(block: bytes) -> dict[str, str]:
    """Return the headers in a block, as far as they are text."""
    headers = {}
    for line in block.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers
