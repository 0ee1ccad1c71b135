"""The choice of stores by the catalog's leader, for partitions and for the votes of the catalog.

Replicas of a partition are on different hosts, then in different zones, then on the stores with the least bytes, then on the
stores with the fewest led partitions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from iris_py.streams.catalog.limits import CATALOG_VOTERS
from iris_py.streams.limits import STORE_PARTITIONS_MAX
from iris_py.streams.raft.limits import LEARNERS_MAX
from iris_py.streams.raft.membership import MemberSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_py.streams.catalog.machine import Catalog
    from iris_py.streams.catalog.records import Placement, ReplicaStores, StreamEntry

__all__ = ["NoPlacement", "StoreUsage", "next_members", "place_stream", "replace_store"]


class StoreUsage(msgspec.Struct, frozen=True, gc=False):
    """The report of a running store with room for partitions."""

    used_bytes: int = 0
    leads: int = 0


class NoPlacement(Exception):
    """Too few hosts have stores with room for a replica.

    Attributes:
        replicas: The wanted number of replicas.
        hosts: The hosts of stores with room.
    """

    def __init__(self, replicas: int, hosts: Sequence[str]) -> None:
        self.replicas = replicas
        self.hosts = tuple(hosts)
        super().__init__(replicas, self.hosts)

    def __str__(self) -> str:
        return f"{self.replicas} replicas want {self.replicas} hosts, and the stores with room are on {', '.join(self.hosts)}"


def place_stream(
    catalog: Catalog, partitions: int, replicas: int, partition_bytes: int, usage: Mapping[bytes, StoreUsage]
) -> Placement:
    """Return the stores of a new stream.

    Args:
        catalog: The catalog.
        partitions: The number of partitions.
        replicas: The number of replicas of a partition.
        partition_bytes: The largest size of a partition. The chosen stores count as filled: the partitions of a stream spread.
        usage: The stores with room.

    Raises:
        NoPlacement: Too few hosts have stores with room.
    """
    chooser = _StoreChooser(catalog, usage)
    return tuple(chooser.choose((), replicas, partition_bytes) for _ in range(partitions))


def replace_store(
    catalog: Catalog, entry: StreamEntry, partition: int, leaving: bytes, usage: Mapping[bytes, StoreUsage]
) -> ReplicaStores:
    """Return the stores of a partition with a replacement for a store.

    Raises:
        NoPlacement: Too few hosts have stores with room.
    """
    present = entry.placement[partition]
    kept = tuple(store for store in present if store != leaving)
    usage = {store: each for store, each in usage.items() if store not in present}
    return _StoreChooser(catalog, usage).choose(kept, len(present), entry.description.max_bytes)


class _StoreChooser:
    """Chooses stores, and counts chosen stores as filled."""

    def __init__(self, catalog: Catalog, usage: Mapping[bytes, StoreUsage]) -> None:
        self._catalog = catalog
        self._bytes = {store: usage[store].used_bytes for store in usage if store in catalog.stores}
        self._leads = {store: usage[store].leads for store in self._bytes}
        self._added: Counter[bytes] = Counter()

    def choose(self, kept: ReplicaStores | tuple[()], replicas: int, size: int) -> ReplicaStores:
        """Return kept and new stores. Without kept stores the store with the fewest led partitions comes first."""
        chosen = list(kept)
        stores = self._catalog.stores
        while len(chosen) < replicas:
            zones = Counter(stores[store].zone for store in chosen if store in stores)
            candidates = self._candidates(chosen)
            if not candidates:
                hosts = {stores[store].host for store in (*chosen, *self._candidates(())) if store in stores}
                raise NoPlacement(replicas, sorted(hosts))
            store = min(candidates, key=lambda each: (zones[stores[each].zone], self._bytes[each], self._leads[each], each))
            chosen.append(store)
            self._bytes[store] += size
            self._added[store] += 1
        if not kept:
            chosen.sort(key=lambda each: self._leads[each])
            self._leads[chosen[0]] += 1
        return tuple(chosen)

    def _candidates(self, chosen: Iterable[bytes]) -> list[bytes]:
        catalog = self._catalog
        taken = set(chosen)
        hosts = set() if catalog.may_share_hosts else {catalog.stores[each].host for each in taken if each in catalog.stores}
        return [
            store
            for store in self._bytes
            if store not in taken
            and catalog.stores[store].host not in hosts
            and not catalog.is_retired(store)
            and catalog.count_replicas(store) + self._added[store] < STORE_PARTITIONS_MAX
        ]


def next_members(catalog: Catalog, members: MemberSet) -> MemberSet:
    """Return the members of the catalog's group after the next change, or the present members.

    All stores follow the catalog as learners. Up to three stores vote, on different hosts. A retired voter leaves after the
    arrival of a replacement.
    """
    voters, learners, stores = members.voters, members.learners, catalog.stores
    for store in sorted(stores):
        if store not in members.stores and not catalog.is_retired(store) and len(learners) < LEARNERS_MAX:
            return MemberSet(voters, (*learners, store))
    staying = [store for store in voters if not catalog.is_retired(store)]
    hosts = {stores[store].host for store in staying if store in stores}
    zones = Counter(stores[store].zone for store in staying if store in stores)
    able = [
        store
        for store in learners
        if store in stores and not catalog.is_retired(store) and (catalog.may_share_hosts or stores[store].host not in hosts)
    ]
    if len(staying) < CATALOG_VOTERS and able:
        store = min(able, key=lambda each: (zones[stores[each].zone], each))
        return MemberSet((*voters, store), tuple(each for each in learners if each != store))
    if len(staying) < len(voters) and staying:
        leaving = next(store for store in voters if store not in staying)
        return MemberSet(tuple(store for store in voters if store != leaving), (*learners, *({leaving} & stores.keys())))
    gone = [store for store in learners if catalog.is_retired(store) and store not in stores]
    return MemberSet(voters, tuple(store for store in learners if store not in gone[:1]))
