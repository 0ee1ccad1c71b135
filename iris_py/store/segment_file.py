"""One segment on the disk: the blocks, and the index, rebuilt from the blocks if the file is unreadable."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from iris_py.streams.blocks import HEADER_BYTES, Block, DamagedBlock, read_block, read_header
from iris_py.streams.segment_index import DamagedIndex, IndexEntry, SegmentIndex, decode_index, encode_index, index_name
from iris_py.streams.segments import (
    SEGMENT_HEADER_BYTES,
    DamagedSegment,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    scan_segment,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_py.store.disk import DiskFile, StoreDisk

__all__ = ["SegmentFile", "UnusedSegment", "create_segment", "open_segment", "read_blocks"]

#: Bytes read at once while blocks are looked through. Too small: many system calls; too large: memory for nothing.
CHUNK_BYTES: Final = 256 << 10


class UnusedSegment(Exception):
    """The file has no header: the process or the machine stopped while it was made."""


class SegmentFile:
    """A segment.

    Args:
        disk: The disk.
        path: The path of the segment.
        header: Its header.

    Attributes:
        path: The path.
        header: The header.
        is_full: Whether a later segment takes all further blocks.
    """

    def __init__(self, disk: StoreDisk, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.is_full = False
        self._disk = disk
        self._index: SegmentIndex | None = None

    @property
    def index(self) -> SegmentIndex:
        """The index; of a full segment it is read, or made anew, at the first use.

        Raises:
            DamagedBlock: No index can be read, and a block has changed.
            OSError: The file cannot be read.
        """
        if self._index is None:
            self._index = self._load_index() or self._build_index()
        return self._index

    def find_offset(self, offset: int) -> IndexEntry:
        """Return a place at or before an offset; the beginning of a damaged segment without an index."""
        try:
            return self.index.find_offset(offset)
        except DamagedBlock:
            return SegmentIndex(self.header.first).end

    def begin_index(self) -> SegmentIndex:
        """Begin the index of a segment that is not full."""
        self._index = SegmentIndex(self.header.first)
        return self._index

    def fill(self) -> None:
        """Mark the segment as full, and write the index."""
        self.is_full = True
        self._save_index(self.index)

    def remove(self) -> None:
        """Remove the file and its index."""
        self._disk.remove(self.path)
        self._disk.remove(self._index_path)

    @property
    def _index_path(self) -> Path:
        return self.path.with_name(index_name(self.header.first.index))

    def _load_index(self) -> SegmentIndex | None:
        try:
            with closing(self._disk.open(self._index_path)) as file:
                return decode_index(self.header, file.read(file.size))
        except (OSError, DamagedIndex):
            return None

    def _build_index(self) -> SegmentIndex:
        index = SegmentIndex(self.header.first)
        with closing(self._disk.open(self.path)) as file:
            for block in scan_segment(file.read(file.size), self.header.first):
                index.add(block.header)
        self._save_index(index)
        return index

    def _save_index(self, index: SegmentIndex) -> None:
        """Write the index, without a sync: a torn one is made anew."""
        try:
            self._disk.remove(self._index_path)
            with closing(self._disk.create(self._index_path)) as file:
                file.write([encode_index(self.header, index)], 0)
        except OSError:
            self._disk.remove(self._index_path)  # a full disk; the next start tries again


def create_segment(disk: StoreDisk, folder: Path, header: SegmentHeader, first: bytes, size: int) -> DiskFile:
    """Create a segment with its first block; both are synced, and its name.

    Args:
        disk: The disk.
        folder: The folder of the partition.
        header: The header.
        first: The first block; empty for none.
        size: The bytes to allocate.

    Raises:
        OSError: The segment was not made.
    """
    path = folder / segment_name(header.first.index)
    file = disk.create(path)
    try:
        file.allocate(size)
        file.write([encode_segment_header(header), first], 0)
        file.sync()
        disk.sync_folder(folder)
    except OSError:
        file.close()
        disk.remove(path)
        raise
    return file


def open_segment(disk: StoreDisk, path: Path) -> SegmentFile:
    """Open a segment by its header.

    Raises:
        UnusedSegment: The file has zeros in place of a header, or is empty.
        DamagedSegment: The header has changed, or belongs to another segment.
        OSError: The file cannot be read.
    """
    with closing(disk.open(path)) as file:
        data = file.read(SEGMENT_HEADER_BYTES)
    if not any(data):
        raise UnusedSegment
    header = decode_segment_header(data)
    if segment_name(header.first.index) != path.name:
        raise DamagedSegment("the segment has the name of another one")
    return SegmentFile(disk, path, header)


def read_blocks(file: DiskFile, begin: IndexEntry, end: int) -> Iterator[tuple[IndexEntry, Block]]:
    """Yield the checked blocks between two places, with the place of each block.

    Args:
        file: The segment.
        begin: The place of the first block.
        end: The place to end at, or the size of the file: then zeros end the blocks.

    Raises:
        DamagedBlock: The next bytes are no block that continues the log.
        OSError: The file cannot be read.
    """
    data, base = b"", begin.place
    place, expected = begin.place, begin.log
    while place < end:
        inside = place - base
        if len(data) - inside < HEADER_BYTES:
            data, base, inside = file.read(min(CHUNK_BYTES, end - place), place), place, 0
            if len(data) < HEADER_BYTES:
                if any(data) or place + len(data) < end:
                    raise DamagedBlock("the segment is cut")
                return
        header = read_header(data, inside)
        if header is None:
            return
        if len(data) - inside < header.block_bytes:
            data, base, inside = file.read(max(CHUNK_BYTES, header.block_bytes), place), place, 0
        if read_block(data, inside, expected.index, expected.offset, expected.chain) is None:
            return
        yield IndexEntry(expected, header.time_ms, place), Block(header, data[inside : inside + header.block_bytes])
        expected = expected.after(header)
        place += header.block_bytes
