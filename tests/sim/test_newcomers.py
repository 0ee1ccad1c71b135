"""Nodes that connect, ask once and go, several at a time, beside one member that stays: each of them finds it, and soon.

Where most nodes are that young, the directory of the cluster moves with nearly every one that comes or goes, from nodes that
are leaving to nodes that are joining still.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

CLUSTER = "instant"
ROUNDS = 12
PAUSES_S = (0.0, 0.0, 0.001, 0.01, 0.05)
#: How long a connect may take, in virtual time: less than until a request to join is sent again. Most take 30 ms.
CONNECT_S_MAX = 0.9


async def echo(request: iris.Request) -> bytes:
    return request.payload


async def ask_and_go(simulation: NodeSimulation, seed: int, visitors: int, crashes: float) -> list[str]:
    """Let visitors come, ask and go again and again.

    Args:
        simulation: The network.
        seed: Decides who crashes, and how long the pauses are.
        visitors: How many there are at a time.
        crashes: Which share of them is killed once it has its reply.

    Returns:
        What failed.
    """
    member = await simulation.start_node(beacons=False)
    await member.join(CLUSTER, echo)
    rng, loop = Random(f"{seed} visitors"), asyncio.get_running_loop()
    failures: list[str] = []

    async def visit() -> None:
        for _ in range(ROUNDS):
            began = loop.time()
            node = await simulation.start_node(seeds=[member], beacons=False)
            if loop.time() - began > CONNECT_S_MAX:
                failures.append(f"{began:.3f} s: connected after {loop.time() - began:.3f} s")
            try:
                assert await node.request(CLUSTER, b"?", timeout=30.0) == b"?"
            except iris.IrisError as exc:
                failures.append(f"{loop.time():.3f} s: {exc!r}")
            if rng.random() < crashes:
                simulation.kill(node)
            else:
                await node.close()
                simulation.nodes.remove(node)
            await asyncio.sleep(rng.choice(PAUSES_S))

    await asyncio.gather(*(visit() for _ in range(visitors)))
    return failures


def failures_of(seed: int, visitors: int, crashes: float) -> list[str]:
    async def scenario() -> list[str]:
        async with NodeSimulation(seed) as simulation:
            return await ask_and_go(simulation, seed, visitors, crashes)

    return run(scenario(), limit_s=3_600.0)


@pytest.mark.parametrize("visitors", first_cases(1, [2, 3, 5]))
def test_who_has_just_connected_finds_the_member_whoever_comes_and_goes(visitors: int) -> None:
    for seed in range(100, 104):
        assert failures_of(seed, visitors, crashes=0.0) == [], seed


def test_so_it_does_when_some_of_those_who_go_crash() -> None:
    for seed in range(100, 103):
        assert failures_of(seed, visitors=3, crashes=0.3) == [], seed


#: Seeds (and how many visitors, and which share of them crashed) that failed once, and what they found.
FOUND = {
    (18, 2, 0.0): "a newcomer became the root while the directory was on its way from one that left to another newcomer",
    (26, 6, 0.0): "a root handed its directory over to a node that was joining still, and left",
    (15, 3, 0.3): "a neighbour gave what it knew to a root that had crashed, and not to the one that asked",
    (34, 5, 0.3): "a member that had been its own root did not notice that the node it had handed the directory to was gone",
    (86, 8, 0.3): "the same, with all copies lost",
    (19, 5, 0.0): "joiners that are each other's roots waited for each other, and late answers changed nothing",
    (18, 3, 0.0): "a root answered a joiner by a dial, and left before that was done",
    (12, 5, 0.3): "a registration that ended at a root which crashed was sent again a second and a half later",
}


@pytest.mark.parametrize(("seed", "visitors", "crashes"), first_cases(4, FOUND), ids=lambda value: str(value))
def test_what_was_found_stays_fixed(seed: int, visitors: int, crashes: float) -> None:
    assert failures_of(seed, visitors, crashes) == []
