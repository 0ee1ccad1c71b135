"""Directed schedules of faults: each leads a group into one danger that random schedules reach rarely.

A seed draws the times of messages and disks, and the parts of unsynced writes that a loss of power keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.streams.raft import limits
from iris_py.streams.raft.membership import MemberSet
from iris_py.testing.cores.stream_end import bounded, heal
from iris_py.testing.cores.streams import PRODUCERS, StreamSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.streams.raft.replica import Replica
    from iris_py.testing.cores.streams import SimulatedStore

__all__ = ["SCENARIOS", "SituationMissed", "run_scenario"]

#: The time for an election, a commit or a repair without faults.
_SOON_S: Final = 30.0
#: The time of a message, of its execution by a disk, and of the answer.
_ROUND_S: Final = 1.4


class SituationMissed(Exception):
    """The group did not come into the danger of a directed schedule."""


def run_scenario(name: str, seed: int) -> None:
    """Run a directed schedule, then heal everything, and check that the group goes on.

    Raises:
        AssertionError: A promise is broken.
        SituationMissed: The schedule shows nothing.
    """
    scenario = SCENARIOS[name]
    with bounded(1, limits.RECENT_BYTES_MAX, scenario.mark_s):
        simulation = StreamSimulation(seed, scenario.stores, 3)
        scenario.act(simulation)
        heal(simulation)


def _act_on_lost_sync(simulation: StreamSimulation) -> None:
    """End a follower with its power at the commit, and the leader; the follower and a third store elect."""
    leader, follower, third = _begin(simulation)
    _part(simulation, [third])
    _append(simulation, leader)
    simulation.crash(follower, power=True)
    simulation.crash(leader, power=False)
    _elect_alone(simulation, follower, third)


def _act_on_forgotten_vote(simulation: StreamSimulation) -> None:
    """End a voter with its power right behind its vote; it and a third store hold the next election without the candidate."""
    first, second, third = simulation.stores.values()
    _part(simulation, [third])
    _start_all(simulation)

    def votes() -> list[tuple[SimulatedStore, SimulatedStore]]:
        pairs = ((first, second), (second, first))
        return [(voter, candidate) for voter, candidate in pairs if _replica(voter).context.state.vote == candidate.id]

    _reach(simulation, lambda: bool(votes()), "a vote")
    ((voter, _candidate),) = votes()
    simulation.crash(voter, power=True)
    simulation.run(_ROUND_S)
    _elect_alone(simulation, voter, third)


def _act_on_older_term(simulation: StreamSimulation) -> None:
    """Bring a block of an older term to a majority, while a store with a newer one may still lead: figure 8 of the Raft paper.

    The first leader leaves a block on its own disk alone. The second one leaves a block of its term at the same index
    likewise. The first one returns, and brings its old block to a majority, but no block of its new term. Then the second
    one returns.
    """
    first, *others = _begin(simulation)
    _part(simulation, [first])
    index = simulation.propose(first, PRODUCERS[0])
    assert index is not None
    _wait_for_sync(simulation, first, index)
    simulation.crash(first, power=False)
    second = _elect(simulation, others)
    _part(simulation, [second])
    _wait_for_sync(simulation, second, index)
    simulation.crash(second, power=False)
    (third,) = (store for store in others if store is not second)
    _elect_alone(simulation, first, third)
    _wait_for_sync(simulation, third, index)
    simulation.cuts = {(first.id, third.id)}
    simulation.run(_ROUND_S)
    simulation.crash(first, power=False)
    _elect_alone(simulation, second, third)


def _act_on_two_changes(simulation: StreamSimulation) -> None:
    """Let a leader make voters of two learners on its side of a cut; the majority of the old voters is on the other side."""
    leader, *others = _begin(simulation)
    learners = [store for store in simulation.stores.values() if store not in (leader, *others)]
    voters = _replica(leader).context.members.newest.voters
    for count in range(1, len(learners) + 1):
        _change(simulation, leader, MemberSet(voters, tuple(store.id for store in learners[:count])))
    last = _replica(leader).context.entries.last
    for learner in learners:
        _wait_for_sync(simulation, learner, last)
    simulation.run(_ROUND_S)
    _part(simulation, [leader, *learners])
    one, two = (store.id for store in learners)
    for wanted in (MemberSet((*voters, one), (two,)), MemberSet((*voters, one, two))):
        simulation.change_members(leader, wanted)  # the second one is refused
    simulation.run(_ROUND_S)
    _elect(simulation, others)


def _act_on_short_log(simulation: StreamSimulation) -> None:
    """Cut the file of a store with an acknowledged block; it and a store without the block are alone, through a restart."""
    leader, whole, third = _begin_marked(simulation)
    lost = _replica(leader).context.entries.last
    _part(simulation, [third])
    _append(simulation, leader)
    for store in (leader, whole):
        simulation.crash(store, power=False)
    leader.disk.log.replace(bytes(leader.disk.log.durable[: leader.disk.find_places()[lost][0]]))
    leader.is_tainted, leader.kept = True, 0
    simulation.cuts = set()
    simulation.start(leader)
    simulation.run(10.0)
    simulation.crash(leader, power=False)
    simulation.start(leader)
    simulation.run(10.0)


def _act_on_damaged_tails(simulation: StreamSimulation) -> None:
    """Damage two stores with two acknowledged blocks: each keeps another one behind its mark, and has a hole before it."""
    leader, follower, third = _begin_marked(simulation)
    marked = _replica(leader).context.entries.last
    _part(simulation, [third])
    before = _append(simulation, leader)
    behind = _append(simulation, leader)
    _wait_for_sync(simulation, follower, behind)
    for store in (leader, follower):
        simulation.crash(store, power=False)
    for store, indexes in ((leader, (marked - 1, before)), (follower, (marked - 2, behind))):
        places = store.disk.find_places()
        for index in indexes:
            place, size, _chain = places[index]
            store.disk.log.change(place, bytes(size))
        store.is_tainted = True
    simulation.cuts = set()
    _start_all(simulation)


class _Scenario(NamedTuple):
    """A directed schedule."""

    act: Callable[[StreamSimulation], None]
    stores: int = 3
    mark_s: float = limits.MARK_S


#: All directed schedules. A mark of 20 s is set once before the acknowledged blocks, and not again before the damage.
SCENARIOS: Final = {
    "lost sync": _Scenario(_act_on_lost_sync),
    "forgotten vote": _Scenario(_act_on_forgotten_vote),
    "older term": _Scenario(_act_on_older_term),
    "two changes": _Scenario(_act_on_two_changes, stores=5),
    "short log": _Scenario(_act_on_short_log, mark_s=20.0),
    "damaged tails": _Scenario(_act_on_damaged_tails, mark_s=20.0),
}


def _replica(store: SimulatedStore) -> Replica:
    assert store.replica is not None
    return store.replica


def _reach(simulation: StreamSimulation, condition: Callable[[], bool], name: str) -> None:
    """Let time pass until a condition holds."""
    if not simulation.run_until(condition, _SOON_S):
        raise SituationMissed(f"{name} did not come in {_SOON_S:.0f} s")


def _start_all(simulation: StreamSimulation) -> None:
    for store in simulation.stores.values():
        simulation.start(store)


def _begin(simulation: StreamSimulation) -> list[SimulatedStore]:
    """Start all stores, and let the voters have some blocks; returns the voters, the leader first."""
    _start_all(simulation)
    voters = [simulation.stores[store] for store in simulation.first_members.voters]
    leader = _elect(simulation, voters)
    for _ in range(3):
        _append(simulation, leader)
    for store in voters:
        _wait_for_sync(simulation, store, _replica(leader).context.entries.last)
    return [leader, *(store for store in voters if store is not leader)]


def _begin_marked(simulation: StreamSimulation) -> list[SimulatedStore]:
    """Begin, and wait until the marks are at the end of the log; returns the voters, the leader first."""
    voters = _begin(simulation)

    def are_marked() -> bool:
        contexts = [_replica(store).context for store in voters]
        return all(context.disk.durable.state.mark.index == context.entries.last for context in contexts)

    _reach(simulation, are_marked, "marks at the end")
    return voters


def _elect(simulation: StreamSimulation, stores: Iterable[SimulatedStore]) -> SimulatedStore:
    """Let time pass until one of some stores leads; returns that store."""
    stores = tuple(stores)
    _reach(simulation, lambda: any(store in stores for store in simulation.leaders()), "a leader")
    return next(store for store in simulation.leaders() if store in stores)


def _append(simulation: StreamSimulation, leader: SimulatedStore) -> int:
    """Append a record, and let time pass until it is acknowledged; returns its index."""
    index = simulation.propose(leader, PRODUCERS[0])
    assert index is not None
    _reach(simulation, lambda: index not in leader.pending, "a commit")
    return index


def _change(simulation: StreamSimulation, leader: SimulatedStore, wanted: MemberSet) -> None:
    """Change the members, and let time pass until the change is committed."""
    simulation.change_members(leader, wanted)
    context = _replica(leader).context
    _reach(simulation, lambda: context.commit >= context.members.newest_index, "a commit of members")


def _wait_for_sync(simulation: StreamSimulation, store: SimulatedStore, index: int) -> None:
    context = _replica(store).context
    _reach(simulation, lambda: context.disk.synced >= index, "a sync")


def _part(simulation: StreamSimulation, side: Iterable[SimulatedStore]) -> None:
    """Cut the network between some stores and all others, and nowhere else."""
    inside = {store.id for store in side}
    simulation.cuts = {
        (one, other) for one in simulation.stores for other in simulation.stores if (one in inside) != (other in inside)
    }


def _elect_alone(simulation: StreamSimulation, *stores: SimulatedStore) -> None:
    """Cut some stores off from all others, start them, and let time pass until one of them leads."""
    _part(simulation, stores)
    for store in stores:
        simulation.start(store)
    _elect(simulation, stores)
