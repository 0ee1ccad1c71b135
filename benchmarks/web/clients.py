"""Clients of a server that cost little: raw bytes, in which the mark of a message is counted."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.worker import Parameters

#: Connections that open at a time.
OPENING: Final = 100
#: How long anything may take before the benchmark has failed.
PATIENCE_S: Final = 240.0
GAP: Final = b"event: gap\n"
HEAD_END: Final = b"\r\n\r\n"
#: A text frame from a client with the packet of Socket.IO that connects; its mask is zero.
CONNECT_PACKET: Final = b"\x81\x82\0\0\0\x0040"
CONNECTED: Final = b"40{"


class Tally:
    """Counts of many clients.

    Attributes:
        opened: Clients whose stream has begun.
        closed: Clients whose connection has ended.
        received: Messages.
        gaps: Events that tell of missing messages.
    """

    def __init__(self) -> None:
        self.opened = self.closed = self.received = self.gaps = 0
        self._waits: deque[tuple[Callable[[], bool], asyncio.Future[None]]] = deque()

    def changed(self) -> None:
        """Wake those whose condition holds."""
        while self._waits and self._waits[0][0]():
            future = self._waits.popleft()[1]
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; those of several waiters come true in their order.

        Raises:
            TimeoutError: It has not come true.
        """
        if not condition():
            future = asyncio.get_running_loop().create_future()
            self._waits.append((condition, future))
            async with asyncio.timeout(PATIENCE_S):
                await future


class StreamClient(asyncio.Protocol):
    """A client of one stream.

    Args:
        tally: The counts.
        head: The first bytes that it sends.
        mark: The bytes that each message has once.
        is_socket: Whether it speaks Socket.IO over WebSocket.
        note: Called with received bytes; None for most clients.
    """

    def __init__(
        self, tally: Tally, head: bytes, mark: bytes, *, is_socket: bool = False, note: Callable[[bytes], None] | None = None
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._tally = tally
        self._head = head
        self._mark = mark
        self._is_socket = is_socket
        self._note = note
        self._is_open = False
        self._has_upgraded = False
        self._tail = b""
        self._kept = max(len(mark), len(GAP)) - 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self.transport.write(self._head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.closed += 1
        self._tally.changed()

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._open(data)
            return
        tally, kept = self._tally, self._kept
        if self._note is not None:
            self._note(data)
        # A mark may lie in two pieces; the tail is shorter than each.
        text = self._tail + data
        tally.received += text.count(self._mark) - self._tail.count(self._mark)
        if GAP in text:
            tally.gaps += text.count(GAP) - self._tail.count(GAP)
        self._tail = text[-kept:] if len(self._mark) > 1 else b""
        tally.changed()

    def _open(self, data: bytes) -> None:
        self._tail += data
        wanted = CONNECTED if self._is_socket else HEAD_END
        if self._is_socket and not self._has_upgraded and HEAD_END in self._tail:
            self._has_upgraded = True
            assert self.transport is not None
            self.transport.write(CONNECT_PACKET)
        if wanted in self._tail:
            status = self._tail.split(b" ", 2)[1]
            if status not in (b"200", b"101"):
                raise ConnectionError(f"the server answers {self._tail[:300]!r}")
            self._is_open = True
            self._tail = b""
            self._tally.opened += 1
            self._tally.changed()


def stream_head(place: Parameters, **headers: str) -> bytes:
    """Return the request for a stream at a server."""
    given = {"Host": place["address"], **place["headers"], **headers}
    if place["kind"] == "socket":
        key = base64.b64encode(os.urandom(16)).decode()
        given |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
    return _head("GET", place["path"], given)


async def open_streams(
    place: Parameters, tally: Tally, count: int, note: Callable[[bytes], None] | None = None
) -> list[StreamClient]:
    """Open streams, and return when all have begun."""
    host, _, port = place["address"].rpartition(":")
    loop = asyncio.get_running_loop()
    clients: list[StreamClient] = []
    head, mark = stream_head(place), place["mark"].encode()
    before = tally.opened
    for start in range(0, count, OPENING):
        part = min(OPENING, count - start)
        made = await asyncio.gather(
            *[
                loop.create_connection(
                    lambda: StreamClient(tally, head, mark, is_socket=place["kind"] == "socket", note=note), host, int(port)
                )
                for _ in range(part)
            ]
        )
        clients += [client for _transport, client in made]
        wanted = before + start + part
        await tally.until(lambda wanted=wanted: tally.opened >= wanted)  # type: ignore[misc]
    return clients


class Caller(asyncio.Protocol):
    """A client that sends a request after the other over one connection.

    Args:
        place: The server.
        path: The path of the requests.
    """

    def __init__(self, place: Parameters, path: str, **headers: str) -> None:
        self._given: Mapping[str, str] = {"Host": place["address"], **place["headers"], **headers}
        self._path = path
        self._transport: asyncio.Transport | None = None
        self._answer = b""
        self._size = 0
        self._waiter: asyncio.Future[bytes] | None = None

    async def connect(self, address: str) -> Caller:
        """Open the connection."""
        host, _, port = address.rpartition(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionError("the server has closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    async def ask(self, body: bytes) -> bytes:
        """Send a request; return the answer's content.

        Raises:
            ConnectionError: The server has refused the request, or closed the connection.
        """
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(_head("POST", self._path, {**self._given, "Content-Length": str(len(body))}) + body)
        return await self._waiter

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._size:
            end = self._answer.find(HEAD_END)
            if end < 0:
                return
            head = self._answer[:end].lower()
            at = head.find(b"\r\ncontent-length:")
            length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._size = end + 4 + length
        if len(self._answer) < self._size or self._waiter is None or self._waiter.done():
            return
        answer, self._answer, self._size = self._answer, b"", 0
        if answer[9:10] == b"2":
            self._waiter.set_result(answer.partition(HEAD_END)[2])
        else:
            self._waiter.set_exception(ConnectionError(f"the server answers {answer[:300]!r}"))


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that is not below a share of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def now_ms() -> float:
    """Return the time that all processes of a machine share, in ms."""
    return time.monotonic() * 1000
