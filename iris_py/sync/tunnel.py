"""Tunnels of the synchronous API: bidirectional, in order, with back-pressure."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, BinaryIO

from iris_py.api.arguments import check_chunks
from iris_py.api.awaitable_context import exit_of
from iris_py.api.duplex import CLOSE_TIMEOUT_S
from iris_py.api.tunnel import Tunnel as AsyncTunnel
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import TunnelClosed
from iris_py.sync.counterpart import Closable, documented_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from iris_py.payloads import BytesLike
    from iris_py.sync.background import Background
    from iris_py.wire.headers import HeaderValue


class Tunnel(Closable):
    """A bidirectional connection for messages between a caller and one member, from :meth:`Node.tunnel` or in ``on_tunnel()``.

    A tunnel ends in one of two ways: :exc:`TunnelClosed` means that all sent messages were delivered, :exc:`TunnelBroken` that
    the last ones may be missing. ``for message in tunnel`` ends with the first, and raises the second. ``with`` closes the
    tunnel at the end, or breaks it if an exception leaves the block. Several threads may share a tunnel; messages do not mix.
    """

    def __init__(self, inner: AsyncTunnel, loop: Background) -> None:
        self._inner = inner
        self._background = loop

    @property
    @documented_as(AsyncTunnel.id)
    def id(self) -> str:
        return self._inner.id

    @property
    @documented_as(AsyncTunnel.cluster)
    def cluster(self) -> str:
        return self._inner.cluster

    @property
    @documented_as(AsyncTunnel.member)
    def member(self) -> str:
        return self._inner.member

    @property
    @documented_as(AsyncTunnel.source)
    def source(self) -> str:
        return self._inner.source

    @property
    @documented_as(AsyncTunnel.headers)
    def headers(self) -> Mapping[str, HeaderValue]:
        return self._inner.headers

    @property
    @documented_as(AsyncTunnel.cloud)
    def cloud(self) -> str:
        return self._inner.cloud

    def __repr__(self) -> str:
        return repr(self._inner)

    # -- sending

    @documented_as(AsyncTunnel.send)
    def send(self, payload: BytesLike) -> None:
        self._background.wait(self._inner.send, payload)

    @documented_as(AsyncTunnel.send_from)
    def send_from(self, file: BinaryIO) -> int:
        return self._background.wait(self._inner.send_from, file)

    @documented_as(AsyncTunnel.send_chunks)
    def send_chunks(self, chunks: Iterable[BytesLike]) -> int:
        return self._background.wait(self._send_chunks, chunks)

    @documented_as(AsyncTunnel.end)
    def end(self) -> None:
        self._background.wait(self._inner.end)

    # -- receiving

    @documented_as(AsyncTunnel.receive)
    def receive(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
        return self._background.wait(self._inner.receive, max_bytes=max_bytes)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        message = self._background.wait(self._next)
        if message is None:
            raise StopIteration
        return message

    @documented_as(AsyncTunnel.receive_into)
    def receive_into(self, file: BinaryIO) -> int:
        return self._background.wait(self._inner.receive_into, file)

    @documented_as(AsyncTunnel.receive_chunks)
    def receive_chunks(self) -> Iterator[bytes]:
        chunks = self._inner.receive_chunks()
        try:
            while (chunk := self._background.wait(_next_of, chunks)) is not None:
                yield chunk
        finally:
            self._background.wait(_close, chunks)

    # -- the end

    @documented_as(AsyncTunnel.close)
    def close(self, *, timeout: float = CLOSE_TIMEOUT_S) -> None:
        if not self._background.is_gone:
            self._background.wait(self._inner.close, timeout=timeout)

    _end = close

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._background.is_gone:
            self._background.wait(exit_of(self._inner), exc)

    # -- in the event loop

    async def _next(self) -> bytes | None:
        try:
            return await self._inner.receive()
        except TunnelClosed:
            return None

    async def _send_chunks(self, chunks: Iterable[BytesLike]) -> int:
        check_chunks("chunks", chunks, is_sync=True)
        return await self._inner.send_chunks(self._each(iter(chunks)))

    async def _each(self, chunks: Iterator[BytesLike]) -> AsyncIterator[BytesLike]:
        """Iterate over a program's iterable in a thread, because the iterable may wait and use this API."""
        while (chunk := await self._background.in_thread(_take, chunks)) is not None:
            yield chunk


def _take(chunks: Iterator[BytesLike]) -> BytesLike | None:
    return next(chunks, None)


async def _next_of(chunks: AsyncIterator[bytes]) -> bytes | None:
    async for chunk in chunks:
        return chunk
    return None


async def _close(chunks: AsyncIterator[bytes]) -> None:
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()
