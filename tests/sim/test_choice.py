"""Whom complete nodes ask: members that are full, silent or failing, on the simulated network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, limit_s: float = 600.0) -> None:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    run(main(), limit_s=limit_s)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- full members


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_gather_of_five_thousand_at_one_member_is_answered(idempotent: bool) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        executed = []

        async def work(request: iris.Request) -> bytes:
            executed.append(request.payload)
            await asyncio.sleep(0.01)
            return request.payload

        member, caller = await simulation.start_nodes(2)
        await member.join("work", work)
        payloads = [b"%d" % number for number in range(5_000)]
        assert await asyncio.gather(*(caller.request("work", each, idempotent=idempotent) for each in payloads)) == payloads
        assert sorted(executed) == sorted(payloads), "each once"
        assert now() < 5.0

    simulate(scenario)


def test_callers_that_wait_for_a_place_all_get_their_turn() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        member, *callers = await simulation.start_nodes(5)
        done: dict[str, list[int]] = {caller.id: [] for caller in callers}

        async def work(request: iris.Request) -> bytes:
            await asyncio.sleep(0.02)
            return request.payload

        async def ask(caller: Any, number: int) -> None:
            await caller.request("work", b"", timeout=60.0)
            done[caller.id].append(number)

        await member.join("work", work, concurrency=4, queue_messages=4)
        await asyncio.gather(*(ask(caller, number) for number in range(50) for caller in callers))
        for numbers in done.values():
            late = max(abs(place - number) for place, number in enumerate(numbers))
            assert late < 16, "the first come, the first served, but for what crosses on the way"

    simulate(scenario)


def test_who_wants_to_hear_it_is_told_at_once_that_all_are_full() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def work(request: iris.Request) -> bytes:
            await asyncio.sleep(0.5)
            return b"done"

        member, caller = await simulation.start_nodes(2)
        await member.join("work", work, concurrency=1, queue_messages=0)
        first = asyncio.create_task(caller.request("work", b""))
        await simulation.until(lambda: member.statistics().executed == 1)
        for idempotent in (False, True):
            with pytest.raises(iris.Overloaded):
                await caller.request("work", b"", idempotent=idempotent, on_full="raise")
        assert not first.done()
        with pytest.raises(iris.Overloaded):
            await caller.request("work", b"", timeout=0.1)
        assert await caller.request("work", b"") == b"done"
        with pytest.raises(iris.ConfigurationError, match="on_full"):
            await caller.request("work", b"", on_full="drop")  # type: ignore[arg-type]

    simulate(scenario)


def test_tunnels_wait_for_a_place_too_the_first_come_first() -> None:
    class Echo(iris.Handler):
        async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
            async for message in tunnel:
                await tunnel.send(message)

    async def scenario(simulation: NodeSimulation) -> None:
        member, caller = await simulation.start_nodes(2)
        await member.join("files", Echo(), tunnels=2)
        order: list[int] = []

        async def use(number: int) -> None:
            async with caller.tunnel("files") as tunnel:
                order.append(number)
                await tunnel.send(b"x")
                assert await tunnel.receive() == b"x"
                await asyncio.sleep(0.1)

        await asyncio.gather(*(use(number) for number in range(10)))
        assert order == sorted(order)
        assert now() < 5.0

    simulate(scenario)
