"""Plain TCP on uvloop, with a length before each message: what a messaging system in Python cannot be faster than."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from benchmarks.peers.system import About, Ask, Inbox, Kind, OpenMore, Place, Send, SendBlocks, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

_LENGTH: Final = struct.Struct(">I")
#: Small messages are gathered into writes of this size: one write each costs several times as much.
GATHERED_BYTES: Final = 32 * 1024
#: What may wait in the transport before the sender waits.
_BUFFER_BYTES: Final = 256 * 1024


class _Connection(asyncio.Protocol):
    """One connection: cuts what comes into messages, and tells when there is room for more."""

    _transport: Any

    def __init__(self, handle: Callable[[_Connection, list[bytes]], None], connected: list[_Connection] | None = None) -> None:
        self._handle = handle
        self._connected = connected
        self._unread: list[bytes] = []
        self._unread_bytes, self._needed_bytes = 0, 4
        self._room: asyncio.Future[None] | None = None
        self._ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        if self._connected is not None:
            self._connected.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes < self._needed_bytes:
            return
        data = b"".join(self._unread) if len(self._unread) > 1 else data
        offset, end, messages, needed = 0, len(data), [], 4
        while end - offset >= 4:
            (length,) = _LENGTH.unpack_from(data, offset)
            stop = offset + 4 + length
            if stop > end:
                needed = 4 + length
                break
            messages.append(data[offset + 4 : stop])
            offset = stop
        self._unread, self._unread_bytes, self._needed_bytes = [data[offset:]], end - offset, needed
        if messages:
            self._handle(self, messages)

    def write(self, messages: list[bytes]) -> None:
        """Write messages at once, each with its length."""
        parts: list[bytes] = []
        for message in messages:
            parts += (_LENGTH.pack(len(message)), message)
        self._transport.write(b"".join(parts))

    async def room(self) -> None:
        """Wait until there is room."""
        if self._room is not None:
            await self._room

    async def close(self) -> None:
        """Close it when everything has left."""
        self._transport.close()
        await self._ended


class _Sink(asyncio.Protocol):
    """The far end of a tunnel: counts bytes, and says how many when the other side has ended."""

    _transport: Any
    _taken = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)

    def eof_received(self) -> bool:
        self._transport.write(str(self._taken).encode())
        return False


class _Asking:
    """One connection for all callers: replies come in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._loop = asyncio.get_running_loop()

    def handle(self, _connection: _Connection, messages: list[bytes]) -> None:
        for message in messages:
            self._waiting.popleft().set_result(message)

    def ask_by(self, connection: _Connection) -> Ask:
        async def ask(payload: bytes) -> bytes:
            reply: asyncio.Future[bytes] = self._loop.create_future()
            self._waiting.append(reply)
            connection.write([payload])
            return await reply

        return ask


class Tcp(System):
    """Writes of 32 KiB where messages are small."""

    about = About(
        name="tcp",
        kind=Kind.LIMIT,
        use="uvloop: small messages gathered into writes of 32 KiB; a length before each",
        imports="import asyncio, uvloop",
        modules=("uvloop",),
        distributions=("uvloop",),
    )
    gathered_bytes: ClassVar[int] = GATHERED_BYTES

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        connected: list[_Connection] = []

        async def send(payloads: Iterable[bytes]) -> None:
            gathered: list[bytes] = []
            gathered_bytes, enough = 0, self.gathered_bytes
            for payload in payloads:
                gathered.append(payload)
                gathered_bytes += len(payload)
                if gathered_bytes >= enough:
                    for connection in connected:
                        connection.write(gathered)
                        await connection.room()
                    gathered, gathered_bytes = [], 0
            for connection in connected:
                connection.write(gathered)
                await connection.room()

        server = await asyncio.get_running_loop().create_server(lambda: _Connection(_ignore, connected), "127.0.0.1", 0)
        yield _port(server), send
        server.close()

    @asynccontextmanager
    async def subscriber(self, place: int) -> AsyncIterator[Inbox]:
        loop = asyncio.get_running_loop()
        waiting: list[bytes] = []
        come = asyncio.Event()

        def handle(_connection: _Connection, messages: list[bytes]) -> None:
            waiting.extend(messages)
            come.set()

        async def batches() -> AsyncIterator[list[bytes]]:
            while True:
                await come.wait()
                come.clear()
                batch = waiting.copy()
                waiting.clear()
                yield batch

        _, connection = await loop.create_connection(lambda: _Connection(handle), "127.0.0.1", place)
        yield Inbox(batches(), has_batches=True)
        await connection.close()

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        loop = asyncio.get_running_loop()

        def reply(connection: _Connection, messages: list[bytes]) -> None:
            connection.write(messages)

        replier = await loop.create_server(lambda: _Connection(reply), "127.0.0.1", 0)
        sink = await loop.create_server(_Sink, "127.0.0.1", 0)
        yield [_port(replier), _port(sink)]
        replier.close()
        sink.close()

    @asynccontextmanager
    async def _asking(self, place: list[int]) -> AsyncIterator[Ask]:
        asking = _Asking()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(asking.handle), "127.0.0.1", place[0]
        )
        yield asking.ask_by(connection)
        await connection.close()

    @asynccontextmanager
    async def callers(self, place: list[int], count: int) -> AsyncIterator[list[Ask]]:
        async with self._asking(place) as ask:
            yield [ask] * count

    @asynccontextmanager
    async def tunnel(self, place: list[int]) -> AsyncIterator[SendBlocks]:
        async def send(blocks: Iterable[bytes]) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", place[1])
            for block in blocks:
                writer.write(block)
                await writer.drain()
            writer.write_eof()
            taken = int(await reader.read())
            writer.close()
            return taken

        yield send

    @asynccontextmanager
    async def bulk(self, place: list[int]) -> AsyncIterator[tuple[Ask, Send]]:
        _, writer = await asyncio.open_connection("127.0.0.1", place[1])

        async def send(blocks: Iterable[bytes]) -> None:
            for block in blocks:
                writer.write(block)
                await writer.drain()

        async with self._asking(place) as ask:
            yield ask, send
        writer.close()

    @asynccontextmanager
    async def links(self, place: list[int]) -> AsyncIterator[OpenMore]:
        yield _keep_connecting(place[0])

    @asynccontextmanager
    async def idle_tunnels(self, place: list[int]) -> AsyncIterator[OpenMore]:
        yield _keep_connecting(place[1])


class TcpEach(Tcp):
    """A write for each message."""

    about = replace(
        Tcp.about,
        name="tcp-each",
        use="uvloop: a write for each message; a length before each",
        only=frozenset({"queue", "stream"}),
    )
    gathered_bytes = 0


def _ignore(_connection: _Connection, _messages: list[bytes]) -> None: ...


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def _keep_connecting(port: int) -> OpenMore:
    kept: list[Any] = []

    async def open_more(count: int) -> None:
        kept.extend([await asyncio.open_connection("127.0.0.1", port) for _ in range(count)])

    return open_more
