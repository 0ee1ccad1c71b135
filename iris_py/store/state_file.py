"""The file ``state`` of a partition: the synced part of its log, in two slots."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from iris_py.streams.replica_state import (
    SLOT_BYTES,
    SLOTS,
    DamagedState,
    ReplicaState,
    SavedState,
    SyncMark,
    decode_slots,
    encode_slot,
)

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.store.disk import DiskFile, StoreDisk
    from iris_py.streams.segments import LogPlace

__all__ = ["StateFile", "create_state"]

#: The term of a log without other replicas.
ONLY_TERM = 1


class StateFile:
    """The state of one partition.

    Args:
        disk: The disk.
        path: The path.

    Attributes:
        mark: The noted mark; None if no slot can be read.
    """

    def __init__(self, disk: StoreDisk, path: Path) -> None:
        self.mark: SyncMark | None = None
        self._saved = SavedState(0, ReplicaState())
        self._is_synced = True
        self._file: DiskFile | None = None
        self._disk, self._path = disk, path
        try:
            with closing(disk.open(path)) as file:
                found = decode_slots(file.read(SLOTS * SLOT_BYTES))
        except (OSError, DamagedState):
            found = None
        if found is not None:  # perhaps the last process saved it without a sync
            self._saved, self._is_synced = found, False
            self.mark = found.state.mark

    def note(self, end: LogPlace, *, is_synced: bool) -> None:
        """Note that the log is synced up to a place.

        Args:
            end: The place behind the last synced block.
            is_synced: Whether to sync the note as well. An unsynced note survives the end of the process, not a loss of power.

        Raises:
            OSError: The note may be lost.
        """
        if self._file is None:
            self._file = self._open()
        self.mark = SyncMark(end.index - 1, ONLY_TERM, end.chain)
        self._saved = self._saved.followed_by(ReplicaState(ONLY_TERM, mark=self.mark), is_synced=self._is_synced)
        self._file.write([encode_slot(self._saved)], self._saved.slot * SLOT_BYTES)
        if is_synced:
            self._file.sync()
        self._is_synced = is_synced

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> DiskFile:
        try:
            return self._disk.open(self._path)
        except FileNotFoundError:
            return create_state(self._disk, self._path)


def create_state(disk: StoreDisk, path: Path) -> DiskFile:
    """Create an empty state, with its name synced."""
    file = disk.create(path)
    file.allocate(SLOTS * SLOT_BYTES)
    file.sync()
    disk.sync_folder(path.parent)
    return file
