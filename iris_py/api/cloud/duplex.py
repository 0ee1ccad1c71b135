"""Duplexes (message connections) with a gateway at one end or both, and their opening by a node (docs/design.md 15.71, 15.81).

A tunnel to ``store@eu`` is a tunnel to ``iris.gateway.eu``, the cluster of the gateways to cloud ``eu``, with headers for the
purpose. The gateway's first message accepts or refuses; from then on the gateway only forwards messages. Surveys, publications
and subscriptions also use tunnels to gateways.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_py.api.cloud.outgoing_requests import translate
from iris_py.api.duplex import Duplex
from iris_py.api.tunnel import Tunnel
from iris_py.api.tunnel_caller import open_end
from iris_py.defaults import TUNNEL_TIMEOUT_S, TUNNEL_WINDOW_BYTES
from iris_py.errors import (
    ConfigurationError,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NodeClosed,
    RemoteError,
    RequestTimeout,
    TunnelBroken,
    TunnelClosed,
)
from iris_py.federation.calls import decode_outcome
from iris_py.federation.names import NAME_HEADER, OP_HEADER, TIME_HEADER, WAITS_HEADER, gateway_cluster
from iris_py.observe.counts import count_in
from iris_py.patterns.request.pending import new_opening
from iris_py.patterns.request.request_queues import pause_s
from iris_py.patterns.tunnel.duplex import End, largest_charge
from iris_py.patterns.tunnel.end import TunnelEnd
from iris_py.wire.headers import NO_HEADERS, encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.runtime import Runtime
    from iris_py.patterns.tunnel.duplex import Failure, Piece
    from iris_py.wire.headers import Headers, HeaderValue

#: The size limit of a gateway's first message, which accepts or refuses the duplex.
_FIRST_BYTES_MAX: Final = 64 * 1024


class GatewayDuplex(Duplex[End]):
    """A duplex with a gateway at one end or both. Unlike a program, its owner also controls the local end directly."""

    @property
    def core(self) -> End:
        """The local end in the core, which keeps the buffers and the credit."""
        return self._core

    @property
    def failure(self) -> Failure | None:
        """The reason of a break; None if the duplex is intact."""
        return self._core.failure

    def wake(self) -> None:
        """Let the driver send the waiting data and credit of the local end."""
        self._wake()

    def try_send(self, payload: bytes) -> bool:
        """Send a message at once if the credit covers the whole message; return whether the message was sent."""
        end, size = self._core, len(payload)
        if self._sending.locked() or end.is_ended or end.failure is not None:
            return False
        if end.credit < largest_charge(size):
            return False
        end.write(payload, is_last=True)
        self._wake()
        return True

    # -- the end

    def break_by(self, exc: BaseException) -> None:
        """Break the duplex because of an exception; the other side gets its class and text."""
        self._break_by(exc)

    def break_off(self, reason: str, type: str = "", text: str = "") -> None:  # noqa: A002 - as TunnelBroken
        """Break the duplex.

        Args:
            reason: The reason, for this side.
            type: The class of an exception, for the other side; empty for none.
            text: The text of the exception.
        """
        self._break(reason, type, text)

    def end_now(self) -> None:
        """End this side's direction; must not be called in the middle of a message."""
        self._end_now()

    def leave(self) -> None:
        """End both directions without waiting, once all messages have been received."""
        self._end_now()
        self._core.stop()
        self._wake()

    def broken(self, failure: Failure) -> TunnelBroken:
        """Return the error to raise for the reason of a break."""
        return self._broken(failure)

    def check_intact(self) -> None:
        """Raise if the duplex has broken.

        Raises:
            TunnelBroken: The duplex has broken.
        """
        if self._core.failure is not None:
            raise self._broken(self._core.failure)

    def check_sending(self) -> None:
        """Raise if nothing more can be sent.

        Raises:
            TunnelClosed: As for :meth:`send`.
            TunnelBroken: As for :meth:`send`.
        """
        self._check_sending()

    # -- pieces, for one forwarding task

    async def take_piece(self) -> tuple[Piece, bool] | None:
        """Take the next piece of a message, and whether it is the last; None if the other side has ended cleanly.

        Raises:
            TunnelBroken: The duplex has broken.
        """
        end = self._core
        while (entry := self._take_piece()) is None:
            self.check_intact()
            if end.is_peer_ended or end.is_stopped:
                return None
            await self._wait_readable()
        return entry

    async def write_piece(self, data: Piece, source: GatewayDuplex[Any], *, is_last: bool) -> None:
        """Send a part of a message as fast as the other side gives credit; the caller must be the only sender.

        Args:
            data: The part, which must not change any more.
            source: The duplex that the part comes from. After a break of the source, the call no longer waits for credit.
            is_last: Whether the part ends its message.

        Raises:
            TunnelClosed: As for :meth:`send`.
            TunnelBroken: As for :meth:`send`; or ``source`` has broken.
        """
        await self._write_piece(data, is_last=is_last, check=source.check_intact)

    def wake_writer(self) -> None:
        """Wake a task that waits for credit."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)


class GatewayTunnel(GatewayDuplex[TunnelEnd], Tunnel):
    """A tunnel between a node and a gateway."""

    def for_program(self) -> Tunnel:
        """Return the public tunnel with the same local end, which replaces this object."""
        return Tunnel(self._core, self._local, self._wake, self._name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexRequest:
    """A node's request to a gateway for a duplex to another cloud: a tunnel, survey, subscription or publications."""

    op: str
    """The operation that the gateway executes, such as "publish"."""
    name: str
    """The addressed cluster or topic, with the alias of the cloud."""
    headers: Headers = NO_HEADERS
    """The headers of the program."""
    further: Mapping[str, HeaderValue] | None = None
    """Further headers for the gateway."""
    timeout_s: float = TUNNEL_TIMEOUT_S
    """The timeout of the opening, in seconds."""
    window_bytes: int = TUNNEL_WINDOW_BYTES
    """The receive window: the limit on the bytes in transit to this node."""
    waits: bool = False
    """Whether to wait for a place if every gateway is full."""
    anchor: str = ""
    """Chooses the gateway: nodes with the same membership view and anchor choose the same gateway. Empty: by load."""


async def open_duplex(runtime: Runtime, request: DuplexRequest, ends_at: float | None = None) -> GatewayTunnel:
    """Open a tunnel to a gateway to another cloud, and wait until the gateway has accepted.

    Args:
        runtime: The node.
        request: The request.
        ends_at: The end of the caller's timeout, by the clock of the loop; the gateway learns it, too. None: the opening has
            the timeout of the request, and the gateway may take any time to answer.

    Raises:
        IrisError: The tunnel cannot be opened, or the gateway has refused, with the errors of a request to the cloud.
        TunnelBroken: The gateway was lost before its answer.
    """
    name, alias = request.name.rsplit("@", 1)
    own: dict[str, HeaderValue] = {OP_HEADER: request.op}
    left = request.timeout_s
    if ends_at is not None:
        left = ends_at - runtime.loop.time()
        own |= {NAME_HEADER: name, TIME_HEADER: left}
    headers = encode_headers({**request.headers, **own, **(request.further or {})}, is_internal=True)
    end = await _open_end(runtime, request, alias, headers, left)
    tunnel = GatewayTunnel(end, runtime.core.info.id.hex(), runtime.wake, request.name)
    try:
        async with asyncio.timeout_at(ends_at):
            first = await tunnel.receive(max_bytes=_FIRST_BYTES_MAX)
    except TimeoutError:
        tunnel.break_by(asyncio.CancelledError("no answer in time"))
        raise RequestTimeout(request.name, request.timeout_s, None, gateway=tunnel.member) from None
    except TunnelClosed:
        raise TunnelBroken(request.name, tunnel.member, "the gateway has ended it") from None
    except (asyncio.CancelledError, MessageTooLarge) as exc:
        tunnel.break_by(exc)
        raise
    outcome = decode_outcome(first, request.name, request.timeout_s, tunnel.member)
    if isinstance(outcome, IrisError):
        tunnel.leave()
        raise outcome
    return tunnel


async def _open_end(runtime: Runtime, request: DuplexRequest, alias: str, headers: Headers, timeout_s: float) -> TunnelEnd:
    """Open the local end of a tunnel to a gateway. Raises as :func:`open_duplex`."""
    core, anchor = runtime.core, request.anchor
    key = hashlib.blake2b(f"{alias} {anchor}".encode(), digest_size=16).digest() if anchor else b""

    def begin(opened: asyncio.Future[TunnelEnd], now: float) -> int:
        group = core.group_to_ask(gateway_cluster(alias), b"", now)
        offer = core.tunnels.offer(group, request.window_bytes, headers)
        return core.requester.begin(new_opening(group, offer, timeout_s, opened, now, None, key, waits=request.waits), now)

    try:
        return await open_end(runtime, begin)
    except IrisError as exc:
        raise translate(exc, request.name, request.timeout_s) from None


async def open_in_time(runtime: Runtime, request: DuplexRequest) -> GatewayTunnel:
    """Open a duplex to a member in another cloud. If a gateway is lost before, try another one: no data was sent yet.

    Raises:
        IrisError: As :func:`open_duplex`; or every tried gateway was lost.
    """
    ends_at, attempts = runtime.loop.time() + request.timeout_s, 0
    while True:
        attempts += 1
        lost: IrisError
        try:
            return await open_duplex(runtime, request, ends_at)
        except TunnelBroken as exc:
            lost = NodeClosed() if runtime.closing is not None else MemberLost(request.name, "", gateway=exc.member)
        except MemberLost as exc:
            lost = exc
        pause = pause_s(attempts, 1)
        if isinstance(lost, NodeClosed) or runtime.loop.time() + pause >= ends_at:
            raise lost
        await asyncio.sleep(pause)
        runtime.check_open()


async def open_far_tunnel(
    runtime: Runtime, cluster: str, timeout: float, window_bytes: int, headers: Headers, waits: bool
) -> Tunnel:
    """Open a program's tunnel to a cluster of another cloud. Raises as :func:`open_in_time`."""
    request = DuplexRequest(
        op="tunnel",
        name=cluster,
        headers=headers,
        further={WAITS_HEADER: waits},
        timeout_s=timeout,
        window_bytes=window_bytes,
        waits=waits,
    )
    try:
        return (await open_in_time(runtime, request)).for_program()
    except IrisError as exc:
        count_in(runtime.core.requester.counts.far.of(cluster).unopened, type(exc).__name__)
        raise


def read_outcome(outcome: bytes, name: str) -> bytes | IrisError:
    """Decode the outcome that a gateway reports: return the reply, or the error for the caller at this node."""
    decoded = decode_outcome(outcome, name, TUNNEL_TIMEOUT_S)
    if isinstance(decoded, RemoteError) and decoded.type == ConfigurationError.__qualname__:
        return ConfigurationError(decoded.text)
    return decoded
