"""Executors as a cluster: the driver's side.

Each executor has one agent, a process with an Iris node, and the driver sends requests to executors by name.
:mod:`.reconciler` finds executors without an agent, :mod:`.spawn` runs on these executors and starts :mod:`.agent`, and
:mod:`.orders` are the driver's messages to agents.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import json
import math
import os
import pickle
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import iris_py
import iris_py.sync as iris
from iris_py import ConfigurationError, IrisError, MemberLost, MessageTooLarge, NodeClosed, NoMembers, RemoteError
from iris_py.connector import (
    HANDLER_QUEUE_BYTES,
    HANDLER_QUEUE_MESSAGES,
    REQUEST_TIMEOUT_S,
    SURVEY_TIMEOUT_S,
    TUNNEL_TIMEOUT_S,
    TUNNEL_WINDOW_BYTES,
    TUNNELS,
    EventLogger,
    Unpicklable,
    check_count,
    check_flag,
    check_join_options,
    check_time,
)
from spark_connector.errors import ApplicationEnded, ExecutorsMissing, UpdateFailed
from spark_connector.executors.application import Application, ensure_task
from spark_connector.executors.orders import (
    BYE,
    GREET,
    OVERHEAD_BYTES,
    TOKEN_BYTES,
    UPDATE,
    Order,
    agent_key,
    control_name,
    own_name,
    pickle_handler,
    seal_order,
)
from spark_connector.executors.reconciler import RETRY_S, RETRY_S_MAX, Reconciler, ReconcilerCallbacks
from spark_connector.network import Network
from spark_connector.settings import network_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession

    from iris_py.connector import AnyHandler, BytesLike, HeaderValue

__all__ = ["Executor", "ExecutorCluster"]

logger = EventLogger("spark_connector")

#: How long the driver tries to reach a new agent (seconds): each must have found the other in the network.
GREET_TIMEOUT_S = 5.0
#: How long agents may take to load a new handler with its imports.
UPDATE_TIMEOUT_S = 30.0
#: How long agents may take to leave when the cluster is closed; slower agents end with their executors.
BYE_TIMEOUT_S = 2.0
#: Interval of checks in ``wait()``.
LOOK_INTERVAL_S = 0.05
#: Longest name of a cluster: the names of executors and control clusters add to it, and have 255 bytes.
NAME_BYTES_MAX = 160


@dataclass(frozen=True, kw_only=True)
class Executor:
    """An executor that is a member of an :class:`ExecutorCluster`."""

    id: str
    """The id of the executor in Spark; ``driver`` in local mode."""
    host: str
    """The host name."""
    pid: int
    """The process id of the agent on that host."""
    node: str
    """The id of the agent's node, as in the ``member`` of a survey's reply and the ``source`` of messages."""
    generation: int
    """The generation of the handler: 1 at first, incremented by ``update()``."""


@dataclass(frozen=True)
class _OrderTarget:
    """An agent to which the driver sends orders."""

    executor: str
    """The id of the executor."""
    node: str
    """The id of the node."""
    key: bytes = field(repr=False)
    """The key for orders."""


@dataclass
class _GreetedExecutor:
    """An executor whose agent the driver has reached, and the membership view that tells whether the agent is alive."""

    executor: Executor
    agent: _OrderTarget
    view: iris.Members
    next_s: float = 0.0
    """When to send the current handler again, if the agent has not loaded it."""
    delay_s: float = RETRY_S
    """The pause between the next attempt and the attempt after it (seconds)."""


class ExecutorCluster(Unpicklable):
    """The executors of a Spark application as a cluster: executors are members while they live.

    Use it with ``with``, or :meth:`close` it; it closes itself when the Spark application ends. The constructor returns at
    once; :meth:`wait` waits for the executors. All methods are thread-safe. Every node of the network can use the cluster by
    its name, and one executor by ``<name>.<executor id>``, with all messaging patterns.

    Args:
        spark: A session of a driver; jobs may be running.
        name: The cluster: 1 to 160 bytes of UTF-8. Two applications with the same name at the same time form one cluster.
        handler: As for ``Node.join()``: a function of a request, or a ``Handler``, of ``iris_py`` or ``iris_py.sync``. It is
            sent to the executors as a pickle, with its code if it is defined in the main program.
        network: The network of executors and driver; see :class:`Network`. By default the settings ``spark.iris.*`` of the
            session, and without any the network of the user and the machine.
        node: A node for the driver, used instead of starting one with ``network``; the cluster does not close this node.
        poll: Interval of checks for executors without an agent, in seconds.
        concurrency: As for ``Node.join()``, at each executor; likewise the remaining arguments.
        queue_messages: As for ``Node.join()``.
        queue_bytes: As for ``Node.join()``.
        weight: As for ``Node.join()``.
        inline: As for ``Node.join()``.
        tunnels: As for ``Node.join()``.
        tunnel_window_bytes: As for ``Node.join()``.

    Raises:
        ConfigurationError: An argument is wrong, the handler cannot be pickled, or the session is of Spark Connect.
        MessageTooLarge: The handler is larger than a message may be.
        HandshakeError: Every seed answers, and no seed holds this secret.
        ApplicationEnded: The Spark application has ended.
    """

    _instead = (
        "it belongs to the process of the driver. In a task, send requests to executors with local_agent().request() and the "
        "name of the cluster."
    )

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        handler: AnyHandler,
        *,
        network: Network | None = None,
        node: iris.Node | None = None,
        poll: float = 0.5,
        concurrency: int | None = None,
        queue_messages: int = HANDLER_QUEUE_MESSAGES,
        queue_bytes: int = HANDLER_QUEUE_BYTES,
        weight: float = 1.0,
        inline: bool = False,
        tunnels: int = TUNNELS,
        tunnel_window_bytes: int = TUNNEL_WINDOW_BYTES,
    ) -> None:
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
            raise ConfigurationError(f"name={name!r} must be text of 1 to {NAME_BYTES_MAX} bytes.")
        if isinstance(poll, bool) or not (isinstance(poll, int | float) and 0 < poll < math.inf):
            raise ConfigurationError(f"poll={poll!r} must be a positive and finite number of seconds.")
        if network is not None and not isinstance(network, Network):
            raise ConfigurationError(f"network={network!r} must be a spark_connector.Network.")
        _check_node(node)
        options = {
            "concurrency": concurrency,
            "queue_messages": queue_messages,
            "queue_bytes": queue_bytes,
            "weight": weight,
            "inline": inline,
            "tunnels": tunnels,
            "tunnel_window_bytes": tunnel_window_bytes,
        }
        check_flag("inline", inline)
        given = 1 if concurrency is None else concurrency
        check_join_options(**{name: value for name, value in options.items() if name != "inline"} | {"concurrency": given})
        blob = pickle_handler(handler)
        self._name = name
        self._application = Application(spark)
        self._token = _token_of(self._application.id)
        self._instance = os.urandom(4).hex()
        self._entries: dict[str, _GreetedExecutor] = {}
        self._greeted: dict[str, _OrderTarget] = {}  # by executor
        self._lock = threading.RLock()
        self._updating = threading.Lock()
        self._closing = threading.Lock()
        self._is_closed = False
        self._has_application_ended = False
        network = network or network_of(spark)
        if node is not None and network.name is None:
            network = replace(network, name=node.network)
        self._is_own = node is None
        self._node = iris.connect(**network.arguments()) if node is None else node
        try:
            self._check_size(blob)
            network = replace(network, seeds=(*network.seeds, self._node.address))
            self._order = Order(name, self._instance, network, 1, blob, options)  # the order for new executors
            self._sound = self._order  # the newest order whose handler was loaded by every executor that received it
            self._unsound: set[int] = set()  # generations that some executor could not load
            self._newest = 1  # the newest generation sent to executors, loaded or not
            self._reconciler = self._make_reconciler(poll)
            _register(self._application.id, self)
        except BaseException:
            self._close_node()
            raise
        try:
            self._reconciler.start()
        except BaseException:  # the system has no thread left
            self.close()
            raise

    def _make_reconciler(self, poll: float) -> Reconciler:
        return Reconciler(
            self._application,
            f"iris-executors-{self._instance}",
            poll,
            ReconcilerCallbacks(
                task=self._make_task,
                members=lambda: self.members,
                found=self._greet,
                looked=self._update_laggards,
                ended=self._end_with_application,
            ),
            # Under dynamic allocation, retries must leave a failing executor idle long enough to be removed.
            retry_s_max=max(RETRY_S_MAX, 2 * (self._application.idle_s or 0.0)),
        )

    # -- properties

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._name

    @property
    def node(self) -> iris.Node:
        """The node of the driver, for topics, other clusters and all other features of a node.

        :meth:`close` also closes this node, unless the program gave it.
        """
        return self._node

    @property
    def generation(self) -> int:
        """The generation of the handler for new executors."""
        return self._order.generation

    @property
    def members(self) -> dict[str, Executor]:
        """The executors that serve the cluster, as far as the driver's node knows, by executor id; empty after the end."""
        if self._is_closed:
            return {}
        with self._lock:
            entries = dict(self._entries)
        return {key: entry.executor for key, entry in entries.items() if _is_in_view(entry)}

    def __repr__(self) -> str:
        return f"<ExecutorCluster {self._name!r}, generation {self._order.generation}>"

    # -- the patterns

    def request(
        self,
        payload: BytesLike,
        *,
        to: str | Executor | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        wait_for_members: float | None = None,
    ) -> bytes:
        """Send a request to one executor: any, or the one given by ``to``, an id or a value of :attr:`members`.

        This is :meth:`iris_py.Node.request`, with the same arguments and errors. ``wait_for_members`` is the number of seconds
        that the request waits for a missing executor.
        """
        return self._open_node().request(
            self._target(to),
            payload,
            timeout=timeout,
            idempotent=idempotent,
            key=key,
            headers=headers,
            wait_for_members=wait_for_members,
        )

    def broadcast(self, payload: BytesLike, *, headers: Mapping[str, HeaderValue] | None = None) -> int:
        """Send a message to every executor; return the number of executors. See :meth:`iris_py.Node.broadcast`."""
        return self._open_node().broadcast(self._name, payload, headers=headers)

    def survey(
        self,
        payload: BytesLike,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> iris.Survey:
        """Send a request to every executor; loop over the replies, or ``wait()`` for all. See :meth:`iris_py.Node.survey`."""
        return self._open_node().survey(self._name, payload, timeout=timeout, stop_after=stop_after, headers=headers)

    def tunnel(
        self,
        *,
        to: str | Executor | None = None,
        timeout: float = TUNNEL_TIMEOUT_S,
        window_bytes: int = TUNNEL_WINDOW_BYTES,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> iris.Tunnel:
        """Open a tunnel to one executor: any, or the one given by ``to``. See :meth:`iris_py.Node.tunnel`."""
        return self._open_node().tunnel(self._target(to), timeout=timeout, window_bytes=window_bytes, headers=headers)

    # -- members

    def wait(self, count: int | None = None, *, timeout: float = 30.0) -> dict[str, Executor]:
        """Wait for executors; return :attr:`members`.

        Args:
            count: Number of members to wait for; by default all executors except those being removed, and at least 1.
            timeout: Maximum seconds to wait.

        Raises:
            ExecutorsMissing: The timeout passed; the error lists the missing executors with reasons.
            ApplicationEnded: The Spark application has ended.
            NodeClosed: The cluster was closed.
        """
        if count is not None:
            check_count("count", count, 0)
        check_time("timeout", timeout)
        deadline = time.monotonic() + timeout
        while True:
            self._open_node()
            members, live = self.members, self._application.executors()
            lacking = [executor for executor in live if executor not in members]
            if lacking:
                leaving = self._application.leaving(lacking)
                lacking = [executor for executor in lacking if executor not in leaving]
            if (members and not lacking) if count is None else len(members) >= count:
                return members
            if time.monotonic() > deadline:
                raise ExecutorsMissing(self._name, timeout, list(members), self._reconciler.reasons(lacking), count)
            time.sleep(LOOK_INTERVAL_S)

    def update(self, handler: AnyHandler, *, timeout: float = UPDATE_TIMEOUT_S) -> int:
        """Replace the handler; on return every member runs the new handler, and so will new executors.

        Requests queued at an executor go to the new handler; requests in progress finish with the old handler. Arguments of the
        constructor, such as ``concurrency``, stay. A member that fails to load the new handler continues with the old one. If
        no member can load the new handler, it is given up. Otherwise lagging members and new executors receive the new handler;
        after a failure an executor runs the newest handler loaded by all executors.

        Args:
            handler: As for the constructor.
            timeout: Seconds that executors have to load the handler.

        Returns:
            The generation of the new handler.

        Raises:
            UpdateFailed: Some executors cannot load the handler, or did not answer; the error lists each member's generation.
            ConfigurationError: The handler cannot be pickled.
            MessageTooLarge: The handler is larger than a message may be.
            ApplicationEnded: The Spark application has ended.
            NodeClosed: The cluster was closed.
        """
        check_time("timeout", timeout)
        blob = pickle_handler(handler)
        self._check_size(blob)
        with self._updating:
            self._open_node()
            with self._lock:
                self._newest += 1
                before = (self._sound.generation, self._sound.blob)
                order = replace(self._order, generation=self._newest, blob=blob, before=before)
            failures, generations = self._spread(order, timeout)
            self._reconciler.hurry()
        if failures:
            raise UpdateFailed(self._name, order.generation, failures, generations, self._order.generation)
        return order.generation

    def _spread(self, order: Order, timeout: float) -> tuple[dict[str, str], dict[str, int]]:
        """Send a new handler to all members. Unless every member refuses the handler, executors that join later get it too.

        Returns:
            The failures by executor, and the present generation of each member.
        """
        asked: list[_GreetedExecutor] = []
        failures: dict[str, str] = {}
        refusals: set[str] = set()
        while True:
            with self._lock:
                entries = [entry for entry in self._entries.values() if entry not in asked and _is_in_view(entry)]
                if not entries:  # executors greeted later receive it before they are members
                    members = {each.executor.id: each.executor for each in self._entries.values() if _is_in_view(each)}
                    generations = {key: executor.generation for key, executor in members.items()}
                    if not refusals or not refusals.issuperset(members):
                        self._order = order
                    if failures or asked:
                        self._note_loading(order, is_loaded=not failures)
                    return failures, generations
                for entry in entries:
                    entry.delay_s = RETRY_S
            failures |= self._send_updates(order, entries, timeout, refusals)
            asked += entries

    # -- the end

    def close(self) -> None:
        """Dismiss the agents, which end if they serve no other cluster, and close the driver's node. Harmless if repeated.

        The end of the Spark application, or of the program, does the same.
        """
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._reconciler.stop()
            try:
                with contextlib.suppress(IrisError):
                    self._dismiss()
                self._close_node()
            finally:
                _unregister(self._application.id, self.name)

    stop = close

    def _end_with_application(self) -> None:
        """Close the cluster: in local mode agents outlive the application, because the JVM continues."""
        self._has_application_ended = True
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- agents

    def _open_node(self) -> iris.Node:
        """Return the node of the driver.

        Raises:
            ApplicationEnded: The Spark application has ended.
            NodeClosed: The cluster was closed.
        """
        if self._has_application_ended:
            raise ApplicationEnded
        if self._is_closed:
            raise NodeClosed
        return self._node

    def _target(self, to: str | Executor | None) -> str:
        return self._name if to is None else own_name(self._name, to.id if isinstance(to, Executor) else to)

    def _check_size(self, blob: bytes) -> None:
        size, limit = len(blob) + OVERHEAD_BYTES, self._node.max_message_bytes
        if size > limit:
            raise MessageTooLarge(size, limit)

    def _close_node(self) -> None:
        if self._is_own:
            self._node.close(timeout=0.0)

    def _make_task(self) -> Any:  # noqa: ANN401 - a function for Spark
        return ensure_task(pickle.dumps((self._token, self._order)))

    def _command(self, verb: bytes, agent: _OrderTarget, order: Order, content: bytes, timeout: float) -> _Reply:
        name = control_name(self._name, agent.executor, self._instance)
        sealed = seal_order(agent.key, verb, agent.node, order.generation, content)
        return self._node.request_future(name, sealed, timeout=timeout, idempotent=verb != BYE)  # a missing agent needs no BYE

    def _greet(self, row: Mapping[str, Any]) -> str | None:
        """Reach the agent a task has reported, and record its executor as a member.

        Returns None on success, otherwise the reason why the executor is not a member yet.
        """
        executor, node = row["executor"], row["node"]
        agent = _OrderTarget(executor, node, agent_key(self._token, row["agent"]))
        deadline = time.monotonic() + UPDATE_TIMEOUT_S
        order, verb, content, timeout = self._order, GREET, b"", GREET_TIMEOUT_S
        running = refused = 0  # generations: the running one, and one that failed to load
        with self._lock:
            self._greeted[executor] = agent  # in advance, so that close() misses no agent
        while not self._is_closed and time.monotonic() < deadline:
            try:
                running = json.loads(self._command(verb, agent, order, content, timeout).result())["generation"]
            except RemoteError as exc:
                if not running:
                    return exc.text
                refused = order.generation
                logger.warning(
                    "update_failed",
                    "executor %s runs generation %d of the handler, not %d: %s",
                    executor,
                    running,
                    refused,
                    exc.text,
                    about=executor,
                    executor=executor,
                )
            except NodeClosed as exc:  # by this program, if the node is the program's own
                self.close()
                return str(exc)
            except IrisError as exc:
                where = f"its agent runs (process {row['pid']} at {row['host']}), but cannot be reached from here"
                return f"{where}: {exc} Check that executors can dial {self._node.address} or seeds=, with the same secret."
            with self._lock:
                order = self._order
                if running >= order.generation or refused == order.generation:
                    self._note_loading(order, is_loaded=running >= order.generation)
                    found = Executor(id=executor, host=row["host"], pid=row["pid"], node=node, generation=running)
                    view = self._node.members(control_name(self._name, executor, self._instance))
                    self._entries[executor] = _GreetedExecutor(found, agent, view, time.monotonic() + RETRY_S)
                    return None
            # The handler was replaced since the task began, or the executor cannot load it.
            verb, content, timeout = UPDATE, order.blob, UPDATE_TIMEOUT_S
        return "its handler was replaced again and again"

    def _note_loading(self, order: Order, *, is_loaded: bool) -> None:
        """Record whether an executor could load a handler. The caller holds the lock.

        New executors get the newest handler that no executor has failed to load.
        """
        if not is_loaded:
            self._unsound.add(order.generation)
            if self._sound.generation == order.generation and order.before is not None:
                self._sound = replace(order, generation=order.before[0], blob=order.before[1], before=None)
        elif order.generation not in self._unsound and order.generation > self._sound.generation:
            self._sound = order

    def _update_laggards(self) -> None:
        """Remove departed executors, and send the current handler to executors with an older one; called at each check."""
        live, now = set(self._application.executors()), time.monotonic()
        with self._lock:
            order = self._order
            for key in [key for key, entry in self._entries.items() if key not in live and not _is_in_view(entry)]:
                del self._entries[key]
                self._greeted.pop(key, None)
            entries = self._entries.values()
            lagging = [each for each in entries if each.executor.generation < order.generation and each.next_s <= now]
        if lagging:
            self._reconciler.submit(self._update_again, order, lagging)

    def _update_again(self, order: Order, lagging: list[_GreetedExecutor]) -> None:
        if self._updating.acquire(blocking=False):  # otherwise update() is running
            try:
                self._send_updates(order, lagging, UPDATE_TIMEOUT_S, set())
            finally:
                self._updating.release()

    def _send_updates(
        self, order: Order, entries: list[_GreetedExecutor], timeout: float, refusals: set[str]
    ) -> dict[str, str]:
        """Send a handler to members; return the failures by executor.

        Members that cannot load the handler are also added to ``refusals``.
        """
        asked = [
            (entry, self._command(UPDATE, entry.agent, order, order.blob, timeout)) for entry in entries if _is_in_view(entry)
        ]
        failures = {}
        for entry, future in asked:
            executor = entry.executor
            entry.next_s = time.monotonic() + entry.delay_s
            entry.delay_s = min(2 * entry.delay_s, RETRY_S_MAX)
            try:
                future.result()
            except (NoMembers, iris_py.NotConnected, MemberLost, iris_py.RequestTimeout, iris_py.Overloaded) as exc:
                if _is_in_view(entry):
                    failures[executor.id] = str(exc)
                continue
            except RemoteError as exc:
                failures[executor.id] = exc.text
                refusals.add(executor.id)
                continue
            with self._lock:
                entry.executor = replace(executor, generation=max(order.generation, entry.executor.generation))
        return failures

    def _dismiss(self) -> None:
        """Tell all agents to leave the cluster."""
        with self._lock:
            order, greeted = self._order, dict(self._greeted)
        asked = [self._command(BYE, agent, order, b"", BYE_TIMEOUT_S) for agent in greeted.values()]
        concurrent.futures.wait(asked, BYE_TIMEOUT_S)


_Reply = concurrent.futures.Future[bytes]

#: The open clusters of this process, by application id and name; and the token of each application.
_open: dict[tuple[str, str], ExecutorCluster] = {}
_tokens: dict[str, bytes] = {}
_register_lock = threading.Lock()


def _check_node(node: object) -> None:
    if node is not None and (isinstance(node, iris_py.Node) or not isinstance(getattr(node, "address", None), str)):
        raise ConfigurationError(f"node={node!r} must be a node of iris_py.sync.")


def _token_of(application: str) -> bytes:
    """Return the token of an application. All clusters of the application share the token, because the same agent serves all.

    A process has one application at a time, so the tokens of applications without an open cluster are forgotten.
    """
    with _register_lock:
        used = {application, *(other for other, _name in _open)}
        for ended in _tokens.keys() - used:
            del _tokens[ended]
        return _tokens.setdefault(application, os.urandom(TOKEN_BYTES))


def _register(application: str, cluster: ExecutorCluster) -> None:
    with _register_lock:
        key = (application, cluster.name)
        if key in _open:
            raise ConfigurationError(f"there is an ExecutorCluster {cluster.name!r} already. Close it, or use another name.")
        if not _open:
            atexit.unregister(_close_all)
            atexit.register(_close_all)  # now, so that it runs before the nodes are closed
        _open[key] = cluster


def _unregister(application: str, name: str) -> None:
    with _register_lock:
        _open.pop((application, name), None)


def _close_all() -> None:
    for cluster in list(_open.values()):
        cluster.close()


def _is_in_view(entry: _GreetedExecutor) -> bool:
    return any(member.id == entry.executor.node for member in entry.view)
