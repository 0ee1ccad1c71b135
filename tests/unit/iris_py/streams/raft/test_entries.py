"""The log in memory checks each link between blocks, in whichever order holes are filled."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from iris_py.streams.raft.entries import Entries, LogBase, decode_block
from tests.unit.iris_py.streams.raft.logs import make_log

if TYPE_CHECKING:
    from iris_py.streams.blocks import Block

LOG = make_log([1, 1, 1, 2, 2, 2])


def with_holes(first: int, last: int, blocks: list[Block] = LOG) -> Entries:
    entries = Entries(LogBase())
    for block in blocks[: first - 1]:
        entries.append_header(block.header)
    entries.append_holes(last)
    for number, block in enumerate(blocks[last:]):
        entries.append_header(block.header, b"" if number else block.data[:144])
    return entries


@pytest.mark.parametrize("order", [*permutations((2, 3, 4))])
def test_holes_are_filled_in_any_order(order: tuple[int, ...]) -> None:
    entries = with_holes(2, 4)
    for index in order:
        assert entries.fill(LOG[index - 1])
    assert not entries.holes
    assert [entries.chain_at(index) for index in range(1, 7)] == [block.header.chain for block in LOG]


@pytest.mark.parametrize("order", [*permutations((2, 3, 4))])
def test_a_block_of_another_log_is_found_out_by_its_neighbours(order: tuple[int, ...]) -> None:
    entries = with_holes(2, 4)
    other = make_log([1], LOG[:2], b"other")[2]
    for index in order:
        if index != 3 or entries.is_followed(other.header):
            entries.fill(other if index == 3 else LOG[index - 1])
    assert entries.holes  # whatever was believed, the log is not taken for whole
    while entries.holes:
        assert entries.fill(LOG[entries.holes.lowest - 1])
    assert entries.chain_at(6) == LOG[5].header.chain


def test_a_block_that_became_unreadable_is_filled_by_itself_alone() -> None:
    entries = with_holes(7, 6)
    entries.note_unreadable(3)
    assert not entries.fill(make_log([1], LOG[:2], b"other")[2])
    assert entries.fill(LOG[2])


def test_the_ends_of_terms_and_the_end_of_the_log() -> None:
    entries = with_holes(4, 5)
    ends, begin = entries.list_terms()
    assert ([(end.term, end.index) for end in ends], begin) == ([(1, 3)], 0)
    assert (entries.find_end().term, entries.find_end().index) == (2, 6)
    entries.cut(5)
    assert (entries.find_end().index, entries.readable_end, entries.last) == (3, 3, 5)


def test_blocks_before_a_base_are_dropped_with_their_holes() -> None:
    entries = with_holes(2, 3)
    entries.drop_before(LogBase(3, 1, LOG[2].header.chain, 3))
    assert not entries.holes
    assert (entries.base.index, entries.last, entries.next_offset) == (3, 6, 6)
    entries.reset(LogBase(9, 2, bytes(8), 9))
    assert (entries.last, entries.next_offset) == (9, 9)


def test_changed_bytes_are_no_block() -> None:
    data = LOG[0].data
    assert decode_block(data) == LOG[0]
    for place in (0, 20, 60, 144):
        assert decode_block(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]) is None
    assert decode_block(data[:-8]) is None
