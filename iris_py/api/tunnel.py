"""Tunnels of a program: bidirectional connections for messages, in order and with back-pressure."""

from __future__ import annotations

import asyncio
import io
from contextlib import aclosing
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from iris_py.api.arguments import check_chunks, check_file
from iris_py.api.duplex import Duplex, view_of
from iris_py.patterns.tunnel.end import FROM_MEMBER, TunnelEnd
from iris_py.wire.headers import cloud_of, visible_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Mapping

    from iris_py.payloads import BytesLike
    from iris_py.wire.headers import HeaderValue

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

#: Bytes read from a file, or written to one, at once in a thread. Too small: threads change too often; too large: memory for
#: each transfer.
FILE_BYTES = 256 * 1024


class Tunnel(Duplex[TunnelEnd]):
    """A bidirectional connection for messages between a caller and one member, from :meth:`Node.tunnel` or in ``on_tunnel()``.

    A tunnel ends in one of two ways: :exc:`TunnelClosed` means full delivery, :exc:`TunnelBroken` possible loss of the last
    messages. Messages that arrived whole before a break can still be received. A slow reader slows the writer: the bytes in
    transit, including those waiting at both ends, never exceed the window, for messages of any size.

    ``async with`` closes the tunnel at the end, or breaks it if an exception leaves the block. Several tasks may call its
    methods; messages do not mix.
    """

    _what = "tunnel"

    def __init__(self, end: TunnelEnd, local: str, wake: Callable[[], None], name: str = "") -> None:
        super().__init__(end, wake)
        self._local = local
        self._name = name  # of a cluster of another cloud; empty for a cluster of this cloud

    # -- properties

    @property
    def id(self) -> str:
        """The id of the tunnel, the same at both ends: finds the tunnel in the logs of both nodes."""
        return f"{self.source[:8]}-{self._core.id & ~FROM_MEMBER:x}"

    @property
    def cluster(self) -> str:
        """The name of the tunnel's cluster."""
        return self._name or self._core.group.name

    @property
    def member(self) -> str:
        """The id (hex) of the serving node; for a tunnel to another cloud, of the forwarding gateway."""
        return self._core.peer.name if self._core.registration is None else self._local

    @property
    def source(self) -> str:
        """The id (hex) of the calling node."""
        return self._local if self._core.registration is None else self._core.peer.name

    @property
    def _other_side(self) -> str:
        return self._core.peer.name

    @property
    def _other_name(self) -> str:
        return self._core.peer.label

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The caller's headers: immutable values by name; empty for none."""
        return visible_headers(self._core.headers)

    @property
    def cloud(self) -> str:
        """The alias of the caller's cloud; empty for the own cloud."""
        return cloud_of(self._core.headers)

    def __repr__(self) -> str:
        return f"<Tunnel {self.id} of {self.cluster!r} to {self._core.peer.described.short}>"

    # -- sending

    async def send_from(self, file: BinaryIO) -> int:
        """Send the rest of a file as one message, in bounded memory; returns its number of bytes.

        Args:
            file: Opened for reading in binary mode; a thread reads it.

        Raises:
            ConfigurationError: The argument is no file in binary mode.
            TunnelClosed: As for :meth:`send`.
            TunnelBroken: As for :meth:`send`.
            Exception: Reading failed; in the middle of the message this breaks the tunnel.
        """
        check_file("file", file, "read")
        return await self.send_chunks(_read(file))

    async def send_chunks(self, chunks: AsyncIterable[BytesLike] | Iterable[BytesLike]) -> int:
        """Send one message, chunk by chunk as they come; returns its number of bytes. Raises as :meth:`send_from`."""
        check_chunks("chunks", chunks)
        self._check_loop()
        size = 0
        async with self._sending:
            self._check_sending()
            try:
                async for chunk in _each(chunks):
                    piece = chunk if isinstance(chunk, bytes) else view_of(chunk)
                    if piece:
                        size += len(piece)
                        await self._write_piece(piece, is_last=False)
                await self._write_piece(b"", is_last=True)
            except BaseException as exc:
                self._handle_unsent(exc)
                raise
        return size

    # -- receiving

    async def receive_into(self, file: BinaryIO) -> int:
        """Write the next message, of any size, to a file; returns its number of bytes.

        If this is cancelled or writing fails, the rest of the message is skipped.

        Args:
            file: Opened for writing in binary mode; a thread writes it.

        Raises:
            ConfigurationError: The argument is no file in binary mode.
            TunnelClosed: The other side has ended the tunnel, and all messages were received.
            TunnelBroken: The tunnel has broken; the file has a part of the message, or none.
            Exception: Writing failed.
        """
        check_file("file", file, "write")
        size, waiting, waiting_bytes = 0, [], 0
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                waiting.append(chunk)
                waiting_bytes += len(chunk)
                size += len(chunk)
                if waiting_bytes >= FILE_BYTES or not self._core.can_take:
                    await _call_file(file, file.write, b"".join(waiting))
                    waiting, waiting_bytes = [], 0
            if waiting:
                await _call_file(file, file.write, b"".join(waiting))
        return size

    def receive_chunks(self) -> AsyncIterator[bytes]:
        """Take the next message, of any size, chunk by chunk with ``async for``. Chunks not taken are skipped.

        Raises:
            TunnelClosed: The other side has ended the tunnel, and all messages were received.
            TunnelBroken: The tunnel has broken, maybe in the middle of the message.
        """
        return self._chunks()

    # --

    async def _chunks(self) -> AsyncGenerator[bytes]:
        self._check_loop()
        async with self._receiving:
            begun = self._take_begun()
            is_begun, is_last = bool(begun), False
            try:
                for piece in begun:
                    yield bytes(piece)
                while not is_last:
                    while (entry := self._take_piece()) is None:
                        self._check_receiving()
                        await self._wait_readable()
                    piece, is_last = entry
                    is_begun = True
                    if piece:
                        yield bytes(piece)
            finally:
                self._is_skipping = is_begun and not is_last


async def _each(chunks: AsyncIterable[BytesLike] | Iterable[BytesLike]) -> AsyncIterator[BytesLike]:
    if hasattr(chunks, "__aiter__"):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await _call_file(file, file.read, FILE_BYTES):
        yield chunk


async def _call_file(file: BinaryIO, method: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
    """Call a method of a file in a thread, because a disk may be slow; call a method of a file in memory directly."""
    if isinstance(file, io.BytesIO):
        return method(argument)
    return await asyncio.to_thread(method, argument)
