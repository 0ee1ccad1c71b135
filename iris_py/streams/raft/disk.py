"""The requests of a replica to its disk, and the durable part of its log and state.

The disk executes the requests of a replica in their order, and reports each as done or failed; only loads may overtake. After a
failed write it fails all writes up to the next cut.
"""

from __future__ import annotations

from collections import deque

import msgspec

from iris_py.streams.blocks import Block
from iris_py.streams.raft.entries import LogBase
from iris_py.streams.raft.membership import MemberSet
from iris_py.streams.raft.messages import Number
from iris_py.streams.replica_state import ReplicaState, SavedState

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
        self._pending: deque[int] = deque()  # tickets without a report
        self._writing: list[Block] = []
        self._written: dict[int, int] = {}  # first index by the ticket of a write
        self._points: deque[tuple[int, int]] = deque()  # ticket of a sync, and the index it makes durable
        self._saves: deque[tuple[int, SavedState]] = deque()
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
            ticket = self._next()
            self._written[ticket] = blocks[0].header.index
            self.requests.append(WriteBlocks(ticket, blocks))
            self._sync(blocks[-1].header.index)

    def save(self, state: ReplicaState) -> None:
        """Save a state."""
        self.number += 1
        saved = SavedState(self.number, state)
        ticket = self._next()
        self._saves.append((ticket, saved))
        self.requests.append(SaveState(ticket, saved))

    def fill(self, block: Block) -> None:
        """Put a block into a hole."""
        ticket = self._next()
        self._fills[ticket] = block.header.index
        self.requests.append(FillBlock(ticket, block))

    def cut(self, end: int) -> None:
        """Remove everything behind an index."""
        self.flush()
        self._limit(end)
        self.requests.append(CutLog(self._next(), end))

    def rewrite(self, index: int, last: int) -> None:
        """Write everything behind an index once more, and sync all blocks up to the last one."""
        self.requests.append(RewriteTail(self._next(), index))
        self._sync(last)

    def save_snapshot(self, snapshot: GroupSnapshot) -> int:
        """Save a snapshot; returns the ticket."""
        self.flush()
        ticket = self._next()
        self.requests.append(SaveSnapshot(ticket, snapshot))
        return ticket

    def drop_before(self, base: LogBase) -> None:
        """Remove blocks up to a base."""
        self.requests.append(DropBefore(self._next(), base))

    def reset(self, base: LogBase) -> None:
        """Remove all blocks."""
        self._limit(base.index)
        self._points.append((self._next(), base.index))
        self.requests.append(ResetLog(self._ticket, base))

    def load(self, first: int, last: int) -> int:
        """Read blocks; returns the ticket."""
        self._ticket += 1
        self.requests.append(LoadBlocks(self._ticket, first, last))
        return self._ticket

    def note_done(self, ticket: int) -> None:
        """Take the report that a request is done."""
        if self._pending and self._pending[0] == ticket:
            self._pending.popleft()
        self._written.pop(ticket, None)
        self._fills.pop(ticket, None)
        if self._points and self._points[0][0] == ticket:
            self._synced = max(self._synced, self._points.popleft()[1])
        if self._saves and self._saves[0][0] == ticket:
            self.durable = self._saves.popleft()[1]

    def note_failed(self, ticket: int) -> int | None:
        """Take the report that a request failed.

        Returns:
            The last index before a write that failed; -1 for later writes, which fail with it; None for any other request,
            after which nobody knows the content of the disk.
        """
        first = self._written.pop(ticket, None)
        if first is None:
            return None
        end = -1
        if ticket > self._ignored:
            end = first - 1
            self._ignored = self._ticket
            self._writing = []
            self._points = deque((other, min(index, end)) for other, index in self._points)
        self.note_done(ticket)
        return end

    def _sync(self, index: int) -> None:
        ticket = self._next()
        self._points.append((ticket, index))
        self.requests.append(SyncLog(ticket))

    def _limit(self, end: int) -> None:
        self._synced = min(self._synced, end)
        self._points = deque((ticket, min(index, end)) for ticket, index in self._points)
        self._fills = {ticket: index for ticket, index in self._fills.items() if index <= end}

    def _next(self) -> int:
        self._ticket += 1
        self._pending.append(self._ticket)
        return self._ticket
