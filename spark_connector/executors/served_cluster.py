"""One cluster served by an agent: the current handler, and orders to replace it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import platform
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, cast

from iris_py import Handler
from iris_py.connector import DaemonThreads, EventLogger, adapt, hooks_of
from spark_connector.errors import AgentFailed, OrderRefused
from spark_connector.executors.orders import BYE, GREET, UPDATE, control_name, open_order, own_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from iris_py import Membership, Message, Node, Request, Tunnel
    from iris_py.connector import AnyHandler, Background, HandlerHooks
    from spark_connector.executors.orders import Order
    from spark_connector.executors.spawn import Launch

__all__ = ["Hosted"]

logger = EventLogger("spark_connector")

#: How long the driver may take to greet an agent that serves a new cluster. The driver does so at the end of the Spark job that
#: started the agent. Otherwise the driver was closed meanwhile, or is in another network, and would never send BYE.
GREET_TIMEOUT_S = 60.0
#: How long running handlers may continue when the agent leaves.
LEAVE_TIMEOUT_S = 0.5
#: The module named by pickles of handlers.
CLOUDPICKLE = "pyspark.cloudpickle.cloudpickle"


class Switch(Handler):
    """The handler an agent registers for a cluster: passes all calls to the current handler of the user.

    The user's handler is replaced between two calls, and no request is lost.

    Args:
        hooks: The hooks of the handler.

    Attributes:
        hooks: The hooks of the current handler.
        is_heard: Whether this registration takes broadcasts: of two simultaneous registrations only one may.
    """

    def __init__(self, hooks: HandlerHooks) -> None:
        self.is_heard = True
        self.hooks = hooks

    async def on_request(self, request: Request) -> bytes:
        return cast("bytes", await self.hooks.on_request.call(request))

    async def on_survey(self, request: Request) -> bytes | None:
        return cast("bytes | None", await self.hooks.on_survey.call(request))

    async def on_broadcast(self, message: Message) -> None:
        if not self.is_heard:
            return
        if self.hooks.on_broadcast is not None:
            await self.hooks.on_broadcast.call(message)
        else:
            logger.warning(
                "broadcasts_dropped",
                "a broadcast to %r was dropped: the handler is a function, for requests only",
                message.cluster,
                about=message.cluster,
                cluster=message.cluster,
            )


class TunnelSwitch(Switch):
    """A :class:`Switch` for a handler that serves tunnels."""

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        assert self.hooks.on_tunnel is not None
        await self.hooks.on_tunnel.call(tunnel)


class Hosted:
    """One cluster served by this agent, according to an order.

    Args:
        launch: The instructions from the start of the agent.
        node: The agent's node in the network of the cluster.
        order: The order.
        background: The event loop of the agent.
        drop: Called to leave the cluster for good.

    Attributes:
        generation: The generation of the running handler; 0 before the first.
        refused: Number of refused orders.
    """

    def __init__(
        self, launch: Launch, node: Node, order: Order, background: Background, drop: Callable[[Hosted], object]
    ) -> None:
        self.order = order
        self.node = node
        self.generation = 0
        self.refused = 0
        self._launch = launch
        self._background = background
        self._threads = DaemonThreads(None, "iris-handler")  # as many as the handler's concurrency
        self._drop = drop
        self._blob = b""
        self._switch: Switch | None = None
        self._memberships: list[Membership] = []
        self._control: Membership | None = None
        self._changing = asyncio.Lock()
        self._is_greeted = False
        self._greeting: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serve the cluster; return when it is registered.

        Raises:
            AgentFailed: The handler cannot be loaded here.
            IrisError: An argument is wrong.
        """
        name, executor = self.order.name, self._launch.executor.id
        await self._begin()
        self._control = await self.node.join(control_name(name, executor, self.order.instance), self._take_order)
        if not self._is_greeted:  # otherwise the driver's greeting came before this line
            self._greeting = asyncio.get_running_loop().call_later(GREET_TIMEOUT_S, self._miss_greeting)

    async def refresh(self, order: Order) -> None:
        """Run the handler of a newer order. If loading fails, keep the running handler; the driver sees its old generation."""
        try:
            await self.update(order.generation, order.blob)
        except AgentFailed as exc:
            logger.warning(
                "update_failed",
                "%r keeps generation %d of its handler: %s",
                order.name,
                self.generation,
                exc,
                about=order.name,
                cluster=order.name,
            )

    def describe(self) -> dict[str, Any]:
        """Return the description of this agent."""
        return {
            "executor": self._launch.executor.id,
            "agent": self._launch.agent,
            "host": platform.node(),
            "pid": os.getpid(),
            "jvm": self._launch.executor.pid,
            "node": self.node.id,
            "generation": self.generation,
            "refused": self.refused,
        }

    async def update(self, generation: int, blob: bytes) -> None:
        """Replace the running handler by a newer generation; do nothing if this generation is running.

        Raises:
            OrderRefused: A newer handler is running.
            AgentFailed: The handler cannot be loaded here.
        """
        async with self._changing:
            if generation < self.generation or (generation == self.generation and blob != self._blob):
                raise OrderRefused(f"generation {generation} is older than {self.generation}, which runs")
            if generation == self.generation:
                return
            handler = await self._background.in_thread(_load, blob)  # its imports must not block the node
            await self._run(handler)
            self._blob, self.generation = blob, generation
            name = self.order.name
            logger.info("updated", "%r runs generation %d of its handler", name, generation, about=name, cluster=name)

    async def leave(self) -> None:
        """Leave the cluster; running requests have a moment to end."""
        if self._greeting is not None:
            self._greeting.cancel()
        memberships = [*self._memberships, *filter(None, [self._control])]
        await asyncio.gather(*(membership.leave(timeout=LEAVE_TIMEOUT_S) for membership in memberships))
        self._threads.shutdown()

    # --

    async def _begin(self) -> None:
        """Run the handler of the order, or the previous one if this executor cannot load it."""
        try:
            await self.update(self.order.generation, self.order.blob)
        except AgentFailed as exc:
            if self.order.before is None:
                raise
            logger.warning(
                "update_failed",
                "%r does not start generation %d of its handler: %s",
                self.order.name,
                self.order.generation,
                exc,
                about=self.order.name,
                cluster=self.order.name,
            )
            await self.update(*self.order.before)

    async def _run(self, handler: AnyHandler) -> None:
        """Pass calls to another handler from now on; register again if only one of both handlers serves tunnels."""
        options = dict(self.order.options)
        hooks = hooks_of(adapt(handler, self._background), None if options.pop("inline", None) else self._threads)
        kind = Switch if hooks.on_tunnel is None else TunnelSwitch
        if type(self._switch) is kind:
            self._switch.hooks = hooks
            return
        # The registration tells callers whether the member serves tunnels. So a change of that needs a new registration.
        old, switch = self._switch, kind(hooks)
        switch.is_heard = old is None
        if options.get("concurrency") is None:
            options["concurrency"] = hooks.default_concurrency
        left = self._memberships
        names = (own_name(self.order.name, self._launch.executor.id), self.order.name)
        self._memberships = [await self.node.join(name, switch, **options) for name in names]
        if old is not None:
            old.hooks = hooks  # calls that still reach the old registration
            old.is_heard, switch.is_heard = False, True
        self._switch = switch
        for membership in left:
            leaving = asyncio.create_task(membership.leave())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _take_order(self, request: Request) -> bytes:
        """Execute an authenticated order of the driver; refuse all others."""
        try:
            key = self._launch.key
            assert key is not None, "an agent that nobody has adopted serves nothing"
            verb, generation, content = open_order(key, self.node.id, request.payload)
            if verb == UPDATE:
                await self.update(generation, content)
            elif verb == GREET:
                self._is_greeted = True
                if self._greeting is not None:
                    self._greeting.cancel()
            elif verb == BYE:
                asyncio.get_running_loop().call_soon(self._drop, self)  # after this request is answered
        except OrderRefused as exc:
            self.refused += 1
            logger.warning(
                "order_refused",
                "an order from node %s to %r was refused: %s",
                request.source,
                self.order.name,
                exc.reason,
                about=self.order.name,
                cluster=self.order.name,
            )
            raise
        return json.dumps(self.describe()).encode()

    def _miss_greeting(self) -> None:
        name = self.order.name
        logger.warning(
            "greeting_missed",
            "the driver of %r did not greet this agent within %g s; leaving",
            name,
            GREET_TIMEOUT_S,
            about=name,
            cluster=name,
        )
        self._drop(self)


def _load(blob: bytes) -> AnyHandler:
    try:
        return cast("AnyHandler", _Unpickler(io.BytesIO(blob)).load())  # authenticated, from the driver of the application
    except MemoryError:
        raise AgentFailed(
            "the handler cannot be loaded on the executor: there is no memory. "
            "Raise spark.executor.pyspark.memory, if it is set: it limits the agent too."
        ) from None
    except Exception as exc:
        raise AgentFailed(
            f"the handler cannot be loaded on the executor: {type(exc).__name__}: {exc}. Install what it needs there, "
            "or send it along: pyspark.cloudpickle.register_pickle_by_value(module)."
        ) from exc


class _Unpickler(pickle.Unpickler):
    """Unpickles without importing all of PySpark, which takes a quarter of a second and 10 MB, unless the handler needs it.

    A pickle of cloudpickle names a module below ``pyspark`` that needs no other part of PySpark. A normal import would begin
    with ``pyspark`` itself. Where PySpark is Spark's archive of sources, compiling it takes a further second.
    """

    def find_class(self, module_name: str, global_name: str) -> Any:  # noqa: ANN401 - any object of that name
        if module_name == CLOUDPICKLE and (module := _import_cloudpickle()) is not None:
            return getattr(module, global_name)
        return super().find_class(module_name, global_name)


def _import_cloudpickle() -> ModuleType | None:
    """Return the cloudpickle module, imported without its parent packages; None if that is impossible.

    The module is entered in ``sys.modules``, so a later import of PySpark uses the same module and classes. The import happens
    with the first handler of the process, while no other thread imports PySpark.
    """
    if CLOUDPICKLE not in sys.modules and "pyspark" not in sys.modules:
        spec = find_spec("pyspark")
        for name in (CLOUDPICKLE.rpartition(".")[0], CLOUDPICKLE):
            spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[CLOUDPICKLE] = module  # now, because loading the handler may exhaust the memory
    return sys.modules.get(CLOUDPICKLE)
