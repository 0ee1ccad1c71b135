"""A host that opens connections as fast as it can does not keep honest nodes out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.net.addresses import parse_address
from iris_py.testing import NodeSimulation, run

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
