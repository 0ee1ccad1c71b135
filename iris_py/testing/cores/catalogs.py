"""Replicas of a catalog: the simulation of replicas of a stream, with changes of a catalog as its blocks, and searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.streams.blocks import BlockHeader, BlockKind
from iris_py.streams.catalog.changes import decode_change, encode_change
from iris_py.streams.catalog.machine import Catalog
from iris_py.streams.catalog.placement import next_members
from iris_py.streams.catalog.records import CatalogSnapshot
from iris_py.streams.raft.entries import decode_block
from iris_py.streams.raft.events import BlocksCommitted, EndConfirmed, LeaderLost
from iris_py.testing.cores.catalog_checks import CatalogChecks
from iris_py.testing.cores.catalog_users import NAMES, CatalogUsers
from iris_py.testing.cores.stream_faults import StreamReport, StreamSchedule
from iris_py.testing.cores.streams import StreamSimulation

if TYPE_CHECKING:
    from iris_py.streams.catalog.changes import CatalogChange
    from iris_py.streams.raft.events import ReplicaEvent
    from iris_py.streams.raft.membership import MemberSet
    from iris_py.streams.raft.replica import Replica
    from iris_py.testing.cores.streams import SimulatedStore

__all__ = ["CatalogSchedule", "CatalogSimulation"]

_DIGEST_BYTES: Final = 8
#: Changes of one user in a turn. Too small: catalogs stay empty; too large: few faults come between them.
_CHANGES_MAX: Final = 4


class CatalogSimulation(StreamSimulation):
    """Stores with catalogs.

    Attributes:
        catalogs: The catalogs of running stores, by store.
        catalog_checks: The promises of catalogs.
    """

    def __init__(self, seed: int, stores: int, voters: int) -> None:
        super().__init__(seed, stores, voters)
        self.catalogs: dict[bytes, Catalog] = {}
        self.catalog_checks = CatalogChecks()
        self._users = CatalogUsers(self.rng, tuple(self.stores), may_share_hosts=seed % 5 == 3)
        self._changes: dict[tuple[bytes, int], CatalogChange] = {}
        self._searches: dict[int, str] = {}  # names by token
        self._waiting: dict[bytes, list[tuple[int, str]]] = {}  # confirmed ends with names, by store

    def propose(self, store: SimulatedStore, producer: bytes) -> int | None:
        """Propose some changes at a leader, and search between changes; returns the last index."""
        index = None
        for _ in range(self.rng.randint(1, _CHANGES_MAX)):
            if store.replica is not None and store.replica.is_leader:
                index = self._propose_one(store, store.replica, producer)
            if store.replica is not None and store.replica.is_leader and self.rng.random() < 0.5:
                self.ask_end(store)
        return index

    def _propose_one(self, store: SimulatedStore, replica: Replica, producer: bytes) -> int | None:
        change = self._users.draw(self.catalogs[store.id])
        number = self._numbers[producer] = self._numbers[producer] + 1
        header = BlockHeader(BlockKind.CHANGE, 0, 0, 0, 0, 0, 0, 0, int(self.now * 1000), b"", producer, number)
        index = replica.propose(header, encode_change(change), self.now)
        if index is not None:
            store.pending[index] = (producer, number)
            self._changes[producer, number] = change
        self._drain(store)
        return index

    def ask_end(self, store: SimulatedStore) -> None:
        """Search for a name at a leader."""
        self._searches[self._tokens + 1] = self.rng.choice(NAMES)
        super().ask_end(store)

    def check_end(self) -> None:
        """Check the acknowledged changes, and compare the catalogs of all members."""
        leader = self.leaders()[0]
        assert leader.replica is not None
        for member in leader.replica.context.members.newest.stores:
            assert self.stores[member].applied == leader.applied
            assert self.catalogs[member].encode() == self.catalogs[leader.id].encode()
        for key, record in self.checks.acked.items():
            self.catalog_checks.check_acked(record.place, self._changes[key], leader.applied)

    # The machine

    def _load_machine(self, store: SimulatedStore, index: int, state: bytes) -> None:
        super()._load_machine(store, index, state[:_DIGEST_BYTES])
        self.catalogs[store.id] = Catalog.decode(state[_DIGEST_BYTES:])
        self._waiting[store.id] = []
        if index:
            assert self.catalogs[store.id].encode() == self.catalog_checks.state_at(index), "a snapshot is another state"

    def _encode_machine(self, store: SimulatedStore) -> bytes:
        return super()._encode_machine(store) + self.catalogs[store.id].encode()

    def _apply(self, store: SimulatedStore, index: int, chain: bytes) -> None:
        super()._apply(store, index, chain)
        found, _ = store.disk.load(index, index)
        block = decode_block(found[0]) if found else None
        assert block is not None, f"the disk of {store.id.hex()[:4]} lacks the committed block {index}"
        catalog = self.catalogs[store.id]
        before = catalog.encode()
        is_change = block.header.kind == BlockKind.CHANGE
        result = catalog.apply(block.body) if is_change else None
        change = decode_change(block.body) if is_change else None
        self.catalog_checks.note_applied(index, change, result, before, catalog.encode())

    def _handle_event(self, store: SimulatedStore, replica: Replica, event: ReplicaEvent) -> None:
        super()._handle_event(store, replica, event)
        if isinstance(event, LeaderLost):
            self._waiting[store.id] = []
        if isinstance(event, EndConfirmed):
            self._waiting[store.id].append((event.index, self._searches.pop(event.token)))
        if isinstance(event, EndConfirmed | BlocksCommitted):
            self._answer(store)

    def _answer(self, store: SimulatedStore) -> None:
        """Answer searches up to the applied index."""
        waiting, self._waiting[store.id] = self._waiting[store.id], []
        for index, name in waiting:
            if index > store.applied:
                self._waiting[store.id].append((index, name))
                continue
            self.catalog_checks.note_answer(name, self.catalogs[store.id].find(name), store.applied)
            self.checks.note_end(store.applied, index)


class CatalogSchedule(StreamSchedule):
    """A schedule of faults for the replicas of a catalog."""

    def __init__(self, seed: int, *, is_all_damaged: bool = False) -> None:
        super().__init__(seed, is_all_damaged=is_all_damaged)
        self.has_snapshots = self.has_snapshots or (not is_all_damaged and seed % 4 == 0)

    def run(self) -> StreamReport:
        """Run the schedule, end all faults, and compare the catalogs.

        Raises:
            AssertionError: A promise is broken.
        """
        report = super().run()
        simulation = self._catalogs
        simulation.check_end()
        simulation.counts["changes of the catalog"] = simulation.catalog_checks.accepted
        simulation.counts["searches answered"] = simulation.catalog_checks.searches
        return report

    def _make_simulation(self, seed: int, stores: int, voters: int) -> CatalogSimulation:
        self._catalogs = CatalogSimulation(seed, stores, voters)
        return self._catalogs

    def _draw_members(self, members: MemberSet, *, voters_min: int) -> MemberSet:
        """Take the next step according to a catalog, or a random step."""
        simulation = self._catalogs
        if simulation.rng.random() < 0.5:
            catalog = simulation.catalogs[simulation.rng.choice(list(simulation.catalogs))]
            stores = tuple(entry for store, entry in catalog.stores.items() if store in simulation.stores)
            retired = tuple(store for store in simulation.stores if catalog.is_retired(store))
            view = Catalog(CatalogSnapshot(catalog.id, catalog.may_share_hosts, stores, (), retired))
            return next_members(view, members)
        return super()._draw_members(members, voters_min=voters_min)
