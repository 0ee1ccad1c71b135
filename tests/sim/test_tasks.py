"""No task is kept that has finished, and none goes on that nobody needs: a node that serves for a year must not grow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from iris_py import Node


class Work(iris.Handler):
    """A member of every pattern."""

    async def on_request(self, request: iris.Request) -> bytes:
        await asyncio.sleep(0.01)
        if request.payload == b"fail":
            raise ValueError("as you wish")
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        await asyncio.sleep(0.01)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


def kept_by(node: Node) -> set[asyncio.Task[None]]:
    """Return the tasks that a node holds: of its driver and its handlers."""
    served = [task for server in node._parts.memberships.servers.values() for task in server._tasks.values()]
    return {*node._runtime.driver._tasks, *served}


async def use(caller: Node) -> None:
    """Let everything happen that makes a task."""
    asked = [caller.request("work", b"%d" % number) for number in range(20)]
    asked += [caller.request("work", b"fail") for _ in range(5)]
    asked += [caller.request("work", b"late", timeout=0.001) for _ in range(5)]
    await asyncio.gather(*asked, return_exceptions=True)
    given_up = asyncio.ensure_future(caller.request("work", b"given up"))
    await asyncio.sleep(0.005)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await caller.broadcast("work", b"all")
    await caller.survey("work", b"all", timeout=0.5)
    async with caller.tunnel("work") as tunnel:
        await tunnel.send(b"there")
        assert await tunnel.receive() == b"there"
    async with caller.subscribe("news"):
        await caller.publish("news", b"one")


def test_no_finished_task_is_kept_and_none_goes_on() -> None:
    async def scenario() -> None:
        async with NodeSimulation(3) as simulation:
            caller, member, dead = await simulation.start_nodes(3)
            await member.join("work", Work())
            await use(caller)
            await asyncio.sleep(5.0)
            before = len(asyncio.all_tasks())
            for _ in range(3):
                await use(caller)
            simulation.kill(dead)  # dials to it fail, in tasks of their own
            await asyncio.sleep(60.0)
            for node in (caller, member):
                assert not [task for task in kept_by(node) if task.done()]
            assert len(asyncio.all_tasks()) <= before

    run(scenario(), limit_s=600.0)
