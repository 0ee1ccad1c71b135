"""The statistics of a node for whatever thread asks: they belong to its event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Final

from iris_py.sync import Node as SyncNode

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.observe.statistics import Statistics

__all__ = ["NodeReader", "inner_node"]

#: How long (seconds) another thread waits for the event loop of the node; then it gets what was read last. Too small: a busy
#: loop shows old figures; too large: a scrape takes as long as what it is to warn of.
WAIT_S: Final = 1.0


def inner_node(node: Node | SyncNode) -> Node:
    """Return the node in its event loop: of one of :mod:`iris_py.sync` what is behind it."""
    return node._inner if isinstance(node, SyncNode) else node


class NodeReader:
    """Reads the statistics of a node.

    Args:
        node: The node, of :mod:`iris_py` or of :mod:`iris_py.sync`.
    """

    def __init__(self, node: Node | SyncNode) -> None:
        self._node = inner_node(node)
        self._last: Statistics | None = None
        self._lock = threading.Lock()  # of several other threads one asks

    def read(self) -> Statistics | None:
        """Return the statistics now, from another thread at the latest after ``WAIT_S`` those that were read last.

        Returns:
            None if there are none yet: the event loop of the node has stood still since it was made known.
        """
        loop = self._node._loop
        try:
            is_inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_inside = False
        if is_inside:
            self._last = self._node.statistics()
            return self._last
        with self._lock:
            asked: concurrent.futures.Future[Statistics] = concurrent.futures.Future()
            try:
                loop.call_soon_threadsafe(self._answer, asked)
                self._last = asked.result(WAIT_S)
            except (RuntimeError, TimeoutError):
                asked.cancel()  # the loop is closed, or stands still
        return self._last

    def _answer(self, asked: concurrent.futures.Future[Statistics]) -> None:
        """In the loop of the node."""
        if asked.set_running_or_notify_cancel():
            asked.set_result(self._node.statistics())
