"""Splices: two streams of messages become one, and both far ends see what they would see without anybody between (15.45).

Pieces pass, not messages, and each is taken from one side when the other has credit for it: however large the messages are,
a splice holds what the windows of its streams allow. What one side has ended ends at the other. DONE, which tells a sender that
everything was taken, is held back on one side until it has come from the other, so ``close()`` at one far end returns when the
program at the other far end has taken everything. A break on one side breaks the other, with its type and text, behind the
pieces that came before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from iris_py.errors import TunnelBroken, TunnelClosed

if TYPE_CHECKING:
    from iris_py.api.stream import MessageStream
    from iris_py.patterns.tunnel.stream import Failure

Stream: TypeAlias = "MessageStream[Any]"


class Gate(Protocol):
    """Decides when a piece of a message may pass, and counts it then."""

    def __call__(self, size: int, /, *, is_last: bool) -> float:
        """Return 0 if a piece may pass now; otherwise in how many seconds to ask again."""


async def splice(one: Stream, other: Stream, *, there: Gate | None = None, back: Gate | None = None) -> None:
    """Join two streams until both have ended. Nobody else uses either of them.

    To cancel it breaks both.

    Args:
        one: A tunnel or channel.
        other: Another one.
        there: What passes from the first to the second; None: everything at once.
        back: And from the second to the first.

    Raises:
        TunnelBroken: One has broken, and now both have: as the first one raises it.
    """
    await _Splice(one, other, there, back).run()


class _Pump:
    """One direction of a splice: takes from its source, writes to its target."""

    def __init__(self, source: Stream, target: Stream, gate: Gate | None) -> None:
        self._source = source
        self._target = target
        self._gate = gate
        self._pause: asyncio.Future[None] | None = None  # while it waits at the gate
        self._is_carrying = False  # a piece was taken and not written
        self._is_over = False
        source._core.hold_done()

    async def run(self) -> None:
        """Carry pieces until the source or the target has ended or broken."""
        source, target = self._source, self._target
        try:
            while (entry := await source._take_piece_async()) is not None:
                self._is_carrying = True
                if self._gate is not None:
                    await self._pass_gate(self._gate, len(entry[0]), is_last=entry[1])
                await target._write_piece(entry[0], is_last=entry[1], source=source)
                self._is_carrying = False
            target._end_now()
        except (TunnelBroken, TunnelClosed):
            pass  # what that means the two below know
        self._is_over = True
        self.handle_source_moved()

    def handle_source_moved(self) -> None:
        """Pass it on if the source has broken, behind what came before that."""
        failure = self._source._core.failure
        if failure is None:
            return
        if self._is_over:
            _break_with(self._target, failure)
        else:
            self._target._wake_writer()
            self._end_pause()

    def handle_target_moved(self) -> None:
        """Tell the source what the far side of the target has taken."""
        near, far = self._source._core, self._target._core
        if far.is_refused or far.failure is not None:
            self._end_pause()
        if far.is_refused:
            near.stop()
            near.release_done(is_taken=far.is_taken and not self._is_carrying)
            self._source._wake()
        elif near.holds_done and near.is_stopped:
            near.tell_credit()  # its sender waits for DONE, and sees that something moves
            self._source._wake()

    async def _pass_gate(self, gate: Gate, size: int, *, is_last: bool) -> None:
        """Wait until a piece may pass.

        Raises:
            TunnelBroken: Its source or its target has broken, or the target takes no more.
        """
        while wait_s := gate(size, is_last=is_last):
            for stream in (self._source, self._target):
                if stream._core.failure is not None:
                    raise stream._broken(stream._core.failure)
            self._target._check_sending()
            loop = asyncio.get_running_loop()
            self._pause = loop.create_future()
            timer = loop.call_later(wait_s, self._end_pause)
            try:
                await self._pause
            finally:
                timer.cancel()

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)


class _Splice:
    """Two streams, and a pump for each direction."""

    def __init__(self, one: Stream, other: Stream, there: Gate | None, back: Gate | None) -> None:
        self._streams = one, other
        self._there, self._back = _Pump(one, other, there), _Pump(other, one, back)
        self._broken: Stream | None = None  # the first one
        self._settled = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Run it to its end."""
        one, other = self._streams
        one.on_moved = self._handle_one_moved
        other.on_moved = self._handle_other_moved
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._there.run())
                tasks.create_task(self._back.run())
                one.on_moved()  # either may have moved before
                other.on_moved()
                await self._settled
        except BaseException as exc:
            for stream in self._streams:
                stream._break_by(exc)
            raise
        finally:
            one.on_moved = other.on_moved = None
        if self._broken is not None:
            raise self._broken._broken(self._broken._core.failure)

    def _handle_one_moved(self) -> None:
        self._there.handle_source_moved()
        self._back.handle_target_moved()
        self._look(self._streams[0])

    def _handle_other_moved(self) -> None:
        self._back.handle_source_moved()
        self._there.handle_target_moved()
        self._look(self._streams[1])

    def _look(self, moved: Stream) -> None:
        """Note what became of a stream."""
        if self._broken is None and moved._core.failure is not None:
            self._broken = moved
        if not self._settled.done() and all(_has_ended(stream) for stream in self._streams):
            self._settled.set_result(None)


def _has_ended(stream: Stream) -> bool:
    return stream._core.is_over or stream._core.failure is not None


def _break_with(stream: Stream, failure: Failure) -> None:
    """Break a stream as another one has broken."""
    stream._break(
        f"the stream that it continues broke: {failure.reason}", failure.type or "TunnelBroken", failure.text or failure.reason
    )
