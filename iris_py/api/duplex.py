"""Duplexes of a program: connections with ordered messages in both directions and back-pressure.

A :class:`~iris_py.api.tunnel.Tunnel` between two nodes is a duplex, and so is a channel between two gateways.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Generic

from iris_py.api.arguments import check_count, check_time
from iris_py.api.awaitable_context import AsyncClosable
from iris_py.api.loops import LoopBound
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import MessageTooLarge, TunnelBroken, TunnelClosed
from iris_py.patterns.tunnel.duplex import CHARGED_BYTES, PIECE_CHARGE, End, Failure
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from iris_py.patterns.tunnel.duplex import Piece
    from iris_py.payloads import BytesLike
    from iris_py.wire.headers import HeaderValue

#: Time in seconds that closing waits without progress for the other side to take the sent messages. Too small: a slow reader
#: loses the last messages; too large: a dead reader delays the end.
CLOSE_TIMEOUT_S = 30.0
#: Bytes sent without a turn of the event loop. Too small: turns cost more than messages; too large: other work waits.
REST_BYTES = 512 * 1024


class Duplex(LoopBound, AsyncClosable, Generic[End]):
    """An ordered connection for messages in both directions: base of tunnels and of channels between gateways.

    Args:
        end: The local end in the core, which keeps the buffers and the credit.
        wake: Called when the local end has data to send.

    Attributes:
        on_moved: Called when data or credit has arrived, or the duplex has ended: for code that forwards messages.
    """

    _what = "duplex"

    def __init__(self, end: End, wake: Callable[[], None]) -> None:
        super().__init__()
        self.on_moved: Callable[[], None] | None = None
        self._core = end
        self._wake = wake
        self._sending, self._receiving = asyncio.Lock(), asyncio.Lock()
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._moved: asyncio.Future[None] | None = None
        self._unrested = 0
        self._pieces: list[Piece] = []  # of the message being received
        self._pieces_bytes = 0
        self._is_skipping = False  # the rest of an abandoned message
        self._is_ended_here = self._is_closed = False
        end.on_changed = self._handle_changed

    # -- properties

    @property
    @abstractmethod
    def cluster(self) -> str:
        """The name of the tunnel's cluster."""

    @property
    @abstractmethod
    def _other_side(self) -> str:
        """The name of the other side, for errors."""

    @property
    def _other_name(self) -> str:
        """The label of the node at the other end, for errors; empty without a known label."""
        return ""

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The caller's headers: immutable values by name; empty for none."""
        return self._core.headers

    # -- sending

    async def send(self, payload: BytesLike) -> None:
        """Send a message of any size; waits for credit from the other side.

        Cancelling in the middle of a message breaks the tunnel, because the other side could not find the next message.

        Args:
            payload: Bytes, which must not be changed before this returns.

        Raises:
            TunnelClosed: The tunnel has ended; all data sent before was delivered.
            TunnelBroken: The tunnel has broken, or the other side receives no more.
        """
        if not self._is_own_thread():
            self._check_loop()
        data = payload if isinstance(payload, bytes) else view_of(payload)
        size, end = len(data), self._core
        if not self._sending.locked():  # the hot path: no await except for a rest, and no second copy
            if end.is_ended or end.failure is not None:
                self._check_sending()
            if size <= end.credit - PIECE_CHARGE and size <= CHARGED_BYTES:
                was_ready = end.is_ready
                if not was_ready:
                    self._check_loop()
                end.write(bytes(data), is_last=True)
                if not was_ready:
                    self._wake()
                self._unrested += size + PIECE_CHARGE
                if self._unrested >= REST_BYTES:
                    self._unrested = 0
                    await asyncio.sleep(0)
                return
        self._check_loop()
        async with self._sending:
            await self._write_piece(data, is_last=True)

    async def end(self) -> None:
        """End this side's direction: the other side sees the end after all sent messages. Receiving continues."""
        self._check_loop()
        async with self._sending:
            self._end_now()

    # -- receiving

    async def receive(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
        """Return the next message. Cancelling loses no data.

        Args:
            max_bytes: The largest message to assemble in memory.

        Raises:
            ConfigurationError: ``max_bytes`` is no number of bytes.
            MessageTooLarge: The next message is larger, and is skipped.
            TunnelClosed: The other side has ended the tunnel, and all messages were received.
            TunnelBroken: The tunnel has broken.
        """
        if max_bytes is not MAX_MESSAGE_BYTES:
            check_count("max_bytes", max_bytes, 0)
        if not self._is_own_thread():
            self._check_loop()
        if not self._receiving.locked():
            message = self._take_message(max_bytes)
            if message is not None:
                return message
        self._check_loop()
        async with self._receiving:
            while (message := self._take_message(max_bytes)) is None:
                await self._wait_readable()
            return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.receive()
        except TunnelClosed:
            raise StopAsyncIteration from None

    # -- the end

    async def close(self, *, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """End both directions, and wait until the other side has taken all sent messages. Harmless if repeated.

        Further messages from the other side are refused.

        Args:
            timeout: Seconds to wait without progress.

        Raises:
            ConfigurationError: ``timeout`` is no time.
            TunnelBroken: The tunnel broke before, or the other side did not take all messages.
        """
        check_time("timeout", timeout)
        if self._is_closed:
            return
        self._check_loop()
        self._is_closed = True
        end = self._core
        try:
            async with asyncio.timeout(timeout), self._sending:  # another task may be in the middle of a message
                self._is_ended_here = True
                end.end()
            end.stop()
            self._wake()
            while not end.is_over and end.failure is None:
                self._moved = self._loop.create_future()
                async with asyncio.timeout(timeout):
                    await self._moved
        except TimeoutError:
            reason = f"the other side has not received all data, and made no progress for {timeout:g} s"
            self._break(reason, "TimeoutError", "the tunnel was closed, and the other side did not receive all data in time")
        except asyncio.CancelledError as exc:
            self._break_by(exc)
            raise
        if end.failure is not None:
            raise self._broken(end.failure)
        if not end.is_taken:
            raise self._broken(_NOT_TAKEN)

    async def _end(self) -> None:
        await self.close()

    async def _exit(self, exc: BaseException | None) -> None:
        if exc is None:
            await self.close()
        elif not self._is_closed:
            self._check_loop()
            self._is_closed = True
            self._break_by(exc)

    # --

    async def _write_piece(self, data: Piece, *, is_last: bool, check: Callable[[], None] | None = None) -> None:
        """Send a part of a message as fast as the other side gives credit. Must not run twice at once: the caller holds the
        lock of the senders, or is the only sender.

        Args:
            data: The part, which must not change any more.
            is_last: Whether the part ends its message.
            check: Called before each wait for credit; raises an error to end the call instead.

        Raises:
            TunnelClosed: As for :meth:`send`.
            TunnelBroken: As for :meth:`send`.
        """
        end, at, size = self._core, 0, len(data)
        view = memoryview(data)
        try:
            while True:
                self._check_sending()
                if end.credit > PIECE_CHARGE or (end.credit == PIECE_CHARGE and at == size):
                    piece = view[at : at + end.credit]
                    is_whole = at + len(piece) == size
                    accepted = end.write(piece if view.readonly else bytes(piece), is_last=is_last and is_whole)
                    at += accepted
                    await self._sent(accepted)
                    if at == size:
                        return
                else:
                    if check is not None:
                        check()
                    end.credit_waits += 1
                    self._writable = self._loop.create_future()
                    await self._writable
        except asyncio.CancelledError as exc:
            self._handle_unsent(exc)
            raise

    def _end_now(self) -> None:
        """End this side's direction; must not be called in the middle of a message."""
        self._is_ended_here = True
        self._core.end()
        self._wake()

    # -- for the core

    def _handle_changed(self) -> None:
        """Wake the tasks that wait for data, for credit or for the end of the duplex, if the change is theirs."""
        end = self._core
        is_broken = end.failure is not None
        readable, writable, moved = self._readable, self._writable, self._moved
        if readable is not None and (end.can_take or is_broken or end.is_peer_ended or end.is_stopped):
            self._readable = None
            _resolve(readable)
        if writable is not None and (end.credit > PIECE_CHARGE or is_broken or end.is_ended):
            self._writable = None
            _resolve(writable)
        if moved is not None:
            self._moved = None
            _resolve(moved)
        if self.on_moved is not None:
            self.on_moved()

    def _break_by(self, exc: BaseException) -> None:
        """Break the duplex because of an exception that has left its ``async with`` block or handler."""
        self._core.fail_by(exc)
        self._wake()

    def _break(self, reason: str, type: str, text: str) -> None:  # noqa: A002 - as TunnelBroken
        self._core.fail(Failure(reason), is_told=True, type=type, text=text)
        self._wake()

    # --

    def _check_sending(self) -> None:
        end = self._core
        if end.failure is not None:
            raise self._broken(end.failure)
        if end.is_ended:
            if self._is_ended_here:
                raise TunnelClosed(self.cluster, self._other_side, is_ours=True, node_name=self._other_name)
            if not end.is_taken:
                raise self._broken(_NOT_TAKEN)
            raise TunnelClosed(self.cluster, self._other_side, node_name=self._other_name)

    def _check_receiving(self) -> None:
        """Raise :exc:`TunnelBroken` or :exc:`TunnelClosed` if no more data can come."""
        end = self._core
        if end.failure is not None:
            raise self._broken(end.failure)
        if end.is_peer_ended or end.is_stopped:
            is_ours, name = not end.is_peer_ended, self._other_name
            raise TunnelClosed(self.cluster, self._other_side, is_ours=is_ours, node_name=name)

    def _broken(self, failure: Failure) -> TunnelBroken:
        reason, name = (failure.reason, failure.type, failure.text), self._other_name
        return TunnelBroken(self.cluster, self._other_side, *reason, node_name=name)

    async def _sent(self, size: int) -> None:
        self._wake()
        self._unrested += size + PIECE_CHARGE
        if self._unrested >= REST_BYTES:
            self._unrested = 0
            await asyncio.sleep(0)

    def _handle_unsent(self, exc: BaseException) -> None:
        """Break the duplex if a cancelled send has left part of a message: the other side could not find the next message."""
        if self._core.is_in_message:
            type_, text = packets.decode_failure(packets.encode_failure(exc))
            self._break("sending was cancelled in the middle of a message", type_, text)

    async def _wait_readable(self) -> None:
        self._readable = self._loop.create_future()
        await self._readable

    def _take_message(self, max_bytes: int) -> bytes | None:
        """Return the next message if all of its pieces have arrived, otherwise None. Raise if the message is too large."""
        end = self._core
        while (entry := self._take_piece()) is not None:
            piece, is_last = entry
            size = self._pieces_bytes + len(piece)
            if size > max_bytes:
                self._pieces, self._pieces_bytes = [], 0
                self._is_skipping = not is_last
                raise MessageTooLarge(size, max_bytes, is_received=True)
            if is_last and not self._pieces:
                return bytes(piece)
            self._pieces.append(piece)
            self._pieces_bytes = size
            if is_last:
                return b"".join(self._take_begun())
        if not end.can_take:
            self._check_receiving()
        return None

    def _take_begun(self) -> list[Piece]:
        """Return the pieces collected so far of a message, and begin to collect the next message."""
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        return pieces

    def _take_piece(self) -> tuple[Piece, bool] | None:
        """Return the next piece, and whether it ends its message; None without one. Pieces of refused messages are skipped."""
        end = self._core
        while (entry := end.take()) is not None:
            if end.is_ready:
                self._wake()  # there may be credit to send
            if not self._is_skipping:
                return entry
            self._is_skipping = not entry[1]
        return None


_NOT_TAKEN = Failure("the other side stopped receiving before it had received all data")


def view_of(payload: object) -> memoryview:
    """Return a view of the bytes of a ``bytearray`` or ``memoryview``.

    Raises:
        TypeError: The payload is neither.
    """
    if isinstance(payload, bytearray | memoryview):
        view = memoryview(payload)
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    raise TypeError(f"a payload is bytes, not {type(payload).__qualname__}; encode it first")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
