"""Members that come and go under load: no request fails, and none is executed twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from iris_py.api.node import Node

REQUESTS_PER_S = 500
#: So many at once: then there is always something that waits.
BURST = 10
DRAINS = 10
#: Four members, one request at a time each, serve 660 requests/s.
SERVICE_S = 0.006
MEMBERS = 4


class Load:
    """Asks in bursts at a steady rate, whatever becomes of it."""

    def __init__(self, node: Node) -> None:
        self.errors: list[BaseException] = []
        self.asked = 0
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = asyncio.create_task(self._ask_on())

    async def stop(self) -> None:
        self._asking.cancel()
        await asyncio.gather(*self._tasks)

    async def _ask_on(self) -> None:
        while True:
            for _ in range(BURST):
                self.asked += 1
                task = asyncio.create_task(self._ask(b"%d" % self.asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(BURST / REQUESTS_PER_S)

    async def _ask(self, payload: bytes) -> None:
        try:
            assert await self._node.request("work", payload, timeout=10.0) == payload
        except iris.IrisError as exc:
            self.errors.append(exc)


@pytest.mark.parametrize("seed", first_cases(1, [1, 2]))
@pytest.mark.parametrize("ends", ["leave", "close"])
def test_draining_under_load_fails_nothing_and_repeats_nothing(seed: int, ends: str) -> None:
    async def scenario() -> None:
        executed: Counter[bytes] = Counter()
        handed_back = 0

        async def work(request: iris.Request) -> bytes:
            executed[request.payload] += 1
            await asyncio.sleep(SERVICE_S)
            return request.payload

        async with NodeSimulation(seed) as simulation:
            caller, *nodes = await simulation.start_nodes(1 + MEMBERS)
            members = [(node, await node.join("work", work, concurrency=1)) for node in nodes]
            load = Load(caller)
            for _ in range(DRAINS):
                node = await simulation.start_node()
                members.append((node, await node.join("work", work, concurrency=1)))
                before = load.asked
                await simulation.until(lambda before=before: load.asked >= before + 100)  # type: ignore[misc]
                node, membership = members.pop(0)
                if ends == "leave":
                    await membership.leave()
                handed_back += node.statistics().rejected.get("not_a_member", 0)
                await node.close()
                simulation.nodes.remove(node)
            await load.stop()
            assert load.errors == []
        assert len(executed) == load.asked > DRAINS * 100
        assert set(executed.values()) == {1}
        if ends == "leave":
            assert handed_back  # otherwise nothing waited where it mattered, and this shows little

    run(scenario(), limit_s=600)


def test_what_does_not_end_in_time_is_cut_off_and_waits_for_nobody() -> None:
    async def scenario() -> None:
        begun: list[bytes] = []

        async def wait(request: iris.Request) -> bytes:
            begun.append(request.payload)
            await asyncio.sleep(3600.0)
            return b""

        async with NodeSimulation(seed=1) as simulation:
            caller, node = await simulation.start_nodes(2)
            membership = await node.join("wait", wait, concurrency=1)
            running = asyncio.create_task(caller.request("wait", b"runs", timeout=600.0))
            await simulation.until(lambda: begun == [b"runs"])
            waiting = asyncio.create_task(caller.request("wait", b"waits", timeout=600.0))
            await asyncio.sleep(1.0)
            clock = asyncio.get_running_loop().time
            started = clock()
            await membership.leave(timeout=5.0)
            assert clock() - started < 8.0
            with pytest.raises(iris.RemoteError, match="cancelled"):
                await running
            with pytest.raises(iris.NoMembers):  # surely not executed
                await waiting
            assert begun == [b"runs"]

    run(scenario(), limit_s=120)
