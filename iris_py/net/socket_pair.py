"""A socket pair between a process and a child, which inherits a descriptor."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Streams", "open_line", "take_line"]

Streams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"


@asynccontextmanager
async def open_line(bytes_max: int) -> AsyncIterator[tuple[Streams, int]]:
    """Open a socket pair to a child process, which the block starts. On an exception in the block the socket is closed.

    Args:
        bytes_max: The longest line of text, in bytes.

    Returns:
        The streams of this end, and the descriptor for the child to inherit.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        streams = await asyncio.open_unix_connection(sock=ours, limit=bytes_max)
        try:
            yield streams, theirs.fileno()
        except BaseException:
            streams[1].close()
            raise


async def take_line(descriptor: int, bytes_max: int) -> Streams:
    """Return the streams of the child's end, opened from the inherited descriptor. The child's own children do not inherit it.

    Args:
        descriptor: The inherited descriptor.
        bytes_max: The longest line of text, in bytes.
    """
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    return await asyncio.open_unix_connection(sock=sock, limit=bytes_max)
