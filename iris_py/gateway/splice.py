"""Tunnels of nodes that continue as channels to another cloud: those for tunnels and for surveys (docs/design.md 15.81).

Splices: two streams of messages become one, and both far ends see what they would see without anybody between (15.45).

Pieces pass, not messages, and each is taken from one side when the other has credit for it: however large the messages are,
a splice holds what the windows of its streams allow. What one side has ended ends at the other. DONE, which tells a sender that
everything was taken, is held back on one side until it has come from the other, so ``close()`` at one far end returns when the
program at the other far end has taken everything. A break on one side breaks the other, with its type and text, behind the
pieces that came before it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from iris_py.api.failures import is_cancelled
from iris_py.errors import NotExported, Overloaded, TunnelBroken, TunnelClosed
from iris_py.federation import frames
from iris_py.federation.names import NAME_HEADER, TIME_HEADER
from iris_py.gateway.streams import READY, Meter, Refusal
from iris_py.patterns.request.pending import TIMEOUT_S_MAX
from iris_py.wire.headers import visible_headers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from iris_py.api.stream import MessageStream
    from iris_py.api.tunnel import Tunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.frames import Entry
    from iris_py.gateway.streams import Streams
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


Result = TypeVar("Result")


async def pass_on(
    streams: Streams, core: FederationCore, tunnel: Tunnel, alias: str, kind: int, options: bytes, *, comes_back: bool = False
) -> None:
    """Continue a tunnel of a node as a channel, until both have ended.

    Args:
        streams: The streams of this gateway.
        core: What is said to other clouds.
        tunnel: The tunnel; its headers say the name and the time.
        alias: The neighbour.
        kind: What the channel is for: of :mod:`iris_py.federation.frames`.
        options: What the pattern needs.
        comes_back: Whether all of it has to be over in that time, with the last word back here; else it only has to open.

    Raises:
        Refusal: There is no way there, or no place.
        TunnelBroken: One of both has broken, and now both have.
    """
    headers, now = tunnel._core.headers, asyncio.get_running_loop().time()
    name = headers.get(NAME_HEADER)
    if not isinstance(name, str):
        raise Refusal(NotExported(""))
    bundle, entry = streams.find_way(alias, kind, name)
    neighbour = core.lines.neighbours[alias]
    limits = neighbour.limits_of(entry, now)
    if kind == frames.SURVEY:
        wait_s = limits.begin_stream(now)
        if wait_s is not None:
            raise Refusal(Overloaded(name, retry_after_s=wait_s))
    left = _time_of(headers.get(TIME_HEADER))
    if comes_back:
        left -= bundle.health.round_trip_s or 0.0
    opening = streams.open_at(bundle, entry.rule, kind, name, visible_headers(headers), now + left, options)
    channel = await while_wanted(tunnel, opening)
    try:
        await tunnel.send(READY)
    except BaseException as exc:
        channel._break_by(exc)
        raise
    meter = Meter(limits, neighbour.accounts.of_import("cluster", entry.pattern))
    await splice(tunnel, channel, there=meter.send, back=meter.receive)


async def splice_on(
    streams: Streams, core: FederationCore, tunnel: Tunnel, bundle: Bundle, entry: Entry, name: str, deadline: float
) -> None:
    """Continue a tunnel whose caller knows of no gateway as a channel, until both have ended.

    Args:
        streams: The streams of this gateway.
        core: What is said to other clouds.
        tunnel: The tunnel.
        bundle: The way.
        entry: The rule of the neighbour.
        name: The cluster, as the neighbour exports it.
        deadline: Until when to wait for the channel.

    Raises:
        Refusal: The neighbour does not take it.
        TunnelBroken: One of both has broken, and now both have.
    """
    headers = visible_headers(tunnel._core.headers)
    channel = await while_wanted(tunnel, streams.open_at(bundle, entry.rule, frames.TUNNEL, name, headers, deadline, b"\0"))
    neighbour, now = core.lines.neighbours[bundle.alias], asyncio.get_running_loop().time()
    account = neighbour.accounts.of_import("cluster", entry.pattern)
    meter = Meter(neighbour.limits_of(entry, now), account)
    await splice(tunnel, channel, there=meter.send, back=meter.receive)


async def while_wanted(stream: MessageStream[Any], doing: Coroutine[Any, Any, Result]) -> Result:
    """Do something for a stream, and give it up if that breaks.

    Args:
        stream: Nobody else looks after it meanwhile.
        doing: What is done.

    Raises:
        TunnelBroken: The stream has broken.
    """
    task = asyncio.ensure_future(doing)

    def look() -> None:
        if stream._core.failure is not None:
            task.cancel()

    stream.on_moved = look
    look()
    try:
        return await task
    except asyncio.CancelledError as exc:
        if is_cancelled(exc) or stream._core.failure is None:
            raise
        raise stream._broken(stream._core.failure) from None
    finally:
        stream.on_moved = None


def _time_of(value: object) -> float:
    """Return a time that a node has said, in seconds; what is none is over."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return min(float(value), TIMEOUT_S_MAX)
