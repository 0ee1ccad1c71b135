"""Nodes that a program has left open: they are closed when the event loop ends, and the log says so.

Theory of operation. The loop cannot tell a node that it is about to end. But :func:`asyncio.run` and :class:`asyncio.Runner`
cancel all tasks, and then close the asynchronous generators of their loop, so that each can clean up before the loop is closed.
A generator that waits beside each node uses that chance. A plain ``loop.close()`` gives none, so a function in its place does
the same first, once a node was started in the loop. For a loop that nobody closes the same is done at the end of the process.
"""

from __future__ import annotations

import asyncio
import atexit
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from iris_py.errors import IrisError
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from iris_py.api.node import Node

logger = EventLogger("iris_py")

#: How long tasks of a loop that nobody closes may go on after they were cancelled, at the end of the process (seconds). Too
#: small: what they clean up is cut off; too large: a task that does not end holds the process up.
CANCEL_TIMEOUT_S: Final = 1.0


class Guard:
    """Closes a node at the end of its event loop, if the program has not.

    Args:
        node: The node, which is open.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_closing = False
        self._waiting = self._wait()
        node._companions.append(self._end)  # so it lives as long as the node
        _guards.add(self)
        _guard_close(node._loop)

    async def begin(self) -> None:
        """Wait for the end of the loop from now on."""
        await anext(self._waiting)

    @property
    def abandoned_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of an open node, if it stands still and is not closed."""
        loop = self._node._loop
        return None if self._node._closing is not None or loop.is_running() or loop.is_closed() else loop

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._node._closing is None:
                await self._close()

    async def _close(self) -> None:
        self._is_closing = True
        logger.warning(
            "node_unclosed",
            "the node %s was still open when its event loop ended, so running work was cut off. Use `async with "
            "iris_py.connect() as node:`, or call `await node.close()`",
            self._node.id[:8],
            about=self._node.id,
            node=self._node.id,
        )
        await self._node.close(timeout=0.0)

    async def _end(self) -> None:
        """The node is closed: there is nothing to wait for."""
        if not self._is_closing:
            await self._waiting.aclose()


_guards: WeakSet[Guard] = WeakSet()


def ignore_abandoned_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let a loop whose program has ended not report tasks that end with an error of Iris, for their nodes are being closed.

    Tasks that asyncio cancels at the end are not reported either.
    """
    report = loop.get_exception_handler() or (lambda loop, context: loop.default_exception_handler(context))

    def report_others(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), IrisError):
            report(loop, context)

    loop.set_exception_handler(report_others)


@atexit.register
def _end_abandoned_loops() -> None:
    """The process ends: do for each loop with an open node what :func:`asyncio.run` does at its end."""
    for loop in _abandoned_loops():
        _end_loop(loop)


def _guard_close(loop: asyncio.AbstractEventLoop) -> None:
    """Let ``loop.close()`` close the nodes of the loop first."""

    def close() -> None:
        if loop in _abandoned_loops():
            _end_loop(loop)
        type(loop).close(loop)

    with suppress(TypeError):  # an event loop without attributes of its own
        vars(loop)["close"] = close


def _abandoned_loops() -> set[asyncio.AbstractEventLoop]:
    return {loop for guard in list(_guards) if (loop := guard.abandoned_loop) is not None}


def _end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that stands still, and close its nodes."""
    ignore_abandoned_tasks(loop)
    with suppress(Exception):  # nobody is there any more who could be told
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
