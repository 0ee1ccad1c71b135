"""The node of a Python worker of Spark: a common node for all tasks, in a separate thread.

Spark forks a worker process, runs tasks in it, and kills an idle worker after a minute. So no task closes the node, and peers
notice the death by the end of links. If workers are not reused (``spark.python.worker.reuse`` is off), the process ends with
its task and would lose unsent messages: there the task closes the node, after sending all messages.

The node starts at the first use, so after the fork. A process forked later starts another node.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import iris_py
from iris_py import IrisError
from iris_py.connector import Asked, Asker, runtime_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py import Node, Retry
    from spark_connector.network import Network

__all__ = ["WorkerNode", "end_task", "start", "worker_node"]

#: Timeout for starting a node: it listens, dials its seeds and finds its place, usually in less than a second.
START_TIMEOUT_S = 60.0
#: Timeout for closing a node; it has no handlers to wait for.
CLOSE_TIMEOUT_S = 5.0

Result = TypeVar("Result")
Question = TypeVar("Question", bound=Asked)


class WorkerNode:
    """The node of a Python worker of Spark, with the thread of its event loop. The methods are for other threads.

    Attributes:
        node: The node; use it only in the event loop.
        loop: The event loop.
    """

    node: Node
    loop: asyncio.AbstractEventLoop

    def __init__(self, network: Network) -> None:
        """Start a node.

        Raises:
            IrisError: The node cannot start.
        """
        self._network = network
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name="iris-spark", daemon=True)
        self._thread.start()
        self._started.result(START_TIMEOUT_S)

    @property
    def seeds(self) -> tuple[str, ...]:
        """The ``host:port`` of the seeds, from any source of settings."""
        return runtime_of(self.node).config.seeds

    @property
    def is_alive(self) -> bool:
        """Whether the node can be used."""
        return self._thread.is_alive()

    def call(self, coroutine: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine in the event loop, and wait for its end."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def asker(
        self,
        cluster: str,
        timeout: float,
        on_outcomes: Callable[[list[tuple[Question, bytes | IrisError]]], None],
        on_member: Callable[[Question, str], None] | None,
        retry: Retry,
        *,
        is_exclusive: bool,
    ) -> Asker[Question]:
        """Return an :class:`iris_py.connector.Asker`, for many requests to one cluster. Use it only in the event loop."""
        return Asker(self.node, cluster, timeout, on_outcomes, on_member, retry, is_exclusive=is_exclusive)

    def close(self) -> None:
        """Send all waiting messages, and close the node."""
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _serve(self) -> None:
        try:
            iris_py.run(self._main())
        except BaseException as exc:
            if self._started.done():
                raise
            self._started.set_exception(exc)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        async with self._network.connect() as self.node:
            self._started.set_result(None)
            await self._end.wait()


_worker_nodes: dict[Network, WorkerNode] = {}
_owner = os.getpid()


def worker_node(network: Network, cluster: str) -> WorkerNode:
    """Return the node of this process for a network; start it at the first call.

    Args:
        network: The settings of the node.
        cluster: The cluster to call, for the error.

    Raises:
        IrisError: The node cannot start.
    """
    global _owner
    if _owner != os.getpid():  # a fork: the nodes belong to the parent, and their threads do not exist here
        _worker_nodes.clear()
        _owner = os.getpid()
    found = _worker_nodes.get(network)
    if found is None or not found.is_alive:
        found = _worker_nodes[network] = start(network, f"the cluster {cluster!r}")
    return found


def start(network: Network, target: str) -> WorkerNode:
    """Start a separate node, which the caller must close.

    Args:
        network: The settings of the node.
        target: A description of the target, for the error.

    Raises:
        IrisError: The node cannot start.
    """
    try:
        return WorkerNode(network)
    except (IrisError, TimeoutError) as exc:
        raise IrisError(f"a Spark task cannot reach {target}, because its Iris node does not start: {exc}") from None


def end_task() -> None:
    """Close the nodes if the process ends with the task."""
    if not os.environ.get("SPARK_REUSE_WORKER"):
        while _worker_nodes:
            _worker_nodes.popitem()[1].close()
