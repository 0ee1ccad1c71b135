"""The free space on a disk."""

from __future__ import annotations

import os

__all__ = ["free_bytes_of"]


def free_bytes_of(system: os.statvfs_result) -> int:
    """Return the bytes that this process can still use on a file system: without root's reserve, unless root runs it."""
    return (system.f_bfree if os.geteuid() == 0 else system.f_bavail) * system.f_frsize
