"""The users of a simulated catalog: random changes of stores and streams, late repetitions of changes, and impossible ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.streams.catalog.changes import (
    AddWraps,
    AdmitStore,
    BeginKey,
    ChangeSettings,
    CreateStream,
    DropKey,
    ForgetStore,
    MakeCatalog,
    MoveReplica,
    RemoveGeneration,
    RemoveStream,
    RetireStore,
)
from iris_py.streams.catalog.machine import make_catalog_id
from iris_py.streams.catalog.placement import NoPlacement, StoreUsage, place_stream, replace_store
from iris_py.streams.catalog.records import KeyWrap, StoreEntry
from iris_py.streams.description import StreamDescription
from iris_py.streams.limits import STREAM_BYTES_MIN

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from iris_py.streams.catalog.changes import CatalogChange
    from iris_py.streams.catalog.machine import Catalog
    from iris_py.streams.catalog.records import StreamEntry

__all__ = ["NAMES", "SECRET_BYTES", "CatalogUsers"]

NAMES: Final = ("a", "b", "c", "d", "e")
#: The first bytes of a wrap tell its data key, so that checks see whether all wraps of a key open the same one.
SECRET_BYTES: Final = 8
_GENERATIONS: Final = tuple(bytes([0xC0 + number]) * 16 for number in range(3))
#: Fewer hosts than stores, so that some placements put two replicas on one host.
_HOSTS: Final = 4
_ZONES: Final = 2
#: The share of changes that come again, late.
_REPEATED: Final = 0.15


class CatalogUsers:
    """Draws changes. Users read the catalog of a leader, and other changes may come before the commit.

    Attributes:
        sent: All changes.
        starts: The number of starts of each store.
    """

    def __init__(self, rng: random.Random, stores: Sequence[bytes], *, may_share_hosts: bool) -> None:
        """Prepare the users.

        Args:
            rng: The source of randomness.
            stores: Stores with a replica of the catalog. Users know as many stores without a replica.
            may_share_hosts: Whether replicas of a partition may share a host.
        """
        self.sent: list[CatalogChange] = []
        self._rng = rng
        self._stores = [*stores, *(bytes([0xE0 + number]) * 16 for number in range(len(stores)))]
        self._may_share_hosts = may_share_hosts
        self.starts = dict.fromkeys(self._stores, 1)

    def draw(self, catalog: Catalog) -> CatalogChange:
        """Return the next change."""
        rng = self._rng
        if self.sent and rng.random() < _REPEATED:
            return rng.choice(self.sent)
        if (not catalog.id and not any(isinstance(each, MakeCatalog) for each in self.sent)) or rng.random() < 0.02:
            made = make_catalog_id(rng.randrange(1 << 40), rng.randbytes(10))
            change: CatalogChange | None = MakeCatalog(made, self._may_share_hosts)
        elif len(catalog.stores) < 4 or rng.random() < 0.2:
            change = self._admit(catalog)
        elif rng.random() < 0.12:
            change = self._retire(catalog)
        elif len(catalog.streams) < 2 or rng.random() < 0.35:
            change = self._create(catalog)
        else:
            change = self._change(catalog, rng.choice([catalog.streams[stream] for stream in sorted(catalog.streams)]))
        change = change or self._admit(catalog)
        self.sent.append(change)
        return change

    # Stores

    def _admit(self, catalog: Catalog) -> AdmitStore:
        """A store starts, or another process starts on an old copy of the directory."""
        rng = self._rng
        store = rng.choice(self._stores)
        starts = self.starts[store]
        if rng.random() < 0.3:
            starts = rng.randint(1, starts)
        elif store in catalog.stores:
            starts = self.starts[store] = starts + 1
        number = self._stores.index(store)
        host, zone = f"host{number % _HOSTS}", f"zone{number % _ZONES}"
        return AdmitStore(StoreEntry(store, rng.randbytes(16), starts, 1, f"store{number}", host, zone))

    def _retire(self, catalog: Catalog) -> CatalogChange | None:
        rng = self._rng
        retiring = [store for store in sorted(catalog.stores) if catalog.stores[store].is_retiring]
        if retiring and rng.random() < 0.7:
            return ForgetStore(rng.choice(retiring))
        if len(catalog.stores) - len(retiring) < 5:
            return None
        return RetireStore(rng.choice(sorted(catalog.stores)))

    # Streams

    def _create(self, catalog: Catalog) -> CreateStream:
        """Create a stream, or repeat a creation behind the removal."""
        rng = self._rng
        late = [each for each in self.sent if isinstance(each, CreateStream) and catalog.is_removed(each.stream)]
        if late and rng.random() < _REPEATED:
            return rng.choice(late)
        partitions, replicas = rng.randint(1, 3), rng.choice((1, 3, 3))
        stores = sorted(catalog.stores)
        usage = {store: StoreUsage(rng.randrange(1 << 30), rng.randrange(9)) for store in stores if rng.random() < 0.95}
        try:
            placement = place_stream(catalog, partitions, replicas, STREAM_BYTES_MIN, usage)
        except NoPlacement:
            placement = ()
        if not placement or rng.random() < 0.1:
            placement = tuple(tuple(rng.choices(stores, k=replicas)) for _ in range(partitions))
        description = StreamDescription(rng.choice(NAMES), partitions)
        return CreateStream(rng.randbytes(16), description, placement, self._wrap_new_key(1) if rng.random() < 0.8 else ())

    def _change(self, catalog: Catalog, entry: StreamEntry) -> CatalogChange | None:
        rng = self._rng
        kind = rng.randrange(8)
        if kind == 0:
            return RemoveStream(entry.stream)
        if kind == 1:
            revision = entry.revision if rng.random() < 0.8 else rng.randrange(3)
            return ChangeSettings(entry.stream, revision, float(rng.randint(1, 9)), STREAM_BYTES_MIN, "refuse")
        if kind <= 3:
            return self._move(catalog, entry)
        if kind == 4:
            return BeginKey(entry.stream, self._wrap_new_key(entry.newest_key + rng.choice((0, 1, 1, 1, 2))))
        if not entry.wraps:
            return None
        if kind == 5:
            generation = rng.choice(_GENERATIONS)
            secrets = {wrap.key: wrap.wrapped[:SECRET_BYTES] for wrap in entry.wraps}
            wraps = (KeyWrap(key, generation, secret + rng.randbytes(4)) for key, secret in secrets.items())
            return AddWraps(entry.stream, tuple(wraps))
        if kind == 6:
            return RemoveGeneration(entry.stream, rng.choice(_GENERATIONS))
        return DropKey(entry.stream, rng.randint(1, entry.newest_key))

    def _move(self, catalog: Catalog, entry: StreamEntry) -> MoveReplica:
        """Move a replica, first from retiring stores, sometimes to a random place."""
        rng = self._rng
        partition = rng.randrange(len(entry.placement))
        present = entry.placement[partition]
        leaving = next((store for store in present if catalog.is_retired(store)), rng.choice(present))
        usage = {store: StoreUsage(rng.randrange(1 << 30)) for store in sorted(catalog.stores)}
        try:
            stores = replace_store(catalog, entry, partition, leaving, usage)
        except NoPlacement:
            stores = ()
        if not stores or rng.random() < 0.1:
            stores = tuple(rng.choices(sorted(catalog.stores), k=len(present)))
        return MoveReplica(entry.stream, partition, present, stores)

    def _wrap_new_key(self, key: int) -> tuple[KeyWrap, ...]:
        secret = self._rng.randbytes(SECRET_BYTES)
        chosen = [generation for generation in _GENERATIONS if self._rng.random() < 0.6] or [_GENERATIONS[0]]
        return tuple(KeyWrap(max(1, key), generation, secret + self._rng.randbytes(4)) for generation in chosen)
