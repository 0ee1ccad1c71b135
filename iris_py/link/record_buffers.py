"""Buffers that are used again and again: of a node's large records, and of the reads of a process (docs/design.md 3.3).

A new buffer is cleared before a cipher fills it, which takes a fifth of the time of both. A used one need not be
cleared. It is free again when nobody has a view of it: Python refuses to resize a ``bytearray`` with views, and a transport or
a tunnel that still needs the bytes has one. No count of written bytes has to be kept or trusted.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

from iris_py.link.lanes import FRAGMENT_KINDS, TUNNEL_KINDS
from iris_security.aead import TAG_BYTES
from iris_security.record import FILLS_BUFFERS

if TYPE_CHECKING:
    from iris_security import RecordOpener, RecordSealer

#: Size of a buffer: holds the largest chunk of a tunnel or fragment, and urgent frames. Too small: large records get new
#: buffers; too large: memory of each node with large records.
BUFFER_BYTES: Final = 264 * 1024
#: Buffers for each direction of all links of a node. Further records get new ones. Too small: messages that wait for their last
#: fragment, or for a reader, take all of them; too large: memory of each node with large records.
BUFFERS_MAX: Final = 6
#: Smallest record that uses a buffer. Too small: the search for a free buffer costs more than it saves; too large: chunks and
#: fragments get new buffers.
LARGE_BYTES: Final = 128 * 1024
#: A shorter record is copied behind its length: a write of one buffer costs less than one of two. Too small: small records are
#: written in two buffers; too large: the copy costs more than it saves.
JOINED_BYTES_MAX: Final = 2048
#: Free receive buffers that a process keeps. Too small: streams that receive large records at the same time fault in the pages
#: of new buffers; too large: memory that a process keeps after a burst, up to 640 KiB each.
RECEIVE_BUFFERS_KEPT_MAX: Final = 8
_BULK_KINDS: Final = FRAGMENT_KINDS | TUNNEL_KINDS


class RecordBuffers:
    """The buffers of one node. Those for sealed records never hold anything else."""

    def __init__(self) -> None:
        self._sealed: list[bytearray] = []
        self._opened: list[bytearray] = []
        self._opens_bulk = False  # whether the last large record began with a chunk or fragment

    def seal(self, sealer: RecordSealer, body: bytes) -> bytes | memoryview:
        """Return the next record of a sealer; a view, if a buffer is free."""
        view = _take(self._sealed, len(body) + TAG_BYTES)
        if view is None:
            return sealer.seal(body)
        sealer.seal_into(body, view)
        return view

    def open(self, opener: RecordOpener, sealed: memoryview) -> bytes | memoryview:
        """Return the contents of the next record of an opener; a view only for chunks and fragments.

        Other frames would be copied from a view into messages of their own.

        Raises:
            AuthenticationError: The data is not the peer's next record.
        """
        view = _take(self._opened, len(sealed) - TAG_BYTES) if self._opens_bulk else None
        if view is None:
            opened: bytes | memoryview = opener.open(sealed)
        else:
            opener.open_into(sealed, view)
            opened = view
        self._opens_bulk = bool(opened) and opened[0] in _BULK_KINDS
        return opened if self._opens_bulk else bytes(opened)


class ReceiveBuffers:
    """Buffers that streams hold only while they read, or have a part of a record: nearly all streams of a node are idle.

    All bytes in them are encrypted. The streams of a process share few buffers, which stay in the cache of the processor.

    Args:
        size: The size of each buffer in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        """Return a buffer, with bytes of earlier reads.

        A new buffer is a mapping, because its untouched pages cost nothing: Python clears a ``bytearray``, which takes all of
        its memory at once. The mapping is private, because a process and its child after a fork must not share a buffer.
        """
        try:
            return self._free.pop()  # one operation, because threads with event loops of their own share the list
        except IndexError:
            if hasattr(mmap, "MAP_PRIVATE"):
                return memoryview(mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            return memoryview(mmap.mmap(-1, self._size))

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer for later reads, if there is room. The caller must not use the buffer any more."""
        if len(self._free) < RECEIVE_BUFFERS_KEPT_MAX:
            self._free.append(buffer)


def _take(buffers: list[bytearray], size: int) -> memoryview | None:
    """Return a view of a free buffer; None without one."""
    if not FILLS_BUFFERS or not 0 < size <= BUFFER_BYTES:
        return None
    for buffer in buffers:  # in the same order each time, so that few of them are in use, and in the cache
        try:
            buffer.append(0)
        except BufferError:
            continue  # somebody has a view of it
        del buffer[-1]
        return memoryview(buffer)[:size]
    if len(buffers) >= BUFFERS_MAX:
        return None
    buffer = bytearray(BUFFER_BYTES + 1)
    del buffer[-1]
    buffers.append(buffer)
    return memoryview(buffer)[:size]
