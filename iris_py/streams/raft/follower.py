"""The log of a follower: blocks from the leader, and acknowledgements when the disk has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.streams.raft.entries import decode_block, is_link
from iris_py.streams.raft.limits import EARLY_BYTES_MAX, EARLY_MESSAGES_MAX
from iris_py.streams.raft.messages import Acked, Behind

if TYPE_CHECKING:
    from iris_py.streams.blocks import Block
    from iris_py.streams.raft.context import ReplicaContext
    from iris_py.streams.raft.messages import Replicate

__all__ = ["LeaderLog"]


class LeaderLog:
    """The part of the own log that is known to be the leader's, in one term.

    Attributes:
        match: The index up to which both logs are equal.
    """

    def __init__(self, context: ReplicaContext, leader: bytes) -> None:
        self.match = 0
        self._context = context
        self._leader = leader
        self._term = context.state.term
        self._level = -1  # the index to reach for an end of the damage
        self._round = 0
        self._is_owed = False  # an acknowledgement
        self._said = (0, 0)  # index and damage of the last one
        self._early: dict[int, Replicate] = {}  # messages that overtook others, by the index before their blocks

    def take(self, message: Replicate) -> None:
        """Take a message of the leader."""
        context = self._context
        entries = context.entries
        self._round = max(self._round, message.round)
        self._level = message.level if message.epoch == context.epoch else -1
        previous, blocks = message.previous, message.blocks
        if previous < entries.base.index:
            blocks = blocks[entries.base.index - previous :]
            previous = entries.base.index
        elif self.match and previous > entries.last and self._has_room(blocks):
            self._early[previous] = message
            return
        elif previous > entries.readable_end or entries.chain_at(previous) != message.previous_chain:
            ends, begin = entries.list_terms()
            context.send(self._leader, Behind(self._term, previous, ends, begin, context.epoch))
            return
        for data in blocks:
            block = decode_block(data)
            if block is None or block.header.index != previous + 1 or not self._take_block(block):
                break
            previous += 1
        self.match = max(self.match, previous)
        context.commit = max(context.commit, min(message.commit, self.match))
        self._is_owed = True
        early = self._early.pop(self.match, None)
        if early is not None and blocks:
            self.take(early)

    def note_snapshot(self, index: int) -> None:
        """Note that the log begins anew behind an index of the leader's log."""
        self.match = max(self.match, index)
        self._is_owed = True

    def acknowledge(self) -> None:
        """Acknowledge the blocks that the disk has, if it has the term, too."""
        context = self._context
        index = min(self.match, context.disk.synced)
        if context.disk.durable.state.term != self._term or context.state.term != self._term:
            return
        if context.state.is_damaged and 0 < self._level <= index:
            if context.entries.holes:
                context.cut(self.match)  # no block behind it was acknowledged
            context.end_damage()
        if self._is_owed or self._said != (index, context.epoch):
            self._is_owed, self._said = False, (index, context.epoch)
            context.send(self._leader, Acked(self._term, index, context.epoch, self._round))

    def _has_room(self, blocks: tuple[bytes, ...]) -> bool:
        """Whether blocks that came early may wait."""
        waiting = sum(len(data) for message in self._early.values() for data in message.blocks)
        return len(self._early) < EARLY_MESSAGES_MAX and waiting + sum(map(len, blocks)) <= EARLY_BYTES_MAX

    def _take_block(self, block: Block) -> bool:
        """Take the block behind blocks that both logs have; returns whether it continues the log."""
        context = self._context
        entries, header = context.entries, block.header
        before = entries.chain_at(header.index - 1)
        if entries.chain_at(header.index) == header.chain:
            return True
        if before is None or not is_link(block.data, header, before):
            return False
        if header.index in entries.holes:
            mark = context.state.mark
            if header.index == mark.index and header.chain != mark.chain:
                context.lower_mark(header.index - 1)
            if context.fill(block):
                return True
            context.cut(header.index - 1)  # the missing block was of another log
        elif header.index <= entries.last:
            context.cut(header.index - 1)
        if context.is_halted:
            return False
        context.append(block)
        return True
