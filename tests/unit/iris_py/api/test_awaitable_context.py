"""Objects that belong to a process are neither pickled nor copied, and say where to connect."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: list[Callable[[Any], Any]] = [pickle.dumps, copy.copy, copy.deepcopy]
#: Everything public that has sockets or tasks.
KINDS = {"Membership", "Members", "Node", "Opening", "Subscription", "Survey", "Tunnel"}


class Work(iris.Handler):
    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await tunnel.receive()


class WorkInThreads(iris_py.sync.Handler):
    def on_tunnel(self, tunnel: iris_py.sync.Tunnel) -> None:
        tunnel.receive()


def look(*objects: object) -> set[str]:
    for each in objects:
        said = rf"^a {type(each).__name__} cannot be pickled .* Connect in the process that uses it"
        for way in WAYS:
            with pytest.raises(TypeError, match=said):
                way(each)
    return {type(each).__name__ for each in objects}


def test_objects_of_a_node() -> None:
    async def main() -> set[str]:
        async with NodeSimulation(1) as simulation:
            node, member = await simulation.start_nodes(2)
            opening = member.join("work", Work())
            membership = await opening
            await node.members("work")
            tunnel = await node.tunnel("work")
            objects = [node, opening, membership, node.members("work"), tunnel, node.survey("work", b"")]
            found = look(*objects, await member.subscribe("news"))
            await tunnel.close()
            return found

    assert run(main(), limit_s=60) == KINDS


def test_objects_of_the_synchronous_api() -> None:
    secret = iris.Secret(bytes(32))
    with (
        iris_py.sync.connect(secret=secret, discovery=False) as node,
        node.join("work", WorkInThreads()) as membership,
        node.tunnel("work") as tunnel,
        node.subscribe("news") as subscription,
    ):
        objects = [node, membership, tunnel, subscription, node.members("work"), node.survey("work", b"")]
        assert look(*objects) == KINDS - {"Opening"}
