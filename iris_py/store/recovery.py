"""The start of a log: reads the disk, and compares the blocks with the noted synced part.

Bytes behind the *mark*, the noted synced part, may be torn by the end of the machine: they are cut at the first bad block. A
bad or missing block before the mark is damage. Nothing is cut then: the log takes no more records, and says why.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from iris_py.store.segment_file import (
    CHUNK_BYTES,
    SegmentFile,
    UnusedSegment,
    open_segment,
    read_blocks,
)
from iris_py.store.state_file import StateFile
from iris_py.streams.blocks import BlockKind, DamagedBlock, NewerVersion
from iris_py.streams.segments import SEGMENT_HEADER_BYTES, DamagedSegment

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.store.disk import DiskFile, StoreDisk
    from iris_py.streams.replica_state import SyncMark

__all__ = ["LogDamage", "RecoveredLog", "kept_offset_of", "recover"]

_OFFSET_BYTES = 8


class LogDamage(NamedTuple):
    """The reason why a log takes no more records."""

    path: Path
    reason: str


class RecoveredLog(NamedTuple):
    """A log as the disk holds it."""

    segments: tuple[SegmentFile, ...]
    """From the oldest on; the last one takes blocks."""
    state: StateFile
    file: DiskFile | None
    """The last segment, open; None if the log is damaged."""
    damage: LogDamage | None
    torn_bytes: int
    """The bytes that were cut behind the mark."""


class _Tail(NamedTuple):
    """The last segment, looked through."""

    damage: LogDamage | None
    kept_offset: int | None
    """The first kept offset, if the segment says so."""
    mark_place: int
    """The place in the file up to which the mark covers the blocks."""


def kept_offset_of(body: bytes) -> int:
    """Return the first kept offset that a TRIM block names."""
    return int.from_bytes(body[:_OFFSET_BYTES], "little")


def recover(disk: StoreDisk, folder: Path, size: int) -> RecoveredLog:
    """Read a log from the disk, and make it ready for more blocks.

    Args:
        disk: The disk.
        folder: The folder of the partition.
        size: The bytes to allocate for the last segment.
    """
    state = StateFile(disk, folder / "state")
    segments, damage = _open_segments(disk, folder, state.mark)
    tail = None
    while segments and tail is None:
        tail = _scan(disk, segments[-1], state.mark)
        first = segments[-1].header.first
        is_unused = tail.damage is None and segments[-1].index.end.log == first and first.index > 1
        if is_unused and len(segments) > 1 and (state.mark is None or state.mark.index < first.index):
            segments.pop().remove()  # the machine stopped before its first block was written
            tail = None
    if tail is None:
        return RecoveredLog((), state, None, damage or LogDamage(folder, "the files with the records are missing"), 0)
    kept = tail.kept_offset
    for segment in segments[:-1]:
        segment.is_full = True
    if damage is None and kept is not None and segments[0].header.first.offset > kept:
        damage = LogDamage(folder, f"the files with the records before {segments[0].header.first.offset} are missing")
    damage = damage or tail.damage
    if damage is not None:
        return RecoveredLog(tuple(segments), state, None, damage, 0)
    while kept is not None and len(segments) > 1 and segments[1].header.first.offset <= kept:
        segments.pop(0).remove()  # a deletion that did not end
    file = disk.open(segments[-1].path)
    torn = _finish(file, segments[-1], state, tail.mark_place, size)
    return RecoveredLog(tuple(segments), state, file, None, torn)


def _open_segments(disk: StoreDisk, folder: Path, mark: SyncMark | None) -> tuple[list[SegmentFile], LogDamage | None]:
    segments, damage = [], None
    names = [name for name in disk.names(folder) if name.endswith(".log")]
    for name in names:
        path = folder / name
        try:
            segments.append(open_segment(disk, path))
        except UnusedSegment:
            if name == names[-1] and len(names) > 1 and (mark is None or int(path.stem) > mark.index):
                disk.remove(path)
            else:
                damage = damage or LogDamage(path, "the header of the file is missing")
        except (DamagedSegment, OSError) as exc:
            damage = damage or LogDamage(path, str(exc))
    return segments, damage


def _scan(disk: StoreDisk, segment: SegmentFile, mark: SyncMark | None) -> _Tail:
    """Look through the blocks of the last segment, and begin its index."""
    index = segment.begin_index()
    first = segment.header.first
    kept = 0 if first.index == 1 else None
    mark_place = SEGMENT_HEADER_BYTES
    reason = ""
    with closing(disk.open(segment.path)) as file:
        try:
            for _place, block in read_blocks(file, index.end, file.size):
                index.add(block.header)
                if block.header.kind == BlockKind.TRIM:
                    kept = kept_offset_of(block.body)
                if mark is not None and block.header.index == mark.index:
                    mark_place = index.end.place
                    reason = "" if block.header.chain == mark.chain else f"the block {mark.index} is another one than synced"
        except NewerVersion as exc:
            reason = str(exc)
        except DamagedBlock as exc:
            if mark is None or index.end.log.index <= mark.index:
                reason = str(exc)
        except OSError as exc:
            reason = f"it cannot be read: {exc}"
    if mark is not None and not reason and index.end.log.index <= mark.index:
        reason = f"it ends before the block {index.end.log.index}, and {mark.index} was synced"
    damage = LogDamage(segment.path, f"{reason} (at offset {index.end.log.offset})") if reason else None
    return _Tail(damage, kept, mark_place)


def _finish(file: DiskFile, segment: SegmentFile, state: StateFile, mark_place: int, size: int) -> int:
    """Make the end of the log safe; return the torn bytes behind it.

    The blocks behind the mark are written again and synced: the page cache may show bytes that the disk never got.
    """
    end = segment.index.end
    torn = 0
    for place in range(mark_place, end.place, CHUNK_BYTES):
        file.write([file.read(min(CHUNK_BYTES, end.place - place), place)], place)
    for place in range(end.place, file.size, CHUNK_BYTES):
        torn += len(file.read(CHUNK_BYTES, place).rstrip(b"\0"))
    if end.place > mark_place:
        file.sync()
    file.cut(end.place, max(size, end.place))
    state.note(end.log, is_synced=True)
    return torn
