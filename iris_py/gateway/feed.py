"""Feeds: whoever at a gateway is given messages of topics of a neighbour, such as the tunnel of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.errors import TunnelBroken, TunnelClosed
from iris_py.federation import items

if TYPE_CHECKING:
    import asyncio

    from iris_py.api.tunnel import Tunnel
    from iris_py.gateway.item_queue import ItemQueue
    from iris_py.patterns.topic.names import Tokens


class Feed:
    """The wishes of somebody here for topics of one neighbour.

    Args:
        alias: The neighbour.
        is_blocking: Whether publishers are to wait for it.
        queue: Holds what waits to be given to it.

    Attributes:
        alias: The neighbour.
        is_blocking: Whether publishers are to wait for it.
        queue: Holds what waits to be given to it.
        plans: What is wanted: each pattern as it was added, split among the flows of the neighbour's rules.
        tellings: The tasks that wait for a neighbour's answer, by the pattern that they are about.
    """

    def __init__(self, alias: str, is_blocking: bool, queue: ItemQueue) -> None:
        self.alias = alias
        self.is_blocking = is_blocking
        self.plans: dict[str, dict[Any, set[Tokens]]] = {}
        self.queue = queue
        self.tellings: dict[str, asyncio.Task[None]] = {}

    def lose(self, name: str, outcome: bytes) -> None:
        """Be told that a pattern cannot be had any more, and why."""
        raise NotImplementedError

    def end(self, reason: str) -> None:
        """Be told that nothing can be had of this gateway any more."""
        raise NotImplementedError


class TunnelFeed(Feed):
    """The wishes of one node, through one tunnel.

    Args:
        tunnel: The tunnel.
        alias: The neighbour.
        is_blocking: Whether publishers are to wait for it.
        queue: Holds what waits to be sent.
    """

    def __init__(self, tunnel: Tunnel, alias: str, is_blocking: bool, queue: ItemQueue) -> None:
        super().__init__(alias, is_blocking, queue)
        self.tunnel = tunnel

    async def send(self) -> None:
        """Send what waits, until the tunnel ends."""
        try:
            while True:
                await self.tunnel.send(items.encode_items(items.ITEM, await self.queue.take()))
        except (TunnelBroken, TunnelClosed):
            pass

    def lose(self, name: str, outcome: bytes) -> None:
        """Tell the node."""
        if not self.tunnel._try_send(items.encode_lost(name, outcome)):
            self.end("the node does not take what it is told")

    def end(self, reason: str) -> None:
        """Break the tunnel: the node looks for another gateway."""
        self.tunnel._break(reason, "CloudUnavailable", reason)
