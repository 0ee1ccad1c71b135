"""The changes of a catalog, their bodies in CHANGE blocks, and their results.

A body is a byte with the version, and a msgpack array. The array begins with the kind. The proposer draws ids, times and random
bytes, and the body contains them: all replicas derive the same state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from iris_py.streams.catalog.records import Id, KeyWraps, Placement, ReplicaStores, StoreEntry
from iris_py.streams.description import OnStreamFull, StreamDescription
from iris_py.streams.limits import STREAM_BYTES_MIN
from iris_py.streams.raft.messages import DECODE_ERRORS, Number

__all__ = [
    "VERSION",
    "AddWraps",
    "AdmitStore",
    "BeginKey",
    "CatalogChange",
    "CatalogRefusal",
    "ChangeResult",
    "ChangeSettings",
    "CreateStream",
    "DropKey",
    "ForgetStore",
    "MakeCatalog",
    "MoveReplica",
    "NewerChange",
    "RemoveGeneration",
    "RemoveStream",
    "RetireStore",
    "decode_change",
    "encode_change",
]

#: The version of changes and snapshots that this program writes and reads. A new kind or field of a change is a new version.
VERSION: Final = 1


class MakeCatalog(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Begin a catalog."""

    catalog: Id
    may_share_hosts: bool
    """Whether replicas of a partition may share a host: the network listens on loopback alone."""


class AdmitStore(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Admit a store, at each of its starts."""

    entry: StoreEntry


class RetireStore(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Place no more partitions on a store; its partitions move away."""

    store: Id


class ForgetStore(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Remove a retiring store without partitions. The catalog never admits the id again."""

    store: Id


class CreateStream(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Create a stream."""

    stream: Id
    description: StreamDescription
    placement: Placement
    wraps: KeyWraps = ()
    """Of the first data key."""


class ChangeSettings(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Change age, bytes and behaviour when full of a stream."""

    stream: Id
    revision: Number
    """The revision known to the proposer."""
    max_age_s: Annotated[float, msgspec.Meta(gt=0)]
    max_bytes: Annotated[int, msgspec.Meta(ge=STREAM_BYTES_MIN, le=(1 << 63) - 1)]
    full: OnStreamFull


class RemoveStream(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Remove a stream with all data keys."""

    stream: Id


class MoveReplica(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Replace a store of a partition, or change the order of the stores."""

    stream: Id
    partition: Number
    before: ReplicaStores
    """The stores known to the proposer."""
    stores: ReplicaStores


class BeginKey(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Begin a new data key, wrapped under all accepted generations."""

    stream: Id
    wraps: KeyWraps


class AddWraps(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Wrap data keys of a stream under another generation."""

    stream: Id
    wraps: KeyWraps


class RemoveGeneration(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Remove the wraps of a retired generation, but never the last wrap of a data key."""

    stream: Id
    generation: Id


class DropKey(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Forget an old data key without records."""

    stream: Id
    key: Number


CatalogChange: TypeAlias = (
    MakeCatalog
    | AdmitStore
    | RetireStore
    | ForgetStore
    | CreateStream
    | ChangeSettings
    | RemoveStream
    | MoveReplica
    | BeginKey
    | AddWraps
    | RemoveGeneration
    | DropKey
)


class CatalogRefusal(StrEnum):
    """The reason of a committed change without effect, equal at every replica."""

    NEWER = "a newer version of Iris wrote the change: update this store"
    MALFORMED = "the change cannot be read"
    NO_CATALOG = "there is no catalog yet"
    OTHER_CATALOG = "there is another catalog"
    OLD_COPY = "the directory of the store is an old copy: a later start of it was seen"
    OLD_VERSION = "the store cannot read the changes that all other stores read"
    RETIRED = "the store has retired; begin with an empty directory"
    NO_STORE = "there is no such store"
    HOLDS_PARTITIONS = "the store is not retiring, or still has partitions"
    NO_STREAM = "there is no such stream"
    NAME_TAKEN = "a stream of this name exists"
    REMOVED = "the stream was removed; a new one needs a new id"
    OUTDATED = "another change came before"
    INVALID = "the change contradicts itself"
    UNPLACEABLE = "a store of the placement is retiring or full, or shares a host with another one"
    KEY_NEEDED = "the newest data key is needed"
    FULL = "a bound of the catalog is reached"


class ChangeResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a committed change."""

    refusal: CatalogRefusal | None = None
    is_changed: bool = False
    """Whether the state differs now. The catalog accepts a repeated change without effect."""


class NewerChange(ValueError):
    """A newer version of Iris wrote the change."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[CatalogChange]] = msgspec.msgpack.Decoder(CatalogChange)


def encode_change(change: CatalogChange) -> bytes:
    """Return the body of a CHANGE block."""
    return bytes((VERSION,)) + _ENCODER.encode(change)


def decode_change(body: bytes) -> CatalogChange | None:
    """Return the change of a body; None for a malformed body.

    Raises:
        NewerChange: A newer version wrote the change.
    """
    if body and body[0] > VERSION:
        raise NewerChange(f"the version {body[0]} of a change is newer than {VERSION}")
    try:
        return _DECODER.decode(body[1:])
    except DECODE_ERRORS:
        return None
