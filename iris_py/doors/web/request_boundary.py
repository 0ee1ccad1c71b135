"""The boundaries of requests in the bytes of a connection (RFC 9112; docs/design.md 17.22).

`RequestBoundary` passes on one request at a time. Bytes behind the end of a request stay here until the owner has answered, so
requests that a client sends ahead cost no more than their bytes.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from iris_py.doors.problems import DoorRefusal
from iris_py.doors.web.request_head import CHUNKED, HEAD_BYTES_MAX, RequestHead, check_head

__all__ = ["RequestBoundary"]

#: Longest line before a chunk, of which only the number counts. Too small: extensions do not fit, which nobody uses; too large:
#: strangers send bytes that count for no body.
CHUNK_LINE_MAX: Final = 256

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*+)?")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_FIRST_BYTES: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\r]")


class _Position(Enum):
    """The position of the next byte in a request."""

    HEAD = "head"
    BODY = "body of a given length"
    CHUNK_LINE = "line before a chunk"
    CHUNK = "chunk"
    CHUNK_END = "line end behind a chunk"
    LAST_LINE = "line end behind the last chunk"
    END = "end"


class RequestBoundary:
    """Divides the bytes of a connection into requests.

    Args:
        body_bytes_max: The largest body in bytes.

    Attributes:
        is_complete: Whether the present request has been passed on completely.
    """

    __slots__ = ("_body_bytes", "_buffer", "_left", "_position", "_seen", "body_bytes_max")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._buffer = bytearray()
        self._position = _Position.HEAD
        self._seen = 0  # bytes of the buffer without an end of the head
        self._left = 0  # bytes of the body or chunk that follow
        self._body_bytes = 0

    @property
    def is_complete(self) -> bool:
        return self._position is _Position.END

    @property
    def held_bytes(self) -> int:
        """The number of bytes received and not passed on."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Take received bytes."""
        self._buffer += data

    def start_next(self) -> None:
        """Begin the next request, after the present one is complete."""
        assert self.is_complete
        self._position = _Position.HEAD
        self._seen = 0

    def clear(self) -> None:
        """Drop the bytes not passed on."""
        self._buffer.clear()

    def next_part(self) -> RequestHead | bytes | None:
        """Return the next part of the present request.

        Returns:
            The head; then bytes of the body as they came, with the lines around chunks; None if more bytes are needed, or the
            request is complete.

        Raises:
            DoorRefusal: The request is malformed, or its head or body is too large. The connection cannot continue.
        """
        if self._position is _Position.HEAD:
            return self._next_head()
        if self._position is _Position.END or not self._buffer:
            return None
        taken = self._skip_body() if self._position is _Position.BODY else self._skip_chunks()
        part = bytes(self._buffer[:taken])
        del self._buffer[:taken]
        return part or None

    def _next_head(self) -> RequestHead | None:
        buffer = self._buffer
        if not buffer:
            return None
        end = buffer.find(b"\r\n\r\n", max(0, self._seen - 3))
        if end < 0:
            self._check_beginning()
            self._seen = len(buffer)
            return None
        if end + 4 > HEAD_BYTES_MAX:
            raise DoorRefusal("head-too-large")
        head = check_head(bytes(buffer[: end + 4]))
        if head.length > self.body_bytes_max:
            raise DoorRefusal("body-too-large")
        del buffer[: end + 4]
        self._body_bytes, self._left = 0, head.length
        if head.length == CHUNKED:
            self._position = _Position.CHUNK_LINE
        else:
            self._position = _Position.BODY if head.length else _Position.END
        return head

    def _check_beginning(self) -> None:
        """Refuse bytes that cannot become a head."""
        if len(self._buffer) > HEAD_BYTES_MAX:
            raise DoorRefusal("head-too-large")
        if not _FIRST_BYTES.match(self._buffer) or _BARE_LINE_FEED.search(self._buffer, max(0, self._seen - 1)):
            raise DoorRefusal("invalid", field="head")

    def _skip_body(self) -> int:
        """Return the number of bytes in the buffer that belong to a body of a given length."""
        taken = min(self._left, len(self._buffer))
        self._left -= taken
        if not self._left:
            self._position = _Position.END
        return taken

    def _skip_chunks(self) -> int:
        """Return the number of bytes in the buffer that belong to chunks, with the lines around them."""
        buffer, at = self._buffer, 0
        while at < len(buffer):
            if self._position is _Position.CHUNK:
                taken = min(self._left, len(buffer) - at)
                at += taken
                self._left -= taken
                if not self._left:
                    self._position = _Position.CHUNK_END
                continue
            end = self._read_chunk_line(at) if self._position is _Position.CHUNK_LINE else self._read_line_end(at)
            if end < 0:
                break
            at = end
            if self._position is _Position.END:
                break
        return at

    def _read_chunk_line(self, at: int) -> int:
        """Read the line before a chunk; return the place behind the line, -1 if the line is incomplete."""
        end = self._buffer.find(b"\r\n", at, at + CHUNK_LINE_MAX + 2)
        if end < 0:
            if len(self._buffer) - at > CHUNK_LINE_MAX or _BARE_LINE_FEED.search(self._buffer, at):
                raise DoorRefusal("invalid", field="body")
            return -1
        match = _CHUNK_LINE.fullmatch(self._buffer, at, end)
        if match is None:
            raise DoorRefusal("invalid", field="body")
        self._left = int(match[1], 16)
        self._body_bytes += self._left
        if self._body_bytes > self.body_bytes_max:
            raise DoorRefusal("body-too-large")
        self._position = _Position.CHUNK if self._left else _Position.LAST_LINE
        return end + 2

    def _read_line_end(self, at: int) -> int:
        """Read the line end behind a chunk; return the place behind the line end, -1 if it is incomplete.

        Fields behind the last chunk are refused: the parser would mix them with the checked ones of the head.
        """
        found = bytes(self._buffer[at : at + 2])
        if found != b"\r\n":
            if found != b"\r":
                raise DoorRefusal("invalid", field="body")
            return -1
        self._position = _Position.CHUNK_LINE if self._position is _Position.CHUNK_END else _Position.END
        return at + 2
