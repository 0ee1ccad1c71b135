"""The base of all parts of the public node: the core, the driver, and waiting for room on links."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from iris_py.api.arguments import check_name
from iris_py.api.loops import LoopBound
from iris_py.api.opening import Closable
from iris_py.api.threads import DaemonThreads
from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.federation.names import CLOUD_MARK, check_own_name, split
from iris_py.node.refusals import refusals

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable, Coroutine

    from iris_py.net.busy_poll import BusyPoll
    from iris_py.net.driver import Driver
    from iris_py.node.core import NodeCore
    from iris_py.peers.group import Run
    from iris_py.tracing import Tracing
    from iris_py.wire.headers import Headers
    from iris_security import Entropy

Result = TypeVar("Result")

#: Broadcasts, publications and subscriptions without a turn of the event loop. A loop of these calls may never have to wait and
#: would otherwise stop all other tasks. Too small: batches stay small; too large: other tasks wait.
SENT_PER_TURN_MAX = 256

#: Cached names of the own cloud. A full cache is cleared, and names are checked again; a program with more names has as many
#: groups, each of which costs a thousand times as much memory.
OWN_NAMES_MAX = 4096

#: The nodes of this process that may be open.
nodes: WeakSet[NodeBase] = WeakSet()


class NodeBase(LoopBound, Closable):
    """The state that the parts of :class:`~iris_py.api.node.Node` share."""

    _what = "node"
    _core: NodeCore
    _driver: Driver
    _entropy: Entropy

    def __init__(self) -> None:
        super().__init__()
        self._started_at = self._loop.time()
        nodes.add(self)
        self._leaves: dict[bytes, deque[asyncio.Future[None]]] = {}  # by group, in the order of the overlay's reports
        self._own_names: set[str] = set()  # already checked
        self._owner = os.getpid()
        self._is_inherited = False
        self._closing: asyncio.Future[None] | None = None
        self._room_waiters: list[asyncio.Future[None]] = []
        self._threads = DaemonThreads(None, "iris-handler")
        self._tracing: Tracing | None = None  # read for every message sent: the check must cost no more than this
        self._busy_poll: BusyPoll | None = None  # for replies
        self._next_poll: BusyPoll | None = None  # for the next request
        self._runs: dict[str, Run] = {}  # by topic: the batch that accepts further publications
        self._companions: list[Callable[[], Awaitable[None]]] = []  # called after the end, such as of the health endpoint
        self._unrested = 0  # sent and subscribed since the last turn of the event loop

    def _check_open(self) -> None:
        """Refuse a call from another event loop, after the end, or from a fork of the process.

        Raises:
            ConfigurationError: The event loop or the process is another one.
            NodeClosed: The node was closed.
        """
        if not (self._own_thread._is_owned() and self._loop.is_running()):  # as _check_loop(), inlined for requests
            self._check_loop()
        if self._closing is not None:
            self._check_loop()  # in a fork this gives the reason
            raise NodeClosed

    def _check_loop(self) -> None:
        """Refuse a call from another event loop, or from a fork of the process.

        Raises:
            ConfigurationError: The event loop or the process is another one.
        """
        if self._is_inherited:
            raise ConfigurationError(
                f"this node belongs to process {self._owner}, and process {os.getpid()} is a fork of it. "
                "Connect after the fork, with iris_py.connect()."
            )
        super()._check_loop()

    def _disown(self) -> None:
        """In the child of a fork: refuse all use, and release the sockets, which belong to the parent (docs/design.md 10.5)."""
        self._is_inherited = True
        self._runs = {}
        self._closing = self._loop.create_future()
        self._closing.set_result(None)
        if hasattr(self, "_driver"):
            self._driver.disown()

    def _is_far(self, name: str) -> bool:
        """Tell whether a name belongs to another cloud. Call this for names outside ``_own_names``; own names are added.

        Raises:
            ConfigurationError: The name is not valid for users, in this cloud or another.
        """
        if isinstance(name, str) and CLOUD_MARK in name:
            with refusals:
                split(name)
            return True
        self._check_own_name(name)
        return False

    def _check_own_name(self, name: str) -> None:
        """Refuse a name that users cannot choose in the own cloud.

        Raises:
            ConfigurationError: The name is not valid.
        """
        check_name("cluster", name)
        if name in self._own_names:
            return
        with refusals:
            check_own_name(name)
        if len(self._own_names) >= OWN_NAMES_MAX:
            self._own_names.clear()
        self._own_names.add(name)

    async def _send_to_all(
        self, send: Callable[[str, bytes, float, Headers], int | None], name: str, payload: bytes, headers: Headers
    ) -> int:
        """Broadcast or publish, as soon as there is room.

        Args:
            send: The command; returns the number of receivers, or None to wait.
            name: The cluster or the topic.
            payload: The message.
            headers: Its headers.
        """
        self._check_loop()
        while (count := send(name, payload, self._loop.time(), headers)) is None:
            self._driver.wake()
            await self._wait_for_room()
            self._check_open()
        self._driver.wake()
        self._unrested += 1
        if self._unrested >= SENT_PER_TURN_MAX:
            self._unrested = 0
            await asyncio.sleep(0)
        return count

    def _spawn(self, coroutine: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Run a task that outlives the calling task, in the context of :func:`iris_py.connect` and not of the caller."""
        return self._driver.run_apart(self._loop.create_task, coroutine)

    async def _wait_for_room(self) -> None:
        """Wait for a change that may end a wait: room on a link, or a first membership view."""
        waiter = self._loop.create_future()
        self._room_waiters.append(waiter)
        await waiter

    def _handle_room(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _handle_fork() -> None:
    """Disown the node in the child of a fork."""
    for node in list(nodes):
        node._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)


async def close_nodes() -> None:
    """Close the open nodes of the running loop."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(node._end() for node in list(nodes) if node._loop is loop))
