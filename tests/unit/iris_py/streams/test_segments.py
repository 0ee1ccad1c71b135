"""Blocks in segments: what was written is read, and every changed bit is found."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.streams.blocks import (
    BLOCK_BYTES_MAX,
    HEADER_BYTES,
    BlockHeader,
    BlockKind,
    DamagedBlock,
    read_header,
    seal_block,
)
from iris_py.streams.segments import (
    BEGINNING,
    SEGMENT_HEADER_BYTES,
    DamagedSegment,
    LogPlace,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    scan_segment,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.streams.blocks import Block
    from iris_py.streams.segments import PlacedBlock

STREAM = bytes(range(16))
BODIES = (b"a", b"", b"12345678", b"x" * 100)


def make_blocks(bodies: Sequence[bytes], place: LogPlace = BEGINNING) -> list[Block]:
    blocks = []
    for body in bodies:
        header = BlockHeader(BlockKind.RECORDS, 0, 0, 0, 3, place.index, 7, place.offset, 1_700_000_000_000, b"")
        blocks.append(seal_block(header, body, place.chain))
        place = place.after(blocks[-1].header)
    return blocks


def make_segment(blocks: Sequence[Block], first: LogPlace = BEGINNING) -> bytes:
    header = encode_segment_header(SegmentHeader(STREAM, 5, first))
    return header + b"".join(block.data for block in blocks) + bytes(2 * HEADER_BYTES)


def test_a_segment_gives_its_blocks_in_order_and_ends_with_zeros() -> None:
    blocks = make_blocks(BODIES)
    data = make_segment(blocks)
    assert decode_segment_header(data) == SegmentHeader(STREAM, 5, BEGINNING)
    found = list(scan_segment(data, BEGINNING))
    assert [header for _place, header in found] == [block.header for block in blocks]
    assert [data[place + HEADER_BYTES :][: header.body_bytes] for place, header in found] == list(BODIES)
    assert [block.body for block in blocks] == list(BODIES)
    assert all(place % 8 == 0 for place, _header in found)


def test_a_later_segment_continues_the_log() -> None:
    first = make_blocks(BODIES)
    place = BEGINNING.after(first[0].header).after(first[1].header)
    data = make_segment(make_blocks(BODIES, place), place)
    header = decode_segment_header(data)
    assert header.first == place
    assert [found.header.index for found in scan_segment(data, header.first)] == [3, 4, 5, 6]
    assert segment_name(place.index) == "00000000000000000003.log"


@given(st.data())
def test_every_changed_bit_of_a_block_is_found(data: st.DataObject) -> None:
    blocks = make_blocks(BODIES)
    segment = bytearray(make_segment(blocks))
    number = data.draw(st.integers(0, len(blocks) - 1))
    places = [found.place for found in scan_segment(bytes(segment), BEGINNING)]
    used = HEADER_BYTES + blocks[number].header.body_bytes
    place = places[number] + data.draw(st.integers(0, used - 1))
    segment[place] ^= 1 << data.draw(st.integers(0, 7))
    scan = scan_segment(bytes(segment), BEGINNING)
    assert [next(scan).place for _ in range(number)] == places[:number]
    with pytest.raises(DamagedBlock):
        next(scan)


@given(st.integers(0, 8 * 60 - 1))
def test_every_changed_bit_of_the_header_of_a_segment_is_found(bit: int) -> None:
    data = bytearray(make_segment(()))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedSegment):
        decode_segment_header(bytes(data))


@given(st.integers(1, 2 * HEADER_BYTES + sum(len(block.data) for block in make_blocks(BODIES))))
def test_a_cut_segment_has_the_whole_blocks_and_says_so_of_a_cut_one(size: int) -> None:
    blocks = make_blocks(BODIES)
    data = make_segment(blocks)[:-size]
    ends = [SEGMENT_HEADER_BYTES + sum(len(block.data) for block in blocks[:number]) for number in range(len(blocks) + 1)]
    found: list[PlacedBlock] = []
    try:
        found += scan_segment(data, BEGINNING)
    except DamagedBlock:
        assert len(data) not in ends
        return
    assert len(found) == len(blocks) or len(data) in ends


def test_a_lost_or_exchanged_block_is_found_by_index_and_chain() -> None:
    blocks = make_blocks(BODIES)
    with pytest.raises(DamagedBlock, match="block 2 is expected, and 3"):
        list(scan_segment(make_segment([blocks[0], *blocks[2:]]), BEGINNING))
    others = make_blocks([b"b", *BODIES[1:]])
    with pytest.raises(DamagedBlock, match="block 2 does not continue"):
        list(scan_segment(make_segment([blocks[0], *others[1:]]), BEGINNING))


def test_a_block_of_a_newer_version_or_of_a_wrong_size_is_refused() -> None:
    packed = bytearray(make_blocks([b""])[0].data)
    packed[4] = 2
    packed[8:12] = bytes(4)
    packed[8:12] = struct.pack("<I", crc32(packed))
    with pytest.raises(DamagedBlock, match="update Iris"):
        read_header(bytes(packed))
    packed[4] = 1
    packed[16:20] = struct.pack("<I", BLOCK_BYTES_MAX + 1)
    packed[8:12] = bytes(4)
    packed[8:12] = struct.pack("<I", crc32(packed))
    with pytest.raises(DamagedBlock, match="a body of"):
        read_header(bytes(packed))
