"""Whole rings: growth, mass failure, churn, merging, storms; every delivery is checked against the true root."""

from __future__ import annotations

import math

import pytest

from iris_overlay.ring.neighbours import GIVEN_UP_S
from iris_py.testing.cores.pastry import PastrySimulation
from tests.profiles import first_cases


def check(simulation: PastrySimulation, given_up_max: int = 0) -> None:
    """Check what holds in any quiet network; where half of it died, single lookups may be given up, with a word."""
    assert simulation.misplaced() == []
    assert simulation.violations == []
    figures = simulation.figures()
    assert figures["wrong"] == 0
    assert figures["lost"] == figures["undeliverable"] <= given_up_max
    assert figures["entries_max"] <= 150


@pytest.mark.parametrize("count", first_cases(1, [100, 1000]))
def test_a_grown_ring_routes_in_few_hops(count: int) -> None:
    simulation = PastrySimulation(seed=1)
    simulation.grow(count, over_s=count / 20)
    joined = simulation.sent.total()
    simulation.lookup_all(3 * count, over_s=10.0)
    check(simulation)
    figures = simulation.figures()
    print({name: round(value, 4) for name, value in figures.items()}, "messages per join:", joined / count)
    assert figures["hops_mean"] <= math.log(count, 16) + 0.2
    assert figures["repeated"] == 0
    assert joined / count <= 60


def test_some_join_at_once() -> None:
    simulation = PastrySimulation(seed=2)
    simulation.grow(50, over_s=5.0)
    for _ in range(50):
        simulation.start_node([simulation.random_active()])
    simulation.run_for(5.0)
    simulation.lookup_all(500, over_s=5.0)
    check(simulation)


@pytest.mark.parametrize(("part", "within_s"), first_cases(1, [(0.2, 5.0), (0.5, 10.0)]))
def test_many_die_at_once(part: float, within_s: float) -> None:
    simulation = PastrySimulation(seed=3)
    simulation.grow(250, over_s=12.5)
    for node in simulation.rng.sample(simulation.live(), int(250 * part)):
        simulation.crash(node, is_silent=simulation.rng.random() < 0.5)
    simulation.lookup_all(500, over_s=within_s, settle_s=0.0)  # Meanwhile, some are late, but none goes wrong.
    assert simulation.misplaced() == []
    simulation.lookup_all(500, over_s=2.0, settle_s=20.0)
    check(simulation, given_up_max=1 if part == 0.5 else 0)


def test_a_whole_arc_of_the_ring_dies() -> None:
    simulation = PastrySimulation(seed=4)
    simulation.grow(200, over_s=10.0)
    arc = sorted(simulation.live(), key=lambda node: node.info.id)[50:90]
    for node in arc:
        simulation.crash(node, is_silent=True)
    simulation.run_for(10.0)
    for node in arc:
        for _ in range(5):
            simulation.lookup(simulation.random_active(), node.info.id)
    simulation.run_for(5.0)
    check(simulation)


def test_all_but_one_die() -> None:
    simulation = PastrySimulation(seed=5)
    simulation.grow(50, over_s=3.0)
    survivor, *others = simulation.live()
    for node in others:
        simulation.crash(node, is_silent=True)
    simulation.run_for(30.0)
    simulation.lookup(survivor)
    simulation.run_for(1.0)
    check(simulation)
    assert survivor.pastry.leaves() == []


@pytest.mark.parametrize("seed", first_cases(1, [6, 7]))
def test_lookups_survive_churn(seed: int) -> None:
    simulation = PastrySimulation(seed)
    simulation.grow(100, over_s=5.0)
    simulation.churn(mean_session_s=300.0, for_s=120.0, lookups_per_s=50.0)
    simulation.run_for(20.0)
    check(simulation)


def test_maintenance_is_cheap() -> None:
    simulation = PastrySimulation(seed=8)
    simulation.grow(150, over_s=7.5)
    before = simulation.sent.total()
    simulation.churn(mean_session_s=8280.0, for_s=300.0, lookups_per_s=0.0)
    rate = (simulation.sent.total() - before) / 150 / 300.0
    print("link messages per node and second:", rate)
    assert rate < 0.15


def test_leaving_loses_nothing() -> None:
    simulation = PastrySimulation(seed=9)
    simulation.grow(100, over_s=5.0)
    simulation.churn(mean_session_s=60.0, for_s=30.0, lookups_per_s=50.0, crash_part=0.0)
    simulation.run_for(10.0)
    check(simulation)


@pytest.mark.parametrize("for_s", first_cases(1, [10.0, 200.0]))
def test_two_halves_become_one_ring(for_s: float) -> None:
    simulation = PastrySimulation(seed=10)
    simulation.grow(100, over_s=5.0)
    simulation.split(lambda node: node.index % 2)
    simulation.run_for(for_s)
    if for_s > 60.0:
        assert simulation.misplaced(0) == simulation.misplaced(1) == []
    simulation.heal()
    simulation.run_for(30.0)
    simulation.lookup_all(500, over_s=5.0)
    check(simulation)


def test_one_meeting_is_enough_to_merge() -> None:
    simulation = PastrySimulation(seed=11)
    simulation.grow(100, over_s=5.0)
    simulation.split(lambda node: node.index % 2)
    simulation.run_for(60.0)
    simulation.heal(rememberers=1)
    simulation.run_for(30.0)
    check(simulation)


@pytest.mark.parametrize("contacts", [1, 3])
def test_sixty_start_at_once_through_some(contacts: int) -> None:
    simulation = PastrySimulation(seed=12)
    through = [simulation.start_node() for _ in range(contacts)]
    for index in range(60 - contacts):
        simulation.start_node([through[index % contacts]])
    for node in through[1:]:
        simulation.meet(node, through[0])
    simulation.run_for(10.0)
    simulation.lookup_all(300, over_s=5.0)
    check(simulation)


@pytest.mark.parametrize("seed", [13, 14, 15])
def test_sixty_start_at_once_through_each_other(seed: int) -> None:
    simulation = PastrySimulation(seed)
    nodes = [simulation.start_node([]) for _ in range(60)]
    for node in nodes:
        for contact in simulation.rng.sample(nodes, 3):
            if contact is not node:
                simulation.meet(node, contact)
    simulation.run_for(10.0)
    simulation.lookup_all(300, over_s=5.0)
    check(simulation)


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_hidden_nodes_take_part(part: float) -> None:
    simulation = PastrySimulation(seed=16)
    simulation.grow(20, over_s=5.0)
    for _ in range(80):
        simulation.run_for(0.1)
        contact = next(node for node in iter(simulation.random_active, None) if node.is_dialable)
        simulation.start_node([contact], is_dialable=simulation.rng.random() >= part)
    simulation.run_for(10.0)
    simulation.lookup_all(500, over_s=5.0)
    check(simulation)


def test_hidden_leaves_that_took_each_other_for_dead_find_each_other_again() -> None:
    """Neither can dial the other, and the ring may not know a way for a moment: nobody else would tell them."""
    simulation = PastrySimulation(seed=18)
    simulation.grow(10, over_s=5.0)
    contacts = [simulation.random_active() for _ in range(2)]
    first, second = (simulation.start_node([contact], is_dialable=False) for contact in contacts)
    simulation.run_for(10.0)
    for node, other in ((first, second), (second, first)):
        node.pastry.peer_dead(other.info.id, simulation.now)
        simulation.apply(node)
    simulation.run_for(0.5 * GIVEN_UP_S)
    assert set(simulation.misplaced()) == {first, second}
    simulation.run_for(2 * GIVEN_UP_S)
    assert simulation.misplaced() == []


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> tuple[dict[str, float], list[bytes]]:
        simulation = PastrySimulation(seed=17)
        simulation.grow(60, over_s=3.0)
        simulation.churn(mean_session_s=30.0, for_s=20.0, lookups_per_s=20.0)
        return simulation.figures(), [node.info.id for node in simulation.live()]

    assert run() == run()
