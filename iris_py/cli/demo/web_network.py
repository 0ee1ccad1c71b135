"""The network of `iris demo --web`: nodes of the door and the market, and member processes, which are killed and replaced."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.demo import web_member
from iris_py.cli.demo.crew import Crew, ProcessReplacement
from iris_py.cli.demo.member import NETWORK
from iris_py.cli.demo.web_market import Market
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.cli.demo.crew import CrewMember

__all__ = ["COMMAND", "WebDemo", "open_demo"]

COMMAND: Final = "iris demo --web"


class WebDemo:
    """The running network.

    Args:
        door_node: The node of the door.
        market: Publishes prices and makes requests.
        crew: The members.

    Attributes:
        door_node: As passed.
        market: As passed.
    """

    def __init__(self, door_node: iris_py.Node, market: Market, crew: Crew) -> None:
        self.door_node = door_node
        self.market = market
        self._crew = crew
        self._replacement = ProcessReplacement(crew, "member")

    @property
    def members(self) -> list[CrewMember]:
        """The living members."""
        return [member for member in self._crew.members if not member.is_killed]

    def begin_kill(self) -> None:
        """Kill a member that executes a request, and start another one some seconds later; nothing if that is under way."""
        self._replacement.begin()

    async def end(self) -> None:
        """End a replacement under way."""
        await self._replacement.end()


@asynccontextmanager
async def open_demo(member_count: int) -> AsyncIterator[WebDemo]:
    """Start the network with its load, and end it.

    Args:
        member_count: Number of members.

    Raises:
        MemberFailed: A member did not start.
    """
    secret = Secret.generate(os.urandom)
    config = iris_py.Config(network=NETWORK, secret=secret, discovery=False, name="door")
    async with iris_py.connect(config=config) as door_node:
        seeds = (door_node.address,)
        config = iris_py.Config(network=NETWORK, secret=secret, seeds=seeds, discovery=False, name="market")
        async with (
            iris_py.connect(config=config) as node,
            Crew(door_node.address, secret, web_member.__name__, command=COMMAND) as crew,
        ):
            await crew.start_many(member_count, "served")
            demo = WebDemo(door_node, Market(node), crew)
            load = asyncio.create_task(demo.market.run())
            try:
                yield demo
            finally:
                load.cancel()
                await asyncio.wait((load,))
                await demo.end()
