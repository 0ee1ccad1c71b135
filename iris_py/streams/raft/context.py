"""The parts of a replica that election, replication and repair share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.streams.blocks import ROOT_CHAIN, BlockKind
from iris_py.streams.raft.entries import LogEnd
from iris_py.streams.raft.events import ReplicaDamaged, ReplicaHalted, ReplicaSound
from iris_py.streams.replica_state import ReplicaState, SyncMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.streams.blocks import Block
    from iris_py.streams.raft.disk import DiskQueue, GroupSnapshot
    from iris_py.streams.raft.entries import Entries
    from iris_py.streams.raft.events import ReplicaEvent
    from iris_py.streams.raft.membership import MemberHistory
    from iris_py.streams.raft.messages import Message

__all__ = ["UNKNOWN_MARK", "ReplicaContext"]

#: The mark of a replica whose state was unreadable: it may have synced anything. Only a leader brings it level.
UNKNOWN_MARK: Final = SyncMark((1 << 63) - 1, 0, ROOT_CHAIN)


class ReplicaContext:
    """Log, state, members and outputs of a replica.

    Attributes:
        store: The id of this store.
        draw: Returns a random number from 0 to 1.
        entries: The log.
        members: The members by the log.
        disk: The requests to the disk.
        state: Term, vote, mark and damage. Votes and acknowledgements wait for the report of the disk about it.
        snapshot: The newest durable snapshot.
        now: The time of the current turn.
        commit: The known commit index.
        posts: Messages with their receivers, taken by the owner.
        events: Events, taken by the owner.
        is_halted: Whether the replica takes no part any more.
    """

    def __init__(
        self,
        store: bytes,
        draw: Callable[[], float],
        entries: Entries,
        members: MemberHistory,
        disk: DiskQueue,
        snapshot: GroupSnapshot,
    ) -> None:
        self.store = store
        self.draw = draw
        self.entries = entries
        self.members = members
        self.disk = disk
        self.state: ReplicaState = disk.durable.state
        self.snapshot = snapshot
        self.now = 0.0
        self.commit = snapshot.base.index
        self.posts: list[tuple[bytes, Message]] = []
        self.events: list[ReplicaEvent] = []
        self.is_halted = False
        self._epoch = 0

    @property
    def is_whole(self) -> bool:
        """Whether the log is readable, and reaches the mark, if that is known."""
        mark = self.state.mark.index
        return not self.entries.holes and (mark <= self.entries.last or mark == UNKNOWN_MARK.index)

    @property
    def end(self) -> LogEnd:
        """The end of the log for elections: the last readable block, or the mark if that is larger."""
        return max(self.entries.find_end(), LogEnd(self.state.mark.term, self.state.mark.index))

    @property
    def epoch(self) -> int:
        """The number of the damage; 0 if there is none, for the disk as well."""
        return self._epoch if self.state.is_damaged or self.disk.durable.state.is_damaged else 0

    @property
    def is_state_durable(self) -> bool:
        """Whether term and vote are on the disk."""
        durable = self.disk.durable.state
        return durable.term == self.state.term and durable.vote == self.state.vote

    def save(self, state: ReplicaState) -> None:
        """Take a new state, and save it."""
        self.state = state
        self.disk.save(state)

    def send(self, store: bytes, message: Message) -> None:
        """Send a message to a member."""
        self.posts.append((store, message))

    def append(self, block: Block) -> None:
        """Put a block behind all others, and write it with the next flush."""
        self.entries.append(block)
        self._note_members(block)
        self.disk.write(block)

    def fill(self, block: Block) -> bool:
        """Put a block into its hole, on the disk as well; returns whether the block is the missing one."""
        if not self.entries.fill(block):
            return False
        self._note_members(block)
        self.disk.fill(block)
        return True

    def cut(self, end: int) -> None:
        """Cut the log behind an index, after the mark was lowered if it is there."""
        entries = self.entries
        if end < self.commit:
            self.halt(f"a block behind {end} would be cut, and {self.commit} is committed")
            return
        self.lower_mark(end)
        entries.cut(end)
        self.members.cut(end)
        self.disk.cut(end)

    def lower_mark(self, end: int) -> None:
        """Move the mark back, at most to an index, before blocks behind the index change."""
        if end < self.state.mark.index < UNKNOWN_MARK.index:
            base = self.entries.base_at(end)
            self.disk.flush()
            self.save(self.state._replace(mark=SyncMark(base.index, base.term, base.chain)))

    def note_damage(self) -> None:
        """Note that synced blocks are missing, before the first repair. The number of the save is that of the damage."""
        if not self.state.is_damaged:
            self.events.append(ReplicaDamaged())
        self.save(self.state._replace(is_damaged=True))
        self._epoch = self.disk.number

    def end_damage(self) -> None:
        """Note that no acknowledged block is missing. Acknowledgements count again when the disk has the note."""
        if self.state.is_damaged:
            mark = self.state.mark
            if mark.index == UNKNOWN_MARK.index:
                base = self.entries.base
                mark = SyncMark(base.index, base.term, base.chain)
            self.save(self.state._replace(is_damaged=False, mark=mark))
            self.events.append(ReplicaSound())

    def raise_mark(self) -> bool:
        """Move the mark to the end of the synced log, unless blocks are missing; returns whether the mark moved."""
        index = min(self.disk.synced, self.entries.last)
        if self.entries.holes or index <= self.state.mark.index:
            return False
        base = self.entries.base_at(index)
        self.save(self.state._replace(mark=SyncMark(base.index, base.term, base.chain)))
        return True

    def halt(self, reason: str) -> None:
        """Take no part any more."""
        if not self.is_halted:
            self.is_halted = True
            self.events.append(ReplicaHalted(reason))

    def _note_members(self, block: Block) -> None:
        if block.header.kind == BlockKind.CONFIG:
            self.members.insert(block.header.index, block.body)
