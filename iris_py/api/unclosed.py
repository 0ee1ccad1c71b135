"""Nodes left open by a program: the nodes are closed when the event loop ends, with a log line.

Theory of operation. The loop does not announce its end to a node. But :func:`asyncio.run` and :class:`asyncio.Runner` cancel
all tasks, and then close the asynchronous generators of their loop, so that each can clean up before the loop is closed. So a
waiting generator beside each node closes the node. A plain ``loop.close()`` does not close generators: once a node was started
in the loop, a replacement of ``loop.close()`` does the same first. Loops that the program never closes are ended the same way
at the end of the process.
"""

from __future__ import annotations

import asyncio
import atexit
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from iris_py.api.runtime import runtime_of
from iris_py.errors import IrisError
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from iris_py.api.runtime import Runtime

logger = EventLogger("iris_py")

#: How long tasks of an unclosed loop may run after their cancellation, at the end of the process (seconds). Too small: their
#: cleanup is cut off; too large: a task that does not end delays the process.
CANCEL_TIMEOUT_S: Final = 1.0


class OpenNode(Protocol):
    """A node of this process that may be open."""

    _runtime: Runtime

    @property
    def id(self) -> str:
        """The node id."""

    async def close(self, *, timeout: float = ...) -> None:
        """Close the node."""


#: The nodes of this process that may be open.
nodes: WeakSet[OpenNode] = WeakSet()


async def close_nodes() -> None:
    """Close the open nodes of the running loop."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(node.close() for node in list(nodes) if runtime_of(node).loop is loop))


class Guard:
    """Closes a node at the end of its event loop, unless the program did.

    Args:
        node: The open node.
    """

    def __init__(self, node: OpenNode) -> None:
        self._node = node
        self._runtime = runtime_of(node)
        self._is_closing = False
        self._waiting = self._wait()
        self._runtime.companions.append(self._end)  # so it lives as long as the node
        _guards.add(self)
        _guard_close(self._runtime.loop)

    async def begin(self) -> None:
        """Start the generator that closes the node at the end of the loop."""
        await anext(self._waiting)

    @property
    def abandoned_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the node if the loop neither runs nor is closed although the node is open; otherwise None."""
        loop = self._runtime.loop
        return None if self._runtime.closing is not None or loop.is_running() or loop.is_closed() else loop

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._runtime.closing is None:
                await self._close()

    async def _close(self) -> None:
        self._is_closing = True
        logger.warning(
            "node_unclosed",
            "the node %s was still open when its event loop ended, so running work was aborted. Use `async with "
            "iris_py.connect() as node:`, or call `await node.close()`",
            self._node.id[:8],
            about=self._node.id,
            node=self._node.id,
        )
        await self._node.close(timeout=0.0)

    async def _end(self) -> None:
        """End the guard, because the program has closed the node."""
        if not self._is_closing:
            await self._waiting.aclose()


_guards: WeakSet[Guard] = WeakSet()


def ignore_abandoned_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Suppress reports about tasks of an ended program that fail with an error of Iris, because their nodes are being closed.

    asyncio itself reports no tasks that it cancels at the end.
    """
    report = loop.get_exception_handler() or (lambda loop, context: loop.default_exception_handler(context))

    def report_others(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), IrisError):
            report(loop, context)

    loop.set_exception_handler(report_others)


@atexit.register
def _end_abandoned_loops() -> None:
    """At the end of the process, end each loop with an open node as :func:`asyncio.run` does."""
    for loop in _abandoned_loops():
        _end_loop(loop)


def _guard_close(loop: asyncio.AbstractEventLoop) -> None:
    """Make ``loop.close()`` close the nodes of the loop first."""

    def close() -> None:
        if loop in _abandoned_loops():
            _end_loop(loop)
        type(loop).close(loop)

    with suppress(TypeError):  # an event loop that allows no new attributes
        vars(loop)["close"] = close


def _abandoned_loops() -> set[asyncio.AbstractEventLoop]:
    return {loop for guard in list(_guards) if (loop := guard.abandoned_loop) is not None}


def _end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a stopped loop, and close its nodes."""
    ignore_abandoned_tasks(loop)
    with suppress(Exception):  # no caller is left to get the error
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
