"""Tunnels of nodes that continue as channels to another cloud: those for tunnels and for surveys (docs/design.md 15.81)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

from iris_py.api.failures import is_cancelled
from iris_py.errors import NotExported, Overloaded
from iris_py.federation import frames
from iris_py.federation.names import NAME_HEADER, TIME_HEADER
from iris_py.gateway.meter import Meter
from iris_py.gateway.splice import splice
from iris_py.gateway.streams import READY, Refusal
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
