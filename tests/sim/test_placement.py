"""Which members get the requests, seen from applications: slow ones, heavy ones, near ones, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

SERVICE_S = 0.01
LANES = 8
REQUESTS = 4000
WARM_UP = 400


def worker(counts: Counter[int], number: int, service_s: float) -> Callable[[iris.Request], Awaitable[bytes]]:
    async def work(request: iris.Request) -> bytes:
        counts[number] += 1
        await asyncio.sleep(service_s)
        return b""

    return work


async def ask(node: Node, requests: int, lanes: int = LANES, **options: str) -> list[float]:
    """Ask in lanes, one request after another in each; returns how long each took, in the order of their ends."""
    clock = asyncio.get_running_loop().time
    trips_s: list[float] = []

    async def lane() -> None:
        for _ in range(requests // lanes):
            started = clock()
            await node.request("work", b"", **options)  # type: ignore[call-overload]
            trips_s.append(clock() - started)

    await asyncio.gather(*(lane() for _ in range(lanes)))
    return trips_s


async def measure(seed: int, service_times_s: list[float]) -> tuple[Counter[int], float]:
    """Returns how many requests each member got, and the 99th percentile of the round trips.

    The first are not counted: nobody knows anybody's speed yet.
    """
    counts: Counter[int] = Counter()
    async with NodeSimulation(seed) as simulation:
        caller, *nodes = await simulation.start_nodes(1 + len(service_times_s))
        for number, (node, service_s) in enumerate(zip(nodes, service_times_s, strict=True)):
            await node.join("work", worker(counts, number, service_s))
        await ask(caller, WARM_UP)
        counts.clear()
        trips_s = sorted(await ask(caller, REQUESTS))
    return counts, trips_s[len(trips_s) * 99 // 100]


@pytest.mark.parametrize("seed", first_cases(1, [1, 2, 3]))
def test_a_slow_member_gets_little_and_holds_up_nobody(seed: int) -> None:
    async def scenario() -> None:
        _counts, p99_s = await measure(seed, [SERVICE_S] * 3)
        counts, p99_with_slow_s = await measure(seed, [SERVICE_S] * 3 + [10 * SERVICE_S])
        assert 0 < counts[3] < 0.1 * REQUESTS  # tried at times, for it may have become faster
        assert p99_with_slow_s < 2 * p99_s

    run(scenario(), limit_s=600)


def test_weights_share_out_load() -> None:
    async def scenario() -> None:
        counts: Counter[int] = Counter()
        async with NodeSimulation(seed=5) as simulation:
            caller, *nodes = await simulation.start_nodes(4)
            for number, (node, weight) in enumerate(zip(nodes, (1.0, 2.0, 5.0), strict=True)):
                await node.join("work", worker(counts, number, SERVICE_S), weight=weight)
            await ask(caller, REQUESTS, 40)
        for number, weight in enumerate((1, 2, 5)):
            assert 0.75 < counts[number] / (REQUESTS * weight / 8) < 1.25

    run(scenario(), limit_s=600)


def test_a_node_has_one_weight_in_a_cluster() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            (node,) = await simulation.start_nodes(1)
            membership = await node.join("work", worker(Counter(), 0, 0.0), weight=2.0)
            with pytest.raises(iris.ConfigurationError, match=r"already serves .* with weight=2"):
                await node.join("work", worker(Counter(), 0, 0.0))
            await node.join("work", worker(Counter(), 0, 0.0), weight=2.0)
            await membership.leave()
            for wrong in (0.0, 100.1, -1.0, float("nan")):
                with pytest.raises(iris.ConfigurationError, match=r"from 0.01 to 100"):
                    node.join("other", worker(Counter(), 0, 0.0), weight=wrong)

    run(scenario(), limit_s=60)


def test_zones_that_a_request_prefers_and_requires() -> None:
    async def scenario() -> None:
        counts: Counter[int] = Counter()
        async with NodeSimulation(seed=1) as simulation:
            caller = await simulation.start_node(zone="us/a")
            zones = ("us/a", "eu/a", "eu/b", "eu")
            members = [await simulation.start_node(zone=zone) for zone in zones]
            for number, member in enumerate(members):
                await member.join("work", worker(counts, number, SERVICE_S))

            async def asked(**options: str) -> set[str]:
                counts.clear()
                await ask(caller, 60, 1, **options)
                return {zones[number] for number in counts}

            assert await asked() == {"us/a"}
            assert await asked(prefer="eu/b") == {"eu/b"}
            assert await asked(prefer="eu") == {"eu/a", "eu/b", "eu"}
            assert await asked(prefer="asia") == set(zones)
            assert await asked(require="eu") == {"eu/a", "eu/b", "eu"}
            assert await asked(require="eu", prefer="eu/a") == {"eu/a"}
            with pytest.raises(iris.NoMembers, match="nobody in the zone 'asia'") as caught:
                await caller.request("work", b"", require="asia")
            assert (caught.value.zone, caught.value.elsewhere) == ("asia", 4)
            with pytest.raises(iris.NoMembers, match="nobody serves") as caught:
                await caller.request("nothing", b"", require="eu")
            assert (caught.value.zone, caught.value.elsewhere) == ("eu", 0)
            for wrong in ("", "a\nb", 5):
                with pytest.raises(iris.ConfigurationError, match="prefer"):
                    await caller.request("work", b"", prefer=wrong)  # type: ignore[arg-type]

    run(scenario(), limit_s=120)


def test_preferred_zones_are_left_when_their_members_are_gone_and_required_ones_are_not() -> None:
    async def scenario() -> None:
        counts: Counter[int] = Counter()
        async with NodeSimulation(seed=1) as simulation:
            caller, near = await simulation.start_node(zone="us"), await simulation.start_node(zone="us")
            far = await simulation.start_node(zone="eu")
            for number, member in enumerate((near, far)):
                await member.join("work", worker(counts, number, SERVICE_S))
            assert await caller.request("work", b"", require="eu") == b""
            simulation.kill(far)
            await caller.request("work", b"", prefer="eu", idempotent=True)
            assert counts == {0: 1, 1: 1}
            waiting = asyncio.create_task(caller.request("work", b"", require="eu", idempotent=True, timeout=30.0))
            with pytest.raises(iris.NoMembers):
                await caller.request("work", b"", require="eu", idempotent=True, timeout=1.0)
            back = await simulation.start_node(zone="eu/b")
            await back.join("work", worker(counts, 2, SERVICE_S))
            await waiting
            assert counts == {0: 1, 1: 1, 2: 1}

    run(scenario(), limit_s=120)


@pytest.mark.parametrize(("weight", "is_allowed"), [(0.01, True), (100.0, True), (0.0099, False), (100.01, False)])
def test_the_bounds_of_a_weight_are_weights(weight: float, is_allowed: bool) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            (node,) = await simulation.start_nodes(1)
            if is_allowed:
                await node.join("work", worker(Counter(), 0, 0.0), weight=weight)
                assert await node.request("work", b"") is not None
            else:
                with pytest.raises(iris.ConfigurationError, match=r"from 0\.01 to 100"):
                    await node.join("work", worker(Counter(), 0, 0.0), weight=weight)

    run(scenario(), limit_s=600)
