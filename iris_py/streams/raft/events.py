"""The events of a replica for its owner."""

from __future__ import annotations

import msgspec

from iris_py.streams.raft.disk import GroupSnapshot

__all__ = [
    "BlocksCommitted",
    "BlocksRepaired",
    "EndConfirmed",
    "LeaderLost",
    "ReplicaDamaged",
    "ReplicaEvent",
    "ReplicaHalted",
    "ReplicaLed",
    "ReplicaSound",
    "SnapshotInstalled",
    "TornTail",
]


class BlocksCommitted(msgspec.Struct, frozen=True):
    """All blocks up to an index are committed, and durable here."""

    index: int


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The state of the machine is that of the snapshot; blocks up to its index are not applied again."""

    snapshot: GroupSnapshot


class ReplicaLed(msgspec.Struct, frozen=True):
    """The replica leads."""

    term: int


class LeaderLost(msgspec.Struct, frozen=True):
    """The replica leads no more."""

    term: int


class EndConfirmed(msgspec.Struct, frozen=True):
    """No record was acknowledged behind an index before the question with a token."""

    token: int
    index: int


class ReplicaDamaged(msgspec.Struct, frozen=True):
    """Synced blocks are missing, or the state was."""


class ReplicaSound(msgspec.Struct, frozen=True):
    """A damaged replica has everything that was acknowledged."""


class BlocksRepaired(msgspec.Struct, frozen=True):
    """A peer's block fills a hole."""

    index: int


class TornTail(msgspec.Struct, frozen=True):
    """Blocks behind an index were cut at the start: a failure of power had torn one, and none was acknowledged."""

    index: int


class ReplicaHalted(msgspec.Struct, frozen=True):
    """The replica takes no part any more: the owner ends its process."""

    reason: str


ReplicaEvent = (
    BlocksCommitted
    | SnapshotInstalled
    | ReplicaLed
    | LeaderLost
    | EndConfirmed
    | ReplicaDamaged
    | ReplicaSound
    | BlocksRepaired
    | TornTail
    | ReplicaHalted
)
