"""The agent of an executor: a process with an Iris node, which lives as long as its executor. Started by :mod:`.spawn`.

It is asked in two ways. Tasks of its executor, which the driver has sent, tell it over a Unix socket what to serve. Once it
serves a cluster, the driver reaches it in the network. It ends with its executor, with the last cluster that it serves, and
with SIGTERM: it leaves the network, removes its directory, and is gone.

It may also be started ahead, by :mod:`.daemon`: then it has imported what it needs, and waits for a task that adopts it.
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
from spark_connector.executors.challenge import NONCE_BYTES, OPENING_BYTES, Hello, Talk
from spark_connector.executors.directory import (
    BIRTH_KEY_NAME,
    CONTROL_NAME,
    INFO_NAME,
    LOCK_NAME,
    agent_directory,
    lock_file,
    remove_directory,
    reserve,
)
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

#: How long an agent tries to lock its directory: who looks whether it is locked holds it for a moment.
LOCK_TIMEOUT_S = 1.0
LOCK_INTERVAL_S = 0.005
#: How often to look whether the executor is there, where the kernel cannot tell: before Linux 5.3.
WATCH_INTERVAL_S = 0.25
#: How long leaving the network may take. Peers of one that does not say goodbye see its links end.
LEAVE_TIMEOUT_S = 1.5
#: The same when the executor has ended, maybe because the driver was killed: then nobody is there who would answer a goodbye,
#: and the work of handlers is for nobody. With a driver that lives it takes some 20 ms. Too small: on a busy machine others
#: find out by themselves; too large: so long more is left of a killed driver.
ORPHANED_TIMEOUT_S = 0.4
#: How long an agent that serves nothing waits for an order. The task that started it gives one at once.
IDLE_TIMEOUT_S = 30.0
#: How long one that was started ahead waits for a task that adopts it. Too short: a task that waits longer for a slot starts
#: another one; too long: where there is no ``ExecutorCluster``, each executor has a process that does nothing.
ADOPTION_TIMEOUT_S = 60.0
#: How often an agent looks whether its directory is there: systems remove ``XDG_RUNTIME_DIR`` when a user has logged out, and
#: clean temporary directories. Too rarely: so long tasks find no agent; too often: it is one call of the system each time.
LOOK_INTERVAL_S = 5.0
#: Tasks that may wait to be accepted at once; more than an executor has.
BACKLOG = 512
#: How long a task may take to prove who it is. It takes none, so this ends what is no task.
OPENING_TIMEOUT_S = 10.0
#: The largest order: two handlers of the largest message there is, and their settings.
ORDER_BYTES_MAX = 144 << 20


class Agent:
    """The process of an agent, from its start to its end; all of it in one event loop.

    Args:
        launch: What it was told when it started.
        directory: Its directory, which the caller keeps open.
        loop: The event loop.
        started: Called when tasks can talk to it.
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
        """Make it end; for the event loop."""
        self._ended.set()

    async def run(self) -> None:
        """Serve until the end."""
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
        # Whoever tries to talk to it from now on waits until it is gone, and starts another one.
        for name in (INFO_NAME, BIRTH_KEY_NAME):
            directory.unlink(name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ORPHANED_TIMEOUT_S if self._is_orphaned else LEAVE_TIMEOUT_S):
                if not self._is_orphaned:  # else what runs is cancelled at once
                    await asyncio.gather(*(hosted.leave() for hosted in self._hosted.values()), return_exceptions=True)
                await asyncio.gather(*(node.close(timeout=0.0) for node in self._nodes.values()), return_exceptions=True)

    def _lose_executor(self) -> None:
        self._is_orphaned = True
        self.end()

    async def _watch_directory(self) -> None:
        """End when somebody has removed the directory, for no task finds this agent any more; then another one is started."""
        while self._directory.has(INFO_NAME):  # noqa: ASYNC110 - nobody here knows it earlier
            await asyncio.sleep(LOOK_INTERVAL_S)
        logger.warning("directory_removed", "%s was removed; leaving", self._directory.path)
        self.end()

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
                await self._begin(hosted)
            elif order.generation > hosted.generation:
                await hosted.refresh(order)
            self._watch_idleness()
            return hosted.describe()

    async def _begin(self, hosted: Hosted) -> None:
        """Serve a cluster.

        Raises:
            AgentFailed: The driver has closed the cluster while it began here.
        """
        name = hosted.order.name
        self._hosted[name] = hosted
        try:
            await hosted.start()
            if self._hosted.get(name) is not hosted:  # dropped, with what it had joined until then
                raise AgentFailed(f"{name!r} was closed while this executor began to serve it.")
        except BaseException:
            if self._hosted.get(name) is hosted:
                del self._hosted[name]
            self._watch_idleness()
            await hosted.leave()
            raise

    async def _find_node(self, network: Network) -> Node:
        """Return the node in a network; the first use of a network starts it. Tasks of the executor use the first of all."""
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
        """Say to tasks who this is."""
        executor, is_waiting = self._launch.executor, self._launch.key is None
        info = {"executor": executor.id, "pid": os.getpid(), "waiting": is_waiting}
        self._directory.write(INFO_NAME, json.dumps(info).encode())

    def _adopt(self, key: bytes, path: list[str]) -> None:
        """Belong to an application. Two tasks may both have seen that this one waits: then they say the same.

        Raises:
            OrderRefused: It belongs to another one.
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
        """Take an order of a task, and answer; say nothing to anybody else."""
        try:
            check_peer(writer.get_extra_info("socket"))
            writer.write(json.dumps(await self._answer(reader, writer)).encode() + b"\n")
        except ForeignPeer as exc:
            logger.warning(
                "user_refused",
                "a process of user %d wants to give orders to this agent, and is refused",
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
        """Prove who this is to a task that has proved the same, and read what it wants.

        Raises:
            OrderRefused: It is not from the driver of this application.
        """
        hello = Hello(self._launch.agent, self._launch.key is None, os.urandom(NONCE_BYTES))
        writer.write(hello.encode())
        key = self._launch.key or self._birth_key
        async with asyncio.timeout(OPENING_TIMEOUT_S):
            opening = await reader.readexactly(OPENING_BYTES)
        talk = Talk(key, hello, opening[:NONCE_BYTES])
        writer.write(json.dumps({"proof": talk.answer(opening).hex()}).encode() + b"\n")
        sealed = await _read_order(reader)
        if hello.is_waiting:
            # All is read before anything is refused: a socket that is closed with unread bytes takes the answer with it.
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
    logger.info("executor_ended", "executor %s has ended", executor.id)
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
    spawning: int | None = None
    if sys.argv[1:] == [AHEAD]:
        os.setsid()  # Spark signals groups of processes
        found = _prepare_ahead()
        if found is None:
            sys.exit(NOT_NEEDED)
        launch, directory, spawning = found
    else:
        launch = pickle.load(sys.stdin.buffer)  # noqa: S301 - from whoever started this process
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
        os._exit(status)  # threads of handlers may run for ever


def _prepare_ahead() -> tuple[Launch, PrivateDirectory, int] | None:
    """Find out what tasks tell other agents; return it with the directory, and what to close when tasks can talk to this one.

    Returns:
        None if it is not needed: there is an agent, or this is the driver, whose Python processes run no tasks of a cluster.
    """
    try:
        executor, path = find_executor(), agent_directory()
        if executor.id == LOCAL_ID or (reserved := reserve(path)) is None:
            return None
        redirect_to_log(executor)
        os.environ.update(agent_environment(executor))
        return Launch(path, executor, new_agent_id(), None), *reserved
    except Exception as exc:
        print(f"iris: no agent is started ahead: {type(exc).__name__}: {exc}", file=sys.stderr)  # noqa: T201
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
    """The limit of a Python worker's memory is inherited, and cannot be lifted again."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        logger.warning(
            "memory_limited",
            "this agent may use %d MiB of address space, as spark.executor.pyspark.memory says for Python workers. "
            "A handler that needs more fails with MemoryError; raise that setting.",
            limit >> 20,
        )


if __name__ == "__main__":
    main()
