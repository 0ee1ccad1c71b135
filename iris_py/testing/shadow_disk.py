"""A disk for tests of streams: a write reaches the file at a sync, and SIGKILL is a loss of power."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from iris_py.store.disk import DiskFile, StoreDisk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The unit that a disk writes as a whole.
SECTOR_BYTES: Final = 512


class ShadowDisk(StoreDisk):
    """Files with writes in the memory of the process until a sync. SIGKILL loses the rest, like a loss of power.

    Pass it to ``open_streams(disk=)``. Only a test chooses this disk; no setting does.

    Args:
        seed: Chooses sectors of 512 bytes that reach the file before their sync, as a system writes some pages early. So a loss
            of power also leaves torn writes. None: nothing reaches the file early.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._chance = None if seed is None else random.Random(seed)
        self._unsynced: dict[Path, list[tuple[int, bytes]]] = {}

    def create(self, path: Path) -> DiskFile:
        """Create a file and open it."""
        self._unsynced.pop(path, None)
        return _ShadowFile(path, self._unsynced.setdefault(path, []), self._chance, is_new=True)

    def open(self, path: Path) -> DiskFile:
        """Open a file."""
        return _ShadowFile(path, self._unsynced.setdefault(path, []), self._chance, is_new=False)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder."""
        self._unsynced = {other: writes for other, writes in self._unsynced.items() if not other.is_relative_to(path)}
        super().remove(path)


class _ShadowFile(DiskFile):
    def __init__(self, path: Path, unsynced: list[tuple[int, bytes]], chance: random.Random | None, *, is_new: bool) -> None:
        super().__init__(path, is_new=is_new)
        self._unsynced = unsynced
        self._chance = chance

    @property
    def size(self) -> int:
        return max([super().size, *(place + len(data) for place, data in self._unsynced)])

    def read(self, size: int, place: int = 0) -> bytes:
        """Return bytes as the process has written them, like the page cache of a system."""
        if not self._unsynced:
            return super().read(size, place)
        end = min(place + size, self.size)
        found = bytearray(super().read(size, place).ljust(max(end - place, 0), b"\0"))
        for begin, data in self._unsynced:
            first, last = max(begin, place), min(begin + len(data), end)
            if first < last:
                found[first - place : last - place] = data[first - begin : last - begin]
        return bytes(found)

    def write(self, buffers: Sequence[bytes], place: int) -> None:
        """Keep the bytes for the next sync; write the chosen sectors at once."""
        data = b"".join(buffers)
        self._unsynced.append((place, data))
        if self._chance is not None:
            for begin in range(place - place % SECTOR_BYTES, place + len(data), SECTOR_BYTES):
                if self._chance.random() < 0.5:
                    first, last = max(begin, place), min(begin + SECTOR_BYTES, place + len(data))
                    super().write([data[first - place : last - place]], first)

    def sync(self) -> None:
        """Write everything to the file. The test kills the process, not the machine, so the file need not be synced."""
        for place, data in self._unsynced:
            super().write([data], place)
        self._unsynced.clear()

    def cut(self, size: int, allocated: int) -> None:
        """Remove everything behind a size."""
        self.sync()
        super().cut(size, allocated)
