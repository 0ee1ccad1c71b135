"""The descriptors 0, 1 and 2 of a process that was started without standard streams."""

from __future__ import annotations

import os

__all__ = ["occupy"]

_STANDARD = (0, 1, 2)


def occupy() -> None:
    """Open ``/dev/null`` in place of each standard stream that is closed. To be called before an event loop is made.

    The system gives the lowest free number to the next descriptor. A supervisor that starts a program with closed standard
    streams (``<&- >&- 2>&-``) so makes it open its sockets there: whatever writes to standard output writes into one, and
    libuv, below uvloop, aborts the process when it closes one.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # another thread was faster with this number
                os.close(opened)
