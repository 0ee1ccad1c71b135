"""A host that opens connections as fast as it can does not keep honest nodes out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_py.net.addresses import parse_address
from iris_py.testing import NodeSimulation, network, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    import iris_py as iris

#: Connections that are opened at once, again and again: more than a node takes handshakes.
AT_ONCE = 400


class Silent(asyncio.BufferedProtocol):
    """A connection that says nothing."""

    def get_buffer(self, _sizehint: int) -> bytearray:
        return bytearray(1024)


async def echo(request: iris.Request) -> bytes:
    return request.payload


async def flood(simulation: NodeSimulation, target: iris.Node, host: str) -> None:
    """Open connections for ever."""
    attacker = simulation.network.host(host)
    address, port = parse_address(target.address)
    while True:
        await asyncio.gather(*(attacker.dial(Silent, address, port) for _ in range(AT_ONCE)), return_exceptions=True)
        await asyncio.sleep(0.001)


def test_newcomers_connect_while_somebody_floods_the_only_node() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            member = await simulation.start_node(beacons=False)
            await member.join("accounts", echo)
            flooding = asyncio.ensure_future(flood(simulation, member, "203.0.113.9"))
            await simulation.until(lambda: member._core.peers.refused > AT_ONCE)
            for number in range(2):
                newcomer = await simulation.start_node(seeds=[member], beacons=False)
                payload = b"%d" % number
                assert await newcomer.request("accounts", payload, timeout=1.0) == payload
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)

    run(scenario(), limit_s=60)


#: A flood from far away: connections in each second of it, and how long it lasts.
RATE, FLOOD_S = 3_000, 5.0
#: One way. A handshake takes three of them after the one in which the connection is made.
LATENCY_S = 0.05
#: Honest nodes that come during the flood, and how long (seconds) each may take.
HONEST, OPEN_S = 20, 2.0
#: The part of them that has to get in.
LEAST = 0.95


async def flood_at_rate(simulation: NodeSimulation, target: iris.Node, host: str) -> None:
    """Open connections that say nothing, so many in each second."""
    attacker = simulation.network.host(host)
    address, port = parse_address(target.address)
    dials: set[asyncio.Future[Silent]] = set()
    interval = 0.01
    for _ in range(int(FLOOD_S / interval)):
        for _ in range(int(RATE * interval)):
            dial = asyncio.ensure_future(attacker.dial(Silent, address, port))
            dials.add(dial)
            dial.add_done_callback(dials.discard)
        await asyncio.sleep(interval)
    await asyncio.gather(*dials, return_exceptions=True)


@pytest.mark.parametrize("shares_host", first_cases(1, [True, False]), ids=["the same address", "another address"])
def test_honest_nodes_at_a_distance_get_in_during_a_flood(monkeypatch: pytest.MonkeyPatch, shares_host: bool) -> None:
    monkeypatch.setattr(network, "LATENCY_S_MIN", LATENCY_S)
    monkeypatch.setattr(network, "LATENCY_S_MAX", LATENCY_S)

    async def scenario() -> None:
        async with NodeSimulation(2) as simulation:
            member = await simulation.start_node(beacons=False)
            await member.join("accounts", echo)
            neighbour = await simulation.start_node(seeds=[member], beacons=False)
            host = simulation.host_of(neighbour) if shares_host else "203.0.113.9"
            flooding = asyncio.ensure_future(flood_at_rate(simulation, member, host))
            await simulation.until(lambda: member._core.peers.refused > 0)
            opened = 0

            async def come(number: int) -> None:
                nonlocal opened
                await asyncio.sleep(number * (FLOOD_S - OPEN_S - 1.0) / HONEST)
                begun = asyncio.get_running_loop().time()
                node = await simulation.start_node(seeds=[member], beacons=False, on_host_of=neighbour if shares_host else None)
                await simulation.until(lambda: node._core.peers.find(member._core.info.id) is not None)
                opened += asyncio.get_running_loop().time() - begun <= OPEN_S

            await asyncio.gather(*map(come, range(HONEST)))
            assert opened >= LEAST * HONEST, opened
            await flooding

    run(scenario(), limit_s=120)
