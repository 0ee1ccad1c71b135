"""A line between a process and one that it starts: a pair of sockets, of which the child inherits one by its number."""

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
    """Open a line; in the block the child has to be started. If that fails, the line is closed.

    Args:
        bytes_max: The longest text between two line ends.

    Returns:
        The streams of this end, and the number of the descriptor that the child is to inherit.
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
    """Return the streams of the child's end; whatever the child starts has no part in it.

    Args:
        descriptor: The number of its descriptor.
        bytes_max: The longest text between two line ends.
    """
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    return await asyncio.open_unix_connection(sock=sock, limit=bytes_max)
