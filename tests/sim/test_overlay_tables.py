"""Tables in whole networks of overlays: real rings, links that open and break, lost datagrams, partitions and deaths."""

from __future__ import annotations

import random

import pytest

from iris_overlay.events import ProtocolViolated
from iris_overlay.groups import entries
from iris_overlay.ids import GroupId
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults, Reach

TABLE = GroupId(b"table".ljust(16))

#: Longer than detection of silent nodes, repair of the ring and repetition of lost messages together.
SETTLED_S = 40.0


def several(first: int, count: int) -> bytes:
    return entries.pack((number, 1, number) for number in range(first, first + count))


def start(simulation: OverlaySimulation, count: int, watchers: int, reach: Reach = Reach.OPEN) -> list[int]:
    """Start nodes with some entries each, the first of which watch."""
    indices = [simulation.start_node(reach=reach) for _ in range(count)]
    for index in indices:
        simulation.claim(index, TABLE, several(index, 5))
    for index in indices[:watchers]:
        simulation.watch_table(index, TABLE)
    return indices


def is_right(simulation: OverlaySimulation, indices: list[int] | None = None) -> bool:
    """Return whether the root and the watchers among some nodes have the entries of all of these."""
    nodes = [node for node in simulation.live_nodes() if indices is None or node.index in indices]
    wanted = {node.id: node.entries[TABLE] for node in nodes if TABLE in node.entries}
    watched = [node.tables.get(TABLE) for node in nodes if TABLE in node.tables]
    roots = [node for node in nodes if node.overlay.entries_of(TABLE) is not None]
    return len(roots) == 1 and roots[0].overlay.entries_of(TABLE) == wanted and all(table == wanted for table in watched)


def test_entries_of_a_starting_network_are_known_to_all_watchers() -> None:
    simulation = OverlaySimulation(seed=1)
    start(simulation, 30, 10)
    simulation.run_until(lambda: is_right(simulation), 10.0)
    simulation.claim(3, TABLE, several(1000, 2_000))
    simulation.run_until(lambda: is_right(simulation) and not any(node.claims for node in simulation.live_nodes()), 2.0)


def test_nodes_without_addresses_claim_and_watch() -> None:
    simulation = OverlaySimulation(seed=2)
    start(simulation, 10, 3)
    hidden = start(simulation, 5, 5, reach=Reach.HIDDEN)
    simulation.claim(hidden[0], TABLE, several(1000, 10_000))
    simulation.run_until(lambda: is_right(simulation), SETTLED_S)


def test_a_partition_serves_both_sides_and_heals_into_one_table() -> None:
    simulation = OverlaySimulation(seed=3)
    indices = start(simulation, 16, 16)
    simulation.run_until(lambda: is_right(simulation), 10.0)
    sides = [indices[:8], indices[8:]]
    simulation.partition(sides)
    simulation.run_until(lambda: all(is_right(simulation, side) for side in sides), SETTLED_S)
    for index in indices:
        simulation.claim(index, TABLE, several(1000 + index, 2), several(index, 1))
    simulation.run_until(lambda: all(is_right(simulation, side) for side in sides), 10.0)
    simulation.heal()
    simulation.run_until(lambda: is_right(simulation), 2 * SETTLED_S)


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_right_after_random_faults(seed: int) -> None:
    rng = random.Random(seed)
    simulation = OverlaySimulation(seed=seed, faults=Faults(datagram_lost=0.05))
    start(simulation, 14, 5)
    simulation.run_for(5.0)
    for _ in range(30):
        live = [node.index for node in simulation.live_nodes() if not node.is_stopped]
        index, choice = rng.choice(live), rng.random()
        if choice < 0.6:
            simulation.claim(index, TABLE, several(rng.randrange(50), 3), several(rng.randrange(50), 3))
        elif choice < 0.7 and len(live) > 6:
            simulation.crash(index)
        elif choice < 0.8:
            start(simulation, 1, rng.randrange(2))
        elif choice < 0.9:
            simulation.stop(index)
            simulation.run_for(rng.choice((1.0, 6.0)))
            simulation.resume(index)
        elif len(live) > 1:
            simulation.reset_link(*rng.sample(live, 2))
        simulation.run_for(rng.choice((0.0, 0.1, 1.0, 4.0)))
    simulation.run_until(lambda: is_right(simulation), 2 * SETTLED_S)
    simulation.run_for(3.0)
    assert is_right(simulation)
    assert not any(node.claims for node in simulation.live_nodes())
    assert not any(node.times_of(ProtocolViolated) for node in simulation.nodes.values())
