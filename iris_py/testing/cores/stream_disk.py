"""A simulated disk under one replica of a stream: files of sectors that a loss of power, rot and failures change."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from iris_py.streams.blocks import HEADER_BYTES, MAGIC, ROOT_CHAIN, BlockKind, DamagedBlock, check_body, read_header
from iris_py.streams.raft.disk import (
    CutLog,
    DropBefore,
    FillBlock,
    ResetLog,
    RewriteTail,
    SaveSnapshot,
    SaveState,
    SyncLog,
    WriteBlocks,
)
from iris_py.streams.raft.entries import is_link
from iris_py.streams.raft.recovery import DiskContent, FoundBlock
from iris_py.streams.raft.snapshots import decode_snapshot, encode_snapshot
from iris_py.streams.replica_state import SLOT_BYTES, DamagedState, decode_slots, encode_slot

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from iris_py.streams.blocks import BlockHeader
    from iris_py.streams.raft.disk import DiskRequest, GroupSnapshot
    from iris_py.streams.replica_state import SavedState

__all__ = ["SimulatedDisk", "SimulatedFile"]

SECTOR_BYTES: Final = 512
_SNAPSHOTS: Final = 2
#: Bytes that are no block, behind the last one.
_GARBAGE: Final = b"\xff" * 8


class SimulatedFile:
    """A file: its content in the cache of the system, and on the disk.

    Attributes:
        cache: The content that reads see.
        durable: The content after a loss of power.
        dirty: Sectors that the disk does not have yet.
    """

    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def write(self, place: int, data: bytes) -> None:
        """Write into the cache."""
        if place > len(self.cache):
            self.cache += bytes(place - len(self.cache))
        self.cache[place : place + len(data)] = data
        self.touch(place, len(data))

    def touch(self, place: int, size: int) -> None:
        """Write the content of the cache once more."""
        self.dirty.update(range(place // SECTOR_BYTES, -(-(place + size) // SECTOR_BYTES)))

    def sync(self) -> None:
        """Bring all dirty sectors to the disk."""
        for sector in self.dirty:
            self._write_sector(sector)
        self.dirty.clear()

    def replace(self, data: bytes) -> None:
        """Exchange the content by renaming a synced file."""
        self.cache, self.durable = bytearray(data), bytearray(data)
        self.dirty.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Keep any part of the dirty sectors."""
        share = rng.choice((0.0, 0.5, 0.5, 1.0))
        for sector in sorted(self.dirty):
            if rng.random() < share:
                self._write_sector(sector)
        self.dirty.clear()
        self.cache = bytearray(self.durable)

    def change(self, place: int, data: bytes) -> None:
        """Change the content on the disk behind the back of the replica."""
        for content in (self.cache, self.durable):
            content[place : place + len(data)] = data

    def _write_sector(self, sector: int) -> None:
        place = sector * SECTOR_BYTES
        data = self.cache[place : place + SECTOR_BYTES]
        if place > len(self.durable):
            self.durable += bytes(place - len(self.durable))
        self.durable[place : place + len(data)] = data


def read_log(data: bytes | bytearray) -> Iterator[tuple[int, FoundBlock, bytes]]:
    """Yield place, block and bytes of each readable block, also behind damage."""
    place, content = 0, bytes(data)
    while 0 <= place <= len(content) - HEADER_BYTES:
        try:
            header = read_header(content, place)
            if header is not None:
                check_body(header, content[place + HEADER_BYTES : place + HEADER_BYTES + header.body_bytes])
                packed = content[place : place + HEADER_BYTES]
                block = content[place : place + header.block_bytes].ljust(header.block_bytes, b"\0")
                body = block[HEADER_BYTES : HEADER_BYTES + header.body_bytes] if header.kind == BlockKind.CONFIG else b""
                yield place, FoundBlock(header, packed, body), block
                place += header.block_bytes
                continue
        except DamagedBlock:
            pass
        place = content.find(MAGIC, place + 8)


class SimulatedDisk:
    """The files of one replica, and the queue of its requests.

    Attributes:
        log: The blocks.
        state: Both slots.
        snapshots: The newest snapshots, encoded.
        is_full: Whether writes fail for want of room.
        failing_syncs: The number of next syncs that fail.
    """

    def __init__(self, rng: random.Random) -> None:
        self.log = SimulatedFile()
        self.state = SimulatedFile()
        self.snapshots: list[bytes] = []
        self.is_full = False
        self.failing_syncs = 0
        self._rng = rng
        self._queue: deque[DiskRequest] = deque()
        self._places: dict[int, tuple[int, int]] = {}  # place and size by index
        self._is_broken = False  # a write failed, and no cut came since

    # The start

    def read_content(self) -> DiskContent:
        """Read all files, as a store does at its start."""
        self._queue.clear()
        self._is_broken = False
        self._places = {}
        found, end = [], 0
        links: dict[int, bool] = {}
        chains: dict[int, bytes] = {0: ROOT_CHAIN}
        for place, block, data in read_log(self.log.cache):
            header = block.header
            found.append(block)
            end = place + len(data)
            if not links.get(header.index):  # of several copies, the one that continues the log
                before = chains.get(header.index - 1)
                links[header.index] = before is not None and is_link(block.packed, header, before)
                chains[header.index] = header.chain
                self._places[header.index] = (place, len(data))
        saved, is_unreadable = self.read_state()
        snapshots = [snapshot for snapshot in map(decode_snapshot, self.snapshots) if snapshot is not None]
        snapshot = max(snapshots, key=lambda each: (each.base.index, each.index), default=None)
        return DiskContent(tuple(found), any(self.log.cache[end:]), saved, is_unreadable, snapshot)

    def read_state(self) -> tuple[SavedState | None, bool]:
        """Return the newest readable slot, and whether a written slot is unreadable."""
        saved, is_unreadable = [], False
        for place in (0, SLOT_BYTES):
            try:
                found = decode_slots(bytes(self.state.cache[place : place + SLOT_BYTES]).ljust(2 * SLOT_BYTES, b"\0"))
            except DamagedState:
                is_unreadable = True
            else:
                saved += [found] if found is not None else []
        if not saved and self.log.cache:
            is_unreadable = True
        return max(saved, key=lambda each: each.number, default=None), is_unreadable

    # Requests

    def submit(self, request: DiskRequest) -> None:
        """Put a request behind the others."""
        self._queue.append(request)

    @property
    def has_requests(self) -> bool:
        """Whether requests wait."""
        return bool(self._queue)

    def begin(self) -> list[tuple[DiskRequest, bool]]:
        """Take the next requests: writes with their syncs together, any other one alone.

        Writes reach the cache at once.

        Returns:
            The requests, and whether each failed already.
        """
        taken: list[tuple[DiskRequest, bool]] = []
        while self._queue and isinstance(self._queue[0], WriteBlocks | SyncLog | RewriteTail):
            request = self._queue.popleft()
            has_failed = isinstance(request, WriteBlocks) and not self._write(request)
            if isinstance(request, RewriteTail):
                place = min((place for index, (place, _) in self._places.items() if index > request.index), default=None)
                if place is not None:
                    self.log.touch(place, len(self.log.cache) - place)
            taken.append((request, has_failed))
        if not taken and self._queue:
            taken.append((self._queue.popleft(), False))
        return taken

    def finish(self, request: DiskRequest) -> bool:
        """Complete a request; returns whether it succeeded."""
        match request:
            case SyncLog():
                if self.failing_syncs:
                    self.failing_syncs -= 1
                    self.log.dirty.clear()  # the system drops the pages, and reads still show them
                    return False
                self.log.sync()
            case SaveState():
                if self.failing_syncs:
                    self.failing_syncs -= 1
                    self._write_state(request.saved)
                    self.state.dirty.clear()
                    return False
                self._write_state(request.saved)
                self.state.sync()
            case CutLog():
                self._is_broken = False
                self._rebuild({index: self._bytes_of(index) for index in self._places if index <= request.end}, b"")
            case FillBlock():
                self._fill(request)
            case DropBefore():
                first = request.base.index - self._rng.randrange(3)
                self._rebuild({index: self._bytes_of(index) for index in self._places if index > first}, self._tail())
            case ResetLog():
                self._is_broken = False
                self._rebuild({}, b"")
            case SaveSnapshot():
                self.snapshots = [*self.snapshots, encode_snapshot(request.snapshot)][-_SNAPSHOTS:]
            case _:
                pass
        return True

    def begin_save(self, request: SaveState) -> None:
        """Write a state into the cache alone."""
        self._write_state(request.saved)

    def load(self, first: int, last: int) -> tuple[list[bytes], int]:
        """Return readable blocks from an index on, and the index if that one is unreadable."""
        found: list[bytes] = []
        for index in range(first, last + 1):
            if index not in self._places:
                break
            place, size = self._places[index]
            read = next(read_log(self.log.cache[place : place + size]), None)
            if read is None or read[1].header.index != index:
                break
            found.append(read[2])
        return found, first if not found and first in self._places else 0

    # Faults

    def lose_power(self) -> None:
        """Lose everything that is not on the disk, but for some sectors."""
        self._queue.clear()
        self.log.lose_power(self._rng)
        self.state.lose_power(self._rng)

    def stop(self) -> None:
        """Forget the requests of a process that ended; the cache remains."""
        self._queue.clear()

    def find_places(self) -> dict[int, tuple[int, int, bytes]]:
        """Return place, size and chain of each readable block on the disk."""
        return {block.header.index: (place, len(data), block.header.chain) for place, block, data in read_log(self.log.durable)}

    def has_durable(self, index: int, chain: bytes) -> bool:
        """Whether a loss of power leaves a block."""
        if index not in self._places:
            return False
        place, size = self._places[index]
        read = next(read_log(self.log.durable[place : place + size]), None)
        return read is not None and read[1].header.index == index and read[1].header.chain == chain

    def find_header(self, index: int) -> BlockHeader | None:
        """Return the header of a readable block."""
        data, _ = self.load(index, index)
        return read_header(data[0]) if data else None

    def newest_snapshot(self) -> GroupSnapshot | None:
        """Return the newest readable snapshot."""
        found = [snapshot for snapshot in map(decode_snapshot, self.snapshots) if snapshot is not None]
        return max(found, key=lambda each: (each.base.index, each.index), default=None)

    def _write(self, request: WriteBlocks) -> bool:
        data = b"".join(block.data for block in request.blocks)
        end = max((place + size for place, size in self._places.values()), default=0)
        if self._is_broken or self.is_full:
            if not self._is_broken:
                self.log.write(end, data[: self._rng.randrange(len(data))])
            self._is_broken = True
            return False
        self.log.write(end, data)
        for block in request.blocks:
            self._places[block.header.index] = (end, len(block.data))
            end += len(block.data)
        return True

    def _write_state(self, saved: SavedState) -> None:
        self.state.write(saved.slot * SLOT_BYTES, encode_slot(saved)[:SECTOR_BYTES])

    def _fill(self, request: FillBlock) -> None:
        index = request.block.header.index
        blocks = {other: self._bytes_of(other) for other in self._places}
        tail = self._tail() if index < max(blocks, default=0) else b""
        self._rebuild({**blocks, index: request.block.data}, tail)

    def _bytes_of(self, index: int) -> bytes:
        place, size = self._places[index]
        return bytes(self.log.cache[place : place + size])

    def _tail(self) -> bytes:
        end = max((place + size for place, size in self._places.values()), default=0)
        return _GARBAGE if any(self.log.cache[end:]) else b""

    def _rebuild(self, blocks: dict[int, bytes], tail: bytes) -> None:
        """Write a new file with some blocks, and rename it over the old one."""
        content = bytearray()
        self._places = {}
        for index, data in sorted(blocks.items()):
            self._places[index] = (len(content), len(data))
            content += data
        self.log.replace(bytes(content) + tail)
