"""Nodes that stand still for longer than it takes to be declared dead, and go on: members, roots, copies and callers."""

from __future__ import annotations

import random

import pytest

from iris_overlay.events import ConnectFailed, PeerDied
from iris_overlay.ids import ID_BYTES, GroupId
from iris_py.testing.cores.overlay import OverlaySimulation
from tests.profiles import first_cases

#: A stopped node is out of every view within 3 s.
STOPPED_S = 4.0
#: What docs/guarantees.md 7.3 promises.
SERVED_S = 1.0
STEP_S = 0.02


def group_of(seed: int) -> GroupId:
    return GroupId(bytes([seed * 37 % 256]) * ID_BYTES)


def network(seed: int, size: int) -> OverlaySimulation:
    simulation = OverlaySimulation(seed, is_checked=False)
    for _ in range(size):
        simulation.start_node()
    simulation.run_for(4.0)
    return simulation


def sees(simulation: OverlaySimulation, watcher: int, group: GroupId, member: int) -> bool:
    view = simulation.nodes[watcher].views.get(group)
    return view is not None and simulation.nodes[member].id in view.members


@pytest.mark.parametrize("size", [3, 6, 20])
@pytest.mark.parametrize("seed", first_cases(4, range(12)))
def test_a_member_that_goes_on_is_in_every_view_again_within_a_second(seed: int, size: int) -> None:
    simulation, group = network(seed, size), group_of(seed)
    watchers = range(1, 3)
    simulation.join_group(0, group)
    for watcher in (0, *watchers):
        simulation.watch_group(watcher, group)
    simulation.run_for(3.0 + 0.13 * seed)
    simulation.stop(0)
    simulation.run_for(STOPPED_S)
    assert not any(sees(simulation, watcher, group, 0) for watcher in watchers)
    simulation.resume(0)
    resumed_at, missed_at = simulation.now, simulation.now
    while simulation.now < resumed_at + 5.0:
        simulation.run_for(STEP_S)
        if not all(sees(simulation, watcher, group, 0) for watcher in watchers):
            missed_at = simulation.now
    assert missed_at - resumed_at < SERVED_S


@pytest.mark.parametrize("how", ["crash", "fail"])
def test_who_wants_a_link_to_a_peer_that_is_known_to_be_dead_is_told_so_again(how: str) -> None:
    simulation = network(7, 6)
    dead = simulation.nodes[0].info
    caller = simulation.nodes[1]
    getattr(simulation, how)(0)
    simulation.run_until(lambda: any(isinstance(event, PeerDied) and event.peer == dead.id for _, event in caller.log), 5.0)
    simulation.run_for(1.0)
    asked_at = simulation.now
    simulation.connect(1, dead)
    simulation.run_for(1.5)  # a check of who fell silent takes 1.05 s
    (told_at, *_) = [when for when, event in caller.log if isinstance(event, PeerDied) and when >= asked_at]
    assert told_at - asked_at < (0.01 if how == "crash" else 1.2)
    assert not any(isinstance(event, ConnectFailed) and asked_at <= when < told_at for when, event in caller.log)


@pytest.mark.parametrize("seed", first_cases(4, range(12)))
def test_a_member_that_was_killed_does_not_come_back_when_its_root_and_its_callers_go_on(seed: int) -> None:
    simulation, group = network(seed, 12), group_of(seed)
    rng = random.Random(seed)
    dead, watchers = 0, range(2, 8)
    for member in (dead, 1):
        simulation.join_group(member, group)
    for watcher in watchers:
        simulation.watch_group(watcher, group)
    simulation.run_for(3.0)
    (root,) = [index for index, node in simulation.nodes.items() if node.overlay.directory_of(group) is not None]
    holders = [index for index, node in simulation.nodes.items() if node.overlay.table_sizes()["copies"]]
    stalled = {root, *rng.sample(watchers, 3), *rng.sample(holders, rng.randint(0, 2))} - {dead}
    for index in stalled:
        simulation.stop(index)
    killed_after_s = rng.uniform(0.0, 3.3)
    simulation.run_for(killed_after_s)
    simulation.crash(dead)
    simulation.run_for(3.5 - killed_after_s)
    for index in stalled:
        simulation.resume(index)
        simulation.run_for(rng.choice((0.0, 0.01, 0.1)))
    out: set[int] = set()
    for _ in range(300):
        simulation.run_for(STEP_S)
        for watcher in watchers:
            if not sees(simulation, watcher, group, dead):
                out.add(watcher)
            else:
                assert watcher not in out, f"it came back into the view of {watcher}"
    assert out == set(watchers)
