"""The network of `iris demo --nats`: a native program, door processes and member processes, which are killed and replaced."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.children import run_all
from iris_py.cli.demo import nats_door_process, nats_member
from iris_py.cli.demo.crew import Crew, ProcessReplacement
from iris_py.cli.demo.member import NETWORK
from iris_py.cli.demo.nats_load import NatsLoad
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["COMMAND", "NatsDemo", "open_demo"]

COMMAND: Final = "iris demo --nats"
DOORS: Final = 2


class NatsDemo:
    """The running network.

    Args:
        load: The programs that use the network.
        doors: The processes of the doors.
        members: The processes of the native members.

    Attributes:
        load: As passed.
        doors: As passed.
        members: As passed.
        door_replacement: Kills and replaces doors.
        member_replacement: Kills and replaces members.
    """

    def __init__(self, load: NatsLoad, doors: Crew, members: Crew) -> None:
        self.load = load
        self.doors = doors
        self.members = members
        self.door_replacement = ProcessReplacement(doors, "door")
        self.member_replacement = ProcessReplacement(members, "member")
        doors.hasten()  # a door serves no request of its own to be killed at


@asynccontextmanager
async def open_demo(member_count: int) -> AsyncIterator[NatsDemo]:
    """Start the network with its load, and end it.

    Args:
        member_count: Number of native members.

    Raises:
        MemberFailed: A member or a door did not start.
    """
    secret = Secret.generate(os.urandom)
    config = iris_py.Config(network=NETWORK, secret=secret, discovery=False, name="native")
    async with (
        iris_py.connect(config=config) as node,
        Crew(node.address, secret, nats_member.__name__, command=COMMAND) as members,
        Crew(node.address, secret, nats_door_process.__name__, command=COMMAND) as doors,
    ):
        await run_all((members.start_many(member_count, "served"), doors.start_many(DOORS, "served")))
        async with NatsLoad(node, [f"nats://{each.id}" for each in doors.members]) as load:
            demo = NatsDemo(load, doors, members)
            try:
                yield demo
            finally:
                await demo.door_replacement.end()
                await demo.member_replacement.end()
