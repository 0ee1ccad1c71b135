"""The sparse index of a segment: where in the file the block of an offset or of a time begins (docs/streams-format.md).

An index is derived from a segment. A reader rebuilds a missing or damaged index, so no reader depends on the bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from iris_py.streams.blocks import CHAIN_BYTES, ID_BYTES
from iris_py.streams.segments import SEGMENT_HEADER_BYTES, LogPlace, SegmentHeader

if TYPE_CHECKING:
    from iris_py.streams.blocks import BlockHeader

__all__ = ["DamagedIndex", "IndexEntry", "SegmentIndex", "decode_index", "encode_index", "index_name"]

#: Bytes between two entries. Too small: large index files; too large: a reader scans much to find its first record.
INTERVAL_BYTES: Final = 64 << 10
MAGIC: Final = b"IRISIDX1"

# magic, stream id, partition, first index, first offset, chain; count of entries
_HEADER: Final = struct.Struct(f"<8s{ID_BYTES}sH2xIQQ{CHAIN_BYTES}s")
# index, offset, chain before, time, place
_ENTRY: Final = struct.Struct(f"<QQ{CHAIN_BYTES}sQQ")
_CRC: Final = struct.Struct("<I")


class DamagedIndex(ValueError):
    """The bytes are not the index of this segment."""


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """A block of a segment, or the end behind its last block."""

    log: LogPlace
    """The place in the log before the block."""
    time_ms: int
    """The time of the block; of the end, that of the last block."""
    place: int
    """The place of the block in the file."""


class SegmentIndex:
    """The index of one segment.

    Attributes:
        entries: A block for each `INTERVAL_BYTES`.
        end: The end of the blocks.
    """

    def __init__(self, first: LogPlace) -> None:
        self.entries: list[IndexEntry] = []
        self.end = IndexEntry(first, 0, SEGMENT_HEADER_BYTES)

    def add(self, header: BlockHeader) -> None:
        """Add the next block of the segment."""
        end = self.end
        if not self.entries or end.place - self.entries[-1].place >= INTERVAL_BYTES:
            self.entries.append(IndexEntry(end.log, header.time_ms, end.place))
        self.end = IndexEntry(end.log.after(header), header.time_ms, end.place + header.block_bytes)

    def find_offset(self, offset: int) -> IndexEntry:
        """Return the last entry at or before an offset; the end of a segment without blocks."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.log.offset)
        return self.entries[max(number - 1, 0)] if self.entries else self.end

    def find_time(self, time_ms: int) -> IndexEntry:
        """Return the last entry before a time, or the first one; the end of a segment without blocks."""
        number = bisect_left(self.entries, time_ms, key=attrgetter("time_ms"))
        return self.entries[max(number - 1, 0)] if self.entries else self.end


def index_name(index: int) -> str:
    """Return the name of the index of the segment whose first block has an index."""
    return f"{index:020d}.idx"


def encode_index(header: SegmentHeader, index: SegmentIndex) -> bytes:
    """Return the bytes of an index.

    Args:
        header: The header of the segment.
        index: Its entries and its end.
    """
    first = header.first
    parts = [
        _HEADER.pack(MAGIC, header.stream, header.partition, len(index.entries), first.index, first.offset, first.chain),
        *(
            _ENTRY.pack(entry.log.index, entry.log.offset, entry.log.chain, entry.time_ms, entry.place)
            for entry in (*index.entries, index.end)
        ),
    ]
    packed = b"".join(parts)
    return packed + _CRC.pack(crc32(packed))


def decode_index(header: SegmentHeader, data: bytes) -> SegmentIndex:
    """Read the index of a segment.

    Args:
        header: The header of the segment.
        data: The file.

    Raises:
        DamagedIndex: The bytes have changed, are cut, or belong to another segment.
    """
    packed, crc = data[: -_CRC.size], data[-_CRC.size :]
    if len(packed) < _HEADER.size or _CRC.pack(crc32(packed)) != crc:
        raise DamagedIndex("the index of the segment has changed")
    magic, stream, partition, count, *first = _HEADER.unpack_from(packed)
    if magic != MAGIC or SegmentHeader(stream, partition, LogPlace(*first)) != header:
        raise DamagedIndex("the index belongs to another segment")
    if len(packed) != _HEADER.size + (count + 1) * _ENTRY.size:
        raise DamagedIndex("the index is cut")
    index = SegmentIndex(header.first)
    *index.entries, index.end = (
        IndexEntry(LogPlace(number, offset, chain), time_ms, place)
        for number, offset, chain, time_ms, place in _ENTRY.iter_unpack(packed[_HEADER.size :])
    )
    return index
