"""The memory of a process of tests: what the allocator holds of freed memory goes back to the system.

A node makes the allocator of Linux keep what it frees (``HEAP_BLOCK_BYTES``), for it will need that again. A process of tests
has hundreds of nodes, one after the other, and has no use for what a few tests with large messages have freed. It kept that and
grew to 1 GB, while its objects stayed the same.
"""

from __future__ import annotations

import ctypes
from typing import Any

_libc: Any = ctypes.CDLL(None)


def give_memory_back() -> None:
    """Give all that is free back to the system, where the C library can."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
