"""Reads standard input in chunks or lines, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["read_chunks", "read_lines"]

READ_BYTES: Final = 1 << 17
#: Maximum number of chunks read and not yet taken.
AHEAD: Final = 4
#: The name of the reading thread.
THREAD: Final = "standard input"


async def read_chunks() -> AsyncIterator[bytes]:
    """Yield chunks of standard input. A daemon thread reads: a silent terminal or pipe must not delay the end of the program.

    Raises:
        ConfigurationError: Standard input is closed, or cannot be read.
    """
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed. Give it something to read.")
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(AHEAD)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        chunk: bytes | OSError = b"?"
        while chunk and isinstance(chunk, bytes):
            room.acquire()
            try:
                chunk = os.read(descriptor, READ_BYTES)
            except OSError as exc:
                chunk = exc
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed

    threading.Thread(target=read, daemon=True, name=THREAD).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise ConfigurationError(f"standard input cannot be read: {chunk.strerror}.") from chunk
        yield chunk
        room.release()


async def read_lines(bytes_max: int) -> AsyncIterator[list[bytes]]:
    """Yield groups of lines as they arrive, without line ends. The last line of the input may lack its end.

    Args:
        bytes_max: The largest line.

    Raises:
        ConfigurationError: A line is larger, or standard input cannot be read.
    """
    number, rest = 0, b""
    async for chunk in read_chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for length in (*map(len, lines), len(rest)):
            number += 1
            if length > bytes_max:
                raise ConfigurationError(
                    f"line {number} of standard input has more than {bytes_max} bytes, the limit of a message of this node. "
                    f"Split it, or raise max_message_bytes with IRIS_MAX_MESSAGE_BYTES (at most {MESSAGE_BYTES_LIMIT})."
                )
        number -= 1  # of the last line only the beginning has arrived
        if lines:
            yield lines
    if rest:
        yield [rest]
