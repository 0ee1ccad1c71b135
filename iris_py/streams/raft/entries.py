"""The log in memory: term, chain and offset of each block, the holes of a damaged log, and the newest blocks."""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from iris_py.streams.blocks import (
    HEADER_BYTES,
    ROOT_CHAIN,
    Block,
    BlockHeader,
    BlockKind,
    DamagedBlock,
    check_body,
    check_chain,
    read_header,
)
from iris_py.streams.raft.limits import RECENT_BYTES_MAX, TERMS_LISTED_MAX
from iris_py.streams.raft.membership import decode_members
from iris_py.streams.raft.messages import NUMBER_MAX, Chain, Number, TermEnd
from iris_py.streams.raft.ranges import IndexRanges

__all__ = ["Entries", "LogBase", "LogEnd", "decode_block", "is_link"]

_NO_CHAIN: Final = 0


class LogBase(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place before the first kept block."""

    index: Number = 0
    term: Number = 0
    chain: Chain = ROOT_CHAIN
    offset: Number = 0


class LogEnd(msgspec.Struct, frozen=True, order=True, gc=False):
    """The end of a log, as elections compare it."""

    term: int
    index: int


def decode_block(data: bytes) -> Block | None:
    """Return a block from bytes; None without a whole block with readable members and numbers within their bound."""
    try:
        header = read_header(data)
        if header is None or len(data) != header.block_bytes:
            return None
        block = Block(header, data)
        check_body(header, block.body)
        if header.kind == BlockKind.CONFIG:
            decode_members(block.body)
    except DamagedBlock:
        return None
    return block if max(header.index, header.term, header.next_offset, header.time_ms) <= NUMBER_MAX else None


def is_link(data: bytes, header: BlockHeader, chain_before: bytes) -> bool:
    """Whether a block, given by its header's bytes at least, continues the log with a chain."""
    try:
        check_chain(data, header, chain_before)
    except DamagedBlock:
        return False
    return True


class Entries:
    """The blocks of a log from its base on.

    Each block costs 24 bytes beside the newest blocks, which are kept whole.

    Attributes:
        base: The place before the first kept block.
        holes: The indexes of missing and unreadable blocks.
        time_ms: The newest time of a block.
    """

    def __init__(self, base: LogBase) -> None:
        self.base = base
        self.holes = IndexRanges()
        self.time_ms = 0
        self._chains = array("Q")
        self._terms = array("Q")
        self._offsets = array("Q")  # behind each block
        self._recent: dict[int, Block] = {}
        self._recent_bytes = 0
        self._starts: dict[int, tuple[bytes, BlockHeader]] = {}  # blocks behind holes, whose links nobody has checked
        self._expected: dict[int, bytes] = {}  # chains of blocks that became unreadable

    @property
    def last(self) -> int:
        """The last index, of a hole or not."""
        return self.base.index + len(self._chains)

    @property
    def readable_end(self) -> int:
        """The index up to which no block is missing."""
        return self.holes.lowest - 1 if self.holes else self.last

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._offsets[-1] if self._offsets else self.base.offset

    def chain_at(self, index: int) -> bytes | None:
        """Return the chain of a block; None for missing blocks, and before the base."""
        if index == self.base.index:
            return self.base.chain
        place = index - self.base.index - 1
        if not 0 <= place < len(self._chains) or index in self.holes:
            return None
        return self._chains[place].to_bytes(8, "little")

    def term_at(self, index: int) -> int:
        """Return the term of a block; 0 if it is missing."""
        place = index - self.base.index - 1
        if 0 <= place < len(self._terms):
            return self._terms[place]
        return self.base.term if index == self.base.index else 0

    def offset_at(self, index: int) -> int:
        """Return the offset behind a readable block."""
        return self.base.offset if index == self.base.index else self._offsets[index - self.base.index - 1]

    def find_end(self) -> LogEnd:
        """Return term and index of the last readable block."""
        index = self.last
        while index > self.base.index and index in self.holes:
            index = next(first for first, last in self.holes if first <= index <= last) - 1
        return LogEnd(self.term_at(index), index)

    def list_terms(self) -> tuple[tuple[TermEnd, ...], int]:
        """Return the ends of the newest terms up to the first hole, oldest first, and the index before the oldest of them."""
        ends: list[TermEnd] = []
        index = self.readable_end
        while index > self.base.index and len(ends) < TERMS_LISTED_MAX:
            term = self.term_at(index)
            ends.append(TermEnd(term, index, self.chain_at(index) or ROOT_CHAIN))
            while index > self.base.index and self.term_at(index) == term:
                index -= 1
        return tuple(reversed(ends)), index

    def find_last_of_term(self, term: int, index: int) -> int:
        """Return the last index of at most a term, up to another index."""
        index = min(index, self.last)
        while index > self.base.index and self.term_at(index) > term:
            index -= 1
        return index

    def append(self, block: Block) -> None:
        """Add the next block."""
        self.append_header(block.header)
        self._remember(block)

    def append_header(self, header: BlockHeader, packed: bytes = b"") -> None:
        """Add the header of a block on the disk.

        Args:
            header: Its header.
            packed: The header's bytes, if the block before is missing.
        """
        if packed:
            self._starts[header.index] = (packed, header)
        self._chains.append(int.from_bytes(header.chain, "little"))
        self._terms.append(header.term)
        self._offsets.append(header.next_offset)
        self.time_ms = max(self.time_ms, header.time_ms)

    def append_holes(self, last: int) -> None:
        """Add missing blocks up to an index."""
        count = last - self.last
        if count > 0:
            self.holes.add(self.last + 1, last)
            for column in (self._chains, self._terms, self._offsets):
                column.extend([_NO_CHAIN] * count)

    def fill(self, block: Block) -> bool:
        """Put a block into its hole.

        The caller knows the block to be of this log. A neighbour without a link to the block belongs to another log, and
        becomes a hole.

        Returns:
            Whether the block is the missing one.
        """
        header = block.header
        index = header.index
        if index not in self.holes or self._expected.get(index, header.chain) != header.chain:
            return False
        before = self.chain_at(index - 1)
        has_link = before is not None and is_link(block.data, header, before)
        if before is not None and not has_link:
            if index - 1 == self.base.index:
                return False
            self.holes.add(index - 1, index - 1)
        place = index - self.base.index - 1
        self._chains[place] = int.from_bytes(header.chain, "little")
        self._terms[place] = header.term
        self._offsets[place] = header.next_offset
        self.holes.remove(index, index)
        self._expected.pop(index, None)
        self._starts.pop(index, None)
        if not has_link:
            self._starts[index] = (block.data[:HEADER_BYTES], header)
        start = self._starts.pop(index + 1, None)
        if start is not None and index + 1 not in self.holes and not is_link(*start, header.chain):
            self.holes.add(index + 1, self._run_end(index + 1))
        return True

    def is_followed(self, header: BlockHeader) -> bool:
        """Whether the block behind a hole continues a block for the hole, as far as it is there."""
        start = self._starts.get(header.index + 1)
        return start is None or header.index + 1 in self.holes or is_link(*start, header.chain)

    def note_unreadable(self, index: int) -> None:
        """Make a hole of an unreadable block."""
        chain = self.chain_at(index)
        if chain is not None and index > self.base.index:
            self._expected[index] = chain
            self.holes.add(index, index)
            self._forget(index)

    def mark_missing(self, index: int, behind: tuple[bytes, BlockHeader] | None) -> None:
        """Make a hole of a block of another log.

        Args:
            index: Its index.
            behind: The header of the next block, if it is not missing.
        """
        self.holes.add(index, index)
        if behind is not None:
            self._starts[index + 1] = behind

    def cut(self, end: int) -> None:
        """Remove all blocks behind an index."""
        self._forget_all(max(end, self.base.index) + 1, self.last)
        self.holes.remove(end + 1, self.last)
        for column in (self._chains, self._terms, self._offsets):
            del column[end - self.base.index :]

    def drop_before(self, base: LogBase) -> None:
        """Remove all blocks up to a base in this log."""
        self._forget_all(self.base.index + 1, base.index)
        for column in (self._chains, self._terms, self._offsets):
            del column[: base.index - self.base.index]
        self.holes.remove(self.base.index + 1, base.index)
        self.base = base
        start = self._starts.pop(base.index + 1, None)
        if start is not None and not is_link(*start, base.chain):
            self.holes.add(base.index + 1, self._run_end(base.index + 1))

    def reset(self, base: LogBase) -> None:
        """Remove all blocks; the next one follows a base."""
        self.cut(self.base.index)
        self.base = base

    def base_at(self, index: int) -> LogBase:
        """Return the base before the block behind an index."""
        return LogBase(index, self.term_at(index), self.chain_at(index) or ROOT_CHAIN, self.offset_at(index))

    def size_behind(self, index: int) -> int:
        """Return the bytes of the blocks in memory behind an index."""
        return sum(len(self._recent[each].data) for each in range(index + 1, self.last + 1) if each in self._recent)

    def recent(self, index: int) -> Block | None:
        """Return a block from memory."""
        return self._recent.get(index)

    def _run_end(self, index: int) -> int:
        return next((first - 1 for first, _last in self.holes if first > index), self.last)

    def _remember(self, block: Block) -> None:
        self._recent[block.header.index] = block
        self._recent_bytes += len(block.data)
        while self._recent_bytes > RECENT_BYTES_MAX and len(self._recent) > 1:
            self._forget(next(iter(self._recent)))

    def _forget_all(self, first: int, last: int) -> None:
        for index in range(first, last + 1):
            self._forget(index)
            self._starts.pop(index, None)
            self._expected.pop(index, None)

    def _forget(self, index: int) -> None:
        block = self._recent.pop(index, None)
        if block is not None:
            self._recent_bytes -= len(block.data)
