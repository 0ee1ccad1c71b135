"""The requests of a replica to its disk, and the durable part of its log and state.

The disk executes the requests of a replica in their order, and reports each as done or failed; only loads may overtake. After a
failed write it fails all writes up to the next cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py.streams.blocks import Block
from iris_py.streams.raft.entries import LogBase
from iris_py.streams.raft.membership import MemberSet
from iris_py.streams.raft.messages import Number
from iris_py.streams.replica_state import ReplicaState, SavedState

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CutLog",
    "DiskQueue",
    "DiskRequest",
    "DropBefore",
    "FillBlock",
    "GroupSnapshot",
    "LoadBlocks",
    "ResetLog",
    "RewriteTail",
    "SaveSnapshot",
    "SaveState",
    "SyncLog",
    "WriteBlocks",
]


class GroupSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of the machine that applies a log, up to an index, and the place where the kept log begins."""

    base: LogBase
    """Not behind the index."""
    index: Number
    members: MemberSet
    """The members by the entries up to the index."""
    state: bytes


class WriteBlocks(msgspec.Struct, frozen=True):
    """Write blocks behind the last one."""

    ticket: int
    blocks: tuple[Block, ...]


class SyncLog(msgspec.Struct, frozen=True):
    """Sync everything that was written."""

    ticket: int


class SaveState(msgspec.Struct, frozen=True):
    """Write a slot of the state and sync it."""

    ticket: int
    saved: SavedState


class CutLog(msgspec.Struct, frozen=True):
    """Remove everything behind an index, unreadable bytes too, and sync."""

    ticket: int
    end: int


class FillBlock(msgspec.Struct, frozen=True):
    """Put a block into a hole, and sync: the log without the block survives a failure."""

    ticket: int
    block: Block


class RewriteTail(msgspec.Struct, frozen=True):
    """Write all blocks behind an index once more: the cache of the system may show blocks that the disk never got."""

    ticket: int
    index: int


class SaveSnapshot(msgspec.Struct, frozen=True):
    """Write a snapshot, and sync it; the one before remains until then."""

    ticket: int
    snapshot: GroupSnapshot


class DropBefore(msgspec.Struct, frozen=True):
    """Remove blocks up to a base; the disk may keep some of them."""

    ticket: int
    base: LogBase


class ResetLog(msgspec.Struct, frozen=True):
    """Remove all blocks; the next one follows a base."""

    ticket: int
    base: LogBase


class LoadBlocks(msgspec.Struct, frozen=True):
    """Read blocks, at most `limits.MESSAGE_BYTES_MAX` and at least one."""

    ticket: int
    first: int
    last: int


DiskRequest = (
    WriteBlocks | SyncLog | SaveState | CutLog | FillBlock | RewriteTail | SaveSnapshot | DropBefore | ResetLog | LoadBlocks
)


class DiskQueue:
    """Makes the requests, and follows their reports.

    Attributes:
        requests: New requests, taken by the owner.
        durable: The newest state on the disk.
        number: The number of the newest state that was to be saved.
    """

    def __init__(self, durable: SavedState, base: int) -> None:
        self.requests: list[DiskRequest] = []
        self.durable = durable
        self.number = durable.number
        self._ticket = 0
        self._pending: dict[int, DiskRequest] = {}  # requests without a report, by ticket
        self._writing: list[Block] = []
        self._points: dict[int, int] = {}  # the index that a sync makes durable, by ticket
        self._fills: dict[int, int] = {}  # index by ticket
        self._synced = base
        self._ignored = 0

    @property
    def synced(self) -> int:
        """The index up to which the log is durable."""
        return min(self._synced, min(self._fills.values()) - 1) if self._fills else self._synced

    @property
    def is_idle(self) -> bool:
        """Whether all requests have their reports."""
        return not self._pending and not self._writing

    def write(self, block: Block) -> None:
        """Write a block with the next flush."""
        self._writing.append(block)

    def flush(self) -> None:
        """Request the writes since the last flush, and one sync for all of them."""
        if self._writing:
            blocks, self._writing = tuple(self._writing), []
            self._request(WriteBlocks, blocks)
            self._points[self._request(SyncLog)] = blocks[-1].header.index

    def save(self, state: ReplicaState) -> None:
        """Save a state."""
        self.number += 1
        self._request(SaveState, SavedState(self.number, state))

    def fill(self, block: Block) -> None:
        """Put a block into a hole."""
        self._fills[self._request(FillBlock, block)] = block.header.index

    def cut(self, end: int) -> None:
        """Remove everything behind an index."""
        self.flush()
        self._limit(end)
        self._request(CutLog, end)

    def rewrite(self, index: int, last: int) -> None:
        """Write everything behind an index once more, and sync all blocks up to the last one."""
        self._request(RewriteTail, index)
        self._points[self._request(SyncLog)] = last

    def save_snapshot(self, snapshot: GroupSnapshot) -> int:
        """Save a snapshot; returns the ticket."""
        self.flush()
        return self._request(SaveSnapshot, snapshot)

    def drop_before(self, base: LogBase) -> None:
        """Remove blocks up to a base."""
        self._request(DropBefore, base)

    def reset(self, base: LogBase) -> None:
        """Remove all blocks."""
        self._limit(base.index)
        self._points[self._request(ResetLog, base)] = base.index

    def load(self, first: int, last: int) -> int:
        """Read blocks; returns the ticket."""
        self._ticket += 1
        self.requests.append(LoadBlocks(self._ticket, first, last))
        return self._ticket

    def note_done(self, ticket: int) -> None:
        """Take the report that a request is done."""
        request = self._pending.pop(ticket, None)
        self._fills.pop(ticket, None)
        self._synced = max(self._synced, self._points.pop(ticket, 0))
        if isinstance(request, SaveState):
            self.durable = request.saved

    def note_failed(self, ticket: int) -> int | None:
        """Take the report that a request failed.

        Returns:
            The last index before a write that failed; -1 for later writes, which fail with it; None for any other request,
            after which nobody knows the content of the disk.
        """
        request = self._pending.pop(ticket, None)
        if not isinstance(request, WriteBlocks):
            return None
        if ticket <= self._ignored:
            return -1
        end = request.blocks[0].header.index - 1
        self._ignored = self._ticket
        self._writing = []
        self._points = {other: min(index, end) for other, index in self._points.items()}
        return end

    def _request(self, kind: Callable[..., DiskRequest], *arguments: object) -> int:
        """Make a request that the disk executes behind all others; returns the ticket."""
        self._ticket += 1
        self._pending[self._ticket] = request = kind(self._ticket, *arguments)
        self.requests.append(request)
        return self._ticket

    def _limit(self, end: int) -> None:
        self._synced = min(self._synced, end)
        self._points = {ticket: min(index, end) for ticket, index in self._points.items()}
        self._fills = {ticket: index for ticket, index in self._fills.items() if index <= end}
