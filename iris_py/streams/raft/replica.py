"""One replica of a partition: a state machine that takes messages, reports of its disk and the time.

A replica acknowledges and votes only after the disk's report about blocks and state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py.streams.blocks import BlockHeader, BlockKind, seal_block
from iris_py.streams.raft.context import ReplicaContext
from iris_py.streams.raft.disk import DiskQueue, GroupSnapshot
from iris_py.streams.raft.election import Election
from iris_py.streams.raft.entries import decode_block
from iris_py.streams.raft.events import (
    BlocksCommitted,
    EndConfirmed,
    LeaderLost,
    ReplicaLed,
    SnapshotInstalled,
    TornTail,
)
from iris_py.streams.raft.follower import LeaderLog
from iris_py.streams.raft.limits import MARK_S, UNCOMMITTED_BLOCKS_MAX, UNCOMMITTED_BYTES_MAX
from iris_py.streams.raft.membership import ChangeRefused, MemberHistory, MemberSet, encode_members
from iris_py.streams.raft.messages import (
    Acked,
    Behind,
    Lacks,
    Lead,
    Repair,
    RepairBlock,
    Replicate,
    StatePiece,
    Vote,
    Voted,
)
from iris_py.streams.raft.recovery import recover
from iris_py.streams.raft.repair import LogRepair
from iris_py.streams.raft.replication import Leadership
from iris_py.streams.raft.snapshots import SnapshotReceiver, send_snapshot
from iris_py.streams.replica_state import SavedState, SyncMark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.streams.raft.disk import DiskRequest
    from iris_py.streams.raft.events import ReplicaEvent
    from iris_py.streams.raft.messages import Message
    from iris_py.streams.raft.recovery import DiskContent

__all__ = ["Replica"]


class Replica:
    """A replica.

    Its owner hands in messages, reports and the time, and takes posts, requests and events after each call.
    """

    def __init__(self, store: bytes, content: DiskContent, members: MemberSet, draw: Callable[[], float], now: float) -> None:
        """Start from the files of a replica.

        Args:
            store: The id of this store.
            content: The files.
            members: The members at the beginning of the log; none for a store that is added later.
            draw: Returns a random number from 0 to 1.
            now: The time.
        """
        found = recover(content, members)
        disk = DiskQueue(SavedState(found.number, found.state), found.entries.base.index)
        self._context = context = ReplicaContext(store, draw, found.entries, found.members, disk, found.snapshot)
        context.now = now
        self._election = Election(context)
        self._repair = LogRepair(context)
        self._receiver = SnapshotReceiver()
        self._leadership: Leadership | None = None
        self._leader_log: LeaderLog | None = None
        self._saving: tuple[int, GroupSnapshot, bool] | None = None  # ticket, snapshot, whether it came from the leader
        self._applied = found.snapshot.index
        self._mark_at = float("inf")
        self._marked_at = now
        self._noted = 0  # the number of the save with the newest damage, until it is durable
        self._is_acting = False
        # What the system shows of the files may never have reached the disk. So all of it that counts is written once more.
        if found.is_damaged:
            context.note_damage()
            self._noted = disk.number
        else:
            context.save(context.state)
        if found.is_torn:
            disk.cut(found.entries.last)
            context.events.append(TornTail(found.entries.last))
        disk.rewrite(min(context.state.mark.index, found.entries.last), found.entries.last)

    @property
    def is_leader(self) -> bool:
        """Whether the replica leads."""
        return self._leadership is not None

    @property
    def leader(self) -> bytes | None:
        """The known leader."""
        return self._election.leader

    @property
    def context(self) -> ReplicaContext:
        """The log, the state and the members, to read."""
        return self._context

    def take_posts(self) -> list[tuple[bytes, Message]]:
        """Return new messages with their receivers."""
        posts, self._context.posts = self._context.posts, []
        return posts

    def take_requests(self) -> list[DiskRequest]:
        """Return new requests to the disk."""
        disk = self._context.disk
        requests, disk.requests = disk.requests, []
        return requests

    def take_events(self) -> list[ReplicaEvent]:
        """Return new events."""
        events, self._context.events = self._context.events, []
        return events

    def deadline(self) -> float:
        """Return the time of the next `handle_timeout`."""
        if not self._is_acting:
            return float("inf")
        role_at = self._leadership.heartbeat_at if self._leadership is not None else self._election.timeout_at
        return min(role_at, self._repair.ask_at, self._mark_at)

    def handle_timeout(self, now: float) -> None:
        """Act on the time."""
        context = self._context
        context.now = now
        if not self._is_acting or context.is_halted:
            return
        if now >= self._mark_at:
            self._save_mark()
        if now >= self._repair.ask_at:
            self._repair.handle_timeout()
        leadership = self._leadership
        if leadership is None:
            if now >= self._election.timeout_at and self._election.handle_timeout():
                self._lead()
        elif now >= leadership.heartbeat_at:
            if leadership.has_quorum():
                leadership.send_heartbeats()
            else:
                self._stop_leading()
        self._finish()

    def receive(self, sender: bytes, message: Message, now: float) -> None:
        """Take a message of another replica."""
        context = self._context
        context.now = now
        if not self._is_acting or context.is_halted:
            return
        match message:
            case Replicate() | StatePiece():
                if isinstance(message, StatePiece) and not message.term:
                    self._take_snapshot(message)
                elif message.term < context.state.term:
                    context.send(sender, Behind(context.state.term))
                else:
                    self._take_from_leader(sender, message)
            case Acked() | Behind():
                self._note_term(message.term)
                leadership = self._leadership
                if leadership is not None and message.term == leadership.term:
                    if isinstance(message, Acked):
                        leadership.handle_acked(sender, message)
                    else:
                        leadership.handle_behind(sender, message)
            case Vote():
                if not message.is_pre:
                    self._note_term(message.term)
                self._election.handle_vote(sender, message)
            case Voted():
                if not message.is_granted:
                    self._note_term(message.term)
                if self._election.handle_voted(sender, message):
                    self._lead()
            case Lead():
                if message.term == context.state.term and self._leadership is None:
                    self._election.stand()
            case Repair():
                self._repair.answer(sender, message)
            case RepairBlock():
                self._repair.take(sender, message)
            case Lacks():
                self._repair.note_lacking(sender, message)
        self._finish()

    def note_done(self, ticket: int, now: float) -> None:
        """Take the report of an executed request."""
        context = self._context
        context.now = now
        context.disk.note_done(ticket)
        if self._saving is not None and self._saving[0] == ticket:
            _ticket, snapshot, is_foreign = self._saving
            self._saving = None
            if is_foreign:
                self._install(snapshot)
            else:
                self._compact(snapshot)
        if self._noted and context.disk.durable.number >= self._noted and self._is_acting:
            self._noted = 0
            self._repair.begin()
        if not self._is_acting and context.disk.is_idle:
            self._act()
        self._finish()

    def note_failed(self, ticket: int, now: float) -> None:
        """Take the report of a failed request.

        A failed write, for want of room, is taken back. After other failures the content of the disk is unknown, and the
        replica halts: Linux may report success for dropped pages.
        """
        context = self._context
        context.now = now
        end = context.disk.note_failed(ticket)
        if end is None:
            context.halt("the disk failed")
            self._stop_leading()
        elif 0 <= end < context.entries.last:
            self._stop_leading()
            self._leader_log = None
            context.commit = min(context.commit, end)
            context.cut(end)
        self._finish()

    def note_loaded(self, ticket: int, data: Sequence[bytes], bad_index: int, now: float) -> None:
        """Take blocks from the disk.

        Args:
            ticket: The ticket of the request.
            data: The blocks from the first asked one on.
            bad_index: The index of a block that the disk could not read; 0 for none.
            now: The time.
        """
        context = self._context
        context.now = now
        blocks = [block for block in map(decode_block, data) if block is not None]
        if self._leadership is None or not self._leadership.handle_loaded(ticket, blocks):
            self._repair.handle_loaded(ticket, blocks)
        if context.entries.chain_at(bad_index) is not None and bad_index > context.entries.base.index:
            context.entries.note_unreadable(bad_index)
            context.note_damage()
            self._noted = context.disk.number
            self._stop_leading()
        self._finish()

    def note_store_lost(self, store: bytes, now: float) -> None:
        """Take the report of a dead node of a store."""
        self._context.now = now
        if self._is_acting:
            self._election.note_lost(store)

    def propose(self, header: BlockHeader, body: bytes, now: float) -> int | None:
        """Append a block as the leader.

        Args:
            header: The fields that the writer fills in; the leader fills in index, term, offset and time.
            body: The body.
            now: The time.

        Returns:
            The index of the block; None if the replica does not lead, or too much is uncommitted. Nothing was appended then.
        """
        self._context.now = now
        if self._leadership is None or not self._has_room(len(body)):
            return None
        index = self._append(header, body)
        self._finish()
        return index

    def change_members(self, wanted: MemberSet, now: float) -> int:
        """Begin a change of members as the leader; returns the index of its entry.

        Raises:
            ChangeRefused: The replica does not lead, has not committed an entry of its term, or takes no such change now.
        """
        context, leadership = self._context, self._leadership
        context.now = now
        if leadership is None or not leadership.has_committed:
            raise ChangeRefused("there is no leader that has committed an entry of its term")
        context.members.check(wanted, context.commit)
        if not all(map(leadership.is_caught_up, set(wanted.voters) - set(context.members.newest.voters))):
            raise ChangeRefused("the learner has not caught up")
        index = self._append(BlockHeader(BlockKind.CONFIG, 0, 0, 0, 0, 0, 0, 0, 0, b""), encode_members(wanted))
        self._finish()
        return index

    def ask_end(self, token: int, now: float) -> bool:
        """Ask for the end of the log, confirmed by a majority; returns whether `EndConfirmed` may come."""
        self._context.now = now
        if self._leadership is None or not self._leadership.ask_end(token):
            return False
        self._finish()
        return True

    def hand_over(self, now: float) -> bool:
        """Let a voter with all blocks lead; returns False without such a voter."""
        context = self._context
        context.now = now
        successor = self._leadership.find_successor() if self._leadership is not None else None
        if successor is not None:
            context.send(successor, Lead(context.state.term))
        return successor is not None

    def save_snapshot(self, index: int, first: int, state: bytes, now: float) -> bool:
        """Save the state of the applying machine, and forget old blocks.

        Args:
            index: The index up to which the state has the blocks, committed and durable here.
            first: The first index to keep, not above ``index + 1``.
            state: The encoded state.
            now: The time.

        Returns:
            False while another snapshot is being saved, or if blocks before the first one are missing.
        """
        context = self._context
        context.now = now
        entries = context.entries
        if self._saving is not None or not entries.base.index < first <= index + 1 or entries.chain_at(first - 1) is None:
            return False
        snapshot = GroupSnapshot(entries.base_at(first - 1), index, context.members.at(index), state)
        self._saving = (context.disk.save_snapshot(snapshot), snapshot, False)
        return True

    def _act(self) -> None:
        """Take part from now on."""
        self._is_acting = True
        self._noted = 0
        self._election.restart_timeout()
        if self._context.entries.holes:
            self._repair.begin()

    def _note_term(self, term: int) -> None:
        if term > self._context.state.term:
            self._stop_leading()
            self._election.follow(term)

    def _take_from_leader(self, sender: bytes, message: Replicate | StatePiece) -> None:
        context = self._context
        self._note_term(message.term)
        if self._leadership is not None:
            context.halt(f"two leaders in the term {message.term}")
            return
        if self._election.leader != sender:
            self._leader_log = None
        self._election.note_leader(sender)
        self._leader_log = self._leader_log or LeaderLog(context, sender)
        if isinstance(message, Replicate):
            self._leader_log.take(message)
        else:
            self._take_snapshot(message)

    def _take_snapshot(self, piece: StatePiece) -> None:
        """Take a piece of a snapshot: of the leader, or of a member if blocks before its base are missing."""
        context = self._context
        snapshot = self._receiver.take(piece)
        if snapshot is None or self._saving is not None:
            return
        entries, base = context.entries, snapshot.base
        has_base = base.index < entries.base.index or entries.chain_at(base.index) == base.chain
        if has_base and base.index <= entries.readable_end:
            if piece.term and self._leader_log is not None:
                self._leader_log.note_snapshot(max(base.index, entries.base.index))
        elif piece.term or has_base or base.index in entries.holes:
            self._saving = (context.disk.save_snapshot(snapshot), snapshot, True)

    def _lead(self) -> None:
        context = self._context
        self._leader_log = None
        context.end_damage()
        self._leadership = Leadership(context, lambda store: send_snapshot(context, store, context.state.term))
        context.events.append(ReplicaLed(context.state.term))
        self._append(BlockHeader(BlockKind.NOOP, 0, 0, 0, 0, 0, 0, 0, 0, b""), b"")

    def _stop_leading(self) -> None:
        if self._leadership is not None:
            self._context.events.append(LeaderLost(self._leadership.term))
            self._leadership = None
        self._election.follow(self._context.state.term)

    def _has_room(self, size: int) -> bool:
        """Whether one more block may be uncommitted."""
        context = self._context
        waiting = range(context.commit + 1, context.entries.last + 1)
        if len(waiting) >= UNCOMMITTED_BLOCKS_MAX:
            return False
        return not waiting or context.entries.size_behind(context.commit) + size <= UNCOMMITTED_BYTES_MAX

    def _append(self, header: BlockHeader, body: bytes) -> int:
        """Append a block to the own log, and send the block."""
        context, leadership = self._context, self._leadership
        assert leadership is not None
        entries = context.entries
        index = entries.last + 1
        time_ms = max(header.time_ms, entries.time_ms)
        header = msgspec.structs.replace(
            header, index=index, term=context.state.term, offset=entries.next_offset, time_ms=time_ms
        )
        chain = entries.chain_at(index - 1)
        assert chain is not None
        context.append(seal_block(header, body, chain))
        if header.kind == BlockKind.CONFIG:
            leadership.follow_members()
        leadership.send_all()
        return index

    def _install(self, snapshot: GroupSnapshot) -> None:
        """Begin the log at a saved snapshot of the leader."""
        context = self._context
        entries, base = context.entries, snapshot.base
        context.snapshot = snapshot
        if base.index in entries.holes or entries.chain_at(base.index) == base.chain:
            entries.drop_before(base)
            context.disk.drop_before(base)
        else:
            if context.state.mark.index > base.index:
                context.lower_mark(entries.base.index)
            entries.reset(base)
            context.disk.reset(base)
        if context.state.mark.index < base.index:
            context.save(context.state._replace(mark=SyncMark(base.index, base.term, base.chain)))
        members, context.members = context.members, MemberHistory(snapshot.index, snapshot.members)
        context.members.adopt(members, entries.last)
        context.commit = max(context.commit, base.index)
        self._applied = max(self._applied, snapshot.index)
        context.events.append(SnapshotInstalled(snapshot))
        if self._leader_log is not None:
            self._leader_log.note_snapshot(base.index)

    def _compact(self, snapshot: GroupSnapshot) -> None:
        """Forget blocks before the base of an own, saved snapshot."""
        context = self._context
        if context.entries.base.index <= snapshot.base.index <= context.entries.last:
            context.snapshot = snapshot
            context.entries.drop_before(snapshot.base)
            context.disk.drop_before(snapshot.base)
            context.members.settle(snapshot.index)
            context.commit = max(context.commit, snapshot.base.index)

    def _save_mark(self) -> None:
        self._mark_at = float("inf")
        if self._context.raise_mark():
            self._marked_at = self._context.now

    def _finish(self) -> None:
        """React to a change of the log, the state or the disk."""
        context = self._context
        context.disk.flush()
        if self._election.handle_saved():
            self._lead()
            context.disk.flush()
        leadership = self._leadership
        if leadership is not None:
            context.commit = leadership.find_commit()
            context.events += (EndConfirmed(token, index) for token, index in leadership.take_confirmed())
            if context.store not in context.members.newest.voters and context.members.newest_index <= context.commit:
                leadership.send_heartbeats()
                self._stop_leading()
        elif self._leader_log is not None and not context.is_halted:
            self._leader_log.acknowledge()
        if self._is_acting:
            index = min(context.commit, context.disk.synced, context.entries.readable_end)
            if index > self._applied:
                self._applied = index
                context.events.append(BlocksCommitted(index))
            if context.disk.synced > context.state.mark.index and self._mark_at == float("inf") and not context.entries.holes:
                self._mark_at = self._marked_at + MARK_S
                if self._mark_at <= context.now:
                    self._save_mark()
