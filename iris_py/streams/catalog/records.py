"""The contents of a catalog: stores, and streams with their placements and the wraps of their data keys."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from iris_py.streams.blocks import ID_BYTES
from iris_py.streams.catalog.limits import (
    CATALOG_STREAMS_MAX,
    GENERATIONS_MAX,
    NAME_BYTES_MAX,
    REMOVED_STREAMS_MAX,
    REPLICAS_MAX,
    RETIRED_STORES_MAX,
    STORES_MAX,
    STREAM_KEYS_MAX,
    WRAP_BYTES_MAX,
)
from iris_py.streams.description import StreamDescription
from iris_py.streams.limits import PARTITIONS_MAX
from iris_py.streams.raft.messages import Number

__all__ = ["CatalogSnapshot", "Id", "KeyWrap", "KeyWraps", "Placement", "ReplicaStores", "StoreEntry", "StreamEntry"]

Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
#: The stores of a partition. The first one is the preferred leader.
ReplicaStores: TypeAlias = Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=REPLICAS_MAX)]
#: The stores of all partitions of a stream.
Placement: TypeAlias = Annotated[tuple[ReplicaStores, ...], msgspec.Meta(min_length=1, max_length=PARTITIONS_MAX)]


class StoreEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A store, as announced at the last start."""

    store: Id
    process: Id
    """The node of the process."""
    starts: Number
    """The number of starts. An old copy of the directory has a lower number."""
    version: Number
    """The newest readable version of changes."""
    name: Name
    host: Name
    zone: Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)] = ""
    is_retiring: bool = False


class KeyWrap(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A data key of a stream, encrypted under a generation of the stream's secret."""

    key: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
    """The number of the data key, from 1 on."""
    generation: Id
    """The id of the group with the encrypting key."""
    wrapped: Annotated[bytes, msgspec.Meta(min_length=1, max_length=WRAP_BYTES_MAX)]


KeyWraps: TypeAlias = Annotated[tuple[KeyWrap, ...], msgspec.Meta(max_length=GENERATIONS_MAX * STREAM_KEYS_MAX)]


class StreamEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stream: the answer to a search for its name."""

    stream: Id
    description: StreamDescription
    placement: Placement
    wraps: KeyWraps = ()
    """Sorted by key and generation."""
    revision: Number = 0
    """The number of changes of the settings."""

    @property
    def newest_key(self) -> int:
        """The number of the newest data key; 0 without data keys."""
        return self.wraps[-1].key if self.wraps else 0

    @property
    def generations(self) -> frozenset[bytes]:
        """The generations with wraps of data keys."""
        return frozenset(wrap.generation for wrap in self.wraps)


class CatalogSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of a catalog. Equal states have equal bytes: stores and streams are sorted by id."""

    catalog: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""
    """Empty before the first change."""
    may_share_hosts: bool = False
    stores: Annotated[tuple[StoreEntry, ...], msgspec.Meta(max_length=STORES_MAX)] = ()
    streams: Annotated[tuple[StreamEntry, ...], msgspec.Meta(max_length=CATALOG_STREAMS_MAX)] = ()
    retired: Annotated[tuple[Id, ...], msgspec.Meta(max_length=RETIRED_STORES_MAX)] = ()
    """Retired stores, oldest first."""
    removed: Annotated[tuple[Id, ...], msgspec.Meta(max_length=REMOVED_STREAMS_MAX)] = ()
    """The newest removed streams, oldest first."""
