"""The catalog as a state machine: equal changes in equal order make equal states.

The catalog checks a change on application, because other changes may come between proposal and commit. A refused change has no
effect. Stores and streams disappear only by changes with their ids.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.streams.catalog.changes import (
    VERSION,
    AddWraps,
    AdmitStore,
    BeginKey,
    CatalogRefusal,
    ChangeResult,
    ChangeSettings,
    CreateStream,
    DropKey,
    ForgetStore,
    MakeCatalog,
    MoveReplica,
    NewerChange,
    RemoveGeneration,
    RemoveStream,
    RetireStore,
    decode_change,
)
from iris_py.streams.catalog.limits import (
    CATALOG_STREAMS_MAX,
    CATALOG_WRAPS_MAX,
    GENERATIONS_MAX,
    NAME_BYTES_MAX,
    REMOVED_STREAMS_MAX,
    RETIRED_STORES_MAX,
    STORES_MAX,
    STREAM_KEYS_MAX,
)
from iris_py.streams.catalog.records import CatalogSnapshot, KeyWrap, StoreEntry, StreamEntry
from iris_py.streams.limits import STORE_PARTITIONS_MAX, STREAM_BYTES_MIN
from iris_py.streams.raft.messages import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.streams.catalog.changes import CatalogChange
    from iris_py.streams.description import StreamDescription

__all__ = ["Catalog", "DamagedCatalog", "make_catalog_id", "must_give_way"]

_CHANGED: Final = ChangeResult(is_changed=True)
#: The change was made before.
_SAME: Final = ChangeResult()
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(CatalogSnapshot)
_TIME_BYTES: Final = 6


class DamagedCatalog(ValueError):
    """The bytes are no snapshot of a catalog, or have a newer version."""


def make_catalog_id(time_ms: int, randomness: bytes) -> bytes:
    """Return the id of a new catalog. Older catalogs have smaller ids.

    Args:
        time_ms: Milliseconds since 1970.
        randomness: 10 random bytes.
    """
    return time_ms.to_bytes(_TIME_BYTES, "big") + randomness


def must_give_way(own: bytes, other: bytes) -> bool:
    """Whether the stores of a catalog stop at the first contact with another catalog: the younger catalog gives way."""
    return own > other


class Catalog:
    """The state of a catalog.

    Attributes:
        id: The id; empty before the first change.
        may_share_hosts: Whether replicas of a partition may share a host.
        stores: The stores by id.
        streams: The streams by id.
        is_outdated: Whether a change of a newer version came. From then on the state is unknown: the store applies no changes,
            answers no searches and saves no snapshots.
    """

    def __init__(self, snapshot: CatalogSnapshot | None = None) -> None:
        found = snapshot or CatalogSnapshot()
        self.id = found.catalog
        self.may_share_hosts = found.may_share_hosts
        self.stores: dict[bytes, StoreEntry] = {entry.store: entry for entry in found.stores}
        self.streams: dict[bytes, StreamEntry] = {}
        self.is_outdated = False
        self._names: dict[str, bytes] = {}
        self._retired = dict.fromkeys(found.retired)
        self._removed = dict.fromkeys(found.removed)
        self._held: Counter[bytes] = Counter()  # replicas by store
        self._wraps = 0
        for entry in found.streams:
            self._put(entry)

    @classmethod
    def decode(cls, data: bytes) -> Catalog:
        """Return the catalog of a snapshot; an empty catalog without bytes.

        Raises:
            DamagedCatalog: The bytes are unreadable, contradictory or newer.
        """
        if not data:
            return cls()
        if data[0] > VERSION:
            raise DamagedCatalog(f"the version {data[0]} of the catalog is newer than {VERSION}: update Iris")
        try:
            catalog = cls(_DECODER.decode(data[1:]))
        except DECODE_ERRORS as exc:
            raise DamagedCatalog(f"the catalog cannot be read: {exc}") from exc
        is_sound = len(catalog._names) == len(catalog.streams) and all(map(_is_valid, catalog.streams.values()))
        if not is_sound or catalog.encode() != data:
            raise DamagedCatalog("the catalog contradicts itself")
        return catalog

    def encode(self) -> bytes:
        """Return the snapshot of the state."""
        snapshot = CatalogSnapshot(
            self.id,
            self.may_share_hosts,
            tuple(self.stores[store] for store in sorted(self.stores)),
            tuple(self.streams[stream] for stream in sorted(self.streams)),
            tuple(self._retired),
            tuple(self._removed),
        )
        return bytes((VERSION,)) + _ENCODER.encode(snapshot)

    @property
    def version(self) -> int:
        """The newest version readable by all stores. The leader writes no newer changes."""
        return min((entry.version for entry in self.stores.values()), default=VERSION)

    def find(self, name: str) -> StreamEntry | None:
        """Return the stream with a name."""
        stream = self._names.get(name)
        return self.streams[stream] if stream is not None else None

    def is_removed(self, stream: bytes) -> bool:
        """Whether a change removed the stream. Only files of removed streams go into the trash."""
        return stream in self._removed

    def is_retired(self, store: bytes) -> bool:
        """Whether a store retires or has retired."""
        known = self.stores.get(store)
        return store in self._retired or (known is not None and known.is_retiring)

    def count_replicas(self, store: bytes) -> int:
        """Return the number of replicas on a store."""
        return self._held[store]

    def apply(self, body: bytes) -> ChangeResult:
        """Apply a committed change.

        Args:
            body: The body of the block.

        Returns:
            The result, equal at all replicas of a version.
        """
        if self.is_outdated:
            return ChangeResult(CatalogRefusal.NEWER)
        try:
            change = decode_change(body)
        except NewerChange:
            self.is_outdated = True
            return ChangeResult(CatalogRefusal.NEWER)
        result = self._apply(change) if change is not None else CatalogRefusal.MALFORMED
        return ChangeResult(result) if isinstance(result, CatalogRefusal) else result

    def _apply(self, change: CatalogChange) -> ChangeResult | CatalogRefusal:
        if isinstance(change, MakeCatalog):
            return self._make(change)
        if not self.id:
            return CatalogRefusal.NO_CATALOG
        match change:
            case AdmitStore():
                return self._admit(change.entry)
            case RetireStore():
                return self._retire(change.store)
            case ForgetStore():
                return self._forget(change.store)
            case CreateStream():
                return self._create(change)
        if change.stream in self._removed:
            return _SAME if isinstance(change, RemoveStream) else CatalogRefusal.REMOVED
        entry = self.streams.get(change.stream)
        if entry is None:
            return CatalogRefusal.NO_STREAM
        if isinstance(change, RemoveStream):
            return self._remove(entry)
        changed = self._change(entry, change)
        if isinstance(changed, CatalogRefusal):
            return changed
        if changed == entry:
            return _SAME
        if self._wraps - len(entry.wraps) + len(changed.wraps) > CATALOG_WRAPS_MAX or not _has_few_keys(changed.wraps):
            return CatalogRefusal.FULL
        self._drop(entry)
        self._put(changed)
        return _CHANGED

    # Stores

    def _make(self, change: MakeCatalog) -> ChangeResult | CatalogRefusal:
        if self.id:
            return _SAME if self.id == change.catalog else CatalogRefusal.OTHER_CATALOG
        self.id, self.may_share_hosts = change.catalog, change.may_share_hosts
        return _CHANGED

    def _admit(self, entry: StoreEntry) -> ChangeResult | CatalogRefusal:
        known = self.stores.get(entry.store)
        if entry.store in self._retired:
            return CatalogRefusal.RETIRED
        if known is None:
            if len(self.stores) >= STORES_MAX:
                return CatalogRefusal.FULL
            is_retiring = False
        else:
            if (known.starts, known.process) == (entry.starts, entry.process):
                return _SAME
            if entry.starts <= known.starts:
                return CatalogRefusal.OLD_COPY
            is_retiring = known.is_retiring
        others = [other.version for other in self.stores.values() if other is not known]
        if others and entry.version < min(others):
            return CatalogRefusal.OLD_VERSION
        self.stores[entry.store] = msgspec.structs.replace(entry, is_retiring=is_retiring)
        return _CHANGED

    def _retire(self, store: bytes) -> ChangeResult | CatalogRefusal:
        known = self.stores.get(store)
        if known is None:
            return _SAME if store in self._retired else CatalogRefusal.NO_STORE
        if known.is_retiring:
            return _SAME
        self.stores[store] = msgspec.structs.replace(known, is_retiring=True)
        return _CHANGED

    def _forget(self, store: bytes) -> ChangeResult | CatalogRefusal:
        known = self.stores.get(store)
        if known is None:
            return _SAME if store in self._retired else CatalogRefusal.NO_STORE
        if not known.is_retiring or self._held[store]:
            return CatalogRefusal.HOLDS_PARTITIONS
        if len(self._retired) >= RETIRED_STORES_MAX:
            return CatalogRefusal.FULL
        del self.stores[store]
        self._retired[store] = None
        return _CHANGED

    # Streams

    def _create(self, change: CreateStream) -> ChangeResult | CatalogRefusal:
        description = change.description
        if change.stream in self.streams:
            return _SAME if self.streams[change.stream].description.name == description.name else CatalogRefusal.INVALID
        if change.stream in self._removed:
            return CatalogRefusal.REMOVED
        if description.name in self._names:
            return CatalogRefusal.NAME_TAKEN
        entry = StreamEntry(change.stream, description, change.placement, tuple(sorted(change.wraps)))
        has_one_size = len(set(map(len, change.placement))) == 1
        if not _is_valid(entry) or not has_one_size or not _is_one_key(entry.wraps, 1, is_optional=True):
            return CatalogRefusal.INVALID
        if len(self.streams) >= CATALOG_STREAMS_MAX or self._wraps + len(entry.wraps) > CATALOG_WRAPS_MAX:
            return CatalogRefusal.FULL
        added: Counter[bytes] = Counter()
        for stores in change.placement:
            added.update(stores)
            if not all(self._can_hold(store, stores, added[store]) for store in stores):
                return CatalogRefusal.UNPLACEABLE
        self._put(entry)
        return _CHANGED

    def _can_hold(self, store: bytes, stores: tuple[bytes, ...], added: int) -> bool:
        """Whether a store can join the placement of a partition."""
        entry = self.stores.get(store)
        if entry is None or entry.is_retiring or stores.count(store) > 1:
            return False
        if self._held[store] + added > STORE_PARTITIONS_MAX:
            return False
        others = (self.stores[other].host for other in stores if other != store and other in self.stores)
        return self.may_share_hosts or entry.host not in others

    def _remove(self, entry: StreamEntry) -> ChangeResult:
        self._drop(entry)
        self._removed[entry.stream] = None
        if len(self._removed) > REMOVED_STREAMS_MAX:
            del self._removed[next(iter(self._removed))]
        return _CHANGED

    def _change(
        self, entry: StreamEntry, change: ChangeSettings | MoveReplica | BeginKey | AddWraps | RemoveGeneration | DropKey
    ) -> StreamEntry | CatalogRefusal:
        """Return the changed entry of a stream, or the present entry."""
        match change:
            case ChangeSettings():
                return _change_settings(entry, change)
            case MoveReplica():
                return self._move(entry, change)
            case BeginKey():
                wraps = tuple(sorted(change.wraps))
                if any(wrap.key <= entry.newest_key for wrap in wraps):
                    return entry if set(wraps) <= set(entry.wraps) else CatalogRefusal.OUTDATED
                if not _is_one_key(wraps, entry.newest_key + 1):
                    return CatalogRefusal.INVALID
                return _with_wraps(entry, (*entry.wraps, *wraps))
            case AddWraps():
                there = {(wrap.key, wrap.generation) for wrap in entry.wraps}
                added = {(wrap.key, wrap.generation): wrap for wrap in reversed(change.wraps)}
                if not {wrap.key for wrap in change.wraps} <= {wrap.key for wrap in entry.wraps}:
                    return CatalogRefusal.OUTDATED
                new = (wrap for place, wrap in added.items() if place not in there)
                return _with_wraps(entry, (*entry.wraps, *new))
            case RemoveGeneration():
                safe = {wrap.key for wrap in entry.wraps if wrap.generation != change.generation}
                kept = (wrap for wrap in entry.wraps if wrap.generation != change.generation or wrap.key not in safe)
                return _with_wraps(entry, kept)
            case DropKey():
                if change.key >= entry.newest_key:
                    return CatalogRefusal.KEY_NEEDED
                return _with_wraps(entry, (wrap for wrap in entry.wraps if wrap.key != change.key))

    def _move(self, entry: StreamEntry, change: MoveReplica) -> StreamEntry | CatalogRefusal:
        if change.partition >= len(entry.placement):
            return CatalogRefusal.INVALID
        present = entry.placement[change.partition]
        if change.stores == present:
            return entry
        if change.before != present:
            return CatalogRefusal.OUTDATED
        new = set(change.stores) - set(present)
        if len(set(change.stores)) != len(present) or len(change.stores) != len(present) or len(new) > 1:
            return CatalogRefusal.INVALID
        if not all(self._can_hold(store, change.stores, 1) for store in new):
            return CatalogRefusal.UNPLACEABLE
        placement = list(entry.placement)
        placement[change.partition] = change.stores
        return msgspec.structs.replace(entry, placement=tuple(placement))

    def _put(self, entry: StreamEntry) -> None:
        self.streams[entry.stream] = entry
        self._names[entry.description.name] = entry.stream
        self._held.update(store for stores in entry.placement for store in stores)
        self._wraps += len(entry.wraps)

    def _drop(self, entry: StreamEntry) -> None:
        del self.streams[entry.stream]
        del self._names[entry.description.name]
        self._held.subtract(store for stores in entry.placement for store in stores)
        self._wraps -= len(entry.wraps)


def _is_valid(entry: StreamEntry) -> bool:
    """Whether a stream is within the bounds. Rules for names may change with versions: proposers check names."""
    description = entry.description
    is_named = 0 < len(description.name.encode()) <= NAME_BYTES_MAX
    is_sorted = entry.wraps == tuple(sorted(entry.wraps))
    return is_named and is_sorted and description.partitions == len(entry.placement) and _has_valid_settings(description)


def _has_valid_settings(description: StreamDescription) -> bool:
    return description.max_age_s > 0 and STREAM_BYTES_MIN <= description.max_bytes < 1 << 63


def _change_settings(entry: StreamEntry, change: ChangeSettings) -> StreamEntry | CatalogRefusal:
    description = msgspec.structs.replace(
        entry.description, max_age_s=change.max_age_s, max_bytes=change.max_bytes, full=change.full
    )
    if not _has_valid_settings(description):
        return CatalogRefusal.INVALID
    if description == entry.description:
        return entry
    if change.revision != entry.revision:
        return CatalogRefusal.OUTDATED
    return msgspec.structs.replace(entry, description=description, revision=entry.revision + 1)


def _is_one_key(wraps: tuple[KeyWrap, ...], key: int, *, is_optional: bool = False) -> bool:
    """Whether all wraps are of the same data key, under different generations."""
    generations = {wrap.generation for wrap in wraps}
    is_alone = all(wrap.key == key for wrap in wraps) and len(generations) == len(wraps)
    return is_alone and len(wraps) <= GENERATIONS_MAX and (is_optional or bool(wraps))


def _has_few_keys(wraps: tuple[KeyWrap, ...]) -> bool:
    generations = Counter(wrap.key for wrap in wraps)
    return len(generations) <= STREAM_KEYS_MAX and max(generations.values(), default=0) <= GENERATIONS_MAX


def _with_wraps(entry: StreamEntry, wraps: Iterable[KeyWrap]) -> StreamEntry:
    return msgspec.structs.replace(entry, wraps=tuple(sorted(wraps)))
