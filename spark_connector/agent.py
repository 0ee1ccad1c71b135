"""The agent of an executor: a process with an Iris node, which lives as long as its executor. Started by :mod:`.spawn`.

It is asked in two ways. Tasks of its executor, which the driver has sent, tell it over a Unix socket what to serve. Once it
serves a cluster, the driver reaches it in the network. It ends with its executor, with the last cluster that it serves, and
with SIGTERM: it leaves the network, removes its directory, and is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from iris_py.sync.background import background
from spark_connector import doorway
from spark_connector.errors import AgentFailed, OrderRefused
from spark_connector.hosting import Hosted
from spark_connector.orders import open_local
from spark_connector.spawn import is_zombie, lock_file, remove_directory, started_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py import Node
    from iris_py.sync.background import Background
    from spark_connector.network import Network
    from spark_connector.orders import Order
    from spark_connector.spawn import ExecutorProcess, Launch

__all__ = ["Agent", "main"]

logger = logging.getLogger("spark_connector")

#: How long an agent tries to lock its directory: who looks whether it is locked holds it for a moment.
LOCK_TIMEOUT_S = 1.0
LOCK_INTERVAL_S = 0.005
#: How often to look whether the executor is there, where the kernel cannot tell: before Linux 5.3.
WATCH_INTERVAL_S = 0.25
#: How long leaving the network may take. Peers of one that does not say goodbye see its links end.
LEAVE_TIMEOUT_S = 1.5
#: How long an agent that serves nothing waits for an order. The task that started it gives one at once.
IDLE_TIMEOUT_S = 30.0
#: The largest order: a handler of the largest message there is, and its settings.
ORDER_BYTES_MAX = 80 << 20


class Agent:
    """What the process does between its start and its end; all of it in one event loop.

    Args:
        launch: What it was told when it started.
        loop: The event loop.
    """

    def __init__(self, launch: Launch, loop: Background) -> None:
        self._launch = launch
        self._background = loop
        self._nodes: dict[Network, Node] = {}
        self._hosted: dict[str, Hosted] = {}
        self._serving = asyncio.Lock()
        self._ended = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._drops: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Make it end; for the event loop."""
        self._ended.set()

    async def run(self) -> None:
        """Serve until the end."""
        directory = self._launch.directory
        async with self._stack as stack:
            watching = asyncio.create_task(watch(self._launch.executor, self.end))
            stack.callback(watching.cancel)
            server = await asyncio.start_unix_server(self._handle_connection, directory / "control")
            stack.callback(server.close)
            self._watch_idleness()
            draft = directory / "info.draft"
            draft.write_text(json.dumps({"executor": self._launch.executor.id, "pid": os.getpid()}))
            draft.rename(directory / "info.json")
            await self._ended.wait()
            logger.info("leaving")
        # Whoever tries to talk to it from now on waits until it is gone, and starts another one.
        (directory / "info.json").unlink(missing_ok=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await asyncio.gather(*(hosted.leave() for hosted in self._hosted.values()), return_exceptions=True)
                await asyncio.gather(*(node.close(timeout=0.0) for node in self._nodes.values()), return_exceptions=True)

    async def serve(self, order: Order) -> dict[str, Any]:
        """Do what an order says; return who this is.

        Raises:
            IrisError: It cannot be done.
        """
        async with self._serving:
            if self._ended.is_set():
                raise AgentFailed("the agent ends. Try again.")
            hosted = self._hosted.get(order.name)
            if hosted is not None and hosted.order.instance != order.instance:
                await self._drop(hosted)  # its driver has closed it, and could not say so
                hosted = None
            if hosted is None:
                node = await self._find_node(order.network)
                hosted = Hosted(self._launch, node, order, self._background, self._drop_soon)
                try:
                    await hosted.start()
                except BaseException:
                    await hosted.leave()
                    raise
                self._hosted[order.name] = hosted
            elif order.generation > hosted.generation:
                await hosted.update(order.generation, order.blob)
            self._watch_idleness()
            return hosted.describe()

    async def _find_node(self, network: Network) -> Node:
        """Return the node in a network; the first use of a network starts it. Tasks of the executor use the first of all."""
        node = self._nodes.get(network)
        if node is None:
            node = await network.connect()
            try:
                if not self._nodes:
                    await self._stack.enter_async_context(doorway.serve(node, self._launch.directory / "socket"))
            except BaseException:
                await node.close()
                raise
            self._nodes[network] = node
            logger.info("node %s of network %r at %s", node.id, node.network, node.address)
        return node

    def _drop_soon(self, hosted: Hosted) -> None:
        task = asyncio.create_task(self._drop(hosted))
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)

    async def _drop(self, hosted: Hosted) -> None:
        if self._hosted.get(hosted.order.name) is hosted:
            del self._hosted[hosted.order.name]
            if not self._hosted and not self._serving.locked():
                self.end()
        await hosted.leave()

    def _watch_idleness(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = None if self._hosted else asyncio.get_running_loop().call_later(IDLE_TIMEOUT_S, self.end)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take an order of a task, and answer."""
        try:
            writer.write(json.dumps(await self._answer(reader)).encode() + b"\n")
        except (OSError, asyncio.IncompleteReadError):
            pass  # the task was killed
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        size = int.from_bytes(await reader.readexactly(8), "big")
        try:
            if size > ORDER_BYTES_MAX:
                raise OrderRefused(f"{size} bytes are too many")
            return await self.serve(open_local(self._launch.token, await reader.readexactly(size)))
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception as exc:
            logger.warning("an order of a task failed: %s: %s", type(exc).__name__, exc)
            return {"error": str(exc) if isinstance(exc, AgentFailed) else f"{type(exc).__name__}: {exc}"}


async def watch(executor: ExecutorProcess, ended: Callable[[], object]) -> None:
    """Call something when the process of an executor has ended."""
    try:
        descriptor = os.pidfd_open(executor.pid)
    except ProcessLookupError:
        descriptor = None
    except (OSError, AttributeError):  # an old kernel, or one that forbids it
        descriptor = None
        while not is_gone(executor):  # noqa: ASYNC110 - nobody here knows it earlier
            await asyncio.sleep(WATCH_INTERVAL_S)
    if descriptor is not None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            if not is_gone(executor):  # else it is another process of the same number
                await gone.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    logger.info("executor %s has ended", executor.id)
    ended()


def is_gone(executor: ExecutorProcess) -> bool:
    """Tell whether the process of an executor has ended."""
    try:
        return started_at(executor.pid) != executor.started or is_zombie(executor.pid)
    except OSError:
        return True


def main() -> None:
    """Be an agent, in a child of this process; this one returns at once.

    So the agent is nobody's child, and no zombie when it ends. It is forked after the imports, which may fail: then whoever
    started this sees the status of the process.
    """
    launch: Launch = pickle.load(sys.stdin.buffer)  # noqa: S301 - from whoever started this process
    if os.fork():
        return
    status = 1
    try:
        _be_agent(launch)
        status = 0
    except BaseException:
        logger.exception("the agent failed")
    finally:
        logging.shutdown()
        os._exit(status)  # threads of handlers may run for ever


def _be_agent(launch: Launch) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.umask(0o077)
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s agent {os.getpid()} %(name)s: %(message)s", stream=sys.stderr
    )
    lock = _lock(launch)
    if lock is None:
        logger.info("executor %s has another agent", launch.executor.id)
        return
    try:
        logger.info("agent of executor %s, process %d", launch.executor.id, launch.executor.pid)
        _warn_of_limits()
        loop = background()
        agent = Agent(launch, loop)
        signal.signal(signal.SIGTERM, lambda _number, _frame: loop.soon(agent.end))
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        loop.wait(agent.run)
    finally:
        remove_directory(launch.directory)
        logger.info("gone")


def _lock(launch: Launch) -> int | None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while (lock := lock_file(launch.directory / "lock")) is None and time.monotonic() < deadline:
        time.sleep(LOCK_INTERVAL_S)
    return lock


def _warn_of_limits() -> None:
    """The limit of a Python worker's memory is inherited, and cannot be lifted again."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        logger.warning(
            "this agent may use %d MiB of address space, as spark.executor.pyspark.memory says for Python workers. "
            "A handler that needs more fails with MemoryError; raise that setting.",
            limit >> 20,
        )


if __name__ == "__main__":
    main()
