"""The file of an audit: lines are added to its end, and it may be moved away at any time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_py.errors import ConfigurationError
from iris_py.files.room import free_bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["AuditFile"]

#: Nobody else reads it: it has names of clusters, and addresses.
MODE = 0o600


class AuditFile:
    """A file that only grows. Its methods block: call them in a thread, one at a time.

    Args:
        path: The file; it is made if it is not there.

    Attributes:
        path: The same.
        free_bytes: Room on its disk when it was written last.

    Raises:
        ConfigurationError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = self._open()
            self.free_bytes = free_bytes_of(os.fstatvfs(self._descriptor))
        except OSError as exc:
            raise ConfigurationError(
                f"audit_file: {path} cannot be opened: {exc.strerror}. Correct the path in [gateway] or its permissions."
            ) from exc

    def write(self, lines: Sequence[str]) -> None:
        """Add lines.

        Raises:
            OSError: They could not be written, or not all of them: the disk is full, for example.
        """
        self.free_bytes = free_bytes_of(os.fstatvfs(self._descriptor))
        left = memoryview("".join(f"{line}\n" for line in lines).encode())
        while left:
            left = left[os.write(self._descriptor, left) :]

    def reopen(self) -> None:
        """Go on in a file of the same name, for the old one was moved away.

        Raises:
            OSError: There can be none; the old one stays in use.
        """
        before, self._descriptor = self._descriptor, self._open()
        os.close(before)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
