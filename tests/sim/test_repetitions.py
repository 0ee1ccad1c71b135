"""Idempotent requests over links that break: executed once where that can be, and never twice at the same time."""

from __future__ import annotations

import asyncio

import pytest

import iris_py as iris
from iris_overlay.ids import ring_distance
from iris_py.testing import NodeSimulation, run

WORK_S = 0.5


class Work(iris.Handler):
    """Notes what it does."""

    def __init__(self, work_s: float = WORK_S) -> None:
        self.events: list[str] = []
        self.running = 0
        self._work_s = work_s

    async def on_request(self, request: iris.Request) -> bytes:
        assert not self.running, "twice at the same time"
        self.events.append("begun")
        self.running += 1
        try:
            await asyncio.sleep(self._work_s)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        finally:
            self.running -= 1
        self.events.append("done")
        return request.payload


@pytest.mark.parametrize("seed", range(5))
def test_a_reply_that_was_lost_is_given_again(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, server = await simulation.start_nodes(2)
            work = Work()
            await server.join("work", work)
            asking = asyncio.create_task(caller.request("work", b"x", idempotent=True, timeout=30.0))
            await simulation.until(lambda: work.events == ["begun"])
            simulation.stall(server, caller)
            await simulation.until(lambda: not any(link.is_open for link in caller._core.peers.links()))  # nothing is heard
            assert work.events == ["begun", "done"]
            simulation.heal()
            assert await asking == b"x"
            assert work.events == ["begun", "done"]
            assert server.statistics().repeated == 1

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_cancelled_with_its_link_is_done_anew(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, server = await simulation.start_nodes(2)
            work = Work()
            await server.join("work", work)
            asking = asyncio.create_task(caller.request("work", b"x", idempotent=True, timeout=30.0))
            await simulation.until(lambda: work.events == ["begun"])
            simulation.reset(server)
            assert await asking == b"x"
            assert work.events == ["begun", "cancelled", "begun", "done"]

    run(scenario(), limit_s=120)


def test_another_member_executes_again() -> None:
    """Members do not tell each other: this is what is not promised."""

    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, one, two = await simulation.start_nodes(3)
            first, second = Work(), Work()
            await one.join("work", first)
            assert await caller.request("work", b"x", idempotent=True, key="k") == b"x"
            await two.join("work", second)
            simulation.kill(one)
            assert await caller.request("work", b"x", idempotent=True, key="k") == b"x"
            assert first.events == second.events == ["begun", "done"]

    run(scenario(), limit_s=120)


def test_whoever_asks_with_a_key_asks_the_same_member() -> None:
    """So it is executed once in all, also where there are several members and several callers."""

    async def scenario() -> None:
        async with NodeSimulation(seed=3) as simulation:
            *callers, one, two, three = await simulation.start_nodes(6)
            works = [Work(0.0) for _ in range(3)]
            for node, work in zip((one, two, three), works, strict=True):
                await node.join("work", work, concurrency=1)
            for caller in callers:
                for number in range(40):
                    assert await caller.request("work", b"x", idempotent=True, key=f"k{number}") == b"x"
            assert sum(work.events.count("done") for work in works) == 40
            assert all(work.events for work in works), "the keys are shared by all members"

    run(scenario(), limit_s=120)


def test_what_the_dead_had_is_executed_once_by_the_living() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=4) as simulation:
            first, second, one, two, three = await simulation.start_nodes(5)
            works = [Work(0.0) for _ in range(3)]
            for node, work in zip((one, two, three), works, strict=True):
                await node.join("work", work, concurrency=1)
            for number in range(40):
                await first.request("work", b"x", idempotent=True, key=f"k{number}")
            had = works[0].events.count("done")
            assert had
            simulation.kill(one)
            for caller in (second, first):
                for number in range(40):
                    assert await caller.request("work", b"x", idempotent=True, key=f"k{number}", timeout=30.0) == b"x"
            assert sum(work.events.count("done") for work in works[1:]) == 40

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", range(6))
def test_who_starts_while_the_root_of_a_cluster_dies_asks_the_same_members_as_all_others(seed: int) -> None:
    """Its first view comes while another node takes the list of members over."""

    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, *serving = nodes = await simulation.start_nodes(5)
            works = {node: Work(0.0) for node in serving}
            for node, work in works.items():
                await node.join("work", work, concurrency=1)
            keys = [f"k{number}" for number in range(40)]
            for key in keys:
                await caller.request("work", b"x", idempotent=True, key=key)
            group = int.from_bytes(caller._core.group("work", 0.0).id, "big")
            root = min(nodes, key=lambda node: ring_distance(int(node.id, 16), group))
            starting = [asyncio.create_task(simulation.start_node())]
            await asyncio.sleep(0.002 * seed)
            simulation.kill(root)
            for pause_s in (0.0, 0.01, 0.1):
                await asyncio.sleep(pause_s)
                starting.append(asyncio.create_task(simulation.start_node()))
            for start in starting:
                newcomer = await start
                for key in keys:
                    assert await newcomer.request("work", b"x", idempotent=True, key=key, timeout=20.0) == b"x"
            works.pop(root, None)
            assert sum(work.events.count("done") for work in works.values()) == 40

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", range(5))
def test_a_key_stays_with_its_member_when_their_link_breaks(seed: int) -> None:
    """Replies are lost with the links. The members that live remember them, so nobody else executes anything again."""

    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, *serving = await simulation.start_nodes(4)
            executed: list[bytes] = []

            async def work(request: iris.Request) -> bytes:
                executed.append(request.payload)
                if len(executed) == 20:
                    for node in serving:
                        simulation.reset(node)
                return request.payload

            for node in serving:
                await node.join("work", work)
            await caller.members("work")
            payloads = [b"%d" % number for number in range(60)]
            asking = (caller.request("work", each, idempotent=True, key=each, timeout=10.0) for each in payloads)
            assert await asyncio.gather(*asking) == payloads
            assert sorted(executed) == sorted(payloads), "each once in all"
            assert caller.statistics().retries > 0, "requests were given again"

    run(scenario(), limit_s=120)
