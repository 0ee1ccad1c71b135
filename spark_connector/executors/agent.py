"""The agent of an executor: a process with an Iris node that lives as long as the executor. :mod:`.spawn` starts it.

Tasks sent by the driver pass orders to the agent over a Unix socket. Once the agent serves a cluster, the driver reaches it
through the network. The agent ends with the executor, with the last cluster it serves, or on SIGTERM: it leaves the network,
removes its directory and exits.

:mod:`.daemon` may start an agent early: it then imports its modules and waits for a task to adopt it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib
import json
import logging
import os
import pickle
import resource
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iris_py.connector import EventLogger, background
from spark_connector.daemon import AHEAD, NOT_NEEDED
from spark_connector.errors import AgentFailed, OrderRefused
from spark_connector.executors.agent_files import (
    BIRTH_KEY_NAME,
    CONTROL_NAME,
    INFO_NAME,
    LOCK_NAME,
    agent_directory,
    lock_file,
    remove_directory,
    reserve,
)
from spark_connector.executors.challenge import NONCE_BYTES, OPENING_BYTES, AgentHello, Talk
from spark_connector.executors.orders import KEY_BYTES, open_adoption, open_local
from spark_connector.executors.served_cluster import Hosted
from spark_connector.executors.spawn import (
    LOCAL_ID,
    Launch,
    agent_environment,
    find_executor,
    is_zombie,
    new_agent_id,
    redirect_to_log,
    started_at,
)
from spark_connector.local import server
from spark_connector.local.private_directory import PrivateDirectory
from spark_connector.local.sockets import ForeignPeer, check_peer, listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py import Node
    from iris_py.connector import Background
    from spark_connector.executors.orders import Order
    from spark_connector.executors.spawn import ExecutorProcess
    from spark_connector.network import Network

__all__ = ["Agent", "main"]

logger = EventLogger("spark_connector")

#: How long an agent tries to lock its directory, because checking the lock holds it for a moment.
LOCK_TIMEOUT_S = 1.0
LOCK_INTERVAL_S = 0.005
#: Interval of checks for the executor's process where the kernel cannot report its end: before Linux 5.3.
WATCH_INTERVAL_S = 0.25
#: Timeout for leaving the network. Without a goodbye, peers notice the end of the links.
LEAVE_TIMEOUT_S = 1.5
#: As ``LEAVE_TIMEOUT_S``, after the executor's end, which may mean a killed driver: then no node would answer a goodbye, and
#: the work of handlers has no receiver. With a live driver, leaving takes some 20 ms. Too small: on a busy machine peers notice
#: the departure only by themselves; too large: agents outlive a killed driver by this time.
ORPHANED_TIMEOUT_S = 0.4
#: How long an agent without a cluster waits for an order. The task that started it sends one at once.
IDLE_TIMEOUT_S = 30.0
#: How long an agent started early waits for adoption. Too small: a task that waits longer for a slot starts another agent; too
#: large: without an ``ExecutorCluster``, each executor has an idle process for this time.
ADOPTION_TIMEOUT_S = 60.0
#: Interval at which an agent checks that its directory exists, because systems remove ``XDG_RUNTIME_DIR`` after a user's
#: logout, and clean temporary directories. Too large: tasks find no agent for this time; too small: each check is a system
#: call.
LOOK_INTERVAL_S = 5.0
#: Maximum number of tasks that wait until the agent accepts their connections; more than an executor has.
BACKLOG = 512
#: Timeout for a task's proof of identity. Tasks send it at once, so a slower process is not a task.
OPENING_TIMEOUT_S = 10.0
#: The largest order: two handlers of the maximum message size, and their settings.
ORDER_BYTES_MAX = 144 << 20


class Agent:
    """The agent of an executor (see the module), from the start to the end of its process. All methods run in one event loop.

    Args:
        launch: The instructions from the start of the process.
        directory: The directory of the agent; the caller keeps it open.
        loop: The event loop.
        started: Called when tasks can connect.
    """

    def __init__(
        self, launch: Launch, directory: PrivateDirectory, loop: Background, started: Callable[[], object] = lambda: None
    ) -> None:
        self._launch = launch
        self._directory = directory
        self._birth_key = os.urandom(KEY_BYTES)
        self._started = started
        self._background = loop
        self._nodes: dict[Network, Node] = {}
        self._hosted: dict[str, Hosted] = {}
        self._serving = asyncio.Lock()
        self._ended = asyncio.Event()
        self._is_orphaned = False  # the executor has ended
        self._stack = contextlib.AsyncExitStack()
        self._drops: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Make :meth:`run` leave the network and return. Call it in the event loop."""
        self._ended.set()

    async def run(self) -> None:
        """Take orders from tasks and serve clusters until :meth:`end` is called; then leave the network."""
        directory = self._directory
        async with self._stack as stack:
            watching = asyncio.create_task(watch(self._launch.executor, self._lose_executor))
            stack.callback(watching.cancel)
            server = await asyncio.start_unix_server(
                self._handle_connection, sock=listen(directory, CONTROL_NAME, BACKLOG), backlog=BACKLOG
            )
            stack.callback(server.close)
            self._watch_idleness()
            if self._launch.key is None:
                directory.write(BIRTH_KEY_NAME, self._birth_key)
            self._write_info()
            looking = asyncio.create_task(self._watch_directory())
            stack.callback(looking.cancel)
            self._started()
            await self._ended.wait()
            logger.info("leaving", "leaving")
        # From now on, a task that connects waits until this agent is gone, and starts another.
        for name in (INFO_NAME, BIRTH_KEY_NAME):
            directory.unlink(name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ORPHANED_TIMEOUT_S if self._is_orphaned else LEAVE_TIMEOUT_S):
                if not self._is_orphaned:  # otherwise running handlers are cancelled at once
                    await asyncio.gather(*(hosted.leave() for hosted in self._hosted.values()), return_exceptions=True)
                await asyncio.gather(*(node.close(timeout=0.0) for node in self._nodes.values()), return_exceptions=True)

    def _lose_executor(self) -> None:
        self._is_orphaned = True
        self.end()

    async def _watch_directory(self) -> None:
        """End the agent when its directory was removed, because tasks no longer find this agent and start another."""
        while self._directory.has(INFO_NAME):  # noqa: ASYNC110 - no event reports it earlier
            await asyncio.sleep(LOOK_INTERVAL_S)
        logger.warning("directory_removed", "%s was removed; leaving", self._directory.path)
        self.end()

    async def serve(self, order: Order) -> dict[str, Any]:
        """Execute a task's order to serve a cluster; return the description of this agent.

        Raises:
            IrisError: The order cannot be executed.
        """
        async with self._serving:
            if self._ended.is_set():
                raise AgentFailed("the agent ends. Try again.")
            hosted = self._hosted.get(order.name)
            if hosted is not None and hosted.order.instance != order.instance:
                await self._drop(hosted)  # closed by its driver, which could not tell this agent
                hosted = None
            if hosted is None:
                node = await self._find_node(order.network)
                hosted = Hosted(self._launch, node, order, self._background, self._drop_soon)
                await self._begin(hosted)
            elif order.generation > hosted.generation:
                await hosted.refresh(order)
            self._watch_idleness()
            return hosted.describe()

    async def _begin(self, hosted: Hosted) -> None:
        """Begin to serve a cluster this agent does not serve yet.

        Raises:
            AgentFailed: The driver closed the cluster meanwhile.
        """
        name = hosted.order.name
        self._hosted[name] = hosted
        try:
            await hosted.start()
            if self._hosted.get(name) is not hosted:  # dropped, with the memberships it had until then
                raise AgentFailed(f"{name!r} was closed while this executor began to serve it.")
        except BaseException:
            if self._hosted.get(name) is hosted:
                del self._hosted[name]
            self._watch_idleness()
            await hosted.leave()
            raise

    async def _find_node(self, network: Network) -> Node:
        """Return the agent's node in a network; start a node at the first use.

        The first node is also the one tasks of the executor use.
        """
        node = self._nodes.get(network)
        if node is None:
            node = await network.connect()
            try:
                if not self._nodes:
                    await self._stack.enter_async_context(server.serve(node, self._directory))
            except BaseException:
                await node.close()
                raise
            self._nodes[network] = node
            logger.info(
                "node_opened",
                "node %s of network %r at %s",
                node.id,
                node.network,
                node.address,
                about=node.id,
                node=node.id,
            )
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
        timeout = ADOPTION_TIMEOUT_S if self._launch.key is None else IDLE_TIMEOUT_S
        self._idle = None if self._hosted else asyncio.get_running_loop().call_later(timeout, self.end)

    def _write_info(self) -> None:
        """Write the description of this agent for tasks."""
        executor, is_waiting = self._launch.executor, self._launch.key is None
        info = {"executor": executor.id, "pid": os.getpid(), "waiting": is_waiting}
        self._directory.write(INFO_NAME, json.dumps(info).encode())

    def _adopt(self, key: bytes, path: list[str]) -> None:
        """Accept the key of an application, to obey the orders of the application's driver.

        Two tasks may both have seen this agent waiting; they give the same key.

        Raises:
            OrderRefused: The agent belongs to another application.
        """
        if self._launch.key is None:
            self._launch = replace(self._launch, key=key)
            self._directory.unlink(BIRTH_KEY_NAME)
            sys.path.extend(each for each in path if each not in sys.path)
            importlib.invalidate_caches()
            self._write_info()
            self._watch_idleness()
            logger.info("adopted", "adopted by a task")
        elif not hmac.compare_digest(key, self._launch.key):
            raise OrderRefused("it is not from the driver of this application")

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one order of a task. Other processes get no answer."""
        try:
            check_peer(writer.get_extra_info("socket"))
            writer.write(json.dumps(await self._answer(reader, writer)).encode() + b"\n")
        except ForeignPeer as exc:
            logger.warning(
                "user_refused",
                "refused a process of user %d, which tried to give orders to this agent",
                exc.user,
                user=exc.user,
            )
        except (OSError, asyncio.IncompleteReadError):
            pass  # the task was killed
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            return await self.serve(await self._take_order(reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception as exc:
            logger.warning("order_failed", "an order of a task failed: %s: %s", type(exc).__name__, exc)
            return {"error": str(exc) if isinstance(exc, AgentFailed) else f"{type(exc).__name__}: {exc}"}

    async def _take_order(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Order:
        """Authenticate the task and this agent to each other, and read the task's order.

        Raises:
            OrderRefused: The task is not from the driver of this application.
        """
        hello = AgentHello(self._launch.agent, self._launch.key is None, os.urandom(NONCE_BYTES))
        writer.write(hello.encode())
        key = self._launch.key or self._birth_key
        async with asyncio.timeout(OPENING_TIMEOUT_S):
            opening = await reader.readexactly(OPENING_BYTES)
        talk = Talk(key, hello, opening[:NONCE_BYTES])
        writer.write(json.dumps({"proof": talk.answer(opening).hex()}).encode() + b"\n")
        sealed = await _read_order(reader)
        if hello.is_waiting:
            # Read everything before refusing: closing a socket with unread bytes discards the answer.
            adoption, sealed = sealed, await _read_order(reader)
            self._adopt(*open_adoption(key, talk.session, adoption))
            assert self._launch.key is not None
            key = self._launch.key
        return open_local(key, talk.session, sealed)


async def _read_order(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(8), "big")
    if size > ORDER_BYTES_MAX:
        raise OrderRefused(f"{size} bytes are too many")
    return await reader.readexactly(size)


async def watch(executor: ExecutorProcess, ended: Callable[[], object]) -> None:
    """Call a function when the process of an executor has ended."""
    try:
        descriptor = os.pidfd_open(executor.pid)
    except ProcessLookupError:
        descriptor = None
    except (OSError, AttributeError):  # an old kernel, or one that forbids it
        descriptor = None
        while not is_gone(executor):  # noqa: ASYNC110 - no event reports it earlier
            await asyncio.sleep(WATCH_INTERVAL_S)
    if descriptor is not None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            if not is_gone(executor):  # otherwise another process has the same number
                await gone.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    logger.info("executor_ended", "executor %s has ended", executor.id)
    ended()


def is_gone(executor: ExecutorProcess) -> bool:
    """Tell whether the process of an executor has ended."""
    try:
        return started_at(executor.pid) != executor.started or is_zombie(executor.pid)
    except OSError:
        return True


def main() -> None:
    """Run an agent in a child of this process, which returns at once.

    The agent thus has no parent, and does not become a zombie when it ends. The fork comes after the imports, which may fail:
    then the exit status reports the failure.
    """
    spawning: int | None = None
    if sys.argv[1:] == [AHEAD]:
        os.setsid()  # Spark signals groups of processes
        found = _prepare_ahead()
        if found is None:
            sys.exit(NOT_NEEDED)
        launch, directory, spawning = found
    else:
        launch = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
        directory = PrivateDirectory.open_both(launch.directory)
    if os.fork():
        return
    status = 1
    try:
        _be_agent(launch, directory, spawning)
        status = 0
    except BaseException as exc:
        logger.error("agent_failed", "the agent failed", error=exc)
    finally:
        logging.shutdown()
        os._exit(status)  # threads of handlers may never end


def _prepare_ahead() -> tuple[Launch, PrivateDirectory, int] | None:
    """Return the instructions for an agent that was started early; otherwise a task passes them.

    Returns:
        The instructions, the agent's directory, and the spawn lock, which must be closed when tasks can connect. None if no
        agent is needed: another agent exists, or this is the driver, whose Python processes run no tasks of a cluster.

    Returns:
        The lock must be closed when tasks can connect. None if no agent is needed: another agent exists, or this is the driver,
            whose Python processes run no tasks of a cluster.
    """
    try:
        executor, path = find_executor(), agent_directory()
        if executor.id == LOCAL_ID or (reserved := reserve(path)) is None:
            return None
        redirect_to_log(executor)
        os.environ.update(agent_environment(executor))
        return Launch(path, executor, new_agent_id(), None), *reserved
    except Exception as exc:
        print(f"iris: cannot start an agent in advance: {type(exc).__name__}: {exc}", file=sys.stderr)  # noqa: T201
        return None


def _be_agent(launch: Launch, directory: PrivateDirectory, spawning: int | None = None) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.umask(0o077)
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s agent {os.getpid()} %(name)s: %(message)s", stream=sys.stderr
    )
    lock = _lock(directory)
    if lock is None:
        logger.info("agent_superfluous", "executor %s has another agent", launch.executor.id)
        return
    try:
        logger.info("agent_begins", "agent of executor %s, process %d", launch.executor.id, launch.executor.pid)
        _warn_of_limits()
        loop = background()
        agent = Agent(launch, directory, loop, lambda: None if spawning is None else os.close(spawning))
        signal.signal(signal.SIGTERM, lambda _number, _frame: loop.soon(agent.end))
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        loop.wait(agent.run)
    finally:
        remove_directory(directory)
        logger.info("agent_gone", "gone")


def _lock(directory: PrivateDirectory) -> int | None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while (lock := lock_file(directory, LOCK_NAME)) is None and time.monotonic() < deadline:
        time.sleep(LOCK_INTERVAL_S)
    return lock


def _warn_of_limits() -> None:
    """Warn of the memory limit of Python workers, which the agent inherits and cannot raise."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        logger.warning(
            "memory_limited",
            "this agent may use %d MiB of address space, the limit of spark.executor.pyspark.memory for Python workers. A "
            "handler that needs more fails with MemoryError; raise that setting.",
            limit >> 20,
        )


if __name__ == "__main__":
    main()
