"""The frame of all schedules: bounds so small that blocks travel in pieces, and the end, after which a group is level."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iris_py.streams.raft import entries, limits, replication
from iris_py.streams.raft import replica as replica_module
from iris_py.testing.cores.streams import PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from iris_py.testing.cores.streams import SimulatedStore, StreamSimulation

__all__ = ["bounded", "heal"]

#: The virtual time that a healed group gets to append again. Too small: a repair in many steps is taken for a stuck one; too
#: large: a stuck schedule takes long.
HEALED_S: Final = 90.0


@contextmanager
def bounded(message_blocks: int, recent_bytes: int, mark_s: float) -> Iterator[None]:
    """Replace bounds of replication.

    Args:
        message_blocks: The number of blocks in one message.
        recent_bytes: The bytes of blocks in memory; the disk reads older ones.
        mark_s: The time between two saves of the mark.
    """
    chosen: tuple[tuple[ModuleType, str, float], ...] = (
        (replication, "MESSAGE_BLOCKS_MAX", message_blocks),
        (entries, "RECENT_BYTES_MAX", recent_bytes),
        (replica_module, "MARK_S", mark_s),
    )
    for module, name, value in chosen:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, _value in chosen:
            setattr(module, name, getattr(limits, name))


def heal(simulation: StreamSimulation) -> None:
    """End all faults, and check that the group appends again, and that its members have every acknowledged record.

    Raises:
        AssertionError: A promise is broken.
    """
    simulation.cuts, simulation.loss = set(), 0.0
    simulation.vote_crash = simulation.read_failure = simulation.stall = 0.0
    for store in simulation.stores.values():
        store.crash_in, store.disk.is_full, store.disk.failing_syncs = 0, False, 0
        simulation.start(store)
    before = len(simulation.checks.acked)
    until = simulation.now + HEALED_S
    while not _is_level(simulation, before):
        assert simulation.now < until, f"stuck; {_describe(simulation)}"
        simulation.run(2.0)
        for store in simulation.leaders():
            if len(simulation.checks.acked) <= before:
                simulation.propose(store, PRODUCERS[0])
    for store in simulation.stores.values():
        _check_log(simulation, store)


def _is_level(simulation: StreamSimulation, before: int) -> bool:
    """Whether the group appends, and all its members have all of it and are sound."""
    if len(simulation.checks.acked) <= before:
        return False
    leaders = [store.replica for store in simulation.leaders()]
    if len(leaders) != 1 or leaders[0] is None:
        return False
    members = leaders[0].context.members.newest.stores
    last = leaders[0].context.entries.last
    for member in members:
        replica = simulation.stores[member].replica
        if replica is None:
            return False
        context = replica.context
        if context.entries.holes or context.state.is_damaged or context.commit != last or context.disk.synced != last:
            return False
    return True


def _check_log(simulation: StreamSimulation, store: SimulatedStore) -> None:
    """Read the disk of a member, and look for everything that was acknowledged."""
    leader = simulation.leaders()[0].replica
    assert leader is not None
    assert store.replica is not None
    if store.id not in leader.context.members.newest.stores:
        return
    context = store.replica.context
    headers = []
    for index in range(context.entries.base.index + 1, context.entries.last + 1):
        found = store.disk.find_header(index)
        assert found is not None, f"the disk of {store.id.hex()[:4]} lacks the block {index}"
        assert found.chain == context.entries.chain_at(index), f"the disk has another block {index}"
        headers.append(found)
    simulation.checks.check_log(headers, context.entries.base.index)


def _describe(simulation: StreamSimulation) -> str:
    parts = []
    for store in simulation.stores.values():
        if store.replica is not None:
            context = store.replica.context
            parts.append(
                f"{store.id.hex()[:2]}: term {context.state.term}, last {context.entries.last}, base"
                f" {context.entries.base.index}, commit {context.commit}, synced {context.disk.synced}, holes"
                f" {list(context.entries.holes)[:4]}, mark {context.state.mark.index}, damaged {context.state.is_damaged},"
                f" leads {store.replica.is_leader}, members"
                f" {[each.hex()[:2] for each in context.members.newest.voters]}"
            )
    return "; ".join(parts)
