"""Replication by a leader: blocks to its followers, and the commit index from their acknowledgements."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iris_py.streams.raft.limits import (
    ELECTION_S_MAX,
    FLIGHT_BYTES_MAX,
    HEARTBEAT_S,
    MESSAGE_BLOCKS_MAX,
    MESSAGE_BYTES_MAX,
    PROMOTION_BYTES_MAX,
    READS_WAITING_MAX,
    RESEND_S,
)
from iris_py.streams.raft.messages import Acked, Behind, Replicate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.streams.blocks import Block
    from iris_py.streams.raft.context import ReplicaContext

__all__ = ["Leadership"]


class _FollowerProgress:
    """The leader's knowledge of one follower.

    Attributes:
        next: The index of the next block to send.
        match: The index up to which the follower's log is the leader's.
        counted: The index up to which its acknowledgements count, because it was not damaged.
        epoch: Its damage; 0 for none.
        level: The end of the own log when the leader heard of the damage.
        is_probed: Whether the leader does not know where its log ends, and sends one message at a time.
        heard_at: The time of its last word.
        probe: The index before the blocks that were sent to find the end of its log.
        moved_at: The time of the last new acknowledgement, or of the first blocks under way.
        snapshot_at: The time of the last snapshot.
        round: The last confirmed round of heartbeats.
        flight: Last index and bytes of each message under way.
        loading: The ticket of blocks that the disk reads for it.
    """

    def __init__(self, next_index: int, now: float) -> None:
        self.next = next_index
        self.match = 0
        self.counted = 0
        self.epoch = 0
        self.level = 0
        self.is_probed = True
        self.heard_at = now
        self.probe = -1
        self.moved_at = float("-inf")
        self.snapshot_at = float("-inf")
        self.round = 0
        self.flight: deque[tuple[int, int]] = deque()
        self.loading = 0


class Leadership:
    """One term as the leader.

    Attributes:
        term: The term.
        first: The index of its first block.
        heartbeat_at: The time of the next heartbeats.
    """

    def __init__(self, context: ReplicaContext, send_snapshot: Callable[[bytes], None]) -> None:
        self.term = context.state.term
        self.first = context.entries.last + 1
        self.heartbeat_at = context.now
        self._context = context
        self._send_snapshot = send_snapshot
        self._followers: dict[bytes, _FollowerProgress] = {}
        self._began_at = context.now
        self._round = 0
        self._reads: deque[tuple[int, int, int]] = deque()  # round, token, index
        self.follow_members()

    @property
    def has_committed(self) -> bool:
        """Whether an entry of this term is committed."""
        return self._context.commit >= self.first

    def follow_members(self) -> None:
        """Take the present members."""
        context = self._context
        stores = context.members.newest.others(context.store)
        for store in stores:
            if store not in self._followers:
                self._followers[store] = _FollowerProgress(self.first, context.now)
        for store in [store for store in self._followers if store not in stores]:
            del self._followers[store]

    def send_all(self) -> None:
        """Send missing blocks to all followers, within the bound of bytes under way."""
        for store, progress in self._followers.items():
            self._send_blocks(store, progress)

    def send_heartbeats(self) -> None:
        """Send heartbeats, and blocks without an acknowledgement again."""
        context = self._context
        self.heartbeat_at = context.now + HEARTBEAT_S
        for store, progress in self._followers.items():
            if progress.flight and context.now - progress.moved_at >= RESEND_S:
                progress.next, progress.is_probed = progress.match + 1, True
                progress.flight.clear()
                progress.probe = -1
                if progress.match == 0:
                    progress.next = self.first
            if not self._send_blocks(store, progress):
                self._send(store, progress, ())

    def has_quorum(self) -> bool:
        """Whether a majority of voters was heard lately."""
        now = self._context.now
        heard_at = self._reached(now, lambda progress: progress.heard_at)
        return max(heard_at, self._began_at) > now - ELECTION_S_MAX

    def handle_acked(self, sender: bytes, acked: Acked) -> None:
        """Take an acknowledgement."""
        progress = self._followers.get(sender)
        if progress is None:
            return
        progress.heard_at = self._context.now
        index = min(acked.index, self._context.entries.last)
        self._note_epoch(progress, acked.epoch)
        if index > progress.match:
            progress.match, progress.moved_at = index, self._context.now
        progress.next = max(progress.next, progress.match + 1)
        progress.is_probed = progress.is_probed and index + 1 < progress.next
        if not acked.epoch:
            progress.counted = max(progress.counted, index)
            progress.round = max(progress.round, acked.round)
        while progress.flight and progress.flight[0][0] <= acked.index:
            progress.flight.popleft()
        self._send_blocks(sender, progress)

    def handle_behind(self, sender: bytes, behind: Behind) -> None:
        """Find the fork of a follower's log, and send from there."""
        progress = self._followers.get(sender)
        if progress is None:
            return
        context = self._context
        progress.heard_at = context.now
        if progress.is_probed and progress.probe not in (-1, behind.previous):
            return  # about blocks that came before the leader went back
        self._note_epoch(progress, behind.epoch)
        progress.flight.clear()
        fork = self._find_fork(behind)
        progress.next, progress.match = fork + 1, min(progress.match, fork)
        progress.is_probed, progress.probe = True, -1
        self._send_blocks(sender, progress)

    def handle_loaded(self, ticket: int, blocks: Sequence[Block]) -> bool:
        """Send blocks from the disk; returns whether a follower needed the blocks."""
        for store, progress in self._followers.items():
            if progress.loading == ticket:
                progress.loading = 0
                if blocks and blocks[0].header.index == progress.next:
                    chain = self._context.entries.chain_at(progress.next)
                    if chain == blocks[0].header.chain:
                        self._send_some(store, progress, blocks)
                return True
        return False

    def find_commit(self) -> int:
        """Return the index synced by a majority of sound voters, if the block is of the present term."""
        context = self._context
        index = int(self._reached(context.disk.synced, lambda progress: progress.counted))
        return index if index > context.commit and context.entries.term_at(index) == self.term else context.commit

    def ask_end(self, token: int) -> bool:
        """Confirm the lead with a majority, then report the commit index; returns False without room."""
        if len(self._reads) >= READS_WAITING_MAX or not self.has_committed:
            return False
        self._round += 1
        self._reads.append((self._round, token, self._context.commit))
        for store, progress in self._followers.items():
            if not self._send_blocks(store, progress):
                self._send(store, progress, ())
        return True

    def take_confirmed(self) -> list[tuple[int, int]]:
        """Return tokens and indexes of confirmed questions."""
        confirmed = self._reached(self._round, lambda progress: progress.round)
        found = []
        while self._reads and self._reads[0][0] <= confirmed:
            _round, token, index = self._reads.popleft()
            found.append((token, index))
        return found

    def is_caught_up(self, store: bytes) -> bool:
        """Whether a learner has nearly all blocks."""
        progress, entries = self._followers.get(store), self._context.entries
        if progress is None or progress.epoch or progress.match < entries.base.index:
            return False
        blocks = [entries.recent(index) for index in range(progress.match + 1, entries.last + 1)]
        return all(blocks) and sum(len(block.data) for block in blocks if block is not None) <= PROMOTION_BYTES_MAX

    def find_successor(self) -> bytes | None:
        """Return a voter that has all blocks."""
        context = self._context
        ready = [
            store
            for store, progress in self._followers.items()
            if not progress.epoch and progress.match == context.entries.last and store in context.members.newest.voters
        ]
        return ready[0] if ready else None

    def _reached(self, own: float, measure: Callable[[_FollowerProgress], float]) -> float:
        """Return the value that a majority of voters has reached.

        Args:
            own: The value of the leader.
            measure: Returns that of a follower.
        """
        context = self._context
        members = context.members.newest
        values = [own if store == context.store else measure(self._followers[store]) for store in members.voters]
        return sorted(values, reverse=True)[members.majority - 1]

    def _find_fork(self, behind: Behind) -> int:
        """Return the end of the part in common with a follower's log, or a guess further back."""
        entries = self._context.entries
        begins = (behind.begin, *(end.index for end in behind.ends))
        for end, begin in zip(reversed(behind.ends), reversed(begins[:-1]), strict=True):
            if end.index <= entries.last and entries.chain_at(end.index) == end.chain:
                return end.index
            own = entries.find_last_of_term(end.term, end.index)
            if own > begin and entries.term_at(own) == end.term:
                return own
        return min(behind.begin, entries.last)

    def _send_blocks(self, store: bytes, progress: _FollowerProgress) -> bool:
        """Send the next blocks; returns whether a message was sent."""
        context = self._context
        entries = context.entries
        has_sent = False
        while progress.next <= entries.last and not progress.loading:
            if progress.flight and (progress.is_probed or sum(size for _, size in progress.flight) >= FLIGHT_BYTES_MAX):
                break
            if progress.next <= entries.base.index:
                if context.now - progress.snapshot_at >= RESEND_S:
                    progress.snapshot_at = context.now
                    self._send_snapshot(store)
                break
            blocks: list[Block] = []
            size = 0
            for index in range(progress.next, min(entries.last, progress.next + MESSAGE_BLOCKS_MAX - 1) + 1):
                block = entries.recent(index)
                if block is None or (blocks and size + len(block.data) > MESSAGE_BYTES_MAX):
                    break
                blocks.append(block)
                size += len(block.data)
            if not blocks:
                progress.loading = context.disk.load(progress.next, min(entries.last, progress.next + MESSAGE_BLOCKS_MAX - 1))
                break
            self._send_some(store, progress, blocks)
            has_sent = True
        return has_sent

    def _send_some(self, store: bytes, progress: _FollowerProgress, blocks: Sequence[Block]) -> None:
        self._send(store, progress, tuple(block.data for block in blocks))
        progress.probe = progress.next - 1
        progress.next += len(blocks)
        if not progress.flight:
            progress.moved_at = self._context.now
        progress.flight.append((progress.next - 1, sum(len(block.data) for block in blocks)))

    def _send(self, store: bytes, progress: _FollowerProgress, blocks: tuple[bytes, ...]) -> None:
        context = self._context
        previous = max(progress.next - 1, context.entries.base.index)
        chain = context.entries.chain_at(previous)
        if chain is not None:
            epoch, level = progress.epoch, progress.level
            context.send(store, Replicate(self.term, previous, chain, context.commit, epoch, level, self._round, blocks))

    def _note_epoch(self, progress: _FollowerProgress, epoch: int) -> None:
        """Note the damage of a follower.

        No acknowledgement of a former life goes beyond the end of the leader's log. Up to there the follower is sound.
        """
        if epoch != progress.epoch:
            progress.epoch, progress.level = epoch, self._context.entries.last
