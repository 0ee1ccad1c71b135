"""Nodes that come for a moment and leave in order: no node reports any of them as dead, whatever was on its way."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import PeerDied, PeerLeft
from iris_overlay.ids import GroupId, NodeId
from iris_py.testing import NodeSimulation, run
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults
from iris_py.testing.network import MemoryNetwork
from iris_security import Keyring, Secret
from tests.profiles import first_cases

if TYPE_CHECKING:
    import iris_py as iris

ECHO = GroupId(b"echo".ljust(16))
RESIDENTS = 6
#: As long as anything takes that could still make a node look for one that has left.
SETTLED_S = 100.0


async def echo(request: iris.Request) -> bytes:
    return request.payload


class Visits:
    """Residents on lines of 20 to 40 ms with some loss, and visitors that come one after another."""

    def __init__(self, seed: int) -> None:
        faults = Faults(latency_s=(0.02, 0.04), datagram_lost=0.01)
        self.simulation = OverlaySimulation(seed, faults=faults)
        self.rng = random.Random(seed)
        self.residents = [
            self.simulation.start_node(beacons=False, seeds=[self.simulation.address_of(0)] if index else ())
            for index in range(RESIDENTS)
        ]
        for index in self.residents:
            self.simulation.watch_group(index, ECHO)
            self.simulation.join_group(index, ECHO, b"%d" % index)
        self.simulation.run_for(8.0)
        self.left: dict[NodeId, None] = {}

    def start(self) -> int:
        """Start a visitor, which uses the group or not."""
        simulation, rng = self.simulation, self.rng
        visitor = simulation.start_node(beacons=False, seeds=[simulation.address_of(rng.choice(self.residents))])
        if rng.random() < 0.7:
            simulation.watch_group(visitor, ECHO)
        return visitor

    def leave(self, visitor: int) -> None:
        """Let a visitor leave."""
        self.simulation.leave(visitor)
        self.left[self.simulation.nodes[visitor].id] = None
        self.simulation.run_for(self.rng.uniform(0.0, 2.0))

    def deaths(self) -> list[tuple[int, float]]:
        """Return the residents that report a visitor as dead, and when; first let all be told."""
        self.simulation.run_for(SETTLED_S)
        nodes = [self.simulation.nodes[index] for index in self.residents]
        return [
            (node.index, when)
            for node in nodes
            for when, event in node.log
            if isinstance(event, PeerDied) and event.peer in self.left
        ]


@pytest.mark.parametrize("seed", first_cases(3, range(20)))
def test_a_node_that_leaves_at_any_moment_is_never_reported_dead(seed: int) -> None:
    visits = Visits(seed)
    for _ in range(30):
        visitor = visits.start()
        visits.simulation.run_for(visits.rng.choice([visits.rng.uniform(0.02, 0.5), visits.rng.uniform(0.5, 3.0)]))
        visits.leave(visitor)
    assert visits.deaths() == []


@pytest.mark.parametrize("seed", first_cases(2, range(10)))
@pytest.mark.parametrize("how", ["stalled", "reset"])
def test_a_node_that_misses_a_goodbye_asks_neighbours_before_it_reports_a_death(how: str, seed: int) -> None:
    visits = Visits(seed)
    simulation, rng = visits.simulation, visits.rng
    for _ in range(10):
        visitor, unlucky = visits.start(), rng.choice(visits.residents)
        simulation.run_for(1.5)
        if how == "stalled":
            assert simulation.stall_link(visitor, unlucky, rng.uniform(1.0, 5.0))
        else:
            assert simulation.reset_link(visitor, unlucky)
        visits.leave(visitor)
    assert visits.deaths() == []
    for index in visits.residents:
        assert {event.peer for _, event in simulation.nodes[index].log if isinstance(event, PeerLeft)} == visits.left.keys()


@pytest.mark.parametrize("seed", first_cases(1, range(5)))
def test_the_node_of_a_command_is_never_reported_dead_on_lossy_connections(seed: int) -> None:
    """A stream that waits for a repeated segment, as on a lossy line, is overtaken by what other nodes say."""

    async def scenario() -> None:
        rng, network = random.Random(seed), MemoryNetwork(seed)
        network.datagram_loss = 0.01
        network.lay_line("a", "b", latency_s=0.02, jitter_s=0.15)
        keyring = Keyring(Secret(rng.randbytes(32)), network="visited")
        async with (
            NodeSimulation(f"{seed} a", network=network, site="a") as a,
            NodeSimulation(f"{seed} b", network=network, site="b", first_host=1 << 8) as b,
        ):
            residents = [await a.start_node(beacons=False, keyring=keyring)]
            for site in (b, a, b, a, b):
                residents.append(await site.start_node(seeds=residents[:1], beacons=False, keyring=keyring))
            for node in residents[:4]:
                await node.join("works", echo)
            visitors = set()
            for _ in range(20):
                site = rng.choice((a, b))
                visitor = await site.start_node(seeds=residents[:3], beacons=False, keyring=keyring)
                await visitor.members("works")
                await asyncio.sleep(rng.uniform(0.0, 0.3))
                site.nodes.remove(visitor)
                visitors.add(visitor.id)
                await visitor.close()
                await asyncio.sleep(rng.uniform(0.0, 1.0))
            await asyncio.sleep(SETTLED_S)
            told = [event for node in residents for event in node.recent_events() if event.kind == "died"]
            assert [event for event in told if event.node in visitors] == []

    run(scenario(), limit_s=3600.0)
