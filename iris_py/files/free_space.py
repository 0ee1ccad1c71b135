"""The free space on a disk."""

from __future__ import annotations

import os

__all__ = ["free_bytes_of"]


def free_bytes_of(system: os.statvfs_result) -> int:
    """Return the free bytes of a file system for this process, without the reserve for root unless it is root."""
    return (system.f_bfree if os.geteuid() == 0 else system.f_bavail) * system.f_frsize
