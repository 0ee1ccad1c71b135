"""Segments: the files of a log, and the scan of their blocks (docs/streams-format.md).

A segment is a header of `SEGMENT_HEADER_BYTES` and blocks. The file is allocated ahead, so zeros end the blocks.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

from iris_py.streams.blocks import (
    CHAIN_BYTES,
    HEADER_BYTES,
    ID_BYTES,
    ROOT_CHAIN,
    BlockHeader,
    DamagedBlock,
    read_block,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

__all__ = [
    "BEGINNING",
    "SEGMENT_BYTES",
    "SEGMENT_HEADER_BYTES",
    "DamagedSegment",
    "LogPlace",
    "PlacedBlock",
    "SegmentHeader",
    "decode_segment_header",
    "encode_segment_header",
    "scan_segment",
    "segment_name",
]

#: The size of a segment. Too small: many files, and each costs two syncs of its folder; too large: retention deletes late, and
#: the start reads much of the last segment.
SEGMENT_BYTES: Final = 64 << 20
#: One page, so that the blocks begin at a page.
SEGMENT_HEADER_BYTES: Final = 4096
MAGIC: Final = b"IRISLOG1"

# magic; stream id, partition; first index, first offset, chain before the first block
_HEADER: Final = struct.Struct(f"<8s{ID_BYTES}sH6xQQ{CHAIN_BYTES}s")
_CRC: Final = struct.Struct("<I")


class DamagedSegment(ValueError):
    """The header of a segment has changed, or belongs to another log."""


class LogPlace(msgspec.Struct, frozen=True, gc=False):
    """A place between two blocks of a log."""

    index: int
    """The index of the next block."""
    offset: int
    """The offset of the next record."""
    chain: bytes
    """The chain of the block before."""

    def after(self, header: BlockHeader) -> LogPlace:
        """Return the place behind the next block."""
        return LogPlace(header.index + 1, header.next_offset, header.chain)


#: The place before the first block of a log.
BEGINNING: Final = LogPlace(1, 0, ROOT_CHAIN)


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    stream: bytes
    """The id of the stream."""
    partition: int
    first: LogPlace
    """The place of its first block."""


class PlacedBlock(NamedTuple):
    """A block in a segment."""

    place: int
    """The place of its header in the file."""
    header: BlockHeader


def segment_name(index: int) -> str:
    """Return the name of the segment whose first block has an index."""
    return f"{index:020d}.log"


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the first `SEGMENT_HEADER_BYTES` of a segment."""
    first = header.first
    packed = _HEADER.pack(MAGIC, header.stream, header.partition, first.index, first.offset, first.chain)
    packed += _CRC.pack(crc32(packed))
    return packed + bytes(SEGMENT_HEADER_BYTES - len(packed))


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Read the header of a segment.

    Args:
        data: The beginning of the file.

    Raises:
        DamagedSegment: The bytes are no header of a segment, or have changed.
    """
    packed = data[: _HEADER.size]
    crc = data[_HEADER.size : _HEADER.size + _CRC.size]
    if len(crc) < _CRC.size or not packed.startswith(MAGIC):
        raise DamagedSegment("no segment of a stream begins here")
    if crc32(packed) != _CRC.unpack(crc)[0]:
        raise DamagedSegment("the header of the segment has changed")
    _magic, stream, partition, index, offset, chain = _HEADER.unpack(packed)
    return SegmentHeader(stream, partition, LogPlace(index, offset, chain))


def scan_segment(data: bytes | mmap, first: LogPlace, begin: int = SEGMENT_HEADER_BYTES) -> Iterator[PlacedBlock]:
    """Yield the blocks of a segment after checks of body and chain.

    Args:
        data: The file.
        first: The place of the first block.
        begin: The place of its header.

    Raises:
        DamagedBlock: The next bytes are neither a block that continues the log nor the end.
    """
    place, expected = begin, first
    while place + HEADER_BYTES <= len(data):
        header = read_block(data, place, expected.index, expected.offset, expected.chain)
        if header is None:
            return
        yield PlacedBlock(place, header)
        place += header.block_bytes
        expected = expected.after(header)
    if any(data[place:]):
        raise DamagedBlock("the last block is cut")
