"""The log of one partition on the disk of this process. All methods block; one thread at a time appends, any number reads.

A group of batches is written by one `pwritev`, or several if it is large, and one `fdatasync`. After an error of either the
content of the disk is unknown, so the log takes no more records until the process ends.
"""

from __future__ import annotations

import errno
import math
import time
from bisect import bisect_right
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.store.disk import is_lack_of_space
from iris_py.store.halves import follow_median
from iris_py.store.recovery import LogDamage, recover
from iris_py.store.segment_file import SegmentFile, create_segment, read_blocks
from iris_py.store.state_file import ONLY_TERM, create_state
from iris_py.streams.batches import ReadBatch
from iris_py.streams.blocks import (
    HEADER_BYTES,
    ID_BYTES,
    Block,
    BlockHeader,
    BlockKind,
    DamagedBlock,
    padded,
    seal_block,
    seal_parts,
)
from iris_py.streams.columns import MalformedRecords, decode_columns, encode_columns
from iris_py.streams.errors import AppendUncertain, StreamDamaged, StreamFull, StreamTruncated, StreamUnavailable
from iris_py.streams.limits import MARK_INTERVAL_S, READ_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN
from iris_py.streams.segment_index import IndexEntry
from iris_py.streams.segments import (
    BEGINNING,
    SEGMENT_BYTES,
    SEGMENT_HEADER_BYTES,
    LogPlace,
    SegmentHeader,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from iris_py.errors import IrisError
    from iris_py.store.disk import StoreDisk
    from iris_py.streams.batches import RecordBatch
    from iris_py.streams.description import StreamDescription

__all__ = ["LogIdentity", "PartitionLog", "create_log"]

#: Errors of the creation of a segment that pass: nothing of the group was written.
_PASSING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: Bytes of blocks that gather before a write. A group has one sync, and large ones have several writes. Too small: many system
#: calls; too large: the blocks have left the cache of the processor when they are written.
WRITE_BYTES: Final = 256 << 10
#: The largest group that has zeros written behind it. The first write to allocated bytes makes a file system note that they are
#: no longer empty, and its next sync takes a second write to the disk; a write over zeros does not. Too small: syncs of small
#: groups take longer; too large: the zeros double the bytes of large groups, which cost more than that note.
ZEROED_BYTES_MAX: Final = 64 << 10
#: Bytes of zeros at once. Too small: many groups are the first ones; too large: one group waits long.
ZEROS_BYTES: Final = 256 << 10
_ZEROS: Final = bytes(ZEROS_BYTES)
_OFFSET_BYTES: Final = 8
_TRIM_BYTES: Final = HEADER_BYTES + _OFFSET_BYTES
_MS: Final = 1000


class LogIdentity(NamedTuple):
    """The log of a partition, among others."""

    stream: bytes
    """The id of the stream."""
    partition: int
    producer: bytes
    """The id of this process as a writer."""


class _SyncGroup:
    """Blocks for one sync.

    Attributes:
        headers: The headers of the blocks.
        numbers: The number of the batch for each block.
        buffers: The bytes that are not yet written.
        place: The place of these bytes in the file.
        end: The place behind the blocks.
    """

    def __init__(self, end: IndexEntry) -> None:
        self.headers: list[BlockHeader] = []
        self.numbers: list[int] = []
        self.buffers: list[bytes] = []
        self.place, self.end = end.place, end

    def add(self, number: int, header: BlockHeader, parts: Sequence[bytes]) -> None:
        """Add a block by its parts."""
        self.headers.append(header)
        self.numbers.append(number)
        self.buffers += parts
        self.end = IndexEntry(self.end.log.after(header), header.time_ms, self.end.place + header.block_bytes)

    def clear(self, end: IndexEntry) -> None:
        """Begin the next group at a place."""
        self.headers, self.numbers, self.buffers = [], [], []
        self.place, self.end = end.place, end


def segment_bytes(description: StreamDescription) -> int:
    """Return the size of the segments of a stream. A full partition has several segments, and retention deletes the oldest."""
    return min(SEGMENT_BYTES, max(SEGMENT_BYTES_MIN, description.max_bytes // SEGMENTS_MIN))


def create_log(disk: StoreDisk, folder: Path, stream: bytes, partition: int, description: StreamDescription) -> None:
    """Make the files of an empty log."""
    disk.make_folder(folder)
    create_segment(disk, folder, SegmentHeader(stream, partition, BEGINNING), b"", segment_bytes(description)).close()
    create_state(disk, folder / "state").close()


class PartitionLog:
    """The log of a partition.

    Args:
        disk: The disk.
        folder: The folder of the partition.
        identity: The log among others.
        description: The name and the settings of the stream.

    Attributes:
        description: The name and the settings; may be replaced.
        torn_bytes: Bytes that a crash had left behind the last whole block.
        has_unsynced_mark: Whether the newest mark is not synced.
        sync_s: The median of the seconds of a sync; infinite before the first one.
        before_sync: Called once, between the write and the sync of the next group.
    """

    def __init__(self, disk: StoreDisk, folder: Path, identity: LogIdentity, description: StreamDescription) -> None:
        self.description = description
        self.has_unsynced_mark = False
        self.sync_s = math.inf
        self.before_sync: Callable[[], object] | None = None
        self._disk, self._folder, self._identity = disk, folder, identity
        found = recover(disk, folder, segment_bytes(description))
        self.torn_bytes = found.torn_bytes
        self._state, self._file, self._segments = found.state, found.file, found.segments
        self._damage = found.damage
        self._failure = ""
        if self._damage is None and self._file is not None:
            self._end = self._segments[-1].index.end
            self._size = self._file.size
        else:
            self._end = self._segments[-1].index.end if self._segments else IndexEntry(BEGINNING, 0, SEGMENT_HEADER_BYTES)
            self._size = 0
        self._written = self._end.place
        self._full_bytes = sum(disk.size(segment.path) for segment in self._segments[:-1])
        self._sequence = 0
        self._marked_at = time.monotonic()

    @property
    def first_offset(self) -> int:
        """The offset of the oldest kept record."""
        return self._segments[0].header.first.offset if self._segments else 0

    @property
    def end_offset(self) -> int:
        """The offset behind the newest synced record."""
        return self._end.log.offset

    @property
    def bytes(self) -> int:
        """The bytes of the segments, as far as they are used."""
        return self._full_bytes + self._end.place

    @property
    def problem(self) -> str:
        """The reason why the log takes no more records; empty if it does."""
        if self._damage is not None:
            return f"{self._damage.path}: {self._damage.reason}"
        return self._failure

    @property
    def is_damaged(self) -> bool:
        """Whether the start found damage."""
        return self._damage is not None

    # -- appending

    def append(self, batches: Sequence[RecordBatch]) -> list[int | IrisError]:
        """Append batches, and wait until the disk has them.

        Returns:
            For each batch the offset of the first record, or an error.
        """
        outcomes: list[int | IrisError] = []
        group = _SyncGroup(self._end)
        for number, batch in enumerate(batches):
            flags, body = encode_columns(batch.columns())
            block_bytes = padded(HEADER_BYTES + len(body))
            if group.end.place + block_bytes > self._size and not self.problem:
                self._sync(group, outcomes)
            error = self._make_room(block_bytes, group)
            if error is not None:
                outcomes.append(error)
                continue
            outcomes.append(group.end.log.offset)
            header = self._new_header(BlockKind.RECORDS, flags, len(batch), group.end)
            group.add(number, *seal_parts(header, body, group.end.log.chain))
            self._sequence += len(batch)
            if group.end.place - group.place >= WRITE_BYTES:
                self._write(group, outcomes)
        self._sync(group, outcomes)
        return outcomes

    def _make_room(self, block_bytes: int, group: _SyncGroup) -> IrisError | None:
        """Begin a new segment if the next block does not fit; return the error of a block that cannot be appended."""
        if self.problem:
            return self._refusal()
        description = self.description
        used = self._full_bytes + group.end.place
        if description.full == "refuse" and used + block_bytes > description.max_bytes:
            return StreamFull(description.name, used, description.max_bytes)
        if group.end.place + block_bytes <= self._size:
            return None
        try:
            if self._end.log == self._segments[-1].header.first:
                self._grow(group.end.place + block_bytes)
            else:
                self._roll(block_bytes)
        except OSError as exc:
            if is_lack_of_space(exc):
                return StreamFull(description.name, self.bytes, self._disk.free_bytes(self._folder), is_disk=True)
            if exc.errno not in _PASSING:
                self._failure = f"no new file can be made: {exc}"
            return self._refusal(str(exc))
        group.clear(self._end)
        return None

    def _refusal(self, reason: str = "") -> IrisError:
        if self._damage is not None:
            return self._damaged(self.end_offset, self._damage)
        return StreamUnavailable(self.description.name, self._identity.partition, self.problem or reason)

    def _new_header(self, kind: BlockKind, flags: int, count: int, end: IndexEntry) -> BlockHeader:
        time_ms = max(end.time_ms, time.time_ns() // 1_000_000)
        producer, sequence = (self._identity.producer, self._sequence) if count else (bytes(ID_BYTES), 0)
        return BlockHeader(kind, flags, 0, 0, count, end.log.index, ONLY_TERM, end.log.offset, time_ms, b"", producer, sequence)

    def _write(self, group: _SyncGroup, outcomes: list[int | IrisError]) -> None:
        """Write the blocks of a group that are not yet written; after an error its batches are uncertain."""
        assert self._file is not None
        try:
            self._file.write(group.buffers, group.place)
        except OSError as exc:
            self._fail(exc, group, outcomes)
        else:
            group.buffers, group.place = [], group.end.place

    def _sync(self, group: _SyncGroup, outcomes: list[int | IrisError]) -> None:
        """Write the rest of a group, and sync it; after an error its batches are uncertain."""
        if not group.headers:
            return
        assert self._file is not None
        try:
            if count := self._zeros_behind(group):
                group.buffers.append(_ZEROS[:count])
            if group.buffers:
                self._file.write(group.buffers, group.place)
            if self.before_sync is not None:
                self.call_before_sync()
            begin = time.monotonic()
            self._file.sync()
            end = time.monotonic()
            self.sync_s = follow_median(self.sync_s, end - begin)
            self._note(group.headers, end)
        except OSError as exc:
            self._fail(exc, group, outcomes)
        else:
            group.clear(self._end)

    def call_before_sync(self) -> None:
        """Call `before_sync` if no sync has called it: a refused group has no sync."""
        if self.before_sync is not None:
            function, self.before_sync = self.before_sync, None
            function()

    def _fail(self, error: OSError, group: _SyncGroup, outcomes: list[int | IrisError]) -> None:
        self._failure = f"the disk failed: {error}"
        for number in group.numbers:
            outcomes[number] = AppendUncertain(self.description.name, self._identity.partition, self._failure)
        group.clear(self._end)

    def _zeros_behind(self, group: _SyncGroup) -> int:
        """Return how many zeros to write behind a group, so that the next small groups overwrite written bytes."""
        end, count = group.end.place, 0
        if end > self._written:
            if end - self._end.place <= ZEROED_BYTES_MAX:
                count = min(ZEROS_BYTES, self._size - end)
            self._written = end + count
        return count

    def _note(self, headers: Sequence[BlockHeader], now: float) -> None:
        """Note that blocks are synced."""
        index = self._segments[-1].index
        for header in headers:
            index.add(header)
        self._end = index.end
        self._mark(is_synced=now - self._marked_at >= MARK_INTERVAL_S)

    def _mark(self, *, is_synced: bool) -> None:
        self._state.note(self._end.log, is_synced=is_synced)
        self.has_unsynced_mark = not is_synced
        if is_synced:
            self._marked_at = time.monotonic()

    def stop(self, reason: str) -> None:
        """Take no more records."""
        self._failure = self._failure or reason

    def sync_mark(self) -> None:
        """Sync the mark, if that is due."""
        if self.has_unsynced_mark and not self.problem:
            try:
                self._mark(is_synced=True)
            except OSError as exc:
                self._failure = f"the disk failed: {exc}"

    # -- segments

    def _grow(self, size: int) -> None:
        """Make a segment without blocks large enough for a block."""
        assert self._file is not None
        self._file.allocate(size)
        self._size = size

    def _roll(self, block_bytes: int) -> None:
        """Begin a new segment with a TRIM block for the first kept offset; then delete older segments.

        Raises:
            OSError: No segment was made.
        """
        assert self._file is not None
        size = max(segment_bytes(self.description), SEGMENT_HEADER_BYTES + _TRIM_BYTES + block_bytes)
        dropped = self._too_old() or 0
        if self.description.full == "drop_oldest":
            dropped = max(dropped, self._too_many(size))
        kept = (*self._segments, None)[dropped]
        first_offset = kept.header.first.offset if kept is not None else self.end_offset
        header = SegmentHeader(self._identity.stream, self._identity.partition, self._end.log)
        trim = self._make_trim(first_offset)
        old, old_file = self._segments[-1], self._file
        try:  # first, so that without a new segment the old one still takes blocks
            old_file.cut(self._end.place, self._end.place)
        except OSError as exc:
            self._failure = f"the disk failed: {exc}"
            raise
        self._size = self._end.place
        file = create_segment(self._disk, self._folder, header, trim.data, size)
        old_file.close()
        old.fill()
        self._full_bytes += self._end.place
        segment = SegmentFile(self._disk, self._folder / segment_name(header.first.index), header)
        segment.begin_index()
        self._segments, self._file, self._size = (*self._segments, segment), file, size
        self._note([trim.header], time.monotonic())
        self._written = self._end.place
        self._drop(dropped)

    def _make_trim(self, first_offset: int) -> Block:
        body = first_offset.to_bytes(_OFFSET_BYTES, "little")
        return seal_block(self._new_header(BlockKind.TRIM, 0, 0, self._end), body, self._end.log.chain)

    def _too_old(self) -> int:
        """Return how many of the oldest full segments have no record that is young enough."""
        limit_ms = time.time() * _MS - self.description.max_age_s * _MS
        for number, segment in enumerate(self._segments[:-1]):
            try:
                if segment.index.end.time_ms >= limit_ms:
                    return number
            except (DamagedBlock, OSError):
                return number  # nothing is deleted because it is damaged
        return max(len(self._segments) - 1, 0)

    def _too_many(self, size: int) -> int:
        """Return how many of the oldest segments have to go before a new one of a size."""
        used = self._full_bytes + self._end.place + size
        for number, segment in enumerate(self._segments):
            if used <= self.description.max_bytes:
                return number
            used -= self._disk.size(segment.path) if segment.is_full else self._end.place
        return len(self._segments)

    def _drop(self, count: int) -> None:
        dropped, self._segments = self._segments[:count], self._segments[count:]
        for segment in dropped:
            self._full_bytes -= self._disk.size(segment.path)
            segment.remove()

    def trim(self) -> None:
        """Delete segments with old records only."""
        if self.problem or not (count := self._too_old()):
            return
        trim = self._make_trim(self._segments[count].header.first.offset)
        if self._end.place + len(trim.data) > self._size:
            return  # the next segment does it
        group = _SyncGroup(self._end)
        group.add(0, trim.header, [trim.data])
        self._sync(group, [0])
        if not self.problem:
            self._drop(count)

    def close(self) -> None:
        """Sync the mark and close the files."""
        self.sync_mark()
        self._state.close()
        if self._file is not None:
            self._file.close()

    # -- reading

    def read(self, offset: int, bytes_max: int = READ_BYTES_MAX) -> list[ReadBatch]:
        """Read the records from an offset on.

        Args:
            offset: The first offset.
            bytes_max: The bytes to end at; a single batch may have more.

        Returns:
            At least one batch, with the record at the offset; an empty list at the end of the log.

        Raises:
            StreamTruncated: Retention has deleted the record.
            StreamDamaged: The record cannot be read.
        """
        segments, end = self._segments, self._end
        found: list[ReadBatch] = []
        if offset >= end.log.offset and self._damage is None:
            return found
        if not segments or offset < segments[0].header.first.offset:
            raise self._missing(offset)
        number = bisect_right(segments, offset, key=lambda segment: segment.header.first.offset) - 1
        reached: LogPlace | None = None
        while number < len(segments) and bytes_max > 0:
            segment = segments[number]
            if reached is not None and reached != segment.header.first:
                return found or self._raise_damaged(reached.offset, segment.path, "the records before it are missing")
            limit = end.place if segment is segments[-1] else 0
            try:
                reached, bytes_max = self._read_segment(segment, offset, limit, found, bytes_max)
            except FileNotFoundError as exc:
                return found or self._raise_missing(offset, segment.path, exc)
            except (DamagedBlock, MalformedRecords, OSError) as exc:
                at = found[-1].header.next_offset if found else offset
                return found or self._raise_damaged(at, segment.path, str(exc))
            number += 1
        if not found:  # the log ends early
            path, reason = (self._damage or LogDamage(segments[-1].path, "the last records are missing"))[:2]
            self._raise_damaged(offset, path, reason)
        return found

    def _read_segment(
        self, segment: SegmentFile, offset: int, limit: int, found: list[ReadBatch], bytes_max: int
    ) -> tuple[LogPlace, int]:
        """Read blocks of a segment; return the place that was reached, and the bytes that may still be read."""
        begin = segment.find_offset(offset)
        reached = begin.log
        with closing(self._disk.open(segment.path)) as file:
            for entry, block in read_blocks(file, begin, limit or file.size):
                header = block.header
                reached = entry.log.after(header)
                if header.kind == BlockKind.RECORDS and header.next_offset > offset:
                    found.append(ReadBatch(header, decode_columns(block.body, header.flags, header.count)))
                    bytes_max -= len(block.data)
                    if bytes_max <= 0:
                        break
        return reached, bytes_max

    def find_time(self, time_ms: int) -> int:
        """Return the offset of the first record since a time; the end offset if all records are older."""
        for segment in self._segments:
            try:
                index = segment.index
                if index.end.time_ms < time_ms:
                    continue
                with closing(self._disk.open(segment.path)) as file:
                    for _entry, block in read_blocks(file, index.find_time(time_ms), index.end.place):
                        if block.header.time_ms >= time_ms and block.header.count:
                            return block.header.offset
            except (DamagedBlock, OSError) as exc:
                self._raise_damaged(segment.header.first.offset, segment.path, str(exc))
        return self.end_offset

    def _missing(self, offset: int) -> IrisError:
        if self._damage is not None:
            return self._damaged(offset, self._damage)
        return StreamTruncated(self.description.name, self._identity.partition, offset, self.first_offset)

    def _raise_missing(self, offset: int, path: Path, error: OSError) -> list[ReadBatch]:
        if offset < self.first_offset:
            raise self._missing(offset)
        return self._raise_damaged(offset, path, str(error))

    def _raise_damaged(self, offset: int, path: Path, reason: str) -> list[ReadBatch]:
        raise self._damaged(offset, LogDamage(path, reason))

    def _damaged(self, offset: int, damage: LogDamage) -> StreamDamaged:
        return StreamDamaged(self.description.name, self._identity.partition, offset, str(damage.path), damage.reason)
