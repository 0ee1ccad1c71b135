"""Blocks and disks for the tests of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py.streams.blocks import HEADER_BYTES, ROOT_CHAIN, Block, BlockHeader, BlockKind, seal_block
from iris_py.streams.raft.disk import LoadBlocks
from iris_py.streams.raft.membership import MemberSet
from iris_py.streams.raft.messages import Vote, Voted
from iris_py.streams.raft.recovery import DiskContent, FoundBlock
from iris_py.streams.raft.replica import Replica
from iris_py.streams.replica_state import ReplicaState, SavedState, SyncMark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.streams.raft.disk import DiskRequest
    from iris_py.streams.raft.messages import Message

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
GROUP = MemberSet((A, B, C))


def make_log(terms: Sequence[int], before: Sequence[Block] = (), body: bytes = b"x") -> list[Block]:
    """Return blocks of given terms behind others."""
    blocks = list(before)
    for term in terms:
        index = len(blocks) + 1
        chain = blocks[-1].header.chain if blocks else ROOT_CHAIN
        header = BlockHeader(BlockKind.RECORDS, 0, 0, 0, 1, index, term, index - 1, 0, b"")
        blocks.append(seal_block(header, body, chain))
    return blocks


def mark_of(block: Block) -> SyncMark:
    """Return the mark at a block."""
    return SyncMark(block.header.index, block.header.term, block.header.chain)


def content(blocks: Sequence[Block], state: ReplicaState, **more: bool) -> DiskContent:
    """Return the files of a replica."""
    found = tuple(FoundBlock(block.header, block.data[:HEADER_BYTES]) for block in blocks)
    return msgspec.structs.replace(DiskContent(found, saved=SavedState(7, state)), **more)


class Bench:
    """One replica without others: reports of the disk come when the test says so."""

    def __init__(self, files: DiskContent, members: MemberSet = GROUP) -> None:
        self.now = 0.0
        self.waiting: list[DiskRequest] = []
        self.replica = Replica(A, files, members, lambda: 0.5, self.now)
        self.report()

    def is_damaged(self) -> bool:
        """Whether the replica is damaged."""
        return self.replica.context.state.is_damaged

    def report(self) -> None:
        """Report all requests to the disk as done."""
        while requests := [*self.waiting, *self.replica.take_requests()]:
            self.waiting = []
            for request in requests:
                if not isinstance(request, LoadBlocks):
                    self.replica.note_done(request.ticket, self.now)

    def hold(self) -> list[DiskRequest]:
        """Take the requests to the disk, and report none of them yet."""
        self.waiting += self.replica.take_requests()
        return self.waiting

    def hear(self, sender: bytes, message: Message) -> list[tuple[bytes, Message]]:
        """Let the replica receive a message; returns its answers."""
        self.replica.receive(sender, message, self.now)
        return self.replica.take_posts()

    def time_out(self) -> list[tuple[bytes, Message]]:
        """Let time pass to the next deadline; returns the messages."""
        self.now = self.replica.deadline()
        self.replica.handle_timeout(self.now)
        return self.replica.take_posts()

    def wait_for(self, kind: type[Message]) -> list[tuple[bytes, Message]]:
        """Let time pass until the replica sends messages of a kind; returns them."""
        while True:
            if found := [post for post in self.time_out() if isinstance(post[1], kind)]:
                return found
            self.report()

    def win(self) -> None:
        """Let the replica become the leader by the votes of all."""
        term = self.replica.context.state.term
        self.wait_for(Vote)
        for store in (B, C):
            self.hear(store, Voted(term + 1, is_pre=True, is_granted=True, is_damaged=False))
        self.report()
        for store in (B, C):
            self.hear(store, Voted(term + 1, is_pre=False, is_granted=True, is_damaged=False))
