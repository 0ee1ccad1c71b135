"""Splices: a node's tunnel continues as a channel to another cloud, for tunnels and surveys (docs/design.md 15.45, 15.81).

A splice joins two duplexes so that both far ends see a single duplex. Pieces of messages pass, not whole messages, and a piece
is taken from one duplex only when the other has credit: memory is bounded by the windows of the duplexes, whatever the size of
the messages. The end of one duplex ends the other. DONE tells a sender that everything was consumed; a splice holds DONE back
until it has come from the other duplex, so ``close()`` at one far end returns when the other far end has consumed everything. A
break of one duplex breaks the other with the same type and text, behind the earlier pieces.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import NotExported, Overloaded, TunnelBroken, TunnelClosed
from iris_py.federation import messages
from iris_py.federation.names import NAME_HEADER, TIME_HEADER
from iris_py.federation.openings import ChannelRequest
from iris_py.gateway.duplex import READY, Meter, Refusal
from iris_py.patterns.request.pending import TIMEOUT_S_MAX
from iris_py.wire.headers import visible_headers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from iris_py.api.cloud.duplex import GatewayDuplex, GatewayTunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.gateway.duplex import Duplexes
    from iris_py.patterns.tunnel.duplex import Failure

AnyDuplex: TypeAlias = "GatewayDuplex[Any]"


class Gate(Protocol):
    """Decides when a piece of a message may pass, and counts the piece."""

    def __call__(self, size: int, /, *, is_last: bool) -> float:
        """Return 0 if a piece may pass now; otherwise the seconds until the next try."""


async def splice(one: AnyDuplex, other: AnyDuplex, *, there: Gate | None = None, back: Gate | None = None) -> None:
    """Join two duplexes until both have ended. The splice needs exclusive use of both.

    Cancellation breaks both duplexes.

    Args:
        there: The gate from the first to the second; None: no limit.
        back: The gate from the second to the first.

    Raises:
        TunnelBroken: A duplex has broken, and now both have; the error is of the first to break.
    """
    await _Splice(one, other, there, back).run()


class _Pump:
    """One direction of a splice (two joined duplexes): reads from the source, writes to the target."""

    def __init__(self, source: AnyDuplex, target: AnyDuplex, gate: Gate | None) -> None:
        self._source = source
        self._target = target
        self._gate = gate
        self._pause: asyncio.Future[None] | None = None  # while waiting at the gate
        self._is_carrying = False  # a piece was read and not written
        self._is_over = False
        source.core.hold_done()

    async def run(self) -> None:
        """Carry pieces until the source or the target has ended or broken."""
        source, target = self._source, self._target
        try:
            while (entry := await source.take_piece()) is not None:
                self._is_carrying = True
                if self._gate is not None:
                    await self._pass_gate(self._gate, len(entry[0]), is_last=entry[1])
                await target.write_piece(entry[0], source, is_last=entry[1])
                self._is_carrying = False
            target.end_now()
        except (TunnelBroken, TunnelClosed):
            pass  # the handlers below act on the failure
        self._is_over = True
        self.handle_source_moved()

    def handle_source_moved(self) -> None:
        """Break the target after a break of the source, behind the earlier pieces."""
        failure = self._source.failure
        if failure is None:
            return
        if self._is_over:
            _break_with(self._target, failure)
        else:
            self._target.wake_writer()
            self._end_pause()

    def handle_target_moved(self) -> None:
        """Report the target's progress to the source."""
        near, far = self._source.core, self._target.core
        if far.is_refused or far.failure is not None:
            self._end_pause()
        if far.is_refused:
            near.stop()
            near.release_done(is_taken=far.is_taken and not self._is_carrying)
            self._source.wake()
        elif near.holds_done and near.is_stopped:
            near.tell_credit()  # a sender waiting for DONE sees progress
            self._source.wake()

    async def _pass_gate(self, gate: Gate, size: int, *, is_last: bool) -> None:
        """Wait until a piece may pass.

        Raises:
            TunnelBroken: The source or target has broken, or the target accepts no more.
        """
        while wait_s := gate(size, is_last=is_last):
            for duplex in (self._source, self._target):
                duplex.check_intact()
            self._target.check_sending()
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
    """Two joined duplexes, with a pump for each direction."""

    def __init__(self, one: AnyDuplex, other: AnyDuplex, there: Gate | None, back: Gate | None) -> None:
        self._duplexes = one, other
        self._there, self._back = _Pump(one, other, there), _Pump(other, one, back)
        self._broken: AnyDuplex | None = None  # the first to break
        self._settled = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Run the splice to its end."""
        one, other = self._duplexes
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
            for duplex in self._duplexes:
                duplex.break_by(exc)
            raise
        finally:
            one.on_moved = other.on_moved = None
        if self._broken is not None:
            self._broken.check_intact()

    def _handle_one_moved(self) -> None:
        self._there.handle_source_moved()
        self._back.handle_target_moved()
        self._look(self._duplexes[0])

    def _handle_other_moved(self) -> None:
        self._back.handle_source_moved()
        self._there.handle_target_moved()
        self._look(self._duplexes[1])

    def _look(self, moved: AnyDuplex) -> None:
        """Note that one of the two duplexes has ended or broken."""
        if self._broken is None and moved.failure is not None:
            self._broken = moved
        if not self._settled.done() and all(_has_ended(duplex) for duplex in self._duplexes):
            self._settled.set_result(None)


def _has_ended(duplex: AnyDuplex) -> bool:
    return duplex.core.is_over or duplex.failure is not None


def _break_with(duplex: AnyDuplex, failure: Failure) -> None:
    """Break a duplex with the failure of another."""
    duplex.break_off(
        f"the tunnel that it continues broke: {failure.reason}", failure.type or "TunnelBroken", failure.text or failure.reason
    )


Result = TypeVar("Result")


async def pass_on(
    duplexes: Duplexes,
    core: FederationCore,
    tunnel: GatewayTunnel,
    alias: str,
    kind: int,
    options: bytes,
    *,
    comes_back: bool = False,
) -> None:
    """Continue a node's tunnel as a channel, until both have ended.

    Args:
        tunnel: The tunnel, with name and timeout in its headers.
        kind: The kind of channel, of :mod:`iris_py.federation.messages`.
        options: The pattern's details.
        comes_back: Whether the timeout covers everything including the last reply; otherwise only the opening.

    Raises:
        Refusal: No bundle or no place is available.
        TunnelBroken: A duplex has broken, and now both have.
    """
    headers, now = tunnel.core.headers, asyncio.get_running_loop().time()
    name = headers.get(NAME_HEADER)
    if not isinstance(name, str):
        raise Refusal(NotExported(""))
    bundle, entry = duplexes.find_way(alias, kind, name)
    neighbour = core.lines.neighbours[alias]
    limits = neighbour.limits_of(entry, now)
    if kind == messages.SURVEY:
        wait_s = limits.begin_use(now)
        if wait_s is not None:
            raise Refusal(Overloaded(name, retry_after_s=wait_s))
    left = _time_of(headers.get(TIME_HEADER))
    if comes_back:
        left -= bundle.health.round_trip_s or 0.0
    request = ChannelRequest(entry.rule, kind, name, visible_headers(headers), options)
    channel = await while_wanted(tunnel, duplexes.open_at(bundle, request, now + left))
    try:
        await tunnel.send(READY)
    except BaseException as exc:
        channel.break_by(exc)
        raise
    meter = Meter(limits, neighbour.accounts.of_import("cluster", entry.pattern))
    await splice(tunnel, channel, there=meter.send, back=meter.receive)


async def splice_on(
    duplexes: Duplexes,
    core: FederationCore,
    tunnel: GatewayTunnel,
    bundle: Bundle,
    entry: CatalogueEntry,
    name: str,
    deadline: float,
) -> None:
    """Continue the tunnel of a stand-in's caller as a channel, until both have ended.

    Args:
        name: The exported name of the cluster.
        deadline: The end of the wait for the channel.

    Raises:
        Refusal: The neighbour refuses the channel.
        TunnelBroken: A duplex has broken, and now both have.
    """
    request = ChannelRequest(entry.rule, messages.TUNNEL, name, visible_headers(tunnel.core.headers), b"\0")
    channel = await while_wanted(tunnel, duplexes.open_at(bundle, request, deadline))
    neighbour, now = core.lines.neighbours[bundle.alias], asyncio.get_running_loop().time()
    account = neighbour.accounts.of_import("cluster", entry.pattern)
    meter = Meter(neighbour.limits_of(entry, now), account)
    await splice(tunnel, channel, there=meter.send, back=meter.receive)


async def while_wanted(duplex: AnyDuplex, doing: Coroutine[Any, Any, Result]) -> Result:
    """Await a coroutine for a duplex; cancel it if the duplex breaks.

    Args:
        duplex: The duplex; the call needs exclusive use of ``on_moved``.

    Raises:
        TunnelBroken: The duplex has broken.
    """
    task = asyncio.ensure_future(doing)

    def look() -> None:
        if duplex.failure is not None:
            task.cancel()

    duplex.on_moved = look
    look()
    try:
        return await task
    except asyncio.CancelledError as exc:
        if is_cancelled(exc) or duplex.failure is None:
            raise
        raise duplex.broken(duplex.failure) from None
    finally:
        duplex.on_moved = None


def _time_of(value: object) -> float:
    """Return a node's timeout in seconds; 0 if invalid."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return min(float(value), TIMEOUT_S_MAX)
