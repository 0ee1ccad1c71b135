"""The disk: the only module of streams that touches files. A test passes another disk to `open_streams`.

All methods block and belong into a thread, except `StoreDisk.lock`. A sync of the file puts a write on the disk, and a sync of
the folder puts the name of a new file there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["DiskFile", "StoreDisk", "is_lack_of_space"]

#: The largest number of buffers in one `pwritev`: the bound of Linux.
BUFFERS_MAX: Final = 1024
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_LACK_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def is_lack_of_space(error: OSError) -> bool:
    """Whether an error says that the disk is full."""
    return error.errno in _LACK_OF_SPACE


class DiskFile:
    """An open file.

    Args:
        path: The path.
        is_new: Whether to create the file, which must not exist.

    Attributes:
        path: The path.
    """

    def __init__(self, path: Path, *, is_new: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self._descriptor = os.open(path, flags, _FILE_MODE)

    @property
    def size(self) -> int:
        """The size of the file."""
        return os.fstat(self._descriptor).st_size

    def read(self, size: int, place: int = 0) -> bytes:
        """Return bytes from a place on; fewer than ``size`` at the end of the file."""
        parts = []
        while size and (part := os.pread(self._descriptor, size, place)):
            parts.append(part)
            size -= len(part)
            place += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, buffers: Sequence[bytes], place: int) -> None:
        """Write buffers one behind the other, from a place on."""
        for first in range(0, len(buffers), BUFFERS_MAX):
            group = buffers[first : first + BUFFERS_MAX]
            total = sum(map(len, group))
            written = os.pwritev(self._descriptor, group, place)
            if written < total:  # interrupted, or the disk is full: the next write says so
                rest = b"".join(group)[written:]
                while rest:
                    written = os.pwrite(self._descriptor, rest, place + total - len(rest))
                    rest = rest[written:]
            place += total

    def sync(self) -> None:
        """Wait until all writes are on the disk. After an error the written bytes are unknown, and no caller may try again."""
        if sys.platform == "darwin":  # where fsync() does not wait for the disk
            fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._descriptor)

    def cut(self, size: int, allocated: int) -> None:
        """Remove everything behind a size, and sync; before that, allocate zeros up to another size if it is larger."""
        os.ftruncate(self._descriptor, size)
        if allocated > size:
            self.allocate(allocated)
        os.fsync(self._descriptor)

    def allocate(self, size: int) -> None:
        """Reserve a size on the disk, filled with zeros."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
        else:
            os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file; harmless if it is closed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StoreDisk:
    """The files of a directory for streams."""

    def create(self, path: Path) -> DiskFile:
        """Create a file and open it."""
        return DiskFile(path, is_new=True)

    def open(self, path: Path) -> DiskFile:
        """Open a file."""
        return DiskFile(path, is_new=False)

    def make_folder(self, path: Path) -> None:
        """Make a folder and the missing folders above, and sync all."""
        if not path.is_dir():
            self.make_folder(path.parent)
            path.mkdir(_FOLDER_MODE, exist_ok=True)
            self.sync_folder(path.parent)

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a folder; an empty list for a missing folder."""
        return sorted(os.listdir(path)) if path.is_dir() else []

    def move(self, path: Path, to: Path) -> None:
        """Move a file or folder, and sync both folders around it."""
        path.rename(to)
        for folder in {path.parent, to.parent}:
            self.sync_folder(folder)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder and all contents; harmless without a file."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def size(self, path: Path) -> int:
        """Return the size of a file; 0 if there is none."""
        return path.stat().st_size if path.is_file() else 0

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def age_s(self, path: Path) -> float:
        """Return the time since the last change of a folder."""
        return time.time() - path.stat().st_mtime

    def touch(self, path: Path) -> None:
        """Note the present time as that of the last change."""
        os.utime(path)

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes of the disk."""
        return shutil.disk_usage(path).free

    def lock(self, directory: Path) -> int:
        """Lock a directory until the lock is closed, or the process ends.

        Returns:
            The descriptor of the lock.

        Raises:
            ConfigurationError: The directory is in use.
        """
        path = directory / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise ConfigurationError(
                f"{directory} is in use by process {holder}. Open another directory, or end that process."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def unlock(self, descriptor: int) -> None:
        """Release a lock."""
        with suppress(OSError):
            os.close(descriptor)
