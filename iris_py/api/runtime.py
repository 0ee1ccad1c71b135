"""The shared runtime of one node: its core, driver, event loop and settings, for the parts of :class:`~iris_py.api.node.Node`.

Each part of a node (:class:`~iris_py.api.topic.Topics` and so on) takes the runtime, and the other parts that it needs, as
arguments. No part inherits from another one.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from iris_py.api.arguments import check_name
from iris_py.api.loops import PartInLoop
from iris_py.api.threads import DaemonThreads
from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.federation.names import CLOUD_MARK, check_own_name, split
from iris_py.wire.names import refusals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from iris_py.config import Config
    from iris_py.net.busy_poll import BusyPoll
    from iris_py.net.driver import Driver
    from iris_py.node.core import NodeCore
    from iris_py.patterns.topic.bodies import PublicationBatch
    from iris_py.tracing import Tracing
    from iris_py.wire.headers import Headers
    from iris_security import Entropy, Keyring

Result = TypeVar("Result")

#: Broadcasts, publications and subscriptions before the event loop gets a turn. A loop of these calls may never have to wait,
#: and would otherwise stop all other tasks. Too small: batches stay small; too large: other tasks wait.
SENT_PER_TURN_MAX = 256
#: Bytes of an ended batch that cost as much as a message; a publication added to a batch costs nothing. Too small: full batches
#: are sent alone, and batches of many topics half full; too large: megabytes of payloads are made before any is sent.
BATCH_COST_BYTES = 2048

#: Cached names of the own cloud. A full cache is cleared, and names are checked again; a program with more names has as many
#: groups, each of which costs a thousand times as much memory.
OWN_NAMES_MAX = 4096

#: The runtimes of this process: a fork of the process must disable its copies.
_runtimes: WeakSet[Runtime] = WeakSet()


class Reports:
    """Gives futures for the overlay's reports that all nodes know of a change: this node has joined or left a group.

    The overlay reports each change once, and the changes of one group in their order.

    Args:
        loop: The event loop of the node.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[bytes, deque[asyncio.Future[None]]] = {}  # by group, in the order of the changes

    def __contains__(self, group_id: bytes) -> bool:
        return group_id in self._waiting

    def expect(self, group_id: bytes) -> asyncio.Future[None]:
        """Return a future that is done when all nodes know of the change that this node has just made to its part in a group.

        Call it once for each change, in the order of the changes: the overlay's reports resolve the futures in this order.
        """
        reported = self._loop.create_future()
        self._waiting.setdefault(group_id, deque()).append(reported)
        return reported

    def last(self, group_id: bytes) -> asyncio.Future[None] | None:
        """Return the future of the latest unreported change to a group; None without one."""
        waiting = self._waiting.get(group_id)
        return waiting[-1] if waiting else None

    def receive(self, group_id: bytes) -> None:
        """Resolve the earliest future of a group, because the report of its change has come."""
        waiting = self._waiting.get(group_id)
        if waiting:
            resolve([waiting.popleft()])
        if not waiting:
            self._waiting.pop(group_id, None)

    def end(self) -> None:
        """Resolve all futures, because no further reports come."""
        for waiting in self._waiting.values():
            resolve(waiting)


class Runtime(PartInLoop):
    """The core, driver, event loop and settings of one node.

    Args:
        config: The settings.
        keyring: The secrets of the settings.
        is_simulated: Whether the network is simulated, so that a run must not depend on the machine.

    Attributes:
        core: The pure core; made when the node opens, as ``entropy`` is.
        driver: Runs the core on the network.
        loop: The event loop of the node.
        is_own_thread: Returns whether the caller is in the thread of the node's event loop.
        listened: The listening address; known when the node opens.
        entropy: Randomness for keys.
        keyring: The secrets in use; a rotation replaces it.
        tracing: The spans of the node; None without tracing.
        threads: The threads of plain functions and callbacks.
        closing: The end of the node, done once the node has ended; None while the node is open.
        started_at: The start of the node, by the clock of the loop.
        is_inherited: Whether this process is a fork of the node's process.
        own_names: The names of this cloud that were used and need no second check.
        runs: By topic: the batch that accepts further publications. Empty while publications are not batched.
        unrested: The number of messages sent since the event loop last had a turn.
        busy_poll: Polls the sockets for the reply, after the only request in flight; None to sleep at once.
        next_poll: Polls the sockets for the next request, after the reply to a lone request; None to sleep at once.
        joins: Waits until all nodes know of a joined group.
        leaves: Waits until all nodes know of a left group.
        companions: Functions called after the end of the node, for example to close its health endpoint.
    """

    _what = "node"
    core: NodeCore
    driver: Driver
    entropy: Entropy
    listened: str

    def __init__(self, config: Config, keyring: Keyring, *, is_simulated: bool) -> None:
        super().__init__()
        self.config = config
        self.keyring = keyring
        self.is_simulated = is_simulated
        self.tracing: Tracing | None = None  # read for every message sent: the check must cost no more than this
        self.threads = DaemonThreads(None, "iris-handler")
        self.closing: asyncio.Future[None] | None = None
        self.started_at = self.loop.time()
        self.is_inherited = False
        self.own_names: set[str] = set()
        self.runs: dict[str, PublicationBatch] = {}
        self.unrested = 0
        self.busy_poll: BusyPoll | None = None
        self.next_poll: BusyPoll | None = None
        self.joins = Reports(self.loop)
        self.leaves = Reports(self.loop)
        self.companions: list[Callable[[], Awaitable[None]]] = []
        self._process = os.getpid()
        self._room_waiters: list[asyncio.Future[None]] = []
        _runtimes.add(self)

    # -- checks of callers and names

    def check_open(self) -> None:
        """Refuse a call from another event loop, after the end, or from a fork of the process.

        Raises:
            ConfigurationError: The event loop or the process is another one.
            NodeClosed: The node was closed.
        """
        if not (self.is_own_thread() and self.loop.is_running()):  # as check_loop(), inlined for requests
            self.check_loop()
        if self.closing is not None:
            self.check_loop()  # in a fork this gives the reason
            raise NodeClosed

    def check_loop(self) -> None:
        """Refuse a call from another event loop, or from a fork of the process.

        Raises:
            ConfigurationError: The event loop or the process is another one.
        """
        if self.is_inherited:
            raise ConfigurationError(
                f"this node belongs to process {self._process}, and process {os.getpid()} is a fork of it. "
                "Connect after the fork, with iris_py.connect()."
            )
        self._check_loop()

    def is_far(self, name: str) -> bool:
        """Tell whether a name belongs to another cloud. Call this for names outside ``own_names``; own names are added.

        Raises:
            ConfigurationError: The name is not valid for users, in this cloud or another.
        """
        if isinstance(name, str) and CLOUD_MARK in name:
            with refusals:
                split(name)
            return True
        self.check_own_name(name)
        return False

    def check_own_name(self, name: str) -> None:
        """Refuse a name that users cannot choose in the own cloud.

        Raises:
            ConfigurationError: The name is not valid.
        """
        check_name("cluster", name)
        if name in self.own_names:
            return
        with refusals:
            check_own_name(name)
        if len(self.own_names) >= OWN_NAMES_MAX:
            self.own_names.clear()
        self.own_names.add(name)

    # -- sending

    async def send_to_all(
        self, send: Callable[[str, bytes, float, Headers], int | None], name: str, payload: bytes, headers: Headers
    ) -> int:
        """Broadcast or publish a message as soon as the links have room; return the number of receivers.

        Args:
            send: Sends the message; returns the number of receivers, or None if the caller must wait for room.
            name: The cluster or the topic.
            payload: The message.
            headers: Its headers.
        """
        self.check_loop()
        count = send(name, payload, self.loop.time(), headers)
        if count is None:
            count = await self.send_later(send, name, payload, headers)
        self.driver.wake()
        if self.charge_turn():
            await asyncio.sleep(0)
        return count

    async def send_later(
        self, send: Callable[[str, bytes, float, Headers], int | None], name: str, payload: bytes, headers: Headers
    ) -> int:
        """Wait for room, and send a message, as :meth:`send_to_all` after the first attempt."""
        while True:
            self.driver.wake()
            await self.wait_for_room()
            self.check_open()
            count = send(name, payload, self.loop.time(), headers)
            if count is not None:
                return count

    def charge_turn(self, cost: int = 1) -> bool:
        """Charge a message to this turn of the event loop; return whether the caller must now give the loop another turn.

        Args:
            cost: The cost of the message in ``SENT_PER_TURN_MAX``.
        """
        self.unrested += cost
        if self.unrested < SENT_PER_TURN_MAX:
            return False
        self.unrested = 0
        return True

    def wake(self) -> None:
        """Send the output of the core in this turn of the event loop."""
        self.driver.wake()

    async def wait_for_room(self) -> None:
        """Wait until a link has room again or a first membership view arrives; the caller then tries again."""
        waiter = self.loop.create_future()
        self._room_waiters.append(waiter)
        await waiter

    def handle_room(self) -> None:
        """Wake the tasks in :meth:`wait_for_room`."""
        waiters, self._room_waiters = self._room_waiters, []
        resolve(waiters)

    def spawn(self, coroutine: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Run a task that outlives the calling task, with the context of :func:`iris_py.connect` and not the caller's."""
        return self.driver.run_apart(self.loop.create_task, coroutine)

    # -- the end

    def disown(self) -> None:
        """In the child of a fork: refuse all use, and release the sockets, which belong to the parent (docs/design.md 10.5)."""
        self.is_inherited = True
        self.runs = {}
        self.closing = self.loop.create_future()
        self.closing.set_result(None)
        if hasattr(self, "driver"):
            self.driver.disown()


class HasRuntime(Protocol):
    """A node with a runtime."""

    _runtime: Runtime


#: Returns the runtime of a node, for code beside the public methods of the node: gateways, bulk requests, health endpoints.
runtime_of: Callable[[HasRuntime], Runtime] = attrgetter("_runtime")


def resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    """Set the result of each future that is not done yet."""
    for future in futures:
        if not future.done():
            future.set_result(None)


def _handle_fork() -> None:
    """Disown the runtimes in the child of a fork."""
    for runtime in list(_runtimes):
        runtime.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
