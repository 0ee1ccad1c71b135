"""The room that is left on a disk for this process."""

from __future__ import annotations

import os

__all__ = ["free_bytes_of"]


def free_bytes_of(system: os.statvfs_result) -> int:
    """Return the bytes that this process may still write to a file system, without what is kept for root unless it is root."""
    return (system.f_bfree if os.geteuid() == 0 else system.f_bavail) * system.f_frsize
