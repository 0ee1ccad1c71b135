"""Repair of a damaged log by all members: no leader is needed, and none is waited for."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from iris_py.streams.raft.entries import decode_block, is_link
from iris_py.streams.raft.events import BlocksRepaired
from iris_py.streams.raft.limits import REPAIR_BLOCKS_MAX, REPAIR_RUNS_MAX, REPAIR_S
from iris_py.streams.raft.messages import Lacks, Repair, RepairBlock
from iris_py.streams.raft.snapshots import send_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.streams.blocks import Block
    from iris_py.streams.raft.context import ReplicaContext

__all__ = ["LogRepair"]


class LogRepair:
    """Asks for missing blocks, and answers other replicas that ask.

    An *anchor* is an index with its chain. A chain names the whole log before it. A member with the anchor has
    exactly the missing blocks before it. The mark is the best anchor, but members with shorter logs lack it. The block behind a
    hole may be of another log. The block before the hole serves if the next block fits as well. Questions take turns
    with all three.

    Attributes:
        ask_at: The time of the next question.
    """

    def __init__(self, context: ReplicaContext) -> None:
        self.ask_at = float("inf")
        self._context = context
        self._lacking: set[bytes] = set()  # members that lack the first missing block
        self._lacking_index = 0
        self._turns = 0
        self._asked: dict[int, tuple[bytes, int, Repair]] = {}  # questions of others by the ticket of a load

    def begin(self) -> None:
        """Ask for missing blocks soon; answers to earlier questions count no more."""
        self._lacking.clear()
        self.ask_at = self._context.now

    def handle_timeout(self) -> None:
        """Ask all members for the first missing blocks."""
        context = self._context
        holes = context.entries.holes
        if not holes:
            self.ask_at = float("inf")
            return
        self.ask_at = context.now + REPAIR_S
        self._turns += 1
        for first, last in islice(holes, REPAIR_RUNS_MAX):
            question = self._question(first, min(last, first + REPAIR_BLOCKS_MAX - 1), last)
            if question is not None:
                for store in context.members.newest.others(context.store):
                    context.send(store, question)

    def answer(self, sender: bytes, question: Repair) -> None:
        """Send blocks of a log with the anchor, or report a block as never acknowledged."""
        context = self._context
        entries = context.entries
        if question.first > max(entries.last, context.state.mark.index):
            context.send(sender, Lacks(question.epoch, question.first))
        elif question.first <= entries.base.index:
            send_snapshot(context, sender, 0)
        elif entries.chain_at(question.anchor) == question.anchor_chain:
            last = min(question.last, question.first + REPAIR_BLOCKS_MAX - 1, entries.last)
            for index in range(question.first, last + 1):
                block = entries.recent(index)
                if block is not None:
                    context.send(sender, RepairBlock(question.epoch, question.anchor, block.data))
                elif entries.chain_at(index) is not None and len(self._asked) < REPAIR_BLOCKS_MAX:
                    self._asked[context.disk.load(index, index)] = (sender, index, question)

    def handle_loaded(self, ticket: int, blocks: Sequence[Block]) -> bool:
        """Send a block from the disk; returns whether a member had asked."""
        asked = self._asked.pop(ticket, None)
        if asked is not None:
            sender, index, question = asked
            if blocks and self._context.entries.chain_at(index) == blocks[0].header.chain:
                self._context.send(sender, RepairBlock(question.epoch, question.anchor, blocks[0].data))
        return asked is not None

    def take(self, sender: bytes, answer: RepairBlock) -> None:
        """Put a block of a member into its hole."""
        context = self._context
        entries = context.entries
        block = decode_block(answer.data)
        if answer.epoch != context.epoch or block is None or block.header.index not in entries.holes:
            return
        index = block.header.index
        if answer.anchor < index and not self._is_between(block):
            before = entries.chain_at(index - 1)
            if before is not None and is_link(block.data, block.header, before):
                self._note_lacking(sender, index)  # the member has another log from here on
            return
        if context.fill(block):
            context.events.append(BlocksRepaired(index))
            if not entries.holes or entries.holes.lowest > index:
                self.ask_at = context.now

    def note_lacking(self, sender: bytes, answer: Lacks) -> None:
        """Note a member without the missing block."""
        if answer.epoch == self._context.epoch:
            self._note_lacking(sender, answer.index)

    def _note_lacking(self, sender: bytes, index: int) -> None:
        """Cut the log at the first hole if all other members lack the block: no leader acknowledged such a block.

        An acknowledged block is on a majority of disks. Learners count, because the missing block may have made them voters.
        """
        context = self._context
        if context.entries.holes and index == context.entries.holes.lowest:
            if self._lacking_index != index:
                self._lacking_index, self._lacking = index, set()
            self._lacking.add(sender)
            if self._lacking >= set(context.members.newest.others(context.store)):
                self._lacking.clear()
                context.cut(index - 1)

    def _is_between(self, block: Block) -> bool:
        """Whether a block fits between its neighbours, and to the mark."""
        entries, header, mark = self._context.entries, block.header, self._context.state.mark
        before = entries.chain_at(header.index - 1)
        if before is None or not is_link(block.data, header, before) or not entries.is_followed(header):
            return False
        return header.index != mark.index or header.chain == mark.chain

    def _question(self, first: int, last: int, run_end: int) -> Repair | None:
        context = self._context
        entries, mark = context.entries, context.state.mark
        anchors = [(first - 1, entries.chain_at(first - 1))]
        if run_end < entries.last:
            anchors.append((run_end + 1, entries.chain_at(run_end + 1)))
        if first <= mark.index <= entries.last:
            anchors.append((mark.index, mark.chain))
        anchor, chain = anchors[-1 - self._turns % len(anchors)]
        last = min(last, anchor) if anchor >= first else last
        return Repair(self._context.epoch, first, last, anchor, chain) if chain is not None else None
