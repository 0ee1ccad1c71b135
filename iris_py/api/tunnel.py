"""Tunnels of an application: bidirectional, in order, with back-pressure; and their opening by a node."""

from __future__ import annotations

import asyncio
import io
from contextlib import aclosing
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, TypeVar

from iris_py.api.arguments import check_chunks, check_file, check_window
from iris_py.api.duplex import Duplex, view_of
from iris_py.api.opening import Opening
from iris_py.api.request import check_on_full, check_timeout
from iris_py.patterns.tunnel.end import FROM_MEMBER, TunnelEnd
from iris_py.wire.headers import cloud_of, encode_headers, visible_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from iris_py.api.options import OnFull
    from iris_py.api.runtime import Runtime
    from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened
    from iris_py.payloads import BytesLike
    from iris_py.wire.headers import Headers, HeaderValue

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
        """The id of the tunnel at both ends, to find it in their logs."""
        return f"{self.source[:8]}-{self._core.id & ~FROM_MEMBER:x}"

    @property
    def cluster(self) -> str:
        """The name of the tunnel's cluster."""
        return self._name or self._core.group.name

    @property
    def member(self) -> str:
        """The id (hex) of the serving node; for a tunnel to another cloud, of the gateway that forwards it."""
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


async def open_end(runtime: Runtime, begin: Callable[[asyncio.Future[TunnelEnd], float], int]) -> TunnelEnd:
    """Open a tunnel to a member of a cluster; return its local end.

    Args:
        runtime: The node.
        begin: Begins to open the tunnel, given a future for the end and the time; returns the number of the request.

    Raises:
        IrisError: The tunnel cannot be opened.
    """
    opened: asyncio.Future[TunnelEnd] = runtime.loop.create_future()
    number = begin(opened, runtime.loop.time())
    runtime.wake()
    try:
        return await opened
    except asyncio.CancelledError as exc:
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            opened.result().fail_by(exc)  # both happened in one turn
        runtime.core.requester.cancel(number)
        runtime.wake()
        raise


#: Opens a tunnel to a cluster of another cloud: cluster, timeout, window, headers, and whether to wait for a place.
OpenFar: TypeAlias = "Callable[[str, float, int, Headers, bool], Awaitable[Tunnel]]"


class Tunnels:
    """The tunnels that one node opens.

    Args:
        runtime: The node.
        open_far: Opens a tunnel to a cluster of another cloud.
    """

    def __init__(self, runtime: Runtime, open_far: OpenFar) -> None:
        self._runtime = runtime
        self._open_far = open_far

    def open(
        self, cluster: str, timeout: float, window_bytes: int, headers: Mapping[str, HeaderValue] | None, on_full: OnFull
    ) -> Opening[Tunnel]:
        """Open a tunnel, as :meth:`iris_py.Node.tunnel` describes."""
        self._runtime.check_open()
        is_far = self._runtime.is_far(cluster)
        check_timeout(timeout)
        check_window("window_bytes", window_bytes)
        check_on_full(on_full)
        sent, waits = encode_headers(headers), on_full == "wait"
        if is_far:
            return Opening(self._open(cluster, sent, lambda told: self._open_far(cluster, timeout, window_bytes, told, waits)))
        return Opening(self._open(cluster, sent, lambda told: self._open_here(cluster, timeout, window_bytes, told, waits)))

    async def _open(self, cluster: str, headers: Headers, open_: Callable[[Headers], Awaitable[Tunnel]]) -> Tunnel:
        self._runtime.check_open()  # again: an Opening may be awaited long after it was made
        tracing = self._runtime.tracing
        if tracing is None:
            return await open_(headers)
        with tracing.call("tunnel", cluster, headers) as headers:
            return await open_(headers)

    async def _open_here(self, cluster: str, timeout: float, window_bytes: int, headers: Headers, waits: bool) -> Tunnel:
        core = self._runtime.core

        def begin(opened: asyncio.Future[TunnelEnd], now: float) -> int:
            return core.open_tunnel(cluster, timeout, window_bytes, opened, now, headers, waits=waits)

        return Tunnel(await open_end(self._runtime, begin), core.info.id.hex(), self._runtime.driver.wake)

    # -- events of the core

    def handle_opened(self, event: TunnelOpened) -> None:
        """Hand the end of an opened tunnel to its caller, or break the tunnel if the caller has given up."""
        opened = event.token
        assert isinstance(opened, asyncio.Future)
        if opened.done():
            event.end.fail_by(asyncio.CancelledError("the caller gave up"))
            self._runtime.wake()
        else:
            opened.set_result(event.end)

    @staticmethod
    def handle_changed(event: TunnelChanged) -> None:
        """Note data, credit or the end of a tunnel."""
        if event.end.on_changed is not None:
            event.end.on_changed()


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
    """Call a method of a file in a thread, because a disk may be slow; of a file in memory at once."""
    if isinstance(file, io.BytesIO):
        return method(argument)
    return await asyncio.to_thread(method, argument)
