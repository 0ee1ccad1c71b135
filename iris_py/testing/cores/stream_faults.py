"""Schedules of faults for replicas of a stream, each from a seed: crashes, losses of power, cuts, and damage to disks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.streams.raft import limits
from iris_py.streams.raft.context import UNKNOWN_MARK
from iris_py.streams.raft.membership import MemberSet
from iris_py.streams.replica_state import SLOT_BYTES
from iris_py.testing.cores.stream_end import bounded, heal
from iris_py.testing.cores.streams import PRODUCERS, StreamSimulation

if TYPE_CHECKING:
    from collections import Counter

    from iris_py.testing.cores.streams import SimulatedStore

__all__ = ["StreamReport", "StreamSchedule"]

STEPS: Final = 120
#: Times between two steps, in virtual seconds.
PAUSES: Final = (0.01, 0.1, 0.7, 4.0)


class StreamReport(NamedTuple):
    """The result of a schedule."""

    acked: int
    leaders: int
    counts: Counter[str]
    virtual_s: float


class StreamSchedule:
    """A schedule of faults.

    With *one* damaged replica at a time anything on its disk may change. With *all* damaged, any block that is whole on
    another disk may; the state of a replica stays.
    """

    def __init__(self, seed: int, *, is_all_damaged: bool = False) -> None:
        """Draw a schedule.

        Args:
            seed: The seed.
            is_all_damaged: Whether all replicas may be damaged at once.
        """
        self.seed = seed
        self.is_all_damaged = is_all_damaged
        self.has_changes = not is_all_damaged and seed % 3 == 1
        self.has_snapshots = not is_all_damaged and seed % 2 == 1
        voters = 5 if not self.has_changes and seed % 10 == 4 else 3
        self.simulation = self._make_simulation(seed, 5 if self.has_changes else voters, voters)
        rng = self.simulation.rng
        self.simulation.vote_crash = rng.choice((0.0, 0.05, 0.2))
        self.simulation.read_failure = 0.0 if is_all_damaged else rng.choice((0.0, 0.0, 0.02))
        self.simulation.stall = rng.choice((0.0, 0.0, 0.01))

    def run(self) -> StreamReport:
        """Run the schedule, then heal everything, and check that the group goes on.

        Raises:
            AssertionError: A promise is broken.
        """
        rng = random.Random(self.seed)
        message_blocks = rng.choice((1, 2, limits.MESSAGE_BLOCKS_MAX))
        recent_bytes = rng.choice((2000, 20_000, limits.RECENT_BYTES_MAX))
        with bounded(message_blocks, recent_bytes, mark_s=rng.choice((limits.MARK_S, 3.0, 20.0))):
            self._run()
        checks = self.simulation.checks
        return StreamReport(len(checks.acked), checks.leaders, self.simulation.counts, self.simulation.now)

    def _run(self) -> None:
        simulation = self.simulation
        for store in simulation.stores.values():
            simulation.start(store)
        simulation.run(5.0)
        for _ in range(STEPS):
            self._step()
            if self.has_changes and simulation.rng.random() < 0.15:
                self._change_members()
            if self.has_snapshots and simulation.rng.random() < 0.05:
                simulation.save_snapshot(simulation.rng.choice(list(simulation.stores.values())))
            for store in simulation.leaders():
                for _ in range(simulation.rng.randint(0, 3)):
                    if store.replica is not None and store.replica.is_leader:
                        simulation.propose(store, simulation.rng.choice(PRODUCERS))
                if simulation.rng.random() < 0.3 and store.replica is not None and store.replica.is_leader:
                    simulation.ask_end(store)
            simulation.run(simulation.rng.choice(PAUSES))
        heal(simulation)

    def _make_simulation(self, seed: int, stores: int, voters: int) -> StreamSimulation:
        return StreamSimulation(seed, stores, voters)

    def _step(self) -> None:
        simulation, rng = self.simulation, self.simulation.rng
        stores = list(simulation.stores.values())
        store = rng.choice(stores)
        chance = rng.random()
        if chance < 0.10:
            simulation.cuts = {(a, b) for a in simulation.stores for b in simulation.stores if a != b and rng.random() < 0.3}
        elif chance < 0.20:
            simulation.cuts = set()
        elif chance < 0.25:
            simulation.loss = rng.choice((0.0, 0.0, 0.1, 0.3))
        elif chance < 0.38:
            if store.replica is not None:
                simulation.crash(store, power=rng.random() < 0.6)
                if rng.random() < 0.45:
                    self._damage(store)
                if rng.random() < 0.3:
                    simulation.note_store_lost(store.id)
        elif chance < 0.42:
            for each in stores:
                if each.replica is not None:
                    simulation.crash(each, power=True)
            if rng.random() < 0.4:
                self._damage(store)
        elif chance < 0.50:
            store.crash_in = rng.randint(1, 8)
        elif chance < 0.53:
            store.disk.is_full = not store.disk.is_full
        elif chance < 0.55:
            store.disk.failing_syncs = 1
        elif chance < 0.57:
            for leader in simulation.leaders():
                simulation.hand_over(leader)
        elif chance < 0.66:
            self._end_leader()
        elif chance < 0.85:
            for each in stores:
                if each.replica is None and rng.random() < 0.7:
                    simulation.start(each)

    def _end_leader(self) -> None:
        """Let a leader reach a part of the group with new records, and end the leader."""
        simulation, rng = self.simulation, self.simulation.rng
        for leader in simulation.leaders():
            kept = simulation.cuts
            simulation.cuts = kept | {(leader.id, other) for other in simulation.stores if rng.random() < 0.6}
            for _ in range(rng.randint(1, 2)):
                if leader.replica is not None and leader.replica.is_leader:
                    simulation.propose(leader, rng.choice(PRODUCERS))
            simulation.run(rng.choice((0.01, 0.1, 0.5)))
            if leader.replica is not None:
                simulation.crash(leader, power=rng.random() < 0.5)
                simulation.later(rng.choice((0.01, 2.0, 6.0)), simulation.start, leader)
            simulation.cuts = kept

    def _change_members(self) -> None:
        """Let a leader change its members, twice: only its rules keep the changes apart."""
        simulation = self.simulation
        for leader in simulation.leaders():
            if simulation.rng.random() < 0.3:  # nobody hears of it
                simulation.cuts |= {pair for other in simulation.stores for pair in ((leader.id, other), (other, leader.id))}
            for is_second in (False, True):
                if leader.replica is not None and leader.replica.is_leader:
                    members = leader.replica.context.members.newest
                    wanted = self._draw_members(members, voters_min=1 if is_second else 2)
                    simulation.change_members(leader, wanted)

    def _draw_members(self, members: MemberSet, *, voters_min: int) -> MemberSet:
        rng = self.simulation.rng
        wanted = []
        if members.learners:
            learner = rng.choice(members.learners)
            rest = tuple(each for each in members.learners if each != learner)
            wanted += [MemberSet((*members.voters, learner), rest)] * 3 + [MemberSet(members.voters, rest)]
        outside = [store for store in self.simulation.stores if store not in members.stores]
        if outside:
            wanted.append(MemberSet(members.voters, (*members.learners, rng.choice(outside))))
        if len(members.voters) > voters_min:
            voter = rng.choice(members.voters)
            wanted.append(MemberSet(tuple(each for each in members.voters if each != voter), members.learners))
        return rng.choice(wanted) if wanted else members

    # Damage

    def _damage(self, store: SimulatedStore) -> None:
        """Damage the disk of a store without a process."""
        simulation, rng = self.simulation, self.simulation.rng
        for other in simulation.stores.values():
            self._note_sound(other)
        if not self.is_all_damaged and any(each.is_tainted for each in simulation.stores.values() if each is not store):
            return
        saved, _ = store.disk.read_state()
        if store.replica is not None or saved is None:
            return
        if not self.is_all_damaged and rng.random() < 0.08:
            store.is_tainted = True
            simulation.counts["states damaged"] += 1
            for place in rng.choice(((0,), (SLOT_BYTES,), (0, SLOT_BYTES))):
                store.disk.state.change(place + rng.randrange(60), rng.randbytes(2))
            return
        snapshot = store.disk.newest_snapshot()
        base = snapshot.base.index if snapshot is not None else 0
        mark = saved.state.mark.index
        places = store.disk.find_places()
        hits = [index for index in places if base < index <= mark]
        if mark == UNKNOWN_MARK.index or not hits or (self.is_all_damaged and saved.state.is_damaged):
            return
        if not self.is_all_damaged and snapshot is not None and rng.random() < 0.1:
            store.is_tainted = True
            simulation.counts["snapshots damaged"] += 1
            store.disk.snapshots = [data[:5] for data in store.disk.snapshots]
            return
        if rng.random() < 0.6:
            self._rot(store, hits, places)
        else:
            end = rng.choice(hits) - 1
            lost = [index for index in places if index > end]
            if all(self._is_spared(store, index, places[index][2]) for index in lost):
                store.is_tainted = True
                store.kept = 0
                simulation.counts["files cut"] += 1
                place = min(places[index][0] for index in lost) + rng.choice((0, 0, 70, 144))
                store.disk.log.replace(bytes(store.disk.log.durable[:place]))

    def _rot(self, store: SimulatedStore, hits: list[int], places: dict[int, tuple[int, int, bytes]]) -> None:
        simulation, rng = self.simulation, self.simulation.rng
        chosen = {rng.choice(hits) for _ in range(rng.randint(1, 3))}
        behind = [index for index in places if index > max(hits)]
        if behind and rng.random() < 0.5:
            chosen.add(rng.choice(behind))
        chosen = {index for index in chosen if self._is_spared(store, index, places[index][2])}
        if not chosen & set(hits):
            return
        store.is_tainted = True
        kind = rng.choice(("bits flipped", "writes lost", "writes misdirected", "headers flipped"))
        simulation.counts[kind] += 1
        for index in chosen:
            place, size, _chain = places[index]
            if kind == "writes lost":
                store.disk.log.change(place, bytes(size))
            elif kind == "writes misdirected":
                other = places[rng.choice(list(places))]
                data = bytes(store.disk.log.durable[other[0] : other[0] + min(other[1], size)])
                store.disk.log.change(place, data if other[0] != place else bytes(size))
            else:
                at = place + rng.randrange(120 if kind == "headers flipped" else size - 8)
                store.disk.log.change(at, bytes([store.disk.log.durable[at] ^ 1 << rng.randrange(8)]))

    def _is_spared(self, store: SimulatedStore, index: int, chain: bytes) -> bool:
        """Whether the block may be damaged: always with one damaged replica, else if another disk has it."""
        if not self.is_all_damaged:
            return True
        for other in self.simulation.stores.values():
            found = other.disk.find_places().get(index)
            if other is not store and found is not None and found[2] == chain:
                return True
        return False

    def _note_sound(self, store: SimulatedStore) -> None:
        replica = store.replica
        if store.is_tainted and replica is not None:
            context = replica.context
            is_sound = not (context.state.is_damaged or context.disk.durable.state.is_damaged or context.entries.holes)
            if is_sound and replica.deadline() < float("inf"):
                store.is_tainted = False
